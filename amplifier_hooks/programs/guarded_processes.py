"""A process comes in; the guarded process that started it, if there is one, goes out.

A guarded process is one whose tool calls we judge: an agent program that asks through the bridge, `chat`, or `serve`
with its hooks' commands. Each has a mark, a file in a folder of this user alone, so that a command that decides in a
person's place can find out that an agent has started it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import frozen

from amplifier_hooks.storage.database import StoreUnavailable, UnsafeStore
from amplifier_hooks.storage.state_folder import inspect_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

DEEPEST: Final = 64
"""Most parents that are looked at."""
WRAPPERS: Final = frozenset("sh bash dash zsh ksh ash fish busybox env uv uvx nice timeout".split())  # noqa: SIM905
"""Programs that stand between an agent program and its hook command."""


@frozen
class Process:
    """A running process. `started` and `pid` together name it for ever."""

    pid: int
    parent: int
    started: str
    command: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its program."""
        return os.path.basename(self.command[0]) if self.command else ""  # noqa: PTH119  # a text of another process

    @property
    def runs_the_bridge(self) -> bool:
        """True if the process is the bridge, or only starts it."""
        if self.name in WRAPPERS:
            return any("bridge" in word or re.fullmatch("-[a-z]*c", word) for word in self.command[1:])
        ours = self.name.startswith(("python", "amplifier-hooks"))
        return ours and any(word == "bridge" or word.endswith("bridge.py") for word in self.command[1:])


def marks_folder() -> Path:
    """Return the folder of the marks. No variable of the environment moves it."""
    return Path("/tmp") / f"amplifier-hooks-{getattr(os, 'getuid', int)()}" / "guarded"  # noqa: S108  # inspected before use


def read_process(pid: int) -> Process | None:
    """Return a process; None if it is gone, or if this system does not tell."""
    return _from_proc(pid) if sys.platform == "linux" else None if os.name == "nt" else _from_ps(pid)


def _from_proc(pid: int) -> Process | None:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").rstrip("\0").split("\0")
        return Process(pid, int(state[1]), state[19], tuple(words))
    except (OSError, ValueError, IndexError):
        return None


def _from_ps(pid: int) -> Process | None:
    asked = ["/bin/ps", "-o", "ppid=,lstart=,command=", "-p", str(pid)]
    try:
        words = subprocess.check_output(asked, text=True, timeout=5, env={"LC_ALL": "C"}).split()  # noqa: S603  # fixed
        return Process(pid, int(words[0]), "-".join(words[1:6]), tuple(words[6:]))
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None


def parents_of(pid: int) -> Iterator[Process]:
    """Yield a process, its parent, and so on, up to the first process of the system, which is left out."""
    for _ in range(DEEPEST):
        found = read_process(pid) if pid > 1 else None
        if found is None:
            return
        yield found
        pid = found.parent


def program_behind(pid: int) -> Process | None:
    """Return the program that has started the bridge with this process id; None if it cannot be found."""
    return next((one for one in parents_of(pid) if not one.runs_the_bridge), None)


def mark(process: Process, note: str = "") -> Path:
    """Mark a process as guarded, and return the mark. A new mark removes those of processes that are gone.

    Raises `StoreUnavailable` if the mark cannot be kept, and `UnsafeStore` if other users could change it.
    """
    folder = marks_folder()
    path = folder / str(process.pid)
    if _note_of(process) == note:
        return path
    try:
        for one in (folder.parent, folder):
            one.mkdir(mode=0o700, exist_ok=True)
            inspect_folder(one)
            if one.lstat().st_uid != os.geteuid():
                raise UnsafeStore(f"{one} belongs to another user")
        for other in folder.iterdir():
            found = read_process(int(other.name)) if other.name.isdigit() else None
            if found is None or _note_of(found) is None:
                other.unlink(missing_ok=True)
        path.write_text(f"{process.started} {note}", "ascii")
    except OSError as problem:
        raise StoreUnavailable(f"the mark of a guarded process cannot be kept: {problem}") from problem
    return path


def _note_of(process: Process) -> str | None:
    """Return the note in the mark of a process; None if it is not marked."""
    with suppress(OSError, ValueError):
        path = marks_folder() / str(process.pid)
        started, _, note = path.read_text("ascii").partition(" ")
        return note if path.lstat().st_uid == os.geteuid() and started == process.started else None
    return None


def running_commands() -> Iterator[tuple[Process, bool]]:
    """Yield each command of ours that guards programs now; True if it protects itself against agents."""
    with suppress(OSError, ValueError):
        for path in sorted(marks_folder().iterdir()):
            found = read_process(int(path.name)) if path.name.isdigit() else None
            if found is not None and (note := _note_of(found)):
                yield found, note == "on"


@contextmanager
def marked(*, protects: bool = True) -> Iterator[None]:
    """Mark this process as guarded for the block; its children are not to decide in a person's place.

    `running_commands` yields it, with `protects`. Raises the errors of `mark`.
    """
    process = read_process(os.getpid())
    path = None if process is None else mark(process, "on" if protects else "off")
    try:
        yield
    finally:
        if path is not None:
            path.unlink(missing_ok=True)


def guarded_parent() -> Process | None:
    """Return the nearest guarded process that has started this one, or None."""
    if os.name == "nt":
        return None
    with suppress(StoreUnavailable, OSError):
        return next((one for one in parents_of(os.getppid()) if _note_of(one) is not None), None)
    return None
