"""`amplifier-hooks audit`: a record comes in; a verdict, its lines or a page go out.

Only `accept` writes to a record, and only `purge` removes one.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path  # typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Final

import typer

from amplifier_hooks.cli.common.terminal_io import (
    AsJson,
    NoInput,
    Store,
    Yes,
    confirm,
    count_text,
    error_text,
    print_error,
)
from amplifier_hooks.text.escape import for_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from amplifier_hooks.cli.audit.find_record import RecordFiles
    from amplifier_hooks.record.report import Report


HELP: Final = """Read the record, and find out whether it is unchanged.

\b
Examples:
  amplifier-hooks audit verify record.jsonl --key audit.key.pub
  amplifier-hooks audit tail record.jsonl --follow
  amplifier-hooks audit show record.jsonl --key audit.key.pub --html > record.html
"""
VERIFY: Final = """Find out whether the record is unchanged since it was written.

\b
Examples:
  amplifier-hooks audit verify record.jsonl --key audit.key.pub
  amplifier-hooks audit verify record.jsonl --key audit.key.pub --heads heads.sqlite --require-head
  amplifier-hooks audit verify --anchor note.txt --json

A record is all its segments: name the first file, or nothing for the record of serve. The key is the public half; keep
it out of reach of the programs that write the record. The heads are looked up in the store of your approvals, unless
you name another one. Without a key, and without a head or anchor, the verdict is cannot tell.
"""
TAIL: Final = """Print the last lines of the record, one a line. Nothing is verified.

\b
Examples:
  amplifier-hooks audit tail record.jsonl
  amplifier-hooks audit tail record.jsonl --lines 100 --json
  amplifier-hooks audit tail record.jsonl --follow
"""
SHOW: Final = """Print every line of the record with all it says; the verdict goes to standard error.

\b
Examples:
  amplifier-hooks audit show record.jsonl --key audit.key.pub
  amplifier-hooks audit show record.jsonl --kind approval.decided --kind tool.denied
  amplifier-hooks audit show record.jsonl --last 200 --html > record.html
"""
ACCEPT: Final = """Go on with a record and a store of approvals that do not fit together. The record names you.

\b
Examples:
  amplifier-hooks audit accept
  amplifier-hooks audit accept record.jsonl --store approvals.db

They do not fit when one of them was replaced by an older copy, or changed by another program. Every call is denied
until you accept them; find out the reason first. Calls that were approved and run since that copy may be asked about,
and run, again. Stop the program that writes the record first.
"""
PURGE: Final = """Remove the records of chats that ended long ago.

\b
Examples:
  amplifier-hooks audit purge
  amplifier-hooks audit purge --older-than 12h --yes

