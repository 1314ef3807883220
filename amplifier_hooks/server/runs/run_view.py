"""A run for readers: stored events come in; hooks, a timeline and changes of parameters go out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import evolve, frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from amplifier_hooks.runs.run_states import RunEvent


Outcome = Literal["running", "complete", "failed", "blocked", "lost"]

OUTCOMES: Final[Mapping[str, Outcome]] = {
    "hook_complete": "complete",
    "hook_failed": "failed",
    "hook_blocked": "blocked",
}
NAMES: Final[Mapping[str, str]] = {
    "run_queued": "queued",
    "run_starting": "starting",
    "run_ready": "ready",
    "run_running": "running",
    "run_result": "result",
    "run_child": "child",
    "run_stopping": "stopping",
    "run_lost": "lost",
    "run_completed": "completed",
    "run_failed": "failed",
    "run_stopped": "stopped",
}
STAYS: Final = frozenset({"queued", "starting", "ready", "running"})
"""Steps that last until the next one; all other steps take no time."""
OVER: Final = frozenset({"completed", "failed", "stopped"})


@frozen(kw_only=True)
class ParameterChange:
    """One change of the parameters by hooks. `path` is like `$.items[2].price`; a missing value is None."""

    path: str
    kind: Literal["added", "removed", "changed"]
    before: Any = None
    after: Any = None


@frozen(kw_only=True)
class HookView:
    """One hook of a run with its outcome. `lost` means that its coordinator was gone before the hook ended."""

    hook_type: str
    target_type: str
    target_name: str
    started_at: datetime
    outcome: Outcome = "running"
    ended_at: datetime | None = None
    duration_ms: float | None = None
    action: str | None = None
    error: str | None = None
    on_error_behavior: str | None = None
    block_reason: str | None = None


@frozen(kw_only=True)
class Step:
    """One line of the timeline, with its start and its duration. `hook` is set for a hook.

    `duration_ms` is None for a step that takes no time or has not ended.
    """

    name: str
    at: datetime
    offset_ms: float
    duration_ms: float | None = None
    hook: HookView | None = None
    facts: Mapping[str, Any] | None = None


def parameter_changes(before: Any, after: Any, path: str = "$") -> list[ParameterChange]:
    """Return the differences between two values, in the order of names; lists are compared by index."""
    if isinstance(before, dict) and isinstance(after, dict):
        parts = [(f"{path}.{name}", name) for name in sorted({*before, *after})]
        return _inside(parts, before, after)
    if isinstance(before, list) and isinstance(after, list):
        places = [(f"{path}[{place}]", place) for place in range(max(len(before), len(after)))]
        return _inside(places, dict(enumerate(before)), dict(enumerate(after)))
    same = type(before) is type(after) and before == after
    return [] if same else [ParameterChange(path=path, kind="changed", before=before, after=after)]


def _inside(parts: Iterable[tuple[str, Any]], before: Any, after: Any) -> list[ParameterChange]:
    found: list[ParameterChange] = []
    for path, name in parts:
        if name not in after:
            found.append(ParameterChange(path=path, kind="removed", before=before[name]))
        elif name not in before:
            found.append(ParameterChange(path=path, kind="added", after=after[name]))
        else:
            found += parameter_changes(before[name], after[name], path)
    return found


def run_hooks(events: Iterable[RunEvent]) -> list[HookView]:
    """Return the hooks of a run, in the order they began."""
    return [step.hook for step in timeline(events) if step.hook is not None]


def timeline(events: Iterable[RunEvent]) -> list[Step]:
    """Return the steps of a run in order; a hook is one step, from its start to its end."""
    steps: list[Step] = []
    open_hooks: dict[tuple[Any, ...], int] = {}
    staying: int | None = None
    begun: datetime | None = None
    for event in events:
        begun = begun or event.at
        offset = _ms(begun, event.at)
        body = event.body
        if event.type == "hook_start":
            key = _key(body)
            if key in open_hooks:
                _give_up(steps, open_hooks.pop(key))
            open_hooks[key] = len(steps)
            hook = HookView(
                hook_type=body["hook_type"],
                target_type=body["target_type"],
                target_name=body["target_name"],
                started_at=event.at,
            )
            steps.append(Step(name="hook", at=event.at, offset_ms=offset, hook=hook))
        elif event.type in OUTCOMES:
            place = open_hooks.pop(_key(body), None)
            if place is not None:
                steps[place] = _end_step(steps[place], event)
        else:
            name = NAMES.get(event.type, event.type)
            if staying is not None and name in STAYS | OVER | {"lost"}:
                steps[staying] = evolve(steps[staying], duration_ms=_ms(steps[staying].at, event.at))
                staying = None
            if name in STAYS:
                staying = len(steps)
            steps.append(Step(name=name, at=event.at, offset_ms=offset, facts=_facts(body)))
    return steps


def _key(body: Mapping[str, Any]) -> tuple[Any, ...]:
    return body["hook_type"], body["target_type"], body["target_name"]


def _end_step(step: Step, event: RunEvent) -> Step:
    body, hook = event.body, step.hook
    took = body.get("duration_ms", _ms(step.at, event.at))
    assert hook is not None  # noqa: S101  # only those are open
    hook = evolve(
        hook,
        outcome=OUTCOMES[event.type],
        ended_at=event.at,
        duration_ms=took,
        action=body.get("action"),
        error=body.get("error"),
        on_error_behavior=body.get("on_error_behavior"),
        block_reason=body.get("block_reason"),
    )
    return evolve(step, hook=hook, duration_ms=took)


def _give_up(steps: list[Step], place: int) -> None:
    """Mark a hook that began again as lost, because the end of its first run is unknown."""
    hook = steps[place].hook
    if hook is not None:
        steps[place] = evolve(steps[place], hook=evolve(hook, outcome="lost"))


def _facts(body: Mapping[str, Any]) -> dict[str, Any]:
    envelope = ("event_type", "session_id", "run_id", "timestamp")
    return {name: value for name, value in body.items() if name not in envelope}


def _ms(start: datetime, end: datetime) -> float:
    return round((end - start).total_seconds() * 1e3, 3)
