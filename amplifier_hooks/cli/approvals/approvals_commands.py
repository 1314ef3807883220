"""`amplifier-hooks approvals`: the requests of a store come in; lists, decisions and grants go out.

Every command works on the store that the asking program uses, in another process or on another machine. The store
judges every answer: it counts only the first one, in time, and for this very action.
"""

from __future__ import annotations

from pathlib import Path  # typer reads the annotations
from typing import Annotated, Final, Literal

import typer

from amplifier_hooks.cli.common.terminal_io import AsJson, NoInput, Store, Yes, confirm

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

LIST: Final = """List the requests that wait for an answer, oldest first.

\b
Examples:
  amplifier-hooks approvals list
  amplifier-hooks approvals list --all --limit 20
  amplifier-hooks approvals list --json
"""
SHOW: Final = """Show one request whole: the exact action, the agent, and everything that has happened to it.

The id may be shortened as long as it is the only one that begins so.

\b
Examples:
  amplifier-hooks approvals show 8c1f
  amplifier-hooks approvals show 8c1f --json
"""
ALLOW: Final = """Allow one request, after showing exactly what would run and asking you to confirm.

Your yes covers the action with the digest that is shown, and nothing else.

\b
Examples:
  amplifier-hooks approvals allow 8c1f
  amplifier-hooks approvals allow 8c1f --option "Allow always" --for 2h --times 20
  amplifier-hooks approvals allow 8c1f --yes
"""
DENY: Final = """Deny one request.

\b
Examples:
  amplifier-hooks approvals deny 8c1f
  amplifier-hooks approvals deny 8c1f --message "use the staging copy"
"""
GRANTS: Final = """List the grants in force: every "allow always" and "deny always".

\b
Examples:
  amplifier-hooks approvals grants
  amplifier-hooks approvals grants --session build-7 --json
"""
REVOKE: Final = """End a grant; from then on its calls are asked about again.

\b
Examples:
  amplifier-hooks approvals revoke 8c1f
"""
PURGE: Final = """Remove requests that ended long ago, with the arguments that are stored with them.

Requests that wait for an answer, that have an unknown outcome, or that are not in the record yet stay. The record
itself is not touched: it holds arguments by digest and verifies as before.

\b
Examples:
  amplifier-hooks approvals purge
  amplifier-hooks approvals purge --older-than 12h --yes
"""
WATCH: Final = """Show each request as it arrives, and answer it here, beside all other approvers.

The first answer wins, wherever it is given; a request that another approver answered leaves the screen. Later (l)
leaves the request on screen open, for others or for 'approvals list'. Ctrl-C denies it; with no request on screen,
Ctrl-C ends the command.

\b
Examples:
  amplifier-hooks approvals watch
  amplifier-hooks approvals watch --session build-7
"""
RULES: Final = """Check a file of rules, or see its answer to a call, without running anything.

\b
Examples:
  amplifier-hooks approvals rules check rules.yaml
  amplifier-hooks approvals rules explain rules.yaml --tool Bash --input '{"command": "git push"}'
"""
CHECK: Final = """Say what is wrong with a file of rules, line by line.

\b
Examples:
  amplifier-hooks approvals rules check rules.yaml
"""
EXPLAIN: Final = """Name the rules that decide about a call, those that also match, and why the rest do not.

\b
Examples:
  amplifier-hooks approvals rules explain rules.yaml --tool Bash --input '{"command": "git push"}'
  amplifier-hooks approvals rules explain rules.yaml --tool Write --input '{"file_path": "src/a.py"}' --cwd /project
  amplifier-hooks approvals rules explain rules.yaml --request 8c1f
"""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
rules = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(rules, name="rules", help=RULES)

