"""The demo, which is the first command that a newcomer runs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, cast

import pexpect
import pytest
from typer.testing import CliRunner

from amplifier_hooks.cli.app import app
from amplifier_hooks.cli.demo.scenes import Telling, findings_of, tell, unused_imports
from approval_backends.client import ApprovalsClient

if TYPE_CHECKING:
    from pathlib import Path

SOON = 60  # seconds; nothing here takes that long unless it is broken


def run(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command without a keyboard."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "amplifier_hooks", *arguments],
        check=False,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SOON,
        env={**os.environ, **environment},
    )


@pytest.mark.rule("CLI-1")
def test_demo(tmp_path: Path) -> None:
    """The demo shows feedback by a linter, a budget, an unanswered question, a denial, and the record twice."""
    told = run("demo", "--no-input", folder=tmp_path)
    assert (told.returncode, told.stderr) == (0, "")
    for line in (
        "| Operation denied by no_wiping: rm -rf deletes files for good",
        "screen < lint: 1 finding in app.py (info, from hook:lint)",
        "| ⟦hook lint · 5f3c9e21⟧",
        "| app.py:1:8: F401 [*] `os` imported but unused",
        "The linter has nothing to say this time.",
        "screen < lint: 150 findings in old.py",
        "| ⟦trimmed · kept ",
        "| Operation denied by protect_production: No approval system available",
        "| payment_provider: sandbox",
        "lines of JSON, which only their owner can read.",
        "approval.decided   tool:pre  Write  unavailable",
        "| unbroken: Every line of the log verifies up to line ",
        "| tampered: Something that was written to the log is not what stands there now.",
    ):
        assert line in told.stdout
    # After five seconds, on a slow machine, a checkpoint is one more line before it.
    assert re.search(r"\| changed\.jsonl, line \d+: the line is not the one that was written here", told.stdout)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.rule("CLI-1")
def test_demo_is_plain(tmp_path: Path) -> None:
    """The demo tells the same every time, in short sentences, without colour where there is no terminal."""
    told = (run("demo", "--no-input", folder=tmp_path).stdout for _ in range(2))
    first, second = (re.sub(r"\bline \d+", "line", one) for one in told)
    assert first == second
    assert "!" not in first
    assert "\x1b" not in first
    assert max(map(len, first.splitlines())) <= 120


@pytest.mark.slow
@pytest.mark.rule("CLI-1")
def test_demo_without_terminal(tmp_path: Path) -> None:
    """Without a terminal the demo does not prompt, and prints the reason."""
    told = run("demo", folder=tmp_path)
    assert told.returncode == 0
    assert "Approval unavailable: no interactive terminal to ask in" in told.stdout


@pytest.mark.slow
@pytest.mark.rule("CLI-1")
@pytest.mark.parametrize(("answer", "provider"), [("a Allow once", "live"), ("d Deny", "sandbox")])
def test_demo_in_terminal(tmp_path: Path, answer: str, provider: str) -> None:
    """In a terminal the demo asks, and follows the answer."""
    child = pexpect.spawn(
        sys.executable,
        ["-m", "amplifier_hooks", "demo", "--fast"],
        cwd=str(tmp_path),
        env={**os.environ, "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm-256color", "NO_COLOR": "1"},
        dimensions=(40, 120),
        timeout=SOON,
    )
    child.expect_exact("Enter confirms")
    assert not re.search(rb"\x1b\[[\d;]*[34]\dm", cast("bytes", child.before))  # NO_COLOR is set
    child.send(answer[0])
    child.expect_exact("a moment")
    child.expect_exact(f"▸ {answer}".encode())
    child.expect_exact("Enter confirms")
    child.send("\r")
    child.expect_exact(f"payment_provider: {provider}")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


@pytest.mark.rule("CLI-1")
def test_demo_keeps_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo keeps the record in the named file, readable by its owner only, and overwrites nothing."""
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["demo", "--no-input", "--record", "mine.jsonl"]).exit_code == 0
    record = tmp_path / "mine.jsonl"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    kinds = [json.loads(line)["kind"] for line in record.read_text().splitlines()]
    assert kinds[0] == "segment.opened"
    assert kinds.count("tool.denied") == 2
    before = record.read_bytes()
    again = CliRunner().invoke(app, ["demo", "--no-input", "--record", str(record)])
    assert (again.exit_code, again.stdout) == (2, "")
    assert "mine.jsonl exists" in again.stderr
    assert record.read_bytes() == before


@pytest.mark.rule("CLI-4")
async def test_demo_without_ruff(capsys: pytest.CaptureFixture[str]) -> None:
    """Without ruff the demo reports that, and a check of its own has equal findings."""
    await tell(Telling(ask=False, ruff=None))
    told = capsys.readouterr().out
    assert "ruff is not installed here" in told
    assert "| app.py:1: `os` imported but unused" in told
    assert "| ⟦trimmed · kept " in told


