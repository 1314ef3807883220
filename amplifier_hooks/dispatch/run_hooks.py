"""One chain, run: hooks in order, each on its own deadline, none able to harm the caller or the next.

`walk` is the hot loop. A `Run` drives it, and takes its first step by hand: when no hook suspends, the event loop is
never touched and no timer, task or lock exists. What happens when one does is in `timeouts.py`.

A hook that changed context variables ends its walk, too: the next hook gets a walk in a clean context.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Iterator, Mapping
from contextvars import Context, ContextVar, copy_context
from math import inf
from operator import length_hint
from time import monotonic as clock
from types import CoroutineType, coroutine
from typing import Any, Final

import msgspec
from attrs import evolve

from amplifier_hooks.dispatch.chain import DataView, Hook, Selection, tenant_and_tool
from amplifier_hooks.dispatch.merge import merge
from amplifier_hooks.dispatch.timeouts import THROUGH, Wait
from amplifier_hooks.errors import HookUnavailable, InvalidResult
from amplifier_hooks.logs import get_logger
from amplifier_hooks.result import CONTINUE, Answer, Assessment, HookResult, Outcome, Risk, Status, as_result
from amplifier_hooks.text.matching import MatchTimedOut

CURRENT: ContextVar[Run | None] = ContextVar("amplifier_hooks.current", default=None)
"""The run around the running code; an emit made by a hook finds the depth it is at here."""

STATUS_OF: Final[tuple[tuple[type[BaseException], Status], ...]] = (
    (HookUnavailable, "unavailable"),
    (InvalidResult, "invalid"),
    (MatchTimedOut, "timeout"),
    (BaseException, "error"),
)

CHANGES: Final = ("modify", "ask_user")
"""Answers whose data changes the payload; a person is asked about what it has become."""

MEMBER_ROOM: Final = 100
"""Characters for one member of a group of errors."""

log = get_logger(__name__)


class Run(msgspec.Struct, eq=False):
    """One chain under way: `run.start() or await run.finish()` is what its hooks said.

    A struct, because one is made for every emit. The first group says what to run, the second what has come of it,
    the third where it stands.
    """

    picked: Selection
    data: Mapping[str, Any]
    view: Any
    outer: Any = None
    depth: int = 1
    recheck: bool = False

    answers: list[Answer] | None = None
    modifier: Hook | None = None
    denied: Hook | None = None

    wait: Wait | None = None
    hooks: tuple[Hook, ...] = ()
    todo: Any = None
    """Of the walk under way: its hooks, and the iterator over those still to come."""
    context: Any = None
    walking: Any = None
    waiting: Any = None
    torn: bool = False
    """The walk had to end because a hook changed its context."""
    attend: bool = False
    """The hook whose turn it is has its clock read, also when it has nothing to say."""
    started: float = 0.0
    mark: float = 0.0
    """When the clock was last read: where the time of `marked` began, or the hook before ended."""
    marked: Hook | None = None
    shared: float = 0.0
    total: float = 0.0
    """Seconds spent of the budget that definitions share, and of that of the chain."""
    paused: bool = False
    output: Any = None
    """What the hook whose turn it is prints, where that is captured and there is any."""

    # -- what callers use ----------------------------------------------------------------------------------------

    def start(self) -> Outcome | None:
        """Run to the end, or to the first hook that suspends: what they said, or None where one did."""
        picked = self.picked
        context, todo = copy_context(), iter(picked.hooks)
        walking = walk(self, todo, context)
        self.started = self.mark = clock()
        waiting = context.run(next, walking, THROUGH)  # asked this way, the end costs no exception
        if waiting is THROUGH and not self.torn:
            return self.outcome()
        self.hooks, self.todo = picked.hooks, todo
        self.context, self.walking, self.waiting = context, walking, waiting
        return self.outcome() if waiting is THROUGH and self.walk_again() else None

    def finish(self) -> Awaitable[Outcome]:
        """Go on until the chain is through: what they said. What cancelling does is told at `Wait.through`."""
        self.wait = Wait(self)
        return self.wait.run_to_end()

    def outcome(self) -> Outcome:
        """What the hooks said."""
        now, picked, answers = clock(), self.picked, self.answers
        spent = (now - self.started) * 1e3
        if now - self.mark >= picked.shortest_timeout:
            self._suspect(now - self.mark)
        if answers is None:
            return Outcome(picked.event, self.data, picked.names, spent)
        data = self.data if self.modifier is None else dict(self.view)
        ran = picked.names if self.denied is None else picked.names[: picked.hooks.index(self.denied) + 1]
        return merge(picked.event, data, answers, ran=ran, modified=self.modifier is not None, duration_ms=spent)

    async def look_again(self, hooks: tuple[Hook, ...]) -> Outcome:
        """Let these gates look at the data as it has become; only what they object to counts."""
        second = Run(
            evolve(self.picked, hooks=hooks), self.view, self.view, self.outer, self.depth,
            recheck=True, answers=self.answers, shared=self.shared, total=self.total,
        )  # fmt: skip
        second.start() or await second.finish()
        self.mark = clock()  # the time in between was not that of a hook of ours
        return self.outcome()

    def pause(self) -> None:
        """An around hook called on: from here the time is the operation's."""
        self.paused = True
        self.mark -= clock()  # as much ago as it will be when the clock is added again

    def resume(self) -> None:
        """The operation came back: the hook's time goes on where it stopped."""
        self.paused = False
        self.mark += clock()
        if self.wait is not None:
            self.wait.resume()

    @property
    def tenant(self) -> str:
        """Whom the event is about."""
        return tenant_and_tool(self.data)[0]

    @property
    def event(self) -> str:
        """What its hooks are told."""
        return self.picked.event

    @property
    def hook(self) -> Hook:
        """The hook whose turn it is; the walk is too busy to say so for each."""
        return self.hooks[len(self.hooks) - length_hint(self.todo) - 1]

    # -- driving the walk ----------------------------------------------------------------------------------------

    def walk_again(self) -> bool:
        """A walk has ended: begin another where hooks are left. True when the chain is through."""
        while rest := self._remaining():
            self.context, self.torn = copy_context(), False  # we are outside of it here
            self.hooks, self.todo = rest, iter(rest)
            self.walking = walk(self, self.todo, self.context)
            self.waiting = self.context.run(next, self.walking, THROUGH)
            if self.waiting is not THROUGH:
                return False
        self.context = self.walking = None  # they refer back to us
        return True

    def _remaining(self) -> tuple[Hook, ...]:
        rest = tuple(self.todo) if self.wait is None else self.wait.take_remaining()
        return rest if self.denied is None else ()

    # -- what the walk reports -----------------------------------------------------------------------------------

    def is_ready(self, hook: Hook) -> bool:
        """Whether a hook that is not plain may be called; if not, it is on record why."""
        if not hook.able:
            if not hook.enabled:
                self._record(Answer(hook.name, CONTINUE, "disabled"))
                return False
            if hook.in_quarantine(self.tenant):
                self.record_failure(hook, "unavailable", f"in quarantine: it had to be left behind {hook.leaks} times")
                return False
            if hook.budget is not None and self.allowance(hook) <= 0:
                limit = min(hook.budget)
                self.record_failure(hook, "timeout", f"the hooks before it used up the {limit:g} s they share")
                return False
        if hook.timed:
            now = clock()
            if now - self.mark >= self.picked.shortest_timeout:
                self._suspect(now - self.mark)  # whoever came before
            self.mark = now
            self.marked = hook
            self.attend = True
        return True

    def record_answer(self, hook: Hook, answer: object) -> bool:
        """Put an answer on record and act on it. True when no hook may follow in this walk."""
        wait = self.wait
        if wait is not None and (wait.interrupted or wait.task.cancelling() > wait.cancels + wait.ours):
            return True  # `wait.over`, written out: this is asked after every hook of a chain that waits
        now = clock()
        duration = now - self.mark
        limit = hook.timeout if hook.budget is None else self.allowance(hook)
        late = duration >= limit and (wait is not None or self._is_alone(hook, duration))
        if self.attend:
            self._settle(hook, now, duration)
        else:
            self.mark = now
        if late:
            return self.record_failure(hook, "timeout", timeout_text(limit), duration)
        if answer is CONTINUE or answer is None:
            result, silent = CONTINUE, wait is None and not hook.timing and self.output is None
        else:
            silent = False
            try:
                result = answer if type(answer) is HookResult else as_result(answer)
                if result.data is not None and result.action in CHANGES and not self.recheck:
                    self._modify(hook, result)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001  # a mapping may raise anything while it is read
                return self.record_failure(hook, "invalid", describe(error), duration)
        if not silent:
            said = Answer(hook.name, result, "ok", None, duration * 1e3, False, self.recheck)  # noqa: FBT003
            self._record(said if hook.risk is None else with_risk(said, hook.risk, hook.risk_reason))
        if result.action == "deny":
            self.denied = hook
            return True
        return False

    def record_error(self, hook: Hook, error: BaseException) -> bool:
        """The same for a hook that raised."""
        if self.wait is not None and self.wait.over:
            return True
        now = clock()
        duration = now - self.mark
        self._settle(hook, now, duration)
        status = next(status for kind, status in STATUS_OF if isinstance(error, kind))
        return self.record_failure(hook, status, describe(error), duration)

    def record_timeout(self, hook: Hook) -> None:
        """The same for a hook that was interrupted."""
        now = clock()
        duration = now - self.mark
        limit = self.allowance(hook)
        self._settle(hook, now, duration)
        self.record_failure(hook, "timeout", timeout_text(limit), duration)

    def record_failure(self, hook: Hook, status: Status, error: str, duration: float | None = None) -> bool:
        """Put on record that a hook gave no answer. At a gate that is a denial."""
        spent = None if duration is None else duration * 1e3
        denies = hook.denies(self.event)
        self._record(Answer(hook.name, CONTINUE, status, error, spent, denies, self.recheck))
        log.warning("hook_failed", hook=hook.name, error=error, event=self.event, status=status)
        if denies:
            self.denied = hook
        return self.denied is not None

    def _record(self, answer: Answer) -> None:
        if self.output is not None:
            answer = msgspec.structs.replace(answer, output=self.output.end())
            self.output = None
        answers = self.answers
        if answers is None:
            self.answers = [answer]
        else:
            answers.append(answer)

    def _settle(self, hook: Hook, now: float, duration: float) -> None:
        """The next hook's time begins where this one's ended."""
        self.mark = now
        self.marked = None
        self.attend = self.wait is not None
        if hook.budget is not None:
            self.total += duration
            if hook.budget.definitions < inf:
                self.shared += duration

    def _modify(self, hook: Hook, result: HookResult) -> None:
        """Merge the answer's data over the payload.

        Raises `InvalidResult` where it changes what is not for hooks to change.
        """
        changes, view, keeps = result.data or {}, self.view, self.picked.keeps
        changed = DataView(view | changes)
        for name in () if keeps.isdisjoint(changes) else keeps.intersection(changes):
            if name not in view or (changes[name] is not view[name] and changes[name] != view[name]):
                raise InvalidResult(f"modify changes {name!r}, which is not for hooks to change at {self.event}")
            dict.__setitem__(changed, name, view[name])  # what calls itself equal need not be the same
        self.view, self.modifier = changed, hook

    def allowance(self, hook: Hook) -> float:
        """Seconds this hook may take: its own time, or what is left of what it shares with others."""
        budget = hook.budget
        if budget is None:
            return hook.timeout
        return min(hook.timeout, budget.definitions - self.shared, budget.chain - self.total)

    # -- who was late --------------------------------------------------------------------------------------------

    def _is_alone(self, hook: Hook, duration: float) -> bool:
        """Whether all the time since the clock was last read is this hook's.

        Hooks that gate have the clock read on both sides. The others are not worth two readings each until a chain
        has once run over a deadline without suspending; from then on those that may have done it are, too.
        """
        if self.marked is hook or len(self.picked.hooks) == 1:
            return True
        self._suspect(duration)
        return False

    def _suspect(self, elapsed: float) -> None:
        unclocked = [hook for hook in self.picked.hooks if not hook.timed and elapsed >= hook.timeout]
        for hook in unclocked:
            hook.timed = True
            hook.settle()
        if unclocked:
            names = [hook.name for hook in unclocked]
            log.warning("hooks_blocked_the_loop", event=self.event, hooks=names, seconds=elapsed)


