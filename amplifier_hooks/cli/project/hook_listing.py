"""Which hooks there are: in which order they run, why, and what it means when they fail."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.definitions import band_of, definition_row
from amplifier_hooks.dispatch.middleware import OPERATIONS
from amplifier_hooks.events import CATALOGUE
from amplifier_hooks.text.escape import for_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amplifier_hooks.cli.project.read_project import Project
    from amplifier_hooks.dispatch.hook import Hook, Intent


INTENTS: Final[dict[Intent, str]] = {
    "around": "around it",
    "gate": "decides",
    "on": "takes part",
    "register": "takes part",
    "observe": "is told",
}
RANK: Final = {row.name: number for number, row in enumerate(CATALOGUE)}
LATEST: Final = 1000


def rows(project: Project) -> list[dict[str, Any]]:
    """Every hook in force, in the order in which those of an event run; then those that are switched off."""
    there = sorted(project.registry.hooks(), key=_place)
    found = [_row(number, hook, project) for number, hook in enumerate(there, 1)]
    off = [one for one in project.found.definitions if not (one.enabled and project.found.settings.hooks_enabled)]
    return found + [
        {**definition_row(one, project.found), "runs": False, "on_failure": "it does not run"} for one in off
    ]


def _row(number: int, hook: Hook, project: Project) -> dict[str, Any]:
    definition = project.hooks.definition_of(hook)
    own = (
        definition_row(definition, project.found)
        if definition
        else {"kind": "ready-made", "where": _spot(hook, project)}
    )
    return {
        **own,
        "number": number,
        "name": hook.name,
        "event": hook.event,
        "priority": hook.priority,
        "band": band_of(min(max(hook.priority, 0), LATEST)).name,
        "intent": hook.intent,
        "matcher": hook.match.spec if hook.match else "*",
        "timeout_ms": None if hook.timeout == float("inf") else round(hook.timeout * 1000),
        "runs": True,
        "on_failure": _on_failure(hook),
    }


def _place(hook: Hook) -> tuple[Any, ...]:
    """By event, as they happen; then as they run."""
    return (RANK.get(hook.event, -1), hook.event, hook.intent == "observe", hook.place)


def _spot(hook: Hook, project: Project) -> str:
    return next(
        (str(entry.spot) for entry in project.found.library if entry.name == hook.given_name), str(project.path)
    )


def _on_failure(hook: Hook) -> str:
    """What it means when it fails."""
    if hook.intent == "observe":
        return "that is logged"
    if hook.intent == "around":
        return "the operation does not run" if hook.gates else "the operation runs without it"
    return "the event is denied" if hook.denies(hook.event) else "it is skipped"


def hook_lines(found: list[dict[str, Any]]) -> Iterator[str]:
    """The rows for people, by event."""
    running = [row for row in found if row["runs"]]
    for event, group in groupby(running, key=lambda row: row["event"]):
        yield event if event in RANK else f"around {event}" if event in OPERATIONS else f"every event of {event}"
        for row in group:
            does = INTENTS[row["intent"]]
            match = "" if row["matcher"] == "*" else f", for {for_log(row['matcher'])}"
            yield f"  {row['number']:>3}  {for_log(row['name'])}  {does}{match}"
            yield f"       {row['kind']}, priority {row['priority']} ({row['band']}), {_from_here(row['where'])}"
            yield f"       if it fails, {row['on_failure']}"
    for row in found:
        if not row["runs"]:
            yield f"off    {for_log(row['name'])} at {row['event']}, {_from_here(row['where'])}"


def _from_here(where: str) -> str:
    """A place in a file, without the folder one is in."""
    return for_log(where.removeprefix(f"{Path.cwd()}/"))
