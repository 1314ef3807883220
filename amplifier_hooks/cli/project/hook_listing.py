"""A project or one event comes in; lists of hooks go out, for people and for programs.

The list of a project has the order of the hooks and their answer when they fail. The trial of an event has the hooks
that it reaches, and their answers.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from amplifier_hooks import events
from amplifier_hooks.definitions import definition_row
from amplifier_hooks.definitions.model import band_of
from amplifier_hooks.dispatch.middleware import OPERATIONS
from amplifier_hooks.events import CATALOGUE
from amplifier_hooks.result import STOPS_NOTHING
from amplifier_hooks.text.escape import for_log, for_terminal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from amplifier_hooks.cli.project.read_project import Project
    from amplifier_hooks.dispatch.chain import Hook, Intent
    from amplifier_hooks.registry.hook_table import Explanation, HookExplanation
    from amplifier_hooks.result import Outcome


INTENTS: Final[dict[Intent, str]] = {
    "around": "middleware",
    "gate": "gate (can deny)",
    "on": "transform (can change it)",
    "register": "transform (can change it)",
    "observe": "observer",
}
RANK: Final = {row.name: number for number, row in enumerate(CATALOGUE)}
LATEST: Final = 1000


def rows(project: Project) -> list[dict[str, Any]]:
    """Return a row for each hook in force, in the order of their run; then for each that is switched off."""
    there = sorted(project.registry.hooks(), key=_sort_key)
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
        "report_only": hook.report_only,
        "runs": True,
        "on_failure": _on_failure(hook),
    }


def _sort_key(hook: Hook) -> tuple[Any, ...]:
    """Return the key that sorts by event, in the order of the catalogue, and then by the order of the run."""
    return (RANK.get(hook.event, -1), hook.event, hook.intent == "observe", hook.sort_key)


def _spot(hook: Hook, project: Project) -> str:
    return next(
        (str(entry.spot) for entry in project.found.library if entry.name == hook.given_name), str(project.path)
    )


def _on_failure(hook: Hook) -> str:
    """Return the effect of a failure of this hook, in few words."""
    if hook.intent == "observe":
        return "a failure is logged"
    if hook.report_only:
        return "a failure is only on record"
    if hook.intent == "around":
        return "a failure stops the operation" if hook.gates else "a failure skips it"
    return "a failure denies" if hook.denies(hook.event) else "a failure skips it"


def hook_lines(found: list[dict[str, Any]]) -> Iterator[str]:
    """Return the rows as lines for people, grouped by event."""
    running = [row for row in found if row["runs"]]
    width = max((len(for_log(row["name"])) for row in running), default=0)
    for event, group in groupby(running, key=lambda row: row["event"]):
        yield event if event in RANK else f"around {event}" if event in OPERATIONS else f"every event of {event}"
        for row in group:
            does = INTENTS[row["intent"]] if not row["report_only"] else f"{row['intent']} ({STOPS_NOTHING})"
            match = "" if row["matcher"] == "*" else f" · for {for_log(row['matcher'])}"
            kind = f"{row['kind']}, {row['band']} {row['priority']}"
            name = f"{for_log(row['name']):<{width}}"
            where = _short_spot(row["where"])
            yield f"  {row['number']:>3}  {name}  {does} · {row['on_failure']} · {kind} · {where}{match}"
    for row in found:
        if not row["runs"]:
            yield f"off    {for_log(row['name'])} at {row['event']}, {_short_spot(row['where'])}"


def _short_spot(where: str) -> str:
    """Return a place in a file, without the current folder."""
    return for_log(where.removeprefix(f"{Path.cwd()}/"))


def event_named(name: str, own: Collection[str]) -> str:
    """Return the canonical name of an event of the catalogue or of the project's `own`.

    Raises `typer.BadParameter` for an unknown event, with the nearest name.
    """
    if events.find(name) is None and name not in own:
        near = events.suggestion(name, own)
        meant = f"did you mean {near}?" if near else "events are such as tool:pre, tool:post, prompt:submit"
        raise typer.BadParameter(f"there is no event {name!r}; {meant}", param_hint="EVENT")
    return events.canonical(name)


def outcome_lines(outcome: Outcome) -> Iterator[str]:
    """Return the answers of the hooks and their outcome as lines; no answer was carried out."""
    for answer in outcome.answers:
        error = f": {for_log(answer.error)}" if answer.error else ""
        would = f"would have answered {answer.would.action}, but is {STOPS_NOTHING}" if answer.would else ""
        did = would or f"answered {answer.action}"
        yield f"  {for_log(answer.hook_name)} {did} ({answer.duration_ms:.1f} ms){error}"
    why = f", by {outcome.denied_by}: {outcome.reason}" if outcome.denied else ""
    yield f"outcome: {outcome.action}{for_log(why)}"
    for injection in outcome.injections:
        yield f"  would be injected, by {for_log(injection.hook_name)}:"
        yield from (f"  | {line}" for line in for_terminal(injection.content).splitlines())
    for ask in outcome.asks:
        yield f"  would be asked, by {for_log(ask.hook_name)}: {for_log(ask.prompt)}"
    for one in outcome.assessments:
        yield f"  {one.risk} risk, by {for_log(one.by)}{': ' * bool(one.reason)}{for_log(one.reason)}"


def trial_facts(explained: Explanation, outcome: Outcome | None) -> dict[str, Any]:
    """Return the trial of an event for programs."""
    parts = {"asked": explained.hooks, "told": explained.observers, "left_out": explained.others}
    return {
        "event": explained.event,
        "refused": explained.refusal,
        **{part: [_hook_facts(one) for one in hooks] for part, hooks in parts.items()},
        "outcome": outcome,
    }


def _hook_facts(one: HookExplanation) -> dict[str, Any]:
    return {
        "name": one.name,
        "intent": one.hook.intent,
        "report_only": one.hook.report_only,
        "why": one.why,
        "on_failure": one.on_failure,
    }
