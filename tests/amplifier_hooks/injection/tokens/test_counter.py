import asyncio
import math
import subprocess
import sys
import threading
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from msgspec.structs import replace

from amplifier_hooks.foreign_code import DaemonPool
from amplifier_hooks.injection.tokens import counter, tokenizers
from amplifier_hooks.injection.tokens.counter import (
    GuardedCounter,
    TokenCount,
    count,
    count_async,
    counter_for,
    fit,
    guard_counter,
)
from amplifier_hooks.injection.tokens.tokenizers import Tokenizer, Yardstick, encoding, tokenizer, utf8_size

PROSE = "The quick brown fox jumps over the lazy dog; the cat nods.\n"


def bare(text: str, name: str = "o200k_base") -> int:
    """Return tiktoken's own count."""
    found = encoding(name)
    assert isinstance(found, tiktoken.Encoding)
    return len(found.encode_ordinary(text))


@pytest.fixture
def stretches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every stretch that is given to a tokenizer."""
    given: list[str] = []
    original = tokenizer

    def watched(yardstick: Yardstick) -> Tokenizer:
        by = original(yardstick)

        def tokens(stretch: str) -> int:
            given.append(stretch)
            return by.tokens(stretch)

        def reach(stretch: str, room: int) -> int:
            given.append(stretch)
            return by.reach(stretch, room)

        return replace(by, tokens=tokens, reach=reach)

    monkeypatch.setattr(counter, "tokenizer", watched)
    return given


@pytest.fixture
def tokenize(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], int]], None]:
    """Puts a tokenizer of the test's own in place."""

    def put(tokens: Callable[[str], int]) -> None:
        by = Tokenizer(yardstick=Yardstick("test"), tokens=tokens, reach=lambda _stretch, room: room)
        monkeypatch.setattr(counter, "tokenizer", lambda _yardstick: by)

    return put


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize("text", ["", "a", PROSE, "\0", "\ud800", "a\udfffb \ud83d\ude00", "\ufeffx", "<|endoftext|>"])
def test_short_texts(text: str) -> None:
    """A short text has as many tokens as tiktoken gives it; special tokens are ordinary text here."""
    assert count(text) == TokenCount(tokens=bare(text), exact=True, method="tiktoken:o200k_base")


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize("model", ["o200k_base", "cl100k_base"])
@pytest.mark.parametrize(
    "unit", [PROSE, "12 34\t5 \n\n  x\r\n", "漢字かな交じり文。ok ", "it's WE'LL don't 'S\n", "a   \n   b\t\t"]
)
def test_pieces_add_up(unit: str, model: str, stretches: list[str]) -> None:
    """A text that is counted in pieces has exactly as many tokens as counted whole."""
    text = unit * (100_000 // len(unit))
    assert count(text, model) == TokenCount(tokens=bare(text, model), exact=True, method=f"tiktoken:{model}")
    assert len(stretches) > 4
    assert "".join(stretches) == text


@pytest.mark.rule("INJ-4")
def test_limit() -> None:
    """A text is over a limit that is less than its tokens, and not over one that equals them."""
    tokens = bare(PROSE)
    assert not count(PROSE, limit=tokens).over_limit
    assert count(PROSE, limit=tokens - 1) == TokenCount(
        tokens=tokens, exact=True, method="tiktoken:o200k_base", over_limit=True
    )


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize(("limit", "empty_is_over"), [(0, False), (-1, True), (-(10**30), True)])
def test_no_room_at_all(limit: int, *, empty_is_over: bool) -> None:
    """Into a limit of zero goes the empty text; below zero not even that."""
    assert count("x", limit=limit).over_limit
    assert count("", limit=limit).over_limit == empty_is_over
    assert fit(PROSE, limit)[0] == 0


@pytest.mark.rule("INJ-4")
def test_stops_at_the_limit(stretches: list[str]) -> None:
    """Counting stops once the limit is passed, and says that there may be more."""
    text = PROSE * 2_000
    found = count(text, limit=5_000)
    assert found.over_limit
    assert not found.exact
    assert 5_000 < found.tokens < bare(text)
    assert sum(map(len, stretches)) < 60_000


@pytest.mark.rule("INJ-4")
def test_much_too_long(stretches: list[str]) -> None:
    """A text of more than 128 characters per token of the limit is over the limit without counting."""
    assert count(PROSE * 200_000, limit=1_000).over_limit
    assert not stretches


CRASHES = {
    "spaces before a word": '" " * 1_100_000 + "x"',
    "tabs": '"\\t" * 1_100_000',
    "wide spaces": '"\\u3000" * 1_100_000 + "x"',
    "one letter": '"a" * 1_000_000',
    "dashes": '"-" * 1_000_000',
    "newlines": '"\\n" * 1_000_000',
    "Chinese": '"漢字" * 1_000_000',
}


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize(
    "text",
    [pytest.param(text, id=name, marks=[] if name == "tabs" else pytest.mark.slow) for name, text in CRASHES.items()],
)
def test_hostile_texts(text: str) -> None:
    """Texts that crash tiktoken or keep it busy are counted as their bytes and said to be, with nothing on stderr."""
    program = f"""
from amplifier_hooks.injection.tokens.counter import count, fit
text = {text}
for model in ("o200k_base", "cl100k_base", "claude-opus-4-7"):
    whole = count(text, model)
    assert whole.tokens == len(text.encode()) and not whole.exact and whole.method.endswith("+bytes"), whole
    kept, part = fit(text, 1000, model)
    assert kept and part.tokens <= 1000 and part == count(text[:kept], model, 1000), part
    kept, part = fit(text, 100_000, model)
    assert part.tokens <= 100_000 and part == count(text[:kept], model, 100_000), part
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.rule("INJ-4")
def test_only_a_stretch_without_cuts_is_counted_as_bytes(stretches: list[str]) -> None:
    """A long run inside a text leaves the rest exact."""
    run = "word" + " " * 300_000 + "x"
    text = PROSE * 1_000 + run + PROSE * 1_000
    found = count(text)
    assert not found.exact
    assert len(run) < found.tokens < bare(PROSE) * 2_000 + len(run) + 40_000
    assert all(len(stretch) <= 262_144 for stretch in stretches)


class PanicException(BaseException):
    """An exception named like a panic in Rust."""


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize("error", [PanicException("StackOverflow"), ValueError(), MemoryError()])
def test_a_failing_tokenizer(error: BaseException, tokenize: Callable[[Callable[[str], int]], None]) -> None:
    """Where the tokenizer fails, even by a panic, the stretch is counted as its bytes."""

    def fail(_stretch: str) -> int:
        raise error

    tokenize(fail)
    assert count("naïve") == TokenCount(tokens=6, exact=False, method="tiktoken:test+bytes")
    assert fit("naïve", 3)[0] == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_somebody_wants_to_stop(error: type[BaseException], tokenize: Callable[[Callable[[str], int]], None]) -> None:
    """Ctrl-C is not taken for a panic."""

    def stop(_stretch: str) -> int:
        raise error

    tokenize(stop)
    with pytest.raises(error):
        count("text")


def test_a_count_is_an_index() -> None:
    """A count stands where a whole number is asked for."""
    assert range(10)[count("a b c")] == bare("a b c")


def test_size_in_bytes() -> None:
    """A lone surrogate has the three bytes of the character that replaces it."""
    assert [utf8_size(text) for text in ("a", "é", "\ud800", "😀")] == [1, 2, 3, 4]


# -- the event loop ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("INJ-4")
async def test_first_use_by_fifty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty tasks that count first load the encoding once, in another thread, and the loop turns meanwhile."""
    monkeypatch.setattr(tokenizers, "_settled", {})
    loaded: list[int] = []
    original = tokenizers._load
    ticking = threading.Event()

    def load(name: str) -> object:
        loaded.append(threading.get_ident())
        assert ticking.wait(10)  # if this were the loop's thread, no task would tick
        return original(name)

    monkeypatch.setattr(tokenizers, "_load", load)
    counts = [asyncio.create_task(count_async("hello world")) for _ in range(50)]
    ticks = 0
    while not all(task.done() for task in counts):
        ticks += 1
        if ticks == 100:
            ticking.set()
        await asyncio.sleep(0)
    assert ticks >= 100
    assert [task.result().tokens for task in counts] == [2] * 50
    assert len(loaded) == 1
    assert loaded[0] != threading.get_ident()


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize(("text", "here"), [("a" * 65_536, True), ("a" * 65_537, False), ("é" * 32_769, False)])
async def test_long_texts_leave_the_loop(text: str, *, here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 64 kB are counted on the loop, more in a thread, with the same result."""
    ours = counter_for()
    expected, fitting = ours.count(text), ours.fit(text, 100)
    threads: list[int] = []
    original = counter._walk  # the tokenizer is loaded by now

    def walk(*arguments: Any) -> object:
        threads.append(threading.get_ident())
        return original(*arguments)

    monkeypatch.setattr(counter, "_walk", walk)
    assert await ours.count_async(text) == expected
    assert await ours.fit_async(text, 100) == fitting
    assert [thread == threading.get_ident() for thread in threads] == [here, here]


# -- offline -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("INJ-4")
def test_offline_on_a_fresh_machine(tmp_path: Path) -> None:
    """With sockets forbidden and an empty home, every model is counted, and nothing is written."""
    program = """
import sys
def watch(event, arguments):
    if event.startswith("socket."):
        raise SystemExit("a socket was wanted")
sys.addaudithook(watch)
from amplifier_hooks.injection.tokens.counter import count
for model in ("gpt-5", "gpt-4", "gpt-oss-20b", "claude-opus-4-7", "gemini-3", "who-knows", None):
    print(count("hello world", model).tokens, end=" ")
assert "requests" not in sys.modules
"""
    environment = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PATH": ""}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == "2 2 2 6 3 3 2 "
    assert not list(tmp_path.iterdir())


def test_front_door_is_light() -> None:
    """Importing the package loads no tokenizer."""
    program = "import amplifier_hooks.injection.tokens, sys\nassert not {'tiktoken', 'regex'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


# -- guarded counters --------------------------------------------------------------------------------------------------


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
    counter = guard(inner, deadline=1)  # once; a thread of a busy machine takes its time to begin
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
    kept, found = await guard(inner, deadline=1).fit_async(TEXT, 100)
    assert (found.method, found.tokens) == ("bytes", len(TEXT[:kept]))
    assert len(inner.asked) == 2


@pytest.mark.rule("INJ-4")
async def test_much_too_long_for_a_guarded_counter() -> None:
    """A text of more than 128 characters per token of the limit is not even shown to the counter."""
    inner = Counter()
    assert (await guard(inner).count_async("x" * 1_000, 7)).over_limit
    assert not inner.asked


def test_ours_needs_no_guard() -> None:
    """A `Counter` of this package is returned unchanged."""
    ours = counter_for("gpt-5")
    assert guard_counter(ours, run=DaemonPool().run) is ours


LINES = "".join(f"app.py:{number}: E501 line too long ({number + 80} > 79 characters)\n" for number in range(500))
LONG_LINE = " ".join(f"word{number}" for number in range(3_000))
MODELS = ["o200k_base", "cl100k_base", "claude-opus-4-7", "bytes"]


@pytest.mark.rule("INJ-3", "INJ-4")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("limit", [17, 100, 1_000, 8_000])
def test_whole_lines(model: str, limit: int) -> None:
    """As many whole lines are kept as fit, and not one more would."""
    kept, found = fit(LINES, limit, model)
    following = LINES.find("\n", kept) + 1
    assert LINES[:kept].endswith("\n") or not LINES[:kept].count("\n")
    assert found == count(LINES[:kept], model, limit)
    assert not found.over_limit
    assert not following or count(LINES[:following], model, limit).over_limit


@pytest.mark.rule("INJ-3", "INJ-4")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("text", [LONG_LINE, "Report:\n" + LONG_LINE], ids=["alone", "after a heading"])
def test_inside_a_long_line(text: str, model: str) -> None:
    """Where one line is longer than everything before it, the cut is inside it, and the limit is used up."""
    kept, found = fit(text, 400, model)
    assert 390 <= found.tokens <= 400
    assert not found.over_limit
    assert kept > len("Report:\n")


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize("model", MODELS)
def test_all_of_it(model: str) -> None:
    """A text that fits is kept whole, and its count is that of the whole."""
    assert fit(LINES, 100_000, model) == (len(LINES), count(LINES, model, 100_000))
    assert fit("", 0, model)[0] == 0


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize("limit", range(1, 14))
def test_escapes_stay_whole(limit: int) -> None:
    """The cut is never inside an escape."""
    text = r"seen \u{202E}\u{1F600}\u{0} here and there and everywhere"
    kept, _ = fit(text, limit)
    rest = text[:kept].replace(r"\u{202E}", "").replace(r"\u{1F600}", "").replace(r"\u{0}", "")
    assert "\\" not in rest


@pytest.mark.rule("INJ-4")
def test_a_word_cut_in_two_counts_more() -> None:
    """A line that fits as a whole is kept, though a part of it would not fit."""
    text = "a\nconfigurations\nanother line that is longer than both\n"
    whole = text.index("another")
    limit = count(text[:whole]).tokens
    assert fit(text, limit)[0] == whole


@pytest.mark.rule("INJ-4")
def test_far_beyond_the_first_piece() -> None:
    """The kept part may end in any piece, and just before one."""
    text = LINES * 20
    for limit in range(20_000, 30_000, 997):
        kept, found = fit(text, limit)
        assert found == count(text[:kept], limit=limit)
        assert text[:kept].endswith("\n")
        assert limit - 30 < found.tokens <= limit


@pytest.fixture
def chaos(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tokenizer that gives a longer text fewer tokens as often as more, and no help."""

    def tokens(stretch: str) -> int:
        return zlib.crc32(stretch.encode()) % (len(stretch) + 1)

    def reach(stretch: str, room: int) -> int:
        raise RuntimeError

    by = Tokenizer(yardstick=Yardstick("chaos"), tokens=tokens, reach=reach)
    monkeypatch.setattr(counter, "tokenizer", lambda _yardstick: by)


@pytest.mark.rule("INJ-4")
@pytest.mark.usefixtures("chaos")
@pytest.mark.parametrize("limit", range(0, 60, 3))
def test_never_over(limit: int) -> None:
    """However a tokenizer behaves, what is kept is within the limit."""
    text = "a few\nshort lines\nand\n\nsome\nmore words in\none that is longer\n" * 4
    kept, found = fit(text, limit)
    assert found == count(text[:kept], limit=limit)
    assert found.tokens <= limit


@pytest.mark.rule("INJ-4")
def test_tokens_as_long_as_can_be() -> None:
    """A run that makes very long tokens is kept as far as it fits."""
    kept, found = fit(" " * 100_000, 500)
    assert found.tokens == 500
    assert kept == 500 * 128


@pytest.mark.rule("INJ-4")
def test_the_line_begins_before_the_piece() -> None:
    """A cut at a line is right also where the text goes on in a later piece."""
    lines = "word here\n" * 1_638
    text = lines + "a line that goes on " * 100
    kept, found = fit(text, count(lines).tokens + 10)
    assert kept == len(lines)
    assert found.tokens == count(lines).tokens
