"""Capture of the output that a hook prints, for its answer.

    @registry.on("tool:post")
    async def lint(event, data):
        print("42 files looked at")  # → outcome.answers[0].output
        return HookResult(suppress_output=True)

A hook is captured if its code names `suppress_output`, or if its registration says so. All other hooks are called as
they are, so that capturing costs them nothing.

While a hook's output is captured, stand-ins replace `sys.stdout` and `sys.stderr`. A stand-in keeps text printed by a
captured hook or by its tasks, stdout and stderr in one text and in order; all other text goes to the original
stream. The last capture to end restores the streams; without a capture nothing is replaced.

A context variable names the hook that prints, so any number of captures can run at once, also nested. Tasks and
`asyncio.to_thread` inherit the variable.

A capture does not see output of plain threads and of other programs, output written to a file descriptor, and output
of a log handler that stored a stream earlier. Text that a hook's tasks print after the hook has ended is not part of
its output; that text goes where it would go without a capture.
"""

from __future__ import annotations

import codecs
import sys
import threading
from contextlib import suppress
from functools import partial
from itertools import count
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.dispatch.run_hooks import CURRENT
from amplifier_hooks.foreign_code import PRINTING, keep_alive

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from contextvars import ContextVar, Token
    from types import CellType


KEPT: Final = 64 * 1024
"""Bytes of a hook's output that are kept. The output ends with the number of dropped bytes."""

_PRINTING: Final[ContextVar[Output | None]] = PRINTING

_lock: Final = threading.RLock()  # reentrant: a signal handler may print, too
_active: Final[set[Output]] = set()
_numbers: Final = count(1)  # tells if a capture is older than a stand-in

HIDES: Final = "suppress_output"

MOST_PARTS: Final = 1_000
"""Functions, code objects and constants of one handler in which `may_hide_output` looks for the name."""

OURS: Final = __name__.partition(".")[0]


def may_hide_output(handler: object) -> bool:
    """Return True if the code of a handler names `suppress_output`; no code of the handler runs.

    The search covers the functions and methods of the handler's own package that the handler calls by name, and those
    in its closure. An answer that a function of another package makes is not found.
    """
    todo: list[object] = [handler]
    seen: set[int] = set()
    while todo and len(seen) < MOST_PARTS:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if one == HIDES if type(one) is str else type(one) is CodeType and HIDES in one.co_names:
            return True
        todo += _parts_of(one)
    return False


def _parts_of(one: object) -> Iterable[object]:
    """Return the parts of a handler, of code or of a constant that may have the name in them."""
    if type(one) is CodeType:
        return one.co_consts
    if type(one) is tuple:
        return one
    if type(one) is partial:
        return (one.func,)
    function, owners = (one.__func__, (one.__self__,)) if type(one) is MethodType else (one, ())
    if type(function) is not FunctionType:
        return _methods(one, ("__call__",))
    names, home = function.__code__.co_names, _package_of(function)
    inside = [content for cell in function.__closure__ or () for content in _content(cell)]
    named = [function.__globals__.get(name) for name in names]
    called = [*named, *(method for owner in (*owners, *inside) for method in _methods(owner, names))]
    return [
        function.__code__,
        getattr(function, "__wrapped__", None),  # `__dict__` would be made, and kept
        *(part for part in inside if type(part) in (FunctionType, MethodType, partial) and _package_of(part) != OURS),
        *(part for part in called if _package_of(part) != OURS and home in (_package_of(part), OURS)),
    ]


def _methods(owner: object, names: Iterable[str]) -> list[MethodType]:
    """Return the methods of an object with these names, found without running code of its class."""
    found = (next((vars(base)[name] for base in type(owner).__mro__ if name in vars(base)), None) for name in names)
    return [MethodType(one, owner) for one in found if type(one) is FunctionType]


