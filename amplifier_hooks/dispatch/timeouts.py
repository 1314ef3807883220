"""A chain that waits: driven step by step in its caller's task, and interrupted when a deadline passes.

An interrupted walk always ends at the hook it is in: the hooks still to come are taken out of its hands first, so
whatever that hook then does (raise, return, swallow the cancellation and go on) nothing follows in this walk.

Two things are deliberately not done. No hook runs in a task of its own, because a task costs more than the whole
chain. And no running coroutine is handed to another task, because an `asyncio.timeout` it has entered would cancel
the wrong one.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from contextvars import Context
from functools import partial
from math import inf
from threading import get_ident
from time import monotonic as clock
from types import coroutine
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol
from weakref import WeakKeyDictionary, ref

from amplifier_hooks.abandoned_work import GRACE, keep_alive
from amplifier_hooks.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from amplifier_hooks.dispatch.chain import Hook
    from amplifier_hooks.result import Outcome


THROUGH: Final = object()

CURRENT_TASKS: Final[dict[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = getattr(asyncio.tasks, "_current_tasks", {})
"""What asyncio runs, by loop."""

_latest: Callable[[], asyncio.AbstractEventLoop | None] = type(None)
"""The loop that ran last, if it is still there."""

log = get_logger(__name__)


class ChainRun(Protocol):
    """What waiting needs of the chain that waits."""

    outer: Any
    """The chain around this one, in whose hook it was started."""
    picked: Any

    @property
    def tenant(self) -> str:
        """Whose turn it is."""
        ...

    @property
    def event(self) -> str:
        """What its hooks are told."""
        ...

    @property
    def hook(self) -> Hook:
        """The hook whose turn it is."""
        ...

    todo: Iterator[Hook]
    """Those after it."""
    context: Any
    walking: Any
    """The walk that calls them, and the context it runs in."""
    waiting: Any
    """What it waits for."""
    mark: float
    """When the time of the hook began."""
    marked: Hook | None
    attend: bool
    paused: bool
    """An around hook called on: the time is the operation's."""
    wait: Wait | None

    def outcome(self) -> Outcome:
        """What its hooks said."""
        ...

    def walk_again(self) -> bool:
        """A walk has ended: begin another where hooks are left. True when none is."""
        ...

    def allowance(self, hook: Hook) -> float:
        """Seconds this hook may take."""
        ...

    def record_timeout(self, hook: Hook) -> None:
        """Put on record that this hook's time was up."""
        ...


