"""The messages that wait to be sent to a client."""

from __future__ import annotations

import asyncio

import pytest

from approval_backends.gateway.client_session import MessageOutbox


@pytest.mark.rule("BCK-2")
async def test_outbox() -> None:
    """Messages leave in order; too many or too large together are refused, and messages made later come last."""
    later = ["made"]

    async def make() -> str | None:
        await asyncio.sleep(0)
        return later.pop() if later else None

    box = MessageOutbox(3, 10, make)
    assert [box.put(text) for text in ("aaaa", "bbbb", "cccc", "dd", "e")] == [True, True, False, True, False]
    assert [await box.take() for _ in range(4)] == ["aaaa", "bbbb", "dd", "made"]
    assert box.put("x" * 1_000)
    assert not box.put("y")
    assert box.take_all() == ["x" * 1_000]
    taking = asyncio.ensure_future(box.take())
    await asyncio.sleep(0)
    later.append("made now")
    box.wake()
    assert await taking == "made now"
    taking = asyncio.ensure_future(box.take())
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.wait({taking})
    assert box.put("kept")
    assert await box.take() == "kept"
