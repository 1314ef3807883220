"""Bounded waiting for foreign code, and its threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import subprocess
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import foreign_code
from amplifier_hooks.foreign_code import LEFT_BEHIND, DaemonPool, TooLate, call_apart, finish_despite_cancel, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


SOON = 60  # seconds; a test waits that long only for broken code
colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


class Gate:
    """A function that reports when it runs and returns when it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()
        self.left = threading.Semaphore(0)

    def __call__(self) -> str:
        """Return the thread's name, once the gate is open."""
        self.entered.release()
        assert self.opened.wait(SOON)
        self.left.release()
        return threading.current_thread().name


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Return a gate that is opened at the end of the test, also after a failure."""
    gate = Gate()
    yield gate
    gate.opened.set()


async def until(condition: Callable[[], object]) -> None:
    """Let the loop turn until the condition holds."""
    async with asyncio.timeout(SOON):
        while not condition():  # noqa: ASYNC110  what is waited for happens in threads
            await asyncio.sleep(0)


@pytest.mark.rule("REG-1")
async def test_result_and_arguments() -> None:
    """The function runs in another thread with its arguments; its result comes back."""

    def work(a: int, *, b: int) -> tuple[int, int]:
        return a + b, threading.get_ident()

    total, thread = await DaemonPool().run(work, 1, b=2)
    assert total == 3
    assert thread != threading.get_ident()


@pytest.mark.rule("DSP-6")
@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyboardInterrupt("x"), SystemExit("x"), asyncio.CancelledError("x"), GeneratorExit("x")]
)
async def test_errors_are_raised_where_the_call_is_awaited(error: BaseException) -> None:
    """An exception of the function is raised to the caller, and the thread lives on."""
    pool = DaemonPool(limit=1)

    def fail() -> None:
        raise error

    before = await pool.run(threading.get_ident)
    with pytest.raises(type(error)) as caught:
        await pool.run(fail)
    assert caught.value is error
    assert await pool.run(threading.get_ident) == before
    assert pool.abandoned_count == 0


async def test_stop_iteration() -> None:
    """StopIteration, which no coroutine can raise, arrives as RuntimeError."""
    with pytest.raises(RuntimeError, match="StopIteration"):
        await DaemonPool().run(next, iter(()))


@pytest.mark.rule("DSP-7")
async def test_context() -> None:
    """The function sees the caller's context variables; variables that it sets do not leak back."""
    pool = DaemonPool(limit=1)
    colour.set("red")

    def repaint() -> str:
        seen = colour.get()
        colour.set("blue")
        return seen

    assert [await pool.run(repaint), await pool.run(repaint), colour.get()] == ["red", "red", "red"]


async def test_limit_and_queue(gate: Gate) -> None:
    """A pool starts no more threads than its limit; further calls wait their turn and all are answered."""
    pool = DaemonPool(limit=2, name="mine")
    calls = [asyncio.ensure_future(pool.run(gate)) for _ in range(5)]
    for _ in range(2):
        await until(lambda: gate.entered.acquire(blocking=False))
    assert (pool._threads, len(pool._waiting)) == (2, 3)
    gate.opened.set()
    assert set(await asyncio.gather(*calls)) == {"mine-1", "mine-2"}


async def test_an_idle_thread_is_used_again() -> None:
    """Calls that follow one another need one thread."""
    pool = DaemonPool(limit=4)
    await pool.run(int)
    await until(lambda: pool._idle == 1)
    await pool.run(int)
    assert pool._threads == 1


@pytest.mark.rule("DSP-5")
@pytest.mark.fault("F-HD-11")
async def test_cancelling_abandons_a_running_call(gate: Gate) -> None:
    """Cancelling the caller returns at once; the thread goes on, its result is dropped, the call is counted."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    pool = DaemonPool(limit=1)
    call = asyncio.ensure_future(pool.run(gate))
    await until(lambda: gate.entered.acquire(blocking=False))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert pool.abandoned_count == 1
    gate.opened.set()
    assert await pool.run(str, "next") == "next"
    assert gate.left.acquire(timeout=SOON)
    assert complaints == []


async def test_cancelling_a_queued_call(gate: Gate) -> None:
    """A call that is cancelled before a thread was free never runs, and is not counted."""
    pool = DaemonPool(limit=1)
    running = asyncio.ensure_future(pool.run(gate))
    await until(lambda: gate.entered.acquire(blocking=False))
    ran: list[int] = []
    queued = asyncio.ensure_future(pool.run(ran.append, 1))
    await until(lambda: pool._waiting)
    queued.cancel()
    with pytest.raises(asyncio.CancelledError):
        await queued
    gate.opened.set()
    await running
    await pool.run(int)
    assert ran == []
    assert pool.abandoned_count == 0


@pytest.mark.rule("DSP-5")
async def test_closing_the_coroutine_abandons_too(gate: Gate) -> None:
    """A driver that closes the coroutine gives the call up as a cancellation does."""
    pool = DaemonPool(limit=1)
    call = pool.run(gate)
    call.send(None)
    await until(lambda: gate.entered.acquire(blocking=False))
    call.close()
    assert pool.abandoned_count == 1
    gate.opened.set()
    assert await pool.run(str, "next") == "next"


@pytest.mark.fault("F-HD-11")
async def test_other_threads_are_not_affected(gate: Gate) -> None:
    """With every thread hung, the loop's own executor still serves files and names."""
    pool = DaemonPool(limit=4)
    calls = [asyncio.ensure_future(pool.run(gate)) for _ in range(8)]
    for _ in range(4):
        await until(lambda: gate.entered.acquire(blocking=False))
    async with asyncio.timeout(SOON):
        assert await asyncio.to_thread(str, "written") == "written"
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert pool.abandoned_count == 4


