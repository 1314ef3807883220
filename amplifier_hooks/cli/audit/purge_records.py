"""Removing the records of chats that ended long ago: whole records, and no others."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from amplifier_hooks.record.record_errors import LogInUse
from amplifier_hooks.record.write.log_files import Files
from amplifier_hooks.record.write.segments import file_of, numbers_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


CHATS: Final = "chats"
"""The folder, beside the user's other state, in which `chat` keeps a record of each chat."""
OURS: Final = re.compile(r"[0-9a-f]{32}\.jsonl")
"""What `chat` calls them. Whatever else somebody has put there stays."""


def ended_records(folder: Path, before: float) -> Iterator[Path]:
    """The first files of the records to which nothing was written since this time, in seconds since 1970."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if OURS.fullmatch(path.name) and not path.is_symlink():
            latest = max(file_of(path, number).stat().st_mtime for number in numbers_of(path))
            if latest < before:
                yield path


def records_removed(paths: list[Path]) -> int:
    """Remove these records, and return how many that were; one that is being written stays. Raises `OSError`."""
    files, count = Files(), 0
    for path in paths:
        lock = path.with_name(f".{path.name}.lock")
        with suppress(LogInUse):
            held = files.lock(lock)
            try:
                for number in reversed(numbers_of(path)):  # the first one last: it is what is looked for
                    file_of(path, number).unlink()
                lock.unlink()
            finally:
                files.close(held)
            count += 1
    return count
