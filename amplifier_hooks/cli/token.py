"""`amplifier-hooks token`: names, tenants and scopes come in; tokens for the HTTP API go out, or end."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer
from attrs import asdict

from amplifier_hooks.cli.common.terminal_io import AsJson, RecordFile, Store, print_json, stop, user_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

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

token_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=HELP)

Tenant = Annotated[str | None, typer.Option(metavar="NAME", help="The token's tenant.")]


@token_app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of its bearer in the record.")],
    *,
    scope: Annotated[list[str], typer.Option(metavar="SCOPE", help="A scope it grants, as below; may be repeated.")],
    tenant: Tenant = None,
    days: Annotated[
        float | None, typer.Option(metavar="DAYS", help="Days it is valid; otherwise until revoked.", min=0)
    ] = None,
    store: Store = None,
    record: RecordFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a token. It is printed once, and only its digest is kept.

    Without --tenant it is for the system, which runs for every tenant; its hooks need hooks:admin. The scopes
    are hooks:read, hooks:manage, hooks:admin, approvals:view, approvals:decide, runs:read, runs:create, runs:claim and
    runs:write.

    Examples:
      amplifier-hooks token create ci --tenant acme --scope hooks:manage
      amplifier-hooks token create runner --scope runs:claim --days 7 --json
    """
    from datetime import timedelta

    from amplifier_hooks.server.edge.access_tokens import LONGEST_LIFE
    from amplifier_hooks.storage.state_folder import StateFolder

    if tenant == "":  # an empty variable of a script, most likely; and that token would see every tenant
        raise typer.BadParameter("--tenant is empty; leave it out for a token of the system")
    lifetime = None if days is None else timedelta(days=min(days, LONGEST_LIFE.days + 1))
    made, secret = _with_tokens(
        store,
        lambda tokens: tokens.create(name, scopes=scope, tenant=tenant or "", lifetime=lifetime, by=user_name()),
        record=record or StateFolder().make().token_record,
    )
    if as_json:
        print_json({**asdict(made), "token": secret}, None)
        return
    typer.echo(secret)
    typer.echo(f"{_line(made)}. Keep it; it is not shown again.", err=True)


@token_app.command("list")
def list_(*, tenant: Tenant = None, store: Store = None, as_json: AsJson = False) -> None:
    """List the tokens: id, name, tenant, scopes and end. The secrets themselves are never shown.

    Examples:
      amplifier-hooks token list
      amplifier-hooks token list --tenant acme --json
    """
    found = _with_tokens(store, lambda tokens: tokens.tokens(tenant))
    if as_json:
        print_json(found, None)
        return
    for token in found:
        typer.echo(_line(token))
    if not found:
        typer.echo("There are no tokens; `amplifier-hooks token create` makes one.", err=True)


@token_app.command()
def revoke(
    token: Annotated[str, typer.Argument(metavar="ID", help="The id that `list` shows: tok_…")],
    *,
    store: Store = None,
    record: RecordFile = None,
) -> None:
    """End a token, from the next request on.

    Examples:
      amplifier-hooks token revoke tok_0123456789ab
    """
    from amplifier_hooks.storage.state_folder import StateFolder

    kept = record or StateFolder().make().token_record
    gone = _with_tokens(store, lambda tokens: tokens.revoke(token, by=user_name()), record=kept)
    if gone is None:
        stop(f"There is no token {token!r}; see `amplifier-hooks token list`.")
    typer.echo(f"{gone.id} ({gone.name}) ended", err=True)


def _with_tokens(store: str | None, work: Callable[[AccessTokens], Awaitable[T]], *, record: Path | None = None) -> T:
    """Call `work` with the tokens of a store, on record if one is named, and return its result.

    If the store or the record cannot be used, print the reason and end the command. Raises `BadParameter` for a token
    that cannot be, and for a store of an unknown kind.
    """
    import asyncio

    from amplifier_hooks.errors import HookError
    from amplifier_hooks.record.log import AuditLog
    from amplifier_hooks.server.edge.access_tokens import ACCESS_TABLES, AccessTokens, InvalidToken
    from approval_backends.errors import UnknownStore
    from approval_backends.stores.address import database_at

    async def run_work() -> T:
        async with AsyncExitStack() as stack:
            await database.open()
            stack.push_async_callback(database.close)
            log = None if record is None else await stack.enter_async_context(AuditLog.open(record))
            return await work(AccessTokens(database, record=log))

    try:
        database = database_at(store, ACCESS_TABLES)
        return asyncio.run(run_work())
    except (UnknownStore, InvalidToken) as problem:
        raise typer.BadParameter(str(problem)) from None
    except (HookError, OSError) as problem:
        stop(f"Nothing was done, because the store or the record cannot be used: {problem}")


def _line(token: AccessToken) -> str:
    whose = f"tenant {token.tenant}" if token.tenant else "the system"
    if token.revoked:
        ends = f"revoked {token.revoked:%Y-%m-%d %H:%M}"
    else:
        ends = f"until {token.expires:%Y-%m-%d %H:%M} UTC" if token.expires else "until revoked"
    return f"{token.id}  {token.name}  {whose}  {' '.join(sorted(token.scopes))}  {ends}"
