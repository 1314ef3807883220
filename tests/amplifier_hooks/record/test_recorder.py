"""The recorder between a session and its record."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import pytest

from amplifier_hooks.record import recorder as recorder_module
from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.record.recorder import NoRecord, Recorder
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


async def test_no_record_is_made_for_no_reader() -> None:
    """A session without a record makes none: it does not even ask for the time."""

    class NoClock:
        def now(self) -> NoReturn:
            raise AssertionError

    recorder = Recorder(NoRecord(), NoClock(), "s1", "")
    await recorder.write("decision", {})
    await recorder.note("news", {})


class Hostile(Exception):
    """An error whose message cannot be read."""

    def __str__(self) -> str:
        raise ValueError


@pytest.mark.rule("AUD-3")
@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError('gone\x1b[2J\n{"kind":"forged"}'), 'ValueError: gone\\u{1B}[2J\\u{0A}{"kind":"forged"}'),
        (ValueError("x" * 9_000), "x…"),
        (Hostile(), "Hostile: its message cannot be read"),
    ],
)
async def test_foreign_text(error: Exception, shown: str, caplog: pytest.LogCaptureFixture) -> None:
    """The text of a sink's error stays on one line, in the reason and in the logs, and is clipped."""
    recorder = Recorder(CollectingAudit(error), ManualClock(), "s1", "")
    with pytest.raises(RecordUnavailable) as caught:
        await recorder.write("outcome", {})
    await recorder.note("outcome", {})
    assert len(caplog.records) == 2
    for text in (str(caught.value), *(vars(record)["error"] for record in caplog.records)):
        assert shown in text
        assert "\x1b" not in text
        assert len(text) < 500


# -- a sink with a timeout ---------------------------------------------------------------------------------------------


def to(sink: CollectingAudit) -> Recorder:
    """Return a recorder that writes to a sink."""
    return Recorder(sink, ManualClock(), "s1", "")


class Slow(CollectingAudit):
    """A record that waits before it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = asyncio.Event()
        self.go = asyncio.Event()
        self.ended = False

    async def write(self, kind: str, facts: Any, *, durable: bool = False) -> None:
        """Wait twice, and append."""
        try:
            await asyncio.sleep(0)
            self.waiting.set()
            await self.go.wait()
            await super().write(kind, facts, durable=durable)
        finally:
            self.ended = True


@pytest.mark.rule("AUD-3")
async def test_in_time() -> None:
    """A record that is written in time has all its facts."""
    sink = Slow()
    sink.go.set()
    await to(sink).write("x", {"a": 1})
    ((kind, facts, durable),) = [(record.kind, record.facts, record.durable) for record in sink.records]
    assert (kind, facts["a"], durable) == ("x", 1, True)


@pytest.mark.rule("AUD-3")
async def test_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that hangs is cancelled, and its timeout is an error."""
    monkeypatch.setattr(recorder_module, "SINK_TIMEOUT", 0.01)
    sink = Slow()
    with pytest.raises(RecordUnavailable, match=r"not written within 0\.01 s"):
        await to(sink).write("x", {})
    assert sink.ended
    assert sink.records == []


@pytest.mark.rule("AUD-3")
async def test_caller_is_cancelled() -> None:
    """Cancelling the caller cancels the write, and is no timeout."""
    sink = Slow()
    task = asyncio.ensure_future(to(sink).write("x", {}))
    await sink.waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sink.ended


@pytest.mark.rule("AUD-3")
async def test_caller_is_closed() -> None:
    """A caller whose coroutine is closed closes the write."""
    sink = Slow()
    writing: Any = to(sink).write("x", {})
    writing.send(None)
    writing.close()
    assert sink.ended


@pytest.mark.rule("AUD-3")
async def test_its_own_errors() -> None:
    """The sink's own error is the problem, at once or after waiting, and a `TimeoutError` of its own as well."""
    for sink in (CollectingAudit(OSError("full")), Failing()):
        with pytest.raises(RecordUnavailable, match="Error: full"):
            await to(sink).write("x", {})


class Failing(Slow):
    """A record that fails after waiting."""

    async def write(self, kind: str, facts: Any, *, durable: bool = False) -> None:
        """Wait, and fail."""
        await asyncio.sleep(0)
        raise TimeoutError("full")
