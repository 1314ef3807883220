"""The record: one line of JSON for everything a session decides and does, refusals included."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amplifier_hooks.ports import AuditSink, Clock

__all__ = ["AuditLog", "NoRecord", "Recorder"]


class NoRecord:
    """The record of a session that keeps none."""

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Nothing."""

    async def close(self) -> None:
        """Nothing."""


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


class Recorder:
    """Writes to a sink on behalf of one session: who, when, and in which order."""

    def __init__(self, sink: AuditSink, clock: Clock, session: str, tenant: str) -> None:
        self._sink = sink
        self._clock = clock
        self._session = session
        self._tenant = tenant
        self._number = 0

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append one record.

        Raises `OSError` when it cannot be written.
        """
        self._number += 1
        head = {
            "number": self._number,
            "time": self._clock.now().isoformat(),
            "session": self._session,
            "tenant": self._tenant,
        }
        await self._sink.write(kind, {**head, **facts}, durable=durable)
