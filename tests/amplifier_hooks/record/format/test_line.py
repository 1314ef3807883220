"""One record as one line."""

from __future__ import annotations

import pytest

from amplifier_hooks.record.format.line import LONGEST_LINE, SEAL, LogEntry, read, seal, unseal
from amplifier_hooks.record.record_errors import MalformedLine

HEAD = bytes(range(32))
BODY = b'{"seq":7,"time":"2026-11-18T15:02:11+00:00","kind":"outcome","facts":{"event":"tool:pre"}'


@pytest.mark.rule("AUD-2")
def test_seal() -> None:
    """A line is its body, its hash and a newline, and comes apart into both again."""
    line = seal(BODY, HEAD)
    assert line == BODY + b',"h":"' + HEAD.hex().encode() + b'"}\n'
    assert len(line) - len(BODY) == SEAL == 73
    assert unseal(line) == (BODY, HEAD)


@pytest.mark.rule("AUD-2")
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "end in a hash"),
        (seal(BODY, HEAD)[:-1], "end in a hash"),
        (seal(BODY, HEAD) + b"\n", "end in a hash"),
        (seal(BODY, HEAD).replace(b"0a", b"0A"), "end in a hash"),
        (seal(b'{"time":1', HEAD), "begin with"),
        (seal('{"seq":7,"x":"é"'.encode(), HEAD), "not allowed"),
        (seal(b'{"seq":7\n', HEAD), "not allowed"),
        (seal(b'{"seq":7' + b" " * LONGEST_LINE, HEAD), "longer"),
    ],
)
def test_no_line(line: bytes, problem: str) -> None:
    """Bytes that cannot be a line are refused without reading their JSON."""
    with pytest.raises(MalformedLine, match=problem):
        unseal(line)


@pytest.mark.rule("AUD-2")
def test_read() -> None:
    """A body has exactly the members of a record; a checkpoint has no time."""
    assert read(BODY) == LogEntry(7, "outcome", {"event": "tool:pre"}, "2026-11-18T15:02:11+00:00")
    assert read(b'{"seq":8,"kind":"log.checkpoint","facts":{"note":""}') == LogEntry(8, "log.checkpoint", {"note": ""})


@pytest.mark.rule("AUD-2")
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"seq":7', "has the members seq"),
        (b'{"seq":7,"kind":"a","time":"t","facts":{}', "has the members"),
        (b'{"seq":true,"kind":"a","facts":{}', "wrong type"),
        (b'{"seq":1,"kind":2,"facts":{}', "wrong type"),
        (b'{"seq":1,"kind":"a","facts":[]', "wrong type"),
        (b'{"seq":1,"time":2,"kind":"a","facts":{}', "no text"),
        (b'{"seq":1,"kind":"a","facts":{"x":1,"x":2}', "twice"),
        (b'{"seq":1,"kind":"a","facts":{}}', "not JSON"),
        (b'{"seq":1,"kind":"a","facts":{"a":' + b"[" * 60_000, "not JSON"),
    ],
)
def test_unreadable(body: bytes, problem: str) -> None:
    """A body with other members, duplicate members or endless nesting is refused with its reason."""
    with pytest.raises(MalformedLine, match=problem):
        read(body)
