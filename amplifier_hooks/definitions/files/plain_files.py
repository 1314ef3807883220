"""A path comes in; the bytes of a plain file go out, at once and in a bounded number.

A pipe in the place of a file would keep its reader waiting, and a device would never end.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader


class NoPlainFile(OSError):
    """A folder, a pipe, a socket or a device lies in the place of a file."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path!r:.200} is no plain file")
        self.strerror = "it is no plain file"


@contextmanager
def opened_plainly(path: str | os.PathLike[str]) -> Iterator[tuple[BufferedReader, os.stat_result]]:
    """Open a plain file for the block, with its status. Raises `OSError`, and `NoPlainFile` for anything else."""
    with open(path, "rb", opener=_open_at_once) as file:  # with an opener
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise NoPlainFile(os.fspath(path))
        yield file, status


def read_plainly(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the first bytes of a plain file. Raises as `opened_plainly` does."""
    with opened_plainly(path) as (file, _):
        return file.read(most)


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
