"""Bounded waiting for foreign code."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from amplifier_hooks.foreign_code import LEFT_BEHIND, TooLate, finish_despite_cancel, within


async def at_once() -> str:
    """Return at once."""
    return "done"


async def fail() -> None:
    """Raise an error."""
    raise ValueError("no")


async def cancel_itself() -> None:
    """Claim to have been cancelled."""
    raise asyncio.CancelledError


async def test_in_time() -> None:
    """`within` passes on a result or an error that comes in time, from a coroutine or any other awaitable."""
    assert await within(5, at_once()) == "done"
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    future.set_result(7)
    assert await within(5, future) == 7
    with pytest.raises(ValueError, match="no"):
        await within(5, fail())
    with pytest.raises(RuntimeError, match="cancelled itself"):
        await within(5, cancel_itself())


async def test_too_late() -> None:
    """Work that is late is cancelled, and so is work whose caller has gone."""
    ended: list[str] = []
    began = asyncio.Event()

    async def hang(name: str) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    with pytest.raises(TooLate, match=r"no answer within 0.1 s"):
        await within(0.1, hang("late"))
    began.clear()
    waiting = asyncio.create_task(within(5, hang("left")))
    await began.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended == ["late", "left"]
    assert not LEFT_BEHIND


async def test_swallowing() -> None:
    """Work that swallows its cancellation is abandoned, and its late error reaches no caller."""
    release = asyncio.Event()
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, about: complaints.append(about))

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        raise ValueError("late")

    with pytest.raises(TooLate):
        await within(0.01, stubborn())
    (task,) = LEFT_BEHIND.values()
    release.set()
    await asyncio.wait({task})
    await asyncio.sleep(0)
    del task
    gc.collect()
    assert (LEFT_BEHIND, complaints) == ({}, [])


async def test_finishing() -> None:
    """Work that is finished despite a cancellation passes on its result, its error, and that it took too long."""
    assert await finish_despite_cancel(at_once()) == "done"
    with pytest.raises(ValueError, match="no"):
        await finish_despite_cancel(fail())
    release = asyncio.Event()
    with pytest.raises(TooLate, match=r"not finished within 0.01 s"):
        await finish_despite_cancel(release.wait(), 0.01)
    (task,) = LEFT_BEHIND.values()
    release.set()
    assert await task, "it goes on by itself"
    await asyncio.sleep(0)
    assert not LEFT_BEHIND


@pytest.mark.parametrize("error", [None, ValueError("no")])
async def test_finishing_although_cancelled_again(error: Exception | None) -> None:
    """The work ends, however often its caller is cancelled; then the caller is cancelled, whatever the work raised."""
    ended: list[str] = []

    async def clean_up() -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        ended.append("done")
        if error is not None:
            raise error

    caller = asyncio.create_task(finish_despite_cancel(clean_up()))
    while not caller.done():
        await asyncio.sleep(0)
        caller.cancel()
    assert ended == ["done"]
    with pytest.raises(asyncio.CancelledError):
        await caller