class Wait:
    """One chain that waits, from its first suspension to its end.

    From here on the chain reads the clock after every hook, so that `mark` is when the time of the current one began.
    """

    __slots__ = (
        "__weakref__", "cancels", "closing", "grace", "hook", "interrupted", "ours", "own", "rest", "run", "task",
        "watchdog",
    )  # fmt: skip

    def __init__(self, run: ChainRun) -> None:
        task = running_task()
        if task is None:
            raise RuntimeError("a hook that waits needs an asyncio task to wait in")
        self.run = run
        self.task = task
        self.watchdog = Watchdog.of(task.get_loop())
        # A cancellation requested but not yet delivered when we came counts as one that comes while we wait.
        self.cancels = task.cancelling() - has_pending_cancellation(task)
        self.ours = 0  # cancellations the watchdog sent, for this chain or for one inside it
        self.own = 0  # those of them that are for this one
        self.interrupted = False  # the time of `hook` was up
        self.grace = inf  # how long a cancelled hook has to clean up
        self.hook: Hook | None = None  # the one that is interrupted
        self.rest: tuple[Hook, ...] = ()  # those that come after it
        self.closing = False
        run.attend = True
        if run.marked is not run.hook and not run.paused:
            run.mark = clock()

    @coroutine
    def run_to_end(self) -> Generator[Any, Any, Outcome]:
        """Go on until the chain is through: what its hooks said.

        Cancelling the caller cancels the hook that is running, gives it `GRACE` to clean up, and raises
        `CancelledError`; no further hook runs.
        """
        run, task = self.run, self.task
        self.watchdog.guard(self)
        try:
            while True:
                thrown: BaseException | None = None
                try:
                    yield run.waiting
                    # Every further step of the walk, without a line of Python in between: `iter` calls `next` on it,
                    # in its context, until it is through.
                    yield from iter(partial(run.context.run, next, run.walking, THROUGH), THROUGH)
                except KeyboardInterrupt:
                    raise
                except GeneratorExit:  # the caller's own coroutine is being closed
                    self._interrupt()
                    self._close()
                    raise
                except BaseException as error:  # noqa: BLE001  # it belongs to the hook that waits, whatever it is
                    thrown = error
                # Outside of the `except`: what later hooks raise does not come of this error.
                if thrown is not None and self._throw(thrown):
                    continue
                del thrown
                if run.walk_again():
                    break
            if self.is_caller_cancelled():
                if has_pending_cancellation(task):
                    yield  # it is delivered here, and not at the caller's next await
                raise asyncio.CancelledError
            return run.outcome()
        finally:
            self.watchdog.live.discard(self)
            if self.own:
                self._uncancel()
            run.wait = run.waiting = None  # contexts that hooks' tasks have copied keep the run; not the loop with it

    def _throw(self, error: BaseException) -> bool:
        """Hand on to the hook what was thrown at it. True while it still waits."""
        run = self.run
        if self.closing:
            self._close()
            return False
        # Who cancelled is known only when the hook has ended: an `asyncio.timeout` of its own takes its cancellation
        # back until then, the caller's stays.
        if self.grace == inf and self.is_caller_cancelled():
            self.grace = clock() + GRACE
            self.watchdog.guard(self)
        try:
            run.waiting = run.context.run(run.walking.throw, error)
        except StopIteration:
            return False
        return True

    def take_remaining(self) -> tuple[Hook, ...]:
        """The hooks still to run when a walk has ended, by itself or because it was interrupted."""
        self.grace = inf
        if not self.interrupted:
            return () if self.is_caller_cancelled() else tuple(self.run.todo)
        hook, rest = self.hook, self.rest
        self.interrupted, self.closing, self.hook, self.rest = False, False, None, ()
        self._uncancel()
        if self.is_caller_cancelled():
            return ()
        if hook is not None:
            self.run.record_timeout(hook)
        return rest

    @property
    def over(self) -> bool:
        """Whether whatever the hook answers now comes too late: its time was up, or nobody waits for it any more."""
        return self.interrupted or self.is_caller_cancelled()

    # -- the time ------------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """When the hook whose turn it is, or its grace, has had its time."""
        run = self.run
        if run.paused:
            return inf
        if self.interrupted or (self.grace < inf and self.is_caller_cancelled()):
            return self.grace
        self.grace = inf
        return run.mark + run.allowance(run.hook)

    def expire(self) -> None:
        """That time has come."""
        cleaning_up = self.grace < inf
        self._interrupt()
        if cleaning_up:
            self.closing, self.grace = True, inf
        self.own += 1
        for wait in self._lineage():
            wait.ours += 1
        self.task.cancel()

    def resume(self) -> None:
        """The operation inside an around hook came back: a cancelled hook's grace begins only now."""
        if self.grace < inf:
            self.grace = clock() + GRACE
        self.watchdog.guard(self)

    # -- interrupting --------------------------------------------------------------------------------------------

    def is_caller_cancelled(self) -> bool:
        """Whether the task was cancelled by somebody else than the watchdog, since we began."""
        return self.task.cancelling() > self.cancels + self.ours

    def _interrupt(self) -> None:
        """Take the hooks still to come out of the walk's hands; it ends where it is."""
        if not self.interrupted:
            self.interrupted = True
            self.hook = self.run.hook
            self.rest = tuple(self.run.todo)
            self.grace = clock() + GRACE

    def _close(self) -> None:
        """Close the hook, whatever it makes of that. One that had its grace, or will not end, is left behind."""
        hook, inside = self.hook or self.run.hook, self.run.walking.gi_yieldfrom
        with suppress(BaseException):
            self.run.walking.close()
        endless = getattr(inside, "cr_frame", None) is not None
        if endless:
            keep_alive(inside)
        if not (endless or self.closing):
            return
        hook.count_leak(self.run.tenant)
        log.warning("hook_left_behind", hook=hook.name, event=self.run.event, times=hook.leaks)

    def _uncancel(self) -> None:
        """Take back the cancellations the watchdog sent for us."""
        for _ in range(self.own):
            self.task.uncancel()
        for wait in self._lineage():
            wait.ours -= self.own
        self.own = 0

    def _lineage(self) -> Iterator[Wait]:
        """This chain and those around it in the same task: they all see a cancellation sent for this one."""
        run: Any = self.run
        while run is not None:
            if run.wait is not None and run.wait.task is self.task:
                yield run.wait
            run = run.outer


