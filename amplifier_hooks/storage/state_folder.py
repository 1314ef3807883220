"""The files of this user's state (approvals, trust, records, tokens), and checks that other users cannot touch them.

No other module names these files. `inspect_folder` and `inspect_file` refuse paths that other users can touch.
`locked` lets one process at a time go on; the system ends the lock of a process that dies.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from amplifier_hooks.storage.database import CorruptStore, StoreUnavailable, UnsafeStore

if TYPE_CHECKING:
    from collections.abc import Iterator


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


def folder_flaw(status: os.stat_result, path: Path) -> str:
    """Return the reason why a folder is unsafe: other users can put files into it. Empty for a safe one."""
    if os.name == "posix" and status.st_mode & OTHERS_WRITE:
        return f"others may write to {path}; use a folder of your own, or: chmod go-w {path}"
    return ""


def file_flaw(status: os.stat_result, path: Path) -> str:
    """Return the reason why a file is unsafe; empty for a plain file that the current user alone reads and writes."""
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is no plain file"
    if os.name == "posix" and status.st_uid != os.geteuid():
        return f"{path} belongs to another user"
    if os.name == "posix" and status.st_mode & OTHERS:
        return f"others may read or write {path}; if what it holds can be trusted: chmod 600 {path}"
    return ""


def inspect_folder(path: Path) -> None:
    """Raise `UnsafeStore` unless only its owner can put files into this folder.

    A sticky folder such as /tmp is unsafe as well: other users cannot replace the database there, but they can put a
    journal beside it, which SQLite would play back. Raises `StoreUnavailable` if the folder cannot be inspected.
    """
    try:
        found = path.stat()
    except OSError as problem:
        raise StoreUnavailable(f"the folder {path} cannot be used: {problem.strerror}") from problem
    if flaw := folder_flaw(found, path):
        raise UnsafeStore(flaw)


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
    if flaw := file_flaw(found, path):
        raise UnsafeStore(flaw)
    if found.st_size == 0:
        raise CorruptStore(f"{path} is empty, which no store ever is; restore it, or remove it to start anew")
    return True


def write_private(path: Path, content: bytes, mode: int) -> None:
    """Write a file that appears complete, in a folder that is made for its owner alone. Raises `OSError`."""
    make_private(path.parent)
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def sync_folder(path: Path) -> None:
    """Make sure that a new name in this folder survives a power cut."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- locks -------------------------------------------------------------------------------------------------------------


WITHIN: Final = 10.0
"""Seconds to wait for a lock: its holders write one small file, or remove some."""
EVERY: Final = 0.02


@contextmanager
def locked(path: Path, within: float = WITHIN) -> Iterator[None]:
    """Hold the lock of a file for the block. The file is made for its owner alone, and stays.

    On Windows the block runs without a lock. Raises `OSError` if the file cannot be made, and `TimeoutError` if another
    process holds the lock for `within` seconds.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        end = time.monotonic() + within
        while os.name != "nt" and not take_lock(descriptor):
            if time.monotonic() >= end:
                raise TimeoutError(f"another process holds the lock of {path}; find out which, and end it")
            time.sleep(EVERY)
        yield
    finally:
        os.close(descriptor)


def take_lock(descriptor: int) -> bool:
    """Take the lock of an open file until it is closed. Returns False if another process has it, and on Windows."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
