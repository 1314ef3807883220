"""`amplifier-hooks approvals`, `stop` and `resume`: the requests of a store come in; decisions and stops go out.

Every command works on the store that the asking program uses, in another process or on another machine. The store
judges every answer: it counts only the first one, in time, and for this very action.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path  # typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from attrs import frozen
from msgspec.structs import asdict

from amplifier_hooks.cli.approvals.open_store import StoreView, Trouble, on_loop, only_one, run_or_stop
from amplifier_hooks.cli.common.terminal_io import (
    AsJson,
    NoInput,
    Store,
    Yes,
    confirm,
    count_text,
    json_object,
    print_error,
    print_json,
    print_removed,
    print_text,
    seconds_of,
)
from amplifier_hooks.cli.common.terminal_io import stop as end_command
from amplifier_hooks.errors import ApprovalMismatch
from amplifier_hooks.events import TOOL_PRE
from amplifier_hooks.ports import ActionFacts
from amplifier_hooks.result import STOPS_NOTHING
from amplifier_hooks.text.strict_parsing import suggestion

if TYPE_CHECKING:
    from amplifier_hooks.ports import Option, Stop
    from approval_backends.lifecycle import RequestRecord


HELP: Final = """Look at the requests that wait for an answer, and answer them.

\b
Examples:
  amplifier-hooks approvals list
  amplifier-hooks approvals show 8c1f
  amplifier-hooks approvals allow 8c1f
  amplifier-hooks approvals deny 8c1f --message "not on a Friday"
  amplifier-hooks approvals watch

The store is the one the asking program uses: --store FILE, --store postgresql://..., AMPLIFIER_HOOKS_STORE, or
amplifier-hooks/approvals.db where your programs keep their state (~/.local/state).
"""

RULES: Final = """Check a file of rules, or see its answer to a call, without running anything.

\b
Examples:
  amplifier-hooks approvals rules check rules.yaml
  amplifier-hooks approvals rules explain rules.yaml --tool Bash --input '{"command": "git push"}'
"""

rules = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=HELP)
app.add_typer(rules, name="rules", help=RULES)

Tenant = Annotated[str | None, typer.Option(metavar="NAME", help="Only this tenant.")]
Session = Annotated[list[str] | None, typer.Option(metavar="ID", help="Only of this session; may be repeated.")]
Stopped = Annotated[str, typer.Option("--session", metavar="ID", help="Only this session.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The request's id, or how it begins.")]
Label = Annotated[
    str | None, typer.Option("--option", metavar="LABEL", help="One of the answers that the request offers.")
]


# -- looking -----------------------------------------------------------------------------------------------------------


@app.command("list")
@on_loop
async def list_(
    *,
    store: Store = None,
    tenant: Tenant = None,
    session: Session = None,
    everything: Annotated[bool, typer.Option("--all", help="Also the requests that have ended.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="At most so many of each.")] = 1_000,
    as_json: AsJson = False,
) -> None:
    """List the requests that wait for an answer, oldest first.

    Examples:
      amplifier-hooks approvals list
      amplifier-hooks approvals list --all --limit 20
      amplifier-hooks approvals list --json
    """
    from amplifier_hooks.cli.approvals.print_requests import line_of

    async with StoreView(store, tenant, session).open_store() as desk:
        records = await desk.waiting(limit)
        if everything:
            records += await desk.broker.history(desk.viewer, limit)
        stops = await desk.broker.stops_in_force(desk.viewer)
        now = await desk.broker.store.now()
    for one in stops:
        print_error(stop_line(one))
    if as_json:
        print_json([record_facts(record) for record in records])
        return
    ids = [record.id for record in records]
    for record in records:
        typer.echo("\n".join(line_of(record, now, ids)))
    if not records:
        print_error("Nothing waits for an answer." if not everything else "There are no requests.")


def record_facts(record: RequestRecord) -> dict[str, Any]:
    """Return a request as the store has it, with the id by which it is answered, and without the result of its act."""
    return {"id": record.id, **{name: value for name, value in asdict(record).items() if name != "result"}}


@app.command()
@on_loop
async def show(request: Id, *, store: Store = None, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Show one request whole: the exact action, the agent, and everything that has happened to it.

    The id may be shortened as long as it is the only one that begins so.

    Examples:
      amplifier-hooks approvals show 8c1f
      amplifier-hooks approvals show 8c1f --json
    """
    from amplifier_hooks.cli.approvals.print_requests import card

    async with StoreView(store, tenant).open_store() as desk:
        record = await desk.find(request)
        events = await desk.broker.events(record.id, desk.viewer)
        now = await desk.broker.store.now()
    if as_json:
        print_json({**record_facts(record), "events": events})
    else:
        typer.echo("\n".join(card(record, now, events)))


