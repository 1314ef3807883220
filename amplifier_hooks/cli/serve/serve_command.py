"""`amplifier-hooks serve`: questions of other programs come in; answers of hooks and people go out."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from pathlib import Path  # noqa: TC003  # typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from amplifier_hooks.cli.common.terminal_io import (
    LAST_PORT,
    NoSelfProtection,
    RecordFile,
    RulesFile,
    Store,
    print_error,
    print_json,
    start_problem,
    stop,
    user_name,
)

if TYPE_CHECKING:
    from amplifier_hooks.cli.serve.host_programs import Host
    from approval_backends.gateway.gateway import Gateway
    from approval_backends.stores.approval_store import ApprovalStore


PORT: Final = 8437
API_PORT: Final = 8438


def serve(
    *,
    web: Annotated[bool, typer.Option("--web", help="Serve the approval page and its WebSocket.")] = False,
    programs: Annotated[
        bool, typer.Option("--programs", help="Answer the hooks of other programs; so by default, without --web.")
    ] = False,
    api: Annotated[bool, typer.Option("--api", help="Serve the HTTP API too; see `amplifier-hooks token`.")] = False,
    api_port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=LAST_PORT, help="The API's port; 0 takes a free one.")
    ] = API_PORT,
    hooks: Annotated[
        str | None, typer.Option(metavar="FILE|MODULE:NAME", help="The hooks to answer with: a file, or a registry.")
    ] = None,
    rules: RulesFile = None,
    record: RecordFile = None,
    socket: Annotated[Path | None, typer.Option(metavar="FILE", help="The socket for programs.")] = None,
    http: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=LAST_PORT,
            help="A port at which programs with the token may post; otherwise the one that `install` chose. 0: none.",
        ),
    ] = None,
    approve: Annotated[
        Literal["inbox", "native", "both"],
        typer.Option(help="In our inbox, at the program's own prompt, or in both, our inbox first."),
    ] = "inbox",
    wait: Annotated[float, typer.Option(metavar="SECONDS", help="Seconds that a program waits for a person.")] = 300.0,
    store: Store = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=LAST_PORT, help="The page's port; 0 takes a free one.")
    ] = PORT,
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST[:PORT]", help="A name under which clients reach a proxy in front; repeatable."),
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="The approver's name for this link; otherwise yours.")
    ] = None,
    no_self_protection: NoSelfProtection = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each address as a line of JSON.")] = False,
) -> None:
    """Serve other agent programs, the page where people approve, or both, over one store.

    Examples:
      amplifier-hooks serve --hooks amplifier-hooks.yaml   their tool calls, through the hooks of a file
      amplifier-hooks serve --hooks guards:registry    their tool calls, through a registry of your own
      amplifier-hooks serve --programs --web           with the page where people approve, in one process
      amplifier-hooks serve --web --open               the page alone
      amplifier-hooks serve --api --web                programs, the page, and the HTTP API for those with a token

    It listens on this machine only. The link that is printed holds a token: its bearer may decide.
    """
    import asyncio

    from amplifier_hooks.cli.approvals.open_store import KEPT_GRANTS
    from amplifier_hooks.errors import HookError
    from amplifier_hooks.programs.guarded_processes import marked
    from amplifier_hooks.record.record_errors import LogInUse
    from amplifier_hooks.storage.database import StoreUnavailable
    from amplifier_hooks.storage.state_folder import StateFolder
    from approval_backends.broker import Broker
    from approval_backends.errors import UnknownStore
    from approval_backends.gateway.approvers import Approver
    from approval_backends.gateway.gateway import Gateway, is_loopback
    from approval_backends.stores.address import store_at

    try:
        there = store_at(store)
        if store is None:
            StateFolder().make()  # made for its owner alone
        broker = Broker(there, keep_grants=KEPT_GRANTS)
        if not name and not is_loopback(host):
            text = f"others can reach {host}; name the proxy with TLS in front: --name approvals.example.com"
            raise typer.BadParameter(text, param_hint="--host")
        gateway = Gateway(broker, [Approver(name=user or user_name())], host=host, port=port, names=name or ())
    except (ValueError, UnknownStore) as problem:
        raise typer.BadParameter(str(problem)) from None
    from amplifier_hooks.cli.common.posting import programs_port

    posted = (programs_port() if http is None else http) or None
    answering: Host | None = None
    try:
        if programs or api or not web:
            from amplifier_hooks.cli.serve.host_programs import ApiHost, host_programs

            place = None
            if api:
                from amplifier_hooks.server.build_api import API_TABLES
                from approval_backends.stores.address import database_at

                database = database_at(store, *API_TABLES)
                place = ApiHost(database=database, broker=broker, port=api_port, names=tuple(name or ()))
            answering = host_programs(
                broker,
                there.database,
                hooks=hooks,
                rules=rules,
                record=record,
                socket=socket,
                asking=approve,
                waits=wait,
                port=posted,
                api=place,
                ports=tuple(one for one in (port if web else 0, api_port if api else 0, posted or 0) if one),
                unprotected=no_self_protection,
            )
        with marked(protects=not no_self_protection):
            asyncio.run(
                serve_until_stopped(there, answering, gateway if web else None, in_browser=open_, as_json=as_json)
            )
    except (OSError, StoreUnavailable, HookError) as problem:
        remedy = "; stop it, or give this server its own --record" if isinstance(problem, LogInUse) else ""
        why = start_problem(problem, port=port if web else None, api_port=api_port, http=http)
        stop(f"The server cannot start: {why}{remedy}")


async def serve_until_stopped(
    store: ApprovalStore, host: Host | None, page: Gateway | None, *, in_browser: bool, as_json: bool
) -> None:
    """Serve until SIGINT or SIGTERM; then tell every client to come again later, and close."""
    import asyncio
    import signal

    from amplifier_hooks.cli.common.inbox import inbox

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: an interrupt ends the loop instead
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        await store.open()
        stack.push_async_callback(store.close)
        if host is not None:
            trouble = await stack.enter_async_context(host.serving())
            typer.echo(f"Programs are answered at {host.socket}", err=True)
            if host.port is not None:
                from amplifier_hooks.storage.state_folder import StateFolder

                address, file = f"http://127.0.0.1:{host.port}", StateFolder().programs_token
                typer.echo(f"and at {address}, with AMPLIFIER_HOOKS_TOKEN from {file}", err=True)
            from amplifier_hooks.result import STOPS_NOTHING

            print_error(host.hooks_line)
            for name in host.report_only:
                print_error(f"{name} is {STOPS_NOTHING}")
            if trouble is not None:
                print_error(f"Every call is denied, because {trouble}")
            if host.api is not None:
                typer.echo(f"The API is at {host.api.address}/v1/hooks", err=True)
                if as_json:
                    print_json({"api": host.api.address}, None)
        if page is not None:
            there = await stack.enter_async_context(inbox(page, in_browser=in_browser))
            there.announce(as_json=as_json)
        typer.echo("Ctrl-C stops it; open requests stay in the store.", err=True)
        await stop.wait()
