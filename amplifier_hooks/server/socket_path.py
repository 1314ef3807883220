"""Default address of the server on this machine, for the server and its clients."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def default_socket() -> Path:
    """Return `AMPLIFIER_HOOKS_SOCKET` if it is set, else a socket in a folder that belongs to this user alone.

    The path is short, because a socket's path is limited to some hundred bytes.
    """
    named = os.environ.get("AMPLIFIER_HOOKS_SOCKET")
    if named:
        return Path(named)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "amplifier-hooks.sock"
    return Path(tempfile.gettempdir()) / f"amplifier-hooks-{getattr(os, 'getuid', int)()}" / "hooks.sock"
