"""`amplifier-hooks audit`, `report` and `ledger`: a record or a ledger comes in; a verdict, its lines or a page go out.

Only `accept` writes to a record, and no command removes one.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from contextlib import contextmanager, suppress
from pathlib import Path  # typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from amplifier_hooks.cli.common.terminal_io import (
    AsJson,
    NoInput,
    Store,
    Yes,
    confirm,
    error_text,
    print_error,
    print_json,
    print_lines,
    stop,
    user_name,
)
from amplifier_hooks.text.escape import for_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from amplifier_hooks.cli.audit.find_record import Line, RecordFiles
    from amplifier_hooks.library.tool_ledger import LedgerEntry
    from amplifier_hooks.record.record_errors import LogUnavailable
    from amplifier_hooks.record.report import Report


HELP: Final = """Read the record, and find out whether it is unchanged.

\b
Examples:
  amplifier-hooks audit verify record.jsonl --key audit.key.pub
  amplifier-hooks audit tail record.jsonl
  amplifier-hooks audit show record.jsonl --key audit.key.pub --html > record.html
"""

Record = Annotated[Path | None, typer.Argument(metavar="RECORD", help="Its first file; otherwise the record of serve.")]
Keys = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="KEY", help="Pin this public key: a .pub file, or its text. May be given again."),
]
Heads = Annotated[
    str | None,
    typer.Option("--heads", metavar="ADDRESS", help="The store that keeps the heads; otherwise that of approvals."),
]
Anchors = Annotated[
    list[Path] | None,
    typer.Option("--anchor", metavar="FILE", help="Signed notes that were kept elsewhere. May be given again."),
]
LogId = Annotated[str | None, typer.Option("--log", metavar="ID", help="The id the log has to have.")]
AsPage = Annotated[bool, typer.Option("--html", help="A page that needs nothing else.")]

audit_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=HELP)


@audit_app.command("verify")
def verify(
    record: Record = None,
    *,
    key: Keys = None,
    heads: Heads = None,
    anchor: Anchors = None,
    log: LogId = None,
    require_head: Annotated[
        bool, typer.Option("--require-head", help="Exit with 4 unless a head vouches for the end.")
    ] = False,
    json: AsJson = False,
    html: AsPage = False,
) -> None:
    """Find out whether the record is unchanged since it was written.

    Examples:
      amplifier-hooks audit verify record.jsonl --key audit.key.pub
      amplifier-hooks audit verify record.jsonl --key audit.key.pub --heads heads.sqlite --require-head
      amplifier-hooks audit verify --anchor note.txt --json

    A record is all its segments: name the first file, or nothing for the record of serve. The key is the public half;
    keep it out of reach of the programs that write the record. The heads are looked up in the store of your approvals,
    unless you name another one. Without a key, and without a head or anchor, the verdict is cannot tell.

    Exit codes: 0 the verdict is intact or unbroken; 1 it is tampered or truncated, or the record cannot be read; 2 it
    was called wrongly; 3 it is cannot tell; 4 it is unbroken, and --require-head was given.
    """
    from amplifier_hooks.cli.audit import record_text
    from amplifier_hooks.record.report import LogVerdict

    check_one_form(json=json, html=html)
    with check_record(record, key, heads, anchor, log) as (found, report):
        if html:
            print_lines(record_text.page(report, name=found.path.name))
        elif json:
            print_json(record_text.report_facts(report))
        else:
            print_lines(record_text.report_lines(report))
    headless = require_head and report.verdict is LogVerdict.UNBROKEN
    raise typer.Exit(record_text.HEADLESS if headless else record_text.EXITS[report.verdict])


@audit_app.command("tail")
def tail(
    record: Record = None,
    *,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, metavar="N", help="The number of lines.")] = 20,
    json: AsJson = False,
) -> None:
    """Print the last lines of the record, one a line. Nothing is verified.

    Examples:
      amplifier-hooks audit tail record.jsonl
      amplifier-hooks audit tail record.jsonl --lines 100 --json
      amplifier-hooks audit tail record.jsonl
    """
    from amplifier_hooks.cli.audit import record_text
    from amplifier_hooks.cli.audit.find_record import RecordFiles

    with report_unreadable():
        print_lines(map(record_text.raw_text if json else record_text.brief_text, RecordFiles(record).tail(lines)))


@audit_app.command("show")
def show(
    record: Record = None,
    *,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", metavar="KIND", help="Only this kind. May be given again.")
    ] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="Only this session.")] = None,
    last: Annotated[
        int | None, typer.Option("--last", min=1, metavar="N", help="Only the last so many of them.")
    ] = None,
    key: Keys = None,
    heads: Heads = None,
    anchor: Anchors = None,
    log: LogId = None,
    json: AsJson = False,
    html: AsPage = False,
) -> None:
    """Print every line of the record with all it says; the verdict goes to standard error.

    Examples:
      amplifier-hooks audit show record.jsonl --key audit.key.pub
      amplifier-hooks audit show record.jsonl --kind approval.decided --kind tool.denied
      amplifier-hooks audit show record.jsonl --last 200 --html > record.html
    """
    from amplifier_hooks.cli.audit import record_text

    check_one_form(json=json, html=html)
    with check_record(record, key, heads, anchor, log) as (found, report):
        wanted = found.lines(kinds=kind or (), session=session, last=last)
        if html:
            print_lines(record_text.page(report, name=found.path.name, entries=wanted))
        elif not print_lines(map(record_text.raw_text if json else record_text.whole_text, wanted)):
            typer.echo(f"There is no such line; {record_text.kinds_text(found.lines())}", err=True)
        typer.echo(record_text.verdict(report), err=True)


@audit_app.command("accept")
def accept(
    record: Record = None,
    *,
    store: Store = None,
    yes: Yes = False,
    no_input: NoInput = False,
) -> None:
    """Go on with a record and a store of approvals that do not fit together. The record names you.

    Examples:
      amplifier-hooks audit accept
      amplifier-hooks audit accept record.jsonl --store approvals.db

    They do not fit when one of them was replaced by an older copy or another store, or changed by another program.
    Every call is denied until you accept them; find out the reason first. Calls that were approved and run since that
    copy may be asked about, and run, again. Stop the program that writes the record first.
    """
    from amplifier_hooks.cli.approvals.open_store import run_or_stop

    accepted = set[type]()
    while problem := run_or_stop(resume_log(record, store, accepted)):
        print_error(str(problem))
        confirm("Go on all the same?", yes=yes, no_input=no_input)
        accepted.add(type(problem))
    print_error("They fit together." if not accepted else "Accepted, and on record.")


@contextmanager
def check_record(
    record: Path | None, keys: list[str] | None, heads: str | None, anchors: list[Path] | None, log: str | None
) -> Iterator[tuple[RecordFiles, Report]]:
    """Yield the record and the report on it, checked by the keys, heads and anchors that the options name.

    If the record cannot be read, in the block too, print the reason and end the command.
    """
    from amplifier_hooks.cli.audit.find_record import KeptHeads, RecordFiles, pinned_keys, signed_notes

    with report_unreadable():
        store = KeptHeads(heads)
        found = RecordFiles(record, remembered=store.remember)
        known = pinned_keys(keys or ())
        kept, notes = store.of(found.log, found.path), signed_notes(anchors or (), known)
        yield found, found.verify(known, log, kept, notes, store.name)


def check_one_form(*, json: bool, html: bool) -> None:
    """Raise `BadParameter` for two forms of output at once."""
    if json and html:
        raise typer.BadParameter("choose one of them", param_hint="--json and --html")


@contextmanager
def report_unreadable() -> Iterator[None]:
    """End with code 1 and one sentence when a file of the record cannot be read."""
    try:
        yield
    except OSError as problem:
        typer.echo(f"The record cannot be read: {for_log(error_text(problem))}", err=True)
        raise typer.Exit(1) from None


async def resume_log(record: Path | None, store: str | None, accepted: set[type]) -> LogUnavailable | None:
    """Go on with a record and a store, and return None; for a mismatch that was not accepted, return it instead.

    `accepted` has the types of the mismatches that the operator has accepted: `LogCut`, `StoreReplaced`.

    After a mismatch, nothing is written. Raises `Trouble` if the record or the store is missing, and the errors of
    opening them.
    """
    from amplifier_hooks.cli.approvals.open_store import StoreView, Trouble
    from amplifier_hooks.record.log import AuditLog, StoredHeads
    from amplifier_hooks.record.record_errors import LogCut, LogUnavailable, StoreReplaced
    from amplifier_hooks.storage.state_folder import StateFolder

    path = StateFolder().record if record is None else record
    if not path.exists():  # opening would make it
        raise Trouble(f"There is no record at {path}; name its first file.")
    async with StoreView(store).open_store() as desk:
        heads = await StoredHeads.beside(desk.database)
        log = AuditLog.open(path, heads=heads, accept_cut=LogCut in accepted, accept_store=StoreReplaced in accepted)
        try:
            await log.check()
            if accepted:
                facts = {"by": user_name(), "record": LogCut in accepted, "store": StoreReplaced in accepted}
                await log.write("operator.accepted", facts, durable=True)
        except (LogCut, StoreReplaced) as problem:
            return problem
        finally:
            with suppress(LogUnavailable):  # the caller gets this problem already
                await log.close()
    return None


# -- report ------------------------------------------------------------------------------------------------------------


DONE: Final = {
    "deny": "denied",
    "ask_user": "asked about",
    "modify": "changed",
    "inject_context": "added text at",
    "allow": "allowed without a question",
}
"""Each answer in the words of a report."""


def report(
    record: Record = None,
    *,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="Only this session.")] = None,
    last: Annotated[int, typer.Option("--last", min=0, metavar="N", help="The latest answers of each to print.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Tell what report-only hooks and rules would have done. They stopped nothing.

    Examples:
      amplifier-hooks report
      amplifier-hooks report record.jsonl --last 20
      amplifier-hooks report record.jsonl --session 5f0c --json

    The answers come from the record, which this command does not verify: amplifier-hooks audit verify does.
    """
    from amplifier_hooks.cli.audit.find_record import RecordFiles

    with report_unreadable():
        found = read_answers(RecordFiles(record).lines(session=session))
    if as_json:
        rows = [
            {"hook": hook, "would": Counter(one["action"] for one in said), "latest": [*deque(said, last)]}
            for hook, said in found.items()
        ]
        print_json(rows)
    elif not print_lines(answer_lines(found, last)):
        typer.echo("The record has no answer of a report-only hook or of report-only rules.", err=True)


