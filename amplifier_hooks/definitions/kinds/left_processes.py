"""A mark in the environment of a command comes in; the processes that the command has left behind are ended."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Final

LEFT_VARIABLE: Final = "AMPLIFIER_HOOKS_COMMAND"
"""Variable with the mark of a command. Its descendants inherit it, in whatever session or group they are."""
ROUNDS: Final = 5
"""Most searches for processes that others start meanwhile."""


def end_left_processes(mark: str) -> list[str]:
    """Kill every process with this mark, and return a name and an id for each. Only Linux tells; others return none.

    A process that has replaced its environment is not found.
    """
    ended: dict[int, str] = {}
    entry = f"{LEFT_VARIABLE}={mark}".encode()
    for _ in range(ROUNDS):
        found = _find(entry) if sys.platform == "linux" else {}
        if not found:
            break
        for pid, name in found.items():
            with suppress(OSError):
                process = os.pidfd_open(pid)  # the id cannot become another process's now
                try:
                    if _has(pid, entry):
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                        ended[pid] = name
                finally:
                    os.close(process)
    return [f"{name} (process {pid})" for pid, name in ended.items()]


def _find(entry: bytes) -> dict[int, str]:
    """Return the living processes with this entry in their environment; a zombie has none."""
    found = {}
    for text in os.listdir("/proc"):  # noqa: PTH208  # a scandir would ask about every entry
        if text.isdigit() and _has(int(text), entry):
            with suppress(OSError), open(f"/proc/{text}/comm", encoding="utf-8", errors="replace") as name:  # noqa: PTH123
                found[int(text)] = name.read().strip()
    return found


def _has(pid: int, entry: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as environment:  # noqa: PTH123  # quicker, and there are many
            return entry in environment.read().split(b"\0")
    except OSError:
        return False
