"""Files that somebody is to leave behind: whether they are there, and are something."""

from __future__ import annotations

import glob
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def found(folder: str, pattern: str, *, since: float = 0.0) -> list[tuple[str, int]]:
    """The files of this name or glob within a folder that are not empty, and their sizes in bytes; no folders.

    With `since`, only those that were written at or after that time (seconds since 1970).
    """
    there = []
    for path in sorted(glob.iglob(pattern, root_dir=os.path.expanduser(folder), recursive=True)):  # noqa: PTH111, PTH207  # pathlib's refuses absolute patterns
        try:
            status = os.stat(os.path.join(os.path.expanduser(folder), path))  # noqa: PTH111, PTH116, PTH118  # as above
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and status.st_size and status.st_mtime >= since:
            there.append((path, status.st_size))
    return there


def missing(folder: str, patterns: Iterable[str], *, since: float = 0.0) -> list[str]:
    """Those of these names or globs for which there is nothing."""
    return [pattern for pattern in patterns if not found(folder, pattern, since=since)]
