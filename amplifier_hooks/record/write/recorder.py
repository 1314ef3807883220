"""The front of a session to its record: who, when, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_hooks.clock import stamp
from amplifier_hooks.logs import get_logger
from amplifier_hooks.record.record_errors import RecordUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from amplifier_hooks.ports import ArgumentStore, AuditSink, Clock


log = get_logger(__name__)


class NoRecord:
    """The record of a session that keeps none."""

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Nothing."""


class Recorder:
    """Writes to a sink on behalf of one session: who, when, and in which order."""

    def __init__(
        self,
        sink: AuditSink,
        clock: Clock,
        session: str,
        tenant: str,
        *,
        required: bool = True,
        arguments: ArgumentStore | None = None,
    ) -> None:
        self._sink = sink
        self._clock = clock
        self._session = session
        self._tenant = tenant
        self._required = required
        self._arguments = arguments
        self._number = 0

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = True) -> None:
        """Put a decision on record before it takes effect. Without `durable`, a later durable one carries it along.

        Raises `RecordUnavailable`, whatever the sink raised: what was to follow is then denied. Where the record is not
        required, that is only logged.
        """
        try:
            await self._append(kind, facts, durable=durable)
        except Exception as error:
            log.error("audit_unavailable", kind=kind, error=f"{type(error).__name__}: {error}")  # noqa: TRY400
            if self._required:
                raise RecordUnavailable(error) from error

    async def note(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Put on record what is so already. A failure is logged: there is nothing left to hold back."""
        try:
            await self._append(kind, facts, durable=durable)
        except Exception as error:  # noqa: BLE001  # a sink may raise anything
            log.error("audit_unavailable", kind=kind, error=f"{type(error).__name__}: {error}")  # noqa: TRY400

    async def keep(self, digest: str, arguments: bytes) -> None:
        """Keep the arguments beside the record, where somebody asked for that. A failure is logged."""
        if self._arguments is not None:
            try:
                await self._arguments.keep(digest, self._tenant, arguments)
            except Exception as error:  # noqa: BLE001  # a store may raise anything, and the digest is on record
                log.error("arguments_not_kept", digest=digest, error=f"{type(error).__name__}: {error}")  # noqa: TRY400

    def _append(self, kind: str, facts: Mapping[str, Any], *, durable: bool) -> Awaitable[None]:
        self._number += 1
        record = {
            "number": self._number,
            "time": stamp(self._clock),
            "session": self._session,
            "tenant": self._tenant,
            **facts,
        }
        return self._sink.write(kind, record, durable=durable)
