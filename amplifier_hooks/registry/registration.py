"""Builds a `Hook` from a handler and its options, or raises an error that names the mistake."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from math import inf, nan
from reprlib import repr as shortened
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict, Unpack

from amplifier_hooks.dispatch.captured_output import capture_output, may_hide_output
from amplifier_hooks.dispatch.chain import DEFAULT_TIMEOUT, Hook, Intent, SharedTime, Source
from amplifier_hooks.dispatch.middleware import run_layer
from amplifier_hooks.dispatch.run_hooks import observe, observe_async
from amplifier_hooks.errors import InvalidRegistration, InvalidResult
from amplifier_hooks.foreign_code import DaemonPool
from amplifier_hooks.impact.tool_matcher import compile_tool_matcher
from amplifier_hooks.registry.handler_version import fingerprint
from amplifier_hooks.result import HookResult
from amplifier_hooks.text.matching import ANY, Matcher

if TYPE_CHECKING:
    import re

    from amplifier_hooks.dispatch.chain import OnError
    from amplifier_hooks.registry.permissions import Scope
    from amplifier_hooks.result import Outcome, Risk


Handler = Callable[..., Any]
"""Handler of any kind, as the registry keeps it."""


class UpstreamResult(Protocol):
    """A result of the upstream kernel's class; the registry reads its fields by name."""

    @property
    def action(self) -> str:
        """Action of the answer."""
        ...


HookAnswer = HookResult | UpstreamResult | Mapping[str, Any] | None
Participant = Callable[[str, dict[str, Any]], HookAnswer | Awaitable[HookAnswer]]
"""Handler `(event, data)` that answers, plain or async."""
Observer = Callable[[str, dict[str, Any], "Outcome"], object]
"""Handler `(event, data, outcome)` whose result is ignored, plain or async."""
CallNext = Callable[[], Awaitable[Any]]
Middleware = Callable[[Any, CallNext], Awaitable[object]]
"""Handler `(context, call_next)`; the operation determines the class of the context."""


class MoreOptions(TypedDict, total=False):
    """Options of a registration, besides `priority` and `name`."""

    match: str | Iterable[str] | re.Pattern[str] | Matcher | None
    """The tools, by name, glob, expression or kind (`"Write|Edit"`, `"mcp__*"`, `"re:…"`, `"kind:write"`); by default,
    all events, also those without a tool."""
    timeout: float | None
    """Seconds that one run may take; None sets no limit. The default is 5."""
    on_error: OnError | None
    """`"deny"` or `"continue"` after an error, a timeout or an invalid answer. The default is `"deny"` for gates."""
    tenant: str
    """The only tenant whose events reach the hook; the default "" stands for all."""
    thread: bool
    """True runs a plain function in a small pool of threads of its own."""
    recheck: bool
    """False for a gate that looks at an act once, such as one that counts. The default is True."""
    concurrent: bool
    """True lets observers run side by side."""
    capture: bool | None
    """True keeps the printed text with the answer, away from all streams; by default, for hooks whose code names
    `suppress_output`."""
    source: Source
    """`"definition"` for a hook from a file or a store; the default is `"code"`."""
    budget: float | None
    """Seconds that the hook shares with the other definitions of its chain; by default half a second for a definition,
    and no limit for code."""
    risk: Risk | None
    """The risk of the hook's questions, unless an answer states a higher one."""
    risk_reason: str
    """The reason for the risk, which the card shows."""
    report_only: bool
    """True records the answer and withholds its effect."""
    own_event: bool
    """True for a gate at an event that the host emits itself, and that needs no declaration."""


class HookOptions(MoreOptions, total=False):
    """All options of a registration."""

    priority: int
    """The hook's place: lower numbers run first. The default is 0."""
    name: str | None
    """The hook's name in answers and records; by default, that of the handler."""


ARGUMENTS: Final = {
    "register": "(event, data)",
    "on": "(event, data)",
    "gate": "(event, data)",
    "observe": "(event, data, outcome)",
    "around": "(context, call_next)",
}
"""Arguments of each kind of handler."""

DEFINITION_BUDGET: Final = 0.5
"""Seconds that the in-process hooks from definitions share in one chain."""

UNLIMITED: Final = SharedTime()

DEFINITION_PRIORITIES: Final = range(1001)

THREADS_PER_HOOK: Final = 4

SILENT: Final = ("observe", "around")
"""Intents of hooks that give no answer."""


