"""Run one chain: hooks in order, each with its own deadline, none able to harm the caller or the next hook.

`walk` is the hot loop. A `Run` drives it and takes the first step by hand: if no hook suspends, the run never touches
the event loop and creates no timer, task or lock. `timeouts.py` takes over when a hook suspends.

A walk also ends when a hook changed context variables; the next hook gets a walk in a clean context.

Each hook gets a view of its own, with copies of the lists and dicts inside, so that no hook can change what another
reads.
"""

from __future__ import annotations

import marshal
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Mapping
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from math import inf
from operator import length_hint
from time import monotonic as clock
from types import CoroutineType, coroutine
from typing import Any, Final

import msgspec
from msgspec import to_builtins

from amplifier_hooks.act import freeze, thaw
from amplifier_hooks.dispatch.chain import DataView, Hook, Selection, tenant_and_tool
from amplifier_hooks.dispatch.merge import merge, stricter
from amplifier_hooks.dispatch.timeouts import THROUGH, Wait
from amplifier_hooks.errors import HookUnavailable, InputNotFreezable, InvalidResult
from amplifier_hooks.logs import get_logger
from amplifier_hooks.result import (
    CHANGING,
    CONTINUE,
    Answer,
    Assessment,
    HookResult,
    Outcome,
    Status,
    Unenforced,
    as_result,
)
from amplifier_hooks.text.matching import MatchTimedOut

CURRENT: ContextVar[Run | None] = ContextVar("amplifier_hooks.current", default=None)
"""Run in which the current code is called; an emit made by a hook reads its depth here."""

STATUS_OF: Final[tuple[tuple[type[BaseException], Status], ...]] = (
    (HookUnavailable, "unavailable"),
    (InvalidResult, "invalid"),
    (MatchTimedOut, "timeout"),
    (BaseException, "error"),
)

CHANGED_IN_PLACE: Final = "a hook changed the input in place; to change it, hooks answer HookResult.modify({...})"

WANTS_ANOTHER: Final = "another hook has changed the data since, and this hook wants it otherwise"

MEMBER_ROOM: Final = 100
"""Characters for one member of an exception group."""

ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})
"""Types whose values hooks can share, because no hook can change them."""

Copier = tuple[str, Callable[[], Any]]
"""A field that each hook needs a copy of, with a function that makes one."""

log = get_logger(__name__)


class ChangeConflict(Exception):
    """A hook wants other data at a second look. This exception never leaves a run."""


