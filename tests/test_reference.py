"""The reference in docs/ is up to date with the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "reference.py"


@pytest.mark.rule("CLI-1", "PKG-1")
def test_the_reference_is_up_to_date() -> None:
    """The names, errors and commands in docs/reference/ are those of the code."""
    told = subprocess.run([sys.executable, str(SCRIPT)], check=False, capture_output=True, text=True)
    assert (told.returncode, told.stdout) == (0, ""), told.stderr
