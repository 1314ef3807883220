"""A record by its first file, with the keys, heads and notes to compare it with; its lines and its report go out."""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer
from attrs import define, frozen

from amplifier_hooks.record.line import FORMAT, Checkpoint, LogEntry, VerifierKey, open_note, read, unseal
from amplifier_hooks.record.log_files import file_of, numbers_of
from amplifier_hooks.record.read_segment import Walk, open_segment
from amplifier_hooks.record.record_errors import BadNote, MalformedLine
from amplifier_hooks.record.verify import verify
from amplifier_hooks.storage.state_folder import StateFolder
from approval_backends.errors import UnknownStore
from approval_backends.stores.address import database_at, without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from amplifier_hooks.ports import Head
    from amplifier_hooks.record.report import Report


_NOTE: Final = re.compile(r"[^\n]+\n[^\n]+\n[^\n]+\n\n(?:\u2014 [^\n]*\n)+")
PRIVATE: Final = "PRIVATE KEY"
"""The words that give away the private half of a key."""
_LONGEST_FILE: Final = 1 << 20


@frozen
class Line:
    """One line of a file: its entry, or the problem that keeps it from being read."""

    file: str
    number: int
    data: bytes
    entry: LogEntry | None = None
    problem: str = ""


class RecordFiles:
    """A record, by its first file, or that of `serve`. It finds the segments, reads their lines and verifies them."""

    def __init__(self, path: Path | None, *, remembered: Callable[[Path], bool] = lambda _: False) -> None:
        """Raise `typer.BadParameter` for a record that is not there, unless a store remembers it."""
        path = path or StateFolder().record
        segment = re.fullmatch(r"(.+)\.[0-9]{6,}", path.stem)
        first = path.with_name(f"{segment[1]}{path.suffix}") if segment else path
        self.path = first if first.exists() else path
        if not self.path.parent.is_dir() or (not numbers_of(self.path) and not remembered(self.path)):
            raise typer.BadParameter(f"{path} is not there; name the record's first file", param_hint="RECORD")
        if self.path.is_dir():
            raise typer.BadParameter(f"{path} is a folder; name the record's first file in it", param_hint="RECORD")

    @property
    def files(self) -> dict[int, Path]:
        """The segments that are there now, by their numbers."""
        return {number: file_of(self.path, number) for number in numbers_of(self.path)}

    @property
    def log(self) -> str:
        """The id of the log in the first segment; empty if that cannot be read."""
        walk = _walk(1, self.path)
        return walk.opening.log if walk else ""

    def verify(
        self,
        keys: Iterable[VerifierKey],
        log: str | None,
        heads: Iterable[Checkpoint] | None,
        anchors: Iterable[Checkpoint],
        store: str = "",
    ) -> Report:
        """Return the report on all segments."""
        return verify(self.files, keys=keys, log=log, heads=heads, anchors=anchors, store=store)

    def lines(
        self, *, kinds: Collection[str] = (), session: str | None = None, last: int | None = None
    ) -> Iterable[Line]:
        """Return the lines of some kinds or of one session, or the last few of them; unreadable lines are included.

        A line that a later segment no longer counts is left out.
        """
        wanted = (
            line
            for line in self._all()
            if line.entry is None
            or ((not kinds or line.entry.kind in kinds) and session in (None, line.entry.facts.get("session")))
        )
        return wanted if last is None else deque(wanted, maxlen=last)

    def tail(self, count: int) -> Iterable[Line]:
        """Return the last lines."""
        kept = deque[Line](maxlen=count)
        for _, file in sorted(self.files.items(), reverse=True):
            if len(kept) < count:
                kept.extendleft(reversed(deque(_lines(file), maxlen=count - len(kept))))
        return kept

    def _all(self) -> Iterator[Line]:
        files = self.files
        for number, file in sorted(files.items()):
            after = _walk(number + 1, files[number + 1]) if number + 1 in files else None
            yield from _lines(file, after.statement.get("bytes") if after else None)


def _lines(file: Path, limit: int | None = None) -> Iterator[Line]:
    """Return the lines of a file, up to one that has no end and cannot be read."""
    with open_segment(file) as pages:
        for place, data in enumerate(pages.lines(limit), 1):
            try:
                yield Line(file.name, place, data, read(unseal(data)[0]))
            except MalformedLine as problem:
                yield Line(file.name, place, data, problem=str(problem))
                if not data.endswith(b"\n"):
                    return


