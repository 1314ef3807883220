"""A sink with a timeout."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amplifier_hooks.record.write.recorder import PunctualSink
from amplifier_hooks.testing import CollectingAudit


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
    await PunctualSink(sink).write("x", {"a": 1}, durable=True)
    assert [(record.kind, record.facts, record.durable) for record in sink.records] == [("x", {"a": 1}, True)]


@pytest.mark.rule("AUD-3")
async def test_too_late() -> None:
    """A record that hangs is cancelled, and its timeout is an error."""
    sink = Slow()
    with pytest.raises(TimeoutError, match=r"not written within 0\.01 s"):
        await PunctualSink(sink, 0.01).write("x", {})
    assert sink.ended
    assert sink.records == []


@pytest.mark.rule("AUD-3")
async def test_caller_is_cancelled() -> None:
    """Cancelling the caller cancels the write, and is no timeout."""
    sink = Slow()
    task = asyncio.create_task(PunctualSink(sink).write("x", {}))
    await sink.waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sink.ended


@pytest.mark.rule("AUD-3")
async def test_caller_is_closed() -> None:
    """A caller whose coroutine is closed closes the write."""
    sink = Slow()
    writing = PunctualSink(sink).write("x", {})
    writing.send(None)
    writing.close()
    assert sink.ended


@pytest.mark.rule("AUD-3")
async def test_its_own_errors() -> None:
    """The sink's error reaches the caller unchanged, at once or after waiting."""
    for sink in (CollectingAudit(OSError("full")), Failing()):
        with pytest.raises(OSError, match="full"):
            await PunctualSink(sink).write("x", {})


class Failing(Slow):
    """A record that fails after waiting."""

    async def write(self, kind: str, facts: Any, *, durable: bool = False) -> None:
        """Wait, and fail."""
        await asyncio.sleep(0)
        raise TimeoutError("full")
