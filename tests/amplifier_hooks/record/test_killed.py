"""Writers that are killed at any moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.record.log_files import AuditKey
from tests.records import entries

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("killed.py")


@pytest.mark.rule("AUD-3", "AUD-5")
@pytest.mark.fault("F-AUD-06")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize(
    "count", [15, pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(900)])], ids=["a few", "five hundred"]
)
async def test_killed(tmp_path: Path, count: int) -> None:
    """However often writers are killed, acknowledged records survive, and the next writer repairs the log."""
    command = [sys.executable, str(SCRIPT), str(tmp_path), str(count), "1"]
    run = subprocess.run(  # noqa: ASYNC221  # nothing else is to happen meanwhile
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert run.returncode == 0, run.stderr
    told = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(told) == count
    path = tmp_path / "record.jsonl"
    await AuditLog.open(path, key=AuditKey(b"\x07" * 32)).close()
    found = entries(path)
    written = [entry.facts["number"] for entry in found if entry.kind == "decision"]
    assert len(written) == len(set(written))
    assert set(written) >= {number for numbers in told for number in numbers}
    resumed = [entry for entry in found if entry.kind == "log.resumed"]
    begun = [entry for entry in found if entry.kind == "segment.opened"]
    assert not any(entry.facts["closed"] for entry in resumed)
    assert not any("left" in entry.facts for entry in begun)
    recovered = [entry.seq for entry in found if entry.kind == "log.recovered"]
    assert len(resumed) + len(begun) > count
    assert len(recovered) <= count
    print(f"{count} killed, {len(written):,} on record, {len(begun)} segments, {len(recovered)} torn lines")  # noqa: T201
