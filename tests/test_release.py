"""The release: its long description has no relative link, and the ends of the supported range are named once."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = pytest.mark.rule("PKG-7")

ROOT: Final = Path(__file__).parent.parent
RELEASE: Final[dict[str, Any]] = runpy.run_path(str(ROOT / "scripts" / "release.py"))
BOUNDS: Final[dict[str, Any]] = runpy.run_path(str(ROOT / "scripts" / "bounds.py"))
RELATIVE: Final = re.compile(r"\]\((?!\w+:|#)|(?:src|href)=\"(?!\w+:|#)")
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("source", ["", "https://git.example/hooks", "https://git.example/hooks/"])
def test_the_long_description_has_no_relative_link(source: str) -> None:
    """With an address of the project and without one, no link or picture of the README stays relative."""
    assert RELATIVE.search(README)
    described = RELEASE["long_description"](README, source, "1.2.3")
    assert not RELATIVE.search(described)
    assert ("https://git.example/hooks/raw/v1.2.3/docs/images/demo.svg" in described) == bool(source)
    assert ("(https://git.example/hooks/blob/v1.2.3/docs/guide.md)" in described) == bool(source)


@pytest.mark.parametrize(
    ("source", "changes", "steps"),
    [("", "## 1.0.0 (unreleased)\n", 4), ("https://git.example/hooks", "# Changelog\n\n## 1.0.0 (2026-12-01)\n", 2)],
)
def test_the_release_names_what_is_left(source: str, changes: str, steps: int) -> None:
    """A missing address and a missing date come before the tag and the upload, which a person does."""
    left = RELEASE["left_to_do"](source, "1.0.0", changes)
    assert len(left) == steps
    assert left[-1].startswith("uv publish")


def test_every_adapter_has_a_suite_for_its_bounds() -> None:
    """Each extra that is named after an SDK is tested with its oldest and its newest release."""
    adapters = {path.stem.removeprefix("test_") for path in ROOT.glob("tests/amplifier_hooks/adapters/test_*.py")}
    extras = {extra for extra in BOUNDS["EXTRAS"] if extra.replace("-", "_") in adapters}
    assert extras
    assert extras <= BOUNDS["SUITES"].keys()
