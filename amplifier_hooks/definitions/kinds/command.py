"""A hook that is a command: an event goes to its standard input; its exit status and standard output are the answer.

`Programs` runs a program to its end, limits its output, and kills it together with its children. A program gets a
session and process group of its own, so it has no terminal to read from and can be ended with all its children at once.
The answer is complete when the program exits: a child that holds the pipes open neither delays the answer nor survives
it. On Linux a child that starts a session of its own is found by a mark in its environment, ended and reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from functools import cache
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

from attrs import Factory, define, evolve, field, frozen

from amplifier_hooks.definitions.kinds.event_codec import (
    HOPS_VARIABLE,
    LARGEST_ANSWER,
    NATIVE,
    Codec,
    ProgramExit,
    next_hop,
)
from amplifier_hooks.definitions.trust import shebang
from amplifier_hooks.dispatch import captured_output
from amplifier_hooks.errors import HookUnavailable, InvalidRegistration, InvalidResult
from amplifier_hooks.foreign_code import DaemonPool
from amplifier_hooks.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from amplifier_hooks.definitions.private_copies import HookFiles
    from amplifier_hooks.result import HookResult


log = get_logger(__name__)

AT_ONCE: Final = 8
WAITING: Final = 512
"""Limits of the programs that run at the same time, and of those that wait for their turn."""

ERRORS_KEPT: Final = 16 * 1024
"""Bytes of standard error that are kept, the last ones."""
MOST_ERRORS: Final = 1024 * 1024
"""Bytes of standard error after which a program is ended."""

FAREWELL: Final = 0.08
"""Seconds to clean up for a program that has received SIGTERM; the dispatcher waits a little longer than that."""
DRAIN: Final = 0.1
"""Seconds to wait for the end of the pipes after the program has exited and its group was killed."""


LEFT_VARIABLE: Final = "AMPLIFIER_HOOKS_COMMAND"
"""Variable with the mark of a command. Its descendants inherit it, in whatever session or group they are."""
ROUNDS: Final = 5
"""Most searches for processes that others start meanwhile."""


@define(eq=False)
class Programs:
    """Runner of programs: `at_once` of them run at a time, and the others wait their turn, in order.

    `waiting` limits the queue; time in the queue counts against the hook's timeout. `farewell` is the time in seconds
    to clean up after SIGTERM, `longest` the limit of standard output in bytes.
    """

    at_once: int = AT_ONCE
    waiting: int = WAITING
    farewell: float = FAREWELL
    longest: int = LARGEST_ANSWER
    _turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = field(
        factory=WeakKeyDictionary, init=False
    )
    _queued: int = field(default=0, init=False)
    _endings: set[asyncio.Task[list[str]]] = field(factory=set, init=False)
    """Searches for processes that were left behind, also by commands that were cancelled."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        feed: bytes,
        env: Mapping[str, str],
        cwd: str,
        heard: Callable[[bytes], None] | None = None,
    ) -> ProgramExit:
        """Start a program, write `feed` to its standard input, and wait until it ends.

        With `heard`, standard output is passed to `heard` as it comes, without limit, and is not kept. Raises
        `HookUnavailable` if the program cannot be started or the queue is full, `InvalidResult` if it writes more than
        it may. Cancelling sends SIGTERM to the process group, and kills it after `farewell` seconds.
        """
        if self._queued >= self.waiting:
            raise HookUnavailable(f"{self.waiting} commands wait for their turn already")
        loop = asyncio.get_running_loop()
        turn = self._turns.get(loop)
        if turn is None:
            turn = self._turns[loop] = asyncio.Semaphore(self.at_once)
        self._queued += 1
        try:
            await turn.acquire()
        finally:
            self._queued -= 1
        mark = token_hex(16)
        try:
            ended = await self._run(_Program(loop, self.longest, heard), argv, feed, {**env, LEFT_VARIABLE: mark}, cwd)
        finally:
            turn.release()
            ending = loop.create_task(_ending_pool().run(end_left_processes, mark))
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)
        return evolve(ended, left=tuple(await asyncio.shield(ending)))

    async def _run(
        self, program: _Program, argv: Sequence[str], feed: bytes, env: Mapping[str, str], cwd: str
    ) -> ProgramExit:
        loop = asyncio.get_running_loop()
        starting = loop.create_task(
            loop.subprocess_exec(lambda: program, *argv, env=dict(env), cwd=cwd, start_new_session=True, close_fds=True)
        )
        try:
            # Unlike `await`, `asyncio.wait` does not cancel these futures when this task is cancelled.
            await asyncio.wait([starting])
            transport = _transport_of(starting, argv, cwd)
            stdin = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
            stdin.write(feed)
            stdin.write_eof()  # otherwise a program that does not read it would be waited for
            await asyncio.wait([program.over])
            # The kill reaches the program's children: while one of them lives, the group id is theirs. If none lives,
            # the kill reaches no process, because the system reuses an id only after all others had their turn.
            _kill(transport)
            await asyncio.wait([program.exited])
            if program.excess is None:
                await asyncio.wait([program.silent], timeout=DRAIN)
        except asyncio.CancelledError:
            await asyncio.wait([starting])  # a start that has begun cannot be undone
            if starting.exception() is None:
                _signal(starting.result()[0], signal.SIGTERM)
                await asyncio.wait([program.exited], timeout=self.farewell)
                _kill(starting.result()[0])
                await asyncio.wait([program.exited], timeout=DRAIN)
            raise
        finally:
            if starting.done():
                _discard_process(starting)
            else:
                starting.add_done_callback(_discard_process)
        if program.excess is not None:
            raise InvalidResult(program.excess)
        return ProgramExit(
            code=cast("int", transport.get_returncode()), output=bytes(program.output), errors=bytes(program.errors)
        )


