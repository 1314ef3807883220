"""The recorder between a session and its record."""

from __future__ import annotations

import pytest

from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.record.write.recorder import NoRecord, Recorder
from amplifier_hooks.testing import CollectingAudit, ManualClock


@pytest.mark.rule("AUD-1")
async def test_recorder() -> None:
    """Every record has session, tenant, time and number."""
    audit = CollectingAudit()
    recorder = Recorder(audit, ManualClock(), "s1", "acme")
    await recorder.write("one", {"x": 1})
    await recorder.note("two", {})
    head = {"time": "2026-01-01T12:00:00+00:00", "session": "s1", "tenant": "acme"}
    assert [dict(record.facts) for record in audit.records] == [{"number": 1, **head, "x": 1}, {"number": 2, **head}]
    assert [record.durable for record in audit.records] == [True, False]


@pytest.mark.rule("AUD-3")
async def test_recorder_fails() -> None:
    """A failed record raises if it precedes an act, and only logs if it follows one."""
    recorder = Recorder(CollectingAudit(RuntimeError("gone")), ManualClock(), "s1", "")
    with pytest.raises(RecordUnavailable, match=r"audit_unavailable.*RuntimeError: gone"):
        await recorder.write("decision", {})
    await recorder.note("news", {})


async def test_no_record() -> None:
    """A session without a record writes to a sink that keeps nothing."""
    record = NoRecord()
    await record.write("note", {}, durable=True)
