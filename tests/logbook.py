"""Logs for tests, made line by line from the format's own parts, so that any of them can be wrong."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.record.line import Checkpoint, Opening, VerifierKey, chain_hash, seal, sign_checkpoint
from amplifier_hooks.record.log_files import AuditKey

if TYPE_CHECKING:
    from collections.abc import Callable

KEY: Final = AuditKey(b"\x07" * 32)
OTHER_KEY: Final = AuditKey(b"\x08" * 32)
EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "verify_audit.py"
LOG: Final = "5b" * 16


def pinned(key: AuditKey = KEY) -> VerifierKey:
    """Return the public half of a key, as a verifier keeps it."""
    return VerifierKey.parse(key.vkey())


class Book:
    """A log in memory: a list of lines for each segment."""

    def __init__(self, key: AuditKey | None = KEY, log: str = LOG) -> None:
        self.log = log
        self.segments: list[list[bytes]] = []
        self.seq = 0
        self.head = b""
        self.minute = 0
        self.begin(key)

    def begin(self, key: AuditKey | None = KEY, *, left: Any = None, vkey: str | None = None, **changes: Any) -> Book:
        """Add the first line of the next segment; a `vkey` replaces the true statement about the key."""
        self.key = key
        opening: dict[str, Any] = {
            "log": self.log,
            "segment": len(self.segments) + 1,
            "previous": self.head.hex(),
            "tenant": "acme",
            "session": "s1",
            "sdk": "0.1.0",
            **changes,
        }
        origin = Opening(**opening).origin
        if vkey is None:
            vkey = "" if key is None else str(VerifierKey(origin, key.public))
        self.opening = Opening(**opening, key=vkey)
        self.segments.append([])
        self.head = self.opening.head()
        facts = self.opening.facts()
        return self.add("segment.opened", {**facts, "left": left} if left else facts)

    def add(self, kind: str = "outcome", facts: Any = None, **more: Any) -> Book:
        """Add one record."""
        self.minute += 1
        time = f"2026-11-18T{self.minute // 60 % 24:02}:{self.minute % 60:02}:00+00:00"
        head = {"seq": self.seq + 1, "time": time, "kind": kind}
        return self.put(json.dumps({**head, **more, "facts": {} if facts is None else facts}, separators=(",", ":")))

    def put(self, text: str) -> Book:
        """Add one line, of a whole JSON object."""
        body = text.removesuffix("}").encode("ascii")
        self.head = chain_hash(self.head, body)
        self.segments[-1].append(seal(body, self.head))
        self.seq += 1
        return self

    def note(self, **changes: Any) -> str:
        """Return a signed checkpoint of the last line."""
        assert self.key is not None
        stated: dict[str, Any] = {"origin": self.opening.origin, "size": self.seq, "head": self.head, **changes}
        return sign_checkpoint(Checkpoint(**stated), self.key)

    def checkpoint(self, note: str | None = None) -> Book:
        """Add a line with a checkpoint."""
        facts = {"note": self.note() if note is None else note}
        return self.put(
            json.dumps({"seq": self.seq + 1, "kind": "log.checkpoint", "facts": facts}, separators=(",", ":"))
        )

    def close(self) -> Book:
        """End the log."""
        return self.end("log.closed", {})

    def rotate(self, key: AuditKey | None = KEY) -> Book:
        """End the segment, and begin the next one."""
        return self.end("segment.closed", {"next": len(self.segments) + 1}).begin(key)

    def end(self, kind: str, facts: dict[str, Any]) -> Book:
        """Add a closing line, and the checkpoint if there is a key."""
        self.add(kind, facts)
        return self if self.key is None else self.checkpoint()

    @property
    def known(self) -> Checkpoint:
        """Present head of the log, as a store would keep it."""
        return Checkpoint(self.opening.origin, self.seq, self.head)

    def files(self, folder: Path) -> dict[int, Path]:
        """Write the log as files."""
        files = {}
        for number, lines in enumerate(self.segments, 1):
            files[number] = folder / ("record.jsonl" if number == 1 else f"record.{number:06}.jsonl")
            files[number].write_bytes(b"".join(lines))
        return files


def hundred(key: AuditKey | None = KEY) -> Book:
    """Return a closed log of 100 lines, with a checkpoint in the middle."""
    book = Book(key)
    while book.seq < (98 if key else 99):
        book.add(
            "outcome", {"event": "tool:pre", "tool": f"Tool{book.seq}", "said": 'a\nb\u2028"}{', "n": [1, 2.5, None]}
        )
        if key and book.seq % 32 == 0:
            book.checkpoint()
    book.close()
    assert book.seq == 100
    return book


def stranger() -> Callable[[Path, bytes], str]:
    """Load the verifier of the examples."""
    spec = importlib.util.spec_from_file_location("verify_audit", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    verifier: Callable[[Path, bytes], str] = module.verify
    return verifier
