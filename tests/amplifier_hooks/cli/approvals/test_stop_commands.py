"""The commands that stop the acts of other processes, and let them go on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from amplifier_hooks.cli.app import app
from amplifier_hooks.cli.common.terminal_io import user_name
from amplifier_hooks.cli.doctor import CHECKS, Patient, run_checks
from approval_backends.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty store, which the command finds by the environment."""
    path = tmp_path / "approvals.db"
    monkeypatch.setenv("AMPLIFIER_HOOKS_STORE", str(path))

    async def make() -> None:
        async with SqliteStore(path):
            pass

    asyncio.run(make())
    return path


def run(*arguments: str) -> Result:
    """Run the command here, with no terminal."""
    return CliRunner().invoke(app, arguments)


@pytest.mark.rule("CLI-2", "CLI-5", "APR-14")
def test_a_stop_is_shown_until_it_ends(store: Path) -> None:
    """A stop needs a reason and no yes; the list and the doctor name it until `resume` with the same options."""
    assert run("stop").exit_code == 2
    begun = run("stop", "--session", "b 7", "--why", "it\x1bloops").stdout
    assert begun.startswith(f"Stop of session b 7, by {user_name()} since 20")
    assert begun.endswith("UTC: it\\u{1B}loops\n")
    assert "Stop of session b 7" in run("approvals", "list").stderr
    assert "\x1b" not in run("approvals", "list").stderr
    found = list(run_checks({"approvals": CHECKS["approvals"]}, Patient(folder=store.parent, store=str(store))))
    assert [one.repair for one in found if one.state == "warning"] == ["amplifier-hooks resume --session 'b 7'"]
    other = run("resume", "--yes")
    assert other.exit_code == 1
    assert "No stop of all sessions is in force" in other.stderr
    assert "Stop of session b 7" in other.stderr
    assert run("resume", "--session", "b 7").exit_code == 2
    ended = run("resume", "--session", "b 7", "--yes")
    assert (ended.exit_code, ended.stdout[:25]) == (0, "Ended: Stop of session b ")
    assert "Stop" not in run("approvals", "list").stderr
