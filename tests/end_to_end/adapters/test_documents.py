"""The statements of docs/adapters.md about the SDKs."""

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
"""Packages whose name differs from that of their extra."""
STAGES: Final = sorted(path.stem for path in Path(__file__).parent.glob("stage_*.py"))


@pytest.mark.rule("DIA-9")
def test_versions_are_those_that_are_tested() -> None:
    """The page names the pinned version of each adapter's SDK as the tested one."""
    rows = dict(re.findall(r"^\| [^|]+ \| `([\w-]+)` \| \D*(\d[\w.]*)", PAGE, re.MULTILINE))
    assert rows == {extra: PINS[PACKAGES.get(extra, extra)] for extra in rows}
    folder = ROOT / "amplifier_hooks" / "adapters"
    without = {"--init--", "asgi", "shared"}  # adapters without an SDK
    adapters = {path.stem.replace("_", "-") for path in folder.glob("*.py")} - without
    assert set(rows) == adapters
    assert f"Microsoft Agent Framework {PINS['agent-framework-core']}" in PAGE


@pytest.mark.rule("DIA-9")
@pytest.mark.slow
@pytest.mark.parametrize("file", STAGES)
def test_what_is_left_out_of_the_story_is_on_the_page(file: str) -> None:
    """Each act that an SDK does not support, and that the story leaves out, is in the table in equal words."""
    module = import_module(f"tests.end_to_end.adapters.{file}")
    kinds = [one for one in vars(module).values() if isinstance(one, type) and hasattr(one, "cannot")]
    missing_rows = {why for kind in kinds for why in kind.cannot.values() if why not in PAGE}
    assert not missing_rows


PRIVATE: Final = re.findall(r"^\| `([\w.]+):([\w.]+)` \|", PAGE, re.MULTILINE)


@pytest.mark.rule("DIA-9")
@pytest.mark.slow
@pytest.mark.parametrize(("module", "name"), PRIVATE, ids=[name for _, name in PRIVATE])
def test_private_names_are_there(module: str, name: str) -> None:
    """Each private name of an SDK that an adapter uses exists in the tested version."""
    package = module.partition(".")[0]
    import_module(package)
    try:
        found: object = import_module(module)
        for part in name.split("."):
            fields = getattr(found, "__dataclass_fields__", {})
            found = fields[part] if part in fields else getattr(found, part)
    except (ImportError, AttributeError):
        pytest.fail(f"{package} has no {module}:{name} any more; docs/adapters.md says what the adapter uses it for")


@pytest.mark.rule("DIA-9")
def test_private_names_are_on_the_page() -> None:
    """Each private name and key of an SDK that an adapter uses is on the page."""
    used: set[str] = set()
    for path in (ROOT / "amplifier_hooks" / "adapters").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        used.update(re.findall(r"(?<!self)\.(_\w+).*# noqa: SLF001", text))
        used.update(re.findall(r"\"(__\w+)\"", text))
    assert used >= {"_current_agent", "__pregel_scratchpad"}
    assert not {name for name in used if name not in PAGE}


@pytest.mark.rule("DIA-9")
@pytest.mark.slow
def test_the_key_of_langgraph_is_the_one_we_use() -> None:
    """LangGraph's private key is the one that the middleware uses."""
    from amplifier_hooks.adapters.langchain import SCRATCHPAD

    theirs = import_module("langgraph._internal._constants").CONFIG_KEY_SCRATCHPAD
    assert theirs == SCRATCHPAD, "LangGraph keeps what a run was resumed with elsewhere; see docs/adapters.md"
