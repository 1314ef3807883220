"""The reference in docs/ is what the code is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "reference.py"


@pytest.mark.rule("CLI-1", "PKG-1")
def test_the_reference_is_up_to_date() -> None:
    """What can be imported, raised and typed stands in docs/reference/ as the code has it."""
    told = subprocess.run([sys.executable, str(SCRIPT)], check=False, capture_output=True, text=True)
    assert (told.returncode, told.stdout) == (0, ""), told.stderr