class _Program(asyncio.SubprocessProtocol):
    """Output of one running program so far, and futures for its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, longest: int, heard: Callable[[bytes], None] | None) -> None:
        self._longest = longest
        self.heard = heard
        self.output = bytearray()
        self.errors = bytearray()
        self.excess: str | None = None
        self.over: asyncio.Future[None] = loop.create_future()
        """Done when the program has exited or has exceeded a limit."""
        self.exited: asyncio.Future[None] = loop.create_future()
        self.silent: asyncio.Future[None] = loop.create_future()
        """Done when no process holds the program's output open any more."""
        self._errors = 0
        self._open = {1, 2}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if self.excess is not None:
            return
        if fd == 1 and self.heard is not None:
            self.heard(data)
        elif fd == 1:
            self.output += data
            if len(self.output) > self._longest:
                self._stop_at_limit("output", self._longest)
        else:
            self._errors += len(data)
            self.errors = (self.errors + data)[-ERRORS_KEPT:]
            if self._errors > MOST_ERRORS:
                self._stop_at_limit("error", MOST_ERRORS)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002  # however it was lost
        self._open.discard(fd)
        if not self._open and not self.silent.done():
            self.silent.set_result(None)

    def process_exited(self) -> None:
        for future in (self.exited, self.over):
            if not future.done():
                future.set_result(None)

    def _stop_at_limit(self, stream: str, limit: int) -> None:
        self.excess = f"the command wrote more than {limit:,} bytes to standard {stream}: keep it short"
        if not self.over.done():
            self.over.set_result(None)


def end_left_processes(mark: str) -> list[str]:
    """Kill every process with this mark, and return a name and an id for each. Only Linux tells; others return none.

    A process that has replaced its environment is not found.
    """
    ended: dict[int, str] = {}
    entry = f"{LEFT_VARIABLE}={mark}".encode()
    for _ in range(ROUNDS):
        found = _marked_processes(entry) if sys.platform == "linux" else {}
        if not found:
            break
        for pid, name in found.items():
            with contextlib.suppress(OSError):
                process = os.pidfd_open(pid)  # the id cannot become another process's now
                try:
                    if _has_entry(pid, entry):
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                        ended[pid] = name
                finally:
                    os.close(process)
    return [f"{name} (process {pid})" for pid, name in ended.items()]


def _marked_processes(entry: bytes) -> dict[int, str]:
    """Return the living processes with this entry in their environment; a zombie has none."""
    found = {}
    for text in os.listdir("/proc"):  # noqa: PTH208  # a scandir would ask about every entry
        if text.isdigit() and _has_entry(int(text), entry):
            with contextlib.suppress(OSError), open(f"/proc/{text}/comm", encoding="utf-8", errors="replace") as name:  # noqa: PTH123
                found[int(text)] = name.read().strip()
    return found


def _has_entry(pid: int, entry: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as environment:  # noqa: PTH123  # quicker, and there are many
            return entry in environment.read().split(b"\0")
    except OSError:
        return False


@cache
def _ending_pool() -> DaemonPool:
    return DaemonPool(2, "left")


Starting = asyncio.Task[tuple[asyncio.SubprocessTransport, asyncio.SubprocessProtocol]]


def _transport_of(starting: Starting, argv: Sequence[str], cwd: str) -> asyncio.SubprocessTransport:
    """Return the started program. Raises `HookUnavailable` if the start failed."""
    try:
        return starting.result()[0]
    except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
        raise HookUnavailable(f"{argv[0]!r:.200} cannot be started in {cwd!r:.200}: {error}") from error


def _discard_process(starting: Starting) -> None:
    """Kill the program and close its pipes, if it was started."""
    if not starting.cancelled() and starting.exception() is None:
        _kill(starting.result()[0])
        starting.result()[0].close()


def _signal(transport: asyncio.SubprocessTransport, number: int) -> None:
    """Send a signal to the whole process group, and wake stopped processes so that they receive it."""
    if sys.platform == "win32":
        with contextlib.suppress(ProcessLookupError):
            transport.kill()
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(transport.get_pid(), number)
        os.killpg(transport.get_pid(), signal.SIGCONT)


def _kill(transport: asyncio.SubprocessTransport) -> None:
    _signal(transport, getattr(signal, "SIGKILL", signal.SIGTERM))


COMMAND_TIMEOUT: Final = 60.0
"""Default timeout of a command in seconds."""

PASSED_ON: Final = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    "SYSTEMROOT", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE",
)  # fmt: skip
"""Variables of our environment that are passed on to a command. The others are not, as they may hold keys."""

