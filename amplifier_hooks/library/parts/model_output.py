"""The text of an agent's response in any host's format, and the files that an agent has to leave behind."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


DEEPEST: Final = 8


def text_of(response: object, depth: int = 0) -> str | None:
    """Return the text of a response: a string, its `content` or `text`, or a list of such. None if there is no text."""
    if isinstance(response, str):
        return response
    if depth > DEEPEST:
        return None
    if isinstance(response, Sequence) and not isinstance(response, bytes | bytearray):
        texts = [text for part in response if (text := text_of(part, depth + 1)) is not None]
        return "\n".join(texts) if texts else None
    for name in ("content", "text", "message"):
        inner = response.get(name) if isinstance(response, Mapping) else getattr(response, name, None)
        if inner is not None:
            return text_of(inner, depth + 1)
    return None


def find_files(folder: str, pattern: str, *, since: float = 0.0) -> list[tuple[str, int]]:
    """Return the non-empty files of this name or glob within a folder, with their sizes in bytes. Folders do not count.

    With `since`, return only files that were written at or after that time (seconds since 1970).
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


def missing_files(folder: str, patterns: Iterable[str], *, since: float = 0.0) -> list[str]:
    """Return the names or globs that match no file."""
    return [pattern for pattern in patterns if not find_files(folder, pattern, since=since)]
