"""The port and the token of programs that post: `install` chooses them, `serve` listens with them."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from contextlib import suppress
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Final

from amplifier_hooks.storage.state_folder import StateFolder, default_socket

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_hooks.programs.dialects import Dialect

REACHING: Final = 5.0
"""Seconds to reach a socket."""
PATIENCE: Final = 10.0
"""Seconds in which a program has to print its version."""
VERSION: Final = re.compile(r"\b(\d+)\.(\d+)\.(\d+)\b")
PORTS: Final = range(8439, 8539)
"""Ports of which `install` takes the first free one. They lie below those that systems give to clients."""


def programs_token() -> str:
    """Return the token that programs need to post. The first use makes it, in a file that only its owner can read."""
    path = StateFolder().make().programs_token
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token_urlsafe(32))
    return path.read_text("ascii").strip()


def programs_port() -> int | None:
    """Return the port to which the programs of this user post; None if none does."""
    try:
        return int(StateFolder().programs_port.read_text("ascii"))
    except (OSError, ValueError):
        return None


def choose_port() -> int | None:
    """Return the port to which a program is to post: the one so far, or a free one; None if there is none.

    A port so far that is not free is another program's, unless a server of this user runs.
    """
    so_far = programs_port()
    if so_far is not None and (is_free(so_far) or answers(default_socket())):
        return so_far
    return next((port for port in PORTS if is_free(port)), None)


def keep_port(port: int) -> None:
    """Keep the port for `serve`. Raises `OSError`."""
    path = StateFolder().make().programs_port
    path.write_text(f"{port}\n", "ascii")
    path.chmod(0o600)


def answers(path: Path) -> bool:
    """Return True if a server listens at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(REACHING)
        try:
            probe.connect(os.fspath(path))
        except TimeoutError:  # too busy to accept
            return True
        except OSError:
            return False
    return True


def is_free(port: int) -> bool:
    """Return True if a server could listen at a port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def listener_at(port: int) -> socket.socket:
    """Return a socket at the port to which programs post. Raises `OSError` that names the port and the remedy."""
    from amplifier_hooks.server.edge.listen import loopback_socket

    try:
        return loopback_socket(port)
    except OSError as problem:
        remedy = "stop the other program there, or take another port: amplifier-hooks install claude-code, again"
        raise OSError(f"port {port}, to which programs post: {problem.strerror}; {remedy}") from problem


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
