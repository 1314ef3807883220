"""Counts the files that a call would delete, on the machine of the card: for a short time, and up to a number.

Impact itself counts nothing, because a decision must not depend on it; a person reads the number. No link is followed.
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import cache
from glob import iglob
from typing import TYPE_CHECKING, Final

from attrs import evolve

from amplifier_hooks.foreign_code import DaemonPool
from approval_backends.card.impact_lines import COUNTED, CardFacts, FileCount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from amplifier_hooks.ports import ApprovalRequest


MOST_FILES: Final = 10_000
"""Files that are counted for one place."""
MOST_PLACES: Final = 16
"""Places of a call that are counted."""
SECONDS: Final = 0.25
"""Seconds that counting takes, for all places of a call."""
TIMEOUT: Final = 0.5
"""Seconds after which a card does not wait any longer for a file system that does not answer."""


async def find_card_facts(request: ApprovalRequest, earlier: Iterable[ApprovalRequest] = ()) -> CardFacts:
    """Return the facts beside a request, with these requests of its session.

    A file system that does not answer has no counts.
    """
    home = os.path.expanduser("~")  # noqa: ASYNC240, PTH111  # no home is no error
    facts = CardFacts(home=home, earlier=tuple(earlier))
    places = dict.fromkeys(one.place for one in request.impacts if one.kind in COUNTED and one.place.startswith("/"))
    if not places:
        return facts
    try:
        async with asyncio.timeout(TIMEOUT):
            return evolve(facts, counts=await _thread().run(count_places, tuple(places)[:MOST_PLACES]))
    except TimeoutError:
        return facts


@cache
def _thread() -> DaemonPool:
    return DaemonPool(1, "count-files")


def count_places(places: tuple[str, ...], clock: Callable[[], float] = time.monotonic) -> dict[str, FileCount]:
    """Return the number of files below each place that is a folder or a pattern; a place that is not there has none.

    `clock` returns seconds; the count stops when `SECONDS` have passed.
    """
    until = clock() + SECONDS
    counts = {place: _count(place, lambda: clock() >= until) for place in places}
    return {place: count for place, count in counts.items() if count is not None}


def _count(place: str, over: Callable[[], bool]) -> FileCount | None:
    files, whole = 0, True
    try:
        found = [place] if os.path.lexists(place) else list(iglob(place))  # noqa: PTH207  # the pattern is absolute
        if found == [place] and not (os.path.isdir(place) and not os.path.islink(place)):  # noqa: PTH112, PTH114
            return None
        for known in _files_below(found):
            files += known
            whole = whole and known == 1
            if files >= MOST_FILES or over():
                return FileCount(files, whole=False)
    except OSError:
        return None
    return FileCount(files, whole=whole) if found else None


def _files_below(paths: list[str]) -> Iterator[int]:
    """Yield 1 for each file, and 0 for each folder that cannot be read."""
    folders: list[str] = []
    for path in paths:
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            folders.append(path)
        else:
            yield 1
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        yield 1
        except OSError:
            yield 0
