"""E-mail addresses, card numbers and phone numbers are found, and what only looks like them is not."""

from __future__ import annotations

from time import thread_time

import pytest

from amplifier_hooks.library.redact_secrets import KINDS, PersonalKind, personal_spans

pytestmark = pytest.mark.rule("LIB-5")

FOUND: list[tuple[PersonalKind, str, list[str]]] = [
    ("email", "to robin@example.org.", ["robin@example.org"]),
    ("email", "<o'neil+tag@mail.example.co.uk>", ["o'neil+tag@mail.example.co.uk"]),
    ("email", "a@b.org,c@d.org", ["a@b.org", "c@d.org"]),
    ("email", "jürgen@müller.de", ["jürgen@müller.de"]),
    ("email", "git@example.org:team/code", []),
    ("email", "pkg@1.2.3 and user@host and @name and a@.org", []),
    ("card", "4111111111111111", ["4111111111111111"]),
    ("card", "12 4111 1111 1111 1111", ["4111 1111 1111 1111"]),
    ("card", "1234 4111-1111-1111-1111;", ["4111-1111-1111-1111"]),
    ("card", "5555 5555 5555 4444 3782 822463 10005", ["5555 5555 5555 4444", "3782 822463 10005"]),
    ("card", "4111111111111112", []),
    ("card", "4111 1111-1111 1111", []),
    ("card", "34111111111111111111", []),
    ("card", "1700000000000 and 1700000000000000", []),
    ("phone", "+44 20 7946 0958, +1 (555) 010-9999.", ["+44 20 7946 0958", "+1 (555) 010-9999"]),
    ("phone", "call (555) 010-9999 or 555-010-9999", ["(555) 010-9999", "555-010-9999"]),
    ("phone", "1+2345678 and 2026-11-19 and 192.168.0.1 and v1.555-010-9999", []),
    ("phone", "+12345 and +1234567890123456", []),
]


@pytest.mark.parametrize(("kind", "text", "parts"), FOUND)
def test_found(kind: PersonalKind, text: str, parts: list[str]) -> None:
    """Exactly the personal data of the kind is found, each under its name."""
    spans = personal_spans(text, kind)
    assert [text[begin:end] for begin, end, _ in spans] == parts
    assert {name for _, _, name in spans} <= {KINDS[kind][0]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("piece", ["a@", "a.", "4", "4 ", "4111 1111 1111 111", "+1", "+1 ", "(555) ", "a@b.", "x"])
def test_time(kind: PersonalKind, piece: str) -> None:
    """Eight times the text takes about eight times as long, whatever the text is."""

    def spent(size: int) -> float:
        text = piece * (size // len(piece))
        began = thread_time()
        personal_spans(text, kind)
        return thread_time() - began

    small = min(spent(50_000) for _ in range(3))
    assert min(spent(400_000) for _ in range(2)) < max(small, 0.001) * 30