@pytest.mark.rule("CLI-4")
async def test_demo_with_a_broken_linter(tmp_path: Path) -> None:
    """A broken ruff is an error with ruff's own text, and not a file without findings."""
    broken = tmp_path / "ruff"
    broken.write_text("#!/bin/sh\necho no such option >&2\nexit 2\n")
    broken.chmod(0o755)
    with pytest.raises(OSError, match=r"could not look at app.py: no such option"):
        await findings_of(str(broken), tmp_path, "app.py")


@pytest.mark.slow
@pytest.mark.rule("CLI-4")
def test_demo_rests(tmp_path: Path) -> None:
    """In a terminal there is time to read a scene before the next one begins."""
    child = pexpect.spawn(
        sys.executable, ["-m", "amplifier_hooks", "demo"],
        cwd=str(tmp_path), env={**os.environ, "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm-256color"},
        dimensions=(40, 120), timeout=SOON,
    )  # fmt: skip
    child.expect_exact("nothing to say this time")
    assert child.expect_exact(["A report that is too long", pexpect.TIMEOUT], timeout=0.5) == 1
    child.expect_exact("A report that is too long")
    child.expect_exact("Enter confirms")
    child.send("\x03")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


@pytest.mark.slow
@pytest.mark.rule("CLI-4", "WIR-11")
async def test_demo_on_the_page(tmp_path: Path) -> None:
    """With --web the demo waits for an answer at the page; its token is in a file of the owner's, and nowhere else."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "BROWSER": "true"}
    command = [sys.executable, "-m", "amplifier_hooks", "demo", "--web"]
    pipe = asyncio.subprocess.PIPE
    told = await asyncio.create_subprocess_exec(*command, env=environment, stdout=pipe, stderr=pipe)
    assert told.stdout is not None
    printed = b""
    while b"wants a person to look" not in printed:
        printed += await told.stdout.readline()
    (file,) = (tmp_path / "amplifier-hooks").glob("gateway-*.json")
    there = json.loads(file.read_text())
    async with ApprovalsClient(there["address"], there["token"]) as client:
        async for _news in client.news():
            if client.queue:
                card = await client.show(client.queue[0].request_id)
                await client.decide(client.queue[0], card.options[0].option_id)
                break
    rest, messages = await told.communicate()
    assert told.returncode == 0
    assert b"payment_provider: live" in rest
    assert f"cat {file}".encode() in messages
    assert there["token"].encode() not in printed + rest + messages


@pytest.mark.rule("CLI-1")
def test_demo_cannot_write(tmp_path: Path) -> None:
    """A record that cannot be written is an error on standard error, with exit code 1."""
    told = run("demo", "--no-input", "--record", "nowhere/mine.jsonl", folder=tmp_path)
    assert told.returncode == 1
    assert told.stderr.startswith("The demo cannot go on: ")
    assert "Traceback" not in told.stderr


@pytest.mark.rule("CLI-1")
@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["demo", "--help"]])
def test_help(arguments: list[str]) -> None:
    """Help goes to standard output and has examples before the options."""
    told = CliRunner().invoke(app, arguments, prog_name="amplifier-hooks")
    assert (told.exit_code, told.stderr) == (0, "")
    assert re.search(r"Examples:\n +amplifier-hooks demo\b.*\n.*Options:", told.stdout, re.DOTALL)


@pytest.mark.rule("CLI-1")
def test_version() -> None:
    """The version is one line."""
    assert re.fullmatch(r"amplifier-hooks \d+\.\d+\.\d+\n", CliRunner().invoke(app, ["--version"]).stdout)


@pytest.mark.rule("CLI-1")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demmo"], "Did you mean 'demo'?"),
        (["demo", "--no-inptu"], "--no-input"),
        (["demo", "now"], "unexpected"),
        (["demo", "--web", "--no-input"], "the page asks, and --no-input forbids it"),
    ],
)
def test_misuse(arguments: list[str], said: str) -> None:
    """A wrong call is an error on standard error with the nearest name, and exit code 2."""
    told = CliRunner().invoke(app, arguments)
    assert (told.exit_code, told.stdout) == (2, "")
    assert said in told.stderr


@pytest.mark.rule("CLI-1")
def test_help_is_light(tmp_path: Path) -> None:
    """Asking for help loads neither the demo nor the libraries that draw on terminals."""
    program = "import sys; from amplifier_hooks.cli.app import app\ntry: app(['--help'])\nfinally: print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert {"amplifier_hooks.cli.demo.scenes", "prompt_toolkit", "rich.console", "pydantic"}.isdisjoint(
        told.stdout.split()
    )


def test_lint() -> None:
    """The demo's little linter finds unused imports, and nothing else."""
    assert unused_imports("import os\nimport sys\n\nprint(sys.argv)\n") == [(1, "os")]
