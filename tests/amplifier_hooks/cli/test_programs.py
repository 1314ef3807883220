"""`amplifier-hooks import`, `install` and `uninstall`, as they are called."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen


@frozen
class Desk:
    """A home and a project of one's own."""

    home: Path
    project: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call the command, without a terminal."""
        env = {
            "PATH": os.environ["PATH"],
            "HOME": os.fspath(self.home),
            "XDG_STATE_HOME": os.fspath(self.home / "state"),
        }
        return subprocess.run(
            [sys.executable, "-m", "amplifier_hooks", *arguments],
            cwd=self.project, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def settings(self, value: Any) -> Path:
        """A project's settings."""
        path = self.project / ".claude" / "settings.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """An empty one."""
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    return Desk(tmp_path / "home", tmp_path / "project")


GUARD = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "sh guard.sh"}]}]}


@pytest.mark.rule("TRU-2", "DIA-1", "CLI-1")
def test_import_shows_and_trusts(desk: Desk) -> None:
    """Import shows what would run and what a failure means, trusts only on a yes, and asks again after a change."""
    (desk.project / "guard.sh").write_text("exit 0")
    path = os.fspath(desk.settings({"hooks": {**GUARD, "TeammateIdle": [{"hooks": []}]}}))
    nobody = desk.run("import", "claude-code", path)
    assert nobody.returncode == 1
    assert "--yes" in nobody.stderr
    for words in ("sh guard.sh", "PreToolUse", "not trusted yet", "goes on, and is recorded", "never happens here"):
        assert words in nobody.stdout
    assert desk.run("import", "claude-code", path, "--yes").returncode == 0
    assert "trusted already" in desk.run("import", "claude-code", path, "--yes").stdout
    (desk.project / "guard.sh").write_text("exit 1")
    listed = json.loads(desk.run("import", "claude-code", path, "--json").stdout)
    assert [hook["trusted"] for hook in listed["hooks"]] == [False]


def test_import_refuses_what_it_cannot_read(desk: Desk) -> None:
    """A file that is no settings file is refused by its name."""
    result = desk.run("import", "codex", os.fspath(desk.settings("{")))
    assert (result.returncode, result.stdout) == (1, "")
    assert "settings.json" in result.stderr


@pytest.mark.rule("DIA-5", "CLI-1")
def test_install_and_uninstall_leave_no_trace(desk: Desk) -> None:
    """Install shows the change and does nothing the second time, and uninstall restores every byte."""
    odd = '{"hooks":   {"PreToolUse": [{"hooks": [{"type": "command", "command": "theirs"}]}]}, "model": "opus"}'
    path = desk.settings(odd)
    assert desk.run("install", "claude-code").returncode == 1
    assert path.read_text() == odd
    done = desk.run("install", "claude-code", "--yes")
    assert done.returncode == 0, done.stderr
    assert "+" in done.stdout
    assert "amplifier-hooks serve" in done.stdout
    commands = [
        hook["command"] for group in json.loads(path.read_text())["hooks"]["PreToolUse"] for hook in group["hooks"]
    ]
    assert commands[0] == "theirs"
    assert commands[1].endswith("claude_code deny")
    assert "already" in desk.run("install", "claude-code", "--yes").stdout
    assert desk.run("uninstall", "claude-code", "--yes").returncode == 0
    assert path.read_text() == odd
    assert "no hook of ours" in desk.run("uninstall", "claude-code", "--yes").stdout
    assert [one.name for one in path.parent.iterdir()] == ["settings.json"]


def test_uninstall_keeps_what_was_added_since(desk: Desk) -> None:
    """What somebody added to the settings meanwhile stays when our hook goes."""
    path = desk.settings({"model": "opus"})
    desk.run("install", "claude-code", "--yes")
    changed = json.loads(path.read_text())
    path.write_text(json.dumps({**changed, "theme": "dark"}))
    desk.run("uninstall", "claude-code", "--yes")
    assert json.loads(path.read_text()) == {"model": "opus", "theme": "dark"}


@pytest.mark.parametrize(("program", "file"), [("codex", ".codex/hooks.json"), ("gemini", ".gemini/settings.json")])
def test_install_for_the_user(program: str, file: str, desk: Desk) -> None:
    """Settings that were not there are made in the home, with the policy asked for, and are gone after uninstalling."""
    assert desk.run("install", program, "--user", "--when-down", "allow", "--yes").returncode == 0
    path = desk.home / file
    assert "allow" in path.read_text()
    assert "deny" not in path.read_text()
    assert desk.run("uninstall", program, "--user", "--yes").returncode == 0
    assert not path.exists()


def test_install_refuses_broken_settings(desk: Desk) -> None:
    """Settings that are broken are left as they are, and named."""
    path = desk.settings("{")
    result = desk.run("install", "claude-code", "--yes")
    assert result.returncode == 1
    assert "settings.json" in result.stderr
    assert path.read_text() == "{"
