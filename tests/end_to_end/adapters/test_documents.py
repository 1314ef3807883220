"""What docs/adapters.md says about the SDKs."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
PINS: Final = dict(
    pin.split("==")
    for pin in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["uv"][
        "constraint-dependencies"
    ]
)
PACKAGES: Final = {"agent-hooks": "agent-hooks-sdk", "pydantic-ai": "pydantic-ai-slim"}
"""Where an extra is not called like its package."""
STAGES: Final = sorted(path.stem for path in Path(__file__).parent.glob("stage_*.py"))


@pytest.mark.rule("DIA-9")
def test_versions_are_those_that_are_tested() -> None:
    """The version that the page says was tested is the one that is pinned, for every adapter there is."""
    rows = dict(re.findall(r"^\| [^|]+ \| `([\w-]+)` \| \D*(\d[\w.]*)", PAGE, re.MULTILINE))
    assert rows == {extra: PINS[PACKAGES.get(extra, extra)] for extra in rows}
    folder = ROOT / "amplifier_hooks" / "adapters"
    without = {"--init--", "asgi", "texts"}  # what needs no SDK
    adapters = {path.stem.replace("_", "-") for path in folder.glob("*.py")} - without
    assert set(rows) == adapters
    assert f"Microsoft Agent Framework {PINS['agent-framework-core']}" in PAGE


@pytest.mark.rule("DIA-9")
@pytest.mark.slow
@pytest.mark.parametrize("file", STAGES)
def test_what_is_left_out_of_the_story_is_on_the_page(file: str) -> None:
    """What an SDK has no place for, so that the story leaves it out, stands in the table in the same words."""
    try:
        module = import_module(f"tests.end_to_end.adapters.{file}")
    except ModuleNotFoundError as missing:
        pytest.skip(f"{missing.name} is not installed: uv sync --all-extras --group agents")
    kinds = [one for one in vars(module).values() if isinstance(one, type) and hasattr(one, "cannot")]
    missing_rows = {why for kind in kinds for why in kind.cannot.values() if why not in PAGE}
    assert not missing_rows
