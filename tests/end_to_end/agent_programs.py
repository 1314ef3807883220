"""Real agent programs: how each is run with a scripted model and without an account."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import claude_agent_sdk
from attrs import frozen

from tests.conftest import require
from tests.scripted_models import Use

if TYPE_CHECKING:
    from collections.abc import Mapping

INSTALLED: Final = Path(__file__).parents[2] / ".agents" / "node_modules" / ".bin"
CLAUDE: Final = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
Started = tuple[list[str], dict[str, str]]
"""A command line and its environment."""


@frozen
class Program:
    """A program, the way to run it without an account, and the name of its shell tool."""

    dialect: str
    tool: str
    argument: str

    def command(self, line: str) -> Use:
        """Return a call of the program's shell tool."""
        more = {} if self.dialect == "codex" else {"description": "a step"}
        return Use(self.tool, {self.argument: line, **more})

    def settled(self, home: Path, project: Path, settings: Mapping[str, Any], url: str) -> Started:
        """Write the program's settings, and return its command line."""
        return SETUPS[self.dialect](home, project, dict(settings), url)


def claude_code(home: Path, project: Path, settings: dict[str, Any], url: str) -> Started:
    """The CLI inside the claude-agent-sdk wheel."""
    (project / ".claude").mkdir()
    (project / ".claude" / "settings.local.json").write_text(json.dumps(settings))
    argv = [os.fspath(CLAUDE), "-p", "do it", "--output-format", "json", "--allowedTools", "Bash,Write"]
    quiet = ("DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC")
    return argv, {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "x", **dict.fromkeys(quiet, "1")}


def codex(home: Path, project: Path, settings: dict[str, Any], url: str) -> Started:
    """The CLI from the npm registry."""
    folder = home / ".codex"
    folder.mkdir()
    (folder / "hooks.json").write_text(json.dumps(settings))
    (folder / "config.toml").write_text(
        'model = "m"\nmodel_provider = "fake"\napproval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
        f'[model_providers.fake]\nname = "fake"\nbase_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "FAKE_KEY"\n'
    )
    argv = [program_path("codex"), "exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust", "do it"]
    return argv, {"CODEX_HOME": os.fspath(folder), "FAKE_KEY": "x"}


def gemini(home: Path, project: Path, settings: dict[str, Any], url: str) -> Started:
    """The CLI from the npm registry."""
    folder = home / ".gemini"
    folder.mkdir()
    quiet = {"telemetry": {"enabled": False}, "privacy": {"usageStatisticsEnabled": False}}
    account = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    (folder / "settings.json").write_text(json.dumps({**settings, **quiet, **account}))
    argv = [program_path("gemini"), "--skip-trust", "-y", "-m", "gemini-2.5-flash", "-p", "do it"]
    return argv, {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "x"}


SETUPS: Final = {"claude_code": claude_code, "codex": codex, "gemini": gemini}
PROGRAMS: Final = {
    "claude_code": Program("claude_code", "Bash", "command"),
    "codex": Program("codex", "exec_command", "cmd"),
    "gemini": Program("gemini", "run_shell_command", "command"),
}


def program_path(name: str) -> str:
    """Return the path of a program; skip if it is missing."""
    path = INSTALLED / name
    if not path.exists():
        require("agents", f"{name} is not installed: bash scripts/agents.sh")
    return os.fspath(path)


ROOT: Final = Path(__file__).parents[2]


def plugin_commands(program: str) -> list[list[str]]:
    """Return the commands that install our plugin into a program, as its users type them."""
    if program == "claude_code":
        return [[os.fspath(CLAUDE), "plugin", "install", "amplifier-hooks", "--marketplace", os.fspath(ROOT)]]
    if program == "codex":
        plugin = [program_path("codex"), "plugin"]
        return [
            [*plugin, "marketplace", "add", os.fspath(ROOT)],
            [*plugin, "add", "amplifier-hooks-codex@amplifier-hooks"],
        ]
    extension = os.fspath(ROOT / "plugins" / "gemini")
    return [[program_path("gemini"), "extensions", "install", extension, "--consent", "--skip-settings"]]
