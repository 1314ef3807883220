"""Where this user's state is kept: approvals, trust, records, tokens. The one place that says so."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """`amplifier-hooks` in `$XDG_STATE_HOME`, or in `~/.local/state`; in `%LOCALAPPDATA%` on Windows.

    It may not be there yet. A variable that names no absolute path says nothing, as its specification has it.
    """
    named = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_STATE_HOME", "")
    base = Path(named) if named and Path(named).is_absolute() else Path.home() / ".local" / "state"
    return base / "amplifier-hooks"


def own_folder() -> Path:
    """The same, made for its owner alone if it is not there. Raises `OSError` if it cannot be made."""
    folder = state_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
