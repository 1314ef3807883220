"""A disk that fails at the n-th call, for every n, and loses unsynced bytes and names in a power cut."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.record.log_files import Files

if TYPE_CHECKING:
    import random
    import threading
    from collections.abc import Callable
    from pathlib import Path

FAULTS: Final = {
    "full": errno.ENOSPC,
    "broken": errno.EIO,
    "interrupted": errno.EINTR,
}


class FaultyFiles(Files):
    """A file system that fails from the `first` call on, `times` times; calls are counted from 1.

    A write that fails writes half of its bytes, as on a full disk. `only` names the calls that
    count. `hanging` is an event that syncs wait for.
    """

    def __init__(
        self,
        first: int = 0,
        error: int = errno.EIO,
        *,
        times: int = 1,
        only: tuple[str, ...] = (),
        hanging: threading.Event | None = None,
    ) -> None:
        self.calls: list[str] = []
        self.first = first
        self.error = error
        self.times = times
        self.only = only
        self.hanging = hanging
        self.armed = True
        self.short = False
        self._paths: dict[int, Path] = {}
        self.synced: dict[Path, int] = {}
        """Content of each file that would survive a power cut."""
        self.unsynced_names: set[Path] = set()
        """Names of files that would not survive a power cut."""

    @property
    def failed(self) -> bool:
        """True if a call has failed."""
        return self.armed and 0 < self.first <= len(self.calls)

    def _step(self, name: str, half: Callable[[], Any] | None = None) -> None:
        if not self.armed or (self.only and name not in self.only):
            return
        self.calls.append(name)
        if self.first and self.first <= len(self.calls) < self.first + self.times:
            if half is not None:
                half()
            raise OSError(self.error, os.strerror(self.error), name)

    def open(self, path: Path, *, write: bool = True) -> int:
        """Open a file."""
        self._step("open")
        descriptor = super().open(path, write=write)
        self._paths[descriptor] = path
        self.synced.setdefault(path, os.fstat(descriptor).st_size)
        return descriptor

    def make(self, path: Path) -> int:
        """Make a new file."""
        self._step("make")
        descriptor = super().make(path)
        self._paths[descriptor] = path
        self.synced[path] = 0
        return descriptor

    def link(self, path: Path, name: Path) -> None:
        """Give a file a second name."""
        self._step("link")
        super().link(path, name)
        self.synced[name] = self.synced.pop(path)
        self.unsynced_names.add(name)
        self._paths = {descriptor: name if known == path else known for descriptor, known in self._paths.items()}

    def remove(self, path: Path) -> None:
        """Remove a name, and then fail: no test looks at a draft that stays."""
        super().remove(path)
        self._step("remove")

    def write_some(self, descriptor: int, data: memoryview) -> int:
        """Write some bytes, or half of them and fail."""
        self._step("write", lambda: os.write(descriptor, data[: len(data) // 2]))
        return super().write_some(descriptor, data[: max(1, len(data) // 3)] if self.short else data)

    def sync(self, descriptor: int) -> None:
        """Sync, and remember the bytes that would survive."""
        if self.hanging is not None:
            self.hanging.wait(30)
        self._step("sync")
        super().sync(descriptor)
        self.synced[self._paths[descriptor]] = os.fstat(descriptor).st_size

    def cut(self, descriptor: int, size: int) -> None:
        """Shorten a file."""
        self._step("cut")
        super().cut(descriptor, size)

    def close(self, descriptor: int) -> None:
        """Close a file, and then fail: a close error comes after the close."""
        super().close(descriptor)
        self._paths.pop(descriptor, None)
        self._step("close")

    def sync_folder(self, path: Path) -> None:
        """Sync names."""
        self._step("sync_folder")
        super().sync_folder(path)
        self.unsynced_names = {name for name in self.unsynced_names if name.parent != path}

    def restart(self, first: int) -> None:
        """Go on for another process, with another call that fails. The power stays on."""
        self.calls, self.first = [], first

    def power_cut(self, chance: random.Random) -> None:
        """Lose unsynced names, and unsynced bytes: a part of them, all of them, or a page in their middle."""
        for name in sorted(self.unsynced_names):
            if chance.randrange(2):
                name.unlink()
                del self.synced[name]
        self.unsynced_names.clear()
        for path, kept in self.synced.items():
            data = path.read_bytes() if path.exists() else b""
            lost = data[kept:]
            if lost:
                end = chance.randint(0, len(lost))
                hole = chance.randint(0, end)
                path.write_bytes(data[:kept] + lost[:hole] + b"\0" * (end - hole))
