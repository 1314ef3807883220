"""How far the store was when the log was written beside it: the last mark that stands in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amplifier_hooks.ports import StoreMark
from amplifier_hooks.record.format.line import read, unseal
from amplifier_hooks.record.read.read_lines import opened
from amplifier_hooks.record.record_errors import MalformedLine
from amplifier_hooks.record.write.segments import file_of, numbers_of

if TYPE_CHECKING:
    from pathlib import Path


MARKED: Final = "store.marked"
"""The kind of the line that says so."""

_KIND: Final = f'"kind":"{MARKED}"'.encode("ascii")
_NEAR: Final = 100
"""Bytes of a line within which its kind stands."""


def last_mark(path: Path) -> StoreMark | None:
    """The last mark in a log, if there is one. Reads from the last segment back, as far as it has to.

    Raises `OSError` when a segment cannot be read.
    """
    for number in reversed(numbers_of(path)):
        found = None
        with opened(file_of(path, number)) as pages:
            for line in pages.lines():
                if _KIND in line[:_NEAR]:
                    found = _mark_in(line) or found
        if found is not None:
            return found
    return None


def _mark_in(line: bytes) -> StoreMark | None:
    try:
        facts = read(unseal(line)[0]).facts
    except MalformedLine:
        return None
    store, number = facts.get("store"), facts.get("number")
    return StoreMark(store=store, number=number) if isinstance(store, str) and isinstance(number, int) else None
