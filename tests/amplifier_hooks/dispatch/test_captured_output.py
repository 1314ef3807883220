"""The output of captured hooks is kept for their answers, and all other output stays untouched."""
# ruff: noqa: T201  # they print, that is the point

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
import threading
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.dispatch.captured_output import KEPT, Output, may_hide_output
from amplifier_hooks.errors import InvalidRegistration
from amplifier_hooks.foreign_code import LEFT_BEHIND, without_capture
from amplifier_hooks.session.display import transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from amplifier_hooks import Outcome

CALL = {"tool_name": "Bash", "tool_input": {}}
LIMIT = 0.05
SOON = 60  # seconds; nothing here waits that long unless it is broken


@pytest.fixture(autouse=True)
def _as_they_were() -> Iterator[None]:
    """After every test the streams are what they were before."""
    before = places()
    yield
    assert places() == before


def places() -> tuple[object, ...]:
    """The attributes that a capture replaces by stand-ins."""
    return sys.stdout, sys.stderr


def write_lines(*texts: str) -> None:
    """Print the texts to standard output."""
    print(*texts)


def hook(*texts: str, answer: object = None) -> Callable[..., Any]:
    """A hook that prints, then answers."""

    async def printing(event: str, data: Mapping[str, Any]) -> Any:
        write_lines(*texts)
        return answer

    return printing


async def emitted(handler: Callable[..., Any], **options: Any) -> Outcome:
    """The outcome of an event with this hook alone, captured."""
    registry = HookRegistry()
    registry.on("tool:pre", handler, name="hook", capture=True, **options)
    return await registry.emit("tool:pre", CALL)


def outputs(outcome: Outcome) -> dict[str, str | None]:
    """The output of each hook."""
    return {answer.hook_name: answer.output for answer in outcome.answers}


# -- what is kept ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("DIS-2")
async def test_both_streams_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    """The output of a captured hook to both streams is kept in order, and written nowhere else."""

    async def talks(event: str, data: Mapping[str, Any]) -> None:
        print("one")
        print("two", file=sys.stderr)
        await asyncio.sleep(0)
        sys.stdout.writelines(["three\n", "four\n"])
        sys.stdout.flush()

    outcome = await emitted(talks)
    assert outputs(outcome) == {"hook": "one\ntwo\nthree\nfour\n"}
    assert capsys.readouterr() == ("", "")


