"""The folder of this user's state (approvals, trust, records, tokens), and checks that other users cannot touch it.

No other module names that folder. `inspect_folder` and `inspect_file` refuse paths that other users can touch.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from amplifier_hooks.storage.database import CorruptStore, StoreUnavailable, UnsafeStore


def state_folder() -> Path:
    """Return `amplifier-hooks` in `$XDG_STATE_HOME` or `~/.local/state`, and in `%LOCALAPPDATA%` on Windows.

    The folder may not exist yet. A variable without an absolute path is ignored, as the XDG specification demands.
    """
    named = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_STATE_HOME", "")
    base = Path(named) if named and Path(named).is_absolute() else Path.home() / ".local" / "state"
    return base / "amplifier-hooks"


def make_state_folder() -> Path:
    """Return the state folder, and create it for its owner alone if it is missing. Raises `OSError` if that fails."""
    folder = state_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def inspect_folder(path: Path) -> None:
    """Raise `UnsafeStore` unless only its owner can put files into this folder.

    A sticky folder such as /tmp is unsafe as well: other users cannot replace the database there, but they can put a
    journal beside it, which SQLite would play back. Raises `StoreUnavailable` if the folder cannot be inspected.
    """
    try:
        found = path.stat()
    except OSError as problem:
        raise StoreUnavailable(f"the folder {path} cannot be used: {problem.strerror}") from problem
    if os.name == "posix" and found.st_mode & OTHERS_WRITE:
        raise UnsafeStore(f"others may write to {path}; use a folder of your own, or: chmod go-w {path}")


def inspect_file(path: Path) -> bool:
    """Return True if the file exists.

    Raises `UnsafeStore` for a link, for a file that is not plain, and for a file that other users own or may read or
    write; `CorruptStore` for an empty file; `StoreUnavailable` if it cannot be inspected.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    except OSError as problem:
        raise StoreUnavailable(f"{path} cannot be used: {problem.strerror}") from problem
    if stat.S_ISLNK(found.st_mode):
        raise UnsafeStore(f"{path} is a link; name the file itself")
    if not stat.S_ISREG(found.st_mode):
        raise UnsafeStore(f"{path} is no plain file")
    if os.name == "posix":
        if found.st_uid != os.geteuid():
            raise UnsafeStore(f"{path} belongs to another user")
        if found.st_mode & OTHERS:
            raise UnsafeStore(f"others may read or write {path}; if what it holds can be trusted: chmod 600 {path}")
    if found.st_size == 0:
        raise CorruptStore(f"{path} is empty, which no store ever is; restore it, or remove it to start anew")
    return True


def sync_folder(path: Path) -> None:
    """Make sure that a new name in this folder survives a power cut."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
