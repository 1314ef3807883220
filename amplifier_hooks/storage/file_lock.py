"""A path comes in; one process at a time holds its lock. The system ends the lock of a process that dies."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


WITHIN: Final = 10.0
"""Seconds to wait for a lock: its holders write one small file, or remove some."""
EVERY: Final = 0.02


@contextmanager
def locked(path: Path, within: float = WITHIN) -> Iterator[None]:
    """Hold the lock of a file for the block. The file is made for its owner alone, and stays.

    On Windows the block runs without a lock. Raises `OSError` if the file cannot be made, and `TimeoutError` if another
    process holds the lock for `within` seconds.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        end = time.monotonic() + within
        while os.name != "nt" and not take_lock(descriptor):
            if time.monotonic() >= end:
                raise TimeoutError(f"another process holds the lock of {path}; find out which, and end it")
            time.sleep(EVERY)
        yield
    finally:
        os.close(descriptor)


def take_lock(descriptor: int) -> bool:
    """Take the lock of an open file until it is closed. Returns False if another process has it, and on Windows."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