NO_MONITOR: Final = (("core.fsmonitor", "false"), ("log.showSignature", "false"))
"""Settings for git under which it runs no monitor, and no check of signatures, that a repository asks for unasked."""
SAFE_GIT: Final = (*NO_MONITOR, ("core.hooksPath", os.devnull))
"""Settings for git under which it runs no hook of a repository, either."""

NO_VARIABLES: Final[Mapping[str, str]] = MappingProxyType({})

TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)

INTERPRETERS: Final = re.compile(r"(?:python[0-9.]*|node|ruby|perl|bash|dash|sh|zsh)(?:\.exe)?")
"""Interpreters. Their first argument, unless it is an option, is a script that has to exist."""


def git_settings(pairs: Iterable[tuple[str, str]], env: Mapping[str, str] = NO_VARIABLES) -> dict[str, str]:
    """Return variables whose settings override those of each repository. A name in them may hold any character.

    The settings that `env` has for git follow, and override these.
    """
    settings = list(pairs)
    count = env.get("GIT_CONFIG_COUNT", "")
    for number in range(min(int(count), len(env)) if count.isdecimal() else 0):
        name, value = (env.get(f"GIT_CONFIG_{part}_{number}") for part in ("KEY", "VALUE"))
        if name is not None and value is not None:
            settings.append((name, value))
    found = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings):
        found |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return found


def _checked_argv(value: Sequence[str]) -> tuple[str, ...]:
    if isinstance(value, str) or not value or not all(isinstance(part, str) for part in value) or not value[0]:
        raise InvalidRegistration(f"command {value!r:.200}: pass a list of strings, the program first")
    return tuple(value)


@frozen(kw_only=True)
class CommandHook:
    """A command as a handler: register it with a timeout, by default `COMMAND_TIMEOUT`.

    The command runs without a shell; `["sh", "-c", "…"]` uses one. `cwd` is fixed here, so the folder of the agent does
    not decide where its guard runs. `env` adds variables to the few that are passed on. The command's standard error is
    kept as its output.
    """

    argv: tuple[str, ...] = field(converter=_checked_argv)
    cwd: str = field(factory=os.getcwd)
    env: Mapping[str, str] = field(factory=dict)
    codec: Codec = NATIVE
    programs: Programs = field(factory=Programs)
    origin: str = field(default=Factory(lambda self: self.argv[0], takes_self=True))
    """Origin of the hook's texts: the program, without its arguments, which may hold secrets."""
    files: HookFiles | None = field(default=None, repr=False)
    """Trusted files, with which those of the command are compared before each run."""

    async def __call__(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Run the command for one event.

        Raises `HookUnavailable` if the command cannot be started, or a file is not as it was trusted, `InvalidResult`
        for output that is not an answer, `HookFailed` for any other ending. Cancelling ends the command and its
        children.
        """
        if self.files is not None:
            await self.files.check_apart()
        question = self.codec.question(event, data)
        problem = next(self.problems(), None)
        if problem is not None:
            raise HookUnavailable(problem)
        env = {**self._environment(data.get("traceparent")), HOPS_VARIABLE: next_hop()}
        ended = await self.programs.run(self.argv, feed=question, env=env, cwd=self.cwd)
        captured_output.keep_output(ended.errors)
        if ended.left:
            log.warning("command_left_processes", command=self.argv[0], ended=ended.left)
            captured_output.keep_output(f"ended, because {self.origin} left them: {', '.join(ended.left)}\n".encode())
        return self.codec.answer(event, data, ended)

    def problems(self) -> Iterator[str]:
        """Yield the reasons why the command cannot run, as far as its files show; nothing is run."""
        folder = Path(self.cwd)
        if not (folder.is_dir() and os.access(folder, os.X_OK)):
            yield f"the command's working directory {self.cwd!r} is not there, or cannot be entered"
            return
        program, *rest = self.argv
        path = os.fspath(folder / program) if os.sep in program else program
        search_path = self._environment().get("PATH")
        found = shutil.which(path, path=search_path)
        if found is None:
            yield f"the command {program!r} is not there, or is not executable"
            return
        for interpreter in shebang(found)[:1]:
            if shutil.which(interpreter, path=search_path) is None:
                yield f"the interpreter {interpreter!r} of the command {program!r} is not there"
        if rest and INTERPRETERS.fullmatch(Path(found).name) and not rest[0].startswith("-"):
            script = folder / rest[0]
            if not (script.is_file() and os.access(script, os.R_OK)):
                yield f"the script {rest[0]!r} of the command {program!r} is not there, or cannot be read"

    def _environment(self, traceparent: object = None) -> dict[str, str]:
        """Return the variables of a command, with the trace it belongs to."""
        passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        trace = traceparent if isinstance(traceparent, str) else os.environ.get("TRACEPARENT", "")
        if TRACEPARENT.fullmatch(trace):
            passed["TRACEPARENT"] = trace
        return {**passed, **self.env, **git_settings(NO_MONITOR, self.env)}
