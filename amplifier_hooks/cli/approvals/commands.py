"""The work of `amplifier-hooks approvals`: a store or a rules file comes in; requests, grants and verdicts go out."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer
from attrs import asdict, frozen

from amplifier_hooks.cli.approvals.open_store import Trouble, only_one, print_line
from amplifier_hooks.cli.approvals.print_requests import (
    action,
    always,
    card,
    event_facts,
    grant_facts,
    grant_lines,
    inline,
    line_of,
    record_facts,
    status_text,
    to_json,
)
from amplifier_hooks.cli.approvals.stop_commands import stop_line
from amplifier_hooks.cli.common.terminal_io import confirm, count_text, print_error, stop
from amplifier_hooks.errors import ApprovalMismatch
from amplifier_hooks.ports import ActionFacts
from amplifier_hooks.result import STOPS_NOTHING, highest
from amplifier_hooks.text.error_sentences import suggestion
from amplifier_hooks.text.escape import for_terminal
from approval_backends.rules.policy import Rules

if TYPE_CHECKING:
    from amplifier_hooks.cli.approvals.open_store import StoreView
    from amplifier_hooks.ports import Option, Risk
    from approval_backends.lifecycle import RequestRecord


TIME: Final = re.compile(r"(\d{1,6})([smhd])")
SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@frozen
class AlwaysLimits:
    """The limits of an "always": seconds until its end, and the number of calls that it covers."""

    seconds: float | None = None
    times: int | None = None


NO_LIMITS: Final = AlwaysLimits()


# -- looking -----------------------------------------------------------------------------------------------------------


async def list_requests(view: StoreView, *, everything: bool, limit: int, as_json: bool) -> None:
    """Print the requests that wait, and with `everything` also those that have ended."""
    async with view.open_store() as desk:
        records = await desk.waiting(limit)
        if everything:
            records += await desk.broker.history(desk.viewer, limit)
        stops = await desk.broker.stops_in_force(desk.viewer)
        now = await desk.broker.store.now()
    for one in stops:
        print_error(stop_line(one))
    if as_json:
        print_line(to_json([record_facts(record, now) for record in records]))
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
        print_line(to_json({**record_facts(record, now), "events": [event_facts(event) for event in events]}))
        return
    for line in card(record, now, events):
        print_line(line)


# -- answering ---------------------------------------------------------------------------------------------------------


async def find_waiting(view: StoreView, given: str) -> RequestRecord:
    """Return the request with this id, or this beginning of an id. Raises `Trouble` unless it waits for an answer."""
    async with view.open_store() as desk:
        record = await desk.find(given)
        status = status_text(record, await desk.broker.store.now())
    if record.status != "pending":
        raise Trouble(f"Request {record.id} does not wait any more: {status}.")
    return record


def allow_option(record: RequestRecord, label: str | None) -> Option:
    """Return the option that allows: the one with this label, otherwise the only one that allows once."""
    found = [option for option in record.request.options if option.allows]
    if label is not None:
        return _find_option(found, label)
    once = [option for option in found if option.kind == "allow_once"]
    if len(once) != 1:
        _ask_for_label(found)
    return once[0]


def always_limits(option: Option, lasts: str | None, times: int | None) -> AlwaysLimits:
    """Return the limits for an "always". Raises `BadParameter` for a limit of an answer that counts once."""
    if not option.lasts and (lasts, times) != (None, None):
        raise typer.BadParameter(f'an "always" can be limited, and "{inline(option.label)}" counts once')
    return AlwaysLimits(None if lasts is None else seconds_of(lasts, "--for"), times)


def deny_option(record: RequestRecord, label: str | None) -> Option:
    """Return the option that denies: the one with this label, otherwise the first that denies once."""
    found = [option for option in record.request.options if not option.allows]
    if label is not None:
        return _find_option(found, label)
    once = [option for option in found if option.kind == "reject_once"]
    if not once:
        _ask_for_label(found)
    return once[0]


def confirm_action(record: RequestRecord, option: Option, *, yes: bool, no_input: bool) -> None:
    """Show the action, and the reach of an "always", and ask to confirm it; end the program without a yes.

    A request whose arguments do not have its digest ends the program as well.
    """
    if not yes:
        try:
            lines = (*action(record), *(always(record.request) if option.lasts else ()))
        except ApprovalMismatch as problem:
            stop(str(problem))
        for line in lines:
            typer.echo(line, err=True)
    confirm(f"{inline(option.label)}?", yes=yes, no_input=no_input)


async def answer(
    view: StoreView,
    record: RequestRecord,
    option: Option,
    *,
    message: str | None = None,
    limits: AlwaysLimits = NO_LIMITS,
    as_json: bool,
) -> None:
    """Answer a request, and print the result. Raises `Trouble` if the store refuses the answer."""
    async with view.open_store() as desk:
        resolution = await desk.broker.decide(
            record.id, record.digest, option.id, desk.viewer, message=message, **asdict(limits)
        )
        now = await desk.broker.store.now()
    if resolution.refusal is not None:
        raise Trouble(f"This answer did not count: {resolution.refusal.reason}.")
    after = resolution.record or record
    if as_json:
        print_line(to_json(record_facts(after, now)))
    else:
        tool, who = inline(after.request.tool), inline(after.request.agent)
        print_line(f"{inline(option.label)}: {tool} for {who}, request {inline(after.id)}, digest {after.digest[:12]}")


def _find_option(options: list[Option], label: str) -> Option:
    """Return the option with this label or id. Raises `BadParameter`, with the nearest label."""
    wanted = label.strip().casefold()
    for option in options:
        if wanted in (option.label.strip().casefold(), option.id.casefold()):
            return option
    labels = [option.label for option in options]
    raise typer.BadParameter(inline(f"{label!r} is not offered; {suggestion(label, labels)}"), param_hint="--option")


def _ask_for_label(options: list[Option]) -> NoReturn:
    labels = inline(", ".join(repr(option.label) for option in options)) or "none"
    raise typer.BadParameter(f"name one of the answers; there are {labels}", param_hint="--option")


# -- keeping -----------------------------------------------------------------------------------------------------------


async def list_grants(view: StoreView, *, as_json: bool) -> None:
    """Print the grants in force."""
    async with view.open_store() as desk:
        found = await desk.broker.grants(desk.viewer)
        uses = {grant.id: await desk.broker.store.grant_uses(grant.id) for grant in found}
    if as_json:
        print_line(to_json([grant_facts(grant, uses[grant.id]) for grant in found]))
        return
    ids = [grant.id for grant in found]
    for grant in found:
        for line in grant_lines(grant, ids, uses[grant.id]):
            print_line(line)
    if not found:
        print_error("No grant is in force.")


async def revoke_grant(view: StoreView, given: str) -> None:
    """End one grant. Raises `Trouble` if it has ended already."""
    async with view.open_store() as desk:
        known = {grant.id: grant for grant in await desk.broker.grants(desk.viewer)}
        grant = known[only_one(given, known, "grant")]
        if not await desk.broker.revoke(grant.id, desk.viewer):
            raise Trouble(f"The grant {grant.id} has ended already.")
    print_line(
        f"Revoked {inline(grant.id)}: {inline(grant.key.tool)}, asked by {inline(grant.key.hook)}, is asked again."
    )


async def purge_requests(view: StoreView, seconds: float, *, unrecorded: bool, as_json: bool) -> None:
    """Remove the requests that ended so many seconds ago, and print their number and whether others had to stay."""
    async with view.open_store() as desk:
        await desk.broker.store.expire_due()  # an overdue request ends only when a reader notices it
        count = await desk.broker.store.purge(seconds, unrecorded=unrecorded)
        left = [] if unrecorded else await desk.broker.store.list_unrecorded(1)
    print_line(to_json({"removed": count}) if as_json else f"Removed {count_text(count, 'request')}.")
    if left:
        print_error("Requests that are not in a record yet were kept. If your program keeps no record: --unrecorded")


def seconds_of(text: str, hint: str) -> float:
    """Return the seconds of a time such as `7d`. Raises `BadParameter`, with the option's name, for anything else."""
    found = TIME.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no time; write 90s, 30m, 12h or 7d", param_hint=hint)
    return int(found[1]) * SECONDS[found[2]]


