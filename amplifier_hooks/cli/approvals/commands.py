"""List, show, allow, deny; grants, revoke, purge.

What a file of rules says.
"""

from __future__ import annotations

import json
import re
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer

from amplifier_hooks.cli.approvals.open_store import Trouble, only_one, print_line
from amplifier_hooks.cli.approvals.print_requests import (
    action,
    always,
    as_json,
    card,
    event_facts,
    grant_facts,
    grant_lines,
    inline,
    line_of,
    record_facts,
    status_text,
)
from amplifier_hooks.cli.approvals.print_requests import as_json as to_json
from amplifier_hooks.cli.common.terminal_io import confirm, print_error
from amplifier_hooks.events import CATALOGUE
from amplifier_hooks.ports import ActionFacts
from amplifier_hooks.result import highest
from amplifier_hooks.text.escape import for_terminal
from approval_backends.rules.policy import Rules

if TYPE_CHECKING:
    from amplifier_hooks.cli.approvals.open_store import StoreView
    from amplifier_hooks.ports import Option, Risk
    from approval_backends.lifecycle import RequestRecord


TIME: Final = re.compile(r"(\d{1,6})([smhd])")
SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


# -- looking -----------------------------------------------------------------------------------------------------------


async def list_requests(view: StoreView, *, everything: bool, limit: int, as_json: bool) -> None:
    """Print what waits, and on demand what does not any more."""
    async with view.open_store() as desk:
        records = await desk.waiting(limit)
        if everything:
            records += await desk.broker.history(desk.viewer, limit)
        now = await desk.broker.store.now()
    if as_json:
        print_line(_json([record_facts(record, now) for record in records]))
        return
    ids = [record.id for record in records]
    for record in records:
        for line in line_of(record, now, ids):
            print_line(line)
    if not records:
        print_error("Nothing waits for an answer." if not everything else "There are no requests.")


async def show_request(view: StoreView, given: str, *, as_json: bool) -> None:
    """Print one request."""
    async with view.open_store() as desk:
        record = await desk.find(given)
        events = await desk.broker.events(record.id, desk.viewer)
        now = await desk.broker.store.now()
    if as_json:
        print_line(_json({**record_facts(record, now), "events": [event_facts(event) for event in events]}))
        return
    for line in card(record, now, events):
        print_line(line)


# -- answering ---------------------------------------------------------------------------------------------------------


async def find_waiting(view: StoreView, given: str) -> RequestRecord:
    """The request that is meant, which has to wait for an answer still. Raises `Trouble`."""
    async with view.open_store() as desk:
        record = await desk.find(given)
        standing = status_text(record, await desk.broker.store.now())
    if record.status != "pending":
        raise Trouble(f"Request {record.id} does not wait any more: {standing}.")
    return record


def allow_option(record: RequestRecord, label: str | None) -> Option:
    """The option that allows; by itself only one that holds for this once."""
    found = [option for option in record.request.options if option.allows]
    if label is not None:
        return _find_option(found, label)
    once = [option for option in found if option.kind == "allow_once"]
    if len(once) != 1:
        _ask_for_label(found)
    return once[0]


def deny_option(record: RequestRecord, label: str | None) -> Option:
    """The option that refuses."""
    found = [option for option in record.request.options if not option.allows]
    if label is not None:
        return _find_option(found, label)
    once = [option for option in found if option.kind == "reject_once"]
    if not once:
        _ask_for_label(found)
    return once[0]


def confirm_action(record: RequestRecord, option: Option, *, yes: bool, no_input: bool) -> None:
    """Show what would run, and what an "always" covers, and have it confirmed; ends the program if it is not."""
    if not yes:
        for line in (*action(record), *(always(record.request) if option.lasts else ())):
            typer.echo(line, err=True)
    confirm(f"{inline(option.label)}?", yes=yes, no_input=no_input)


async def answer(
    view: StoreView, record: RequestRecord, option: Option, *, message: str | None = None, as_json: bool
) -> None:
    """Answer it, and print what came of that. Raises `Trouble` where the answer did not count."""
    async with view.open_store() as desk:
        resolution = await desk.broker.decide(record.id, record.digest, option.id, desk.viewer, message=message)
        now = await desk.broker.store.now()
    if resolution.refusal is not None:
        raise Trouble(f"This did not count: {resolution.refusal.reason}.")
    after = resolution.record or record
    if as_json:
        print_line(_json(record_facts(after, now)))
    else:
        tool, who = inline(after.request.tool), inline(after.request.agent)
        print_line(f"{inline(option.label)}: {tool} for {who}, request {inline(after.id)}, digest {after.digest[:12]}")