def _package_of(function: object) -> str:
    """Return the name of the package that a function is from; this package's name for anything that is no function."""
    while isinstance(function, MethodType | partial):
        function = function.__func__ if isinstance(function, MethodType) else function.func
    return str(function.__module__).partition(".")[0] if type(function) is FunctionType else OURS


def _content(cell: CellType) -> tuple[object, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # the cell is empty still
        return ()


def capture_output(call: Callable[[str, Any], Any]) -> Callable[[str, Any], Awaitable[Any]]:
    """Return the hook with its output captured for its answer, in whatever way the call ends."""

    async def call_captured(event: str, data: object) -> object:
        run: Any = CURRENT.get()  # every hook is called in a run
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
                keep_alive(answer)  # a coroutine without a reference here would not be closed
            if not output.empty:
                run.attend = run.attend or True  # a hook that printed has an answer to record
            elif run.output is output:
                run.output = None

    return call_captured


def keep_output(data: bytes) -> None:
    """Add data printed by a program of the running hook to the hook's output."""
    run: Any = CURRENT.get()
    if run is not None and data:
        run.output = run.output or Output()
        run.output.add(data)
        run.attend = run.attend or True


class Output:
    """Text printed during one call of a hook.

    Entering it starts the capture; `end` stops it, at any place and any number of times.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._excess = 0
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
            with suppress(ValueError):  # as in `without_capture`
                _PRINTING.reset(self._token)

    @property
    def empty(self) -> bool:
        """True if nothing was printed."""
        return not self._buffer

    def take(self, data: bytes) -> bool:
        """Keep the data, or count the bytes that exceed the limit. Return False if the capture has ended."""
        with _lock:
            if self not in _active:
                return False
            self.add(data)
            return True

    def add(self, data: bytes) -> None:
        """Keep the data, or count the bytes that exceed the limit, even if the capture has ended."""
        with _lock:
            room = KEPT - len(self._buffer)
            self._buffer += data[:room]
            self._excess += len(data) - len(data[:room])

    def end(self) -> str | None:
        """Stop the capture. Return the printed text, ending in `…(+N bytes)` if bytes were dropped, or None."""
        with _lock:
            if self in _active:
                _active.remove(self)
                if not _active:
                    _restore_streams()
        if self.empty:
            return None
        decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        text = decoder.decode(bytes(self._buffer), final=not self._excess)
        torn = len(decoder.getstate()[0])  # the first bytes of a character whose others were dropped
        return f"{text}…(+{self._excess + torn:,} bytes)" if self._excess else text


# -- the stand-ins -----------------------------------------------------------------------------------------------------


class _StandIn:
    """A stand-in that takes the writes of captured hooks and forwards all other writes to its target."""

    def __init__(self, target: Any, number: int | None = None) -> None:
        self.target = target  # None where the program has no such stream
        self.number = next(_numbers) if number is None else number

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def take(self, data: bytes) -> bool:
        """Keep `data` and return True if a captured hook wrote it.

        Captures older than this stand-in write to its target themselves.
        """
        output = _PRINTING.get()
        return output is not None and output.number > self.number and output.take(data)


class _Stream(_StandIn):
    """A standard stream while a capture is active."""

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
    """The `buffer` of a standard stream while a capture is active."""

    def write(self, data: bytes | bytearray | memoryview) -> int:
        written = bytes(data)
        return len(written) if self.take(written) else int(self.target.write(written))


STREAMS: Final = ("stdout", "stderr")


def _install_stand_ins() -> None:
    """Replace the streams for a capture. A program may have replaced a stream since the last capture."""
    for name in STREAMS:
        there = getattr(sys, name)
        if type(there) is not _Stream:
            setattr(sys, name, _Stream(there))


def _restore_streams() -> None:
    """Restore the streams that stand-ins replace. A stream that a program has put in place meanwhile stays.

    If the program restores such a stand-in later, the stand-in only forwards.
    """
    for name in STREAMS:
        there = getattr(sys, name)
        if type(there) is _Stream:
            setattr(sys, name, there.target)
