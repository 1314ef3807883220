"""Commands with streams that are closed, full, or of another encoding than their texts; and their questions."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from errno import EADDRNOTAVAIL
from pathlib import Path

import pytest
from typer.testing import CliRunner

from amplifier_hooks.cli.app import app
from amplifier_hooks.cli.common.terminal_io import count_text, error_text, start_problem

ROOT = Path(__file__).parents[4]
PROGRAM = f"{sys.executable} -m amplifier_hooks"


def run(line: str, folder: Path, **more: str) -> subprocess.CompletedProcess[bytes]:
    """A line of shell, in a home of its own."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.fspath(folder), **more}
    return subprocess.run(["sh", "-c", line], cwd=folder, env=environment, capture_output=True, check=False)


@pytest.mark.rule("CLI-3")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("install codex <&-", 2, b"there is no terminal to confirm at"),
        pytest.param("test tool:pre --input - <&-", 2, b"--input", marks=pytest.mark.slow),
        pytest.param("approvals watch <&-", 1, b"There is no terminal to show requests on", marks=pytest.mark.slow),
        pytest.param("ledger >&-", 1, b"There is no ledger", marks=pytest.mark.slow),
        ("--version >/dev/full", 1, b"The command could not go on: [Errno 28] No space left on device\n"),
    ],
    ids=["install", "test", "watch", "ledger", "full"],
)
def test_streams_that_are_not_there(line: str, code: int, said: bytes, tmp_path: Path) -> None:
    """A stream that is closed or full causes no traceback."""
    told = run(f"{PROGRAM} {line}", tmp_path)
    assert (told.returncode, b"Traceback" in told.stderr) == (code, False)
    assert said in told.stderr


@pytest.mark.slow
@pytest.mark.rule("CLI-3", "CLI-4", "CLI-5", "CLI-6")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["demo --fast", "chat", "doctor"])
def test_everything_closed(command: str, closed: str, tmp_path: Path) -> None:
    """The longer commands go to their end with closed streams; none of their output gets into their files."""
    assert run(f"{PROGRAM} {command} {closed}", tmp_path).returncode == 0
    for record in tmp_path.rglob("*.jsonl"):
        assert all(line.startswith(b"{") for line in record.read_bytes().splitlines())


@pytest.mark.slow
@pytest.mark.rule("CLI-3", "CLI-4", "CLI-6")
@pytest.mark.parametrize("alphabet", ["ascii", "latin-1", "utf-8:strict"])
def test_another_alphabet(alphabet: str, tmp_path: Path) -> None:
    """Characters outside the encoding are written with backslashes, and undecodable input is read all the same."""
    told = run(f"{PROGRAM} demo --fast", tmp_path, PYTHONIOENCODING=alphabet)
    assert (told.returncode, told.stderr) == (0, b"")
    assert ("⟦hook lint · 5f3c9e21⟧".encode() if "utf" in alphabet else rb"\u27e6hook lint") in told.stdout
    said = run(rf"printf 'run echo \377\n' | {PROGRAM} chat", tmp_path, PYTHONIOENCODING=alphabet)
    assert said.returncode == 0, said.stderr
    assert b"1 tool call: 1 done." in said.stdout


@pytest.mark.slow
@pytest.mark.rule("CLI-3")
@pytest.mark.parametrize("key", ["\x03", "\x04", "n\r", "\r"], ids=["Ctrl-C", "Ctrl-D", "n", "Enter"])
@pytest.mark.parametrize("command", ["install codex", "import codex hooks.json", "approvals purge"])
def test_a_question_that_is_not_answered(command: str, key: str, tmp_path: Path) -> None:
    """Every way out of a question is a no: the command reports it and changes nothing."""
    import pexpect

    (tmp_path / "hooks.json").write_text('{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}')
    environment = {"PATH": os.environ["PATH"], "HOME": os.fspath(tmp_path), "TERM": "xterm"}
    child = pexpect.spawn(f"{PROGRAM} {command}", env=environment, cwd=os.fspath(tmp_path), timeout=60)
    child.expect(r"\[y/N\]: ")
    child.send(key)
    child.expect("Nothing was done.")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1
    assert [one.name for one in tmp_path.iterdir()] == ["hooks.json"]


@pytest.mark.rule("CLI-1")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param("replay --from claude-code calls.jsonl", marks=pytest.mark.slow),
        "list hooks.yaml",
        "--help",
        pytest.param("doctor", marks=pytest.mark.slow),
    ],
)
def test_a_reader_that_stops(command: str, tmp_path: Path) -> None:
    """A command whose reader has stopped reading says nothing about it."""
    (tmp_path / "calls.jsonl").write_bytes((ROOT / "examples/replay/session.jsonl").read_bytes())
    (tmp_path / "hooks.yaml").write_text("version: 1\nlibrary:\n  rate_limit: {}\n")
    (tmp_path / "amplifier-hooks.yaml").write_text("version: 1\nlibrary:\n  rate_limit: {}\n")
    told = run(f"{{ {PROGRAM} {command}; echo $? >&2; }} | true", tmp_path)
    *said, code = told.stderr.splitlines()
    assert code in (b"1", b"0")  # 0 where the reader had not left yet
    assert [line for line in said if b" is not trusted as it is now" not in line] == []


@pytest.mark.rule("CLI-1")
@pytest.mark.parametrize(
    ("command", "option"),
    [("serve --web --port", "--port"), ("serve --api --api-port", "--api-port"), ("runs serve . --port", "--port")],
)
def test_a_port_that_is_taken(command: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that finds its port taken names the port, and the option that chooses another."""
    environment = {"HOME": os.fspath(tmp_path), "XDG_STATE_HOME": os.fspath(tmp_path / "state")}
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        told = CliRunner().invoke(app, [*command.split(), str(port)], env=environment)
    expected = (
        f"another program listens at 127.0.0.1:{port}; stop it, or name another port: {option} 0 takes a free one"
    )
    assert (told.exit_code, told.stderr.strip().endswith(expected)) == (1, True), told.stderr


@pytest.mark.rule("CLI-1")
@pytest.mark.parametrize("command", ["serve --port 99999", "serve --api-port -1", "runs serve . --port 70000"])
def test_a_port_that_is_none(command: str) -> None:
    """A number that is no port is a usage error."""
    told = CliRunner().invoke(app, command.split())
    assert (told.exit_code, "Traceback" in told.stderr, "port" in told.stderr) == (2, False, True)


@pytest.mark.rule("CLI-1")
def test_a_port_of_the_system() -> None:
    """A port that needs rights, and an address of another machine, have next steps of their own; files have none."""
    assert "above 1023 with --port" in start_problem(PermissionError(13, "no", "0.0.0.0:80"), port=80)
    assert "--host" in start_problem(OSError(EADDRNOTAVAIL, "no", "10.9.9.9:8437"), port=8437)
    file = PermissionError(13, "no", "/run/x.sock")
    expected = "you may not use /run/x.sock; make it accessible to you, or name another"
    assert start_problem(file, port=80) == error_text(file) == expected
    assert start_problem(OSError("full"), port=80) == "full"


@pytest.mark.rule("CLI-1")
def test_plural() -> None:
    """A number has its noun in the singular or in the plural."""
    assert [count_text(number, "hook") for number in (0, 1, 2_000)] == ["0 hooks", "1 hook", "2,000 hooks"]
    assert count_text(2, "reply", "replies") == "2 replies"
