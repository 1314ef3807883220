"""What a gateway itself puts on record: answers that did not count, and standing answers that were ended.

Decisions that count are the asking session's to record. Nothing waits for these records, so a failure is logged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from approval_backends.stores.approval_store import LATE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from amplifier_hooks.ports import AuditSink
    from approval_backends.lifecycle import Decider, Refusal


log = logging.getLogger(__name__)


class Witness:
    """Writes to the gateway's own record, if it has one."""

    def __init__(self, sink: AuditSink | None, now: Callable[[], datetime]) -> None:
        self._sink = sink
        self._now = now

    async def refused(self, by: Decider, request_id: str, option: str, refusal: Refusal) -> None:
        """An answer that came late, or from somebody who may not give it, or for what is not there."""
        late = refusal.code in LATE
        facts: dict[str, Any] = {"request": request_id, "option": option, "code": refusal.code}
        if refusal.record is not None:
            request = refusal.record.request
            facts |= {"session": request.session, "tenant": request.tenant, "digest": request.digest}
        await self._write("approval.late_decision" if late else "approval.refused", by, facts)

    async def revoked(self, by: Decider, grant_id: str) -> None:
        """A standing answer was ended."""
        await self._write("grant.revoked", by, {"grant": grant_id})

    async def _write(self, kind: str, by: Decider, facts: Mapping[str, Any]) -> None:
        if self._sink is None:
            return
        head = {"time": self._now().isoformat(), "by": by.name, "channel": by.channel}
        try:
            await self._sink.write(kind, {**head, **facts})
        except Exception as problem:  # noqa: BLE001  # a sink may raise anything
            log.error("audit_unavailable kind=%s error=%s", kind, type(problem).__name__)  # noqa: TRY400
