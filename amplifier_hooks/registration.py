"""How a handler gets in: five ways, and one check of everything that can be known beforehand.

`Registrar` is what a registry and a plugin's scope of it have in common; `make_hook` turns what was said into a
`Hook`, or says what is wrong with it.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf, isnan
from typing import Any, Final, NamedTuple, TypeVar, overload

from amplifier_hooks.around import layer_call
from amplifier_hooks.errors import InvalidRegistration
from amplifier_hooks.hook import DEFAULT_TIMEOUT, Hook, Intent, OnError
from amplifier_hooks.matching import compile_matcher
from amplifier_hooks.result import CONTINUE, HookResult
from amplifier_hooks.threads import DaemonPool
from amplifier_hooks.trust import Scope

__all__ = ["Handler", "Registrar", "Seen", "Undo", "make_hook", "seconds"]

Undo = Callable[[], None]
Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)

ARGUMENTS: Final = {
    "register": "(event, data)",
    "on": "(event, data)",
    "gate": "(event, data)",
    "observe": "(event, data, outcome)",
    "around": "(context, call_next)",
}
"""What each kind of handler is called with."""

THREADS_PER_HOOK: Final = 4


class Registrar(ABC):
    """The five ways in. Each returns its undo, which may be called any number of times; all but `register` are
    decorators when no handler is given.

    Options of all: `priority` (lower runs first), `name`, `timeout` in seconds (`None`: never), `tenant`, and
    `match` (which tools it is for). Raises `InvalidRegistration` for what cannot work, `UnknownEvent` under
    strict_events, `PrivilegeRequired` where the registrar may not be.
    """

    @abstractmethod
    def _add(self, intent: Intent, event: str, handler: Handler, **options: Any) -> Undo: ...

    def register(
        self, event: str, handler: Handler, priority: int = 0, name: str | None = None, **options: Any
    ) -> Undo:
        """Take part as a handler of the upstream kernel does: it gets a copy of the data and runs exactly once.

        A failure is skipped, unless `on_error="deny"` or the registry says otherwise. `thread=True` runs a plain
        function in a small pool of its own.
        """
        return self._add("register", event, handler, priority=priority, name=name, **options)

    @overload
    def on(self, event: str, *, priority: int = 0, name: str | None = None, **options: Any) -> Callable[[H], H]: ...
    @overload
    def on(self, event: str, handler: Handler, priority: int = 0, name: str | None = None, **options: Any) -> Undo: ...
    def on(
        self, event: str, handler: Handler | None = None, priority: int = 0, name: str | None = None, **options: Any
    ) -> Any:
        """Take part, with a read-only view of the data. A failure is skipped (`on_error="deny"`: it denies)."""
        return self._join("on", event, handler, priority=priority, name=name, **options)

    @overload
    def gate(self, event: str, *, priority: int = 0, name: str | None = None, **options: Any) -> Callable[[H], H]: ...
    @overload
    def gate(
        self, event: str, handler: Handler, priority: int = 0, name: str | None = None, **options: Any
    ) -> Undo: ...
    def gate(
        self, event: str, handler: Handler | None = None, priority: int = 0, name: str | None = None, **options: Any
    ) -> Any:
        """Take part and fail closed: an error, a timeout, or an answer that is none denies.

        A gate sees changed data a second time; `recheck=False` is for those that count, such as rate limits.
        """
        return self._join("gate", event, handler, priority=priority, name=name, **options)

    @overload
    def observe(
        self, event: str, *, priority: int = 0, name: str | None = None, **options: Any
    ) -> Callable[[H], H]: ...
    @overload
    def observe(
        self, event: str, handler: Handler, priority: int = 0, name: str | None = None, **options: Any
    ) -> Undo: ...
    def observe(
        self, event: str, handler: Handler | None = None, priority: int = 0, name: str | None = None, **options: Any
    ) -> Any:
        """Be told of the event and its outcome, last and always, without a say. `"*"` is every event but `hook:*`.

        `concurrent=True` lets it run beside the other observers that say so.
        """
        return self._join("observe", event, handler, priority=priority, name=name, **options)

    @overload
    def around(
        self, operation: str, *, priority: int = 0, name: str | None = None, **options: Any
    ) -> Callable[[H], H]: ...
    @overload
    def around(
        self, operation: str, handler: Handler, priority: int = 0, name: str | None = None, **options: Any
    ) -> Undo: ...
    def around(
        self, operation: str, handler: Handler | None = None, priority: int = 0, name: str | None = None, **options: Any
    ) -> Any:
        """Wrap an operation: agent, tool, workflow, request or model. Time spent inside `call_next` does not count."""
        return self._join("around", operation, handler, priority=priority, name=name, **options)

    def _join(self, intent: Intent, event: str, handler: Handler | None, **options: Any) -> Any:
        if handler is not None:
            return self._add(intent, event, handler, **options)

        def decorate(function: H) -> H:
            self._add(intent, event, function, **options)
            return function

        return decorate


class Seen(NamedTuple):
    """What an observer is shown; it travels where the data of other hooks does."""

    data: Any
    outcome: Any


def make_hook(
    intent: Intent,
    event: str,
    handler: Handler,
    scope: Scope,
    number: int,
    *,
    priority: int = 0,
    name: str | None = None,
    match: Any = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    on_error: OnError | None = None,
    tenant: str = "",
    thread: bool = False,
    recheck: bool = True,
    concurrent: bool = False,
    budget: float | None = None,
    timing: bool = False,
) -> Hook:
    """A hook from what was said about it.

    Raises `InvalidRegistration` naming what is wrong and how to write it.
    """
    if not callable(handler):
        raise InvalidRegistration(f"handler {handler!r} is not callable: pass a function {ARGUMENTS[intent]}")
    name = name or getattr(handler, "__name__", None) or type(handler).__name__
    _check_signature(intent, name, handler)
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise InvalidRegistration(f"{name}: priority {priority!r} is not an integer; lower numbers run first")
    if on_error not in ("continue", "deny", None):
        raise InvalidRegistration(f"{name}: on_error {on_error!r} is neither 'continue' nor 'deny'")
    if intent == "observe" and on_error == "deny":
        raise InvalidRegistration(f"{name}: an observer has no say, so it cannot deny; use gate")
    if not isinstance(tenant, str):
        raise InvalidRegistration(f"{name}: tenant {tenant!r} is not a str")
    awaits = _awaits(handler)
    if thread and awaits:
        raise InvalidRegistration(f"{name}: thread=True is for plain functions, and this one is async")
    return Hook(
        name=name,
        given_name=name,
        event=event,
        intent=intent,
        handler=handler,
        call=_call(intent, handler, awaits=awaits, thread=thread, name=name),
        awaits=awaits or thread or intent in ("observe", "around"),
        number=number,
        priority=priority,
        timeout=seconds(timeout, f"{name}: timeout"),
        on_error=on_error or ("deny" if intent == "gate" else "continue"),
        match=None if match is None else compile_matcher(match),
        tenant=tenant,
        tier=scope.tier,
        owner=scope.owner,
        recheck=recheck and intent == "gate",
        concurrent=concurrent,
        budget=budget,
        timed=timing,
    )


def seconds(value: float | None, what: str) -> float:
    """A timeout as the dispatcher takes it; `None` never ends.

    Raises `InvalidRegistration` for what is not a positive number.
    """
    if value is None:
        return inf
    if isinstance(value, bool) or not isinstance(value, (int, float)) or isnan(value) or value <= 0:
        raise InvalidRegistration(f"{what} {value!r} is not a positive number of seconds; None means no limit")
    return float(value)


def _check_signature(intent: Intent, name: str, handler: Handler) -> None:
    expected = ARGUMENTS[intent]
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):  # some callables written in C do not say what they take
        return
    try:
        signature.bind(*expected.split(","))
    except TypeError:
        raise InvalidRegistration(f"{name}{signature} cannot be called with {expected}") from None
    if intent == "around" and not _awaits(handler):
        raise InvalidRegistration(f"{name}: an around hook awaits call_next, so it is an async function")


def _awaits(handler: Handler) -> bool:
    while isinstance(handler, partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))


def _call(intent: Intent, handler: Handler, *, awaits: bool, thread: bool, name: str) -> Callable[..., Any]:
    """What the dispatcher calls, decided once: it never asks what a handler is while it runs."""
    if intent == "around":
        return layer_call
    inner = partial(DaemonPool(THREADS_PER_HOOK, f"hook {name}").run, handler) if thread else handler
    if intent != "observe":
        return inner
    if awaits or thread:

        async def watch(event: str, seen: Seen) -> HookResult:
            await inner(event, seen.data, seen.outcome)
            return CONTINUE

    else:

        async def watch(event: str, seen: Seen) -> HookResult:
            answer = handler(event, seen.data, seen.outcome)
            if hasattr(answer, "__await__"):
                await answer
            return CONTINUE

    return watch
