"""Findings about a log come in; a verdict and the report of one verification go out.

`Observation` has all sentences of a verification, with the verdict to which each leads.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, Literal

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class LogVerdict(StrEnum):
    """The verdict on a log, in one to three words. The worst is first."""

    TAMPERED = "tampered"
    TRUNCATED = "truncated"
    CANNOT_TELL = "cannot tell"
    TO_ANCHOR = "intact to anchor"
    TO_HEAD = "intact to head"
    REPAIRED = "repaired tail"
    INTACT = "intact"


MEANING: Final = {
    LogVerdict.TAMPERED: "Something that was written is not what stands there now.",
    LogVerdict.TRUNCATED: "Lines that were written are missing.",
    LogVerdict.CANNOT_TELL: "Nothing contradicts the log, but the checks do not prove that it is whole.",
    LogVerdict.TO_ANCHOR: "Everything up to the anchor is as it was when that was made. Later lines are not proved.",
    LogVerdict.TO_HEAD: "Everything up to the head is as it was when that was stored. Later lines are not proved.",
    LogVerdict.REPAIRED: "Signed by a pinned key from beginning to end, and whole but for what a crash tore off.",
    LogVerdict.INTACT: "Signed by a pinned key from beginning to end, and closed.",
}


@frozen
class _Row:
    verdict: LogVerdict | None
    says: str
    head_answers: bool = False
    """True if an anchor or a stored head, found in the log, answers this doubt."""


def _tampered_row(says: str) -> _Row:
    return _Row(LogVerdict.TAMPERED, says)


def _truncated_row(says: str) -> _Row:
    return _Row(LogVerdict.TRUNCATED, says)


def _doubt_row(says: str) -> _Row:
    return _Row(LogVerdict.CANNOT_TELL, says)


def _open_row(says: str) -> _Row:
    """Return the row of a doubt that a head answers."""
    return _Row(LogVerdict.CANNOT_TELL, says, head_answers=True)


def _repaired_row(says: str) -> _Row:
    return _Row(LogVerdict.REPAIRED, says)


def _information_row(says: str) -> _Row:
    return _Row(None, says)


class Observation(Enum):
    """The possible findings, each with its sentence and its verdict. A finding without a verdict is information."""

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
    NO_KEY = _open_row("no key is pinned: a writer of the files could have forged them")
    UNSIGNED = _open_row("nothing is signed: a writer of the file could have forged it")
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
    """One finding, and its location."""

    observation: Observation
    file: str = ""
    """Name of the file; empty if the finding concerns the whole log."""
    line: int | None = None
    """Line of the file, from 1."""
    details: dict[str, str | int] = field(factory=dict)

    @property
    def verdict(self) -> LogVerdict | None:
        """Verdict to which the finding leads; None for information."""
        return self.observation.value.verdict

    @property
    def text(self) -> str:
        """The sentence of the finding. It may quote text that others wrote."""
        return self.observation.value.says.format_map(self.details)

    @property
    def location(self) -> str:
        """File and line of the finding."""
        return self.file if self.line is None else f"{self.file}, line {self.line}"


@frozen(kw_only=True)
class SegmentReport:
    """The verified content of one segment."""

    file: Path
    number: int
    lines: int = 0
    """Number of lines that form a chain, from the first."""
    bytes: int = 0
    first: int = 0
    last: int = 0
    """Number of the last of these lines in the log; `first` is that of the first."""
    key: str = ""
    """Fingerprint of the segment's key; empty if the segment names none."""
    pinned: bool = False
    signed: int = 0
    """The last line that a signature of the key covers; 0 if there is none."""
    began: str = ""
    ended: str = ""
    """Time of the last line; `began` is that of the first."""
    complete: bool = False


@frozen(kw_only=True)
class HeadComparison:
    """The comparison of the log with one anchor or stored head."""

    source: Literal["head", "anchor"]
    segment: int
    seq: int
    matches: bool | None
    """True if the head is in the log; None if the log is broken before it, so that it could not be compared."""


@frozen(kw_only=True)
class Report:
    """The result of one verification: the verdict, the findings, and the segments."""

    log: str
    """The log's id, as its first readable segment states it; empty if no segment could be read."""
    verdict: LogVerdict
    findings: tuple[LogFinding, ...]
    segments: tuple[SegmentReport, ...]
    comparisons: tuple[HeadComparison, ...] = ()

    @property
    def bad(self) -> LogFinding | None:
        """The first finding about a line that was changed or is not whole, or None."""
        severe = (LogVerdict.TAMPERED, LogVerdict.CANNOT_TELL)
        return next((one for one in self.findings if one.line is not None and one.verdict in severe), None)


def decide(findings: Iterable[LogFinding], comparisons: Iterable[HeadComparison]) -> LogVerdict:
    """Return the worst verdict of the findings. A head that is in the log answers the doubts that a head can answer."""
    reached = {one.source for one in comparisons if one.matches}
    levels = {"anchor": LogVerdict.TO_ANCHOR, "head": LogVerdict.TO_HEAD}
    best = next((level for source, level in levels.items() if source in reached), None)
    led = {LogVerdict.INTACT} | {
        best if best and finding.observation.value.head_answers else finding.verdict for finding in findings
    }
    return next(verdict for verdict in LogVerdict if verdict in led)
