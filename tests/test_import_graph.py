"""docs/images/imports.svg shows the imports as the code has them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "scripts" / "import_graph.py"


def test_the_picture_is_up_to_date() -> None:
    """The picture of the imports equals the picture that the script draws from the code."""
    run = subprocess.run([sys.executable, str(SCRIPT)], check=False, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


def test_every_arc_points_downward() -> None:
    """The picture shows no import that points upward."""
    picture = (SCRIPT.parent.parent / "docs" / "images" / "imports.svg").read_text(encoding="utf-8")
    assert "<path" in picture
    assert not re.findall(r'<path class="[^"]*\bup"', picture)
