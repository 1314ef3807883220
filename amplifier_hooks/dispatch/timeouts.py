"""Drives a chain that waits, step by step in its caller's task, and interrupts it when a deadline passes.

The default timeouts stand beside their use: `dispatch/chain.py` for hooks in code, `definitions/model.py` and
`definitions/kinds/` for hooks from files.

An interrupted walk always ends at the current hook: the wait first removes the remaining hooks from the walk, so
whatever the hook does next (raise, return, swallow the cancellation and continue), no hook follows in this walk.

Two things are avoided on purpose. No hook runs in a task of its own, because a task costs more than the whole chain;
only hook objects that outlive their chain do (`Rest` in `middleware.py`). And no running coroutine moves to another
task, because an `asyncio.timeout` that it has entered would cancel the wrong task.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import Context
from functools import partial
from math import inf
from time import monotonic as clock
from types import coroutine
from typing import TYPE_CHECKING, Any, ClassVar, Final
from weakref import WeakKeyDictionary, ref

from amplifier_hooks.foreign_code import (
    GRACE,
    delivered_cancellations,
    has_pending_cancellation,
    keep_alive,
    running_task,
)
from amplifier_hooks.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from amplifier_hooks.dispatch.chain import Hook
    from amplifier_hooks.dispatch.run_hooks import Run
    from amplifier_hooks.result import Outcome


THROUGH: Final = object()

log = get_logger(__name__)


class Wait:
    """One chain that waits, from its first suspension to its end.

    During a wait the chain reads the clock after every hook, so that `mark` is the time when the current hook began.
    """

    __slots__ = (
        "__weakref__", "cancels", "closing", "grace", "hook", "interrupted", "ours", "own", "rest", "run", "task",
        "watchdog",
    )  # fmt: skip

    def __init__(self, run: Run) -> None:
        task = running_task()
        if task is None:
            raise RuntimeError("a hook that waits needs an asyncio task to wait in")
        self.run = run
        self.task = task
        self.watchdog = Watchdog.of(task.get_loop())
        self.cancels = delivered_cancellations(task)
        self.ours = 0  # cancellations the watchdog sent, for this chain or for one inside it
        self.own = 0  # cancellations the watchdog sent for this chain only
        self.interrupted = False  # `hook` has timed out
        self.grace = inf  # time until which a cancelled hook may clean up
        self.hook: Hook | None = None  # the interrupted hook
        self.rest: tuple[Hook, ...] = ()  # the hooks after it
        self.closing = False
        if run.attend is not run.hook and not run.paused:
            run.mark = clock()
        run.attend = True

    @coroutine
    def run_to_end(self) -> Generator[Any, Any, Outcome]:
        """Run the chain to its end and return the outcome.

        Cancelling the caller cancels the running hook, gives that hook `GRACE` to clean up, and raises
        `CancelledError`; no further hook runs.
        """
        run, task = self.run, self.task
        self.watchdog.guard(self)
        try:
            while True:
                thrown: BaseException | None = None
                try:
                    yield run.waiting
                    # Every further step of the walk, without a line of Python in between: `iter` calls `next` on the
                    # walk, in the walk's context, until the walk ends.
                    yield from iter(partial(run.context.run, next, run.walking, THROUGH), THROUGH)
                except KeyboardInterrupt:
                    raise
                except GeneratorExit:  # the caller's own coroutine is being closed
                    self._interrupt()
                    self._close()
                    raise
                except BaseException as error:  # noqa: BLE001  # every error belongs to the hook that waits
                    thrown = error
                # Outside of the `except`: errors of later hooks must not have this error as their context.
                if thrown is not None and self._throw(thrown):
                    continue
                del thrown
                if run.walk_again():
                    break
            if self.is_caller_cancelled():
                if has_pending_cancellation(task):
                    yield  # delivers the cancellation here, not at the caller's next await
                raise asyncio.CancelledError
            return run.outcome()
        finally:
            self.watchdog.live.discard(self)
            if self.own:
                self._uncancel()
            run.wait = run.waiting = None  # contexts copied by hooks' tasks keep the run, but not the loop

    def _throw(self, error: BaseException) -> bool:
        """Pass an error on to the current hook. Return True while the hook still waits."""
        run = self.run
        if self.closing:
            self._close()
            return False
        # The origin of a cancellation is known only when the hook has ended: an `asyncio.timeout` of the hook takes its
        # own cancellation back until then; the caller's stays.
        if self.grace == inf and self.is_caller_cancelled():
            self.grace = clock() + GRACE
            self.watchdog.guard(self)
        try:
            run.waiting = run.context.run(run.walking.throw, error)
        except StopIteration:
            return False
        return True

    def take_remaining(self) -> tuple[Hook, ...]:
        """Return the hooks still to run after a walk has ended, by itself or by an interruption."""
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
        """True if any answer of the hook is too late: the hook has timed out, or its caller was cancelled."""
        return self.interrupted or self.is_caller_cancelled()

    # -- deadlines -----------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """Time at which the current hook, or its grace, ends."""
        run = self.run
        if run.paused:
            return inf
        if self.interrupted or (self.grace < inf and self.is_caller_cancelled()):
            return self.grace
        self.grace = inf
        return run.mark + run.allowance(run.hook)

    def expire(self) -> None:
        """Interrupt the hook whose deadline has passed."""
        cleaning_up = self.grace < inf
        self._interrupt()
        if cleaning_up:
            self.closing, self.grace = True, inf
        self.own += 1
        for wait in self._lineage():
            wait.ours += 1
        self.task.cancel()

    def resume(self) -> None:
        """Guard the chain again: the operation inside an around hook has returned.

        The grace of a cancelled hook begins now.
        """
        if self.grace < inf:
            self.grace = clock() + GRACE
        self.watchdog.guard(self)

    # -- interrupting --------------------------------------------------------------------------------------------

    def is_caller_cancelled(self) -> bool:
        """Return True if the task was cancelled since the wait began, other than by the watchdog."""
        return self.task.cancelling() > self.cancels + self.ours

    def _interrupt(self) -> None:
        """Remove the remaining hooks from the walk, so that the walk ends at the current hook."""
        if not self.interrupted:
            self.interrupted = True
            self.hook = self.run.hook
            self.rest = tuple(self.run.todo)
            self.grace = clock() + GRACE

    def _close(self) -> None:
        """Close the hook. Abandon a hook that had its grace or does not end."""
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
        """Take back the cancellations that the watchdog sent for this chain."""
        for _ in range(self.own):
            self.task.uncancel()
        for wait in self._lineage():
            wait.ours -= self.own
        self.own = 0

    def _lineage(self) -> Iterator[Wait]:
        """Yield this chain and the chains around it in the same task: each sees a cancellation sent for this one."""
        run: Any = self.run
        while run is not None:
            if run.wait is not None and run.wait.task is self.task:
                yield run.wait
            run = run.outer


class Watchdog:
    """One timer for an event loop. It looks at the chains that wait there.

    The timer runs often while a deadline may be near, and not at all when no chain waits. A deadline never fires early,
    and at most one tick late.
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
        """Return the watchdog of this loop."""
        latest = cls._latest
        if latest is not None and latest.loop() is loop:
            return latest
        watchdog = cls._of_loop.get(loop)
        if watchdog is None:
            watchdog = cls._of_loop[loop] = cls(loop)
        cls._latest = watchdog
        return watchdog

    def guard(self, wait: Wait) -> None:
        """Watch this chain until its wait ends."""
        self.live.add(wait)
        due = clock() + wait.run.selection.tick
        if due < self.next:
            self._wake(due)

    def check_deadlines(self) -> None:
        """Interrupt every chain that is past its deadline, and set the timer for the next deadline."""
        self.timer, self.next = None, inf
        now = clock()
        for wait in tuple(self.live):
            if now >= wait.deadline:
                wait.expire()
        # A paused chain comes back by `Wait.resume`.
        waiting = (wait for wait in self.live if not wait.run.paused)
        soon = min((min(wait.deadline, now + wait.run.selection.tick) for wait in waiting), default=inf)
        if soon < inf:
            self._wake(soon)

    def _wake(self, due: float) -> None:
        if self.timer is not None and (timer := self.timer()) is not None:
            timer.cancel()
        self.next = due
        if (loop := self.loop()) is not None:
            self.timer = ref(loop.call_later(due - clock(), self.check_deadlines, context=Context()))
