"""`amplifier-hooks import`, `install` and `uninstall`, as they are called."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from typer.testing import CliRunner, Result

from amplifier_hooks.cli.app import app
from amplifier_hooks.cli.common.posting import programs_port
from amplifier_hooks.storage.state_folder import StateFolder, default_socket


@frozen
class Desk:
    """A home and a project of one's own."""

    home: Path
    project: Path

    def run(self, *arguments: str) -> Result:
        """Call the command, without a terminal."""
        return CliRunner().invoke(app, [*arguments])

    def settings(self, value: Any, name: str = "settings.local.json") -> Path:
        """Settings of Claude Code in the project."""
        path = self.project / ".claude" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """An empty home and project."""
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("HOME", os.fspath(tmp_path / "home"))
    monkeypatch.setenv("PATH", os.defpath)  # without a Claude Code of this machine
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.delenv("CODEX_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", os.fspath(tmp_path / "home" / "state"))
    return Desk(tmp_path / "home", tmp_path / "project")


GUARD = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "sh guard.sh"}]}]}


@pytest.mark.rule("TRU-2", "DIA-1", "CLI-1")
def test_import_shows_and_trusts(desk: Desk) -> None:
    """Import shows what would run and what a failure means, trusts only on a yes, and asks again after a change."""
    (desk.project / "guard.sh").write_text("exit 0")
    path = os.fspath(desk.settings({"hooks": {**GUARD, "TeammateIdle": [{"hooks": []}]}}))
    nobody = desk.run("import", "claude-code", path)
    assert nobody.exit_code == 2
    assert "--yes" in nobody.stderr
    for words in ("sh guard.sh", "PreToolUse", "not trusted yet", "goes on, and is recorded", "never happens here"):
        assert words in nobody.stdout
    assert desk.run("import", "claude-code", path, "--yes").exit_code == 0
    assert "trusted already" in desk.run("import", "claude-code", path, "--yes").stdout
    (desk.project / "guard.sh").write_text("exit 1")
    assert "not trusted yet" in desk.run("import", "claude-code", path, "--no-input").stdout


def test_import_refuses_what_it_cannot_read(desk: Desk) -> None:
    """A file that is no settings file is refused by its name."""
    result = desk.run("import", "codex", os.fspath(desk.settings("{")))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "settings.local.json" in result.stderr


@pytest.mark.rule("DIA-5", "CLI-1")
def test_install_and_uninstall_leave_no_trace(desk: Desk) -> None:
    """Install shows the change and does nothing the second time, and uninstall restores every byte."""
    odd = '{"hooks":   {"PreToolUse": [{"hooks": [{"type": "command", "command": "theirs"}]}]}, "model": "opus"}'
    path = desk.settings(odd)
    unasked = desk.run("install", "claude-code")
    assert unasked.exit_code == 2
    assert unasked.stderr.startswith("Nothing was done, because there is no terminal to confirm at.")
    assert "Usage:" not in unasked.stderr
    assert path.read_text() == odd
    done = desk.run("install", "claude-code", "--yes")
    assert done.exit_code == 0, done.stderr
    assert "+" in done.stdout
    assert "amplifier-hooks serve" in done.stdout
    commands = [
        hook["command"] for group in json.loads(path.read_text())["hooks"]["PreToolUse"] for hook in group["hooks"]
    ]
    assert commands[0] == "theirs"
    assert commands[1].endswith("claude_code deny || exit 2")
    assert "already" in desk.run("install", "claude-code", "--yes").stdout
    assert desk.run("uninstall", "claude-code", "--yes").exit_code == 0
    assert path.read_text() == odd
    assert "no hook of ours" in desk.run("uninstall", "claude-code", "--yes").stdout
    assert [one.name for one in path.parent.iterdir()] == ["settings.local.json"]


@pytest.mark.rule("DIA-5", "CLI-8")
def test_the_personal_file_is_the_default(desk: Desk) -> None:
    """Without an option install writes a program's personal file, and leaves the one that a team commits."""
    shared = desk.settings({"model": "opus"}, "settings.json")
    before = shared.read_text()
    told = desk.run("install", "claude-code", "--yes").stdout
    assert shared.read_text() == before
    assert sys.executable in (shared.parent / "settings.local.json").read_text()
    assert "keep it out of version control" in told
    assert told.endswith("Add this line to .gitignore: .claude/settings.local.json*\n")
    committed = desk.run("install", "claude-code", "--shared", "--yes").stderr
    assert "uninstall claude-code" in committed
    desk.run("uninstall", "claude-code", "--yes")
    committed = desk.run("install", "claude-code", "--shared", "--yes").stdout
    assert committed.endswith("Add this line to .gitignore: .claude/settings.json.before-amplifier-hooks\n")


