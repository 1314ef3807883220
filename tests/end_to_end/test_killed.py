"""A program that is killed with kill -9 at every point of an approved call, and started again."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from approval_backends.broker import Broker
from approval_backends.lifecycle import Decider
from tests.approval_backends.stores.worker import store_at
from tests.stores import FILES, address

PROGRAM = Path(__file__).with_name("killed.py")
ROOT = PROGRAM.parent.parent.parent
ROBIN = Decider(name="Robin", channel="elsewhere")

RUNS = ("ok", 1)
ONCE = {
    "never": RUNS,
    "asked": RUNS,
    "recorded the question": RUNS,
    "stored the question": RUNS,
    "decided, not recorded": RUNS,
    "recorded the decision": RUNS,
    "recorded that it runs": RUNS,
    "claimed": ("unknown", 0),
    "effect begun": ("unknown", 1),
    "effect done, not recorded": ("unknown", 1),
    "result recorded, not stored": ("unknown", 1),
    "result stored": ("done", 1),
    "everything but the mark": ("done", 1),
}
"""Points at which it is killed, each with the end of the call after a restart and the number of its runs."""


async def run(where: str, folder: Path, point: str) -> tuple[int, str]:
    """Start the program once, and return its exit status and output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", str(PROGRAM), where, str(folder), point),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode().strip()


async def allow_everything(where: str) -> None:
    """Allow every question from another process, until stopped."""
    async with store_at(where) as store:
        broker = Broker(store)
        with broker.watch() as watch:
            while True:
                for record in await broker.pending(ROBIN):
                    await broker.decide(record.id, record.digest, "option-1", ROBIN)
                await watch.wait(0.2)


def records(folder: Path) -> list[dict[str, Any]]:
    """Return the record, which has to be whole lines."""
    text = (folder / "record.jsonl").read_text(encoding="ascii")
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.rule("BCK-8", "BCK-5", "APR-12", "AUD-3")
@pytest.mark.fault("F-ST-02", "F-APR-21")
@pytest.mark.parametrize("point", ONCE)
@pytest.mark.parametrize("kind", FILES)
async def test_killed_and_started_again(kind: str, point: str, tmp_path: Path) -> None:
    """Wherever it is killed, no decision is lost and nothing runs twice; a call that began waits for a person."""
    became, runs = ONCE[point]
    async with address(kind, tmp_path) as where:
        async with store_at(where):
            deciding = asyncio.ensure_future(allow_everything(where))
        try:
            if point != "never":
                assert (await run(where, tmp_path, point))[0] == -signal.SIGKILL
            code, said = await run(where, tmp_path, "never")
            assert code == 0
            assert said.startswith("denied" if became == "unknown" else "ok")
            for _ in range(2):
                code, said = await run(where, tmp_path, "never")
                assert (code, said.split()[0]) == (0, "denied" if became == "unknown" else "ok")  # ok: the kept result
                assert ("a person has to look at it" in said) is (became == "unknown")
        finally:
            deciding.cancel()
            await asyncio.wait({deciding})
        async with store_at(where) as store:
            (record,) = await store.history()
            assert record.status == ("done" if became == "ok" else became)
            kinds = [event.kind for event in await store.events(record.id)]
            assert (kinds.count("approve"), kinds.count("claim")) == (1, 1)
            left = [event.kind for event in await store.list_unrecorded()]
            assert left == []
    canary = tmp_path / "canary"
    assert (canary.read_bytes().count(b"ran") if canary.exists() else 0) == runs
    written = records(tmp_path)
    order = [line["kind"] for line in written]
    assert order.index("approval.requested") < order.index("approval.decided") < order.index("tool.running")
    if became == "unknown":
        assert [line["facts"]["request"] for line in written if line["kind"] == "approval.unknown"] == [record.id] * 3
    if point in ("decided, not recorded", "result stored", "everything but the mark"):
        assert any(line["kind"] == "approval.late" and line["facts"]["late"] for line in written)
