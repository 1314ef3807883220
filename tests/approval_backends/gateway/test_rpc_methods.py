"""The gateway's record, and the last lines of sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from approval_backends.gateway.client_hub import WaitingRequests
from approval_backends.gateway.rpc_methods import LINES_KEPT, SESSIONS_KEPT, GatewayRecord, Tails, WatchedSink
from approval_backends.lifecycle import Decider
from approval_backends.stores.memory import MemoryStore
from approval_backends.testing import ROBIN

if TYPE_CHECKING:
    from collections.abc import Mapping


class Broken:
    """A record that cannot be written."""

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Refuse."""
        raise OSError("disk full")


@pytest.mark.rule("AUD-1")
async def test_record_that_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    """A gateway's own record holds nothing back: a failed write is logged."""
    waiting = WaitingRequests(MemoryStore())
    await waiting.refresh()
    await GatewayRecord(Broken(), lambda: waiting.now).record_revocation(ROBIN, "grant-1")
    await GatewayRecord(None, lambda: waiting.now).record_revocation(ROBIN, "grant-1")
    assert "audit_unavailable kind=grant.revoked error=OSError" in caplog.text


@pytest.mark.rule("WIR-9")
async def test_tails_are_bounded() -> None:
    """A tail keeps so many lines of so many sessions, none too long; a line that was not written is not shown."""
    tails = Tails()
    before = tails.enabled
    with pytest.raises(OSError, match="disk full"):
        await WatchedSink(Broken(), tails).write("x", {"session": "s-0"})
    assert (before, tails.enabled) == (False, True)
    assert tails.last(ROBIN, "s-0") == []
    for number in range(SESSIONS_KEPT + 1):
        tails.add("kind", {"session": f"s-{number}", "tenant": "acme", "reason": "x" * 1_000, "time": "yesterday"})
    for _ in range(LINES_KEPT + 10):
        tails.add("kind", {"session": "s-5", "tenant": "acme", "hooks": ["a", "b"]})
    tails.add("kind", {"tool": "of no session"})
    assert tails.last(ROBIN, "s-0") == []
    assert len(tails.last(ROBIN, "s-5")) == LINES_KEPT
    assert len(tails.last(ROBIN, "s-6")[0].text.encode()) <= 300
    assert tails.last(Decider(name="x", channel="y", tenant="other"), "s-5") == []
    assert tails.last(Decider(name="x", channel="y", sessions=frozenset({"s-6"})), "s-5") == []
