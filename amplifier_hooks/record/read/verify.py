"""Whether a log is what was written: its chain, its signatures, its end, and heads that were kept elsewhere.

Each segment is read once, line by line. The first line of it that is wrong ends the reading of that segment, because
what follows hangs on it; the segments after it are read all the same. What is found leads to a verdict by the tables
in `report.py`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import frozen

from amplifier_hooks.record.format.line import FORMAT
from amplifier_hooks.record.read.read_segment import CLOSED, GOES_ON, Walk, chained, is_torn, opened
from amplifier_hooks.record.read.report import Compared, Finding, Observation, Report, SegmentReport, decide
from amplifier_hooks.record.record_errors import BadNote, MalformedLine, TornLine

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from amplifier_hooks.record.format.checkpoint import Checkpoint, VerifierKey
    from amplifier_hooks.record.read.read_segment import Pages


_WHY_LEFT: Final = {
    "damage": Observation.DAMAGE,
    "cut": Observation.CUT,
    "failure": Observation.FAILURE,
    "key": Observation.LOST_KEY,
}
"""What it means that a segment has no end, by the reason the next one gives."""


def verify(
    files: Mapping[int, Path],
    *,
    keys: Iterable[VerifierKey] = (),
    log: str | None = None,
    heads: Iterable[Checkpoint] | None = None,
    anchors: Iterable[Checkpoint] = (),
) -> Report:
    """Read the segments of a log, which are given by their numbers, and say what is found.

    `keys` are pinned: public keys that were kept elsewhere, under whatever name. `log` is the id the log has to have.
    `heads` is what a store remembers of it, none if no store was asked; `anchors` are checkpoints that were kept
    elsewhere. They are compared as they are: if a signature is what they are trusted for, look at it first.

    Changes nothing, and holds little of a file at a time. What is wrong with the files is in the report; `BadNote` is
    raised for a head or an anchor that is none of a log.
    """
    known = [_Known.of("anchor", anchor) for anchor in anchors]
    known += [_Known.of("head", head) for head in heads or ()]
    verification = _Verification({(key.algorithm, key.public) for key in keys}, log, known)
    return verification.of(files, is_unknown=heads is not None and not any(one.source == "head" for one in known))


@frozen
class _Known:
    """A head from elsewhere."""

    source: Literal["head", "anchor"]
    log: str
    segment: int
    seq: int
    hash: bytes

    @classmethod
    def of(cls, source: Literal["head", "anchor"], checkpoint: Checkpoint) -> _Known:
        rest, _, segment = checkpoint.origin.rpartition("/")
        form, _, log = rest.rpartition("/")
        if form != FORMAT or not (segment.isascii() and segment.isdecimal()):
            raise BadNote(f"{checkpoint.origin!r:.120} is the origin of no log; that reads {FORMAT}/<log>/<segment>")
        return cls(source, log, int(segment), checkpoint.size, checkpoint.head)


class _Verification:
    """One reading of one log."""

    def __init__(self, pinned: set[tuple[int, bytes]], log: str | None, known: list[_Known]) -> None:
        self._pinned = pinned
        self._log = log
        self._known = known
        self._findings: list[Finding] = []
        self._matches: dict[_Known, bool] = {}

    def of(self, files: Mapping[int, Path], *, is_unknown: bool) -> Report:
        """Read every segment, in order, and decide."""
        numbers = sorted(files)
        openings = {number: _opening(number, files[number], is_last=number == numbers[-1]) for number in numbers}
        walks = {number: opening for number, opening in openings.items() if isinstance(opening, Walk)}
        for before, number in pairwise([0, *numbers]):
            if number > before + 1:
                self._missing(before + 1, number - 1)
            opening = openings[number]
            if isinstance(opening, Walk):
                self._segment(opening, walks.get(number - 1), openings.get(number + 1), number == numbers[-1])
            else:
                self._findings.append(opening)
        log = next((walk.opening.log for walk in walks.values()), "")
        self._whole(log, walks.values(), is_unknown=is_unknown)
        compared = tuple(self._compare(known, log, openings) for known in self._known)
        return Report(
            log=log,
            verdict=decide(self._findings, compared),
            findings=tuple(self._findings),
            segments=tuple(self._summary(walk) for walk in walks.values()),
            compared=compared,
        )

    def _segment(
        self,
        walk: Walk,
        before: Walk | None,
        after: Walk | Finding | None,
        is_last: bool,  # noqa: FBT001
    ) -> None:
        """One segment: who signs it, its lines, and how it ends."""
        self._signer(walk, before)
        left = after.left if isinstance(after, Walk) else {}
        try:
            with opened(walk.file) as pages:
                walk.follow(before)
                try:
                    self._lines(walk, pages.lines(left.get("bytes")))
                except TornLine:
                    if not is_last:
                        raise
                    self._find(Observation.TORN, walk, walk.lines + 1, bytes=pages.size + pages.grew - walk.size)
                self._behind(walk, left, pages)
        except OSError as problem:
            self._broken(walk, Observation.UNREADABLE, problem, None)
        except MalformedLine as problem:
            self._broken(walk, Observation.LINE, problem, walk.lines + 1)
        except BadNote as problem:
            self._broken(walk, Observation.CHECKPOINT, problem, walk.lines + 1)
        for found, tally in walk.tallies.items():
            self._find(found, walk, tally.line, times=tally.times, bytes=tally.amount, why=tally.why)
        if is_last and not walk.broken:
            self._last(walk)
        elif isinstance(after, Walk) and not walk.broken:
            self._left(walk, left)

    def _signer(self, walk: Walk, before: Walk | None) -> None:
        key = walk.key
        if key is None:
            self._find(Observation.NOT_SIGNED if self._pinned else Observation.UNSIGNED, walk)
            return
        if self._pinned and not self._is_pinned(key):
            self._find(Observation.NOT_PINNED, walk, key=key.fingerprint)
        if before is not None and before.key is not None and before.key.public != key.public:
            self._find(Observation.KEY_CHANGED, walk, key=key.fingerprint)

    def _lines(self, walk: Walk, lines: Iterable[bytes]) -> None:
        """Every line, beside the heads from elsewhere that are about this segment."""
        wanted: dict[int, list[_Known]] = {}
        for known in self._known:
            if (known.log, known.segment) == (walk.opening.log, walk.number):
                wanted.setdefault(known.seq, []).append(known)
        for body, head in chained(lines, walk.opening.head()):
            seq = walk.take(body, head)
            for known in wanted.get(seq, ()):
                self._matches[known] = known.hash == head
                if known.hash != head:
                    self._find(Observation.DIFFERS, walk, walk.lines, seq=seq, source=known.source)

    def _behind(self, walk: Walk, left: Mapping[str, Any], pages: Pages) -> None:
        """What the file has besides the lines that count."""
        if left:
            behind = pages.size - walk.size
            if left["bytes"] > walk.size:
                self._find(Observation.FEWER, walk, bytes=left["bytes"], size=walk.size)
            if behind > 0:
                self._find(Observation.EVIDENCE, walk, bytes=behind)
            stated = left.get("digest", None if left.get("why") == "failure" else "")  # a broken disk is not read
            if stated is not None and stated != (pages.digest(walk.size) if behind > 0 else ""):
                self._find(Observation.EVIDENCE_CHANGED, walk)
        elif pages.grew > 0:
            self._find(Observation.GREW, walk, bytes=pages.grew)
        elif pages.grew < 0:
            self._find(Observation.SHRANK, walk)

    def _last(self, walk: Walk) -> None:
        """How the last segment ends."""
        if walk.end == GOES_ON:
            self._find(Observation.NOT_BEGUN, walk, number=walk.number + 1)
        elif walk.end != CLOSED:
            self._find(Observation.OPEN, walk, seq=walk.seq)
        if walk.key is not None and walk.seq > walk.covered:
            self._find(Observation.UNCOVERED, walk, seq=walk.covered)

    def _left(self, walk: Walk, left: Mapping[str, Any]) -> None:
        """How a segment ends that another follows."""
        if left:
            why = str(left.get("why"))
            self._find(_WHY_LEFT.get(why, Observation.LEFT), walk, seq=walk.seq, why=why[:80])
        elif walk.end != GOES_ON:
            self._find(Observation.NO_END, walk, walk.lines)

    # -- the log as a whole --------------------------------------------------------------------------------------------

    def _whole(self, log: str, walks: Collection[Walk], *, is_unknown: bool) -> None:
        """What concerns all of it."""
        if not walks and not self._findings:
            self._find(Observation.EMPTY)
        if not self._pinned and any(walk.key for walk in walks):
            self._find(Observation.NO_KEY)
        if is_unknown:
            self._find(Observation.NO_HEAD)
        if self._log is not None and log not in ("", self._log):
            self._find(Observation.OTHER_LOG, log=log, wanted=self._log, source="name")

    def _compare(self, known: _Known, log: str, openings: Mapping[int, Walk | Finding]) -> Compared:
        """What came of a head from elsewhere."""
        matches = self._matches.get(known)
        if matches is None and log not in ("", known.log):
            matches = False
            self._find(Observation.OTHER_LOG, log=log, wanted=known.log, source=known.source)
        elif matches is None:
            opening = openings.get(known.segment)
            if opening is None or (isinstance(opening, Walk) and not opening.broken):
                matches = False
                self._find(Observation.NOT_REACHED, seq=known.seq, segment=known.segment, source=known.source)
        return Compared(source=known.source, segment=known.segment, seq=known.seq, matches=matches)

    def _missing(self, first: int, last: int) -> None:
        which = f"segment {first} is" if first == last else f"segments {first} to {last} are"
        self._find(Observation.MISSING, which=which)

    def _is_pinned(self, key: VerifierKey | None) -> bool:
        return key is not None and (key.algorithm, key.public) in self._pinned

    def _broken(self, walk: Walk, found: Observation, problem: Exception, line: int | None) -> None:
        walk.broken = True
        self._find(found, walk, line, why=str(problem))

    def _find(
        self, found: Observation, walk: Walk | None = None, line: int | None = None, **details: str | int
    ) -> None:
        self._findings.append(Finding(found, walk.file.name if walk else "", line, details))

    def _summary(self, walk: Walk) -> SegmentReport:
        return SegmentReport(
            file=walk.file,
            number=walk.number,
            lines=walk.lines,
            bytes=walk.size,
            first=walk.first,
            last=walk.seq,
            key=walk.key.fingerprint if walk.key else "",
            pinned=self._is_pinned(walk.key),
            signed=walk.signed,
            began=walk.began,
            ended=walk.clock,
            complete=bool(walk.end),
        )


def _opening(number: int, file: Path, *, is_last: bool) -> Walk | Finding:
    """What the first line of a segment says, or what is wrong with it."""
    try:
        with opened(file) as pages:
            line, size = next(pages.lines(), b""), pages.size
    except OSError as problem:
        return Finding(Observation.UNREADABLE, file.name, details={"why": str(problem)})
    try:
        return Walk.of(number, file, line)
    except (MalformedLine, BadNote) as problem:
        if is_last and not line:
            return Finding(Observation.EMPTY, file.name)
        if is_last and is_torn(line):
            return Finding(Observation.TORN, file.name, 1, {"bytes": max(size, len(line))})
        return Finding(Observation.LINE, file.name, 1, {"why": str(problem)})
