"""The reference in docs/ is up to date with the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from amplifier_hooks.registry.registration import HookOptions

SCRIPT = Path(__file__).parent.parent / "scripts" / "reference.py"


@pytest.mark.rule("CLI-1", "PKG-1")
def test_the_reference_is_up_to_date() -> None:
    """The names, errors and commands in docs/reference/ are those of the code."""
    told = subprocess.run([sys.executable, str(SCRIPT)], check=False, capture_output=True, text=True)
    assert (told.returncode, told.stdout) == (0, ""), told.stderr


@pytest.mark.rule("REG-1")
def test_the_ways_to_register_are_documented() -> None:
    """The page of what can be imported names every way to register, and every option."""
    page = (SCRIPT.parent.parent / "docs" / "reference" / "python.md").read_text()
    ways = ("register", "on", "gate", "observe", "around", "add", "register_loop_hook", "register_matchers")
    assert [way for way in ways if f"`{way}()`" not in page] == []
    assert [option for option in HookOptions.__annotations__ if f"`{option}" not in page] == []
