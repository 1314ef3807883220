"""Messages for the person at the screen, and the output of hooks."""
# ruff: noqa: T201  # some hooks here print

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import subprocess
import sys
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from wcwidth import wcwidth

from amplifier_hooks import HookRegistry, HookResult, Outcome, SessionCoordinator
from amplifier_hooks.result import UserMessage
from amplifier_hooks.session.display import (
    DEADLINE,
    LONGEST,
    TALLEST,
    CollectingDisplay,
    LogDisplay,
    TerminalDisplay,
    show,
    transcript,
)
from amplifier_hooks.testing import CollectingAudit, RecordingContext, ScriptedApprover

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_hooks.ports import ApprovalRequest, Decision
    from amplifier_hooks.result import Level

ROWS, COLUMNS = 60, 40
LIMIT = 0.05  # seconds that a display has in these tests
SOON = 20.0  # seconds; a test takes that long only for broken code
AGREED = st.characters().filter(lambda char: wcwidth(char) in (-1, cell_len(char)))  # terminals differ on the others
HOSTILE = "ok\x1b[2J\x1b[1;1H\x07\x08\x9b31m\r\u202egnp.\u200b\x00\x1b]8;;http://evil\x1b\\ [red]red[/red] :boom:"


def message(text: str, level: Level = "info", hook: str = "lint") -> UserMessage:
    """Return a message as the registry hands it on."""
    return UserMessage(text=text, level=level, hook_name=hook, source=f"hook:{hook}")


class Behaving:
    """A display that behaves differently at the first message, and keeps the others."""

    def __init__(self, first: Callable[[], Any]) -> None:
        self.first: Callable[[], Any] | None = first
        self.messages: list[str] = []

    def show_message(self, message: str, level: Level, source: str) -> Any:
        """Run the behaviour, or keep the message."""
        first, self.first = self.first, None
        if first is not None:
            return first()
        self.messages.append(message)
        return None