def _walk(number: int, file: Path) -> Walk | None:
    """Return the walk that the first line of a segment opens; None if that line cannot be read."""
    try:
        with open_segment(file) as pages:
            return Walk.of(number, file, next(pages.lines(), b""))
    except (OSError, MalformedLine, BadNote):
        return None


# -- what it is compared with ------------------------------------------------------------------------------------------


def pinned_keys(texts: Iterable[str]) -> list[VerifierKey]:
    """Return public keys, given as files or as texts.

    Raises `typer.BadParameter` for anything else. The message never quotes a file: it may hold the private half.
    """
    return [_key(text) for text in texts]


def _key(text: str) -> VerifierKey:
    file: Path | None = None
    try:
        file = Path(text) if PRIVATE not in text and Path(text).exists() else None
        given = text if file is None else _contents(file)
        if PRIVATE in given:
            public = "the .pub file beside it" if file is None else f"{file}.pub"
            problem = f"this is the private half of a key; name the public one: {public}"
            raise typer.BadParameter(problem, param_hint="--key")
        return VerifierKey.parse(given)
    except BadNote as problem:
        said = f"{problem}, and there is no such file" if file is None else f"{file} does not hold a verifier key"
        raise typer.BadParameter(f"{said}: name the .pub file beside the record", param_hint="--key") from None
    except (OSError, ValueError) as problem:
        raise typer.BadParameter(f"{text:.120} cannot be read: {problem}", param_hint="--key") from None


def signed_notes(files: Iterable[Path], keys: Iterable[VerifierKey]) -> list[Checkpoint]:
    """Return the checkpoints in files of notes. If there are keys, one of them has to have signed each note.

    Raises `typer.BadParameter` for a text that is no note, and for a note that none of the keys has signed.
    """
    try:
        return [_checkpoint(note, keys) for file in files for note in _notes(file)]
    except (OSError, ValueError) as problem:
        raise typer.BadParameter(str(problem), param_hint="--anchor") from None


def _notes(file: Path) -> list[str]:
    text = _contents(file)
    notes = _NOTE.findall(text)
    if not notes or "".join(notes) != text:
        raise BadNote(f"{file} does not hold signed notes, one after the other")
    return notes


def _checkpoint(note: str, keys: Iterable[VerifierKey]) -> Checkpoint:
    checkpoint = Checkpoint.parse(note.partition("\n\n")[0] + "\n")
    problem: BadNote | None = None
    for key in keys:
        try:
            return open_note(note, VerifierKey(checkpoint.origin, key.public, key.algorithm))
        except BadNote as refused:
            problem = refused
    if problem:
        raise problem
    return checkpoint


@define
class KeptHeads:
    """The store that keeps heads: the one that an option names, or else the one of this user's approvals."""

    named: str | None

    @property
    def name(self) -> str:
        """The address of the store, without secrets."""
        return without_secrets(self._address)

    def remember(self, path: Path) -> bool:
        """Return True if the store knows a log that was written at this path."""
        return self._fetch("", path) is not None

    def of(self, log: str, path: Path) -> list[Checkpoint] | None:
        """Return the latest head of a log, or of the log that was last written at its path: one checkpoint, or none.

        Returns None if no option names a store and the user's own knows neither. Raises `typer.BadParameter` if the
        store that an option names is not there, or cannot be read.
        """
        head = self._fetch(log, path)
        if head is None:
            return None if self.named is None else []
        return [Checkpoint(f"{FORMAT}/{head.log}/{head.segment}", head.size, bytes.fromhex(head.head))]

    @property
    def _address(self) -> str:
        return self.named or os.environ.get("AMPLIFIER_HOOKS_STORE") or str(StateFolder().approvals)

    def _fetch(self, log: str, path: Path) -> Head | None:
        from amplifier_hooks.record.log import StoredHeads, place_of
        from amplifier_hooks.storage.database import StoreUnavailable

        async def latest() -> Head | None:
            database = database_at(self._address)  # without migrations: reading changes no store
            file = getattr(database, "path", None)
            if file is not None and not file.exists():  # opening would make it
                raise UnknownStore(f"{file} is not there")
            await database.open()
            try:
                heads = StoredHeads(database)
                return await heads.latest(log) or await heads.at(place_of(path))
            finally:
                await database.close()

        try:
            return asyncio.run(latest())
        except (UnknownStore, StoreUnavailable, OSError) as problem:
            if self.named is not None:
                raise typer.BadParameter(str(problem), param_hint="--heads") from None
            return None


def _contents(file: Path) -> str:
    """Return the text of a small file, clipped at the longest length."""
    with file.open(encoding="utf-8") as opened_file:
        return opened_file.read(_LONGEST_FILE)
