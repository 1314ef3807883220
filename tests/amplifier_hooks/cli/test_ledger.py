"""The command that lists the tool calls of the ledger."""

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from amplifier_hooks import HookRegistry, SessionCoordinator
from amplifier_hooks.cli.app import app
from amplifier_hooks.library import ToolLedger

pytestmark = pytest.mark.rule("LIB-2", "CLI-3")


def run(*arguments: str) -> Result:
    """Run the command here."""
    return CliRunner().invoke(app, ["ledger", *arguments])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This user's state, with a ledger of two sessions in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def called() -> None:
        registry = HookRegistry()
        async with ToolLedger() as ledger:
            ledger.register(registry)
            for number in (1, 2):
                async with SessionCoordinator(registry, session_id=f"s{number}") as session, session.turn("go"):
                    await session.call_tool("Read", {"path": f"a{number}\u202e\n"}, lambda value: "text")
                    await session.call_tool("Write", {"password": "hunter2-hunter2"}, lambda value: 1 / 0)

    asyncio.run(called())
    return tmp_path


def test_lists_calls(home: Path) -> None:
    """Each call is one line, the latest last, without control codes."""
    lines = run().stdout.splitlines()
    assert [line.split()[2:4] for line in lines] == [["ok", "Read"], ["failed", "Write"]] * 2
    assert "a1\\u{202E}" in lines[0]
    assert "(ZeroDivisionError: division by zero)" in lines[1]
    assert "hunter2" not in run().output
    assert len(run("--session", "s1").stdout.splitlines()) == 2
    assert len(run("--status", "failed", "--limit", "1").stdout.splitlines()) == 1
    assert (
        run("--store", str(home / "amplifier-hooks" / "ledger.db"), "--tool", "Read").stdout.splitlines() == lines[::2]
    )


def test_for_programs(home: Path) -> None:
    """With --json each call is one value, with all its facts."""
    first = json.loads(run("--json", "--session", "s2").stdout.splitlines()[0])
    assert (first["tool"], first["status"], first["output"]) == ("Read", "ok", "text")
    assert len(first["digest"]) == 64


def test_nothing_there(home: Path, tmp_path: Path) -> None:
    """An empty list is reported; listing makes no ledger."""
    nothing = run("--tool", "Fetch")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "The ledger has no such calls.\n")
    missing = run("--store", str(tmp_path / "none.db"))
    assert missing.exit_code == 1
    assert "There is no ledger at" in missing.stderr
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "other.db").write_text("no database")
    (tmp_path / "other.db").chmod(0o600)
    broken = run("--store", str(tmp_path / "other.db"))
    assert (broken.exit_code, broken.stdout) == (1, "")
    assert "The ledger cannot be read: the store is damaged" in broken.stderr


def test_called_wrongly(home: Path) -> None:
    """The error about an unknown status lists the known ones."""
    wrong = run("--status", "done")
    assert wrong.exit_code == 2
    assert "status 'done' is none of ok, failed, denied" in wrong.stderr.replace("\n", " ")