Each chat keeps a record of its own; these go as a whole. The record of serve stays, and so does one that `chat
--record` named.
"""
VERDICTS: Final = (
    "Exit codes: 0 the verdict is intact or unbroken; 1 it is tampered or truncated, or the record cannot be read; "
    "2 it was called wrongly; 3 it is cannot tell; 4 it is unbroken, and --require-head was given."
)
READING: Final = "Exit codes: 0 it worked, 1 the record cannot be read, 2 it was called wrongly."

PAUSE: Final = 0.25
"""Seconds between two reads of a record with `--follow`."""

Record = Annotated[
    Path | None,
    typer.Argument(metavar="RECORD", help="Its first file; otherwise the record of serve.", show_default=False),
]
Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="Pin this public key: a .pub file, or its text. May be given again.",
        show_default=False,
    ),
]
Heads = Annotated[
    str | None,
    typer.Option(
        "--heads",
        metavar="ADDRESS",
        help="The store that keeps the heads; otherwise that of approvals.",
        show_default=False,
    ),
]
Anchors = Annotated[
    list[Path] | None,
    typer.Option(
        "--anchor",
        metavar="FILE",
        help="Signed notes that were kept elsewhere. May be given again.",
        show_default=False,
    ),
]
LogId = Annotated[
    str | None, typer.Option("--log", metavar="ID", help="The id the log has to have.", show_default=False)
]
AsPage = Annotated[bool, typer.Option("--html", help="A page that needs nothing else.")]

audit_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=HELP)


@audit_app.command("verify", help=VERIFY, epilog=VERDICTS)
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
    """Print the report."""
    from amplifier_hooks.cli.audit import html_page, record_text
    from amplifier_hooks.record.report import LogVerdict

    check_one_form(json=json, html=html)
    with check_record(record, key, heads, anchor, log) as (found, report):
        if html:
            print_lines(html_page.page(report, name=found.path.name))
        else:
            print_lines(record_text.report_as_json(report) if json else record_text.report_lines(report))
    headless = require_head and report.verdict is LogVerdict.UNBROKEN
    raise typer.Exit(record_text.HEADLESS if headless else record_text.EXITS[report.verdict])


@audit_app.command("tail", help=TAIL, epilog=READING)
def tail(
    record: Record = None,
    *,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, metavar="N", help="The number of lines.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines, until Ctrl-C.")] = False,
    json: AsJson = False,
) -> None:
    """Print the last lines."""
    from amplifier_hooks.cli.audit import record_text
    from amplifier_hooks.cli.audit.find_record import RecordFiles

    def pause() -> None:
        sys.stdout.flush()
        time.sleep(PAUSE)

    with report_unreadable(), suppress(KeyboardInterrupt):
        print_lines(
            map(
                record_text.raw_text if json else record_text.brief_text,
                RecordFiles(record).tail(lines, pause if follow else None),
            )
        )


@audit_app.command("show", help=SHOW, epilog=READING)
def show(
    record: Record = None,
    *,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="KIND", help="Only this kind. May be given again.", show_default=False),
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="Only this session.", show_default=False)
    ] = None,
    last: Annotated[
        int | None,
        typer.Option("--last", min=1, metavar="N", help="Only the last so many of them.", show_default=False),
    ] = None,
    key: Keys = None,
    heads: Heads = None,
    anchor: Anchors = None,
    log: LogId = None,
    json: AsJson = False,
    html: AsPage = False,
) -> None:
    """Print the lines of these kinds or this session, or the last few."""
    from amplifier_hooks.cli.audit import html_page, record_text

    check_one_form(json=json, html=html)
    with check_record(record, key, heads, anchor, log) as (found, report):
        wanted = found.lines(kinds=kind or (), session=session, last=last)
        if html:
            print_lines(html_page.page(report, name=found.path.name, entries=wanted))
        elif not print_lines(map(record_text.raw_text if json else record_text.whole_text, wanted)):
            typer.echo(f"There is no such line; {record_text.kinds_text(found.lines())}", err=True)
        typer.echo(record_text.verdict(report), err=True)


@audit_app.command("accept", help=ACCEPT)
def accept(
    record: Record = None,
    *,
    store: Store = None,
    yes: Yes = False,
    no_input: NoInput = False,
) -> None:
    """Print each mismatch of the record and the store, and go on if the operator confirms."""
    from amplifier_hooks.cli.approvals.open_store import run_or_stop
    from amplifier_hooks.cli.audit.repair import resume_log

    accepted = set[type]()
    while problem := run_or_stop(resume_log(record, store, accepted)):
        print_error(str(problem))
        confirm("Go on all the same?", yes=yes, no_input=no_input)
        accepted.add(type(problem))
    print_error("They fit together." if not accepted else "Accepted, and on record.")


@audit_app.command("purge", help=PURGE)
def purge(
    *,
    older_than: Annotated[str, typer.Option(metavar="TIME", help="Time since the chat ended: 30m, 12h, 90d.")] = "30d",
    yes: Yes = False,
    no_input: NoInput = False,
    json: AsJson = False,
) -> None:
    """Print the number of old records, and remove them if the operator confirms."""
    from amplifier_hooks.cli.approvals.commands import seconds_of
    from amplifier_hooks.cli.audit.repair import ended_records, remove_records
    from amplifier_hooks.storage.state_folder import StateFolder

    found = list(ended_records(StateFolder().chats, time.time() - seconds_of(older_than, "--older-than")))
    if found:
        confirm(
            f"Remove {count_text(len(found), 'record')} for good whose chats ended more than {older_than} ago?",
            yes=yes,
            no_input=no_input,
        )
    count = remove_records(found)
    print_lines([f'{{"removed": {count}}}' if json else f"Removed {count_text(count, 'record')} of chats."])


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


def print_lines(pieces: Iterable[str]) -> int:
    """Print each piece on a line, and return their number."""
    count = 0
    for piece in pieces:
        typer.echo(piece)
        count += 1
    return count


@contextmanager
def report_unreadable() -> Iterator[None]:
    """End with code 1 and one sentence when a file of the record cannot be read."""
    try:
        yield
    except OSError as problem:
        typer.echo(f"The record cannot be read: {for_log(error_text(problem))}", err=True)
        raise typer.Exit(1) from None