class Run(msgspec.Struct, eq=False):
    """One chain under way: `run.start() or await run.finish()` gives the outcome of its hooks.

    A struct, because every emit creates one. The first group of fields is the input, the second the result so far, the
    third the progress.
    """

    selection: Selection
    data: Mapping[str, Any]
    """The payload with all changes so far. No hook ever holds an object in it that can be copied."""
    outer: Any = None
    depth: int = 1
    recheck: bool = False
    exact: Collection[str] = ()
    """Fields of JSON that are decided about: a hook that changes its copy in place denies."""
    rests: Any = None
    """The hook objects that wait for the act that is decided about; see `middleware.py`."""
    given: Any = None
    """Passed to the hooks instead of a view of the data: the outcome, for observers, or a layer of middleware."""
    changer: str | None = ""
    """At a second look, the name of the hook whose change was the last; it may want its change again, as every hook may
    if the name is None."""

    answers: list[Answer] | None = None
    modifier: Hook | None = None
    changed: Collection[str] = ()
    """Fields of the last change."""
    denied: Hook | None = None

    wait: Wait | None = None
    hooks: tuple[Hook, ...] = ()
    todo: Any = None
    """The walk's hooks (`hooks`), and the iterator over the hooks still to run (`todo`)."""
    context: Any = None
    walking: Any = None
    waiting: Any = None
    torn: bool = False
    """True if the walk ended because a hook changed its context."""
    attend: Hook | bool = False
    """True if the clock is read after the current hook even when that hook has no answer: the hook itself if its time
    began at `mark`."""
    started: float = 0.0
    mark: float = 0.0
    """Time when the clock was last read: when the hook in `attend` started, or when the previous hook ended."""
    shared: float = 0.0
    total: float = 0.0
    """Seconds spent of the budget that definitions share (`shared`), and of the chain's budget (`total`)."""
    paused: bool = False
    output: Any = None
    """Captured output of the current hook; None without a capture or without output."""

    # -- for callers ---------------------------------------------------------------------------------------------

    def start(self) -> Outcome | None:
        """Run to the end, or to the first hook that suspends. Return the outcome, or None if a hook suspended."""
        picked = self.selection
        context, todo = copy_context(), iter(picked.hooks)
        walking = walk(self, todo, context)
        self.started = self.mark = clock()
        waiting = context.run(next, walking, THROUGH)  # with a default, the end costs no exception
        if waiting is THROUGH and not self.torn:
            return self.outcome()
        self.hooks, self.todo = picked.hooks, todo
        self.context, self.walking, self.waiting = context, walking, waiting
        return self.outcome() if waiting is THROUGH and self.walk_again() else None

    def finish(self) -> Awaitable[Outcome]:
        """Run the rest of the chain and return its outcome. `Wait.run_to_end` describes cancellation."""
        self.wait = Wait(self)
        return self.wait.run_to_end()

    def outcome(self) -> Outcome:
        """Return the merged answers of the hooks."""
        now, picked, answers = clock(), self.selection, self.answers
        spent = (now - self.started) * 1e3
        if now - self.mark >= picked.shortest_timeout:
            self._suspect(now - self.mark)
        if answers is None:
            return Outcome(picked.event, self.data, picked.names, spent)
        ran = picked.names if self.denied is None else picked.names[: picked.hooks.index(self.denied) + 1]
        return merge(picked.event, self.data, answers, ran=ran, modified=self.modifier is not None, duration_ms=spent)

    async def look_again(self, hooks: tuple[Hook, ...]) -> Outcome:
        """Call these gates with the changed data; only their objections count. Return the new outcome."""
        second = Run(
            msgspec.structs.replace(self.selection, hooks=hooks), self.data, self.outer, self.depth,
            recheck=True, exact=self.exact, rests=self.rests,
            answers=self.answers, shared=self.shared, total=self.total,
        )  # fmt: skip
        second.start() or await second.finish()
        self.mark = clock()  # no hook of this run used the time in between
        return self.outcome()

    def pause(self) -> None:
        """Stop the hook's clock: an around hook called `call_next`, and the operation runs."""
        self.paused = True
        self.mark -= clock()  # `resume` adds the clock again

    def resume(self) -> None:
        """Start the hook's clock again where it stopped: the operation has returned."""
        self.paused = False
        self.mark += clock()
        if self.wait is not None:
            self.wait.resume()

    @property
    def tenant(self) -> str:
        """Tenant ID of the payload."""
        return tenant_and_tool(self.data)[0]

    @property
    def event(self) -> str:
        """Event that the hooks are called with."""
        return self.selection.event

    @property
    def hook(self) -> Hook:
        """The current hook. Derived from the iterator, because storing it would slow down every step of the walk."""
        return self.hooks[len(self.hooks) - length_hint(self.todo) - 1]

    # -- driving the walk ----------------------------------------------------------------------------------------

    def walk_again(self) -> bool:
        """Start another walk if a walk has ended and hooks are left. Return True if the chain has ended."""
        while rest := tuple(self.todo) if self.wait is None else self.wait.take_remaining():
            if self.denied is not None:
                break
            self.context, self.torn = copy_context(), False  # this code runs outside of the walk's context
            self.hooks, self.todo = rest, iter(rest)
            self.walking = walk(self, self.todo, self.context)
            self.waiting = self.context.run(next, self.walking, THROUGH)
            if self.waiting is not THROUGH:
                return False
        self.context = self.walking = None  # they refer back to the run
        return True

    # -- for the walk --------------------------------------------------------------------------------------------

    def is_ready(self, hook: Hook) -> bool:
        """Return True if a hook that is not plain may be called. Otherwise record the reason."""
        if not hook.able:
            if not hook.enabled:
                self._record(Answer(hook.name, CONTINUE, "disabled"))
                return False
            if hook.in_quarantine(self.tenant):
                self.record_failure(hook, "unavailable", f"in quarantine: it had to be left behind {hook.leaks} times")
                return False
            if hook.budget is not None and self.allowance(hook) <= 0:
                limit = min(hook.budget.definitions, hook.budget.chain)
                self.record_failure(hook, "timeout", f"the hooks before it used up the {limit:g} s they share")
                return False
        if hook.timed:
            now = clock()
            if now - self.mark >= self.selection.shortest_timeout:
                self._suspect(now - self.mark)  # one of the hooks before
            self.mark = now
            self.attend = hook
        return True

    def record_answer(self, hook: Hook, answer: object) -> bool:  # noqa: C901  # a call costs more than a branch
        """Record an answer and apply it. Return True if no further hook may run in this walk."""
        wait = self.wait
        if wait is not None and (wait.interrupted or wait.task.cancelling() > wait.cancels + wait.ours):
            return True  # `wait.over`, inlined: this line runs after every hook of a chain that waits
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
                if result.data is not None and result.action in CHANGING:
                    self._take_change(hook, self._own_changes(result.data))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001  # a mapping may raise anything while it is read
                status: Status = "conflict" if isinstance(error, ChangeConflict) else "invalid"
                denies = isinstance(error, InputNotFreezable | ChangeConflict)  # the hook wants another input
                return self.record_failure(hook, status, describe(error), duration, denies=denies)
        if not silent:
            record = Answer(hook.name, result, "ok", None, duration * 1e3, False, self.recheck)  # noqa: FBT003
            if hook.risk is not None and result.action == "ask_user":
                registered = Assessment(by=hook.name, risk=hook.risk, reason=hook.risk_reason)
                record = msgspec.structs.replace(record, registered=registered)
            self._record(self._withhold(record) if hook.report_only else record)
        if result.action == "deny" and not hook.report_only:
            self.denied = hook
            return True
        return False

    def record_error(self, hook: Hook, error: BaseException) -> bool:
        """Record the exception of a hook that raised. Return True if no further hook may run in this walk."""
        if self.wait is not None and self.wait.over:
            return True
        now = clock()
        duration = now - self.mark
        self._settle(hook, now, duration)
        status = next(status for kind, status in STATUS_OF if isinstance(error, kind))
        return self.record_failure(hook, status, describe(error), duration)

    def record_timeout(self, hook: Hook) -> None:
        """Record the timeout of a hook that was interrupted."""
        now = clock()
        duration = now - self.mark
        limit = self.allowance(hook)
        self._settle(hook, now, duration)
        self.record_failure(hook, "timeout", timeout_text(limit), duration)

    def record_failure(
        self, hook: Hook, status: Status, error: str, duration: float | None = None, *, denies: bool = False
    ) -> bool:
        """Record that a hook gave no answer; at a gate that is a denial. Return True if the run is denied.

        A report-only hook denies nothing, whatever `denies` says.
        """
        spent = None if duration is None else duration * 1e3
        denies = denies or hook.fails_closed(self.event)
        record = Answer(hook.name, CONTINUE, status, error, spent, denies, self.recheck)
        self._record(self._withhold(record) if hook.report_only else record)
        log.warning("hook_failed", hook=hook.name, error=error, event=self.event, status=status)
        if denies and not hook.report_only:
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

    def _withhold(self, answer: Answer) -> Answer:
        """Return the answer of a report-only hook without its effect: empty, with what the hook would have done."""
        result = answer.effective_result
        if result.suppress_output:
            self.output = None
        action = stricter(answer.action, "inject_context") if result.injections else answer.action
        reason = answer.error if answer.denies else result.reason or result.approval_prompt
        would = None if action == "continue" else Unenforced(action, reason)
        return msgspec.structs.replace(answer, result=CONTINUE, denies=False, registered=None, would=would)

    def _settle(self, hook: Hook, now: float, duration: float) -> None:
        """Start the next hook's time where this hook's time ended."""
        self.mark = now
        self.attend = self.wait is not None
        if hook.budget is not None and not hook.report_only:
            self.total += duration
            if hook.budget.definitions < inf:
                self.shared += duration

    def given_to(self, view: DataView) -> Any:
        """Return the layer, or the outcome with copies of its own for one observer."""
        if type(self.given) is not Outcome:
            return self.given
        answers = tuple(answer if answer.result is CONTINUE else _own(answer) for answer in self.given.answers)
        return msgspec.structs.replace(self.given, data=view, answers=answers)

    def is_changed(self, view: Mapping[str, Any]) -> bool:
        """Return True if a hook has changed a field that is decided about in place."""
        data = self.data
        try:
            for name in self.exact:  # noqa: SIM110  # a generator would cost more than the comparison
                if view[name] != data[name]:
                    return True
            return False  # noqa: TRY300
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001  # an object that the hook put there may raise anything
            return True

    def _take_change(self, hook: Hook, changes: Mapping[str, Any]) -> None:
        """Merge changes over the payload. At a second look no change applies any more.

        Raises `ChangeConflict` if the hook wants another change at a second look, and `InvalidResult` if the change is
        one of a field that hooks may not change.
        """
        if self.recheck:
            if self._conflicts(hook, changes):
                raise ChangeConflict(WANTS_ANOTHER)
            return
        before, keeps = self.data, self.selection.keeps
        data = {**before, **changes}
        for name in () if keeps.isdisjoint(changes) else keeps.intersection(changes):
            if name not in before or (changes[name] is not before[name] and changes[name] != before[name]):
                raise InvalidResult(f"modify changes {name!r}, which is not for hooks to change at {self.event}")
            data[name] = before[name]  # a value that compares equal need not be identical
        if not hook.report_only:
            self.data, self.modifier, self.changed = data, hook, changes

    def _conflicts(self, hook: Hook, changes: Mapping[str, Any]) -> bool:
        """Return True if a hook wants other data at a second look, and not its own last change again."""
        if self.changer is None or hook.name == self.changer:
            return False
        return any(
            name not in self.data
            or (freeze(self.data[name]) != freeze(value) if name in self.exact else self.data[name] != value)
            for name, value in changes.items()
            if name in self.exact or not self.exact
        )

    def _own_changes(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of the changes that a hook wants, frozen as they are now.

        Raises `InputNotFreezable` for a field that is decided about and is no JSON.
        """
        owned = {**changes}
        for name, value in owned.items():
            if name in self.exact:
                owned[name] = frozen_copy(name, value, as_object=type(self.data[name]) is dict)
            elif type(value) not in ATOMS:
                owned[name] = own(value)
        return owned

    def allowance(self, hook: Hook) -> float:
        """Return the seconds this hook may take: its own timeout, or the rest of the time it shares."""
        budget = hook.budget
        if budget is None:
            return hook.timeout
        return min(hook.timeout, budget.definitions - self.shared, budget.chain - self.total)

    # -- late hooks ----------------------------------------------------------------------------------------------

    def _is_alone(self, hook: Hook, duration: float) -> bool:
        """Return True if this hook alone used the time since the clock was last read.

        The clock is read before and after each hook that gates. Other hooks are not worth two readings each until a
        chain has once passed a deadline without suspending; from then on the hooks that may have caused that are timed,
        too.
        """
        if self.attend is hook or len(self.selection.hooks) == 1:
            return True
        self._suspect(duration)
        return False

    def _suspect(self, elapsed: float) -> None:
        unclocked = [hook for hook in self.selection.hooks if not hook.timed and elapsed >= hook.timeout]
        for hook in unclocked:
            hook.timed = True
            hook.settle()
        if unclocked:
            names = [hook.name for hook in unclocked]
            log.warning("hooks_blocked_the_loop", event=self.event, hooks=names, seconds=elapsed)


@coroutine  # `next` works on a generator; a coroutine would need an iterator around it
def walk(run: Run, todo: Iterator[Hook], context: Context) -> Generator[Any, Any, None]:  # noqa: C901, PLR0912, PLR0915  # the hot loop: a call costs more than a branch
    """Call the hooks in turn. End early after a denial, an interruption, or a change of context variables."""
    CURRENT.set(run)
    event, data, given, exact = run.selection.event, run.data, run.given, run.exact
    copiers = copiers_of(data)
    fields = {**data}  # views are made from it, with the copies in it; writing to a view takes longer
    clean = context.copy()
    fresh = not run.hooks  # the clock was read after the hook before, or at the start
    for hook in todo:
        for name, copy in copiers:
            fields[name] = copy()
        view = DataView(fields)
        if given is not None:
            view = run.given_to(view)
        try:
            if hook.plain:
                fresh = False
                answer = yield from hook.call(event, view)
            elif fresh and hook.direct:
                run.attend = hook
                answer = yield from hook.call(event, view)
            elif run.is_ready(hook):
                fresh = False
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
        except BaseException as error:  # noqa: BLE001  # a hook may raise anything without harming others
            over = run.record_error(hook, error)
            same = not contexts_differ(context, clean)
        else:
            try:
                same = context == clean
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: BLE001  # as in `contexts_differ`
                same = False
            silent = answer is CONTINUE or answer is None
            if exact and run.is_changed(view):
                over = run.record_failure(hook, "invalid", CHANGED_IN_PLACE, denies=True)
            elif silent and same and not run.attend:
                continue
            elif (
                silent
                and same
                and run.attend is hook
                and run.wait is None
                and run.output is None
                and hook.lean
                and (now := clock()) - run.mark < hook.timeout
            ):
                run.mark, run.attend, fresh = now, False, True
                continue
            else:
                over = run.record_answer(hook, answer)
            if same and not silent and type(answer) is not HookResult:
                same = not contexts_differ(context, clean)  # reading the answer ran the hook's code, too
        if not same:
            run.torn = over = True
        if over:
            return
        fresh = False
        if run.data is not data:
            data = run.data
            copiers = copiers_after(run.changed, copiers, data)
            for name in run.changed:
                fields[name] = data[name]


def observe(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return the callable of an observer, which takes the event, the data and the outcome."""

    async def watch(event: str, outcome: Outcome) -> HookResult:
        answer = handler(event, outcome.data, outcome)
        if hasattr(answer, "__await__"):
            await answer
        return CONTINUE

    return watch


def observe_async(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return the callable of an observer that is known to return an awaitable."""

    async def watch(event: str, outcome: Outcome) -> HookResult:
        await handler(event, outcome.data, outcome)
        return CONTINUE

    return watch


# -- copies of a hook's own --------------------------------------------------------------------------------------------


def copiers_of(data: Mapping[str, Any]) -> list[Copier]:
    """Return the copiers of a payload. No hook can change the values left out."""
    copiers: list[Copier] = []
    for name, value in data.items():  # a comprehension costs half as much again
        if type(value) is not str and type(value) not in ATOMS:
            copiers.append((name, _copier(value)))  # see above
    return copiers


def copiers_after(change: Collection[str], copiers: list[Copier], data: Mapping[str, Any]) -> list[Copier]:
    """Return the copiers of a payload after a change of these fields, from the copiers before it."""
    after = []
    for copier in copiers:
        if copier[0] not in change:
            after.append(copier)  # noqa: PERF401  # as in `copiers_of`
    for name in change:
        if type(data[name]) not in ATOMS:
            after.append((name, _copier(data[name])))  # noqa: PERF401  # as in `copiers_of`
    return after


def _copier(value: Any) -> Callable[[], Any]:
    if type(value) is dict:
        for part in value.values():
            if type(part) is not str and type(part) not in ATOMS:
                break
        else:
            return value.copy  # the usual case
    if type(value) in (dict, list) and (plain := _plain_copy(value)) is not None:
        return partial(to_builtins, plain)
    return partial(own, value)


def _plain_copy(value: Any) -> Any:
    """Return a copy of plain data. Return None if anything else is in it, or if it is too deep."""
    try:
        marshal.dumps(value)  # raises for a type that is not plain, which the next line would write as a text
        copy = to_builtins(value)  # takes half of the time of `marshal.loads`, a tenth of that of `own`
        equal = copy == value  # False for a set and for bytes, which have become others
    except Exception:  # noqa: BLE001  # it depends on what is in the value
        return None
    return copy if equal else None


def own(value: Any) -> Any:
    """Return a copy of a container and of all containers in it; any other object as it is.

    Runs no code of the values. A subclass of dict, list or set is copied as the plain kind, a subclass of tuple never.
    """
    made: dict[int, Any] = {}
    todo: list[Any] = []

    def take(item: Any) -> Any:
        if (known := made.get(id(item))) is not None:
            return known
        kind = type(item)
        if kind is tuple:
            with suppress(RecursionError):
                return tuple(take(one) for one in item)
        for plain in (dict, list, set, bytearray):
            if issubclass(kind, plain):
                made[id(item)] = copy = set(set.copy(item)) if plain is set else plain.copy(item)
                todo.append(copy)
                return copy
        return item

    copy = take(value)
    for one in todo:
        if type(one) is dict or type(one) is list:
            for key, item in one.items() if type(one) is dict else enumerate(one):
                if type(item) not in ATOMS:
                    one[key] = take(item)
    return copy


def frozen_copy(name: str, value: object, *, as_object: bool) -> Any:
    """Return a copy of a value from a hook, as JSON keeps it.

    Raises `InputNotFreezable` for a value that is no JSON, or no object where an object was. The value is the hook's
    code, too: reading it may raise anything.
    """
    if as_object and not isinstance(value, Mapping):
        raise InputNotFreezable(f"{name} was an object, and a hook replaced it by a {type(value).__name__}")
    try:
        return thaw(freeze(dict(value) if isinstance(value, Mapping) else value))
    except (InputNotFreezable, KeyboardInterrupt):
        raise
    except BaseException as error:  # see above
        raise InputNotFreezable(f"{name} could not be read: {type(error).__name__}") from error


def _own(answer: Answer) -> Answer:
    """Return an answer whose data no other reader of the outcome holds; all else in an answer is frozen."""
    result = answer.result
    if result.data is None:
        return answer
    return msgspec.structs.replace(answer, result=msgspec.structs.replace(result, data=own(result.data)))


# -- contexts and errors -----------------------------------------------------------------------------------------------


def contexts_differ(one: Context, other: Context) -> bool:
    """Return True if a context variable was set. Setting a variable to an equal value does not count."""
    try:
        return one != other
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  # values that cannot be compared are not the same
        return True


def timeout_text(limit: float) -> str:
    """Return the sentence for a hook that timed out."""
    return f"no answer within {round(limit, 3):g} s"


def describe(error: BaseException, room: int = 500) -> str:
    """Return a bounded text about an error. Never raises, even if the error's own `__str__` does.

    An exception group lists its members, but not the members of those: groups may contain each other many times over.
    """
    try:
        if isinstance(error, BaseExceptionGroup):
            text = f"{type(error).__name__} of {len(error.exceptions)}"
            if room > MEMBER_ROOM:
                text += ": " + ", ".join(describe(one, MEMBER_ROOM) for one in error.exceptions[:5])
        else:
            message = error_message(error)
            text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    except BaseException:  # noqa: BLE001  # a group's parts are the hook's code, too
        text = type(error).__name__
    return text if len(text) <= room else f"{text[: room - 1]}…"


def error_message(error: BaseException) -> str:
    """Return the text of an error, or nothing if its own `__str__` fails, in whatever way."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  # `__str__` is foreign code
        return ""
