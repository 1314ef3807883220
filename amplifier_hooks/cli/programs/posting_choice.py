"""A dialect comes in; the port to which its program is to post goes out, or the reason why it runs the bridge."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

from amplifier_hooks.cli.common.posting import choose_port

if TYPE_CHECKING:
    from amplifier_hooks.programs.dialect import Dialect

PATIENCE: Final = 10.0
"""Seconds in which a program has to print its version."""
VERSION: Final = re.compile(r"\b(\d+)\.(\d+)\.(\d+)\b")


def posting_port(dialect: Dialect) -> tuple[int | None, str]:
    """Return the port to which a program is to post, or None with a sentence that says why it runs the bridge.

    The sentence is empty for a program that cannot post.
    """
    if dialect.posting is None or os.name == "nt":
        return None, ""
    since = ".".join(map(str, dialect.posting.since))
    found = version_of(dialect.posting.command)
    if found is None or found < dialect.posting.since:
        known = "was not found" if found is None else f"is {'.'.join(map(str, found))} here"
        return None, (
            f"{dialect.title} {known}, so it runs a command for each event. "
            f"From {since} on it can post, which is faster: update it, and install again."
        )
    port = choose_port()
    return port, "" if port is not None else "No port is free for posts, so the bridge runs for each event."


def version_of(command: str) -> tuple[int, ...] | None:
    """Return the version that a program on the PATH prints, or None."""
    path = shutil.which(command)
    if path is None:
        return None
    try:
        ran = subprocess.run(  # noqa: S603  # the user's own program, which is about to be guarded
            [path, "--version"], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    found = VERSION.search(ran.stdout)
    return None if found is None else tuple(map(int, found.groups()))
