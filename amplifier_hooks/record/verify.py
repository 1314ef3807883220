"""The segments of a log come in; a report on its chain, its signatures, its end, and its known heads goes out.

The verifier reads each segment once, line by line. The first wrong line ends the reading of its segment, because all
later lines depend on it; the verifier still reads the later segments. The tables in `report.py` turn the findings into
a verdict.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import frozen

from amplifier_hooks.record.line import FORMAT, Opening
from amplifier_hooks.record.read_segment import CLOSED, GOES_ON, Walk, is_torn, iter_entries, open_segment
from amplifier_hooks.record.record_errors import BadNote, MalformedLine, TornLine
from amplifier_hooks.record.report import HeadComparison, LogFinding, Observation, Report, SegmentReport

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from amplifier_hooks.record.line import Checkpoint, VerifierKey
    from amplifier_hooks.record.read_segment import SegmentFile


_WHY_LEFT: Final = {
    "damage": Observation.DAMAGE,
    "cut": Observation.CUT,
    "failure": Observation.FAILURE,
    "changed": Observation.CHANGED,
    "key": Observation.LOST_KEY,
}
"""Observation for a segment without an end, by the reason that the next segment gives."""


def verify(
    files: Mapping[int, Path],
    *,
    keys: Iterable[VerifierKey] = (),
    log: str | None = None,
    heads: Iterable[Checkpoint] | None = None,
    anchors: Iterable[Checkpoint] = (),
    store: str = "",
) -> Report:
    """Verify the segments of a log, given by their numbers, and return the report.

    `keys` are the pinned public keys; their names do not matter. `log` is the id that the log must have. `heads` are
    the heads that a store remembers of the log, None if no store was asked; `anchors` are checkpoints that the caller
    keeps in another place. `store` is the name of the store. The verifier does not check the signatures of heads and
    anchors: the caller does that first, if it trusts them for their signatures.

    Changes nothing, and holds little of a file at a time. The report has all faults of the files; `BadNote` is raised
    for a head or an anchor whose origin is not a log.
    """
    known = [_KnownHead.of("anchor", anchor) for anchor in anchors]
    known += [_KnownHead.of("head", head) for head in heads or ()]
    verification = _Verification({(key.algorithm, key.public) for key in keys}, log, known, store)
    return verification.verify_files(files, asked=heads is not None)


@frozen
class _KnownHead:
    """A head of the log that the caller knows: an anchor or a stored head."""

    source: Literal["head", "anchor"]
    log: str
    segment: int
    seq: int
    hash: bytes

    @classmethod
    def of(cls, source: Literal["head", "anchor"], checkpoint: Checkpoint) -> _KnownHead:
        origin = re.fullmatch(rf"{FORMAT}/([^/]*)/([0-9]+)", checkpoint.origin)
        if origin is None:
            raise BadNote(f"{checkpoint.origin!r:.120} is the origin of no log; that reads {FORMAT}/<log>/<segment>")
        return cls(source, origin[1], int(origin[2]), checkpoint.size, checkpoint.head)


class _Verification:
    """One verification of one log."""

    def __init__(self, keys: set[tuple[int, bytes]], log: str | None, heads: list[_KnownHead], store: str) -> None:
        self._keys = keys
        self._log = log
        self._heads = heads
        self._store = store
        self._findings: list[LogFinding] = []
        self._matches: dict[_KnownHead, bool] = {}

    def verify_files(self, files: Mapping[int, Path], *, asked: bool) -> Report:
        """Read every segment in order, and return the report."""
        numbers = sorted(files)
        openings = {number: _opening(number, files[number], is_last=number == numbers[-1]) for number in numbers}
        walks = {number: opening for number, opening in openings.items() if isinstance(opening, Walk)}
        for before, number in pairwise([0, *numbers]):
            if number > before + 1:
                self._add_missing(before + 1, number - 1)
            opening = openings[number]
            if isinstance(opening, Walk):
                self._check_segment(opening, walks.get(number - 1), openings.get(number + 1), number == numbers[-1])
            else:
                self._findings.append(opening)
        first = next((walk.opening for walk in walks.values()), Opening(log="", segment=1))
        last = walks.get(numbers[-1]) if numbers else None
        compared = tuple(self._compare(known, first.log, openings, last) for known in self._heads)
        segments = tuple(self._summary(walk) for walk in walks.values())
        signed = [one.signed + 1 for one in segments if one.pinned and one.signed]
        proven = max([0, *signed, *(one.seq for one in compared if one.matches)])
        if last is not None and any(one.at_end for one in compared):
            proven = last.seq
        self._check_log(first, walks.values(), last, proven, asked=asked)
        return Report(
            log=first.log,
            tenant=first.tenant,
            session=first.session,
            findings=tuple(self._findings),
            segments=segments,
            comparisons=compared,
            proven=proven,
        )

    def _check_segment(
        self,
        walk: Walk,
        before: Walk | None,
        after: Walk | LogFinding | None,
        is_last: bool,  # noqa: FBT001
    ) -> None:
        """Check one segment: its owner and signer, its lines, and its end."""
        self._check_signer(walk, before)
        left = after.statement if isinstance(after, Walk) else {}
        try:
            with open_segment(walk.file) as pages:
                walk.follow(before)
                try:
                    self._check_lines(walk, pages.lines(left.get("bytes")))
                except TornLine:
                    if not is_last:
                        raise
                    self._add_finding(
                        Observation.TORN, walk, walk.lines + 1, bytes=pages.size + pages.growth - walk.size
                    )
                self._check_trailing(walk, left, pages)
        except OSError as problem:
            self._add_broken(walk, Observation.UNREADABLE, problem, None)
        except MalformedLine as problem:
            self._add_broken(walk, Observation.LINE, problem, walk.lines + 1)
        except BadNote as problem:
            self._add_broken(walk, Observation.CHECKPOINT, problem, walk.lines + 1)
        for found, tally in walk.tallies.items():
            if found is Observation.MARKED:  # one finding for the log
                continue
            self._add_finding(found, walk, tally.line, times=tally.times, bytes=tally.amount, why=tally.why)
        if is_last and not walk.broken:
            self._check_last_end(walk)
        elif isinstance(after, Walk) and not walk.broken:
            self._check_segment_end(walk, left)

    def _check_signer(self, walk: Walk, before: Walk | None) -> None:
        key = walk.key
        if before is not None and before.owner != walk.owner:
            self._add_finding(Observation.OTHER_OWNER, walk, owner=walk.owner)
        if key is None:
            if self._keys:
                self._add_finding(Observation.NOT_SIGNED, walk)
            return
        if self._keys and not self._is_pinned(key):
            self._add_finding(Observation.NOT_PINNED, walk, key=key.fingerprint)
        if before is not None and before.key is not None and before.key.public != key.public:
            self._add_finding(Observation.KEY_CHANGED, walk, key=key.fingerprint)

    def _check_lines(self, walk: Walk, lines: Iterable[bytes]) -> None:
        """Check every line, and compare it with the known heads of this segment."""
        wanted: dict[int, list[_KnownHead]] = {}
        for known in self._heads:
            if (known.log, known.segment) == (walk.opening.log, walk.number):
                wanted.setdefault(known.seq, []).append(known)
        for body, head, entry in iter_entries(lines, walk.opening.head()):
            seq = walk.take(body, head, entry)
            for known in wanted.get(seq, ()):
                self._matches[known] = known.hash == head
                if known.hash != head:
                    self._add_finding(Observation.DIFFERS, walk, walk.lines, seq=seq, source=known.source)

    def _check_trailing(self, walk: Walk, statement: Mapping[str, Any], pages: SegmentFile) -> None:
        """Check the bytes of the file after the lines that count."""
        if statement:
            behind = pages.size - walk.size
            if statement["bytes"] > walk.size:
                self._add_finding(Observation.FEWER, walk, bytes=statement["bytes"], size=walk.size)
            if behind > 0:
                self._add_finding(Observation.EVIDENCE, walk, bytes=behind)
            unread = statement.get("why") in ("failure", "changed")  # its writer did not look behind the lines
            stated = statement.get("digest", None if unread else "")
            if stated is not None and stated != (pages.digest(walk.size) if behind > 0 else ""):
                self._add_finding(Observation.EVIDENCE_CHANGED, walk)
        elif pages.growth > 0:
            self._add_finding(Observation.GREW, walk, bytes=pages.growth)
        elif pages.growth < 0:
            self._add_finding(Observation.SHRANK, walk)

    def _check_last_end(self, walk: Walk) -> None:
        """Check the end of the last segment."""
        if walk.end == GOES_ON:
            self._add_finding(Observation.NOT_BEGUN, walk, number=walk.number + 1)
        elif walk.end != CLOSED:
            self._add_finding(Observation.OPEN, walk, seq=walk.seq)

    def _check_segment_end(self, walk: Walk, statement: Mapping[str, Any]) -> None:
        """Check the end of a segment that has a successor."""
        if statement:
            why = str(statement.get("why"))
            self._add_finding(_WHY_LEFT.get(why, Observation.LEFT), walk, seq=walk.seq, why=why[:80])
        elif walk.end != GOES_ON:
            self._add_finding(Observation.NO_END, walk, walk.lines)

    # -- the log as a whole --------------------------------------------------------------------------------------------

    def _check_log(
        self, first: Opening, walks: Collection[Walk], last: Walk | None, proven: int, *, asked: bool
    ) -> None:
        """Add the findings that concern the log as a whole."""
        if not walks and not self._findings:
            self._add_finding(Observation.EMPTY)
        if last is not None and not last.broken and proven < last.seq and (proven or self._is_pinned(last.key)):
            self._add_finding(Observation.UNCOVERED, last, seq=proven)
        if not self._keys and not proven:
            self._add_unsigned(walks)
        if asked and not any(one.source == "head" for one in self._heads):
            self._add_finding(Observation.NO_HEAD)
        if not asked and any(Observation.MARKED in walk.tallies for walk in walks):
            self._add_finding(Observation.MARKED)
        if self._log is not None and first.log not in ("", self._log):
            self._add_finding(Observation.OTHER_LOG, log=first.log, wanted=self._log, source="name")

    def _add_unsigned(self, walks: Collection[Walk]) -> None:
        """Add the reasons for which nothing is proven, without a pinned key and without a head."""
        for walk in walks:
            if walk.key is None:
                self._add_finding(Observation.UNSIGNED, walk)
        if any(walk.key for walk in walks):
            self._add_finding(Observation.NO_KEY)

    def _compare(
        self, head: _KnownHead, log: str, openings: Mapping[int, Walk | LogFinding], last: Walk | None
    ) -> HeadComparison:
        """Return the comparison of the log with a known head."""
        matches = self._matches.get(head)
        if matches is None and log not in ("", head.log):
            matches = False
            self._add_finding(Observation.OTHER_LOG, log=log, wanted=head.log, source=head.source)
        elif matches is None:
            opening = openings.get(head.segment)
            broken = opening.broken if isinstance(opening, Walk) else opening is not None and opening.hides_lines
            if not broken:
                matches = False
                self._add_finding(Observation.NOT_REACHED, seq=head.seq, segment=head.segment, source=head.source)
        return HeadComparison(
            source=head.source,
            segment=head.segment,
            seq=head.seq,
            matches=matches,
            at_end=bool(matches) and last is not None and last.number == head.segment and last.is_end(head.seq),
            store=self._store if head.source == "head" else "",
        )

    def _add_missing(self, first: int, last: int) -> None:
        which = f"segment {first} is" if first == last else f"segments {first} to {last} are"
        self._add_finding(Observation.MISSING, which=which)

    def _is_pinned(self, key: VerifierKey | None) -> bool:
        return key is not None and (key.algorithm, key.public) in self._keys

    def _add_broken(self, walk: Walk, observation: Observation, problem: Exception, line: int | None) -> None:
        walk.broken = True
        self._add_finding(observation, walk, line, why=str(problem))

    def _add_finding(
        self, observation: Observation, walk: Walk | None = None, line: int | None = None, **details: str | int
    ) -> None:
        self._findings.append(LogFinding(observation, walk.file.name if walk else "", line, details))

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


def _opening(number: int, file: Path, *, is_last: bool) -> Walk | LogFinding:
    """Return a walk that the first line of a segment opens, or the finding that describes its fault."""
    try:
        with open_segment(file) as pages:
            line, size = next(pages.lines(), b""), pages.size
    except OSError as problem:
        return LogFinding(Observation.UNREADABLE, file.name, details={"why": str(problem)})
    try:
        return Walk.of(number, file, line)
    except (MalformedLine, BadNote) as problem:
        if is_last and not line:
            return LogFinding(Observation.EMPTY, file.name)
        if is_last and is_torn(line):
            return LogFinding(Observation.TORN, file.name, 1, {"bytes": max(size, len(line))})
        return LogFinding(Observation.LINE, file.name, 1, {"why": str(problem)})
