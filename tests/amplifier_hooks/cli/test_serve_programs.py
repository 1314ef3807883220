"""`amplifier-hooks serve` for other programs: a process that answers their hooks."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from amplifier_hooks import bridge as bridge_module

GUARDS = """
from amplifier_hooks import HookRegistry, HookResult

registry = HookRegistry()

@registry.gate("tool:pre", name="guard")
async def guard(event, data):
    return HookResult.deny("not here") if "rm" in data["tool_input"]["command"] else None
"""


def environment(folder: Path) -> dict[str, str]:
    """A home of its own."""
    return {"PATH": os.environ["PATH"], "HOME": os.fspath(folder), "XDG_STATE_HOME": os.fspath(folder / "state")}


@contextmanager
def served(folder: Path, *arguments: str) -> Iterator[Path]:
    """The command, running until the block ends; yields its socket."""
    (folder / "guards.py").write_text(GUARDS)
    path = folder / "run" / "hooks.sock"
    process = subprocess.Popen(
        [sys.executable, "-m", "amplifier_hooks", "serve", "--socket", os.fspath(path), *arguments],
        cwd=folder, env=environment(folder), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        assert str(path) in said, said + process.stderr.read()
        yield path
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


def bridged(path: Path, command: str, session: str = "s") -> dict[str, Any]:
    """What a program is told about this command, over the real bridge."""
    question = {
        "session_id": session, "cwd": "/", "hook_event_name": "PreToolUse", "tool_name": "Bash",
        "tool_input": {"command": command}, "tool_use_id": "t",
    }  # fmt: skip
    result = subprocess.run(
        [sys.executable, "-I", "-S", bridge_module.__file__, os.fspath(path), "claude_code", "deny"],
        input=json.dumps(question).encode(), capture_output=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout or b"{}")
    return answer


@pytest.mark.rule("DIA-2", "CLI-1")
def test_programs_are_answered_with_a_registry_of_ones_own(tmp_path: Path) -> None:
    """The hooks of the registry that was named decide, the socket is this user's alone, and the record is kept."""
    with served(tmp_path, "--hooks", "guards:registry", "--record", os.fspath(tmp_path / "record.jsonl")) as path:
        assert path.stat().st_mode & 0o077 == 0
        assert bridged(path, "rm -rf /")["hookSpecificOutput"]["permissionDecision"] == "deny"
        assert bridged(path, "ls") == {}
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "record.jsonl").read_text().splitlines()]
    assert "tool.denied" in kinds
    assert "log.closed" in kinds
    assert not path.exists()


@pytest.mark.rule("DIA-2")
def test_programs_may_post(tmp_path: Path) -> None:
    """A program that posts is answered when it bears the token, and no page in a browser is."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    question = {
        "session_id": "s",
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "rm"},
    }
    with served(tmp_path, "--hooks", "guards:registry", "--http", str(port)):
        kept = tmp_path / "state" / "amplifier-hooks" / "programs.token"
        assert kept.stat().st_mode & 0o077 == 0
        bearing = {"authorization": f"Bearer {kept.read_text()}"}
        url = f"http://127.0.0.1:{port}/v1/bridge/claude_code"
        answered = httpx2.post(url, json=question, headers=bearing)
        assert answered.json()["hookSpecificOutput"]["permissionDecision"] == "deny"
        assert httpx2.post(url, json=question).status_code == 401
        assert httpx2.post(url, json=question, headers={**bearing, "origin": "http://evil.example"}).status_code == 403
        assert httpx2.post(url, json=question, headers={**bearing, "host": "evil.example"}).status_code == 403
        assert httpx2.post(url, content=b"[]", headers=bearing).status_code == 400


@pytest.mark.rule("BCK-6")
def test_rules_decide_without_a_person(tmp_path: Path) -> None:
    """A file of rules decides before anybody is asked."""
    rule = {"id": "no-removal", "effect": "deny", "tool": "Bash", "reason": "not here"}
    (tmp_path / "rules.yaml").write_text(json.dumps({"version": 1, "rules": [rule]}))
    with served(tmp_path, "--rules", os.fspath(tmp_path / "rules.yaml")) as path:
        assert bridged(path, "ls")["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_a_socket_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    """A second server at the same socket says so and ends, and the first goes on."""
    with served(tmp_path, "--hooks", "guards") as path:
        second = subprocess.run(
            [sys.executable, "-m", "amplifier_hooks", "serve", "--socket", os.fspath(path), "--record", "other.jsonl"],
            cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert second.returncode == 1
        assert "another server answers" in second.stderr
        assert bridged(path, "ls") == {}


@pytest.mark.parametrize("name", ["nowhere", "json:dumps", "json:JSONEncoder", "guards:missing"])
def test_what_is_no_registry_is_refused(name: str, tmp_path: Path) -> None:
    """A name that leads to no registry is refused, with how to write one."""
    (tmp_path / "guards.py").write_text(GUARDS)
    result = subprocess.run(
        [sys.executable, "-m", "amplifier_hooks", "serve", "--hooks", name],
        cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert name in result.stderr
