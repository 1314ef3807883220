"""Handing the token over to programs of the same user, and to the browser: by files that only the owner can read."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from html import escape
from typing import TYPE_CHECKING, Final

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


PAGE: Final = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={link}">
<title>Approvals</title>
"""


@frozen
class HandOver:
    """The files. `file` is JSON with the address and the token; `page` sends a browser there."""

    file: Path
    page: Path


@contextmanager
def handed_over(folder: Path, address: str, link: str, token: str) -> Iterator[HandOver]:
    """Both files, for as long as the gateway is there; they are removed at its end.

    What an earlier gateway at this address left behind, because it was killed, is replaced: the address is ours now.
    Raises `OSError` if they cannot be made.
    """
    name = address.rstrip("/").rpartition(":")[2]
    files = HandOver(folder / f"gateway-{name}.json", folder / f"gateway-{name}.html")
    try:
        _write(files.file, json.dumps({"address": address, "token": token}))
        _write(files.page, PAGE.format(link=escape(link)))
        yield files
    finally:
        for path in (files.file, files.page):
            with suppress(FileNotFoundError):
                path.unlink()


def _write(path: Path, text: str) -> None:
    """A new file for its owner alone. It never follows a link, and never takes over a file of somebody else's."""
    with suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
