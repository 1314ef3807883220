"""Hooks of installed packages, found through entry points and loaded only if the host names them.

```
[project.entry-points."amplifier_hooks.hooks"]
lint = "my_package.hooks:register"     a function that is given a scope of the registry
audit = "my_package.hooks:AuditHook"   or a hook object, or the class of one
limit = "my_package.hooks:RateLimit"   or a ready-made hook, which is switched on with its default settings
```

Installing a package by itself adds neither a hook nor an import.
"""

from __future__ import annotations

import inspect
import os
import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from amplifier_hooks.errors import HookUnavailable
from amplifier_hooks.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amplifier_hooks.registry.permissions import RegistryScope
    from amplifier_hooks.registry.registry import HookRegistry


GROUP: Final = "amplifier_hooks.hooks"
OURS: Final = "amplifier-hooks"

log = get_logger(__name__)


@frozen(kw_only=True)
class DiscoveryResult:
    """Result of loading one enabled name."""

    name: str
    package: str = ""
    """The distribution that provides the name."""
    hooks: tuple[str, ...] = ()
    """Names of the registered hooks."""
    error: str | None = None
    """Reason why the name registered nothing; None if it was loaded."""


def list_installed() -> Mapping[str, list[EntryPoint]]:
    """Return every name that could be enabled, with its entry points. Imports nothing."""
    return _read_installed(tuple((folder, _changed(folder)) for folder in sys.path))


@lru_cache(maxsize=1)  # a file of each distribution is read, and hooks are looked up by the dozen
def _read_installed(folders: tuple[tuple[str, int], ...]) -> Mapping[str, list[EntryPoint]]:  # noqa: ARG001  # the key
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, []).append(point)
    return found


def _changed(folder: str) -> int:
    """Return the time at which a package was last put into a folder or taken out of it."""
    try:
        return os.stat(folder or os.curdir).st_mtime_ns  # noqa: PTH116  # an entry of sys.path is a text
    except (OSError, ValueError):
        return 0


def discover(
    registry: HookRegistry, enabled: Iterable[str], permissions: Mapping[str, Iterable[str]], *, required: bool
) -> tuple[DiscoveryResult, ...]:
    """Load these names, and let each register its hooks in a scope of its own, with the permissions for its name.

    A broken package leaves nothing behind; the failure is logged and reported in `error`. If the names are `required`,
    it raises `HookUnavailable` instead; packages loaded before it stay.
    """
    there = list_installed()
    results = []
    for name in dict.fromkeys(enabled):
        result = _load(registry, name, there.get(name, []), permissions.get(name, ()))
        if result.error is not None:
            if required:
                raise HookUnavailable(f"hook {name!r} cannot be used: {result.error}")
            log.warning("hook_not_loaded", hook=name, package=result.package, error=result.error)
        results.append(result)
    return tuple(results)


def _load(registry: HookRegistry, name: str, points: list[EntryPoint], permissions: Iterable[str]) -> DiscoveryResult:
    packages = ", ".join(sorted({_package(point) for point in points}))
    if not points:
        known = ", ".join(sorted(list_installed())) or "none"
        return DiscoveryResult(name=name, error=f"no installed package has a hook of that name; there are: {known}")
    if len(points) > 1:
        return DiscoveryResult(
            name=name, package=packages, error=f"several packages have a hook of that name: {packages}"
        )
    scope = registry.scope(name, built_in=packages == OURS, permissions=permissions)
    try:
        _admit(scope, points[0].load())
    except (Exception, SystemExit) as error:  # noqa: BLE001  # an import may raise anything
        scope.close()
        return DiscoveryResult(name=name, package=packages, error=f"{type(error).__name__}: {error}")
    return DiscoveryResult(name=name, package=packages, hooks=tuple(hook.name for hook in scope.hooks()))


def _admit(scope: RegistryScope, thing: Any) -> None:  # an entry point may refer to anything
    if isinstance(thing, type) and hasattr(thing, "from_config"):
        thing.from_config({}).register(scope)
        return
    if hasattr(thing, "execute"):
        scope.add(thing() if isinstance(thing, type) else thing)
        return
    call_with_scope(thing, scope)


def call_with_scope(thing: Any, scope: RegistryScope) -> None:
    """Call a package's function that registers hooks in a scope. Raises `TypeError` for another thing."""
    if not callable(thing):
        raise TypeError(f"{thing!r} is neither a function of a registry's scope nor a hook object")
    left_over = thing(scope)
    if inspect.iscoroutine(left_over):
        left_over.close()
        raise TypeError(f"{thing!r} is async; registering hooks waits for nothing, so make it a plain function")


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else ""
