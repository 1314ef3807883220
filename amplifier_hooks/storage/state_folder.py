"""The files of this user's state (approvals, trust, records, tokens), and checks that other users cannot touch them.

No other module names these files. `inspect_folder` and `inspect_file` refuse paths that other users can touch.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Final, Self

from amplifier_hooks.storage.database import CorruptStore, StoreUnavailable, UnsafeStore


class StateFolder:
    """The folder `amplifier-hooks` in `$XDG_STATE_HOME` or `~/.local/state`, and in `%LOCALAPPDATA%` on Windows.

    The folder may not exist yet. A variable without an absolute path is ignored, as the XDG specification demands.
    """

    def __init__(self) -> None:
        named = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_STATE_HOME", "")
        base = Path(named) if named and Path(named).is_absolute() else Path.home() / ".local" / "state"
        self.path = path = base / "amplifier-hooks"
        self.approvals = path / "approvals.db"
        """Store of the approvals."""
        self.server = path / "hooks.db"
        """Database of the HTTP API: definitions, tokens and runs."""
        self.record = path / "record.jsonl"
        """Record of `serve`."""
        self.chats = path / "chats"
        """Folder with a record of each chat."""
        self.token_record = path / "tokens.jsonl"
        """Record that names the operator who made or ended a token."""
        self.run_record = path / "runs.jsonl"
        """Record of `runs serve`, which names the callers who changed a blueprint's hook."""
        self.programs_token = path / "programs.token"
        """Token of programs that post."""
        self.programs_port = path / "programs.port"
        """Port to which the programs of this user post, if one does."""
        self.trust = Path(os.environ.get("AMPLIFIER_HOOKS_TRUST") or path / "trust.json")
        """Trusted digests; a variable may name another file."""
        self.ledger = path / "ledger.db"
        self.costs = path / "costs.db"
        self.checkpoints = path / "checkpoints.db"

    def gateway(self, port: int | str) -> Path:
        """Return the file that hands over the token of the gateway at a port."""
        return self.path / f"gateway-{port}.json"

    def make(self) -> Self:
        """Create the folder for its owner alone if it is missing. Raises `OSError` if that fails."""
        make_private(self.path)
        return self


def make_private(folder: Path) -> None:
    """Create a folder, and each folder above it that is missing, for its owner alone. Raises `OSError`."""
    for one in (*reversed(folder.parents), folder):  # `parents=True` would leave the upper ones to the umask
        if not one.exists():
            one.mkdir(mode=0o700, exist_ok=True)


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