@coroutine  # a generator can be asked for its next step; a coroutine would need an iterator around it
def walk(run: Run, todo: Iterator[Hook], context: Context) -> Generator[Any, Any, None]:  # noqa: C901, PLR0912  # the hot loop: a call costs more than a branch
    """Call the hooks in turn. Ends early after a denial, an interruption, or a change of context variables."""
    CURRENT.set(run)
    event, view = run.event, run.view
    clean = context.copy()
    for hook in todo:
        try:
            if hook.plain:
                answer = yield from hook.call(event, view)
            elif run.is_ready(hook):
                answer = hook.call(event, dict(view) if hook.intent == "register" else view)
                if hook.awaits or type(answer) is CoroutineType:
                    answer = yield from answer
                elif hasattr(answer, "__await__"):
                    answer = yield from answer.__await__()
            elif run.denied is None:
                continue
            else:
                return
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # a hook may raise anything, and harm nobody with it
            over = run.record_error(hook, error)
            same = not contexts_differ(context, clean)
        else:
            try:
                same = context == clean
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: BLE001  # as in `differ`
                same = False
            silent = answer is CONTINUE or answer is None
            if silent and same and not run.attend:
                continue
            over = run.record_answer(hook, answer)
            if same and not silent and type(answer) is not HookResult:
                same = not contexts_differ(context, clean)  # reading it was the hook's doing, too
        if not same:
            run.torn = over = True
        if over:
            return
        view = run.view