@app.command()
def watch(*, store: Store = None, tenant: Tenant = None, session: Session = None) -> None:
    """Show each request as it arrives, and answer it here, beside all other approvers.

    The first answer wins, wherever it is given; a request that another approver answered leaves the screen. Later (l)
    leaves the request on screen open, for others or for 'approvals list'. Ctrl-C denies it; with no request on screen,
    Ctrl-C ends the command.

    Examples:
      amplifier-hooks approvals watch
      amplifier-hooks approvals watch --session build-7
    """
    from amplifier_hooks.cli.approvals.watch_requests import watch_until_stopped

    run_or_stop(watch_until_stopped(StoreView(store, tenant, session)), until_interrupted=True)


# -- answering ---------------------------------------------------------------------------------------------------------


@frozen
class AlwaysLimits:
    """The limits of an "always": seconds until its end, and the number of calls that it covers."""

    seconds: float | None = None
    times: int | None = None

    def __str__(self) -> str:
        calls = "" if self.times is None else count_text(self.times, "call")
        lasts = "" if self.seconds is None else str(timedelta(seconds=self.seconds))
        return " within ".join(filter(None, (calls, lasts)))


UNLIMITED: Final = AlwaysLimits()


@app.command()
def allow(
    request: Id,
    *,
    option: Label = None,
    lasts: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help='An "always" ends after 90s, 30m, 12h, 7d.')
    ] = None,
    times: Annotated[int | None, typer.Option(metavar="N", min=1, help='An "always" covers so many calls.')] = None,
    yes: Yes = False,
    no_input: NoInput = False,
    store: Store = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Allow one request, after showing exactly what would run and asking you to confirm.

    Your yes covers the action with the digest that is shown, and nothing else.

    Examples:
      amplifier-hooks approvals allow 8c1f
      amplifier-hooks approvals allow 8c1f --option "Allow always" --for 2h --times 20
      amplifier-hooks approvals allow 8c1f --yes
    """
    view = StoreView(store, tenant)
    record = run_or_stop(find_waiting(view, request))
    chosen = choose_option(record, option, allows=True)
    if not chosen.lasts and (lasts, times) != (None, None):
        raise typer.BadParameter(f'an "always" can be limited, and "{chosen.label}" counts once')
    limits = AlwaysLimits(None if lasts is None else seconds_of(lasts, "--for"), times)
    confirm_action(record, chosen, limits, yes=yes, no_input=no_input)
    run_or_stop(answer(view, record, chosen, limits=limits, as_json=as_json))


@app.command()
def deny(
    request: Id,
    *,
    message: Annotated[
        str | None, typer.Option("--message", "-m", metavar="TEXT", help="For the model to read.")
    ] = None,
    option: Label = None,
    store: Store = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Deny one request.

    Examples:
      amplifier-hooks approvals deny 8c1f
      amplifier-hooks approvals deny 8c1f --message "use the staging copy"
    """
    view = StoreView(store, tenant)
    record = run_or_stop(find_waiting(view, request))
    run_or_stop(answer(view, record, choose_option(record, option, allows=False), message=message, as_json=as_json))


async def find_waiting(view: StoreView, given: str) -> RequestRecord:
    """Return the request with this id, or this beginning of an id. Raises `Trouble` unless it waits for an answer."""
    from amplifier_hooks.cli.approvals.print_requests import status_text

    async with view.open_store() as desk:
        record = await desk.find(given)
        status = " ".join(status_text(record, await desk.broker.store.now()).split())
    if record.status != "pending":
        raise Trouble(f"Request {record.id} does not wait any more: {status}.")
    return record


def choose_option(record: RequestRecord, label: str | None, *, allows: bool) -> Option:
    """Return the option of this kind with this label or id. "Allow always" is for the session if it is offered.

    Without a label, return the first that denies once, or the only one that allows once. Raises `BadParameter`, with
    the labels that there are.
    """
    from amplifier_hooks.approvals import KNOWN_LABELS
    from amplifier_hooks.cli.approvals.print_requests import inline

    found = [option for option in record.request.options if option.allows == allows]
    labels = [option.label for option in found]
    if label is not None:
        wanted = label.strip().casefold()
        for option in found:
            if wanted in (option.label.strip().casefold(), option.id.casefold()):
                return option
        for option in found:
            if option.session_only and KNOWN_LABELS.get(wanted) == option.kind:
                return option
        raise typer.BadParameter(
            inline(f"{label!r} is not offered; {suggestion(label, labels)}"), param_hint="--option"
        )
    once = [option for option in found if option.kind in ("allow_once", "reject_once")]
    if not once or (allows and len(once) > 1):
        there = inline(", ".join(map(repr, labels))) or "none"
        raise typer.BadParameter(f"name one of the answers; there are {there}", param_hint="--option")
    return once[0]


