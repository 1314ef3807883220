"""Where the server is found on this machine, by those who start it and those who ask it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def default_socket() -> Path:
    """The socket in the folder that is this user's alone, `AMPLIFIER_HOOKS_SOCKET` if that is set.

    Short, because the name of a socket has some hundred bytes.
    """
    named = os.environ.get("AMPLIFIER_HOOKS_SOCKET")
    if named:
        return Path(named)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "amplifier-hooks.sock"
    return Path(tempfile.gettempdir()) / f"amplifier-hooks-{getattr(os, 'getuid', int)()}" / "hooks.sock"