def put_claude(desk: Desk, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Put a Claude Code that prints this version on the PATH."""
    program = desk.home / "claude"
    program.write_text(f"#!/bin/sh\necho '{version}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{desk.home}{os.pathsep}{os.environ['PATH']}")


def kinds_at(path: Path, event: str) -> list[str]:
    """Return the types of the hooks at an event."""
    return [hook["type"] for group in json.loads(path.read_text())["hooks"][event] for hook in group["hooks"]]


@pytest.mark.rule("DIA-5")
def test_a_program_that_can_block_without_an_answer_posts(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install chooses posts for it, with a port that serve takes, and a token that only the user can read."""
    put_claude(desk, monkeypatch, "2.1.295 (Claude Code)")
    done = desk.run("install", "claude-code", "--yes")
    assert done.exit_code == 0, done.stderr
    path = desk.project / ".claude" / "settings.local.json"
    assert kinds_at(path, "PreToolUse") == ["http"]
    assert kinds_at(path, "UserPromptSubmit") == ["command"]
    assert path.stat().st_mode & 0o077 == 0
    token = StateFolder().programs_token.read_text()
    assert f"Bearer {token}" in path.read_text()
    assert token not in done.stdout
    assert f"http://127.0.0.1:{programs_port()}/" in path.read_text()
    assert "holds a token" in done.stdout
    assert "already" in desk.run("install", "claude-code", "--yes").stdout
    gone = desk.run("uninstall", "claude-code", "--yes")
    assert token not in gone.stdout
    assert not path.exists()


@pytest.mark.rule("DIA-5")
@pytest.mark.parametrize(
    ("version", "options", "said"),
    [
        ("2.1.294 (Claude Code)", [], "Claude Code is 2.1.294 here, so it runs a command for each event."),
        ("nonsense", [], "Claude Code was not found, so it runs a command"),
        ("2.1.295 (Claude Code)", ["--no-http"], ""),
        ("2.1.295 (Claude Code)", ["--when-down", "ask"], ""),
        ("2.1.295 (Claude Code)", ["--shared"], ""),
    ],
)
def test_other_installations_run_the_bridge(
    version: str, options: list[str], said: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bridge runs where a post without an answer would not block, in a team's file, and where it is asked for."""
    put_claude(desk, monkeypatch, version)
    done = desk.run("install", "claude-code", "--yes", *options)
    assert said in done.stdout
    path = desk.project / ".claude" / ("settings.json" if "--shared" in options else "settings.local.json")
    assert kinds_at(path, "PreToolUse") == ["command"]
    assert programs_port() is None


@pytest.mark.rule("DIA-5")
def test_a_port_that_was_lost_is_replaced(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another program listens at the port, installing again chooses another one."""
    put_claude(desk, monkeypatch, "2.1.400 (Claude Code)")
    monkeypatch.setenv("AMPLIFIER_HOOKS_SOCKET", os.fspath(desk.home / "hooks.sock"))
    desk.run("install", "claude-code", "--yes")
    lost = programs_port()
    with socket.socket() as other:
        other.bind(("127.0.0.1", lost or 0))
        other.listen()
        assert desk.run("install", "claude-code", "--yes").exit_code == 0
    assert programs_port() not in (lost, None)
    assert kinds_at(desk.project / ".claude" / "settings.local.json", "PreToolUse") == ["http"]


COMMITTED = [
    ("claude-code", ".claude/settings.json", ["--shared"]),
    ("codex", ".codex/hooks.json", []),
    ("codex", ".codex/hooks.json", ["--shared"]),
    ("gemini", ".gemini/settings.json", []),
]


@pytest.mark.rule("DIA-5", "CLI-8")
@pytest.mark.parametrize(("program", "file", "options"), COMMITTED)
def test_a_file_that_a_team_commits(program: str, file: str, options: list[str], desk: Desk) -> None:
    """Settings that a team commits have no path of this machine, and decide on a colleague's machine."""
    told = desk.run("install", program, "--yes", *options).stdout
    assert "each user of it needs amplifier-hooks" in told
    assert ("Trust all and continue" in told) == (program == "codex")  # the others run it without a review
    path = desk.project / file
    text = path.read_text()
    for mine in (sys.prefix, "python", "bridge.py", os.fspath(default_socket()), os.fspath(desk.home)):
        assert mine not in text
    hooks = {event: groups[0]["hooks"][0]["command"] for event, groups in json.loads(text)["hooks"].items()}
    gate, after = ("BeforeTool", "AfterTool") if program == "gemini" else ("PreToolUse", "PostToolUse")
    here = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": os.fspath(desk.home)}
    nothing = {"PATH": "/usr/bin:/bin"}
    for environment, event, code, said in (
        (here, gate, 2, "amplifier-hooks serve"),
        (here, after, 0, ""),
        (nothing, gate, 2, "not found"),
    ):
        ran = subprocess.run(["sh", "-c", hooks[event]], env=environment, input=b"{}", capture_output=True, check=False)
        assert (ran.returncode, said in ran.stderr.decode()) == (code, True)
    assert desk.run("uninstall", program, "--yes").exit_code == 0
    assert not path.exists()


@pytest.mark.rule("DIA-5", "CLI-8")
def test_uninstall_finds_either_kind(desk: Desk) -> None:
    """Entries in the personal and in the shared file are taken out together."""
    shared = desk.settings({"model": "opus"}, "settings.json")
    desk.run("install", "claude-code", "--shared", "--yes")
    text = shared.read_text()
    desk.run("uninstall", "claude-code", "--yes")
    own = desk.settings({"theme": "dark"})
    desk.run("install", "claude-code", "--yes")
    shared.write_text(text)  # as a colleague has committed it meanwhile
    assert desk.run("uninstall", "claude-code", "--yes").exit_code == 0
    assert json.loads(shared.read_text()) == {"model": "opus"}
    assert json.loads(own.read_text()) == {"theme": "dark"}


@pytest.mark.rule("DIA-5")
@pytest.mark.parametrize(
    ("first", "then", "remedy"),
    [
        ([], ["--shared"], "amplifier-hooks uninstall claude-code\n"),
        (["--shared"], [], "amplifier-hooks uninstall claude-code\n"),
        (["--user"], [], "amplifier-hooks uninstall claude-code --user\n"),
        ([], ["--user"], "amplifier-hooks uninstall claude-code\n"),
    ],
)
def test_a_second_hook_is_refused(first: list[str], then: list[str], remedy: str, desk: Desk) -> None:
    """With a hook in two files of a program every call would be asked about twice, so the second one is refused."""
    assert desk.run("install", "claude-code", *first, "--yes").exit_code == 0
    told = desk.run("install", "claude-code", *then, "--yes")
    assert told.exit_code == 1
    assert told.stderr.endswith(f"asked about twice; first: {remedy}")


def test_uninstall_keeps_what_was_added_since(desk: Desk) -> None:
    """Later changes to the settings stay when our hook goes."""
    path = desk.settings({"model": "opus"})
    desk.run("install", "claude-code", "--yes")
    changed = json.loads(path.read_text())
    path.write_text(json.dumps({**changed, "theme": "dark"}))
    desk.run("uninstall", "claude-code", "--yes")
    assert json.loads(path.read_text()) == {"model": "opus", "theme": "dark"}


@pytest.mark.parametrize(("program", "file"), [("codex", ".codex/hooks.json"), ("gemini", ".gemini/settings.json")])
def test_install_for_the_user(program: str, file: str, desk: Desk) -> None:
    """Install makes missing settings in the home, with the given policy, and uninstall removes them."""
    assert desk.run("install", program, "--user", "--when-down", "allow", "--yes").exit_code == 0
    path = desk.home / file
    assert "allow" in path.read_text()
    assert "deny" not in path.read_text()
    assert desk.run("uninstall", program, "--user", "--yes").exit_code == 0
    assert not path.exists()


def test_install_refuses_broken_settings(desk: Desk) -> None:
    """Settings that are broken are left as they are, and named."""
    path = desk.settings("{")
    result = desk.run("install", "claude-code", "--yes")
    assert result.exit_code == 1
    assert "settings.local.json" in result.stderr
    assert path.read_text() == "{"


@pytest.mark.rule("DIA-5", "CLI-8")
def test_uninstall_after_installing_twice(desk: Desk) -> None:
    """Uninstalling after two installs with different policies removes the hook, and a file that install made."""
    desk.run("install", "claude-code", "--yes")
    desk.run("install", "claude-code", "--when-down", "allow", "--yes")
    desk.run("uninstall", "claude-code", "--yes")
    assert list(desk.project.iterdir()) == []


@pytest.mark.rule("DIA-5", "CLI-8")
@pytest.mark.parametrize("before", ["", "{}", '{"hooks": {}}\n', '{"model": "opus"}'])
def test_uninstall_restores_every_byte(before: str, desk: Desk) -> None:
    """Uninstalling restores every byte of the earlier settings, however few there were."""
    path = desk.settings(before)
    desk.run("install", "claude-code", "--yes")
    desk.run("install", "claude-code", "--when-down", "ask", "--yes")
    assert "bridge.py" in path.read_text()
    assert desk.run("uninstall", "claude-code", "--yes").exit_code == 0
    assert path.read_text() == before
    assert [one.name for one in path.parent.iterdir()] == ["settings.local.json"]


@pytest.mark.rule("DIA-5", "CLI-8")
def test_uninstall_leaves_what_others_keep_there(desk: Desk) -> None:
    """A folder with other files stays; so do foreign settings in a file that install made."""
    desk.run("install", "codex", "--yes")
    path = desk.project / ".codex" / "hooks.json"
    (path.parent / "config.toml").write_text("")
    desk.run("uninstall", "codex", "--yes")
    assert [one.name for one in path.parent.iterdir()] == ["config.toml"]
    desk.run("install", "codex", "--yes")
    path.write_text(json.dumps({**json.loads(path.read_text()), "theirs": 1}))
    desk.run("uninstall", "codex", "--yes")
    assert json.loads(path.read_text()) == {"theirs": 1}


@pytest.mark.rule("CLI-1", "CLI-3", "CLI-8")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["import", "claude-code", "nope.json"], 1, "Claude Code keeps them in .claude/settings.json, or in"),
        (["import", "codex", "broken.json"], 1, "broken.json: it is no JSON: "),
        (["import", "codex", "broken.json"], 1, "line 1 column 2"),
        (["import", "gemini", "list.json"], 1, "list.json: it is no JSON object"),
        (["import", "gemini", "hooks.json"], 1, "hooks is no object; it names events, each with a list of groups"),
        (["import", "claude-code", "good.json", "--project", "nope"], 2, "dir 'nope' does not exist"),
        (["import", "claude-code", "good.json"], 2, "there is no terminal to confirm at"),
        (["import", "claud", "good.json"], 2, "'claud' is not one of 'claude-code', 'codex', 'gemini'"),
        (["install", "codex", "--user", "--http", "http://127.0.0.1:1", "--yes"], 1, "install the command instead"),
        (["install", "claude-code", "--http", "8642", "--yes"], 2, "write one such as http://127.0.0.1:8642"),
        (["install", "claude-code", "--wait", "nan", "--yes"], 2, "'--wait': Input should be a valid integer"),
        (["install", "claude-code", "--wait", "-5", "--yes"], 2, "greater than or equal to 1"),
        (["install", "claude-code", "--project", "nope", "--yes"], 2, "dir 'nope' does not exist"),
        (["install", "claude-code", "--user", "--shared", "--yes"], 2, "--shared: the settings in a home"),
        (["install", "claude-code"], 2, "--yes confirms it"),
        (["install", "gemini", "--yes"], 1, "settings.json is no JSON object; mend it first, nothing was changed"),
        (["uninstall", "gemini", "--yes"], 1, "settings.json is no JSON object; mend it first"),
        (["uninstall", "codex", "--yes"], 1, "the settings' hooks are no object of lists; mend that first"),
        (["uninstall", "claude-code", "--project", "nope"], 2, "dir 'nope' does not exist"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)  # fmt: skip
def test_misuse(arguments: list[str], code: int, said: str, desk: Desk) -> None:
    """An error names the mistake, its place and its remedy; nothing is changed."""
    files = {
        "broken.json": "{",
        "list.json": "[]",
        "hooks.json": '{"hooks": []}',
        "good.json": json.dumps({"hooks": GUARD}),
        ".gemini/settings.json": "[]",
        ".codex/hooks.json": '{"hooks": []}',
    }
    for name, text in files.items():
        (desk.project / name).parent.mkdir(exist_ok=True)
        (desk.project / name).write_text(text)
    told = desk.run(*arguments)
    assert told.exit_code == code, told.output
    assert said in told.stderr
    assert {name: (desk.project / name).read_text() for name in files} == files
    assert not (desk.project / ".claude").exists()
    assert not (desk.project / "nope").exists()


@pytest.mark.rule("CLI-8")
@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_a_folder_that_cannot_be_written(command: str, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that cannot be written stay as they are, and the error names the remedy."""
    path = desk.settings("{}")
    if command == "uninstall":
        desk.run("install", "claude-code", "--yes")
    before = path.read_text()
    monkeypatch.setattr("tempfile.mkstemp", refused)  # permissions of a folder do not stop root
    told = desk.run(command, "claude-code", "--yes")
    assert told.exit_code == 1
    assert "settings.local.json was left as it is: Permission denied. Make" in told.stderr
    assert path.read_text() == before


def refused(**_: Any) -> Any:
    """Raise the system's error about permissions."""
    raise PermissionError(13, "Permission denied")
