"""A file of hooks comes in; a registry with the hooks that can judge calls of the past goes out.

A hook is replayed if it answers before a tool call from the call alone: python definitions, and ready-made hooks that
say so (`ReadyMade.for_replay`). Hooks that run a program, send a request, write, or watch are not built and not run;
`ReplayHooks.left_out` names each with the reason. A python definition runs only if its file is trusted as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, frozen

from amplifier_hooks.cli.project.read_project import trusted_as_now
from amplifier_hooks.definitions import DefinedHooks, load_files
from amplifier_hooks.definitions.install.build_hooks import ASKING as ANSWERING
from amplifier_hooks.definitions.kinds.python import find_hook
from amplifier_hooks.errors import HookError, HookUnavailable
from amplifier_hooks.events import TOOL_PRE
from amplifier_hooks.registry.entry_points import list_installed
from amplifier_hooks.registry.event_names import applies
from amplifier_hooks.registry.registry import HookRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from amplifier_hooks.definitions import DefinitionSet
    from amplifier_hooks.definitions.files.load_files import ReadyMadeEntry
    from amplifier_hooks.definitions.model import HookDefinition, Kind
    from amplifier_hooks.dispatch.chain import Hook
    from amplifier_hooks.library.parts.ready_made import ReadyMade


EXTERNAL: Final[Mapping[Kind, str]] = {
    "command": "it runs a program",
    "http": "it sends a request",
    "agent": "it runs an agent",
}
NOT_TRUSTED: Final = "its code is not trusted as it is now; amplifier-hooks validate --trust trusts it"
NEEDS_MORE: Final = "it needs more than the call, or writes, sends or runs something"
NO_PART: Final = "it decides nothing before a tool call"


@frozen(eq=False, kw_only=True)
class ReplayHooks:
    """The hooks of a file that judge calls of the past."""

    path: Path
    registry: HookRegistry
    left_out: tuple[tuple[str, str], ...]
    """Hooks of the file that take no part, each with the reason."""

    @property
    def report_only(self) -> tuple[str, ...]:
        """Names of the hooks that take part, and stop nothing."""
        return tuple(hook.name for hook in self.registry.hooks() if hook.report_only)


def replay_hooks(path: Path, now: Callable[[], float]) -> ReplayHooks:
    """Return the hooks of a file that can judge calls of the past; `now` is the time of the call, in seconds.

    Raises `InvalidDefinitions` with every mistake of the definitions, `HookUnavailable` for a ready-made hook that
    cannot be built, and `OSError` for a file that cannot be read.
    """
    found = load_files(path)
    left_out: dict[str, str] = {}
    registry = HookRegistry(register_on_error="deny")
    files = trusted_as_now(found, path)
    if files is not None:
        files.make()
    kept = _definitions_to_run(found, left_out, trusted=files is not None)
    hooks = DefinedHooks(registry)
    hooks.install(hooks.plan(evolve(found, definitions=kept, library=()), files=files))
    for entry in found.library if found.settings.hooks_enabled else ():
        _enter_ready_made(registry, entry, now, left_out)
    there = registry.hooks()
    judging = {hook.name for hook in there if _judges_calls(hook)}
    left_out |= {hook.name: NO_PART for hook in there if hook.name not in judging}
    registry.remove([hook for hook in there if not _judges_calls(hook)])
    return ReplayHooks(path=path, registry=registry, left_out=tuple(sorted(left_out.items())))


def _definitions_to_run(found: DefinitionSet, left_out: dict[str, str], *, trusted: bool) -> tuple[HookDefinition, ...]:
    """Return the definitions whose code may run here, and add the others that are in force to `left_out`."""
    in_force = [one for one in found.definitions if one.enabled and found.settings.hooks_enabled]
    python = [one for one in in_force if one.kind == "python"]
    left_out |= {one.name: EXTERNAL.get(one.kind, NOT_TRUSTED) for one in in_force if one.kind != "python"}
    left_out |= {one.name: NOT_TRUSTED for one in python if not trusted}
    return tuple(python) if trusted else ()


def _enter_ready_made(
    registry: HookRegistry, entry: ReadyMadeEntry, now: Callable[[], float], left_out: dict[str, str]
) -> None:
    """Register a ready-made hook that can judge calls of the past; add any other to `left_out`."""
    try:
        hook = _ready_made(entry)
        judge = None if hook is None else hook.for_replay(now)
        if judge is not None:
            judge.register(registry.scope(entry.name, built_in=True, report_only=entry.report_only))
            return
    except HookError as problem:
        raise HookUnavailable(f"{entry.spot}: {problem}") from problem
    judges = hook is None or any(point.intent in ANSWERING and point.event == TOOL_PRE for point in hook.points())
    left_out[entry.name] = NEEDS_MORE if judges else NO_PART


def _ready_made(entry: ReadyMadeEntry) -> ReadyMade[Any] | None:
    """Return a ready-made hook with its settings; None for a hook of another package in another shape.

    Raises `HookUnavailable` for a name that no installed package has, and the errors of the settings.
    """
    from amplifier_hooks.library.parts.ready_made import ReadyMade

    if entry.name not in list_installed():
        raise HookUnavailable(f"no installed package has a hook called {entry.name!r}")
    kind = find_hook(entry.name)
    if not (isinstance(kind, type) and issubclass(kind, ReadyMade)):
        return None
    made: ReadyMade[Any] = kind.from_config(entry.config)
    return made


def _judges_calls(hook: Hook) -> bool:
    """Return True if a hook answers before a tool call."""
    return hook.intent in ANSWERING and applies(hook.event, TOOL_PRE)
