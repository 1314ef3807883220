"""Findings about a log come in; a verdict and the report of one verification go out.

`Observation` has all sentences of a verification, with the verdict to which each leads.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, Literal

from attrs import field, frozen

from amplifier_hooks.text.escape import clip

if TYPE_CHECKING:
    from pathlib import Path


class LogVerdict(StrEnum):
    """The verdict on a log, in one or two words. The worst is first."""

    TAMPERED = "tampered"
    TRUNCATED = "truncated"
    CANNOT_TELL = "cannot tell"
    UNBROKEN = "unbroken"
    INTACT = "intact"


class Observation(Enum):
    """The possible findings, each with its verdict and its sentence. A finding without a verdict is information."""

    def __init__(self, verdict: LogVerdict | None, says: str) -> None:
        self.verdict = verdict
        self.says = says

    LINE = LogVerdict.TAMPERED, "the line {why}"
    CHECKPOINT = LogVerdict.TAMPERED, "the checkpoint is wrong: {why}"
    NO_END = LogVerdict.TAMPERED, "the segment has no end, and the next one does not say why"
    EVIDENCE_CHANGED = LogVerdict.TAMPERED, "what was kept behind the last line that counts is not what was found there"
    DAMAGE = LogVerdict.TAMPERED, "when the next segment was begun, lines of this one behind line {seq} were damaged"
    OTHER_LOG = LogVerdict.TAMPERED, "this is the log {log}, and the {source} is of the log {wanted}"
    DIFFERS = LogVerdict.TAMPERED, "line {seq} is not the one that the {source} knows"

    MISSING = LogVerdict.TRUNCATED, "{which} not there, and later ones are"
    NOT_REACHED = LogVerdict.TRUNCATED, "the {source} knows a line {seq} in segment {segment}, and it is not there"
    FEWER = LogVerdict.TRUNCATED, "of the {bytes} bytes that the next segment counts, {size} are there"
    CUT = LogVerdict.TRUNCATED, "when the next segment was begun, the store knew of lines behind line {seq}"

    NOT_PINNED = LogVerdict.CANNOT_TELL, "the segment is signed by the key {key}, and no pinned key is that one"
    NOT_SIGNED = LogVerdict.CANNOT_TELL, "a key is pinned, and the segment is not signed"
    NO_HEAD = LogVerdict.CANNOT_TELL, "the store that was asked knows no such log"
    CHANGED = LogVerdict.CANNOT_TELL, "the file was removed, replaced or changed behind line {seq} while it was written"
    LEFT = LogVerdict.CANNOT_TELL, "the next segment was begun for a reason that is not known here: {why}"
    UNREADABLE = LogVerdict.CANNOT_TELL, "the file cannot be read: {why}"
    SHRANK = LogVerdict.CANNOT_TELL, "the file became shorter while it was read"
    NO_KEY = LogVerdict.CANNOT_TELL, "no key is pinned: a writer of the files could have forged them"
    UNSIGNED = LogVerdict.CANNOT_TELL, "nothing is signed: a writer of the file could have forged it"
    EMPTY = LogVerdict.CANNOT_TELL, "there is no line"

    OPEN = LogVerdict.UNBROKEN, "the log is not closed: lines behind line {seq} could have been cut off"
    NOT_BEGUN = LogVerdict.UNBROKEN, "segment {number} is to follow: it was not begun, or taken away"
    UNCOVERED = LogVerdict.UNBROKEN, "no pinned key and no head covers what follows line {seq}"
    TORN = LogVerdict.UNBROKEN, "the last {bytes} bytes are no whole line"

    RECOVERED = None, "{bytes} bytes of torn lines were cut off after crashes, {times}"
    FAILURE = None, "the disk failed behind line {seq}, and the log went on in the next segment"
    LOST = None, "at least {bytes} records were refused or lost while the disk failed"
    LOST_KEY = None, "the segment has no end, because its key was changed or lost"
    KEY_CHANGED = None, "another key signs from here on: {key}"
    SIGNER = None, "the key did not sign, {times}: {why}"
    RESUMED = None, "a writer opened the log again, {times}"
    REOPENED = None, "a writer opened the log again that was not closed, {times}: a cut there would not show"
    OTHER_OWNER = None, "the segment is of {owner}"
    CLOCK = None, "the clock went back, {times}"
    EVIDENCE = None, "{bytes} bytes behind the last line that counts are kept as evidence"
    GREW = None, "the file grew by {bytes} bytes meanwhile, which were not looked at"
    MARKED = None, "the log was written beside a store, which was not asked; name it with --heads"


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
        return self.observation.verdict

    @property
    def text(self) -> str:
        """The sentence of the finding. It may quote text that others wrote."""
        return self.observation.says.format_map(self.details)

    @property
    def hides_lines(self) -> bool:
        """True if lines may stand in the file that the verifier did not read."""
        return self.observation in (Observation.LINE, Observation.UNREADABLE)

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
    at_end: bool = False
    """True if the head covers the last line of a closed log."""
    store: str = ""
    """Name of the store that keeps the head."""


@frozen(kw_only=True)
class Report:
    """The result of one verification: the findings, the segments, and the verdict that follows from them."""

    log: str
    """The log's id, as its first readable segment states it; empty if no segment could be read."""
    tenant: str = ""
    session: str = ""
    """The owner, as that segment states it; empty for any."""
    findings: tuple[LogFinding, ...]
    segments: tuple[SegmentReport, ...]
    comparisons: tuple[HeadComparison, ...] = ()
    proven: int = 0
    """Number of the last line that a pinned key or a head from another place proves, with all lines before it."""

    @property
    def bad(self) -> LogFinding | None:
        """The first finding about a line that was changed or is not whole, or None."""
        severe = (LogVerdict.TAMPERED, LogVerdict.CANNOT_TELL)
        lines = (one for one in self.findings if one.line is not None)
        return next((one for one in lines if one.verdict in severe or one.observation is Observation.TORN), None)

    @property
    def witness(self) -> HeadComparison | None:
        """The head that vouches for the end of the log, or None.

        A writer compares a stored head whenever it opens the log, so that head also answers for ends that were not
        clean. An anchor answers only for a log that was always closed.
        """
        clean = all(one.observation is not Observation.REOPENED for one in self.findings)
        return next((one for one in self.comparisons if one.at_end and (one.source == "head" or clean)), None)

    @property
    def verdict(self) -> LogVerdict:
        """The worst of what the findings lead to and what the proof reaches."""
        best = LogVerdict.INTACT if self.witness else LogVerdict.UNBROKEN if self.proven else LogVerdict.CANNOT_TELL
        led = {best, *(one.verdict for one in self.findings)}
        return next(verdict for verdict in LogVerdict if verdict in led)

    @property
    def title(self) -> str:
        """The verdict in words: a log that is not closed is unbroken so far."""
        ended = all(one.verdict is not LogVerdict.UNBROKEN for one in self.findings)
        return str(self.verdict) if ended or self.verdict is not LogVerdict.UNBROKEN else f"{self.verdict} so far"

    @property
    def meaning(self) -> str:
        """Sentences that say what was checked, of whose log. They may quote text that others wrote."""
        named = {"tenant": self.tenant, "session": self.session}
        owner = ", ".join(f"{name} {clip(value, LONGEST_NAME)!r}" for name, value in named.items() if value)
        filled = {"of": owner and f" of {owner}", "line": f"{self.proven:,}"}
        if (one := self.witness) is not None:
            where = f"segment {one.segment}{one.store and f' in {one.store}'}"
            filled |= {"head": f"the {one.source} of line {one.seq:,} in {where}", "source": one.source}
        return MEANING[self.verdict].format_map(filled)


LONGEST_NAME: Final = 80

MEANING: Final = {
    LogVerdict.TAMPERED: "Something that was written to the log{of} is not what stands there now.",
    LogVerdict.TRUNCATED: "Lines that were written to the log{of} are missing.",
    LogVerdict.CANNOT_TELL: "The checks do not prove the log{of}; the findings name the reasons.",
    LogVerdict.UNBROKEN: "Every line of the log{of} verifies up to line {line}. Nothing kept outside the log excludes "
    "that lines were cut off.",
    LogVerdict.INTACT: "Every line of the log{of} verifies, and {head} vouches for its end. An older log, restored "
    "together with an older {source}, would look the same.",
}
"""Sentences that state what was checked. `of` names the owner, `line` the last line that is proven."""
