"""The text and the tokens of an answer in any host's format, and the files that an agent has to leave behind."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

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


MOST: Final = 10**12
"""Most tokens that one answer may state; a larger number is ignored."""


def tokens_of(data: Mapping[str, Any]) -> dict[str, int] | None:
    """Return the tokens of one answer by kind of price, from any provider's format, or None if it states none."""
    usage = data.get("usage") or _member(data.get("response"), "usage")
    read = _count(usage, "input_tokens", "prompt_tokens")
    wrote = _count(usage, "output_tokens", "completion_tokens")
    if read is None and wrote is None:
        return None
    details = _member(usage, "input_tokens_details") or _member(usage, "prompt_tokens_details")
    # Some providers include cached tokens in the number of tokens read, others count them separately.
    within = min(_count(details, "cached_tokens") or 0, read or 0)
    return {
        "input": (read or 0) - within,
        "output": wrote or 0,
        "cache_read": within + (_count(usage, "cache_read_input_tokens") or 0),
        "cache_write": _count(usage, "cache_creation_input_tokens") or 0,
    }


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _count(usage: object, *names: str) -> int | None:
    for name in names:
        count = _member(usage, name)
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MOST:
            return count
    return None
