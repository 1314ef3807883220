"""Where this user's state is kept."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["state_folder"]


def state_folder() -> Path:
    """Where this user's state is kept; made for its owner alone."""
    base = os.environ.get("XDG_STATE_HOME")
    folder = (Path(base) if base else Path.home() / ".local" / "state") / "amplifier-hooks"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