class Watchdog:
    """One timer for an event loop, which looks at the chains that wait there.

    Often while one may soon be due, and not at all when none waits. A deadline is never early, and late by one tick
    at most.
    """

    _of_loop: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, Watchdog]] = WeakKeyDictionary()
    _latest: ClassVar[Watchdog | None] = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = ref(loop)  # weak: a dictionary value that held its key would keep every loop alive
        self.live: set[Wait] = set()
        self.timer: ref[asyncio.TimerHandle] | None = None  # weak for the same reason
        self.next = inf

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> Watchdog:
        """The watchdog of this loop."""
        latest = cls._latest
        if latest is not None and latest.loop() is loop:
            return latest
        watchdog = cls._of_loop.get(loop)
        if watchdog is None:
            watchdog = cls._of_loop[loop] = cls(loop)
        cls._latest = watchdog
        return watchdog

    def guard(self, wait: Wait) -> None:
        """Look after this chain until it leaves."""
        self.live.add(wait)
        due = clock() + wait.run.picked.tick
        if due < self.next:
            self._wake(due)

    def check_deadlines(self) -> None:
        """Interrupt every chain that is past its deadline; come back when the next may be."""
        self.timer, self.next = None, inf
        now = clock()
        for wait in tuple(self.live):
            if now >= wait.deadline:
                wait.expire()
        # One that is paused says when it goes on (`Wait.resume`).
        waiting = (wait for wait in self.live if not wait.run.paused)
        soon = min((min(wait.deadline, now + wait.run.picked.tick) for wait in waiting), default=inf)
        if soon < inf:
            self._wake(soon)

    def _wake(self, due: float) -> None:
        if self.timer is not None and (timer := self.timer()) is not None:
            timer.cancel()
        self.next = due
        if (loop := self.loop()) is not None:
            self.timer = ref(loop.call_later(due - clock(), self.check_deadlines, context=Context()))


def has_cancelled_itself() -> bool:
    """Whether the running task was cancelled by what it runs, and has not met it yet; its next await will."""
    task = running_task()
    return task is not None and getattr(task, "_must_cancel", False) is True  # `pending`, written out


def current_task() -> asyncio.Task[Any] | None:
    """The task that runs. None where there is none: hooks that never wait need no task, and no loop."""
    global _latest  # noqa: PLW0603  # a cache of one
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    _latest = ref(loop)
    return asyncio.current_task(loop)


def running_task() -> asyncio.Task[Any] | None:
    """The same, asking the loop that ran last first whether it runs in this thread.

    Before 3.12 asyncio asks the operating system each time which process this is, which takes longer than a hook.
    """
    latest = _latest()
    if latest is not None and getattr(latest, "_thread_id", None) == get_ident():
        return CURRENT_TASKS.get(latest)
    return current_task()


if sys.version_info >= (3, 12):
    running_task = current_task


def has_pending_cancellation(task: asyncio.Task[Any]) -> bool:
    """Whether a cancellation was requested that the task has not met yet.

    asyncio keeps this to itself, in every version; without it, a hook that awaits something cancelled could not be
    told from a caller that is.
    """
    return bool(getattr(task, "_must_cancel", False))
