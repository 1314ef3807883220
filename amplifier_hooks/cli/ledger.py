"""`amplifier-hooks ledger`: filters come in; the tool calls that the ledger holds go out, with their outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from amplifier_hooks.text.escape import for_log, for_terminal

if TYPE_CHECKING:
    from amplifier_hooks.library.tool_ledger import CallStatus, LedgerEntry


LEDGER: Final = """List the calls that the hook tool_ledger has kept, the latest last. Secrets are not in it.

\b
Examples:
  amplifier-hooks ledger
  amplifier-hooks ledger --session 5f0c --tool Write
  amplifier-hooks ledger --status failed --limit 20 --json
  amplifier-hooks ledger --store .hooks/ledger.db
"""

SHOWN: Final = 80
"""Characters of a call's input that a line shows."""


def ledger(
    *,
    session: Annotated[str, typer.Option(metavar="ID", help="Of one session.", show_default=False)] = "",
    tool: Annotated[str, typer.Option(metavar="NAME", help="Of one tool.", show_default=False)] = "",
    status: Annotated[
        str, typer.Option(metavar="STATUS", help="ok, failed, denied, pending or begun.", show_default=False)
    ] = "",
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Of this tenant.", show_default=False)] = "",
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="At most so many, the latest.")] = 50,
    store: Annotated[
        str,
        typer.Option(
            metavar="STORE", help="A file, or postgresql://…; otherwise a file of your own.", show_default=False
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line a call.")] = False,
) -> None:
    """List the calls in the ledger."""
    import json
    from typing import get_args

    from amplifier_hooks.library.tool_ledger import CallStatus

    if status and status not in get_args(CallStatus):
        raise typer.BadParameter(f"status {status!r} is none of {', '.join(get_args(CallStatus))}")
    found = ledger_entries(store, session=session, tool=tool, status=status, tenant=tenant, limit=limit)
    for entry in reversed(found):
        typer.echo(json.dumps(_facts(entry)) if as_json else _line(entry))
    if not found:
        typer.echo("The ledger has no such calls.", err=True)


def ledger_entries(store: str, *, status: str = "", **wanted: Any) -> list[LedgerEntry]:
    """Return the entries of the ledger. If the ledger cannot be read, print the reason and end the command."""
    import asyncio
    from pathlib import Path
    from typing import cast

    from amplifier_hooks.library.tool_ledger import ToolLedger
    from amplifier_hooks.storage.database import StoreUnavailable
    from amplifier_hooks.storage.state_folder import StateFolder

    there = Path(store).expanduser() if store else StateFolder().ledger
    if "://" not in store and not there.exists():  # reading makes none
        typer.echo(f"There is no ledger at {for_terminal(str(there))}; the hook tool_ledger keeps one.", err=True)
        raise typer.Exit(1)

    async def read() -> list[LedgerEntry]:
        async with ToolLedger.from_config({"store": store}) as opened:
            return await opened.entries(status=cast("CallStatus", status), **wanted)

    try:
        return asyncio.run(read())
    except StoreUnavailable as problem:
        typer.echo(f"The ledger cannot be read: {problem}", err=True)
        raise typer.Exit(1) from None


def _line(entry: LedgerEntry) -> str:
    import json

    took = "" if entry.duration_ms is None else f"{entry.duration_ms:,.0f} ms"
    given = for_log(json.dumps(entry.input, ensure_ascii=False))
    shown = given if len(given) <= SHOWN else f"{given[:SHOWN]}…"
    line = f"{entry.began:%Y-%m-%d %H:%M:%S}  {entry.status:8}  {for_log(entry.tool)}  {took:>9}  {shown}"
    return f"{line}  ({for_log(entry.reason)})" if entry.reason else line


def _facts(entry: LedgerEntry) -> dict[str, Any]:
    import attrs

    return {**attrs.asdict(entry), "began": entry.began.isoformat()}
