"""The names that users may import: the front doors list them in `__all__`, or offer all that they define."""

import ast
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import amplifier_hooks
import approval_backends

ROOT = Path(__file__).parent.parent
PACKAGES = [amplifier_hooks, approval_backends]
DOORS = [
    "amplifier_hooks",
    *(
        f"amplifier_hooks.{name}"
        for name in (
            "act",
            "approvals",
            "bridge",
            "definitions",
            "errors",
            "events",
            "library",
            "payloads",
            "ports",
            "programs",
            "result",
            "runs",
            "server",
            "testing",
        )
    ),
    "approval_backends",
    "approval_backends.testing",
]
"""The front doors, besides one for each agent SDK in `amplifier_hooks.adapters`."""
WHOLE = {"amplifier_hooks.errors", "amplifier_hooks.events", "amplifier_hooks.payloads"}
"""The front doors without a list: they offer all that they define without a leading underscore."""


def modules() -> dict[str, Path]:
    """Return every module of both packages with its file; nothing is imported."""
    files = sorted(file for package in PACKAGES for file in ROOT.glob(f"{package.__name__}/**/*.py"))
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


def listed() -> dict[str, list[str]]:
    """Return the modules with public names, with these names; nothing is imported."""
    found = {}
    for module, file in modules().items():
        text = file.read_text("utf-8")
        names = re.search(r"^__all__ = (\[.*?\])", text, re.MULTILINE | re.DOTALL)
        if names or module in WHOLE:
            found[module] = ast.literal_eval(names[1]) if names else defined(text)
    return found


def defined(source: str) -> list[str]:
    """Return the names that a module defines, without those with a leading underscore."""
    named = [node.target if isinstance(node, ast.AnnAssign) else node for node in ast.parse(source).body]
    names = [str(getattr(node, "id", getattr(node, "name", "_"))) for node in named]
    return [name for name in names if not name.startswith("_")]


@pytest.mark.rule("PKG-1")
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_front_door_is_documented(package: ModuleType) -> None:
    """Every name at a front door has a docstring, and occurs in that of its door, the README, the docs or the specs."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("specs/**/*.md")]
    texts = [package.__doc__ or "", *(page.read_text(encoding="utf-8") for page in pages)]
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    unexplained = [name for name in package.__all__ if name not in words]
    silent = [name for name in package.__all__ if not inspect.getdoc(getattr(package, name))]
    assert not unexplained
    assert not silent


@pytest.mark.rule("PKG-1")
@pytest.mark.parametrize("door", DOORS)
def test_door_has_what_it_offers(door: str) -> None:
    """Every front door has its public names, each once."""
    module, names = importlib.import_module(door), listed()[door]
    assert names
    assert len(set(names)) == len(names)
    assert not [name for name in names if not hasattr(module, name)]


@pytest.mark.rule("PKG-1")
def test_only_doors_are_public() -> None:
    """A module that is no front door has no `__all__`: its names may change without notice."""
    adapters = [name for name in modules() if name.startswith("amplifier_hooks.adapters.")]
    assert listed().keys() - {*adapters} == {*DOORS}


def test_one_name_one_thing() -> None:
    """A name that two front doors offer is one object in both."""
    offered: dict[str, dict[int, str]] = {}
    for door in DOORS:
        module = importlib.import_module(door)
        for name in listed()[door]:
            offered.setdefault(name, {}).setdefault(id(getattr(module, name)), door)
    assert not {name: list(homes.values()) for name, homes in offered.items() if len(homes) > 1}
