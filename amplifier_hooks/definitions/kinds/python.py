"""A hook that is Python of this process: a name and a config come in; a function or a hook object goes out.

| name                                | object                                                              |
|-------------------------------------|---------------------------------------------------------------------|
| `package.module:name`               | `name` in that module; `name` may have dots                         |
| `package.module.name`               | `name` in the module before the last dot                            |
| `name`                              | an entry point of the group `amplifier_hooks.hooks`                 |

The object is a function `(event, data)`, or a class. A class is built with the definition's `config`: by its
`from_config(config)` if it has one, else by `Class(**config)`. The instance is called with `(event, data)`, or it has
`execute(context, call_next)`, or it has `points()` that name its events and handlers.

`modules_of` and `check_name` read the files of such modules, and import nothing.
"""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import inspect
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from amplifier_hooks.definitions.trust import read_plainly
from amplifier_hooks.errors import HookError, HookUnavailable
from amplifier_hooks.registry.entry_points import list_installed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from amplifier_hooks.definitions.private_copies import ProjectModules


@runtime_checkable
class PointedHook(Protocol):
    """A hook that lists its own events and handlers."""

    def points(self) -> Sequence[Any]:
        """Return all points of the hook, with the fields of a ready-made hook's `Point`."""
        ...


def find_hook(name: str, modules: ProjectModules | None = None) -> Any:  # any object of any module
    """Import and return the object that a name stands for, from the project's `modules` if they have it.

    The import runs its module. Raises `HookUnavailable` with the part that is missing.
    """
    module, colon, attributes = name.partition(":")
    if colon:
        return _attribute(_import_module(module, name, modules), attributes, name)
    points = list_installed().get(name, [])
    if len(points) > 1:
        packages = ", ".join(sorted(point.dist.name for point in points if point.dist))
        raise HookUnavailable(f"several packages have a hook called {name!r}: {packages}; name it as 'module:name'")
    if points:
        try:
            return points[0].load()
        except (Exception, SystemExit) as error:
            raise HookUnavailable(f"the hook {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if "." not in name:
        raise not_installed(name)
    module, _, attributes = name.rpartition(".")
    return _attribute(_import_module(module, name, modules), attributes, name)


def not_installed(name: str) -> HookUnavailable:
    """Return the error for the name of an entry point that no installed package has."""
    known = ", ".join(sorted(list_installed())) or "none"
    return HookUnavailable(f"no installed package has a hook called {name!r}; there are: {known}")


def build_hook(
    name: str, config: Mapping[str, Any], modules: ProjectModules | None = None
) -> Any:  # a function, a hook object, or one with points
    """Build the hook that a name stands for, with its config.

    Raises `HookUnavailable` for an unknown name, for a class that does not take the config, and for an object that is
    not a hook.
    """
    found = find_hook(name, modules)
    if isinstance(found, type):
        found = _instance(name, found, config)
    elif config:
        raise HookUnavailable(f"{name!r} is no class, so nothing takes its config; leave config out")
    if not (callable(found) or hasattr(found, "execute") or isinstance(found, PointedHook)):
        raise HookUnavailable(f"{name!r} is {found!r:.60}, which is neither called nor has execute or points")
    return found


def _import_module(module: str, name: str, modules: ProjectModules | None) -> Any:
    try:
        return modules.load(module) if modules and modules.has(module) else importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if module == missing or module.startswith(f"{missing}."):
            raise HookUnavailable(f"{name!r}: there is no module {missing!r}; install it, or mend the name") from None
        listed = ", and not among the trusted files" * (modules is not None)
        raise HookUnavailable(f"{name!r} needs the module {missing!r}, which is not installed{listed}") from error
    except (Exception, SystemExit) as error:
        raise HookUnavailable(f"{name!r} cannot be imported: {type(error).__name__}: {error}") from error


def _attribute(module: Any, attributes: str, name: str) -> Any:
    found = module
    for attribute in attributes.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            there = ", ".join(sorted(one for one in vars(module) if callable(vars(module)[one]) and one[0] != "_")[:10])
            where = f"module {module.__name__!r} has no {attributes!r}"
            raise HookUnavailable(f"{name!r}: {where}; there are: {there or 'none'}") from None
    return found


def _instance(name: str, kind: type, config: Mapping[str, Any]) -> Any:
    make = getattr(kind, "from_config", None)
    try:
        return make(dict(config)) if make is not None else kind(**config)
    except HookError:
        raise
    except TypeError as error:
        takes = "" if make is not None else f"; it takes {_signature(kind)}"
        raise HookUnavailable(f"{name!r} does not take its config: {error}{takes}") from error
    except (Exception, SystemExit) as error:
        raise HookUnavailable(f"{name!r} does not take its config: {type(error).__name__}: {error}") from error


def _signature(kind: type) -> str:
    try:
        return str(inspect.signature(kind))
    except (TypeError, ValueError):
        return "what its class says"


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
            raise not_installed(name)
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
