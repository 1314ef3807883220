"""Commands with streams that are closed, full, or of another encoding than their texts; and their questions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
