"""The record: one line of JSON for everything a session decides and does, refusals included."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_hooks.errors import HookError
from amplifier_hooks.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.ports import AuditSink, Clock

__all__ = ["AuditLog", "NoRecord", "RecordUnavailable", "Recorder"]

log = get_logger(__name__)


class RecordUnavailable(HookError):
    """The record could not be written, so what it was to precede does not happen. Never leaves the session."""

    def __init__(self, problem: Exception) -> None:
        self.problem = problem
        super().__init__(f"audit_unavailable, the record cannot be written ({type(problem).__name__}: {problem})")


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

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = True) -> None:
        """Put a decision on record before it takes effect. Without `durable`, a later durable one carries it along.

        Raises `RecordUnavailable`, whatever the sink raised: what was to follow is then denied.
        """
        try:
            await self._append(kind, facts, durable=durable)
        except Exception as error:
            log.error("audit_unavailable", kind=kind, error=f"{type(error).__name__}: {error}")  # noqa: TRY400
            raise RecordUnavailable(error) from error

    async def note(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Put on record what is so already. A failure is logged: there is nothing left to hold back."""
        try:
            await self._append(kind, facts, durable=durable)
        except Exception as error:  # noqa: BLE001  # a sink may raise anything
            log.error("audit_unavailable", kind=kind, error=f"{type(error).__name__}: {error}")  # noqa: TRY400

    async def _append(self, kind: str, facts: Mapping[str, Any], *, durable: bool) -> None:
        self._number += 1
        head = {
            "number": self._number,
            "time": self._clock.now().isoformat(),
            "session": self._session,
            "tenant": self._tenant,
        }
        await self._sink.write(kind, {**head, **facts}, durable=durable)
