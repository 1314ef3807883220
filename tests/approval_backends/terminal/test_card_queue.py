"""One card at a time, for any number of callers."""

from __future__ import annotations

import asyncio
import threading

import pytest

from approval_backends.terminal.prompt import Turns


@pytest.mark.rule("BCK-1")
@pytest.mark.fault("F-CLI-11")
async def test_in_order() -> None:
    """Turns come in the order of the calls; a caller that stops waiting is passed over."""
    turns = Turns()
    seen: list[int] = []

    async def one(number: int) -> None:
        async with turns.take_turn():
            seen.append(number)
            await asyncio.sleep(0)

    async with turns.take_turn():
        tasks = [asyncio.ensure_future(one(number)) for number in range(4)]
        await asyncio.sleep(0)
        assert (turns.waiting, seen) == (4, [])
        tasks[1].cancel()
        await asyncio.sleep(0)
        assert turns.waiting == 3
    await asyncio.wait(tasks)
    assert seen == [0, 2, 3]
    assert turns.waiting == 0


@pytest.mark.rule("BCK-1")
async def test_cancelled_in_the_instant_of_the_turn() -> None:
    """A caller that is cancelled in the instant of its turn passes the turn on."""
    turns = Turns()
    entered = asyncio.Event()

    async def one() -> None:
        async with turns.take_turn():
            entered.set()

    async with turns.take_turn():
        first, second = asyncio.ensure_future(one()), asyncio.ensure_future(one())
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first, second})
    assert first.cancelled()
    assert entered.is_set()


@pytest.mark.rule("BCK-1")
def test_across_threads() -> None:
    """Loops in other threads take turns with each other."""
    turns = Turns()
    inside: list[int] = []
    most: list[int] = []

    async def many() -> None:
        for _ in range(50):
            async with turns.take_turn():
                inside.append(1)
                most.append(len(inside))
                await asyncio.sleep(0)
                inside.pop()

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(most) == 200
    assert max(most) == 1