def make_hook(
    intent: Intent,
    event: str,
    handler: object,
    scope: Scope,
    number: int,
    *,
    chain_timeout: float,
    timing: bool = False,
    **options: Unpack[HookOptions],
) -> Hook:
    """Return a hook made from a handler and its options.

    Raises `InvalidRegistration`, which names the mistake and its correction.
    """
    if not callable(handler):
        raise InvalidRegistration(f"handler {handler!r} is not callable: pass a function {ARGUMENTS[intent]}")
    name = options.get("name")
    if not isinstance(name, str | None):
        raise InvalidRegistration(f"name {name!r} is not a str; leave it out to use the handler's own")
    name = name or handler_name(handler)
    is_async, thread = awaits(handler), options.get("thread", False)
    for flaw in _flaws_of_handler(intent, handler, is_async=is_async, thread=thread):
        raise InvalidRegistration(f"{name}: {flaw}")
    check_arguments(name, handler, ARGUMENTS[intent])
    for flaw in chain(_flaws_of_options(options), _flaws_of_intent(intent, options)):
        raise InvalidRegistration(f"{name}: {flaw}")
    source, match, capture = options.get("source", "code"), options.get("match"), options.get("capture")
    budget = options.get("budget", DEFINITION_BUDGET if source == "definition" else None)
    shared = SharedTime(check_timeout(budget, f"{name}: budget"), chain_timeout)
    matcher = match if match is None or isinstance(match, Matcher) else compile_tool_matcher(match)
    captured = intent not in SILENT and (may_hide_output(handler) if capture is None else capture)
    call = _call(intent, handler, is_async=is_async, thread=thread, name=name)
    return Hook(
        name=name,
        given_name=name,
        event=event,
        intent=intent,
        handler=handler,
        version=fingerprint(handler),
        call=capture_output(call) if captured else call,
        awaits=is_async or thread or captured or intent == "observe",
        number=number,
        priority=options.get("priority", 0),
        timeout=check_timeout(options.get("timeout", DEFAULT_TIMEOUT), f"{name}: timeout"),
        on_error=options.get("on_error") or ("deny" if intent == "gate" else "continue"),
        match=None if matcher is ANY else matcher,  # a matcher leaves out events without a tool
        tenant=options.get("tenant", ""),
        tier=scope.tier,
        owner=scope.owner,
        recheck=options.get("recheck", True) and intent == "gate",
        concurrent=options.get("concurrent", False),
        budget=None if shared == UNLIMITED else shared,
        timing=timing,
        source=source,
        risk=options.get("risk"),
        risk_reason=options.get("risk_reason") or "",
        report_only=options.get("report_only", False),
    )


def _flaws_of_handler(intent: Intent, handler: object, *, is_async: bool, thread: bool) -> Iterator[str]:
    """Yield the reasons why a handler cannot work."""
    if yields(handler):
        yield "calling a generator runs nothing of it; return the answer, not yield it"
    if intent == "around" and not is_async:
        yield "an around hook awaits call_next, so it is an async function"
    if thread and is_async:
        yield "thread=True is for plain functions, and this one is async"


def _flaws_of_options(options: HookOptions) -> Iterator[str]:
    """Yield the reasons why options cannot work at any hook; a caller without a type checker may pass anything."""
    source, on_error = options.get("source", "code"), options.get("on_error")
    priority: object = options.get("priority", 0)
    tenant: object = options.get("tenant", "")
    report_only: object = options.get("report_only", False)
    if source not in ("code", "definition"):
        yield f"source {source!r} is neither 'code' nor 'definition'"
    if isinstance(priority, bool) or not isinstance(priority, int):
        yield f"priority {priority!r} is not an integer; lower numbers run first"
    if source == "definition" and priority not in DEFINITION_PRIORITIES:
        yield f"priority {priority} of a definition is not within 0 to 1000"
    if on_error not in ("continue", "deny", None):
        yield f"on_error {on_error!r} is neither 'continue' nor 'deny'"
    if not isinstance(tenant, str):
        yield f"tenant {tenant!r} is not a str; '' means all"
    if not isinstance(report_only, bool):
        yield f"report_only {report_only!r} is neither True nor False"
    try:
        HookResult(risk=options.get("risk"), risk_reason=options.get("risk_reason") or None)
    except InvalidResult as problem:
        yield str(problem)