def confirm_action(record: RequestRecord, option: Option, limits: AlwaysLimits, *, yes: bool, no_input: bool) -> None:
    """Show the action, and the reach of an "always" with its limits, and ask to confirm it; without a yes, end.

    A request whose arguments do not have its digest ends the program as well.
    """
    from amplifier_hooks.cli.approvals.print_requests import action, always, inline

    if not yes:
        try:
            lines = (*action(record), *(always(record.request, option) if option.lasts else ()))
        except ApprovalMismatch as problem:
            end_command(str(problem))
        typer.echo("\n".join([*lines, *([f"  At most: {limits}"] if str(limits) else [])]), err=True)
    confirm(f"{inline(option.label)}?", yes=yes, no_input=no_input)


async def answer(
    view: StoreView,
    record: RequestRecord,
    option: Option,
    *,
    message: str | None = None,
    limits: AlwaysLimits = UNLIMITED,
    as_json: bool,
) -> None:
    """Answer a request, and print the result. Raises `Trouble` if the store refuses the answer."""
    from amplifier_hooks.cli.approvals.print_requests import inline

    async with view.open_store() as desk:
        resolution = await desk.broker.decide(
            record.id,
            record.digest,
            option.id,
            desk.viewer,
            message=message,
            seconds=limits.seconds,
            times=limits.times,
        )
    if resolution.refusal is not None:
        raise Trouble(f"This answer did not count: {resolution.refusal.reason}.")
    after = resolution.record or record
    if as_json:
        print_json(record_facts(after))
    else:
        tool, who = inline(after.request.tool), inline(after.request.agent)
        typer.echo(f"{inline(option.label)}: {tool} for {who}, request {inline(after.id)}, digest {after.digest[:12]}")


# -- keeping -----------------------------------------------------------------------------------------------------------


@app.command()
@on_loop
async def grants(
    *, store: Store = None, tenant: Tenant = None, session: Session = None, as_json: AsJson = False
) -> None:
    """List the grants in force: every "allow always" and "deny always".

    Examples:
      amplifier-hooks approvals grants
      amplifier-hooks approvals grants --session build-7 --json
    """
    from amplifier_hooks.cli.approvals.print_requests import grant_lines

    async with StoreView(store, tenant, session).open_store() as desk:
        found = await desk.broker.grants(desk.viewer)
        uses = {grant.id: await desk.broker.store.grant_uses(grant.id) for grant in found}
    if as_json:
        print_json([{**asdict(grant), "uses": uses[grant.id]} for grant in found])
        return
    for grant in found:
        typer.echo("\n".join(grant_lines(grant, uses, uses[grant.id])))
    if not found:
        print_error("No grant is in force.")


@app.command()
@on_loop
async def revoke(
    grant: Annotated[str, typer.Argument(metavar="ID", help="The grant's id, or how it begins.")],
    *,
    store: Store = None,
    tenant: Tenant = None,
) -> None:
    """End a grant; from then on its calls are asked about again.

    Examples:
      amplifier-hooks approvals revoke 8c1f
    """
    from amplifier_hooks.cli.approvals.print_requests import inline

    async with StoreView(store, tenant).open_store() as desk:
        known = {one.id: one for one in await desk.broker.grants(desk.viewer)}
        found = known[only_one(grant, known, "grant")]
        if not await desk.broker.revoke(found.id, desk.viewer):
            raise Trouble(f"The grant {found.id} has ended already.")
    typer.echo(
        f"Revoked {inline(found.id)}: {inline(found.key.tool)}, asked by {inline(found.key.hook)}, is asked again."
    )


