"""The record: one line of JSON for everything a session decides and does, refusals included."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


__all__ = ["AuditLog"]


class AuditLog:
    """Lines of JSON, appended to a file that only its owner can read.

    ASCII only, so that no character of the data can end a line. Written with `os.write`: a buffered file reports a
    full disk when it is closed, which is after the decision.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor: int | None = descriptor
        self.path = path

    @classmethod
    def open(cls, path: str | Path) -> AuditLog:
        """Append to the file, made if it is not there.

        Raises `OSError` when that is not possible.
        """
        flags = os.O_APPEND | os.O_CREAT | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
        return cls(os.open(path, flags, 0o600), Path(path))

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append one line; with `durable`, wait until the disk has it.

        Raises `OSError`. Cancelling it while the disk is awaited leaves the line written.
        """
        if self._descriptor is None:
            raise OSError("the record is closed")
        line = json.dumps({"kind": kind, **facts}, separators=(",", ":"), default=str).encode("ascii") + b"\n"
        while line:
            line = line[os.write(self._descriptor, line) :]
        if durable:
            await asyncio.to_thread(os.fsync, self._descriptor)

    async def close(self) -> None:
        """Close the file. Twice is harmless."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)
