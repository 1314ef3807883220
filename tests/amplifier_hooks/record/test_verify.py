"""The verdict on a log never claims more than was checked."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks.record.line import Checkpoint, VerifierKey
from amplifier_hooks.record.read_segment import Walk
from amplifier_hooks.record.record_errors import BadNote
from amplifier_hooks.record.report import (
    MEANING,
    HeadComparison,
    LogFinding,
    LogVerdict,
    Observation,
    Report,
    SegmentReport,
)
from amplifier_hooks.record.verify import verify
from tests.cases import each
from tests.logbook import KEY, LOG, OTHER_KEY, Book, hundred, pinned

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FIRST, SECOND = "record.jsonl", "record.000002.jsonl"


def findings_of(report: Report) -> list[str]:
    """Return every finding with its place."""
    return [": ".join(filter(None, (finding.location, finding.text))) for finding in report.findings]


def wrong(folder: Path, book: Book, **known: Any) -> str:
    """Return the only finding about a log with one wrong line."""
    report = verify(book.files(folder), keys=[pinned()], **known)
    assert report.verdict is LogVerdict.TAMPERED
    assert report.bad is report.findings[0]
    return findings_of(report)[0]


# -- whole logs --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AUD-2")
def test_intact(tmp_path: Path) -> None:
    """A closed log whose last line a head knows is intact; the verdict names the head, and what it does not show."""
    book = hundred()
    files = book.files(tmp_path)
    report = verify(files, keys=[pinned(OTHER_KEY), pinned()], heads=[book.known], store="heads.db")
    segment = SegmentReport(
        file=tmp_path / FIRST,
        number=1,
        lines=100,
        bytes=files[1].stat().st_size,
        first=1,
        last=100,
        key=pinned().fingerprint,
        pinned=True,
        signed=99,
        began="2026-11-18T00:01:00+00:00",
        ended="2026-11-18T01:36:00+00:00",
        complete=True,
    )
    head = HeadComparison(source="head", segment=1, seq=100, matches=True, at_end=True, store="heads.db")
    assert report == Report(
        log=LOG,
        tenant="acme",
        session="s1",
        findings=(),
        segments=(segment,),
        comparisons=(head,),
        proven=100,
    )
    assert (report.verdict, report.title, report.meaning) == (
        LogVerdict.INTACT,
        "intact",
        (
            "Every line of the log of tenant 'acme', session 's1' verifies, and the head of line 100 in segment 1 in "
            "heads.db vouches for its end. An older log, restored together with an older head, would look the same."
        ),
    )
    assert verify(files, heads=[book.known]).verdict is LogVerdict.INTACT


@pytest.mark.rule("AUD-2")
def test_unbroken(tmp_path: Path) -> None:
    """A closed log that a pinned key signed is unbroken as long as nothing outside vouches for its end."""
    report = verify(hundred().files(tmp_path), keys=[pinned()])
    assert (report.verdict, report.title, findings_of(report)) == (LogVerdict.UNBROKEN, "unbroken", [])
    assert report.meaning == (
        "Every line of the log of tenant 'acme', session 's1' verifies up to line 100. Nothing kept outside the log "
        "excludes that lines were cut off."
    )
    for book, line in ((Book().add().checkpoint(), 3), (Book().add().checkpoint().add(), 3), (hundred(), 97)):
        del book.segments[0][98:]
        report = verify(book.files(tmp_path), keys=[pinned()])
        assert (report.verdict, report.title, report.proven) == (LogVerdict.UNBROKEN, "unbroken so far", line)
        assert f"verifies up to line {line}." in report.meaning


@pytest.mark.rule("AUD-2")
@pytest.mark.fault("F-AUD-02")
@pytest.mark.parametrize("cut", ["close", "checkpoint"])
def test_cut_and_opened_again(tmp_path: Path, cut: str) -> None:
    """A log that was cut to an earlier end, and closed again, is not intact without a head that its store kept."""
    whole = Book().add().close().add("log.resumed", {"closed": True, "size": 4}).add().close()
    known, lines = whole.known, whole.segments[0]
    book = Book().add().checkpoint() if cut == "checkpoint" else Book().add().close()
    anchor = book.known
    assert lines[:2] == book.segments[0][:2]
    if cut == "checkpoint":
        book.add("log.resumed", {"closed": False, "size": 3}).add().close()
    files = book.files(tmp_path)
    report = verify(files, keys=[pinned()])
    assert (report.verdict, report.title) == (LogVerdict.UNBROKEN, "unbroken")
    report = verify(files, keys=[pinned()], heads=[known])
    assert report.verdict in (LogVerdict.TRUNCATED, LogVerdict.TAMPERED)
    report = verify(files, keys=[pinned()], anchors=[anchor, book.known])
    assert report.verdict is (LogVerdict.UNBROKEN if cut == "checkpoint" else LogVerdict.INTACT)
    assert "restored together with an older anchor" in report.meaning or cut == "checkpoint"
    assert verify(files, keys=[pinned()], heads=[book.known]).verdict is LogVerdict.INTACT


@pytest.mark.rule("AUD-2", "AUD-8")
def test_marked(tmp_path: Path) -> None:
    """A log that was written beside a store says so, as long as no store is asked."""
    book = Book().add("store.marked", {"store": "a", "number": 1}).add("log.lost", {"records": 3}).close()
    report = verify(book.files(tmp_path), keys=[pinned()])
    assert findings_of(report) == [
        f"{FIRST}, line 3: at least 3 records were refused or lost while the disk failed",
        "the log was written beside a store, which was not asked; name it with --heads",
    ]
    assert report.verdict is LogVerdict.UNBROKEN
    assert len(findings_of(verify(book.files(tmp_path), keys=[pinned()], heads=[book.known]))) == 1


@pytest.mark.rule("AUD-2")
def test_other_owner(tmp_path: Path) -> None:
    """A segment of another session is named; the owner that the verdict names is that of the first segment."""
    book = Book().end("segment.closed", {"next": 2}).begin(session="s2").close()
    report = verify(book.files(tmp_path), keys=[pinned()])
    assert findings_of(report) == [f"{SECOND}: the segment is of the tenant 'acme' and the session 's2'"]
    assert (report.tenant, report.session, report.verdict) == ("acme", "s1", LogVerdict.UNBROKEN)


@pytest.mark.rule("AUD-2", "AUD-5")
def test_segments(tmp_path: Path) -> None:
    """A log of several segments is verified as one, each following the other."""
    report = verify(Book().add().rotate().add().add().rotate().close().files(tmp_path), keys=[pinned()])
    assert (report.verdict, findings_of(report)) == (LogVerdict.UNBROKEN, [])
    assert [(one.number, one.first, one.last, one.signed, one.lines) for one in report.segments] == [
        (1, 1, 4, 3, 4),
        (2, 5, 9, 8, 5),
        (3, 10, 12, 11, 3),
    ]
    assert report.segments[1].began == "2026-11-18T00:04:00+00:00"


@pytest.mark.rule("AUD-2")
@pytest.mark.fault("F-AUD-15")
@pytest.mark.parametrize(
    ("book", "pins", "finding"),
    [
        (Book().close(), [], f": {Observation.NO_KEY.says}"),
        (Book(None).close(), [], f"{FIRST}: {Observation.UNSIGNED.says}"),
        (Book(None).close(), [pinned()], f"{FIRST}: a key is pinned, and the segment is not signed"),
        (
            Book(OTHER_KEY).close(),
            [pinned()],
            f"{FIRST}: the segment is signed by the key {pinned(OTHER_KEY).fingerprint}, and no pinned key is that one",
        ),
        (
            Book().close(),
            [VerifierKey("amplifier-hooks/audit", KEY.public, 6)],
            f"{FIRST}: the segment is signed by the key {pinned().fingerprint}, and no pinned key is that one",
        ),
    ],
    ids=["none pinned", "unsigned", "unsigned though pinned", "unknown key", "other algorithm"],
)
def test_key(tmp_path: Path, book: Book, pins: list[VerifierKey], finding: str) -> None:
    """Without a pinned key or a signature, or by another key, the verdict is "cannot tell", with the reason."""
    report = verify(book.files(tmp_path), keys=pins)
    assert (report.verdict, findings_of(report)) == (LogVerdict.CANNOT_TELL, [finding.removeprefix(": ")])
    assert not report.segments[0].pinned
    assert report.segments[0].key == ("" if book.key is None else pinned(book.key).fingerprint)


@pytest.mark.rule("AUD-2")
@pytest.mark.fault("F-AUD-15")
def test_key_rotated(tmp_path: Path) -> None:
    """A changed key is named; the pinned keys decide the verdict."""
    book = Book().add().rotate(OTHER_KEY).close()
    changed = f"{SECOND}: another key signs from here on: {pinned(OTHER_KEY).fingerprint}"
    report = verify(book.files(tmp_path), keys=[pinned(), pinned(OTHER_KEY)])
    assert (report.verdict, findings_of(report)) == (LogVerdict.UNBROKEN, [changed])
    report = verify(book.files(tmp_path), keys=[pinned()])
    assert report.verdict is LogVerdict.CANNOT_TELL
    unknown = (
        f"{SECOND}: the segment is signed by the key {pinned(OTHER_KEY).fingerprint}, and no pinned key is that one"
    )
    assert findings_of(report) == [unknown, changed, f"{SECOND}: no pinned key and no head covers what follows line 4"]
    assert [one.pinned for one in report.segments] == [True, False]
    report = verify(Book().rotate(None).close().files(tmp_path), keys=[pinned()])
    assert findings_of(report)[0] == f"{SECOND}: a key is pinned, and the segment is not signed"
    report = verify(Book(None).rotate().close().files(tmp_path))
    assert findings_of(report) == [f"{FIRST}: {Observation.UNSIGNED.says}", Observation.NO_KEY.says]


@pytest.mark.rule("AUD-2")
@pytest.mark.fault("F-AUD-15")
def test_signer_away(tmp_path: Path) -> None:
    """A pause of the signer is reported; the lines that a later checkpoint covers are intact all the same."""
    book = Book().add("log.unsigned", {"error": "no answer"}).add().checkpoint()
    book.add("log.unsigned", {"error": "again"}).close()
    report = verify(book.files(tmp_path), keys=[pinned()])
    assert report.verdict is LogVerdict.UNBROKEN
    assert findings_of(report) == [f"{FIRST}, line 2: the key did not sign, 2 times, here first: no answer"]
    report = verify(Book().add("log.unsigned", {"error": "x" * 300}).files(tmp_path), keys=[pinned()])
    assert findings_of(report) == [
        f"{FIRST}, line 2: the key did not sign, once: {'x' * 200}",
        f"{FIRST}: the log is not closed: lines behind line 2 could have been cut off",
        f"{FIRST}: no pinned key and no head covers what follows line 0",
    ]


# -- ends and heads ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("AUD-2", "AUD-5")
@pytest.mark.fault("F-AUD-02")
def test_cut_at_line_ends(tmp_path: Path) -> None:
    """Without a head the verifier cannot exclude a cut, and names the missing end; with a head it can."""
    book = hundred()
    lines, known = book.segments[0], book.known
    for kept in range(1, 100):
        book.segments[0] = lines[:kept]
        files = book.files(tmp_path)
        report = verify(files, keys=[pinned()])
        covered = max(line for line in (0, 33, 65, 97, 100) if line <= kept)
        assert report.verdict is (LogVerdict.UNBROKEN if covered else LogVerdict.CANNOT_TELL)
        assert report.proven == covered
        assert findings_of(report)[0] == (
            f"{FIRST}: the log is not closed: lines behind line {kept} could have been cut off"
        )
        uncovered = [f"{FIRST}: no pinned key and no head covers what follows line {covered}"] if covered < kept else []
        assert findings_of(report)[1:] == uncovered
        for source, given in {"head": {"heads": [known]}, "anchor": {"anchors": [known]}}.items():
            report = verify(files, keys=[pinned()], **given)  # type: ignore[arg-type]
            assert report.verdict is LogVerdict.TRUNCATED
            assert f"the {source} knows a line 100 in segment 1, and it is not there" in findings_of(report)
            assert [one.matches for one in report.comparisons] == [False]


@pytest.mark.rule("AUD-2")
def test_heads(tmp_path: Path) -> None:
    """A head or an anchor in the log proves all lines before it, whatever key signed them, and no line after it."""
    book = Book().add()
    head, note = book.known, book.checkpoint().known
    files = book.add().files(tmp_path)
    for given, line in (({"heads": [head]}, 2), ({"anchors": [note]}, 3), ({"heads": [head], "anchors": [note]}, 3)):
        report = verify(files, **given)  # type: ignore[arg-type]
        assert (report.title, report.proven) == ("unbroken so far", line)
        assert findings_of(report)[-1] == f"{FIRST}: no pinned key and no head covers what follows line {line}"
        assert verify(files, keys=[pinned()], **given).proven == 3  # type: ignore[arg-type]
        assert verify(files, keys=[pinned(OTHER_KEY)], **given).verdict is LogVerdict.CANNOT_TELL  # type: ignore[arg-type]
    assert verify(files, heads=[head], anchors=[note]).comparisons == (
        HeadComparison(source="anchor", segment=1, seq=3, matches=True),
        HeadComparison(source="head", segment=1, seq=2, matches=True),
    )
    assert verify(files, heads=[book.known]).title == "unbroken so far"
    book.close()
    stated = Checkpoint.parse(json.loads(book.segments[0][-1])["facts"]["note"].partition("\n\n")[0] + "\n")
    for given in ({"heads": [book.known]}, {"anchors": [book.known]}, {"anchors": [stated]}):
        assert verify(book.files(tmp_path), **given).verdict is LogVerdict.INTACT  # type: ignore[arg-type]
    assert verify(book.files(tmp_path), keys=[pinned()], heads=[note]).title == "unbroken"


@pytest.mark.rule("AUD-2")
@pytest.mark.fault("F-AUD-03")
def test_other_head(tmp_path: Path) -> None:
    """A log that was written again, or another log in its place, is not the one of the head or the name."""
    known = Book().add("outcome", {"allowed": False}).close().known
    files = Book().add("outcome", {"allowed": True}).close().files(tmp_path)
    report = verify(files, keys=[pinned()], heads=[known])
    assert (report.verdict, findings_of(report)) == (
        LogVerdict.TAMPERED,
        [f"{FIRST}, line 4: line 4 is not the one that the head knows"],
    )
    assert report.comparisons == (HeadComparison(source="head", segment=1, seq=4, matches=False),)
    files = Book(log="00" * 16).close().files(tmp_path)
    for source, given in {"head": {"heads": [known]}, "anchor": {"anchors": [known]}, "name": {"log": LOG}}.items():
        report = verify(files, keys=[pinned()], **given)  # type: ignore[arg-type]
        assert report.verdict is LogVerdict.TAMPERED
        assert findings_of(report) == [f"this is the log {'00' * 16}, and the {source} is of the log {LOG}"]
        assert [one.matches for one in report.comparisons] == [False] * (source != "name")
    assert verify(files, keys=[pinned()], log="00" * 16).verdict is LogVerdict.UNBROKEN


@pytest.mark.rule("AUD-2")
def test_unknown_head(tmp_path: Path) -> None:
    """A store that knows no such log leaves open if it is the right store."""
    report = verify(Book().close().files(tmp_path), keys=[pinned()], heads=[], anchors=[Book().known])
    assert (report.verdict, findings_of(report)) == (
        LogVerdict.CANNOT_TELL,
        ["the store that was asked knows no such log"],
    )
    for origin in (
        "",
        "amplifier-hooks/audit/2/5b/1",
        "amplifier-hooks/audit/1/5b/one",
        "amplifier-hooks/audit/1/5b/\u0661",
    ):
        with pytest.raises(
            BadNote, match="is the origin of no log; that reads amplifier-hooks/audit/1/<log>/<segment>"
        ):
            verify({}, heads=[Checkpoint(origin, 1, bytes(32))])


@pytest.mark.rule("AUD-2")
def test_head_behind_damage(tmp_path: Path) -> None:
    """A head after a wrong line was not compared; one in a missing segment was not reached."""
    book = Book().add().add()
    known = book.known
    book.rotate().close()
    later = book.known
    book.segments[0][1] = book.segments[0][1].replace(b"outcome", b"outcomes")
    report = verify(book.files(tmp_path), keys=[pinned()], heads=[known, later])
    assert [one.matches for one in report.comparisons] == [None, True]
    book.segments[0][0] = b"{}\n"
    report = verify({1: book.files(tmp_path)[1]}, heads=[known], log="other")
    assert [one.matches for one in report.comparisons] == [None]
    assert findings_of(report) == [f"{FIRST}, line 1: the line does not end in a hash and a newline"]
    files = Book().add().add().rotate().close().files(tmp_path)
    del files[2]
    report = verify(files, keys=[pinned()], heads=[known, later])
    assert report.verdict is LogVerdict.TRUNCATED
    assert findings_of(report)[-1] == "the head knows a line 8 in segment 2, and it is not there"


@pytest.mark.rule("AUD-2", "AUD-5")
def test_not_begun(tmp_path: Path) -> None:
    """A log whose next segment is missing may have been cut there; a head can tell."""
    book = Book().end("segment.closed", {"next": 2})
    report = verify(book.files(tmp_path), keys=[pinned()])
    assert report.title == "unbroken so far"
    assert findings_of(report) == [f"{FIRST}: segment 2 is to follow: it was not begun, or taken away"]
    assert verify(book.files(tmp_path), keys=[pinned()], heads=[book.known]).title == "unbroken so far"


@pytest.mark.rule("AUD-2", "AUD-5")
def test_missing_segments(tmp_path: Path) -> None:
    """Missing segments before existing ones were removed."""
    files = Book().rotate().rotate().rotate().close().files(tmp_path)
    for missing, which in (
        ([2], "segment 2 is"),
        ([1], "segment 1 is"),
        ([2, 3], "segments 2 to 3 are"),
        ([1, 2, 3], "segments 1 to 3 are"),
    ):
        report = verify({number: file for number, file in files.items() if number not in missing}, keys=[pinned()])
        assert report.verdict is LogVerdict.TRUNCATED
        assert findings_of(report) == [f"{which} not there, and later ones are"]
        assert report.log == LOG
    report = verify({1: files[1], 4: files[4]})
    assert findings_of(report)[0] == "segments 2 to 3 are not there, and later ones are"


@pytest.mark.rule("AUD-5")
def test_torn(tmp_path: Path) -> None:
    """A torn last line is named; the verifier cannot tell if anything else is missing."""
    book = Book().add().close()
    whole = book.segments[0].copy()
    for tail in (whole[-1][:-1], b"{", b"\0" * 5, b"\0" * 200_000):
        book.segments[0] = [*whole[:-1], tail]
        report = verify(book.files(tmp_path), keys=[pinned()])
        assert report.verdict is LogVerdict.CANNOT_TELL
        assert findings_of(report) == [
            f"{FIRST}, line 4: the last {len(tail)} bytes are no whole line",
            f"{FIRST}: the log is not closed: lines behind line 3 could have been cut off",
            f"{FIRST}: no pinned key and no head covers what follows line 0",
        ]
        assert report.bad is report.findings[0]
        assert (report.segments[0].lines, report.segments[0].last) == (3, 3)
    (tmp_path / FIRST).write_bytes(whole[0][:20])
    report = verify({1: tmp_path / FIRST})
    assert (report.verdict, findings_of(report)) == (
        LogVerdict.CANNOT_TELL,
        [f"{FIRST}, line 1: the last 20 bytes are no whole line"],
    )


@pytest.mark.rule("AUD-5")
def test_empty(tmp_path: Path) -> None:
    """An empty log allows no verdict; an empty first segment before another one was emptied."""
    assert verify({}) == Report(log="", findings=(LogFinding(Observation.EMPTY),), segments=())
    (tmp_path / FIRST).touch()
    report = verify({1: tmp_path / FIRST}, keys=[pinned()])
    assert (report.verdict, findings_of(report)) == (LogVerdict.CANNOT_TELL, [f"{FIRST}: there is no line"])
    book = Book().rotate().close()
    book.segments[0] = []
    report = verify(book.files(tmp_path), keys=[pinned()])
    assert report.verdict is LogVerdict.TAMPERED
    assert findings_of(report) == [f"{FIRST}, line 1: the line does not end in a hash and a newline"]
    book.segments[0] = [b"torn"]
    assert verify(book.files(tmp_path), keys=[pinned()]).verdict is LogVerdict.TAMPERED


@pytest.mark.rule("AUD-5")
def test_repaired(tmp_path: Path) -> None:
    """The report counts the bytes that crashes tore off and writers cut off."""
    book = Book().add("log.recovered", {"bytes": 7, "digest": ""}).add("log.resumed", {"closed": False, "size": 1})
    book.close().add("log.recovered", {"bytes": 5}).add("log.resumed", {"closed": True, "size": 5}).close()
    report = verify(book.files(tmp_path), keys=[pinned()])
    assert report.verdict is LogVerdict.UNBROKEN
    assert findings_of(report) == [
        f"{FIRST}, line 2: 12 bytes of torn lines were cut off after crashes, 2 times, here first",
        f"{FIRST}, line 3: a writer opened the log again that was not closed, once: a cut there would not show",
        f"{FIRST}, line 7: a writer opened the log again, once",
    ]
    assert report.bad is None
    book = Book().close().add("log.resumed", {"closed": True, "size": 3}).close()
    report = verify(book.files(tmp_path), keys=[pinned()])
    assert (report.verdict, findings_of(report)) == (
        LogVerdict.UNBROKEN,
        [f"{FIRST}, line 4: a writer opened the log again, once"],
    )


@pytest.mark.rule("AUD-5")
def test_recovered_behind_the_end(tmp_path: Path) -> None:
    """A torn line after the end of a segment or log leaves the end valid."""
    book = Book().end("segment.closed", {"next": 2}).add("log.recovered", {"bytes": 9}).checkpoint().begin()
    book.close().add("log.recovered", {"bytes": 9}).add("log.unsigned", {"error": ""}).checkpoint()
    report = verify(book.files(tmp_path), keys=[pinned()])
    assert report.verdict is LogVerdict.UNBROKEN
    report = verify(Book().add("log.closed").add("note").checkpoint().files(tmp_path), keys=[pinned()])
    assert findings_of(report) == [f"{FIRST}: the log is not closed: lines behind line 4 could have been cut off"]
    report = verify(Book().add("log.closed").files(tmp_path), keys=[pinned()])
    assert findings_of(report)[0] == f"{FIRST}: the log is not closed: lines behind line 2 could have been cut off"
    report = verify(Book(None).close().add("log.recovered", {"bytes": 9}).files(tmp_path))
    assert f"{FIRST}: the log is not closed: lines behind line 3 could have been cut off" in findings_of(report)


@pytest.mark.rule("AUD-2")
@pytest.mark.fault("F-AUD-18")
def test_clock(tmp_path: Path) -> None:
    """A clock that went back is mentioned, and changes no verdict, also from one segment to the next."""
    book = Book().add()
    book.minute = 0
    book.add().add()
    report = verify(book.close().files(tmp_path), keys=[pinned()])
    assert (report.verdict, findings_of(report)) == (
        LogVerdict.UNBROKEN,
        [f"{FIRST}, line 3: the clock went back, once"],
    )
    assert report.findings[0].details == {"times": "once", "bytes": 0, "why": ""}
    book = Book().add()
    book.minute -= 1
    assert verify(book.add().close().files(tmp_path), keys=[pinned()]).findings == ()
    book = Book().end("segment.closed", {"next": 2})
    for number in range(1000):
        book.minute = number % 2 - 1
        book.add() if number else book.begin()
    report = verify(book.close().files(tmp_path), keys=[pinned()])
    assert findings_of(report) == [f"{SECOND}, line 1: the clock went back, 500 times, here first"]


# -- segments that were left -------------------------------------------------------------------------------------------


def left(why: str, behind: bytes = b"", **changes: Any) -> Book:
    """Return a log whose first segment was left for this reason after three lines, with bytes after them."""
    book = Book().add().add()
    about = {"dropped": len(behind), "digest": sha256(behind).hexdigest()} if behind else {}
    said = {"why": why, "bytes": sum(map(len, book.segments[0])), **about, **changes}
    book.begin(left=said).close()
    book.segments[0].append(behind)
    return book


@pytest.mark.rule("AUD-2", "AUD-5")
@pytest.mark.parametrize(
    ("why", "verdict", "text"),
    [
        (
            "damage",
            LogVerdict.TAMPERED,
            "when the next segment was begun, lines of this one behind line 3 were damaged",
        ),
        ("cut", LogVerdict.TRUNCATED, "when the next segment was begun, the store knew of lines behind line 3"),
        ("failure", LogVerdict.UNBROKEN, "the disk failed behind line 3, and the log went on in the next segment"),
        ("key", LogVerdict.UNBROKEN, "the segment has no end, because its key was changed or lost"),
        (
            "x" * 99,
            LogVerdict.CANNOT_TELL,
            f"the next segment was begun for a reason that is not known here: {'x' * 80}",
        ),
    ],
)
def test_left(tmp_path: Path, why: str, verdict: LogVerdict, text: str) -> None:
    """The next segment explains a segment without an end, and the bytes after its last line are mentioned."""
    report = verify(left(why).files(tmp_path), keys=[pinned()])
    assert (report.verdict, findings_of(report)) == (verdict, [f"{FIRST}: {text}"])
    report = verify(left(why, b"{broken}\nrest").files(tmp_path), keys=[pinned()])
    assert report.verdict is verdict
    assert findings_of(report) == [
        f"{FIRST}: 13 bytes behind the last line that counts are kept as evidence",
        f"{FIRST}: {text}",
    ]
    assert [one.last for one in report.segments] == [3, 6]
    report = verify(left(why, b"x").files(tmp_path), keys=[pinned()])
    assert findings_of(report)[0] == f"{FIRST}: 1 bytes behind the last line that counts are kept as evidence"
    assert report.verdict is verdict


@pytest.mark.rule("AUD-2", "AUD-5")
def test_evidence(tmp_path: Path) -> None:
    """Changed evidence is tampering; so is a segment with another end than the next segment states."""
    changed = f"{FIRST}: what was kept behind the last line that counts is not what was found there"
    for book in (
        left("failure", b"abc", digest="00"),
        left("failure", digest="00"),
        left("failure", b"abc", digest=""),
    ):
        report = verify(book.files(tmp_path), keys=[pinned()])
        assert report.verdict is LogVerdict.TAMPERED
        assert changed in findings_of(report)
    book = left("failure")
    size = sum(map(len, book.segments[0]))
    book.segments[0] = book.segments[0][:2]
    report = verify(book.files(tmp_path), keys=[pinned()])
    assert report.verdict is LogVerdict.TAMPERED
    assert findings_of(report)[::2] == [
        f"{FIRST}: of the {size} bytes that the next segment counts, {sum(map(len, book.segments[0]))} are there",
        f"{SECOND}, line 1: the line does not follow line 2, the last one of the segment before that counts",
    ]
    report = verify(left("failure", bytes=size + 1).files(tmp_path), keys=[pinned()])
    assert report.verdict is LogVerdict.TRUNCATED
    torn = wrong(tmp_path, left("failure", bytes=size - 1))
    assert torn == f"{FIRST}, line 3: the line does not end in a hash and a newline"


@pytest.mark.rule("AUD-2", "AUD-5")
def test_no_end(tmp_path: Path) -> None:
    """A segment without an end that the next segment does not explain is tampered with."""
    for book in (
        Book().add().begin().close(),
        Book().add().checkpoint().begin().close(),
        Book().close().begin().close(),
    ):
        lines = len(book.segments[0])
        end = f"{FIRST}, line {lines}: the segment has no end, and the next one does not say why"
        assert wrong(tmp_path, book) == end
    book = Book().rotate().close()
    book.segments[0].append(b"{")
    assert wrong(tmp_path, book) == f"{FIRST}, line 4: the line does not end in a hash and a newline"


# -- wrong lines -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AUD-2")
@pytest.mark.parametrize(
    ("book", "problem"),
    [
        (Book().put('{"seq":3,"kind":"a","facts":{}}'), "has the number 3, and 2 is due"),
        (Book().put('{"seq":1,"kind":"a","facts":{}}'), "has the number 1, and 2 is due"),
        (Book().put('{"seq":2,"kind":"a","facts":{},"x":1}'), "has the members seq, kind, facts, x"),
        (
            Book().put('{"seq":2,"kind":"a","facts":{"x":1,"x":2}}'),
            "is not JSON: the key 'x' stands twice in one object; give each key once",
        ),
        (Book().put('{"seq":2,"kind":"a","facts":{"x":\t1}}'), "has bytes that are not allowed in a line"),
        (Book().add("segment.opened"), "opens a segment in the middle of one"),
        (Book().add("segment.closed"), "names another segment than 2 as the next one"),
        (Book().add("segment.closed", {"next": 3}), "names another segment than 2 as the next one"),
        (Book().add("log.recovered"), "does not say how many bytes were cut off"),
        (Book().add("log.recovered", {"bytes": "7"}), "does not say how many bytes were cut off"),
    ],
)
def test_line(tmp_path: Path, book: Book, problem: str) -> None:
    """A line with a right hash and wrong contents is named with its fault."""
    assert wrong(tmp_path, book) == f"{FIRST}, line 2: the line {problem}"


@pytest.mark.rule("AUD-2")
@pytest.mark.parametrize(
    ("book", "place", "problem"),
    [
        (Book().close().add(), 4, "is of the kind 'outcome', and stands behind the end"),
        (Book().close().checkpoint(), 4, "is of the kind 'log.checkpoint', and stands behind the end"),
        (Book(None).close().add("x" * 90), 3, f"is of the kind '{'x' * 79}, and stands behind the end"),
        (
            Book().end("segment.closed", {"next": 2}).add("log.resumed"),
            4,
            "is of the kind 'log.resumed', and stands behind the end",
        ),
    ],
)
def test_behind_the_end(tmp_path: Path, book: Book, place: int, problem: str) -> None:
    """No line follows the end of a segment, and only a resumption follows the end of a log."""
    report = verify(book.files(tmp_path))
    assert report.verdict is LogVerdict.TAMPERED
    assert findings_of(report)[0] == f"{FIRST}, line {place}: the line {problem}"


def opening(**changes: Any) -> Book:
    """Return a log with another first line."""
    book = Book()
    book.segments, book.seq, book.head = [], 0, b""
    return book.begin(**changes)


@pytest.mark.rule("AUD-2")
@pytest.mark.parametrize(
    ("book", "problem"),
    [
        (opening(previous="00"), "is to follow another segment, and stands in the first one"),
        (opening(segment=2), "opens segment 2, in the place of segment 1"),
        (opening(vkey="x" * 150), f"'{'x' * 119} is no verifier key; it reads name+id+key"),
        (
            opening(vkey=KEY.vkey("n" * 150)),
            f"names the key '{'n' * 119}, and this is 'amplifier-hooks/audit/1/{LOG}/1'",
        ),
        (opening(left=7), "does not say how much of the segment before counts"),
        (opening(left={"bytes": "7"}), "does not say how much of the segment before counts"),
        (opening(left={"why": "cut"}), "does not say how much of the segment before counts"),
    ],
)
def test_opening(tmp_path: Path, book: Book, problem: str) -> None:
    """A first line that opens another segment is named with its fault."""
    assert wrong(tmp_path, book) == f"{FIRST}, line 1: the line {problem}"


@pytest.mark.rule("AUD-2")
def test_first_line(tmp_path: Path) -> None:
    """A first line of another kind, or with a wrong hash, is named, and no line after it counts."""
    book = Book()
    book.segments, book.seq = [[]], 0
    book.add("x" * 90)
    assert wrong(tmp_path, book) == (
        f"{FIRST}, line 1: the line is of the kind '{'x' * 79}, and a segment begins with 'segment.opened'"
    )
    book = hundred()
    book.segments[0][0] = book.segments[0][0].replace(b"acme", b"acne")
    report = verify(book.files(tmp_path), keys=[pinned()])
    assert findings_of(report) == [
        f"{FIRST}, line 1: the line is not the one that was written here: its hash is another"
    ]
    assert (report.log, report.segments) == ("", ())


@pytest.mark.rule("AUD-2", "AUD-5")
def test_first_number(tmp_path: Path) -> None:
    """The first line of a log is line 1, and that of a later segment continues the numbers."""
    book = Book()
    book.segments, book.seq, book.head = [], 1, b""
    assert wrong(tmp_path, book.begin().close()) == f"{FIRST}, line 1: the line has the number 2, and 1 is due"
    book = Book().end("segment.closed", {"next": 2})
    book.seq += 1
    assert wrong(tmp_path, book.begin().close()) == f"{SECOND}, line 1: the line has the number 5, and 4 is due"


@pytest.mark.rule("AUD-2", "AUD-5")
def test_other_segments(tmp_path: Path) -> None:
    """A segment of another log, another segment of this log, and a segment that was begun anew do not fit."""
    one, other = Book().rotate().rotate().close(), Book(log="00" * 16).rotate().rotate().close()
    one.segments[1] = other.segments[1]
    assert wrong(tmp_path, one) == (
        f"{SECOND}, line 1: the line belongs to the log '{'00' * 16}', and the segment before to another one"
    )
    one = Book().rotate().rotate().close()
    one.segments[1] = one.segments[2]
    assert wrong(tmp_path, one) == f"{SECOND}, line 1: the line opens segment 3, in the place of segment 2"
    one = Book().rotate().rotate().close()
    one.segments[1] = Book().add().rotate().end("segment.closed", {"next": 3}).segments[1]
    assert wrong(tmp_path, one) == (
        f"{SECOND}, line 1: the line does not follow line 3, the last one of the segment before that counts"
    )


@pytest.mark.rule("AUD-2")
def test_behind_a_wrong_line(tmp_path: Path) -> None:
    """After a wrong line only the rest of its segment goes unread; the link to the next segment is then unknown."""
    book = Book().add().rotate().add().rotate().close()
    book.segments[0][1] = book.segments[0][1].replace(b"outcome", b"outcomE")
    report = verify(book.files(tmp_path), keys=[pinned()])
    assert findings_of(report) == [
        f"{FIRST}, line 2: the line is not the one that was written here: its hash is another"
    ]
    assert [(one.first, one.last, one.complete) for one in report.segments] == [
        (1, 1, False),
        (5, 8, True),
        (9, 11, True),
    ]
    assert report.segments[1].began == "2026-11-18T00:04:00+00:00"


@pytest.mark.rule("AUD-2")
@pytest.mark.fault("F-AUD-15")
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda book: book.note(size=1),
            "it is about line 1 of 'amplifier-hooks/audit/1/{log}/1', or about another hash",
        ),
        (lambda book: book.note(head=bytes(32)), "it is about line 2 of '{origin}', or about another hash"),
        (lambda book: Book(log="00" * 16).add().note(), "the note is not signed by '{origin}' with key id {id}"),
        (lambda book: Book(OTHER_KEY).add().note(), "the note is not signed by '{origin}' with key id {id}"),
        (lambda book: book.note().replace("\n2\n", "\n3\n"), "the signature by '{origin}' is wrong"),
        (lambda book: book.note() + book.note().splitlines()[-1] + "\n", "it is not written in the one way there is"),
        (lambda book: book.note().replace("\n2\n", "\n\ud800\n"), "the signature by '{origin}' is wrong"),
        (lambda book: 7, "it is not written in the one way there is"),
    ],
    ids=["line", "hash", "log", "key", "text", "more", "surrogate", "number"],
)
def test_checkpoint(tmp_path: Path, change: Callable[[Book], Any], problem: str) -> None:
    """A checkpoint of another line, hash, log or key, or with an extra member, is named with its fault."""
    book = Book().add()
    book.checkpoint(change(book))
    origin = book.opening.origin
    problem = problem.format(log=LOG, origin=origin, id=VerifierKey(origin, KEY.public).id.hex())
    assert wrong(tmp_path, book) == f"{FIRST}, line 3: the checkpoint is wrong: {problem}"


@pytest.mark.rule("AUD-2")
@pytest.mark.fault("F-AUD-15")
def test_checkpoint_written_otherwise(tmp_path: Path) -> None:
    """A checkpoint has one spelling only, and an unsigned segment has no checkpoint."""
    book = Book().add()
    note = json.dumps(book.note())
    for text in (
        '{"seq":3,"kind":"log.checkpoint","facts":{ "note":%s}}',
        '{"seq":3,"time":"","kind":"log.checkpoint","facts":{"note":%s}}',
    ):
        book = Book().add().put(text % note)
        assert wrong(tmp_path, book).endswith(
            "line 3: the checkpoint is wrong: it is not written in the one way there is"
        )
    book = Book(None).add().checkpoint(Book().add().note())
    assert (
        findings_of(verify(book.files(tmp_path)))[0]
        == f"{FIRST}, line 3: the checkpoint is wrong: the segment names no key"
    )


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AUD-5")
@pytest.mark.fault("F-AUD-19")
def test_endless_line(tmp_path: Path) -> None:
    """A line without an end, and a file that is only a hole, are refused after the first 64 KiB."""
    path = tmp_path / FIRST
    path.write_bytes(hundred().segments[0][0])
    with path.open("ab") as file:
        file.write(b"X" * 70_000)
        file.truncate(1 << 40)
    report = verify({1: path}, keys=[pinned()])
    assert report.verdict is LogVerdict.TAMPERED
    assert findings_of(report) == [f"{FIRST}, line 2: the line does not end in a hash and a newline"]
    with path.open("wb") as file:
        file.truncate(1 << 40)
    report = verify({1: path}, keys=[pinned()])
    assert report.verdict is LogVerdict.CANNOT_TELL
    assert findings_of(report) == [f"{FIRST}, line 1: the last 1099511627776 bytes are no whole line"]


@pytest.mark.rule("AUD-5")
@pytest.mark.fault("F-AUD-19")
def test_deep(tmp_path: Path) -> None:
    """JSON a hundred thousand deep fits no line, and JSON as deep as a line can hold is refused."""
    for depth, problem in ((100_000, "does not end in a hash and a newline"), (32_000, "is not JSON: ")):
        book = Book().put('{"seq":2,"kind":"a","facts":{"x":' + "[" * depth + "]" * depth + "}}")
        assert wrong(tmp_path, book).startswith(f"{FIRST}, line 2: the line {problem}")


@pytest.mark.rule("AUD-5")
@pytest.mark.fault("F-AUD-19")
def test_file_changes_while_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verifier reads only the bytes that a growing file had at first, and reports that it grew or shrank."""
    book = hundred()
    files = book.files(tmp_path)
    length = 0

    def take(walk: Walk, *line: Any) -> int:
        if walk.lines == 50:
            os.truncate(files[1], length)
        return really(walk, *line)

    really = Walk.take
    monkeypatch.setattr(Walk, "take", take)
    length = files[1].stat().st_size + 1
    report = verify(files, keys=[pinned()])
    grew = f"{FIRST}: the file grew by 1 bytes meanwhile, which were not looked at"
    assert (report.verdict, findings_of(report)) == (LogVerdict.UNBROKEN, [grew])
    book.files(tmp_path)
    length -= 2
    report = verify(files, keys=[pinned()])
    assert (report.verdict, findings_of(report)[0]) == (
        LogVerdict.CANNOT_TELL,
        f"{FIRST}: the file became shorter while it was read",
    )


