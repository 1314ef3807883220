"""Guarded processes and their children: commands that decide for a person, started by an agent."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry
from amplifier_hooks import bridge as bridge_module
from amplifier_hooks.cli import app as command
from amplifier_hooks.programs import guarded_processes
from amplifier_hooks.programs.guarded_processes import (
    Process,
    guarded_parent,
    mark,
    marked,
    program_behind,
    read_process,
)
from amplifier_hooks.programs.program_session import ProgramSessions
from amplifier_hooks.server.edge.listen import listening, unix_socket
from amplifier_hooks.server.program_api import create_app
from amplifier_hooks.storage.database import UnsafeStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = [
    pytest.mark.rule("SLF-3"),
    pytest.mark.skipif(os.name == "nt", reason="Windows does not tell the parents of a process in this way"),
]

QUESTION = {
    "session_id": "s", "cwd": "/tmp", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_use_id": "t",
    "tool_input": {"command": "ls"},
}  # fmt: skip
AGENT = """
import os, subprocess, sys
hook = f"{sys.executable} -I -S $FILE $SOCKET claude_code; true"
subprocess.run(["sh", "-c", hook], input=os.environ["QUESTION"], text=True, check=True)
decided = subprocess.run([sys.executable, "-m", "amplifier_hooks", "resume", "--yes"], capture_output=True, text=True)
print(decided.stderr)
"""
"""An agent program: it asks the server through the bridge, and then starts a command that decides."""

COMMAND = [sys.executable, "-m", "amplifier_hooks"]


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of marks for the test."""
    folder = tmp_path / "marks" / "guarded"
    monkeypatch.setattr(guarded_processes, "marks_folder", lambda: folder)
    return folder


def run(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command as a child of this process."""
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, timeout=60, **options)


def own() -> Process:
    """Return this process."""
    found = read_process(os.getpid())
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (["validate", "--trust"], True),
        (["approvals", "allow", "8c1f", "--yes"], True),
        (["resume", "--yes"], True),
        (["validate"], False),
        (["approvals", "list"], False),
    ],
)
def test_a_child_of_a_guarded_process_does_not_decide(tmp_path: Path, words: list[str], refused: bool) -> None:
    """A command that decides refuses to run below a guarded process, whatever its environment, and others run."""
    (tmp_path / "amplifier-hooks.yaml").write_text("version: 1\n")
    environment: Mapping[str, str] = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_STATE_HOME": "/nowhere"}
    environment = {**environment, "AMPLIFIER_HOOKS_TRUST": str(tmp_path / "trust.json"), "TMPDIR": str(tmp_path)}
    store = [] if words[0] == "validate" else ["--store", str(tmp_path / "approvals.db")]
    with marked():
        ended = run(*words, *store, cwd=tmp_path, env=environment)
    assert ("decides in a person's place" in ended.stderr) is refused, ended.stderr
    if refused:
        assert ended.returncode == 1
        assert f"process {os.getpid()}" in ended.stderr
        assert not (tmp_path / "trust.json").exists()


@pytest.mark.slow
def test_a_shell_between_changes_nothing(tmp_path: Path) -> None:
    """The refusal holds through shells between the guarded process and the command."""
    text = f"sh -c '{sys.executable} -m amplifier_hooks resume --yes; true'; true"
    with marked():
        ended = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "decides in a person's place" in ended.stderr


@pytest.mark.slow
async def test_a_program_that_asks_through_the_bridge_is_guarded(tmp_path: Path) -> None:
    """A program that asked through the bridge starts no command that decides; its parent still does."""
    pool, path = ProgramSessions(HookRegistry()), tmp_path / "run" / "hooks.sock"
    async with listening(create_app(pool), unix_socket(path)):
        given = {"FILE": bridge_module.__file__, "SOCKET": os.fspath(path), "QUESTION": json.dumps(QUESTION)}
        agent = await asyncio.create_subprocess_exec(
            sys.executable, "-c", AGENT, stdout=asyncio.subprocess.PIPE, env={**os.environ, **given}
        )
        said, _ = await asyncio.wait_for(agent.communicate(), 60)
        await pool.close()
    assert f"(process {agent.pid})" in said.decode()
    assert "decides in a person's place" not in run("resume", "--yes", "--store", str(tmp_path / "a.db")).stderr


def test_every_command_is_listed_as_one_that_decides_or_looks() -> None:
    """Every command of the table exists, and each has the refusal."""
    for group, names in command.DECIDING.items():
        there = command.load_command(group).commands if group else command.LoadedOnUse()
        assert set(names) <= there.keys()
        functions = {name: there[name].callback.__wrapped__ for name in names}  # typer wraps each
        assert all(hasattr(function, "__wrapped__") for function in functions.values())
    assert not hasattr(command.load_command("doctor").callback.__wrapped__, "__wrapped__")


def test_an_operator_is_not_refused(marks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a guarded parent decides, also after the guarded one has ended, and with a stale mark."""
    monkeypatch.setattr(os, "getppid", os.getpid)
    assert guarded_parent() is None
    with marked():
        assert guarded_parent() == own()
    assert guarded_parent() is None
    marks.joinpath(str(os.getpid())).write_text("another start")
    assert guarded_parent() is None
    mark(Process(os.getpid(), 1, own().started, ()))
    assert guarded_parent() == own()


def test_marks_of_processes_that_are_gone_are_removed(marks: Path) -> None:
    """A new mark removes those of processes that have ended."""
    with marked():
        pass
    (marks / "999999999").write_text("x")
    (marks / "no number").write_text("x")
    mark(own())
    assert [path.name for path in marks.iterdir()] == [str(os.getpid())]


def test_a_folder_that_others_can_write_is_refused(marks: Path) -> None:
    """No mark is kept in a folder that other users can write."""
    marks.mkdir(parents=True)
    marks.chmod(0o777)
    with pytest.raises(UnsafeStore, match="others may write"):
        mark(own())


def test_the_program_behind_the_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program behind the bridge is the first parent that neither is the bridge nor only starts it."""
    found = {
        9: Process(9, 8, "x", ("/usr/bin/python3", "-I", "-S", "/lib/bridge.py", "/run/s", "codex")),
        8: Process(8, 7, "x", ("/bin/sh", "-c", "/usr/bin/python3 -I -S /lib/bridge.py /run/s codex")),
        7: Process(7, 6, "x", ("claude", "-p", "mend the bridge")),
        6: Process(6, 1, "x", ("-bash",)),
    }
    monkeypatch.setattr(guarded_processes, "read_process", found.get)
    program = program_behind(9)
    assert program is not None
    assert program.pid == 7
    assert program_behind(1) is None
