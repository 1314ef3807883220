"""`amplifier-hooks serve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from approval_backends.stores.base import ApprovalStore
    from approval_backends.websocket import Gateway

__all__ = ["serve"]

PORT: Final = 8437

HELP: Final = """Serve the page where people approve, over a store that agents put their questions into.

It listens on this machine only. The link that is printed holds a token: whoever has it may decide.

\b
Examples:
  amplifier-hooks serve --web
  amplifier-hooks serve --web --open
  amplifier-hooks serve --web --store postgresql://localhost/approvals
"""


def serve(
    *,
    web: Annotated[bool, typer.Option("--web", help="Serve the approval page and its WebSocket.")] = False,
    store: Annotated[
        str | None,
        typer.Option(metavar="STORE", help="A SQLite file, or postgresql://…; otherwise a file of your own."),
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = PORT,
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST[:PORT]", help="Under which name a proxy in front is reached; repeatable."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Who decides with this link; otherwise you.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Say where it is in one line of JSON.")] = False,
) -> None:
    """Check what can be checked beforehand, then serve until told to stop."""
    if not web:
        raise typer.BadParameter("say what to serve: --web", param_hint="--web")
    import asyncio

    from amplifier_hooks.storage import StoreUnavailable
    from approval_backends.broker import Broker
    from approval_backends.websocket import Approver, Gateway

    try:
        there = store_of(store)
        gateway = Gateway(Broker(there), [Approver(name=user or login())], host=host, port=port, names=name or ())
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--host") from None
    try:
        asyncio.run(until_stopped(there, gateway, in_browser=open_, as_json=as_json))
    except (OSError, StoreUnavailable) as problem:
        typer.echo(f"The page cannot be served: {problem}", err=True)
        raise typer.Exit(1) from None


async def until_stopped(store: ApprovalStore, gateway: Gateway, *, in_browser: bool, as_json: bool) -> None:
    """Serve until SIGINT or SIGTERM; then tell every client to come again later, and be gone."""
    import asyncio
    import signal
    import webbrowser
    from contextlib import suppress

    from amplifier_hooks.cli.handover import handed_over

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: an interrupt ends the loop instead
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await store.open()
    try:
        async with gateway:
            with handed_over(state_folder(), gateway.address, gateway.link(), gateway.approvers[0].token) as there:
                announce(gateway, there.file, as_json=as_json)
                if in_browser:
                    # A file, because the arguments of a process can be read by everybody on this machine.
                    webbrowser.open(there.page.as_uri())
                await stop.wait()
    finally:
        await store.close()


def announce(gateway: Gateway, file: Path, *, as_json: bool) -> None:
    """Say where it is. The token goes to a terminal, and nowhere else: not into a pipe, not into a log."""
    import json
    import sys

    if as_json:
        typer.echo(json.dumps({"address": gateway.address, "token_file": str(file)}))
    link = gateway.link() if sys.stderr.isatty() else gateway.address
    typer.echo(f"Approvals are at {link}", err=True)
    if link == gateway.address:
        typer.echo(f"The token is in {file}, which only you can read.", err=True)
    typer.echo("Ctrl-C stops it; what is asked stays in the store.", err=True)


def store_of(where: str | None) -> ApprovalStore:
    """The store that was named, or the user's own."""
    if where is not None and where.partition("://")[0] in ("postgres", "postgresql"):
        from approval_backends.stores.postgres import PostgresStore

        return PostgresStore(where)
    from approval_backends.stores.sqlite import SqliteStore

    return SqliteStore(where if where is not None else state_folder() / "approvals.db")


def state_folder() -> Path:
    """Where this user's state is kept; made for its owner alone."""
    import os
    from pathlib import Path

    base = os.environ.get("XDG_STATE_HOME")
    folder = (Path(base) if base else Path.home() / ".local" / "state") / "amplifier-hooks"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def login() -> str:
    """Who runs this."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "web user"