def _find_option(options: list[Option], label: str) -> Option:
    """The option that somebody named by label or id."""
    wanted = label.strip().casefold()
    for option in options:
        if wanted in (option.label.strip().casefold(), option.id.casefold()):
            return option
    labels = [option.label for option in options]
    likely = get_close_matches(label, labels, 1)
    meant = f"did you mean {likely[0]!r}?" if likely else f"there are {', '.join(map(repr, labels)) or 'none'}"
    raise typer.BadParameter(inline(f"{label!r} is not offered; {meant}"), param_hint="--option")


def _ask_for_label(options: list[Option]) -> NoReturn:
    labels = inline(", ".join(repr(option.label) for option in options)) or "none"
    raise typer.BadParameter(f"name what is meant; there are {labels}", param_hint="--option")


# -- keeping -----------------------------------------------------------------------------------------------------------


async def list_grants(view: StoreView, *, as_json: bool) -> None:
    """Print the standing answers in force."""
    async with view.open_store() as desk:
        found = await desk.broker.grants(desk.viewer)
    if as_json:
        print_line(_json([grant_facts(grant) for grant in found]))
        return
    ids = [grant.id for grant in found]
    for grant in found:
        for line in grant_lines(grant, ids):
            print_line(line)
    if not found:
        print_error("No standing answer is in force.")


async def revoke_grant(view: StoreView, given: str) -> None:
    """End one standing answer."""
    async with view.open_store() as desk:
        known = {grant.id: grant for grant in await desk.broker.grants(desk.viewer)}
        grant = known[only_one(given, known, "grant")]
        if not await desk.broker.revoke(grant.id, desk.viewer):
            raise Trouble(f"The grant {grant.id} has ended already.")
    print_line(
        f"Revoked {inline(grant.id)}: {inline(grant.key.tool)}, asked by {inline(grant.key.hook)}, is asked again."
    )


async def purge_requests(view: StoreView, seconds: float, *, unrecorded: bool, as_json: bool) -> None:
    """Remove what ended so long ago, and say how much that was and what had to stay."""
    async with view.open_store() as desk:
        await desk.broker.store.expire_due()  # what nobody has noticed yet; it has not ended before
        count = await desk.broker.store.purge(seconds, unrecorded=unrecorded)
        left = [] if unrecorded else await desk.broker.store.list_unrecorded(1)
    print_line(
        _json({"removed": count}) if as_json else f"Removed {count:,} {'request' if count == 1 else 'requests'}."
    )
    if left:
        print_error("What no record has yet was kept. If your program keeps none: --unrecorded")


def seconds_of(text: str) -> float:
    """A time such as `7d`. Refuses anything else."""
    found = TIME.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no time; write 90s, 30m, 12h or 7d", param_hint="--older-than")
    return int(found[1]) * SECONDS[found[2]]


_json = as_json
"""The same, where an option of a command has its name."""


async def check_rules(file: Path, *, as_json: bool) -> None:
    """Say that the file can be used, and which events in it only a program of one's own could have.

    Raises what is wrong with it.
    """
    rules = Rules.load(file)
    for line, name in rules.events:
        if name not in {event.name for event in CATALOGUE}:
            likely = get_close_matches(name, [event.name for event in CATALOGUE], 1)
            meant = f"did you mean {likely[0]!r}?" if likely else "your program has to declare it."
            print_error(f"{file}:{line}: the catalogue has no event {name!r}; {meant}")
    if as_json:
        print_line(to_json({"file": str(file), "rules": len(rules), "digest": rules.digest}))
    else:
        print_line(
            for_terminal(f"{file}: {len(rules)} {'rule' if len(rules) == 1 else 'rules'}, digest {rules.digest[:12]}")
        )


async def explain_call(file: Path, facts: ActionFacts, *, as_json: bool) -> None:
    """Print what the rules say to a call, and why."""
    explanation = Rules.load(file).explain(facts)
    if not as_json:
        print_line(for_terminal(str(explanation)))
        return
    verdict = explanation.verdict
    print_line(
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


async def explain_request(file: Path, view: StoreView, given: str, *, as_json: bool) -> None:
    """The same for a request in the store."""
    async with view.open_store() as desk:
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
        print_error(f"Request {request.id}: {request.tool} for {request.agent}")
    await explain_call(file, facts, as_json=as_json)


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