def failures(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return hook and sentence of every failure that was logged."""
    records = [record for record in caplog.records if record.getMessage() == "display_failed"]
    return [(record.__dict__["hook"], record.__dict__["error"]) for record in records]


# -- handing messages over ---------------------------------------------------------------------------------------------


@pytest.mark.rule("DIS-1", "DIS-3")
async def test_order() -> None:
    """Messages are shown in order, with level and source."""
    display = CollectingDisplay()
    await show(display, [message("one"), message("two", "error")])
    assert display.messages == [("one", "info", "hook:lint"), ("two", "error", "hook:lint")]


@pytest.mark.rule("DIS-1", "DIS-3")
async def test_async_display() -> None:
    """An async display is shown a message only after it has ended the one before."""
    steps: list[str] = []

    class Slow:
        async def show_message(self, message: str, level: Level, source: str) -> None:
            steps.append(f"{message} begins")
            await asyncio.sleep(0)
            steps.append(f"{message} ends")

    await show(Slow(), [message("one"), message("two")])
    assert steps == ["one begins", "one ends", "two begins", "two ends"]


def raising(error: BaseException) -> Callable[[], Any]:
    """Return a function that raises this error."""

    def at_once() -> None:
        raise error

    return at_once


def raising_later(error: BaseException) -> Callable[[], Awaitable[None]]:
    """Return a function that raises this error when its result is awaited."""

    async def later() -> None:
        raise error

    return later


class Unsayable(Exception):
    """An error that cannot be turned into text."""

    def __str__(self) -> str:
        raise ValueError


class Falsely:
    """An object that only claims to be awaitable."""

    def __await__(self) -> int:
        return 5


@pytest.mark.rule("DIS-3")
@pytest.mark.parametrize(
    ("first", "sentence"),
    [
        (raising(BrokenPipeError("gone")), "BrokenPipeError: gone"),
        (raising_later(BrokenPipeError("gone")), "BrokenPipeError: gone"),
        (raising(SystemExit(1)), "SystemExit: 1"),
        (raising_later(SystemExit(1)), "SystemExit: 1"),
        (raising(asyncio.CancelledError()), "CancelledError"),
        (raising_later(asyncio.CancelledError()), "CancelledError"),
        (raising_later(Unsayable()), "Unsayable"),
        (lambda: 5, "it returned int, which is nothing to wait for"),
        (Falsely, "TypeError: __await__() returned non-iterator of type 'int'"),
    ],
)
async def test_failing_display(first: Callable[[], Any], sentence: str, caplog: pytest.LogCaptureFixture) -> None:
    """A display that fails at a message in any way is logged once, by the hook's name, and shown the next."""
    display = Behaving(first)
    await show(display, [message("one"), message("two", hook="types")])
    assert display.messages == ["two"]
    assert failures(caplog) == [("lint", sentence)]


@pytest.mark.rule("DIS-3")
async def test_no_display(caplog: pytest.LogCaptureFixture) -> None:
    """An object that is no display breaks nothing, and every message that it did not show is logged."""
    nothing: Any = object()
    await show(nothing, [message("one"), message("two", hook="types")])
    assert [hook for hook, _ in failures(caplog)] == ["lint", "types"]


@pytest.mark.rule("DIS-3")
async def test_hanging_display(caplog: pytest.LogCaptureFixture) -> None:
    """A display that hangs is left at its deadline, and the messages after that are still shown."""
    display = Behaving(lambda: asyncio.Event().wait())
    await show(display, [message("one"), message("two", hook="types")], deadline=LIMIT)
    assert display.messages == ["two"]
    assert failures(caplog) == [("lint", "its time was up")]


@pytest.mark.rule("DIS-3")
async def test_always_hanging_display(caplog: pytest.LogCaptureFixture) -> None:
    """A display that hangs at every message holds the session hardly longer than one that hangs once."""

    class Hangs:
        async def show_message(self, message: str, level: Level, source: str) -> None:
            await asyncio.Event().wait()

    began = time.monotonic()
    await show(Hangs(), [message("text")] * 50, deadline=0.2)
    assert time.monotonic() - began < SOON
    assert len(failures(caplog)) == 50


@pytest.mark.rule("DIS-3")
async def test_endless_display(caplog: pytest.LogCaptureFixture) -> None:
    """A display that swallows its cancellation is left behind; its late error does no harm."""
    let_go, gone = asyncio.Event(), asyncio.Event()

    async def swallows() -> None:
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await let_go.wait()
        gone.set()
        raise OSError

    display = Behaving(swallows)
    await show(display, [message("one"), message("two")], deadline=LIMIT)
    assert display.messages == ["two"]
    assert not gone.is_set()
    let_go.set()
    await asyncio.wait_for(gone.wait(), SOON)
    await asyncio.sleep(0)
    assert failures(caplog) == [("lint", "its time was up")]


@pytest.mark.rule("DIS-3")
async def test_blocking_display(caplog: pytest.LogCaptureFixture) -> None:
    """A plain display that blocks the loop cannot be stopped, but is logged."""
    await show(Behaving(lambda: time.sleep(LIMIT)), [message("one")], deadline=LIMIT)
    ((hook, sentence),) = failures(caplog)
    assert (hook, sentence[:8]) == ("lint", "it took ")


@pytest.mark.rule("DIS-3")
async def test_cancelled_caller() -> None:
    """Cancelling the caller cancels the display, is raised, and shows nothing more."""
    entered, left = asyncio.Event(), asyncio.Event()

    async def hangs() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    display = Behaving(hangs)
    task = asyncio.create_task(show(display, [message("one"), message("two")]))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(left.wait(), SOON)
    assert display.messages == []


@pytest.mark.rule("DIS-3")
@pytest.mark.parametrize("first", [raising(KeyboardInterrupt())])
async def test_interrupt(first: Callable[[], Any]) -> None:
    """Ctrl-C while a display works is still Ctrl-C."""
    with pytest.raises(KeyboardInterrupt):
        await show(Behaving(first), [message("one")])


@pytest.mark.rule("DIS-3")
async def test_flooding_display(capsys: pytest.CaptureFixture[str]) -> None:
    """A display that prints megabytes breaks nothing, and gets the next message."""
    display = Behaving(lambda: print("x" * 5_000_000))
    await show(display, [message("one"), message("two")])
    assert display.messages == ["two"]
    assert len(capsys.readouterr().out) == 5_000_001


def test_deadline() -> None:
    """The default deadline of a display is a second."""
    assert DEADLINE == 1.0


# -- the log -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("DIS-3")
@pytest.mark.parametrize("level", ["info", "warning", "error"])
async def test_log_display(level: Level, caplog: pytest.LogCaptureFixture) -> None:
    """The default display logs the message at its level, on one line."""
    with caplog.at_level(logging.INFO, "amplifier_hooks"):
        await show(LogDisplay(), [message("a\nb", level)])
    (record,) = caplog.records
    assert (record.levelname.lower(), record.getMessage()) == (level, "user_message")
    assert (record.__dict__["text"], record.__dict__["source"]) == ("a\\u{0A}b", "hook:lint")


@pytest.mark.rule("DIS-3")
async def test_long_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """A message of megabytes is logged with its beginning and the size of the rest."""
    with caplog.at_level(logging.INFO, "amplifier_hooks"):
        await show(LogDisplay(), [message("x" * 3_000_000)])
    text = caplog.records[0].__dict__["text"]
    assert len(text.encode()) == LONGEST
    assert text.endswith("x…(+2,991,829 bytes)")


# -- the terminal ------------------------------------------------------------------------------------------------------


class Terminal(io.TextIOWrapper):
    """A stream that claims to be a terminal, and keeps the bytes."""

    def __init__(self, *, is_terminal: bool = True, encoding: str = "utf-8") -> None:
        self.raw_bytes = io.BytesIO()
        self.is_terminal = is_terminal
        super().__init__(self.raw_bytes, encoding=encoding, write_through=True)

    def isatty(self) -> bool:
        """Return True if the stream claims to be a terminal."""
        return self.is_terminal

    @property
    def written(self) -> bytes:
        """All bytes so far."""
        return self.raw_bytes.getvalue()

    @property
    def screen(self) -> list[str]:
        """The rows that a person sees."""
        screen = pyte.Screen(COLUMNS, ROWS)
        pyte.ByteStream(screen).feed(self.written.replace(b"\n", b"\r\n"))  # as a terminal's driver does
        return [line.rstrip() for line in screen.display if line.strip()]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return a terminal with colours, of 40 columns."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    return Terminal()


@pytest.mark.rule("DIS-1", "DIS-3")
@pytest.mark.parametrize(
    ("level", "row"),
    [
        ("info", "○ info  hook:lint  1 finding"),
        ("warning", "◆ warning  hook:lint  1 finding"),
        ("error", "▲ error  hook:lint  1 finding"),
    ],
)
async def test_levels(level: Level, row: str, terminal: Terminal) -> None:
    """A message is a row: the level as a shape and a word, the source, and the text."""
    await show(TerminalDisplay(terminal), [message("1 finding", level)])
    assert terminal.screen == [row]
    assert b"\x1b[" in terminal.written


@pytest.mark.rule("DIS-3")
async def test_no_color(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR no colour is written, and the message keeps its text."""
    monkeypatch.setenv("NO_COLOR", "1")
    await show(TerminalDisplay(terminal), [message("a\nb", "warning")])
    assert terminal.screen == ["◆ warning  hook:lint  a", "  │ b"]
    assert terminal.written.decode() == "\x1b[1m◆ warning\x1b[0m  hook:lint  a\n\x1b[2m  │ \x1b[0mb\n"  # bold, dim


@pytest.mark.rule("DIS-3")
async def test_no_terminal(terminal: Terminal) -> None:
    """A file gets plain text, and rows as long as they are."""
    terminal.is_terminal = False
    await show(TerminalDisplay(terminal), [message("word " * 30 + "\n\nend", "error")])
    assert terminal.written.decode() == f"▲ error  hook:lint  {'word ' * 30}\n  │ \n  │ end\n"


@pytest.mark.rule("DIS-3")
async def test_no_unicode(terminal: Terminal) -> None:
    """Shapes and characters that an encoding lacks are shown by number."""
    narrow = Terminal(encoding="latin-1", is_terminal=False)
    messages = [message("é 日\u0301\nb", "info"), message("c", "warning"), message("d", "error")]
    await show(TerminalDisplay(narrow), messages)
    assert narrow.written.decode("latin-1").splitlines() == [
        "\\u25cb info  hook:lint  é \\u65e5\\u0301",
        "  \\u2502 b",
        "\\u25c6 warning  hook:lint  c",
        "\\u25b2 error  hook:lint  d",
    ]


@pytest.mark.rule("DIS-3")
@pytest.mark.fault("F-CLI-06", "F-CLI-07")
@pytest.mark.parametrize("place", ["text", "hook"])
async def test_hostile_text(place: str, terminal: Terminal) -> None:
    """Control characters in a message or a name reach the terminal as visible escapes, and markup as it was written."""
    hostile = message(HOSTILE) if place == "text" else message("text", hook=HOSTILE)
    await show(TerminalDisplay(terminal), [hostile])
    for piece in ("\x1b[2J", "\x1b[1;1H", "\x1b]", "\x07", "\x08", "\x9b", "\r", "\u202e", "\u200b", "\x00"):
        assert piece.encode() not in terminal.written
    seen = "".join(row.removeprefix("  │ ") for row in terminal.screen)
    assert "ok\\u{1B}[2J\\u{1B}[1;1H\\u{07}\\u{08}\\u{9B}31m\\u{0D}" in seen
    assert "[red]red[/red]:boom:" in seen.replace(" ", "")


@pytest.mark.rule("DIS-3")
@pytest.mark.parametrize("before", ["\n", "\n\n  ", "x" * 200, " " * 60, "日" * 100, "word " * 40])
async def test_forged_message(before: str, terminal: Terminal) -> None:
    """No text begins a row of the screen, wherever it breaks: a forged message stands behind a bar."""
    display = TerminalDisplay(terminal)
    for shift in range(COLUMNS):
        await show(display, [message("y" * shift + before + "▲ error  hook:guard  all is lost")])
    assert not [row for row in terminal.screen if not row.startswith(("○ info  hook:lint", "  │"))]


@pytest.mark.rule("DIS-3")
@given(text=st.text(AGREED, max_size=300), name=st.text(AGREED, max_size=60), columns=st.integers(14, 100))
def test_any_text(text: str, name: str, columns: int) -> None:
    """Every row begins with a mark of the display, and none is wider than the terminal, for any text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("NO_COLOR", "1")
        terminal = Terminal()
        asyncio.run(show(TerminalDisplay(terminal), [message(text, hook=name)]))
    rows = terminal.written.decode().removesuffix("\n").split("\n")
    assert rows[0].startswith("○ info  ")
    assert all(row.startswith("\x1b[2m  │ \x1b[0m") for row in rows[1:])
    screen = pyte.Screen(columns, 500)
    pyte.ByteStream(screen).feed(terminal.written.replace(b"\n", b"\r\n"))
    assert screen.cursor.y == len(rows)


@pytest.mark.rule("DIS-3")
@pytest.mark.parametrize("text", ["x" * 10_000_000, "x\n" * 5_000_000, "x " * 4_000_000])
async def test_long_message(text: str, terminal: Terminal) -> None:
    """A message of megabytes takes a screenful at most, and says that there is more."""
    await show(TerminalDisplay(terminal), [message(text)])
    rows = terminal.screen
    assert len(rows) == TALLEST
    assert rows[-1].endswith("more rows")


@pytest.mark.rule("DIS-3")
async def test_long_row() -> None:
    """A long row in a file ends with the number of bytes left out."""
    file = Terminal(is_terminal=False)
    await show(TerminalDisplay(file), [message("x" * 1_000_000)])
    assert file.written.decode().endswith("x…(+991,829 bytes)\n")
    assert file.written.count(b"\n") == 1


@pytest.mark.rule("DIS-3")
async def test_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The default is standard error, because standard output may be data of the program."""
    await show(TerminalDisplay(), [message("1 finding")])
    assert capsys.readouterr() == ("", "○ info  hook:lint  1 finding\n")


def test_light_import() -> None:
    """The library `rich` is imported when a display is made, not before."""
    program = "import sys; from amplifier_hooks.session.display import TerminalDisplay\n"
    program += "print('rich' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert run.stdout == "False\n"


# -- two audiences -----------------------------------------------------------------------------------------------------


class Desk:
    """A session with a screen, a context, and all its outcomes."""

    def __init__(self) -> None:
        self.registry = HookRegistry()
        self.display = CollectingDisplay()
        self.context = RecordingContext()
        self.outcomes: list[Outcome] = []
        self.audit = CollectingAudit()
        self.session = SessionCoordinator(
            hooks=self.registry, context=self.context, display=self.display, audit=self.audit
        )

        @self.registry.observe("*")
        async def keep(event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
            self.outcomes.append(outcome)

    @property
    def shown(self) -> str:
        """All texts that the person read."""
        return "\n".join(text for text, _, _ in self.display.messages)

    @property
    def read(self) -> str:
        """All texts that the model read."""
        return "\n".join(self.context.texts)

    @property
    def printed(self) -> list[tuple[str, str]]:
        """The transcript of the whole session."""
        return [line for outcome in self.outcomes for line in transcript(outcome)]


@pytest.mark.rule("DIS-1", "RES-7")
@pytest.mark.parametrize("event", ["tool:pre", "tool:post"])
@pytest.mark.parametrize("action", ["continue", "deny", "modify", "inject_context", "ask_user"])
async def test_two_audiences(event: str, action: Any) -> None:
    """With any action the message is only on the screen, and the injected text only in the context."""
    desk = Desk()

    @desk.registry.on(event)
    async def lint(event: str, data: Mapping[str, Any]) -> HookResult:
        return HookResult(
            action=action,
            data={"note": "n"} if action == "modify" else None,
            context_injection="text for the model",
            user_message="text for the user",
            user_message_level="warning",
        )

    async with desk.session as session:
        result = await session.call_tool("Write", {"a": 1}, lambda _: "written")
    assert desk.display.messages.count(("text for the user", "warning", "hook:lint")) == 1
    assert "text for the model" not in desk.shown
    assert "text for the user" not in desk.read
    assert "text for the user" not in (result.reason or "")
    assert "text for the model" in (result.reason if result.denied else desk.read)  # type: ignore[operator]


@pytest.mark.rule("DIS-1")
@pytest.mark.parametrize("event", ["prompt:submit", "tool:post", "agent:post", "custom:event"])
async def test_two_audiences_of_events(event: str) -> None:
    """For any emitted event, too, the message is only on the screen, and the injected text only in the context."""
    desk = Desk()

    @desk.registry.on(event)
    async def lint(event: str, data: Mapping[str, Any]) -> HookResult:
        return HookResult.inject("for the model", user_message="for the user")

    async with desk.session as session:
        await session.emit(event, {"prompt": "p", "tool_name": "Write"})
    assert desk.display.messages.count(("for the user", "info", "hook:lint")) == 1
    assert "for the model" in desk.read
    assert "for the model" not in desk.shown
    assert "for the user" not in desk.read


@pytest.mark.rule("DIS-1")
@pytest.mark.parametrize("label", [None, "session", "hook:other", "registry"])
async def test_source(label: str | None) -> None:
    """The source of a hook's message always says that it comes from a hook."""
    desk = Desk()

    @desk.registry.on("tool:pre")
    async def lint(event: str, data: Mapping[str, Any]) -> HookResult:
        return HookResult.proceed(user_message="text", user_message_source=label)

    async with desk.session as session:
        await session.call_tool("Write", {}, lambda _: "written")
    assert ("text", "info", f"hook:{label or 'lint'}") in desk.display.messages


# -- output of hooks ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("DIS-2")
@pytest.mark.parametrize("hidden", [True, False])
async def test_transcript(hidden: bool) -> None:
    """A hook's output is in the transcript unless the hook hides it, and always on record."""
    desk = Desk()

    @desk.registry.on("tool:pre", capture=True)
    async def lint(event: str, data: Mapping[str, Any]) -> HookResult:
        print("42 files")
        return HookResult.proceed(suppress_output=hidden)

    @desk.registry.on("tool:pre", capture=True)
    async def types(event: str, data: Mapping[str, Any]) -> None:
        print("no errors")

    @desk.registry.on("tool:pre", capture=True)
    async def silent(event: str, data: Mapping[str, Any]) -> HookResult:
        return HookResult.proceed(user_message="said, not printed")

    async with desk.session as session:
        await session.call_tool("Write", {}, lambda _: "written")
    assert desk.printed == [("lint", "42 files\n"), ("types", "no errors\n")][hidden:]
    assert desk.session.transcript == tuple(desk.printed)
    (outcome,) = (outcome for outcome in desk.outcomes if outcome.event == "tool:pre")
    assert [answer.output for answer in outcome.answers] == ["42 files\n", "no errors\n", None]


@pytest.mark.rule("DIS-2")
async def test_what_cannot_be_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    """A hook that hides its output hides neither the tool's result and output, nor a message, nor a denial."""
    desk = Desk()

    @desk.registry.on("tool:*", capture=True)
    async def hides(event: str, data: Mapping[str, Any]) -> HookResult:
        print("hidden")
        denies = data.get("tool_name") == "Bash"
        return HookResult(
            action="deny" if denies else "continue",
            reason="not here",
            suppress_output=True,
            user_message=f"message at {event}",
        )

    def tool(given: Mapping[str, Any]) -> str:
        print("the tool's output")
        return "the tool's result"

    async with desk.session as session:
        done = await session.call_tool("Write", {}, tool)
        denied = await session.call_tool("Bash", {}, tool)
    assert (done.value, denied.denied, "not here" in str(denied.reason)) == ("the tool's result", True, True)
    assert (desk.shown.count("message at tool:pre"), desk.shown.count("message at tool:post")) == (2, 1)
    assert desk.printed == []
    assert capsys.readouterr().out == "the tool's output\n"


@pytest.mark.rule("DIS-2", "AUD-1")
async def test_output_on_record() -> None:
    """The record has size and digest of every output of a hook, and whether it was hidden; not the text."""
    desk = Desk()

    @desk.registry.on("tool:pre", capture=True)
    async def lint(event: str, data: Mapping[str, Any]) -> HookResult:
        print("naïve")
        return HookResult.proceed(suppress_output=True)

    @desk.registry.on("tool:pre", capture=True)
    async def silent(event: str, data: Mapping[str, Any]) -> HookResult:
        return HookResult.proceed(user_message="said, not printed")

    await desk.session.call_tool("Write", {}, lambda _: "written")
    printed, nothing = desk.audit.facts("outcome")[0]["answers"]
    assert printed["output"] == {"size": 7, "digest": sha256("naïve\n".encode()).hexdigest(), "hidden": True}
    assert "output" not in nothing


@pytest.mark.rule("DIS-2")
async def test_transcript_is_bounded() -> None:
    """A session keeps the last 1,000 outputs."""
    desk = Desk()

    @desk.registry.on("tool:pre", capture=True)
    async def counts(event: str, data: Mapping[str, Any]) -> None:
        print(data["number"])

    for number in range(1_003):
        await desk.session.emit("tool:pre", {"number": number})
    assert [text for _, text in desk.session.transcript] == [f"{number}\n" for number in range(3, 1_003)]


@pytest.mark.rule("DIS-2")
@pytest.mark.parametrize("operation", ["tool", "agent", "workflow", "memory"])
async def test_operation_inside_a_hook(operation: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The output of operations that a hook calls, and of their approver and tasks, is not the hook's output."""
    registry = HookRegistry()

    class Asks(ScriptedApprover):
        async def request(self, request: ApprovalRequest) -> Decision:
            print("the approver's")
            return await super().request(request)

    registry.gate(f"{operation}:pre", lambda event, data: HookResult.ask())
    session = SessionCoordinator(hooks=registry, approvals=Asks("Allow"))

    async def call(*_given: Any) -> None:
        await asyncio.to_thread(print, "its own")

    ways: dict[str, Callable[[], Awaitable[Any]]] = {
        "tool": lambda: session.call_tool("Write", {}, call),
        "agent": lambda: session.invoke_agent("coder", {}, call),
        "workflow": lambda: session.run_step("flow", "one", {}, call),
        "memory": lambda: session.operation("memory", {"content": "x"}, call),
    }

    @registry.on("host:event", capture=True)
    async def calls(event: str, data: Mapping[str, Any]) -> HookResult:
        print("before")
        await ways[operation]()
        print("after")
        return HookResult.proceed(suppress_output=True)

    outcome = await session.emit("host:event", {})
    assert capsys.readouterr().out == "the approver's\nits own\n"
    assert [answer.output for answer in outcome.answers] == ["before\nafter\n"]


@pytest.mark.rule("DIS-2")
async def test_failed_hook_hides_nothing() -> None:
    """The output of a hook that failed is in the transcript."""
    registry = HookRegistry()

    @registry.on("tool:pre", capture=True)
    async def fails(event: str, data: Mapping[str, Any]) -> HookResult:
        print("about to fail")
        raise OSError

    assert transcript(await registry.emit("tool:pre", {})) == [("fails", "about to fail\n")]


@pytest.mark.rule("DIS-2", "DIS-1")
async def test_message_inside_a_hook(capsys: pytest.CaptureFixture[str]) -> None:
    """A message that is shown while a captured hook runs is on the screen, and not part of that hook's output."""
    registry = HookRegistry()

    class Prints:
        def show_message(self, message: str, level: Level, source: str) -> None:
            print(message)

    @registry.on("outer", capture=True)
    async def calls(event: str, data: Mapping[str, Any]) -> HookResult:
        print("hidden")
        await show(Prints(), [message("printed display")])
        await show(TerminalDisplay(), [message("terminal display")])
        return HookResult.proceed(suppress_output=True)

    outcome = await registry.emit("outer", {})
    assert outcome.answers[0].output == "hidden\n"
    assert capsys.readouterr() == ("printed display\n", "○ info  hook:lint  terminal display\n")


@pytest.mark.rule("DIS-2")
async def test_nothing_printed() -> None:
    """Without captured hooks there is no transcript."""
    registry = HookRegistry()
    registry.on("tool:pre", lambda event, data: HookResult.deny("no"))
    assert transcript(await registry.emit("tool:pre", {})) == []


@pytest.mark.rule("DIS-3")
def test_the_note_of_what_is_left_out_fits(terminal: Terminal) -> None:
    """The note about rows left out fits a terminal of any width."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "14")
        patch.setenv("NO_COLOR", "1")
        asyncio.run(show(TerminalDisplay(terminal), [message("x" * 400)]))
    rows = terminal.written.decode().removesuffix("\n").split("\n")
    screen = pyte.Screen(14, 500)
    pyte.ByteStream(screen).feed(terminal.written.replace(b"\n", b"\r\n"))
    assert screen.cursor.y == len(rows)
    assert rows[-1].endswith("s\x1b[0m")