@pytest.mark.rule("AUD-5")
@pytest.mark.fault("F-AUD-19")
def test_torn_line_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is being written during the reading is torn, with all bytes that are there by then."""
    book = Book().add()
    book.segments[0].append(b"{torn")
    path = book.files(tmp_path)[1]

    def take(walk: Walk, *line: Any) -> int:
        with path.open("ab") as file:
            file.write(b"abc")
        return really(walk, *line)

    really = Walk.take
    monkeypatch.setattr(Walk, "take", take)
    report = verify({1: path}, keys=[pinned()])
    assert findings_of(report)[:2] == [
        f"{FIRST}, line 3: the last 11 bytes are no whole line",
        f"{FIRST}: the file grew by 6 bytes meanwhile, which were not looked at",
    ]


@pytest.mark.rule("AUD-5")
def test_disk_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails during the reading leaves the rest open, and is reported."""

    def take(walk: Walk, *line: Any) -> int:
        if walk.lines == 2:
            raise OSError(5, "the disk fails")
        return really(walk, *line)

    really = Walk.take
    monkeypatch.setattr(Walk, "take", take)
    book = hundred()
    report = verify(book.files(tmp_path), keys=[pinned()], heads=[book.known])
    assert report.verdict is LogVerdict.CANNOT_TELL
    assert findings_of(report) == [f"{FIRST}: the file cannot be read: [Errno 5] the disk fails"]
    assert [one.matches for one in report.comparisons] == [None]