def contexts_differ(one: Context, other: Context) -> bool:
    """Whether a context variable was set. To a value equal to the one before does not count."""
    try:
        return one != other
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  # values that cannot be compared are not the same
        return True


def with_risk(answer: Answer, risk: Risk, reason: str) -> Answer:
    """The answer with the risk that its hook was registered with, if it asks."""
    if answer.result.action != "ask_user":
        return answer
    return msgspec.structs.replace(answer, registered=Assessment(by=answer.hook_name, risk=risk, reason=reason))


def timeout_text(limit: float) -> str:
    """The sentence for a hook whose time is up."""
    return f"no answer within {round(limit, 3):g} s"


def describe(error: BaseException, room: int = 500) -> str:
    """A bounded text about an error; never raises, whatever the error's own `__str__` does.

    Of a group its members are named, and not theirs: groups may hold each other many times over.
    """
    try:
        if isinstance(error, BaseExceptionGroup):
            text = f"{type(error).__name__} of {len(error.exceptions)}"
            if room > MEMBER_ROOM:
                text += ": " + ", ".join(describe(one, MEMBER_ROOM) for one in error.exceptions[:5])
        else:
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    except BaseException:  # noqa: BLE001  # the error's text is the hook's code, too
        text = type(error).__name__
    return text if len(text) <= room else f"{text[: room - 1]}…"
