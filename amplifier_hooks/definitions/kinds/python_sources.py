"""The name of a handler in Python comes in; the files of its modules go out, and nothing is imported."""

from __future__ import annotations

import ast
import importlib.machinery
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amplifier_hooks.definitions.files.plain_files import read_plainly
from amplifier_hooks.errors import HookUnavailable
from amplifier_hooks.registry.entry_points import list_installed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


MOST_MODULES: Final = 1_000
LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a module, at most."""
INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages, which are not edited in place."""
OURS: Final = ("amplifier_hooks", "approval_backends")


def modules_of(name: str, folder: Path) -> dict[str, str]:
    """Return the modules of a project that a handler needs, each with its file: its own, and those that they import.

    Nothing is imported. There are none for a handler of an installed package.
    """
    found: dict[str, str] = {}
    waiting = [_split_name(name)[0]]
    while waiting and len(found) < MOST_MODULES:
        wanted = waiting.pop()
        root = _root_of(wanted.partition(".")[0], folder)
        parts = wanted.split(".") if root is not None else []
        for end in range(1, len(parts) + 1):
            part = ".".join(parts[:end])
            path = _module_file(root or folder, parts[:end])
            if path is not None and part not in found:
                found[part] = path
                waiting += _imports_of(Path(path), part)
    return found


def check_name(name: str, folder: Path) -> None:
    """Raise `HookUnavailable` if a handler's name stands for nothing, as far as files show. Nothing is imported."""
    module, attribute = _split_name(name)
    top = module.partition(".")[0]
    root = _root_of(top, folder)
    if root is None:
        if module and top not in sys.stdlib_module_names and importlib.machinery.PathFinder.find_spec(top) is None:
            raise HookUnavailable(f"{name!r}: there is no module {top!r}; install it, or mend the name")
        if not module and not list_installed().get(name):
            known = ", ".join(sorted(list_installed())) or "none"
            raise HookUnavailable(f"no installed package has a hook called {name!r}; there are: {known}")
        return
    path = _module_file(root, module.split("."))
    if path is None:
        raise HookUnavailable(f"{name!r}: there is no module {module!r}; mend the name")
    known_names = _names_in(Path(path))
    if known_names is not None and attribute.partition(".")[0] not in known_names:
        raise HookUnavailable(f"{name!r}: module {module!r} has no {attribute!r}; mend the name")


def _names_in(path: Path) -> set[str] | None:
    """Return the names that the code of a module gives a value; None if only an import can tell."""
    try:
        tree = ast.parse(read_plainly(path, LARGEST))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
    return None if "*" in found or "__getattr__" in found else found


def _split_name(name: str) -> tuple[str, str]:
    """Return the module and the attribute of a handler's name; the module of an entry point is empty."""
    module, colon, attribute = name.partition(":")
    if not colon:
        module, _, attribute = ("", "", name) if list_installed().get(name) else name.rpartition(".")
    return module, attribute


def _root_of(top: str, folder: Path) -> Path | None:
    """Return the folder that has a top module of the project; None for a module that is installed, or missing.

    A module below the project's folder is the project's, also where an editable installation makes it importable.
    """
    if not top or top in OURS or top in sys.stdlib_module_names:
        return None
    spec = importlib.machinery.PathFinder.find_spec(top)
    if spec is not None:
        places = [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else [])]
        place = Path(os.path.realpath(places[0])) if places else Path(os.sep)
        return place.parent if place.is_relative_to(folder) and INSTALLED.isdisjoint(place.parts) else None
    return folder if _module_file(folder, [top]) or (folder / top).is_dir() else None


def _module_file(root: Path, parts: Sequence[str]) -> str | None:
    base = root.joinpath(*parts)
    return next(
        (os.path.realpath(one) for one in (base / "__init__.py", base.with_suffix(".py")) if one.is_file()), None
    )


def module_name(path: str, folder: Path) -> str:
    """Return the name under which a file of a project can be imported; an empty text if it cannot."""
    if not path.endswith(".py") or not Path(path).is_relative_to(folder):
        return ""
    parts = Path(path).relative_to(folder).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts) if all(part.isidentifier() for part in parts) else ""


def _imports_of(path: Path, name: str) -> Iterator[str]:
    """Yield the names of all modules that the code of a module may import."""
    try:
        tree = ast.parse(read_plainly(path, LARGEST))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return  # the import reports it
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            whole = ".".join([*base, *filter(None, [node.module])])
            yield from (f"{whole}.{alias.name}" if whole else alias.name for alias in node.names)