@pytest.mark.rule("AUD-5")
def test_no_file(tmp_path: Path) -> None:
    """A file that cannot be read, or is not plain, leaves its content open, and is reported."""
    os.mkfifo(tmp_path / "pipe")
    for name, problem in (
        ("nothing", f"[Errno 2] No such file or directory: '{tmp_path / 'nothing'}'"),
        ("pipe", f"{tmp_path / 'pipe'} is no plain file"),
    ):
        report = verify({1: tmp_path / name})
        assert (report.verdict, findings_of(report)) == (
            LogVerdict.CANNOT_TELL,
            [f"{name}: the file cannot be read: {problem}"],
        )


# -- the tables --------------------------------------------------------------------------------------------------------


def test_every_verdict_has_a_meaning() -> None:
    """Every verdict has a meaning, and every finding leads to one verdict or to none; only a head leads to intact."""
    assert list(MEANING) == list(LogVerdict)
    assert {found.verdict for found in Observation} == {*LogVerdict, None} - {LogVerdict.INTACT}


@pytest.mark.rule("AUD-2")
@each("found", Observation)
@each("source", ["head", "anchor"])
def test_a_head_outweighs_no_finding(found: Observation, source: Any) -> None:
    """A head at the end of a log makes no finding better; only information leaves a log intact."""
    end = HeadComparison(source=source, segment=1, seq=1, matches=True, at_end=True)
    report = Report(log=LOG, findings=(LogFinding(found),), segments=(), comparisons=(end,), proven=1)
    reopened = found is Observation.REOPENED and source == "anchor"
    assert report.verdict is (found.verdict or (LogVerdict.UNBROKEN if reopened else LogVerdict.INTACT))
