"""One event, tried: who would be asked and told, and what they would say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from amplifier_hooks import events
from amplifier_hooks.text.escape import for_log, for_terminal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from amplifier_hooks.registry.explain import Explained, Explanation
    from amplifier_hooks.result import Outcome


LONGEST: Final = 1 << 20
SUCH: Final = """write such as '{"tool_input": {"command": "ls"}}'"""


def event_named(name: str, own: Collection[str]) -> str:
    """The canonical name of an event, which may be the project's `own`.

    Raises `typer.BadParameter` for an unknown one, with the one that was probably meant.
    """
    if events.find(name) is None and name not in own:
        near = events.suggestion(name, own)
        meant = f"did you mean {near}?" if near else "events are such as tool:pre, tool:post, prompt:submit"
        raise typer.BadParameter(f"there is no event {name!r}; {meant}", param_hint="EVENT")
    return events.canonical(name)


def payload_from(given: str | None, tool: str | None) -> dict[str, Any]:
    """The data of the event, and the tool. What is given is JSON, a file of it, or `-` for standard input.

    Raises `typer.BadParameter` for what is none of these.
    """
    data: object = {}
    if given is not None:
        try:
            data = json.loads(_text(given))
        except OSError as problem:
            said = f"{given:.80} is neither JSON nor a file that can be read ({problem.strerror})"
            raise typer.BadParameter(f"{said}; {SUCH}", param_hint="--input") from None
        except (ValueError, RecursionError) as problem:
            raise typer.BadParameter(f"{given:.80} is no JSON: {problem}; {SUCH}", param_hint="--input") from None
    if not isinstance(data, dict):
        raise typer.BadParameter(f"{given:.80} is no JSON object; {SUCH}", param_hint="--input")
    return data if tool is None else {**data, "tool_name": tool}


def _text(given: str) -> str:
    if given == "-":
        return sys.stdin.read(LONGEST)
    return given if given.lstrip().startswith(("{", "[")) else Path(given).read_text(encoding="utf-8")


def trial_lines(explained: Explanation, outcome: Outcome | None) -> Iterator[str]:
    """For people."""
    yield f"{explained.event}" + (f": denied in any case ({explained.refused})" if explained.refused else "")
    if not explained.hooks and not explained.observers:
        yield "  nobody would be asked, and nobody told"
    for title, hooks in (("asked", explained.hooks), ("told", explained.observers)):
        for number, one in enumerate(hooks, 1):
            yield f"  {title} {number}  {for_log(one.name)}: {for_log(one.why)}"
            yield f"           if it fails, {one.on_failure}"
    for one in explained.others:
        yield f"  left out  {for_log(one.name)}: {for_log(one.why)}"
    if outcome is not None:
        yield from _came(outcome)


def _came(outcome: Outcome) -> Iterator[str]:
    """What the hooks said when they were asked. Nothing of it was carried out."""
    yield ""
    for answer in outcome.answers:
        error = f": {for_log(answer.error)}" if answer.error else ""
        yield f"  {for_log(answer.hook_name)} said {answer.action} ({answer.duration_ms:.1f} ms){error}"
    why = f", by {outcome.denied_by}: {outcome.reason}" if outcome.denied else ""
    yield f"outcome: {outcome.action}{for_log(why)}"
    for injection in outcome.injections:
        yield f"  would be injected, by {for_log(injection.hook_name)}:"
        yield from (f"  | {line}" for line in for_terminal(injection.content).splitlines())
    for ask in outcome.asks:
        yield f"  would be asked, by {for_log(ask.hook_name)}: {for_log(ask.prompt)}"
    for one in outcome.assessments:
        yield f"  {one.risk} risk, by {for_log(one.by)}{': ' * bool(one.reason)}{for_log(one.reason)}"


def trial_value(explained: Explanation, outcome: Outcome | None) -> dict[str, Any]:
    """For programs."""
    value: dict[str, Any] = {
        "event": explained.event,
        "refused": explained.refused,
        "asked": [_one(one) for one in explained.hooks],
        "told": [_one(one) for one in explained.observers],
        "left_out": [_one(one) for one in explained.others],
    }
    if outcome is not None:
        value["outcome"] = {
            "action": outcome.action,
            "denied_by": outcome.denied_by,
            "reason": outcome.reason,
            "answers": [
                {"hook": answer.hook_name, "action": answer.action, "status": answer.status, "error": answer.error}
                for answer in outcome.answers
            ],
            "injections": [{"hook": one.hook_name, "content": one.content} for one in outcome.injections],
            "asks": [{"hook": one.hook_name, "prompt": one.prompt} for one in outcome.asks],
            "assessments": [{"by": one.by, "risk": one.risk, "reason": one.reason} for one in outcome.assessments],
            "data": _plain(outcome.data),
        }
    return value


def _one(one: Explained) -> dict[str, Any]:
    return {"name": one.name, "intent": one.hook.intent, "why": one.why, "on_failure": one.on_failure}


def _plain(data: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(dict(data), default=repr))
