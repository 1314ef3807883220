"""The plugins for agent programs: files of this repository, made by a script."""

from __future__ import annotations

import json
import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from amplifier_hooks.programs.dialects import DIALECTS
from amplifier_hooks.programs.install_hook import Bridge, has_bridge

pytestmark = pytest.mark.rule("DIA-12")

ROOT = Path(__file__).parents[3]


def plugin_files() -> dict[str, Any]:
    """Return the files as the script makes them."""
    spec = spec_from_file_location("agent_plugins", ROOT / "scripts" / "agent_plugins.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.plugin_files()
    return found


@pytest.mark.parametrize("name", sorted(plugin_files()))
def test_files_are_up_to_date(name: str) -> None:
    """Each file is as the script makes it, and names no path of a machine."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert json.loads(text) == plugin_files()[name], "uv run scripts/agent_plugins.py --write"
    assert not [word for word in ("/home", "/usr", "site-packages", "python", ".sock") if word in text]


@pytest.mark.parametrize("program", ["claude-code", "codex", "gemini"])
def test_hooks_are_ours(program: str) -> None:
    """A plugin has our hook at every event of its program."""
    hooks = json.loads((ROOT / "plugins" / program / "hooks" / "hooks.json").read_text(encoding="utf-8"))
    assert has_bridge(hooks)
    assert list(hooks["hooks"]) == [one.theirs for one in DIALECTS[program.replace("-", "_")].spellings]


@pytest.mark.rule("DIA-5")
@pytest.mark.parametrize("policy", ["deny", "ask"])
def test_without_the_command(policy: Any, tmp_path: Path) -> None:
    """Where amplifier-hooks is not installed, a gate refuses, and says what to install."""
    line = Bridge().command(DIALECTS["claude_code"], policy)
    done = subprocess.run(
        ["/bin/sh", "-c", line], env={"PATH": "/nothing"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert 'uv tool install "amplifier-hooks[server]"' in done.stderr


def test_a_refusal_is_no_missing_command(tmp_path: Path) -> None:
    """A refusal of the command is passed on as it is."""
    command = tmp_path / "amplifier-hooks"
    command.write_text("#!/bin/sh\necho never >&2\nexit 2\n")
    command.chmod(0o700)
    line = Bridge().command(DIALECTS["codex"], "deny")
    done = subprocess.run(
        ["/bin/sh", "-c", line], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "never\n")
