"""`amplifier-hooks chat`, called by programs, through a pipe, and at a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pexpect
import pytest
from typer.testing import CliRunner

from amplifier_hooks.cli.app import app
from amplifier_hooks.cli.chat.chat_session import open_chat
from amplifier_hooks.cli.chat.models import ScriptedModel
from amplifier_hooks.cli.project.read_project import hooks_named
from tests.conftest import require_installed
from tests.scripted_models import Say, Use, serving

SOON = 60
COMMAND = [sys.executable, "-m", "amplifier_hooks", "chat"]
GUARDS = """
from amplifier_hooks import HookRegistry, HookResult
registry = HookRegistry()

@registry.gate("tool:pre", match="Bash")
async def no_wiping(event, data):
    return HookResult.deny("not with -rf") if "-rf" in data["tool_input"]["command"] else None

@registry.gate("tool:pre", match="Write")
async def ask_first(event, data):
    return HookResult.ask("Write this?", options=["Allow once", "Allow always", "Deny"], timeout=30)

@registry.on("tool:post", match="Write")
async def lint(event, data):
    return HookResult.inject("line 1 is odd", user_message="1 finding")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with guards."""
    (tmp_path / "guards.py").write_text(GUARDS)
    return tmp_path


def environment(folder: Path, **more: str) -> dict[str, str]:
    """One's own state, and no keys."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / ".state"),
        "LANG": "C.UTF-8",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "TERM": "xterm-256color",
        "NO_COLOR": "1",
        **more,
    }


def run(folder: Path, *arguments: str, said: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """Call it with this on its standard input."""
    return subprocess.run(
        [*COMMAND, *arguments],
        check=False, cwd=folder, input=said, capture_output=True, text=True, timeout=SOON,
        env=environment(folder, **more),
    )  # fmt: skip


@pytest.mark.rule("CLI-6", "CLI-3")
def test_one_turn_for_programs(folder: Path) -> None:
    """One turn as JSON has the calls that ran, the denied calls with their reasons, and the path of the record."""
    told = run(folder, "--hooks", "guards:registry", "-p", "run echo hi\nrun rm -rf x\nwrite a.txt x", "--json")
    assert told.returncode == 0
    value = json.loads(told.stdout)
    assert [(tool["name"], tool["status"]) for tool in value["tools"]] == [
        ("Bash", "ok"), ("Bash", "denied"), ("Write", "denied"),
    ]  # fmt: skip
    assert "not with -rf" in value["tools"][1]["result"]
    assert "no interactive terminal" in value["tools"][2]["result"]
    lines = [json.loads(line) for line in Path(value["record"]).read_text(encoding="ascii").splitlines()]
    assert [line["facts"]["tool"] for line in lines if line["kind"] == "tool.denied"] == ["Bash", "Write"]


@pytest.mark.slow
@pytest.mark.rule("SLF-1", "SLF-2", "SLF-3")
def test_the_model_does_not_take_off_its_guard(tmp_path: Path) -> None:
    """Calls against the guard are denied, also below a script; an operator's option lets them run, on record."""
    (tmp_path / "amplifier-hooks.yaml").write_text("version: 1\n")
    (tmp_path / "decide.sh").write_text(f"{sys.executable} -m amplifier_hooks resume --yes 2>&1\n")
    trusted = subprocess.run(
        [sys.executable, "-m", "amplifier_hooks", "validate", "--trust"],
        check=False, cwd=tmp_path, env=environment(tmp_path), capture_output=True,
    )  # fmt: skip
    assert trusted.returncode == 0, trusted.stderr
    said = "write amplifier-hooks.yaml x\nrun amplifier-hooks validate --trust\nrun sh decide.sh"
    value = json.loads(run(tmp_path, "-p", said, "--json").stdout)
    assert [tool["status"] for tool in value["tools"]] == ["denied", "denied", "ok"]
    assert "self-protection" in value["tools"][0]["result"]
    assert "decides in a person's place" in value["tools"][2]["result"]
    value = json.loads(run(tmp_path, "-p", "write amplifier-hooks.yaml x", "--json", "--no-self-protection").stdout)
    assert [tool["status"] for tool in value["tools"]] == ["ok"]
    assert '"self_protection.off"' in Path(value["record"]).read_text(encoding="ascii")


@pytest.mark.rule("CLI-6")
def test_through_a_pipe(folder: Path) -> None:
    """Lines from a pipe are turns, and the chat asks nothing."""
    told = run(folder, "--hooks", "guards:registry", said="run echo hi\n\nwrite a.txt x\n")
    assert told.returncode == 0
    assert "3 hooks" in told.stdout
    assert "  Bash > echo hi\n  | hi\n1 tool call: 1 done.\n  Write > a.txt\n" in told.stdout
    assert "1 tool call: 0 done, 1 not done." in told.stdout
    assert "The record is" in told.stderr


@pytest.mark.rule("CLI-6", "CLI-3")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--json"], 2, "it needs --prompt"),
        (["--directory", "nowhere"], 2, "dir 'nowhere' does not exist"),
        (["--hooks", "nowhere:registry", "-p", "x"], 1, "write MODULE:NAME of a HookRegistry"),
        (["--rules", "nowhere.yaml", "-p", "x"], 1, "nowhere.yaml"),
        (["--record", "nowhere/r.jsonl", "-p", "x"], 1, "The chat cannot go on"),
        (["--provider", "openai", "-p", "x"], 1, "check OPENAI_API_KEY, OPENAI_BASE_URL"),
    ],
)
def test_called_wrongly(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, said: str
) -> None:
    """An error on standard error names its remedy, and the exit code tells a wrong call from a failure."""
    monkeypatch.chdir(folder)
    nobody = {"ANTHROPIC_API_KEY": "", "ANTHROPIC_BASE_URL": "", "OPENAI_API_KEY": ""}
    more = environment(folder, OPENAI_BASE_URL="http://127.0.0.1:1/v1", COLUMNS="200", **nobody)
    told = CliRunner().invoke(app, ["chat", *arguments], env=more)
    if code == 1:
        require_installed(told.stderr)
    assert told.exit_code == code
    assert said in told.stderr
    assert told.stdout == "" or code == 1


