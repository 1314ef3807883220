"""A ready-made hook, switched on by the name of its entry point: all its points, as it says they are.

It is found like any hook of an installed package, and registers in a scope of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from amplifier_hooks.definitions.install.build_hooks import versioned, while_trusted
from amplifier_hooks.definitions.kinds.python import PointedHook, build_hook
from amplifier_hooks.errors import HookUnavailable
from amplifier_hooks.registry.entry_points import OURS, installed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_hooks.registry.decorators import Registrar
    from amplifier_hooks.registry.registry import HookRegistry


@frozen
class Ready:
    """A ready-made hook, made and not registered yet."""

    enter: Callable[[HookRegistry], None]
    """Registers it."""
    close: Callable[[], Awaitable[None]] | None
    """Lets go of what it holds open; None for one that has no such thing."""


def ready_made(name: str, config: Mapping[str, Any], version: str, trusted: Callable[[], bool] | None = None) -> Ready:
    """The hook of this name with this config. Importing its module runs that.

    With `trusted` it is asked only while that says yes: for one whose config names files of a project.

    Raises `HookUnavailable` for a name no installed package has, and whatever error of ours its config meets with.
    """
    points = installed().get(name, [])
    if not points:
        known = ", ".join(sorted(installed())) or "none"
        raise HookUnavailable(f"no installed package has a hook called {name!r}; there are: {known}")
    hook = build_hook(name, config)
    ours = {point.dist.name for point in points if point.dist} == {OURS}

    def enter(registry: HookRegistry) -> None:
        _enter(registry.scoped(name, built_in=ours), name, hook, version, trusted)

    return Ready(enter, getattr(hook, "close", None))


def _enter(scope: Registrar, name: str, hook: Any, version: str, trusted: Callable[[], bool] | None) -> None:
    if isinstance(hook, PointedHook):
        for point in hook.points():
            options: dict[str, Any] = {"priority": point.priority, "match": point.match, "timeout": point.timeout}
            if point.intent == "gate":
                options["recheck"] = getattr(point, "recheck", True)
            call = point.call if trusted is None else while_trusted(point.call, trusted)
            getattr(scope, point.intent)(point.event, versioned(version, call), name=name, **options)
    elif hasattr(hook, "execute"):
        scope.add(hook)
    else:
        hook(scope)