def test_several_loops(gate: Gate) -> None:
    """Event loops in different threads share one pool."""
    pool = DaemonPool(limit=2)
    gate.opened.set()
    results: list[int] = []

    async def add() -> None:
        results.extend(await asyncio.gather(*(pool.run(int, n) for n in range(20))))

    loops = [threading.Thread(target=asyncio.run, args=(add(),)) for _ in range(3)]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join(SOON)
    assert sorted(results) == sorted([*range(20)] * 3)


def test_closed_loop(gate: Gate) -> None:
    """A loop that is gone when the answer comes does no harm; the thread serves the next one."""
    pool = DaemonPool(limit=1)

    async def leave() -> None:
        call = asyncio.ensure_future(pool.run(gate))
        await until(lambda: gate.entered.acquire(blocking=False))
        call.cancel()

    asyncio.run(leave())
    gate.opened.set()
    assert asyncio.run(pool.run(str, "next")) == "next"


async def test_idle_threads_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread without work ends after a while, and the next call starts another."""
    monkeypatch.setattr(foreign_code, "IDLE_SECONDS", 0.0)
    pool = DaemonPool(limit=1)
    first = await pool.run(threading.current_thread)
    first.join(SOON)
    assert not first.is_alive()
    assert await pool.run(threading.current_thread) is not first


@pytest.mark.parametrize("fails", [False, True])
async def test_nothing_is_kept(fails: bool) -> None:
    """Neither an idle thread nor a raised error keeps a call's arguments alive."""

    class Big:
        pass

    def work(big: Big) -> str:
        if fails:
            raise ValueError(big)
        return repr(big)

    pool = DaemonPool(limit=1)
    big = Big()
    gone = weakref.ref(big)
    gc.collect()
    gc.disable()  # an object that only the collector could free counts as kept
    try:
        with contextlib.suppress(ValueError):
            await pool.run(work, big)
        await asyncio.sleep(0)  # until then the loop holds the answer
        await until(lambda: pool._idle == 1)
        del big
        assert gone() is None
    finally:
        gc.enable()


async def test_no_thread_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the system refuses a thread the caller gets the error, and nothing stays behind."""

    def refuse(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = DaemonPool(limit=1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            await pool.run(int)
    assert await pool.run(int) == 0


def test_limit_is_checked() -> None:
    """A pool without threads would answer nothing."""
    with pytest.raises(ValueError, match="at least one thread, not 0"):
        DaemonPool(limit=0)


@pytest.mark.fault("F-HD-11")
def test_a_hung_call_does_not_hold_the_process() -> None:
    """The interpreter exits while a function still hangs; importing and making a pool starts nothing."""
    program = """
import asyncio, threading
from amplifier_hooks.foreign_code import DaemonPool
pool = DaemonPool()
assert threading.active_count() == 1
entered = threading.Event()
def hang():
    entered.set()
    threading.Event().wait()
async def main():
    call = asyncio.ensure_future(pool.run(hang))
    while not entered.is_set():
        await asyncio.sleep(0)
    call.cancel()
asyncio.run(main())
print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=SOON, capture_output=True, text=True)
    assert done.stdout == "done\n"
    assert done.stderr == ""


@pytest.mark.rule("COO-4")
def test_large_values_leave_the_loop() -> None:
    """A function about a large value runs in a thread, one about a small value in the caller's own."""

    async def run() -> list[bool]:
        values = ("x", ["x"] * 1_000, "x" * 70_000, {"a": ["x" * 70] * 1_000})
        return [await call_apart(value, threading.get_ident) == threading.get_ident() for value in values]

    assert asyncio.run(run()) == [True, True, False, False]