@app.command()
def purge(
    *,
    older_than: Annotated[
        str, typer.Option(metavar="TIME", help="Time since the request ended: 90s, 30m, 12h, 7d.")
    ] = "7d",
    unrecorded: Annotated[
        bool, typer.Option("--unrecorded", help="Also requests not in the record; for programs that keep none.")
    ] = False,
    yes: Yes = False,
    no_input: NoInput = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Remove requests that ended long ago, with the arguments that are stored with them.

    Requests that wait for an answer, that have an unknown outcome, or that are not in the record yet stay. The record
    itself is not touched: it holds arguments by digest and verifies as before.

    Examples:
      amplifier-hooks approvals purge
      amplifier-hooks approvals purge --older-than 12h --yes
    """
    seconds = seconds_of(older_than, "--older-than")
    confirm(f"Remove for good the requests that ended more than {older_than} ago?", yes=yes, no_input=no_input)

    async def remove() -> tuple[int, list[Any]]:
        async with StoreView(store).open_store() as desk:
            await desk.broker.store.expire_due()  # an overdue request ends only when a reader notices it
            count = await desk.broker.store.purge(seconds, unrecorded=unrecorded)
            return count, [] if unrecorded else await desk.broker.store.list_unrecorded(1)

    count, left = run_or_stop(remove())
    print_removed(count, "request", as_json=as_json)
    if left:
        print_error("Requests that are not in a record yet were kept. If your program keeps no record: --unrecorded")


# -- stopping ----------------------------------------------------------------------------------------------------------


@on_loop
async def stop(
    *,
    why: Annotated[str, typer.Option(metavar="TEXT", help="The reason, for people and models.")],
    tenant: Tenant = None,
    session: Stopped = "",
    store: Store = None,
) -> None:
    """Stop the acts of a session, of a tenant, or all, in every process that uses the store.

    A tool that runs goes on; nothing new begins. Open questions stay open, and an approval that is not used yet counts
    again after 'amplifier-hooks resume'.

    Examples:
      amplifier-hooks stop --why "wrong database"
      amplifier-hooks stop --session build-7 --why "it loops"
      amplifier-hooks stop --tenant acme --why "on request of acme"
    """
    async with StoreView(store, tenant).open_store() as desk:
        begun = await desk.broker.stop(why, desk.viewer, session)
    print_text(stop_line(begun))


def resume(
    *,
    tenant: Tenant = None,
    session: Stopped = "",
    yes: Yes = False,
    no_input: NoInput = False,
    store: Store = None,
) -> None:
    """End a stop: name the tenant and the session with which it was begun.

    Examples:
      amplifier-hooks resume
      amplifier-hooks resume --session build-7 --yes
    """
    reach = reach_of(tenant or "", session)
    confirm(f"Let {reach} go on?", yes=yes, no_input=no_input)

    async def end() -> tuple[Stop | None, list[Stop]]:
        async with StoreView(store, tenant).open_store() as desk:
            ended = await desk.broker.end_stop(desk.viewer, session)
            return ended, await desk.broker.stops_in_force(desk.viewer)

    ended, there = run_or_stop(end())
    if ended is None:
        end_command("\n".join([f"No stop of {reach} is in force.", *map(stop_line, there)]))
    print_text(f"Ended: {stop_line(ended)}")


def stop_line(stop: Stop) -> str:
    """Return a stop in words."""
    reach = reach_of(stop.tenant, stop.session)
    return f"Stop of {reach}, by {stop.by} since {stop.at:%Y-%m-%d %H:%M:%S} UTC: {stop.why}"


def reach_of(tenant: str, session: str) -> str:
    """Return the reach of a stop in words."""
    of = f" of tenant {tenant}" if tenant else ""
    return f"session {session}{of}" if session else f"all sessions{of}"


# -- rules -------------------------------------------------------------------------------------------------------------


File = Annotated[Path, typer.Argument(metavar="FILE", help="A file of rules.")]


@rules.command()
@on_loop
async def check(file: File) -> None:
    """Say what is wrong with a file of rules, line by line.

    Examples:
      amplifier-hooks approvals rules check rules.yaml
    """
    from approval_backends.rules.policy import Rules

    found = Rules.load(file)
    only = f", {STOPS_NOTHING}" * found.report_only
    print_text(f"{file}: {count_text(len(found), 'rule')}, digest {found.digest[:12]}{only}")


@rules.command()
@on_loop
async def explain(
    file: File,
    *,
    tool: Annotated[str, typer.Option(metavar="NAME", help="The tool.")],
    given: Annotated[
        str, typer.Option("--input", metavar="FILE|JSON", help="Its arguments: JSON, a file of it, or - to read it.")
    ] = "{}",
    cwd: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The session's directory; by default this one.")
    ] = None,
    risk: Annotated[Literal["low", "medium", "high"], typer.Option(help="The risk of the call.")] = "medium",
    as_json: AsJson = False,
) -> None:
    """Name the rules that decide about a call, those that also match, and why the rest do not.

    Examples:
      amplifier-hooks approvals rules explain rules.yaml --tool Bash --input '{"command": "git push"}'
      amplifier-hooks approvals rules explain rules.yaml --tool Write --input '{"file_path": "src/a.py"}' --cwd /project
    """
    from approval_backends.rules.policy import Rules

    facts = ActionFacts(
        tool=tool,
        arguments=json_object(given, "--input", """write such as '{"command": "ls"}'"""),
        event=TOOL_PRE,
        session="",
        tenant="",
        cwd=str(Path.cwd() if cwd is None else cwd.absolute()),
        risk=risk,
    )
    explanation = Rules.load(file).explain(facts)
    if as_json:
        print_json(explanation)
    else:
        print_text(str(explanation))
