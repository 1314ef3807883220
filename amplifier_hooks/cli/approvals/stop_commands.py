"""`amplifier-hooks stop` and `resume`: tenant, session and reason come in; in every process acts stop, or go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from amplifier_hooks.cli.common.terminal_io import AsJson, NoInput, Store, Yes, confirm

if TYPE_CHECKING:
    from amplifier_hooks.cli.approvals.open_store import StoreView
    from amplifier_hooks.ports import Stop


STOP: Final = """Stop the acts of a session, of a tenant, or all, in every process that uses the store.

A tool that runs goes on; nothing new begins. Open questions stay open, and an approval that is not used yet counts
again after 'amplifier-hooks resume'.

\b
Examples:
  amplifier-hooks stop --why "wrong database"
  amplifier-hooks stop --session build-7 --why "it loops"
  amplifier-hooks stop --tenant acme --why "on request of acme"
"""
RESUME: Final = """End a stop: name the tenant and the session with which it was begun.

\b
Examples:
  amplifier-hooks resume
  amplifier-hooks resume --session build-7 --yes
"""

Tenant = Annotated[str | None, typer.Option(metavar="NAME", help="Only this tenant.", show_default=False)]
Session = Annotated[str, typer.Option(metavar="ID", help="Only this session.", show_default=False)]


def stop(
    *,
    why: Annotated[str, typer.Option(metavar="TEXT", help="The reason, for people and models.", show_default=False)],
    tenant: Tenant = None,
    session: Session = "",
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Begin a stop."""
    from amplifier_hooks.cli.approvals import open_store

    open_store.run_or_stop(begin_stop(open_store.StoreView(store, tenant), why, session, as_json=as_json))


def resume(
    *,
    tenant: Tenant = None,
    session: Session = "",
    yes: Yes = False,
    no_input: NoInput = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """End a stop."""
    from amplifier_hooks.cli.approvals import open_store

    confirm(f"Let {reach_of(tenant or '', session)} go on?", yes=yes, no_input=no_input)
    open_store.run_or_stop(end_stop(open_store.StoreView(store, tenant), session, as_json=as_json))


async def begin_stop(view: StoreView, why: str, session: str, *, as_json: bool) -> None:
    """Stop, and print the stop that is in force now."""
    async with view.open_store() as desk:
        begun = await desk.broker.stop(why, desk.viewer, session)
    print_stop(begun, as_json=as_json)


async def end_stop(view: StoreView, session: str, *, as_json: bool) -> None:
    """End a stop, and print it. Raises `Trouble`, with the stops in force, if there is none of this reach."""
    from amplifier_hooks.cli.approvals.open_store import Trouble

    async with view.open_store() as desk:
        ended = await desk.broker.end_stop(desk.viewer, session)
        there = await desk.broker.stops_in_force(desk.viewer)
    if ended is None:
        lines = [f"No stop of {reach_of(view.tenant or '', session)} is in force.", *map(stop_line, there)]
        raise Trouble("\n".join(lines))
    print_stop(ended, as_json=as_json)


def print_stop(stop: Stop, *, as_json: bool) -> None:
    """Print a stop, as a line or as JSON."""
    from msgspec.structs import asdict

    from amplifier_hooks.cli.approvals.open_store import print_line
    from amplifier_hooks.cli.approvals.print_requests import inline, to_json

    if as_json:
        times = {"at": stop.at.isoformat(), "ended": stop.ended and stop.ended.isoformat()}
        print_line(to_json(asdict(stop) | times))
    else:
        print_line(inline(stop_line(stop) if stop.ended is None else f"Ended: {stop_line(stop)}"))


def stop_line(stop: Stop) -> str:
    """Return a stop in words."""
    reach = reach_of(stop.tenant, stop.session)
    return f"Stop of {reach}, by {stop.by} since {stop.at:%Y-%m-%d %H:%M:%S} UTC: {stop.why}"


def reach_of(tenant: str, session: str) -> str:
    """Return the reach of a stop in words."""
    of = f" of tenant {tenant}" if tenant else ""
    return f"session {session}{of}" if session else f"all sessions{of}"
