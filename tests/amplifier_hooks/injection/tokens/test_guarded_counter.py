import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from amplifier_hooks.injection.tokens.choose_counter import counter_for, guard_counter
from amplifier_hooks.injection.tokens.counter import GuardedCounter, TokenCount
from amplifier_hooks.threads import DaemonPool

TEXT = "one two three four five six seven eight nine ten\n" * 20


class Counter:
    """A counter that counts words, or calls a given function."""

    def __init__(self, instead: Callable[[str], Any] | None = None) -> None:
        self.instead = instead
        self.asked: list[str] = []

    def count(self, text: str) -> Any:
        """Return the result of the function, or the number of words."""
        self.asked.append(text)
        return self.instead(text) if self.instead else len(text.split())


class Remote(Counter):
    """An async counter, as if over a network."""

    async def count(self, text: str) -> Any:
        """Return the count, one step later."""
        await asyncio.sleep(0)
        found = super().count(text)
        return await found if asyncio.iscoroutine(found) else found


def guard(counter: Any, deadline: float = 30) -> GuardedCounter:
    """The counter, guarded, with threads of its own."""
    made = guard_counter(counter, run=DaemonPool().run, deadline=deadline)
    assert isinstance(made, GuardedCounter)
    return made


def returning(value: Any) -> Callable[[str], Any]:
    """Return a function that returns this for any text."""
    return lambda _text: value


def raising(error: BaseException) -> Callable[[str], Any]:
    """Return a function that raises this for any text."""

    def fail(_text: str) -> Any:
        raise error

    return fail


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize("kind", [Counter, Remote])
async def test_a_good_counter(kind: type[Counter]) -> None:
    """A counter of the host's own is believed and named, and not called exact."""
    counter = guard(kind())
    assert await counter.count_async(TEXT) == TokenCount(tokens=200, exact=False, method=f"custom:{kind.__name__}")
    assert (await counter.count_async(TEXT, 199)).over_limit
    assert not (await counter.count_async(TEXT, 200)).over_limit


class Index:
    """A number that is not an int, as numpy has them."""

    def __index__(self) -> int:
        return 3


class BadIndex:
    """A number whose `__index__` fails."""

    def __index__(self) -> int:
        raise RuntimeError


@pytest.mark.fault("F-INJ-04")
@pytest.mark.parametrize("kind", [Counter, Remote])
@pytest.mark.parametrize(
    "value",
    [-1, 0, math.nan, math.inf, 10**30, 2.0, 2.5, "7", None, True, b"", [], object(), BadIndex()],
    ids=["-1", "0", "nan", "inf", "huge", "2.0", "2.5", "text", "None", "True", "bytes", "list", "object", "bad-index"],
)
async def test_nonsense(value: object, kind: type[Counter]) -> None:
    """A value that cannot be a number of tokens is replaced by the bytes, and the count says so."""
    found = await guard(kind(returning(value))).count_async("naïve text")
    assert found == TokenCount(tokens=11, exact=False, method="bytes:counter-invalid")


@pytest.mark.parametrize("value", [3, Index(), counter_for().count("a b c")])
async def test_whole_numbers(value: object) -> None:
    """Everything that is a whole number is taken as one."""
    assert (await guard(Counter(returning(value))).count_async("naïve text")).tokens == 3


async def test_the_empty_text() -> None:
    """Nothing has no tokens."""
    assert (await guard(Counter()).count_async("")).tokens == 0


@pytest.mark.fault("F-INJ-04")
@pytest.mark.parametrize("kind", [Counter, Remote])
@pytest.mark.parametrize("error", [RuntimeError("down"), SystemExit(3), asyncio.CancelledError(), StopIteration()])
async def test_raising(error: BaseException, kind: type[Counter], caplog: pytest.LogCaptureFixture) -> None:
    """A counter that raises, whatever it raises, is replaced by the bytes, with one warning however often."""
    counter = guard(kind(raising(error)))
    for _ in range(3):
        found = await counter.count_async("naïve", 3)
        assert found == TokenCount(tokens=6, exact=False, method="bytes:counter-raised", over_limit=True)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.fixture
