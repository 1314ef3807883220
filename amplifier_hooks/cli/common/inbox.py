"""The approval page of a command: a gateway comes in; a served page goes out, with files that hand over its token.

Only the user can read these files. A browser is given the file, because every user can read a process's arguments.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import webbrowser
from contextlib import asynccontextmanager, suppress
from html import escape
from typing import TYPE_CHECKING, Final

import typer
from attrs import frozen

from amplifier_hooks.storage.state_folder import StateFolder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from approval_backends.gateway.gateway import Gateway


PAGE: Final = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={link}">
<title>Approvals</title>
"""


@frozen
class Inbox:
    """A served page. `file` is JSON with the address and the token; `page` sends a browser there."""

    gateway: Gateway
    file: Path
    page: Path

    def announce(self, *, as_json: bool = False) -> None:
        """Print the address of the page. The token goes only to a terminal: not into a pipe, not into a log."""
        address = self.gateway.address
        if as_json:
            typer.echo(json.dumps({"address": address, "token_file": str(self.file)}))
        shown = sys.stderr.isatty()
        typer.echo(f"Approvals are at {self.gateway.link() if shown else address}", err=True)
        if not shown:
            typer.echo(f"To sign in, open this file in a browser: {self.page}", err=True)
            typer.echo(f"or paste the token that this prints: cat {shlex.quote(str(self.file))}", err=True)


@asynccontextmanager
async def inbox(gateway: Gateway, *, in_browser: bool = False) -> AsyncIterator[Inbox]:
    """Serve the page of a gateway for the block, with both files, which are removed at its end.

    Files that a killed gateway left behind at this address are replaced: the address is ours now. Raises `OSError` if
    the address is taken or the files cannot be made, and `StoreUnavailable`.
    """
    async with gateway:
        file = StateFolder().make().gateway(gateway.port)
        there = Inbox(gateway, file, file.with_suffix(".html"))
        try:
            _write(there.file, json.dumps({"address": gateway.address, "token": gateway.approvers[0].token}))
            _write(there.page, PAGE.format(link=escape(gateway.link())))
            if in_browser:
                webbrowser.open(there.page.as_uri())
            yield there
        finally:
            for path in (there.file, there.page):
                path.unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    """Write a new file for its owner alone. It never follows a link, and never reuses a file of another user."""
    with suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