@pytest.mark.slow
@pytest.mark.rule("CLI-6")
@pytest.mark.parametrize(("variable", "path"), [("ANTHROPIC_BASE_URL", ""), ("OPENAI_BASE_URL", "/v1")])
async def test_with_a_model(folder: Path, variable: str, path: str) -> None:
    """With a model's address in the environment the chat talks to it, and the model reads the text of a hook."""
    import asyncio

    async with serving(Use("Bash", {"command": "rm -rf x"}), Say("I could not")) as server:
        more = {variable: server.url + path}
        told = await asyncio.to_thread(run, folder, "--hooks", "guards:registry", "-p", "wipe it", **more)
        assert "not with -rf" in server.read
    assert told.returncode == 0, told.stderr
    assert told.stdout.endswith("I could not\n")


@pytest.mark.slow
@pytest.mark.rule("CLI-6", "BCK-1")
def test_at_a_terminal(folder: Path) -> None:
    """At a terminal a card asks, Ctrl-C ends a turn and not the chat, and Ctrl-D ends the chat."""
    child = pexpect.spawn(
        COMMAND[0], [*COMMAND[1:], "--hooks", "guards:registry"],
        cwd=str(folder), env=environment(folder), dimensions=(40, 120), timeout=SOON, encoding="utf-8",
    )  # fmt: skip
    child.expect_exact("3 hooks")
    child.expect_exact("?2004h")
    child.send("write a.txt hello\r")
    child.expect_exact("Enter confirms")
    child.send("a")
    child.expect_exact("▸ a Allow once")
    child.expect_exact("Enter confirms")
    child.send("\r")
    child.expect_exact("1 finding")
    child.expect_exact("wrote 6 bytes")
    child.expect_exact("line 1 is odd")
    child.expect_exact("?2004h")
    child.send("run echo begun > begun; sleep 60\r")
    child.expect_exact("Bash > echo begun")
    while not (folder / "begun").exists():
        time.sleep(0.01)
    child.sendintr()
    child.expect_exact("Stopped.")
    child.expect_exact("?2004h")
    child.send("\x04")
    child.expect_exact("The record is")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert (folder / "a.txt").read_text() == "hello\n"


@pytest.mark.slow
@pytest.mark.rule("CLI-6", "CLI-2")
def test_over_a_store(folder: Path) -> None:
    """With --store another command answers, also for all alike calls in this project."""
    command = [*COMMAND, "--hooks", "guards:registry", "--no-input", "--store", "s.db", "-p", "write c.txt hello"]
    chat = subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, text=True)
    approvals = [sys.executable, "-m", "amplifier_hooks", "approvals"]

    def answering(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*approvals, *arguments, "--store", "s.db"],
            check=False, cwd=folder, env=environment(folder), capture_output=True, text=True,
        )  # fmt: skip

    end = time.monotonic() + SOON
    waiting: list[dict[str, str]] = []
    while not waiting:
        assert time.monotonic() < end
        listed = answering("list", "--json")
        waiting = json.loads(listed.stdout) if listed.returncode == 0 else []
    always = "Allow always in this project"
    allowed = answering("allow", waiting[0]["id"], "--yes", "--option", always)
    assert allowed.returncode == 0, allowed.stderr
    told, _ = chat.communicate(timeout=SOON)
    assert chat.returncode == 0
    assert "wrote 6 bytes to c.txt" in told
    again = subprocess.run(
        command, check=False, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=SOON
    )
    assert (again.returncode, "wrote 6 bytes to c.txt" in again.stdout) == (0, True)


@pytest.mark.rule("CLI-6", "LIB-8")
async def test_hooks_of_the_folder_are_closed_with_the_chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ready-made hook of the project is closed after the session whose events it gets has ended."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ".state"))
    (tmp_path / "amplifier-hooks.yaml").write_text("version: 1\nlibrary:\n  tool_ledger: {store: ':memory:'}\n")
    hooks = hooks_named(str(tmp_path))
    record = tmp_path / "record.jsonl"
    async with open_chat(tmp_path, hooks, ScriptedModel(), record, ask=False, quiet=True) as chat:
        await chat.turn("run ls")
        assert hooks.registry.hooks()
    assert not hooks.registry.hooks()
