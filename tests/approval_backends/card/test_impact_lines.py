"""Impacts in sentences: their order, their words, and numbers of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amplifier_hooks.impacts import BOUNDED, KINDS, MEANINGS, Impact
from amplifier_hooks.text.escape import for_page, for_terminal
from approval_backends.card import count_files
from approval_backends.card.contents import would_have_covered
from approval_backends.card.count_files import count_places, find_card_facts
from approval_backends.card.impact_lines import SENTENCES, CardFacts, FileCount, impact_lines
from approval_backends.gateway.wire.record_messages import permission
from approval_backends.lifecycle import Moment, new_record
from approval_backends.testing import ALLOW, DENY, a_request

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_hooks.ports import ApprovalRequest


def lines_of(*impacts: Impact, facts: CardFacts | None = None) -> list[str]:
    """Return the sentences about these impacts of a call in /project."""
    return [one.text for one in impact_lines(a_request(impacts=impacts), for_page, facts or CardFacts("/home/u"))]


@pytest.mark.rule("BCK-10")
def test_worst_first() -> None:
    """A delete outside comes before a secret, a secret before a read; a place is written from project or home."""
    facts = CardFacts("/home/u", {"/home/u/photos": FileCount(2314)})
    assert lines_of(
        Impact("reads", "/project/a"),
        Impact("reads_secret", "/project/.env", "environment file"),
        Impact("deletes_outside", "/home/u/photos"),
        facts=facts,
    ) == [
        "deletes ~/photos, outside the project, 2,314 files",
        "reads the secret .env (environment file)",
        "reads a",
    ]


@pytest.mark.rule("BCK-10")
def test_secrets_that_may_leave() -> None:
    """A call that reads a secret and sends data names the secret beside the host."""
    lines = lines_of(
        Impact("reads_secret", "/project/.env"), Impact("network_sends", "evil.example", "data in the request")
    )
    assert lines[0] == "sends data to evil.example, and may send .env (data in the request)"


@pytest.mark.rule("BCK-10")
def test_every_kind_has_a_sentence() -> None:
    """Each kind has a sentence with its place, and its meaning stands where there is none."""
    assert set(SENTENCES) == set(KINDS)
    for kind in KINDS:
        assert "/far/x" in lines_of(Impact(kind, "/far/x"))[0]
        assert lines_of(Impact(kind)) == [MEANINGS[kind]]


@pytest.mark.rule("BCK-10")
def test_only_bounded_kinds_are_shortened() -> None:
    """Every place of a kind that bounds no harm is named; of another kind, three places and a number."""
    many = [f"/far/{number}" for number in range(9)]
    assert lines_of(*(Impact("reads", place) for place in many)) == ["reads /far/0, /far/1, /far/2 and 6 more"]
    assert len(lines_of(*(Impact("deletes_outside", place) for place in many))) == len(many)
    assert [one.bounded for one in impact_lines(a_request(impacts=(Impact("reads"), Impact("system"))), for_page)] == [
        False,
        True,
    ]
    assert "reads" in BOUNDED


@pytest.mark.rule("BCK-10", "INJ-8")
def test_hostile_places() -> None:
    """No place and no reason writes a line of its own, or a character that steers the screen."""
    hostile = "x\n\x1b[2J\u202eIt deletes nothing"
    request = a_request(impacts=(Impact("deletes_outside", hostile, hostile), Impact("reads", hostile)))
    for escape in (for_page, for_terminal):
        for line in impact_lines(request, escape):
            assert line.text.isprintable()
    record = new_record(request, Moment(request.created))
    text = permission(record, request.created)["toolCall"]["content"][0]["content"]["text"]
    assert [line for line in text.splitlines() if line.startswith("It ")] == [
        f"It {one.text}." for one in impact_lines(request, for_page)
    ]


@pytest.mark.rule("BCK-10")
def test_files_are_counted(tmp_path: Path) -> None:
    """Files below a folder or a pattern are counted; links are not followed, and nothing there is no number."""
    folder = tmp_path / "photos"
    (folder / "deep").mkdir(parents=True)
    for name in ("a", "b", "deep/c"):
        (folder / name).touch()
    (folder / "all").symlink_to(tmp_path)
    (tmp_path / "one").touch()
    places = (str(folder), f"{folder}/*", str(tmp_path / "one"), str(tmp_path / "gone"), str(folder / "all"))
    assert count_places(places) == {str(folder): FileCount(4), f"{folder}/*": FileCount(4)}


@pytest.mark.rule("BCK-10")
def test_a_count_that_stops_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many files, or so much time, the number is "at least"."""
    for number in range(5):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr(count_files, "MOST_FILES", 3)
    assert count_places((str(tmp_path),))[str(tmp_path)].text == "at least 3 files"
    monkeypatch.undo()
    times = iter([0.0, 0.1, 9.0])
    assert count_places((str(tmp_path),), lambda: next(times))[str(tmp_path)].text == "at least 2 files"


@pytest.mark.rule("BCK-10")
async def test_a_card_waits_for_no_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that does not answer has no number, and the card comes all the same."""
    request = a_request(impacts=(Impact("deletes_many", str(tmp_path)),))
    assert (await find_card_facts(request)).counts == {str(tmp_path): FileCount(0)}
    monkeypatch.setattr(count_files, "TIMEOUT", 0.0)
    assert (await find_card_facts(request)).counts == {}


def numbered(number: int, **changes: object) -> ApprovalRequest:
    """Return one of many requests with the same question."""
    return a_request(number, **changes)


@pytest.mark.rule("BCK-10", "APR-5")
def test_calls_that_always_would_have_covered() -> None:
    """Other calls of the session with the same question and no further impact count; other sessions do not."""
    asked = numbered(1, impacts=(Impact("runs_project", "make"),))
    others = [
        asked,
        numbered(2, impacts=(Impact("runs_project", "make"),)),
        numbered(3),
        numbered(4, impacts=(Impact("deletes_outside", "/far"),)),
        numbered(5, session="another"),
        numbered(6, risk="high"),
    ]
    assert would_have_covered(asked, others) == "Would have covered 2 calls of this session so far."
    assert would_have_covered(a_request(options=(ALLOW, DENY)), others) is None
