"""What each module offers."""

import ast
import contextlib
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest

import amplifier_hooks
import approval_backends

ROOT = Path(__file__).parent.parent
PACKAGES = [amplifier_hooks, approval_backends]


def public_modules(package: ModuleType) -> list[str]:
    """Name the modules of a package whose path has no part that starts with an underscore."""
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [module.name for module in found if not any(part.startswith("_") for part in module.name.split("."))]


@pytest.mark.rule("PKG-1")
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_front_door_is_documented(package: ModuleType) -> None:
    """Every name at a front door says what it is, and occurs in its docstring, the README, the docs or the specs."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("specs/**/*.md")]
    texts = [package.__doc__ or "", *(page.read_text(encoding="utf-8") for page in pages)]
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    names = [name for name in package.__all__ if not name.startswith("__")]
    unexplained = [name for name in names if name not in words]
    silent = [name for name in names if not inspect.getdoc(getattr(package, name))]
    assert not unexplained
    assert not silent


@pytest.mark.parametrize("name", [name for package in PACKAGES for name in public_modules(package)])
def test_module_says_what_is_public(name: str) -> None:
    """Every public module lists in `__all__`, without repetition, names that it has."""
    module = importlib.import_module(name)
    if not hasattr(module, "__all__"):
        # A room may be empty but for its docstring.
        statements = ast.parse(inspect.getsource(module)).body[1:]
        assert not statements, f"{name} has no __all__"
        return
    assert len(set(module.__all__)) == len(module.__all__)
    assert not [name for name in module.__all__ if not hasattr(module, name)]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_one_name_one_thing(package: ModuleType) -> None:
    """A name that two modules of a package offer is the same thing in both."""
    offered: dict[str, dict[int, str]] = {}
    for name in [package.__name__, *public_modules(package)]:
        with contextlib.suppress(ModuleNotFoundError):  # what is not installed cannot clash here
            module = importlib.import_module(name)
            for export in getattr(module, "__all__", ()):
                offered.setdefault(export, {}).setdefault(id(getattr(module, export)), name)
    assert not {export: list(homes.values()) for export, homes in offered.items() if len(homes) > 1}