@pytest.mark.rule("DIS-2")
@pytest.mark.parametrize("intent", ["register", "on", "gate"])
@pytest.mark.parametrize("options", [{}, {"thread": True}])
async def test_plain_functions(intent: str, options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Plain functions are captured as well, whatever they were registered for, and in a thread, too."""
    registry = HookRegistry()

    def plain(event: str, data: Mapping[str, Any]) -> HookResult:
        print("plain")
        return HookResult.deny("no")

    getattr(registry, intent)("tool:pre", plain, capture=True, **options)
    outcome = await registry.emit("tool:pre", CALL)
    assert (outcome.denied_by, outputs(outcome)) == ("plain", {"plain": "plain\n"})
    assert capsys.readouterr().out == ""


@pytest.mark.rule("DIS-2")
async def test_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    """A hook without `capture` sees the original streams."""
    registry, before, inside = HookRegistry(), places(), []

    @registry.on("tool:pre")
    async def free(event: str, data: Mapping[str, Any]) -> HookResult:
        inside.append(places())
        print("free")
        return HookResult.deny("no")

    outcome = await registry.emit("tool:pre", CALL)
    assert inside == [before]
    assert outputs(outcome) == {"free": None}
    assert capsys.readouterr().out == "free\n"


@pytest.mark.rule("DIS-2", "RES-4")
async def test_whose_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Each hook's output is in its own answer; a hook without answer and output is not on record."""
    registry = HookRegistry()
    registry.on("tool:pre", hook("loud"), name="loud", capture=True)
    registry.on("tool:pre", lambda event, data: None, name="quiet", capture=True)
    registry.on("tool:pre", hook("free"), name="free")
    registry.on("tool:pre", hook("last", answer=HookResult.inject("text")), name="last", capture=True)
    outcome = await registry.emit("tool:pre", CALL)
    assert outputs(outcome) == {"loud": "loud\n", "last": "last\n"}
    assert outcome.action == "inject_context"
    assert capsys.readouterr().out == "free\n"


@pytest.mark.rule("DIS-2")
async def test_failures_keep_their_output() -> None:
    """The output of a hook is kept when the hook raises, answers nonsense, is too slow, or denies."""
    registry = HookRegistry()

    async def raises(event: str, data: Mapping[str, Any]) -> None:
        print("raises")
        raise OSError

    async def slow(event: str, data: Mapping[str, Any]) -> None:
        print("slow")
        await asyncio.Event().wait()

    registry.on("tool:pre", raises, capture=True)
    registry.on("tool:pre", hook("invalid", answer=5), name="invalid", capture=True)
    registry.on("tool:pre", slow, capture=True, timeout=LIMIT)
    registry.on("tool:pre", hook("denies", answer=HookResult.deny()), name="denies", capture=True)
    outcome = await registry.emit("tool:pre", CALL)
    assert [(answer.hook_name, answer.status, answer.output) for answer in outcome.answers] == [
        ("raises", "error", "raises\n"),
        ("invalid", "invalid", "invalid\n"),
        ("slow", "timeout", "slow\n"),
        ("denies", "ok", "denies\n"),
    ]


@pytest.mark.rule("DIS-2")
async def test_second_look() -> None:
    """A gate's second look at changed data has an output of its own."""
    registry = HookRegistry()

    @registry.gate("tool:pre", capture=True)
    async def looks(event: str, data: Mapping[str, Any]) -> None:
        print("sees", data["tool_input"])

    @registry.on("tool:pre", priority=1)
    async def changes(event: str, data: Mapping[str, Any]) -> HookResult:
        return HookResult.modify({"tool_input": {"n": 1}})

    outcome = await registry.emit("tool:pre", CALL)
    looked = [(answer.output, answer.recheck) for answer in outcome.answers if answer.hook_name == "looks"]
    assert looked == [("sees {}\n", False), ("sees {'n': 1}\n", True)]


# -- whose print it is -------------------------------------------------------------------------------------------------


@pytest.mark.rule("DIS-2")
async def test_at_the_same_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Hooks that run at the same time each have their own output, and the text of other code is untouched."""
    registry = HookRegistry()
    there = asyncio.Barrier(3)

    @registry.on("tool:pre", capture=True)
    async def hook(event: str, data: Mapping[str, Any]) -> None:
        for step in range(3):
            print(data["tool_name"], step)
            await there.wait()

    async def somebody_else() -> None:
        for step in range(3):
            await there.wait()
            print("else", step)

    first, second, _ = await asyncio.gather(
        registry.emit("tool:pre", {"tool_name": "one"}),
        registry.emit("tool:pre", {"tool_name": "two"}),
        somebody_else(),
    )
    assert outputs(first) == {"hook": "one 0\none 1\none 2\n"}
    assert outputs(second) == {"hook": "two 0\ntwo 1\ntwo 2\n"}
    assert capsys.readouterr().out == "else 0\nelse 1\nelse 2\n"


@pytest.mark.rule("DIS-2")
async def test_tasks_of_a_hook(capsys: pytest.CaptureFixture[str]) -> None:
    """The text that a hook's tasks print is part of its output, also from `asyncio.to_thread`."""

    async def starts(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.create_task(asyncio.to_thread(write_lines, "to_thread"))

    assert outputs(await emitted(starts)) == {"hook": "to_thread\n"}
    assert capsys.readouterr().out == ""


@pytest.mark.rule("DIS-2")
async def test_somebody_elses_thread(capsys: pytest.CaptureFixture[str]) -> None:
    """A thread that was started outside of the hook writes to the original stream, also during a capture."""
    go, done = threading.Event(), threading.Event()

    def prints() -> None:
        go.wait(SOON)
        print("other thread")
        done.set()

    thread = threading.Thread(target=prints)
    thread.start()

    async def waits(event: str, data: Mapping[str, Any]) -> None:
        go.set()
        await asyncio.to_thread(done.wait, SOON)
        print("hook")

    assert outputs(await emitted(waits)) == {"hook": "hook\n"}
    thread.join(SOON)
    assert capsys.readouterr().out == "other thread\n"


@pytest.mark.rule("DIS-2")
async def test_hook_inside_hook() -> None:
    """A captured hook that runs inside another one has its own output, and so has the other."""
    registry = HookRegistry()
    inner: list[Outcome] = []
    registry.on("inner", hook("inner"), name="inside", capture=True)

    @registry.on("outer", capture=True)
    async def outside(event: str, data: Mapping[str, Any]) -> None:
        print("before")
        inner.append(await registry.emit("inner", {}))
        print("after")

    assert outputs(await registry.emit("outer", {})) == {"outside": "before\nafter\n"}
    assert outputs(inner[0]) == {"inside": "inner\n"}


@pytest.mark.rule("DIS-2")
async def test_what_is_no_hooks_output(capsys: pytest.CaptureFixture[str]) -> None:
    """Code that runs in `without_capture` inside a hook prints to the original streams."""

    async def tool() -> None:
        with without_capture():
            print("tool")
            await asyncio.sleep(0)
            print("tool", file=sys.stderr)

    async def calls(event: str, data: Mapping[str, Any]) -> None:
        await tool()
        print("hook")

    await tool()
    assert outputs(await emitted(calls)) == {"hook": "hook\n"}
    assert capsys.readouterr() == ("tool\ntool\n", "tool\ntool\n")


# -- how much is kept --------------------------------------------------------------------------------------------------


@pytest.mark.rule("DIS-2")
async def test_bounded() -> None:
    """Of a long output the first 64 KiB are kept, followed by the number of dropped bytes."""

    async def floods(event: str, data: Mapping[str, Any]) -> None:
        for _ in range(100):
            sys.stdout.write("x" * 50_000)

    (output,) = outputs(await emitted(floods)).values()
    assert output == "x" * 65_536 + "…(+4,934,464 bytes)"


@pytest.mark.rule("DIS-2")
async def test_cut_between_characters() -> None:
    """An output is cut between characters, and what is left of a torn one counts as dropped."""
    (output,) = outputs(await emitted(hook("xx" + "€" * 30_000))).values()
    assert output == "xx" + "€" * 21_844 + "…(+24,469 bytes)"  # 3 bytes each, and the line's end
    assert len(("xx" + "€" * 21_844).encode()) == KEPT - 2


@pytest.mark.rule("DIS-2")
async def test_bytes_and_odd_text() -> None:
    """Bytes are kept in the order of the text; what is no UTF-8 is visible in it."""

    async def writes(event: str, data: Mapping[str, Any]) -> None:
        print("text", end=" ")
        sys.stdout.buffer.write(b"bytes \xc3")
        sys.stdout.buffer.write(memoryview(b"\xa9 \xff "))
        sys.stdout.buffer.flush()
        print("\ud800")

    assert outputs(await emitted(writes)) == {"hook": "text bytes é \\xff \\xed\\xa0\\x80\n"}


@pytest.mark.rule("DIS-2")
async def test_like_a_stream() -> None:
    """To the hook its output looks like the stream it is, without a terminal behind it."""
    seen: list[object] = []
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # what only a real stream can

    async def looks(event: str, data: Mapping[str, Any]) -> None:
        seen.extend([sys.stdout.isatty(), sys.stdout.encoding, sys.stdout.write("four"), sys.stdout.buffer.write(b"5")])
        seen.append(sys.stdout.buffer.closed)
        with pytest.raises(TypeError, match=r"^write\(\) argument must be str, not int$"):
            sys.stdout.write(4)  # type: ignore[arg-type]

    assert outputs(await emitted(looks)) == {"hook": "four5"}
    assert seen == [False, sys.stdout.encoding, 4, 1, False]


@pytest.mark.rule("DIS-2")
def test_twice_ended() -> None:
    """An output that has ended takes nothing more and says the same each time."""
    output = Output()
    with output:
        print("in time")
    assert not output.take(b"late")
    assert [output.end(), output.end()] == ["in time\n", "in time\n"]


# -- what is left afterwards -------------------------------------------------------------------------------------------


@pytest.mark.rule("DIS-2")
async def test_late_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Text that a hook's task prints after the hook has answered goes where it would go without a capture."""
    late = asyncio.Event()

    async def prints_late() -> None:
        await late.wait()
        print("late")

    tasks: list[asyncio.Task[None]] = []

    async def leaves(event: str, data: Mapping[str, Any]) -> None:
        print("in time")
        tasks.append(asyncio.create_task(prints_late()))

    async def another(event: str, data: Mapping[str, Any]) -> None:
        late.set()
        await tasks[0]
        print("another")

    first, second = await emitted(leaves), await emitted(another)
    assert (outputs(first), outputs(second)) == ({"hook": "in time\n"}, {"hook": "another\n"})
    assert capsys.readouterr().out == "late\n"


@pytest.mark.rule("DIS-2", "DSP-5")
async def test_endless_hook() -> None:
    """A hook that swallows its cancellation and will not be closed keeps its output, and the streams are put back."""

    async def refuses(event: str, data: Mapping[str, Any]) -> None:
        print("here")
        for _ in range(9):
            with contextlib.suppress(BaseException):
                await asyncio.Event().wait()

    before = places()
    outcome = await emitted(refuses, timeout=LIMIT)
    assert (outcome.answers[0].status, outputs(outcome)) == ("timeout", {"hook": "here\n"})
    assert len(LEFT_BEHIND) == 1
    assert places() == before


@pytest.mark.rule("DIS-2", "DSP-5")
async def test_cancelled_caller() -> None:
    """When the caller is cancelled, the streams are put back."""
    entered = asyncio.Event()

    async def waits(event: str, data: Mapping[str, Any]) -> None:
        print("here")
        entered.set()
        await asyncio.Event().wait()

    before = places()
    task = asyncio.create_task(emitted(waits))
    await entered.wait()
    assert places() != before
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert places() == before


@pytest.mark.rule("DIS-2")
def test_abandoned_caller() -> None:
    """When the emit is never finished, the streams are restored."""

    async def waits(event: str, data: Mapping[str, Any]) -> None:
        print("here")
        with without_capture():
            await asyncio.Event().wait()

    async def abandon() -> None:
        emit = emitted(waits)
        emit.send(None)
        emit.close()

    asyncio.run(abandon())


@pytest.mark.rule("DIS-2")
async def test_somebody_else_replaces_a_stream() -> None:
    """A stream that a program put in place stays; a stand-in that comes back after that forwards everything."""
    host, mine = sys.stdout, io.StringIO()
    redirect = contextlib.redirect_stdout(mine)

    async def redirects(event: str, data: Mapping[str, Any]) -> None:
        print("captured")
        redirect.__enter__()
        print("redirected")

    try:
        assert outputs(await emitted(redirects)) == {"hook": "captured\n"}
        print("still redirected")
        redirect.__exit__(None, None, None)
        assert sys.stdout is not host  # the stand-in, which the redirection put back
        assert sys.stdout.isatty() == host.isatty()
        assert outputs(await emitted(hook("again"))) == {"hook": "again\n"}
        assert sys.stdout is host
        assert mine.getvalue() == "redirected\nstill redirected\n"
    finally:
        sys.stdout = host


@pytest.mark.rule("DIS-2")
async def test_replaced_between_two() -> None:
    """A hook's own redirection holds for it, also while a hook is captured that began after that."""
    registry = HookRegistry()
    registry.on("inner", hook("inner"), name="inside", capture=True)
    mine, inner = io.StringIO(), []

    async def redirects(event: str, data: Mapping[str, Any]) -> None:
        print("captured")
        with contextlib.redirect_stdout(mine):
            inner.append(await registry.emit("inner", {}))
            print("redirected")

    assert outputs(await emitted(redirects)) == {"hook": "captured\n"}
    assert outputs(inner[0]) == {"inside": "inner\n"}
    assert mine.getvalue() == "redirected\n"


@pytest.mark.rule("DIS-2")
async def test_no_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a program without standard streams a hook is captured all the same, and text of other code is dropped."""
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)

    async def prints(event: str, data: Mapping[str, Any]) -> None:
        print("hook", file=sys.stderr)
        with without_capture():
            print("no hook", flush=True)
            assert not sys.stdout.isatty()

    assert outputs(await emitted(prints)) == {"hook": "hook\n"}
    assert (sys.stdout, sys.stderr) == (None, None)


# -- registering -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("DIS-2", "REG-1")
@pytest.mark.parametrize("intent", ["observe", "around"])
def test_nothing_to_keep_it_with(intent: str) -> None:
    """Hooks that give no answer cannot be captured, and registering them so says why."""

    async def anything(*_: object) -> None:
        """Do nothing."""

    name = "tool:pre" if intent == "observe" else "tool"
    sentence = f"^anything: capture=True keeps what it prints with its answer, and {intent} gives none$"
    with pytest.raises(InvalidRegistration, match=sentence):
        getattr(HookRegistry(), intent)(name, anything, capture=True)


# -- hooks that may hide their output ----------------------------------------------------------------------------------


def quiet_answer() -> HookResult:
    """An answer that hides the output."""
    return HookResult(suppress_output=True)


def passed_on() -> HookResult:
    """An answer that another function makes."""
    return quiet_answer()


class Quiet:
    """A hook as an object, and as a method; its answer is made by another method."""

    name, event_type, priority, enabled = "object", "policy:violation", 0, True

    async def execute(self, context: Any, call_next: Any) -> Any:
        """Print; the answer is the registry's."""
        write_lines("object")
        return await call_next()

    def answer(self) -> dict[str, Any]:
        """The answer."""
        return {"action": "continue", "suppress_output": True}

    async def __call__(self, event: str, data: Any) -> Any:
        """Print, and hide it."""
        write_lines("called")
        return self.answer()

    def method(self, event: str, data: Any) -> Any:
        """Print, and hide it."""
        write_lines("method")
        return self.answer()


def plain(event: str, data: Any) -> HookResult:
    """Print, and hide it."""
    write_lines("plain")
    return passed_on()


async def short_form(event: str, data: Any) -> HookResult:
    """Print, and hide it."""
    write_lines("short form")
    return HookResult.proceed(suppress_output=True)


def by_attribute(event: str, data: Any) -> Any:
    """Print, and hide it with an answer that is made by setting an attribute."""
    write_lines("attribute")
    answer = SimpleNamespace(action="continue")
    answer.suppress_output = True
    return vars(answer)


def decorated(event: str, data: Any) -> Any:
    """Print, and hide it."""
    return short_form(event, data)


async def with_name(name: str, event: str, data: Any) -> HookResult:
    """Print, and hide it."""
    write_lines(name)
    return passed_on()


HIDING = [
    plain,
    short_form,
    decorated,
    by_attribute,
    Quiet(),
    Quiet().method,
    partial(with_name, "partial"),
    lambda *given: plain(given[0], given[1]),
]


@pytest.mark.rule("DIS-2")
@pytest.mark.parametrize("handler", HIDING)
@pytest.mark.parametrize("intent", ["register", "on", "gate"])
async def test_hidden_without_an_option(intent: str, handler: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A Python hook that answers suppress_output prints nothing, neither to the streams nor to the transcript."""
    registry = HookRegistry()
    getattr(registry, intent)("tool:pre", handler, name="hook")
    async with SessionCoordinator(registry) as session:
        outcome = await session.emit("tool:pre", CALL)
    assert (capsys.readouterr().out, session.transcript) == ("", ())
    assert outcome.answers[0].output


@pytest.mark.rule("DIS-2")
async def test_other_hooks_are_called_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """A hook whose code does not name suppress_output is not captured, nor is one that is registered so."""
    registry, noisy = HookRegistry(), hook("noise")
    registry.on("tool:pre", noisy, name="noisy")
    registry.on("tool:pre", short_form, name="asked", capture=False)
    outcome = await registry.emit("tool:pre", CALL)
    assert capsys.readouterr().out == "noise\nshort form\n"
    assert outputs(outcome) == {"asked": None}
    session = SessionCoordinator(registry)

    def uses_a_session(event: str, data: Any) -> Any:
        return session.emit(event, data), transcript(data["outcome"])

    uncaptured = (noisy, print, Quiet().execute, uses_a_session, session.emit, len, registry, None)
    assert not any(may_hide_output(one) for one in uncaptured)


@pytest.mark.rule("DIS-2")
async def test_observers_hide_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """An observer gives no answer, so that naming suppress_output there hides nothing."""
    registry = HookRegistry()
    registry.observe("tool:pre", lambda event, data, outcome: plain(event, data))
    await registry.emit("tool:pre", CALL)
    assert capsys.readouterr().out == "plain\n"


@pytest.mark.rule("DIS-2")
def test_looking_at_a_handler_runs_nothing() -> None:
    """The look at a handler's code ends, also in circles, and calls nothing of the handler."""

    class Trap:
        def __getattr__(self, name: str) -> Any:
            pytest.fail(f"{name} was read")

    trap = Trap()

    def circle(event: str, data: Any) -> Any:
        return circle(event, data) or trap.method(event) or later

    assert not may_hide_output(circle)
    later = quiet_answer
    assert may_hide_output(circle)
