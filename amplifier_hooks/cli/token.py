"""`amplifier-hooks token`: names, tenants and scopes come in; tokens for the HTTP API go out, or end."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path  # typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from amplifier_hooks.cli.common.terminal_io import user_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_hooks.server.edge.access_tokens import AccessToken, AccessTokens


T = TypeVar("T")

HELP: Final = """Say who may use the HTTP API, for which tenant, and for what.

\b
Examples:
  amplifier-hooks token create ci --tenant acme --scope hooks:manage --scope hooks:read
  amplifier-hooks token create ops --scope hooks:admin --days 30
  amplifier-hooks token list
  amplifier-hooks token revoke tok_0123456789ab

The store is --store, or AMPLIFIER_HOOKS_STORE, as that of `serve --api`; otherwise a file of your own. The record
(--record, otherwise tokens.jsonl beside your other files) names every token before it is made or ended.
"""
CREATE: Final = """Make a token. It is printed once, and only its digest is kept.

Without --tenant it is for the system, which runs for every tenant; its hooks need hooks:admin.

\b
Examples:
  amplifier-hooks token create ci --tenant acme --scope hooks:manage
  amplifier-hooks token create runner --scope runs:claim --days 7 --json
"""
LIST: Final = """List the tokens: id, name, tenant, scopes and end. The secrets themselves are never shown.

\b
Examples:
  amplifier-hooks token list
  amplifier-hooks token list --tenant acme --json
"""
REVOKE: Final = """End a token, from the next request on.

\b
Examples:
  amplifier-hooks token revoke tok_0123456789ab
"""

token_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=HELP)

Store = Annotated[
    str | None,
    typer.Option(
        envvar="AMPLIFIER_HOOKS_STORE",
        metavar="STORE",
        help="A SQLite file, or postgresql://…; otherwise a file of your own.",
        show_default=False,
    ),
]
Record = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The record; otherwise one of your own.", show_default=False)
]
Tenant = Annotated[str | None, typer.Option(metavar="NAME", help="The token's tenant.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@token_app.command(help=CREATE)
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of its bearer in the record.")],
    *,
    scope: Annotated[list[str], typer.Option(metavar="SCOPE", help="A scope it grants; may be repeated.")],
    tenant: Tenant = None,
    days: Annotated[
        float | None, typer.Option(metavar="DAYS", help="Days it is valid; otherwise until revoked.", min=0)
    ] = None,
    store: Store = None,
    record: Record = None,
    as_json: AsJson = False,
) -> None:
    """Make a token, and print it."""
    from datetime import timedelta

    from amplifier_hooks.server.edge.access_tokens import LONGEST_LIFE, InvalidToken
    from amplifier_hooks.storage.state_folder import StateFolder

    if tenant == "":  # an empty variable of a script, most likely; and that token would see every tenant
        raise typer.BadParameter("--tenant is empty; leave it out for a token of the system")
    lifetime = None if days is None else timedelta(days=min(days, LONGEST_LIFE.days + 1))
    try:
        made, secret = _with_tokens(
            store,
            lambda tokens: tokens.create(name, scopes=scope, tenant=tenant or "", lifetime=lifetime, by=user_name()),
            record=record or StateFolder().make().token_record,
        )
    except InvalidToken as problem:
        raise typer.BadParameter(str(problem)) from None
    if as_json:
        _print_json({**_facts(made), "token": secret})
        return
    typer.echo(secret)
    typer.echo(f"{_line(made)}. Keep it; it is not shown again.", err=True)


@token_app.command("list", help=LIST)
def list_(*, tenant: Tenant = None, store: Store = None, as_json: AsJson = False) -> None:
    """List the tokens of one tenant, or all."""
    found = _with_tokens(store, lambda tokens: tokens.tokens(tenant))
    if as_json:
        _print_json([_facts(token) for token in found])
        return
    for token in found:
        typer.echo(_line(token))
    if not found:
        typer.echo("There are no tokens; `amplifier-hooks token create` makes one.", err=True)


@token_app.command(help=REVOKE)
def revoke(
    token: Annotated[str, typer.Argument(metavar="ID", help="The id that `list` shows: tok_…", show_default=False)],
    *,
    store: Store = None,
    record: Record = None,
) -> None:
    """End a token."""
    from amplifier_hooks.storage.state_folder import StateFolder

    kept = record or StateFolder().make().token_record
    gone = _with_tokens(store, lambda tokens: tokens.revoke(token, by=user_name()), record=kept)
    if gone is None:
        typer.echo(f"There is no token {token!r}; see `amplifier-hooks token list`.", err=True)
        raise typer.Exit(1)
    typer.echo(f"{gone.id} ({gone.name}) ended", err=True)


def _with_tokens(store: str | None, work: Callable[[AccessTokens], Awaitable[T]], *, record: Path | None = None) -> T:
    """Call `work` with the tokens of a store, on record if one is named, and return its result.

    If the store or the record cannot be used, print the reason and end the command.
    """
    import asyncio

    from amplifier_hooks.record.log import AuditLog
    from amplifier_hooks.record.record_errors import LogUnavailable, RecordUnavailable
    from amplifier_hooks.server.edge.access_tokens import ACCESS_TABLES, AccessTokens
    from amplifier_hooks.storage.database import StoreUnavailable
    from approval_backends.errors import UnknownStore
    from approval_backends.stores.address import database_at

    async def run_work() -> T:
        async with AsyncExitStack() as stack:
            await database.open()
            stack.push_async_callback(database.close)
            log = None if record is None else AuditLog.open(record)
            if log is not None:
                stack.push_async_callback(log.close)
            return await work(AccessTokens(database, record=log))

    try:
        database = database_at(store, ACCESS_TABLES)
    except UnknownStore as problem:
        raise typer.BadParameter(str(problem)) from None
    try:
        return asyncio.run(run_work())
    except (LogUnavailable, RecordUnavailable) as problem:
        typer.echo(f"Nothing was done, because the record cannot be written: {problem}", err=True)
        raise typer.Exit(1) from None
    except (OSError, StoreUnavailable) as problem:
        typer.echo(f"The store cannot be used: {problem}", err=True)
        raise typer.Exit(1) from None


def _facts(token: AccessToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "tenant": token.tenant,
        "scopes": sorted(token.scopes),
        "created": token.created.isoformat(),
        "expires": token.expires and token.expires.isoformat(),
        "revoked": token.revoked and token.revoked.isoformat(),
    }


def _line(token: AccessToken) -> str:
    whose = f"tenant {token.tenant}" if token.tenant else "the system"
    if token.revoked:
        ends = f"revoked {token.revoked:%Y-%m-%d %H:%M}"
    else:
        ends = f"until {token.expires:%Y-%m-%d %H:%M} UTC" if token.expires else "until revoked"
    return f"{token.id}  {token.name}  {whose}  {' '.join(sorted(token.scopes))}  {ends}"


def _print_json(value: object) -> None:
    import json

    typer.echo(json.dumps(value))
