"""What can be said about a log: the verdicts, what leads to each, and the report of one verification.

All sentences of a verification stand in `Observation`, so nothing is said anywhere that is not in this table.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, Literal

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class LogVerdict(StrEnum):
    """What became of a log, in one word or three. The worst is first."""

    TAMPERED = "tampered"
    TRUNCATED = "truncated"
    CANNOT_TELL = "cannot tell"
    TO_ANCHOR = "intact to anchor"
    TO_HEAD = "intact to head"
    REPAIRED = "repaired tail"
    INTACT = "intact"


MEANING: Final = {
    LogVerdict.TAMPERED: "Something that was written is not what stands there now.",
    LogVerdict.TRUNCATED: "Lines that were written are not there any more.",
    LogVerdict.CANNOT_TELL: "Nothing contradicts it, and what was checked does not show that it is whole.",
    LogVerdict.TO_ANCHOR: "Everything up to the anchor is as it was when that was made. What follows is not proved.",
    LogVerdict.TO_HEAD: "Everything up to the head is as it was when that was kept. What follows is not proved.",
    LogVerdict.REPAIRED: "Signed by a pinned key from beginning to end, and whole but for what a crash tore off.",
    LogVerdict.INTACT: "Signed by a pinned key from beginning to end, and closed.",
}


@frozen
class _Row:
    verdict: LogVerdict | None
    says: str
    head_answers: bool = False
    """Whether a head from elsewhere, found in the log, makes up for it."""


def _tampered_row(says: str) -> _Row:
    return _Row(LogVerdict.TAMPERED, says)


def _truncated_row(says: str) -> _Row:
    return _Row(LogVerdict.TRUNCATED, says)


def _doubt_row(says: str) -> _Row:
    return _Row(LogVerdict.CANNOT_TELL, says)


def _open_row(says: str) -> _Row:
    """A doubt that a head answers."""
    return _Row(LogVerdict.CANNOT_TELL, says, head_answers=True)


def _repaired_row(says: str) -> _Row:
    return _Row(LogVerdict.REPAIRED, says)


def _information_row(says: str) -> _Row:
    return _Row(None, says)


class Observation(Enum):
    """What can be found, what it leads to, and the sentence for it. Without a verdict it is information."""

    LINE = _tampered_row("the line {why}")
    CHECKPOINT = _tampered_row("the checkpoint is wrong: {why}")
    NO_END = _tampered_row("the segment has no end, and the next one does not say why")
    EVIDENCE_CHANGED = _tampered_row("what was kept behind the last line that counts is not what was found there")
    DAMAGE = _tampered_row("when the next segment was begun, lines of this one behind line {seq} were damaged")
    OTHER_LOG = _tampered_row("this is the log {log}, and the {source} is of the log {wanted}")
    DIFFERS = _tampered_row("line {seq} is not the one that the {source} knows")

    MISSING = _truncated_row("{which} not there, and later ones are")
    NOT_REACHED = _truncated_row("the {source} knows a line {seq} in segment {segment}, and it is not there")
    FEWER = _truncated_row("of the {bytes} bytes that the next segment counts, {size} are there")
    CUT = _truncated_row("when the next segment was begun, the store knew of lines behind line {seq}")

    NOT_PINNED = _doubt_row("the segment is signed by the key {key}, which is not pinned")
    NOT_SIGNED = _doubt_row("a key is pinned, and the segment is not signed")
    NO_HEAD = _doubt_row("the store that was asked knows no such log")
    LEFT = _doubt_row("the next segment was begun for a reason that is not known here: {why}")
    UNREADABLE = _doubt_row("the file cannot be read: {why}")
    SHRANK = _doubt_row("the file became shorter while it was read")
    NO_KEY = _open_row("no key is pinned: whoever could write the files could have made them")
    UNSIGNED = _open_row("nothing is signed: whoever could write the file could have made it")
    OPEN = _open_row("the log is not closed: lines behind line {seq} could have been cut off")
    NOT_BEGUN = _open_row("segment {number} is to follow: it was not begun, or taken away")
    UNCOVERED = _open_row("no checkpoint covers what follows line {seq}")
    TORN = _open_row("the last {bytes} bytes are no whole line")
    EMPTY = _open_row("there is no line")

    RECOVERED = _repaired_row("{bytes} bytes of torn lines were cut off after crashes, {times}")
    FAILURE = _repaired_row("the disk failed behind line {seq}, and the log went on in the next segment")

    LOST_KEY = _information_row("the segment has no end, because its key was changed or lost")
    KEY_CHANGED = _information_row("another key signs from here on: {key}")
    SIGNER = _information_row("the key did not sign, {times}: {why}")
    RESUMED = _information_row("a writer opened the log again, {times}")
    CLOCK = _information_row("the clock went back, {times}")
    EVIDENCE = _information_row("{bytes} bytes behind the last line that counts are kept as evidence")
    GREW = _information_row("the file grew by {bytes} bytes meanwhile, which were not looked at")


@frozen
class LogFinding:
    """One thing that was found, and where."""

    found: Observation
    file: str = ""
    """The name of the file; empty when it concerns the whole log."""
    line: int | None = None
    """The line of the file, from 1."""
    details: dict[str, str | int] = field(factory=dict)

    @property
    def verdict(self) -> LogVerdict | None:
        """What it leads to."""
        return self.found.value.verdict

    @property
    def text(self) -> str:
        """The sentence. It may quote what others wrote."""
        return self.found.value.says.format_map(self.details)

    @property
    def location(self) -> str:
        """Where it was found."""
        return self.file if self.line is None else f"{self.file}, line {self.line}"


@frozen(kw_only=True)
class SegmentReport:
    """What was read of one segment."""

    file: Path
    number: int
    lines: int = 0
    """Lines that hang together, from the first."""
    bytes: int = 0
    first: int = 0
    last: int = 0
    """The numbers of the first and last of them in the log."""
    key: str = ""
    """Fingerprint of the key it names; empty if it names none."""
    pinned: bool = False
    signed: int = 0
    """The last line that a signature of that key covers; 0 if there is none."""
    began: str = ""
    ended: str = ""
    """The clock at the first and last line."""
    complete: bool = False


@frozen(kw_only=True)
class HeadComparison:
    """A head from elsewhere, and what came of the comparison."""

    source: Literal["head", "anchor"]
    segment: int
    seq: int
    matches: bool | None
    """None: it could not be compared, because the log is broken before it."""


@frozen(kw_only=True)
class Report:
    """What was checked, and what was found."""

    log: str
    """The log's id, as its first segment has it; empty if that could not be read."""
    verdict: LogVerdict
    findings: tuple[LogFinding, ...]
    segments: tuple[SegmentReport, ...]
    compared: tuple[HeadComparison, ...] = ()

    @property
    def bad(self) -> LogFinding | None:
        """The first line that is not what was written, or not whole."""
        severe = (LogVerdict.TAMPERED, LogVerdict.CANNOT_TELL)
        return next((one for one in self.findings if one.line is not None and one.verdict in severe), None)


def decide(findings: Iterable[LogFinding], compared: Iterable[HeadComparison]) -> LogVerdict:
    """The worst that the findings lead to. A head that is found in the log answers what a head can answer."""
    reached = {one.source for one in compared if one.matches}
    levels = {"anchor": LogVerdict.TO_ANCHOR, "head": LogVerdict.TO_HEAD}
    best = next((level for source, level in levels.items() if source in reached), None)
    led = {LogVerdict.INTACT} | {
        best if best and finding.found.value.head_answers else finding.verdict for finding in findings
    }
    return next(verdict for verdict in LogVerdict if verdict in led)