def _flaws_of_intent(intent: Intent, options: HookOptions) -> Iterator[str]:
    """Yield the reasons why options cannot work at a hook of this intent."""
    if intent == "observe" and options.get("on_error") == "deny":
        yield "an observer gives no answer, so it cannot deny; use gate"
    if intent != "observe" and options.get("concurrent"):
        yield "only observers run side by side; a hook that answers waits for the hooks before it"
    if intent in SILENT and options.get("capture"):
        yield f"capture=True keeps what it prints with its answer, and {intent} gives none"
    if intent in SILENT and (options.get("risk") or options.get("risk_reason")):
        yield f"risk is that of a question, and {intent} asks none; use gate or on"
    if intent == "observe" and options.get("report_only"):
        yield "report_only is for hooks that answer, and an observer gives no answer"
    if intent == "around" and options.get("report_only"):
        yield "an around hook carries the operation out, so it cannot only report; leave report_only out"


def check_timeout(value: object, what: str) -> float:
    """Return a timeout as the dispatcher takes it; `None` means no limit.

    Raises `InvalidRegistration` for a value that is not a positive number.
    """
    if value is None:
        return inf
    try:
        number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else nan
    except OverflowError:
        number = nan
    if not number > 0:  # which NaN is not either
        raise InvalidRegistration(f"{what} {shortened(value)} is not a positive number of seconds; None means no limit")
    return number


def handler_name(handler: object) -> str:
    """Return the default name of a handler: the name of its function or class."""
    while isinstance(handler, partial):
        handler = handler.func
    return getattr(handler, "__name__", None) or type(handler).__name__


def check_arguments(name: str, handler: Handler, arguments: str) -> None:
    """Refuse a handler that cannot be called with `arguments`, as in "(event, data)".

    Raises `InvalidRegistration`.
    """
    if takes(handler, arguments.count(",") + 1):
        return
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):  # some callables written in C have no signature
        return
    try:
        signature.bind(*arguments.split(","))
    except TypeError:
        raise InvalidRegistration(f"{name}{signature} cannot be called with {arguments}") from None


def takes(handler: object, count: int) -> bool:
    """Return True if the code of a plain function accepts this number of arguments.

    `inspect.signature` handles all other callables; it leaves a dict of annotations behind on every function that it
    reads.
    """
    if type(handler) is not FunctionType or hasattr(handler, "__wrapped__"):
        return False
    code, optional = handler.__code__, len(handler.__defaults__ or ())
    keywords = code.co_kwonlyargcount == len(handler.__kwdefaults__ or ())
    return keywords and code.co_argcount - optional <= count <= code.co_argcount


def awaits(handler: object) -> bool:
    """Return True if the handler declares that calling it returns an awaitable."""
    while isinstance(handler, partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(type(handler), "__call__"))  # noqa: B004, B009  # async if its __call__ is


def is_coroutine_by_code(handler: object) -> bool:
    """Return True if calling the handler returns a coroutine.

    A handler that is only marked as async may return another awaitable.
    """
    while isinstance(handler, partial):
        handler = handler.func
    functions = (getattr(one, "__func__", one) for one in (handler, getattr(type(handler), "__call__")))  # noqa: B004, B009  # as in `awaits`
    codes = (getattr(function, "__code__", None) for function in functions)
    return any(code is not None and code.co_flags & inspect.CO_COROUTINE for code in codes)


def as_coroutine(handler: Handler) -> Handler:
    """Return a coroutine function that awaits the handler."""

    async def call(event: str, data: object) -> object:
        return await handler(event, data)

    return call


def yields(handler: object) -> bool:
    """Return True if the handler is a generator, so that calling it runs none of its code."""
    while isinstance(handler, partial):
        handler = handler.func
    return any(
        kind(function)
        for function in (handler, getattr(type(handler), "__call__"))  # noqa: B004, B009  # as in `awaits`
        for kind in (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    )


def _call(intent: Intent, handler: Handler, *, is_async: bool, thread: bool, name: str) -> Callable[..., Any]:
    """Return the callable for the dispatcher, chosen at registration so that no run inspects handlers."""
    if intent == "around":
        return run_layer
    inner = partial(DaemonPool(THREADS_PER_HOOK, f"hook {name}").run, handler) if thread else handler
    if intent != "observe":
        return inner if not is_async or is_coroutine_by_code(handler) else as_coroutine(handler)
    return observe_async(inner) if is_async or thread else observe(handler)