def read_answers(lines: Iterable[Line]) -> dict[str, list[dict[str, Any]]]:
    """Return the report-only answers on the lines of a record, by hook or rule in the order of their names."""
    from amplifier_hooks.cli.audit.record_text import would_answers

    found: dict[str, list[dict[str, Any]]] = {}
    for entry in (line.entry for line in lines if line.entry is not None):
        for hook, would in would_answers(entry.facts):
            about = {name: entry.facts.get(name) for name in ("session", "event", "tool")}
            row = {"time": entry.time, **about, "action": str(would.get("action")), "reason": would.get("reason")}
            found.setdefault(hook, []).append(row)
    return dict(sorted(found.items()))


def answer_lines(found: dict[str, list[dict[str, Any]]], last: int) -> Iterator[str]:
    """Return the report as lines, for people, with the `last` answers of each hook or rule."""
    from amplifier_hooks.cli.audit.record_text import time_text
    from amplifier_hooks.result import STOPS_NOTHING

    for hook, rows in found.items():
        counts = Counter(DONE.get(one["action"], one["action"]) for one in rows).most_common()
        did = ", ".join(f"{action} {count:,}" for action, count in counts)
        yield f"{for_log(hook)} ({STOPS_NOTHING}) would have {for_log(did)}"
        for one in deque(rows, last):
            about = f"{DONE.get(one['action'], one['action'])} {one['tool'] or one['event']}"
            why = f": {one['reason']}" if one["reason"] else ""
            yield f"  {time_text(one['time'])}  {for_log(about + why)}"


