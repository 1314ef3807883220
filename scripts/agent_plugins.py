"""Write the plugins for agent programs: `plugins/`, and the marketplace in `.claude-plugin/`.

Each plugin has the hooks that `amplifier-hooks install --shared` would write: the command from the PATH, no local path.

Run it: uv run scripts/agent_plugins.py [--write]
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

from amplifier_hooks.programs.dialects import DIALECTS
from amplifier_hooks.programs.install_hook import Bridge, with_bridge

ROOT: Final = Path(__file__).parent.parent
NAME: Final = "amplifier-hooks"
ABOUT: Final = "Each tool call passes through your hooks, approvals and record, or is refused"


def hooks_of(dialect: str) -> dict[str, Any]:
    """Return the content of a plugin's file of hooks."""
    return {"description": f"{ABOUT}.", **with_bridge({}, DIALECTS[dialect], Bridge())}


def plugin_files() -> dict[str, dict[str, Any]]:
    """Return the content of each file by its path."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    about = {"version": project["version"], "description": f"{ABOUT}."}
    author = {"author": {"name": project["authors"][0]["name"]}, "license": project["license"]}
    gemini_hooks = hooks_of("gemini")
    del gemini_hooks["description"]
    return {
        ".claude-plugin/marketplace.json": {
            "name": NAME,
            "description": "Hooks and approvals between an AI agent and its tools.",
            "owner": author["author"],
            "plugins": [
                {"name": NAME, "source": "./plugins/claude-code", "description": f"{ABOUT}."},
                {"name": f"{NAME}-codex", "source": "./plugins/codex", "description": f"For Codex. {ABOUT}."},
            ],
        },
        "plugins/claude-code/.claude-plugin/plugin.json": {"name": NAME, **about, **author},
        "plugins/claude-code/hooks/hooks.json": hooks_of("claude_code"),
        "plugins/codex/.codex-plugin/plugin.json": {"name": f"{NAME}-codex", **about, **author},
        "plugins/codex/hooks/hooks.json": hooks_of("codex"),
        "plugins/gemini/gemini-extension.json": {"name": NAME, **about},
        "plugins/gemini/hooks/hooks.json": gemini_hooks,
    }


def main() -> int:
    """Write the files, or name those that differ."""
    differ = []
    for name, content in plugin_files().items():
        path, text = ROOT / name, json.dumps(content, indent=2) + "\n"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        differ.append(name)
        if "--write" in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    print(*differ, sep="\n")
    return bool(differ) and "--write" not in sys.argv


if __name__ == "__main__":
    sys.exit(main())
