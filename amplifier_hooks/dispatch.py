"""One chain, run: hooks in order, each on its own deadline, none able to harm the caller or the next.

`walk` is the hot loop. A `Run` drives it, and takes its first step by hand: when no hook suspends, the event loop is
never touched and no timer, task or lock exists. When one does, the caller's task waits inside `Run.finish`, and the
loop's `Watchdog` (one timer, set to the earliest deadline there is) interrupts the run when the hook's time is up.

An interrupted walk always ends at the hook it is in: the hooks still to come are taken out of its hands first, so
whatever the hook then does (raise, return, swallow the cancellation and go on) nothing follows. What it answers is
discarded, and the rest goes on in a new walk. The same move serves a hook that changed context variables: the next
hook gets a walk in a clean context.

Two things are deliberately not done. No hook runs in a task of its own, because a task costs more than the whole
chain. And no running coroutine is handed to another task, because an `asyncio.timeout` it has entered would cancel
the wrong one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from contextvars import Context, ContextVar, copy_context
from math import inf
from time import monotonic as clock
from types import coroutine
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary, ref

import msgspec

from amplifier_hooks.errors import HookUnavailable, InvalidResult
from amplifier_hooks.events import IDENTITY_FIELDS
from amplifier_hooks.hook import Hook
from amplifier_hooks.logs import get_logger
from amplifier_hooks.matching import MatchTimedOut
from amplifier_hooks.merge import merge
from amplifier_hooks.result import CONTINUE, Answer, HookResult, Outcome, Status, as_result
from amplifier_hooks.view import DataView

__all__ = ["CURRENT", "GRACE", "LEAKS_ALLOWED", "Run", "meet_cancellation"]

GRACE: Final = 0.1
"""Seconds a cancelled hook is given to clean up before it is closed and left behind."""

LEAKS_ALLOWED: Final = 3
"""How often a hook may be left behind before it is quarantined."""

CURRENT: ContextVar[Run | None] = ContextVar("amplifier_hooks.current", default=None)
"""The run around the running code; an emit made by a hook finds the depth it is at here."""

STATUS_OF: Final[tuple[tuple[type[BaseException], Status], ...]] = (
    (HookUnavailable, "unavailable"),
    (InvalidResult, "invalid"),
    (MatchTimedOut, "timeout"),
    (BaseException, "error"),
)

LEFT_BEHIND: Final[list[Coroutine[Any, Any, None]]] = []
"""Walks whose hook refused to be closed. Kept, because the interpreter would try to close them again, and complain."""

log = get_logger(__name__)


class Run(msgspec.Struct, eq=False):
    """One chain under way: `start` it; if that returns False, await `finish`; then ask for the `outcome`.

    A struct because one is made for every emit. The first group says what to run, the second what has come of it, the
    rest where it stands.
    """

    event: str
    hooks: tuple[Hook, ...]
    names: tuple[str, ...]
    data: Mapping[str, Any]
    view: Any
    keeps: frozenset[str] = IDENTITY_FIELDS
    patience: float = inf
    timing: bool = False
    recheck: bool = False
    outer: Any = None
    depth: int = 1

    answers: list[Answer] = []
    modifier: Hook | None = None
    denied: Hook | None = None

    started: float = 0.0
    mark: float = 0.0
    marked: Hook | None = None
    spent: float = 0.0

    hook: Any = None
    todo: Any = None
    outside: Any = None
    context: Any = None
    walking: Any = None
    waiting: Any = None
    attend: bool = False
    suspended: Hook | None = None

    task: Any = None
    watchdog: Any = None
    deadline: float = inf
    cancels: int = 0
    ours: int = 0
    own: int = 0
    rest: tuple[Hook, ...] = ()
    interrupted: Literal["timeout", "caller"] | None = None
    closing: bool = False
    paused: bool = False

    # -- what callers use ----------------------------------------------------------------------------------------

    def start(self) -> bool:
        """Run to the end, or to the first hook that suspends. True when the chain is through."""
        self.outside = copy_context()
        self.started = self.mark = clock()
        self._begin(self.hooks)
        return self._go(self.walking.send, None)

    @coroutine
    def finish(self) -> Generator[Any, Any, None]:
        """Go on until the chain is through.

        Cancelling the caller cancels the hook that is running, gives it `GRACE` to clean up, and raises
        `CancelledError`; no further hook runs.
        """
        task = self.task = asyncio.current_task()
        if task is None:
            message = "a hook that waits needs an asyncio task to wait in"
            raise RuntimeError(message)
        # A cancellation requested but not yet delivered when we came counts as one that comes while we run.
        self.cancels = task.cancelling() - pending(task)
        self.watchdog = Watchdog.of(task.get_loop())
        self.watchdog.live.add(self)
        try:
            through = False
            while not through:
                self._watch()
                try:
                    sent = yield self.waiting
                except GeneratorExit:  # the caller's own coroutine is being closed
                    self._interrupt("caller")
                    self._close()
                    raise
                except BaseException as error:  # it belongs to the hook that waits, whatever it is
                    if task.cancelling() > self.cancels + self.ours:
                        self._interrupt("caller")
                    through = self._go(self._end if self.closing else self.walking.throw, error)
                else:
                    through = self._go(self.walking.send, sent)
            if self.interrupted == "caller" or task.cancelling() > self.cancels + self.ours:
                if pending(task):
                    yield  # it is delivered here, and not at the caller's next await
                raise asyncio.CancelledError
        finally:
            self.watchdog.live.discard(self)
            self._uncancel()
            self.context = None

    def outcome(self) -> Outcome:
        """What the hooks said."""
        elapsed = clock() - self.started
        if elapsed >= self.patience:
            self._suspect(elapsed)
        if not self.answers:
            return Outcome(self.event, self.data, ran=self.names, total_duration_ms=elapsed * 1e3)
        changed = self.modifier is not None
        return merge(
            self.event,
            dict(self.view) if changed else self.data,
            self.answers,
            ran=self.names if self.denied is None else self.names[: self.hooks.index(self.denied) + 1],
            modified=changed,
            duration_ms=elapsed * 1e3,
        )

    async def once_more(self, hooks: tuple[Hook, ...]) -> Outcome:
        """Let these gates look at the data as it has become; only what they object to counts."""
        second = Run(
            self.event, hooks, tuple(hook.name for hook in hooks), self.view, self.view, self.keeps, self.patience,
            self.timing, True, self.outer, self.depth, self.answers,
        )  # fmt: skip
        second.modifier = None
        if not second.start():
            await second.finish()
        self.answers = second.answers
        return self.outcome()

    # -- driving the walk ----------------------------------------------------------------------------------------

    def _begin(self, hooks: tuple[Hook, ...]) -> None:
        self.todo = iter(hooks)
        self.context = self.outside.copy()
        self.walking = walk(self)

    def _go(self, how: Callable[[Any], Any], value: object) -> bool:
        """One step, and where it ends a walk, on into the next. True when the chain is through."""
        while True:
            try:
                self.waiting = self.context.run(how, value)
            except StopIteration:
                rest = self._left()
                if not rest:
                    self.context = self.walking = None  # they refer back to us
                    return True
                self._begin(rest)
                how, value = self.walking.send, None
            else:
                return False

    def _left(self) -> tuple[Hook, ...]:
        """The hooks still to run when a walk has ended, by itself or because it was interrupted."""
        if self.interrupted is None:
            rest = tuple(self.todo)
        elif self.interrupted == "caller":
            return ()
        else:
            rest, self.rest = self.rest, ()
            self.interrupted, self.closing = None, False
            self._uncancel()
            now, hook = clock(), self.hook
            duration = now - self.mark
            self._settle(hook, now, duration)
            self.failed(hook, "timeout", overdue(hook), duration)
        return rest if self.denied is None else ()

    def _watch(self) -> None:
        """Note from when on the hook that waits is waiting, the first time it does."""
        hook = self.hook
        if self.suspended is not hook and self.interrupted is None:
            self.suspended, self.attend = hook, True
            if self.marked is not hook and not self.paused:
                self.mark, self.marked = clock(), hook
            self._until(self.mark + hook.timeout)

    def _until(self, deadline: float) -> None:
        self.deadline = inf if self.paused else deadline
        self.watchdog.expect(self.deadline)

    def pause(self) -> None:
        """An around hook called on: from here the time is the operation's."""
        self.paused, self.deadline = True, inf
        self.mark -= clock()  # as long ago, when it is added again

    def resume(self) -> None:
        """The operation came back: the hook's time goes on where it stopped."""
        self.paused = False
        self.mark += clock()
        if self.interrupted is not None:
            self._until(clock() + GRACE)
        elif self.suspended is not None:
            self._until(self.mark + self.hook.timeout)

    # -- interrupting it -----------------------------------------------------------------------------------------

    def expire(self) -> None:
        """The watchdog says the time is up: the hook's own, or that of its grace."""
        if self.interrupted is None:
            self._interrupt("timeout")
        else:
            self.closing, self.deadline = True, inf
        self.own += 1
        for run in self._lineage():
            run.ours += 1
        self.task.cancel()

    def _interrupt(self, by: Literal["timeout", "caller"]) -> None:
        """Take the hooks still to come out of the walk's hands; it ends where it is."""
        if self.interrupted is None:
            self.rest = tuple(self.todo)
            self._until(clock() + GRACE)
        self.interrupted = by

    def _end(self, _error: object) -> None:
        """The step that ends a walk whose hook would not."""
        self._close()
        raise StopIteration

    def _close(self) -> None:
        """Close the hook and leave it behind, whatever it makes of that."""
        hook, walking = self.hook, self.walking
        try:
            walking.close()
        except BaseException:  # it ignored GeneratorExit, or raised at it: either way nobody waits for it any more
            LEFT_BEHIND.append(walking)
        hook.leaks += 1
        hook.quarantined = hook.leaks >= LEAKS_ALLOWED
        hook.settle()
        log.warning("hook_left_behind", hook=hook.name, hook_event=self.event, times=hook.leaks)

    def _uncancel(self) -> None:
        """Take back the cancellations the watchdog sent for us."""
        for _ in range(self.own):
            self.task.uncancel()
        for run in self._lineage():
            run.ours -= self.own
        self.own = 0

    def _lineage(self) -> Iterator[Run]:
        """This run and those around it in the same task: they all see a cancellation sent for this one."""
        run: Run | None = self
        while run is not None and run.task is self.task:
            yield run
            run = run.outer

    # -- what the walk reports -----------------------------------------------------------------------------------

    def ready(self, hook: Hook) -> bool:
        """Whether a hook that is not plain may be called; if not, it is on record why."""
        if not hook.enabled:
            self._record(hook, status="disabled")
            return False
        if hook.quarantined:
            self.failed(hook, "unavailable", f"in quarantine: it had to be left behind {hook.leaks} times")
            return False
        if hook.budget is not None and self.spent >= hook.budget:
            self.failed(hook, "timeout", f"the chain's budget of {hook.budget:g} s was used up before it")
            return False
        if hook.timed:
            self.mark, self.marked, self.attend = clock(), hook, True
        return True

    def took(self, hook: Hook, answer: object) -> bool:
        """Put an answer on record and act on it. True when no hook may follow in this walk."""
        if self.interrupted is not None:
            return True
        now, waited = clock(), self.suspended is hook
        duration = now - self.mark
        late = now >= self.deadline if waited else duration >= hook.timeout and self._alone(hook, duration)
        self._settle(hook, now, duration)
        if late:
            return self.failed(hook, "timeout", overdue(hook), duration)
        try:
            result = as_result(answer)
        except BaseException as error:  # noqa: BLE001  # a mapping may raise anything while it is read
            return self.failed(hook, "invalid", describe(error), duration)
        if result is CONTINUE and not waited and not self.timing:
            return False
        problem = self._modify(hook, result) if result.action == "modify" and not self.recheck else None
        if problem:
            return self.failed(hook, "invalid", problem, duration)
        self._record(hook, result=result, duration_ms=duration * 1e3)
        if result.action == "deny":
            self.denied = hook
        return self.denied is not None

    def raised(self, hook: Hook, error: BaseException) -> bool:
        """The same for a hook that raised."""
        if self.interrupted is not None:
            return True
        now = clock()
        duration = now - self.mark
        self._settle(hook, now, duration)
        status = next(status for kind, status in STATUS_OF if isinstance(error, kind))
        return self.failed(hook, status, describe(error), duration)

    def failed(self, hook: Hook, status: Status, error: str, duration: float | None = None) -> bool:
        """Put on record that a hook gave no answer. At a gate that is a denial."""
        self._record(
            hook, status=status, error=error, denies=hook.gates, duration_ms=None if duration is None else duration * 1e3
        )
        log.warning("hook_failed", hook=hook.name, hook_event=self.event, status=status, error=error)
        if hook.gates:
            self.denied = hook
        return self.denied is not None

    def _record(self, hook: Hook, **said: Any) -> None:
        self.answers.append(Answer(hook_name=hook.name, recheck=self.recheck, **said))

    def _settle(self, hook: Hook, now: float, duration: float) -> None:
        """The next hook's time begins where this one's ended."""
        self.attend, self.suspended, self.marked = False, None, None
        self.mark = now
        if hook.budget is not None:
            self.spent += duration

    def _modify(self, hook: Hook, result: HookResult) -> str | None:
        """Merge the answer's data over the payload; what is wrong with it, if it may not be."""
        changes = result.data or {}
        view = self.view
        for name in changes:
            if name in self.keeps and (name not in view or changes[name] != view[name]):
                return f"modify changes {name!r}, which is not for hooks to change at {self.event}"
        self.view = DataView(view)
        dict.update(self.view, changes)
        self.modifier = hook
        return None

    # -- who was late --------------------------------------------------------------------------------------------

    def _alone(self, hook: Hook, duration: float) -> bool:
        """Whether all the time since the clock was last read is this hook's.

        Hooks that gate have the clock read on both sides. The others are not worth two readings each until a chain
        has once run over a deadline without suspending; from then on those that may have done it are, too.
        """
        if self.marked is hook or len(self.hooks) == 1:
            return True
        self._suspect(duration)
        return False

    def _suspect(self, elapsed: float) -> None:
        unclocked = [hook for hook in self.hooks if not hook.timed and elapsed >= hook.timeout]
        for hook in unclocked:
            hook.timed = True
            hook.settle()
        if unclocked:
            names = [hook.name for hook in unclocked]
            log.warning("hooks_blocked_the_loop", hook_event=self.event, hooks=names, seconds=elapsed)


