"""The folder of private copies comes in; copies that no trusted list and no running process uses are removed.

Each process writes the names of the copies that it may start into a file of its own, and keeps the lock of that file
while it runs. The system ends the lock with the process, so a file without a lock counts for nothing.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from secrets import token_hex
from threading import Lock
from typing import TYPE_CHECKING, Final

from attrs import define, field

from amplifier_hooks.definitions.trust import digest_of_files
from amplifier_hooks.storage.file_lock import locked, take_lock
from amplifier_hooks.storage.state_folder import make_private

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from amplifier_hooks.definitions.trust import TrustStore


LOCK: Final = ".lock"
USES: Final = ".uses-"
"""Beginning of the name of the file in which a process names its copies."""
NAME: Final = re.compile(r"[0-9a-f]{64}")


@define(eq=False)
class CopiesInUse:
    """The copies that this process may start, by their folder. They stay until the process ends."""

    _files: dict[Path, tuple[int, set[str]]] = field(factory=dict, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def hold(self, folder: Path, names: Iterable[str]) -> None:
        """Keep the copies with these names from being removed. Raises `OSError`."""
        with self._lock:
            descriptor, known = self._files.get(folder, (-1, set()))
            new = {*names} - known
            if not new:
                return
            make_private(folder)
            with locked(folder / LOCK):  # no removal is under way
                if descriptor < 0:
                    path = folder / f"{USES}{os.getpid()}-{token_hex(8)}"
                    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                    take_lock(descriptor)
                os.write(descriptor, "".join(f"{name}\n" for name in sorted(new)).encode())
                self._files[folder] = descriptor, known | new


IN_USE: Final = CopiesInUse()


def remove_unused(store: TrustStore) -> int:
    """Remove the copies that no trusted list and no running process uses, and return their number.

    A copy that cannot be removed stays. On Windows no process can tell what another one uses, so all copies stay.
    """
    folder = store.copies
    if os.name == "nt" or not folder.is_dir():
        return 0
    removed = 0
    with suppress(OSError), locked(folder / LOCK):
        kept = {*_names_in_use(folder), *(digest_of_files(one) for one in store.groups())}
        for one in folder.iterdir():
            if NAME.fullmatch(one.name) and one.name not in kept:
                shutil.rmtree(one, ignore_errors=True)
                removed += not one.exists()
    return removed


def _names_in_use(folder: Path) -> Iterator[str]:
    """Yield the names of the copies of running processes, and remove the files of those that are gone."""
    for path in folder.glob(f"{USES}*"):
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        try:
            if take_lock(descriptor):
                path.unlink()
            else:
                yield from path.read_text("ascii").split()
        finally:
            os.close(descriptor)