# -- ledger ------------------------------------------------------------------------------------------------------------


SHOWN: Final = 80
"""Characters of a call's input that a line shows."""


def ledger(
    *,
    session: Annotated[str, typer.Option(metavar="ID", help="Of one session.")] = "",
    tool: Annotated[str, typer.Option(metavar="NAME", help="Of one tool.")] = "",
    status: Annotated[
        Literal["ok", "failed", "denied", "pending", "begun"] | None,
        typer.Option(metavar="STATUS", help="ok, failed, denied, pending or begun."),
    ] = None,
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Of this tenant.")] = "",
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="At most so many, the latest.")] = 50,
    store: Annotated[
        str, typer.Option(metavar="STORE", help="A file, or postgresql://…; otherwise a file of your own.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line a call.")] = False,
) -> None:
    """List the calls that the hook tool_ledger has kept, the latest last. Secrets are not in it.

    Examples:
      amplifier-hooks ledger
      amplifier-hooks ledger --session 5f0c --tool Write
      amplifier-hooks ledger --status failed --limit 20 --json
      amplifier-hooks ledger --store .hooks/ledger.db
    """
    found = ledger_entries(store, session=session, tool=tool, status=status or "", tenant=tenant, limit=limit)
    for entry in reversed(found):
        if as_json:
            print_json(entry, None)
        else:
            typer.echo(_line(entry))
    if not found:
        typer.echo("The ledger has no such calls.", err=True)


def ledger_entries(store: str, **wanted: Any) -> list[LedgerEntry]:
    """Return the entries of the ledger. If the ledger cannot be read, print the reason and end the command."""
    import asyncio

    from amplifier_hooks.library.tool_ledger import ToolLedger
    from amplifier_hooks.storage.database import StoreUnavailable
    from amplifier_hooks.storage.state_folder import StateFolder

    there = Path(store).expanduser() if store else StateFolder().ledger
    if "://" not in store and not there.exists():  # reading makes none
        stop(f"There is no ledger at {there}; the hook tool_ledger keeps one.")

    async def read() -> list[LedgerEntry]:
        async with ToolLedger.from_config({"store": store}) as opened:
            return await opened.entries(**wanted)

    try:
        return asyncio.run(read())
    except StoreUnavailable as problem:
        stop(f"The ledger cannot be read: {problem}")


def _line(entry: LedgerEntry) -> str:
    took = "" if entry.duration_ms is None else f"{entry.duration_ms:,.0f} ms"
    given = for_log(json.dumps(entry.input, ensure_ascii=False))
    shown = given if len(given) <= SHOWN else f"{given[:SHOWN]}…"
    line = f"{entry.began:%Y-%m-%d %H:%M:%S}  {entry.status:8}  {for_log(entry.tool)}  {took:>9}  {shown}"
    return f"{line}  ({for_log(entry.reason)})" if entry.reason else line