async def opened() -> AsyncIterator[threading.Event]:
    """Lets hanging threads go in the end."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.fault("F-INJ-04")
async def test_hanging_in_a_thread(opened: threading.Event) -> None:
    """A counter that hangs is replaced by the bytes at its deadline, and asked again only when it has returned."""
    inner = Counter(lambda text: opened.wait(30) and len(text.split()))
    counter = guard(inner, deadline=0.01)
    for _ in range(10):
        assert (await counter.count_async("one two")).method == "bytes:counter-timed-out"
    assert len(inner.asked) == 1
    opened.set()
    async with asyncio.timeout(60):
        while (await counter.count_async("one two")).tokens != 2:  # noqa: ASYNC110  it has no event for that
            await asyncio.sleep(0)


@pytest.mark.fault("F-INJ-04")
async def test_hanging_on_the_loop() -> None:
    """A coroutine that ignores its cancellation delays no caller."""
    opened = asyncio.Event()

    async def stubborn() -> int:
        while not opened.is_set():
            try:
                await opened.wait()
            except asyncio.CancelledError:
                continue
        return 2

    inner = Remote(lambda _text: stubborn())
    counter = guard(inner, deadline=0.01)
    for _ in range(3):
        assert (await counter.count_async("one two")).method == "bytes:counter-timed-out"
    assert len(inner.asked) == 1
    opened.set()
    inner.instead = None
    async with asyncio.timeout(60):
        while (await counter.count_async("one two")).tokens != 2:  # noqa: ASYNC110  it has no event for that
            await asyncio.sleep(0)


async def test_cancelled() -> None:
    """Cancelling a caller while it counts cancels the caller, and the counter, too."""
    cancelled = asyncio.Event()
    entered = asyncio.Event()

    async def wait() -> int:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return 0

    counting = asyncio.create_task(guard(Remote(lambda _text: wait())).count_async("x"))
    async with asyncio.timeout(60):
        await entered.wait()
        counting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await counting
        await cancelled.wait()


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize("kind", [Counter, Remote])
@pytest.mark.parametrize("limit", [0, -1, 5, 50, 199, 200, 1_000])
async def test_fitting(limit: int, kind: type[Counter]) -> None:
    """The kept part fits, by the counter's own count; all is kept if all fits."""
    inner = kind()
    kept, found = await guard(inner).fit_async(TEXT, limit)
    assert found.tokens == len(TEXT[:kept].split())
    assert found.tokens <= max(limit, 0)
    assert (kept == len(TEXT)) == (limit >= 200)
    assert not 10 < limit < 200 or found.tokens > limit * 0.7
    assert len(inner.asked) <= 5


@pytest.mark.fault("F-INJ-04")
@pytest.mark.parametrize("instead", [raising(RuntimeError()), returning(-1), len], ids=["raises", "lies", "bytes"])
async def test_fitting_by_bytes(instead: Callable[[str], Any]) -> None:
    """A counter that fails, or says that nothing fits, leaves as many bytes as there may be tokens."""
    kept, found = await guard(Counter(instead)).fit_async(TEXT, 100)
    assert kept == len(TEXT[:kept].encode()) == found.tokens
    assert 0 < found.tokens <= 100


@pytest.mark.fault("F-INJ-04")
async def test_fitting_when_it_hangs(opened: threading.Event) -> None:
    """A counter that hangs half-way through fitting costs one deadline, and bytes are counted."""
    answers = iter([200])
    inner = Counter(lambda _text: next(answers, None) or opened.wait(30))
    kept, found = await guard(inner, deadline=0.05).fit_async(TEXT, 100)
    assert (found.method, found.tokens) == ("bytes", len(TEXT[:kept]))
    assert len(inner.asked) == 2


@pytest.mark.rule("INJ-4")
async def test_much_too_long() -> None:
    """A text of more than 128 characters per token of the limit is not even shown to the counter."""
    inner = Counter()
    assert (await guard(inner).count_async("x" * 1_000, 7)).over_limit
    assert not inner.asked


def test_ours_needs_no_guard() -> None:
    """A `Counter` of this package is returned unchanged."""
    ours = counter_for("gpt-5")
    assert guard_counter(ours, run=DaemonPool().run) is ours