async def walk(run: Run) -> None:
    """Call the hooks in turn. Ends early after a denial, an interruption, or a change of context variables."""
    CURRENT.set(run)
    event, view, context = run.event, run.view, run.context
    clean = context.copy()
    for hook in run.todo:
        run.hook = hook
        try:
            if hook.plain:
                answer = await hook.call(event, view)
            elif run.ready(hook):
                answer = hook.call(event, dict(view) if hook.intent == "register" else view)
                if hook.awaits or hasattr(answer, "__await__"):
                    answer = await answer
            elif run.denied is None:
                continue
            else:
                return
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # a hook may raise anything and must not harm the caller
            over = run.raised(hook, error)
        else:
            if (answer is CONTINUE or answer is None) and not run.attend and context == clean:
                continue
            over = run.took(hook, answer)
        if over or context != clean:
            return
        view = run.view


class Watchdog:
    """One timer for an event loop, set to the earliest deadline of the runs that wait in it."""

    _of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Watchdog] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = ref(loop)  # weak: a dictionary value that held its key would keep every loop alive
        self.live: set[Run] = set()
        self.timer: asyncio.TimerHandle | None = None
        self.next = inf

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> Watchdog:
        """The watchdog of this loop."""
        watchdog = cls._of_loop.get(loop)
        if watchdog is None:
            watchdog = cls._of_loop[loop] = cls(loop)
        return watchdog

    def expect(self, deadline: float) -> None:
        """See to it that somebody looks at this time, or earlier."""
        if deadline < self.next:
            if self.timer is not None:
                self.timer.cancel()
            self.next = deadline
            if (loop := self.loop()) is not None:
                self.timer = loop.call_later(deadline - clock(), self.look, context=Context())

    def look(self) -> None:
        """Interrupt every run that is past its deadline; set the timer for the next one."""
        self.timer, self.next = None, inf
        now = clock()
        for run in tuple(self.live):
            if now >= run.deadline:
                run.expire()
        if self.live:
            self.expect(min(run.deadline for run in self.live))


async def meet_cancellation() -> None:
    """Raise `CancelledError` now if the running task has been cancelled and has not met it yet."""
    task = asyncio.current_task()
    if task is not None and pending(task):
        await asyncio.sleep(0)


def pending(task: asyncio.Task[Any]) -> bool:
    """Whether a cancellation was requested that the task has not met yet. asyncio keeps this to itself, in every
    version; without it, a hook that awaits something cancelled could not be told from a caller that is."""
    return bool(getattr(task, "_must_cancel", False))


def overdue(hook: Hook) -> str:
    """The sentence for a hook whose time was up."""
    return f"no answer within {hook.timeout:g} s"


def describe(error: BaseException, room: int = 500) -> str:
    """One bounded line about an error; never raises, whatever the error's own `__str__` does."""
    try:
        if isinstance(error, BaseExceptionGroup):
            inner = ", ".join(describe(one, 100) for one in error.exceptions[:5])
            text = f"{type(error).__name__} of {len(error.exceptions)}: {inner}"
        else:
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    except BaseException:  # noqa: BLE001  # the error's text is the hook's code, too
        text = type(error).__name__
    return text if len(text) <= room else f"{text[: room - 1]}…"
