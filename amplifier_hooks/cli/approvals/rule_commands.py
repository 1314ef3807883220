"""What a file of rules says."""

from __future__ import annotations

import json
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from amplifier_hooks.cli.approvals.open_store import say
from amplifier_hooks.cli.approvals.print_requests import as_json as to_json
from amplifier_hooks.cli.common.error_messages import complain
from amplifier_hooks.events import CATALOGUE
from amplifier_hooks.ports import ActionFacts
from amplifier_hooks.result import highest
from amplifier_hooks.text.escape import for_terminal
from approval_backends.rules.policy import Rules

if TYPE_CHECKING:
    from amplifier_hooks.cli.approvals.open_store import View
    from amplifier_hooks.ports import Risk


async def checked(file: Path, *, as_json: bool) -> None:
    """Say that the file can be used, and which events in it only a program of one's own could have.

    Raises what is wrong with it.
    """
    rules = Rules.load(file)
    for line, name in rules.events:
        if name not in {event.name for event in CATALOGUE}:
            likely = get_close_matches(name, [event.name for event in CATALOGUE], 1)
            meant = f"did you mean {likely[0]!r}?" if likely else "your program has to declare it."
            complain(f"{file}:{line}: the catalogue has no event {name!r}; {meant}")
    if as_json:
        say(to_json({"file": str(file), "rules": len(rules), "digest": rules.digest}))
    else:
        say(for_terminal(f"{file}: {len(rules)} {'rule' if len(rules) == 1 else 'rules'}, digest {rules.digest[:12]}"))


async def explained(file: Path, facts: ActionFacts, *, as_json: bool) -> None:
    """Print what the rules say to a call, and why."""
    explanation = Rules.load(file).explain(facts)
    if not as_json:
        say(for_terminal(str(explanation)))
        return
    verdict = explanation.verdict
    say(
        to_json(
            {
                "effect": verdict.effect if verdict else None,
                "rule": verdict.rule if verdict else None,
                "reason": verdict.reason if verdict else "",
                "answers": list(verdict.answers) if verdict else [],
                "risk": verdict.risk if verdict else None,
                "risk_reason": verdict.risk_reason if verdict else "",
                "rules": [
                    {
                        "rule": one.rule,
                        "effect": one.effect,
                        "line": one.line,
                        "matched": one.matched,
                        "decides": one in explanation.deciding,
                        "why": one.why,
                    }
                    for one in explanation.considered
                ],
            }
        )
    )


async def explained_request(file: Path, view: View, given: str, *, as_json: bool) -> None:
    """The same for a request in the store."""
    async with view.opened() as desk:
        request = (await desk.find(given)).request
    # Rules do not judge by a risk of their own.
    before = [one for one in request.assessments if not one.by.startswith("rule:")]
    facts = ActionFacts(
        tool=request.tool,
        arguments=request.arguments,
        event=request.event,
        session=request.session,
        tenant=request.tenant,
        agent=request.agent,
        cwd=request.cwd,
        risk=highest(before) or ("medium" if request.assessments else request.risk),
    )
    if not as_json:
        complain(f"Request {request.id}: {request.tool} for {request.agent}")
    await explained(file, facts, as_json=as_json)


def facts_of(tool: str, given: str, *, cwd: Path | None, risk: Risk, event: str, tenant: str | None) -> ActionFacts:
    """A call as somebody typed it. Refuses an input that is no JSON object."""
    text = sys.stdin.read() if given == "-" else given
    try:
        arguments: Any = json.loads(text)
    except ValueError as problem:
        raise typer.BadParameter(f"the input is not JSON: {problem}", param_hint="--input") from None
    if not isinstance(arguments, dict):
        raise typer.BadParameter('the input is no JSON object; write {"command": "ls"}', param_hint="--input")
    where = Path.cwd() if cwd is None else cwd.absolute()
    return ActionFacts(
        tool=tool, arguments=arguments, event=event, session="", tenant=tenant or "", cwd=str(where), risk=risk
    )
