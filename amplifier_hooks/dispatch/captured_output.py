"""What a hook prints, put aside for its answer.

    @registry.on("tool:post", capture=True)
    async def lint(event, data):
        print("42 files looked at")  # → outcome.answers[0].output

While the output of some hook is captured, `sys.stdout` and `sys.stderr` are stand-ins that ask whose print it is. What
comes from such a hook, from a task it makes or from a thread it starts is kept, stdout and stderr in one text, in the
order it came; everything else goes where it always went. The last capture to end puts the streams back, and without
any nothing is put in their place.

Whose print it is says a context variable, so any number of hooks can be captured at once, and one inside the other.
Tasks and `asyncio.to_thread` carry it along. A plain thread begins without it, and so `threading.Thread.start` has a
stand-in, too.

Not seen: what another program writes, what goes to a file descriptor, and what a log handler writes to a stream that it
took hold of earlier. What a hook's tasks and threads print after it has ended is not its output any more; that goes
where it would without a capture.
"""

from __future__ import annotations

import codecs
import sys
import threading
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar, Token
from itertools import count
from types import MethodType
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.abandoned_work import keep_alive
from amplifier_hooks.dispatch.run_hooks import CURRENT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator


KEPT: Final = 64 * 1024
"""Bytes of a hook's output that are kept; of the rest it is said how much it was."""

_PRINTING: ContextVar[Output | None] = ContextVar("amplifier_hooks.printing", default=None)
"""Whose output the running code's prints are."""

NOTHING: Final = nullcontext()

_lock: Final = threading.RLock()  # reentrant: a signal handler may print, too
_active: Final[set[Output]] = set()
_numbers: Final = count(1)  # which came first, a capture or a stand-in


def capture_output(call: Callable[[str, Any], Any]) -> Callable[[str, Any], Awaitable[Any]]:
    """The same hook, with everything it prints kept for its answer, whatever becomes of it."""

    async def call_captured(event: str, data: object) -> object:
        run: Any = CURRENT.get()  # hooks are called in a run, always
        run.output = output = Output()
        answer = None
        try:
            with output:
                answer = call(event, data)
                if hasattr(answer, "__await__"):
                    return await answer
                return answer
        finally:
            if getattr(answer, "cr_frame", None) is not None:
                keep_alive(answer)  # it would not be closed
            if not output.empty:
                run.attend = True  # a hook that printed has something to say
            elif run.output is output:
                run.output = None

    return call_captured


def keep_output(data: bytes) -> None:
    """What a program of the running hook's has printed: it belongs to the hook's output."""
    run: Any = CURRENT.get()
    if run is not None and data:
        run.output = run.output or Output()
        run.output.add(data)
        run.attend = True


def without_capture() -> AbstractContextManager[None]:
    """What is printed in here is no hook's output: a tool's, say, that a hook had called, or a message for the user."""
    return NOTHING if _PRINTING.get() is None else _without_capture()


@contextmanager
def _without_capture() -> Iterator[None]:
    token = _PRINTING.set(None)
    try:
        yield
    finally:
        with suppress(ValueError):  # closed from another context, as coroutines are that nobody finishes
            _PRINTING.reset(token)


class Output:
    """What one call of a hook prints. Enter it to listen; `end` it from anywhere, any number of times."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._dropped = 0
        self._token: Token[Output | None] | None = None
        self.number = 0

    def __enter__(self) -> None:
        with _lock:
            _active.add(self)
            _install_stand_ins()
            self.number = next(_numbers)
        self._token = _PRINTING.set(self)

    def __exit__(self, *_: object) -> None:
        self.end()
        if self._token is not None:
            with suppress(ValueError):  # as in `outside`
                _PRINTING.reset(self._token)

    @property
    def empty(self) -> bool:
        """Whether nothing was printed."""
        return not self._kept

    def take(self, data: bytes) -> bool:
        """Keep this, or count it where there is no room left. False when nobody listens any more."""
        with _lock:
            if self not in _active:
                return False
            self.add(data)
            return True

    def add(self, data: bytes) -> None:
        """Keep this, or count it where there is no room left, whether anybody listens or not."""
        with _lock:
            room = KEPT - len(self._kept)
            self._kept += data[:room]
            self._dropped += len(data) - len(data[:room])

    def end(self) -> str | None:
        """Listen no longer. Returns what was printed, ending in `…(+N bytes)` where that was too much."""
        with _lock:
            if self in _active:
                _active.remove(self)
                if not _active:
                    _restore_streams()
        if self.empty:
            return None
        decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        text = decoder.decode(bytes(self._kept), final=not self._dropped)
        torn = len(decoder.getstate()[0])  # the first bytes of a character whose others were dropped
        return f"{text}…(+{self._dropped + torn:,} bytes)" if self._dropped else text


# -- the stand-ins -----------------------------------------------------------------------------------------------------


class _StandIn:
    """Takes what captured hooks write; everything else is its target's."""

    def __init__(self, target: Any, number: int | None = None) -> None:
        self.target = target  # None where the program has no such stream
        self.number = next(_numbers) if number is None else number

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def take(self, data: bytes) -> bool:
        """Whether this is a captured hook's. One from before our time has chosen our target itself."""
        output = _PRINTING.get()
        return output is not None and output.number > self.number and output.take(data)


class _Stream(_StandIn):
    """A standard stream while somebody listens."""

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self.take(text.encode("utf-8", "surrogatepass")) or self.target is None:
            return len(text)
        return int(self.target.write(text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self.target is not None:
            self.target.flush()

    def isatty(self) -> bool:
        return _PRINTING.get() is None and self.target is not None and bool(self.target.isatty())

    @property
    def buffer(self) -> Any:
        return _Bytes(self.target.buffer, self.number)


class _Bytes(_StandIn):
    """The bytes of one, for those who write such."""

    def write(self, data: bytes | bytearray | memoryview) -> int:
        written = bytes(data)
        return len(written) if self.take(written) else int(self.target.write(written))


class _Start:
    """`threading.Thread.start`, which tells the new thread whose prints its own are."""

    def __init__(self, target: Callable[[threading.Thread], None]) -> None:
        self.target = target

    def __get__(self, thread: threading.Thread | None, _: type | None = None) -> Any:
        return self if thread is None else MethodType(self, thread)

    def __call__(self, thread: threading.Thread) -> None:
        output = _PRINTING.get()
        if output is not None:
            run = thread.run

            def run_printing() -> None:
                del thread.__dict__["run"]  # else the thread refers to itself
                token = _PRINTING.set(output)
                try:
                    run()
                finally:
                    _PRINTING.reset(token)

            thread.__dict__["run"] = run_printing
        self.target(thread)


_PLACES: Final[tuple[tuple[Any, str, Callable[[Any], Any]], ...]] = (
    (sys, "stdout", _Stream),
    (sys, "stderr", _Stream),
    (threading.Thread, "start", _Start),
)


def _install_stand_ins() -> None:
    """Every time, not only the first: somebody else may have replaced a stream since."""
    for owner, name, stand_in in _PLACES:
        there = getattr(owner, name)
        if type(there) is not stand_in:
            setattr(owner, name, stand_in(there))


def _restore_streams() -> None:
    """Where somebody else has put another in our place, that one stays; if ours comes back, it only hands on."""
    for owner, name, stand_in in _PLACES:
        there = getattr(owner, name)
        if type(there) is stand_in:
            setattr(owner, name, there.target)
