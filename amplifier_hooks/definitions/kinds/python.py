"""A hook that is Python of this process: a name and a config come in; a function or a hook object goes out.

| name                                | object                                                              |
|-------------------------------------|---------------------------------------------------------------------|
| `package.module:name`               | `name` in that module; `name` may have dots                         |
| `package.module.name`               | `name` in the module before the last dot                            |
| `name`                              | an entry point of the group `amplifier_hooks.hooks`                 |

The object is a function `(event, data)`, or a class. A class is built with the definition's `config`: by its
`from_config(config)` if it has one, else by `Class(**config)`. The instance is called with `(event, data)`, or it has
`execute(context, call_next)`, or it has `points()` that name its events and handlers.
"""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from amplifier_hooks.errors import HookError, HookUnavailable
from amplifier_hooks.registry.entry_points import list_installed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        known = ", ".join(sorted(list_installed())) or "none"
        raise HookUnavailable(f"no installed package has a hook called {name!r}; there are: {known}")
    module, _, attributes = name.rpartition(".")
    return _attribute(_import_module(module, name, modules), attributes, name)


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