Tenant = Annotated[str | None, typer.Option(metavar="NAME", help="Only of this tenant.", show_default=False)]
Session = Annotated[
    list[str] | None, typer.Option(metavar="ID", help="Only of this session; may be repeated.", show_default=False)
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The request's id, or how it begins.", show_default=False)]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A file of rules.", show_default=False)]


@app.callback(help=HELP)
def approvals() -> None:
    """Take the options that stand before the name of a command: none yet."""


@app.command("list", help=LIST)
def list_(
    *,
    store: Store = None,
    tenant: Tenant = None,
    session: Session = None,
    everything: Annotated[bool, typer.Option("--all", help="Also the requests that have ended.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many of each.")] = 1_000,
    as_json: AsJson = False,
) -> None:
    """List the requests that wait."""
    from amplifier_hooks.cli.approvals import commands, open_store

    view = open_store.StoreView(store, tenant, session)
    open_store.run_or_stop(commands.list_requests(view, everything=everything, limit=limit, as_json=as_json))


@app.command(help=SHOW)
def show(request: Id, *, store: Store = None, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Show one request."""
    from amplifier_hooks.cli.approvals import commands, open_store

    open_store.run_or_stop(commands.show_request(open_store.StoreView(store, tenant), request, as_json=as_json))


@app.command(help=ALLOW)
def allow(
    request: Id,
    *,
    option: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="One of the answers that the request offers.", show_default=False),
    ] = None,
    lasts: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help='An "always" ends after 90s, 30m, 12h, 7d.', show_default=False),
    ] = None,
    times: Annotated[
        int | None, typer.Option(metavar="N", min=1, help='An "always" covers so many calls.', show_default=False)
    ] = None,
    yes: Yes = False,
    no_input: NoInput = False,
    store: Store = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Allow one request."""
    from amplifier_hooks.cli.approvals import commands, open_store

    view = open_store.StoreView(store, tenant)
    record = open_store.run_or_stop(commands.find_waiting(view, request))
    chosen = commands.allow_option(record, option)
    limits = commands.always_limits(chosen, lasts, times)
    commands.confirm_action(record, chosen, yes=yes, no_input=no_input)
    open_store.run_or_stop(commands.answer(view, record, chosen, limits=limits, as_json=as_json))


@app.command(help=DENY)
def deny(
    request: Id,
    *,
    message: Annotated[
        str | None, typer.Option("--message", "-m", metavar="TEXT", help="For the model to read.", show_default=False)
    ] = None,
    option: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="One of the answers that the request offers.", show_default=False),
    ] = None,
    store: Store = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Deny one request."""
    from amplifier_hooks.cli.approvals import commands, open_store

    view = open_store.StoreView(store, tenant)
    record = open_store.run_or_stop(commands.find_waiting(view, request))
    chosen = commands.deny_option(record, option)
    open_store.run_or_stop(commands.answer(view, record, chosen, message=message, as_json=as_json))


@app.command(help=GRANTS)
def grants(*, store: Store = None, tenant: Tenant = None, session: Session = None, as_json: AsJson = False) -> None:
    """List the grants in force."""
    from amplifier_hooks.cli.approvals import commands, open_store

    open_store.run_or_stop(commands.list_grants(open_store.StoreView(store, tenant, session), as_json=as_json))


@app.command(help=REVOKE)
def revoke(
    grant: Annotated[str, typer.Argument(metavar="ID", help="The grant's id, or how it begins.", show_default=False)],
    *,
    store: Store = None,
    tenant: Tenant = None,
) -> None:
    """End one grant."""
    from amplifier_hooks.cli.approvals import commands, open_store

    open_store.run_or_stop(commands.revoke_grant(open_store.StoreView(store, tenant), grant))


@app.command(help=PURGE)
def purge(
    *,
    older_than: Annotated[
        str, typer.Option(metavar="TIME", help="Time since the request ended: 90s, 30m, 12h, 7d.")
    ] = ("7d"),
    unrecorded: Annotated[
        bool, typer.Option("--unrecorded", help="Also requests not in the record; for programs that keep none.")
    ] = False,
    yes: Yes = False,
    no_input: NoInput = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Remove requests that ended long ago."""
    from amplifier_hooks.cli.approvals import commands, open_store

    seconds = commands.seconds_of(older_than, "--older-than")
    confirm(f"Remove for good the requests that ended more than {older_than} ago?", yes=yes, no_input=no_input)
    open_store.run_or_stop(
        commands.purge_requests(open_store.StoreView(store), seconds, unrecorded=unrecorded, as_json=as_json)
    )


@app.command(help=WATCH)
def watch(*, store: Store = None, tenant: Tenant = None, session: Session = None) -> None:
    """Show requests as they arrive, and take answers."""
    from amplifier_hooks.cli.approvals import open_store, watch_requests

    open_store.run_or_stop(
        watch_requests.watch_until_stopped(open_store.StoreView(store, tenant, session)), until_interrupted=True
    )


@rules.callback()
def rules_options() -> None:
    """Take the options that stand before the name of a command: none yet."""


@rules.command(help=CHECK)
def check(file: File, *, as_json: AsJson = False) -> None:
    """Check a file of rules."""
    from amplifier_hooks.cli.approvals import commands, open_store

    open_store.run_or_stop(commands.check_rules(file, as_json=as_json))


@rules.command(help=EXPLAIN)
def explain(
    file: File,
    *,
    tool: Annotated[str | None, typer.Option(metavar="NAME", help="The tool.", show_default=False)] = None,
    given: Annotated[str, typer.Option("--input", metavar="JSON", help="Its arguments; - reads them.")] = "{}",
    request: Annotated[
        str | None, typer.Option(metavar="ID", help="Take a request in the store instead.", show_default=False)
    ] = None,
    cwd: Annotated[Path | None, typer.Option(help="The session's directory; by default this one.")] = None,
    risk: Annotated[Literal["low", "medium", "high"], typer.Option(help="The risk of the call.")] = "medium",
    event: Annotated[str, typer.Option(metavar="NAME", help="The event.")] = "tool:pre",
    store: Store = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Explain the decision of the rules about one call."""
    from amplifier_hooks.cli.approvals import commands, open_store

    if (tool is None) == (request is None):
        raise typer.BadParameter("name a tool, or a request", param_hint="--tool / --request")
    if request is not None:
        open_store.run_or_stop(
            commands.explain_request(file, open_store.StoreView(store, tenant), request, as_json=as_json)
        )
    else:
        facts = commands.facts_of(tool or "", given, cwd=cwd, risk=risk, event=event, tenant=tenant)
        open_store.run_or_stop(commands.explain_call(file, facts, as_json=as_json))