async def check_rules(file: Path, *, as_json: bool) -> None:
    """Print that the file can be used. Raises the error of a file that cannot be used."""
    rules = Rules.load(file)
    if as_json:
        found = {"file": str(file), "rules": len(rules), "report_only": rules.report_only, "digest": rules.digest}
        print_line(to_json(found))
    else:
        count = count_text(len(rules), "rule")
        only = f", {STOPS_NOTHING}" * rules.report_only
        print_line(for_terminal(f"{file}: {count}, digest {rules.digest[:12]}{only}"))


async def explain_call(file: Path, facts: ActionFacts, *, as_json: bool) -> None:
    """Print the answer of the rules to a call, and its reasons."""
    explanation = Rules.load(file).explain(facts)
    if not as_json:
        print_line(for_terminal(str(explanation)))
        return
    verdict = explanation.verdict
    print_line(
        to_json(
            {
                "report_only": explanation.report_only,
                "action": verdict.action if verdict else None,
                "rule": verdict.rule if verdict else None,
                "reason": verdict.reason if verdict else "",
                "answers": list(verdict.answers) if verdict else [],
                "risk": verdict.risk if verdict else None,
                "risk_reason": verdict.risk_reason if verdict else "",
                "rules": [
                    {
                        "rule": one.rule,
                        "action": one.action,
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
    """Print the answer of the rules to a request in the store, and its reasons."""
    async with view.open_store() as desk:
        request = (await desk.find(given)).request
    # Rules do not judge by the risk that a rule assessed.
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
    """Return the facts of a call from the options of the command. Raises `BadParameter` unless it is a JSON object."""
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
