"""Adapts hooks in the shapes of other programs to handlers of this package.

```
HookObject     an object with a name, an event and `execute(context, call_next)`     registry.add(hook)
loop_handler   `handler(context, data)`, where a returned value replaces the data    registry.register_loop_hook(…)
HookMatcher    a tool matcher with its hooks                                         registry.register_matchers(…)
```
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from amplifier_hooks import events
from amplifier_hooks.act import freeze
from amplifier_hooks.dispatch.chain import DataView
from amplifier_hooks.dispatch.middleware import OPERATIONS, HookContext, Rest
from amplifier_hooks.dispatch.run_hooks import own
from amplifier_hooks.errors import HookAbortError, HookUsageError, InputNotFreezable, InvalidRegistration
from amplifier_hooks.registry.registration import CallNext, Handler, Participant, awaits, check_arguments, handler_name
from amplifier_hooks.result import HookResult
from amplifier_hooks.text.matching import Matcher

if TYPE_CHECKING:
    from amplifier_hooks.dispatch.chain import Intent
    from amplifier_hooks.events import Event


FIELD_OF: Final = {"arguments": "tool_input"}
"""Fields of a context with another name in the payload."""


class HookObject(Protocol):
    """A hook as an object. The registry reads `enabled` before each call."""

    @property
    def name(self) -> str:
        """Name of the hook in records."""
        ...

    @property
    def event_type(self) -> str:
        """An event in any spelling.

        At the first event of an operation (`tool.execute.pre`) the hook takes part in the decision: its changes of the
        context count when it calls `call_next`, which returns after the operation. At the last event
        (`tool.execute.post`) it runs after the operation, with the result in the context. At any other event it takes
        part, with the payload as the context's `data`.
        """
        ...

    @property
    def priority(self) -> int:
        """Priority of the hook; lower runs first."""
        ...

    @property
    def enabled(self) -> bool:
        """True if the hook wants to run."""
        ...

    async def execute(self, context: Any, call_next: CallNext) -> Any:  # one of several contexts
        """Run the hook. To stop the operation, raise `HookAbortError` or set `context.abort`.

        Before an operation, `call_next` raises `OperationNotRun` if the operation was denied, waits for an approval, or
        runs elsewhere. A hook that returns without calling on skips the operation.
        """
        ...


class EventContext(HookContext, kw_only=True):
    """Context of a hook object at an event that belongs to no operation. The hook may change `data`, a copy."""

    data: dict[str, Any] = msgspec.field(default_factory=dict)


class LoopContext(DataView):
    """Context of a loop hook: a read-only dict whose fields are also attributes."""

    __slots__ = ()

    @property
    def agent_id(self) -> str:
        """ID of the agent that runs the loop."""
        return str(self["agent_id"])

    @property
    def session_id(self) -> str:
        """ID of the session."""
        return str(self["session_id"])

    @property
    def run_id(self) -> str:
        """ID of the run that the session belongs to; empty without a run."""
        return str(self["run_id"])


class HookMatcher(msgspec.Struct, frozen=True):
    """Hooks for the tools that a matcher names, as agent SDKs write them; no matcher means every tool."""

    matcher: str | Matcher | None = None
    """Name, glob or expression of tools, as `match=` takes it; None stands for every tool."""
    hooks: Sequence[Participant] = ()
    """Handlers and hook objects, which are registered in this order."""
    timeout: float | None = None
    """Seconds for each of these hooks; None is the default timeout."""


def hooks_of(table: Mapping[str, Iterable[HookMatcher]]) -> Iterator[tuple[str, Handler, dict[str, Any]]]:
    """Yield the hooks of a table of matchers: event, handler, and the options from its matcher.

    Raises `InvalidRegistration` for a table of another shape.
    """
    if not isinstance(table, Mapping):
        raise InvalidRegistration(f"matchers {table!r}: pass a mapping of event to a list of HookMatcher(…)")
    for event, matchers in table.items():
        for matcher in _check_list(matchers, f"matchers of {event!r}"):
            if not hasattr(matcher, "matcher") or not hasattr(matcher, "hooks"):
                raise InvalidRegistration(f"matchers of {event!r} with {matcher!r}: write HookMatcher('Write', [hook])")
            options = {"match": matcher.matcher or None}
            if getattr(matcher, "timeout", None) is not None:
                options["timeout"] = matcher.timeout
            for handler in _check_list(matcher.hooks, f"hooks of a matcher at {event!r}"):
                yield event, handler, options


def _check_list(value: Any, what: str) -> Iterable[Any]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidRegistration(f"{what}: {value!r} is no list")
    return value


def object_handler(hook: HookObject) -> tuple[Intent, str, Handler]:
    """Return the intent, the event and the handler for a hook object.

    Raises `InvalidRegistration` for an object that is no hook.
    """
    missing = [part for part in ("name", "event_type", "priority", "enabled", "execute") if not hasattr(hook, part)]
    if missing:
        raise InvalidRegistration(f"{hook!r} is no hook: it has no {', '.join(missing)}")
    if isinstance(hook, type):
        raise InvalidRegistration(f"{hook.__name__} is a class; add an instance of it")
    if not awaits(hook.execute):
        raise InvalidRegistration(f"{hook.name}: execute awaits call_next, so it is an async function")
    check_arguments(f"{hook.name}.execute", hook.execute, "(context, call_next)")
    event = events.canonical(hook.event_type)
    operation = next((row for row in OPERATIONS.values() if event in (row.first, row.last)), None)
    if operation is None:
        return "on", event, _participant_handler(hook)
    if event == operation.last:
        return "around", event, _post_event_handler(hook, event)
    return "on", event, _pre_event_handler(hook, operation.before or operation.context, events.find(event))


def _pre_event_handler(hook: HookObject, kind: type[HookContext], row: Event | None) -> Handler:
    replaced = () if row is None or row.replaces is None else (row.replaces, *row.also_replaces)
    custom = {"metadata"}.difference(() if row is None else row.keeps)
    changeable = {name: FIELD_OF.get(name, name) for name in kind.__struct_fields__}
    changeable = {name: field for name, field in changeable.items() if field in custom.union(replaced)}

    async def take_part(event: str, data: Mapping[str, Any]) -> HookResult | None:
        if not hook.enabled:
            return None
        context = _context_of(kind, event, data)
        given = {name: own(getattr(context, name)) for name in changeable}
        rest = Rest(hook.name, context, hook.execute)
        try:
            await rest.begin()
        except HookAbortError as abort:
            return HookResult.deny(abort.reason)
        if context.abort:
            return HookResult.deny(context.abort_reason or f"stopped by {hook.name}")
        left = {name: getattr(context, name) for name in changeable}
        changes = {changeable[name]: left[name] for name in changeable if _differs(left[name], given[name])}
        if not await rest.wait_for_operation() and not rest.called_on:
            return HookResult.deny(f"{hook.name} did not call on, and {event} has no operation here to answer for")
        return HookResult.modify(changes) if changes else None

    return take_part


def _context_of(kind: type[HookContext], event: str, data: Mapping[str, Any]) -> HookContext:
    """Return the context of an operation that is decided about, with copies of the payload's fields."""
    known = set(kind.__struct_fields__).difference(HookContext.__struct_fields__)
    given = {name: own(data[field]) for name in known if (field := FIELD_OF.get(name, name)) in data}
    if "tool_context" in known:
        given["tool_context"] = {name: data.get(name) for name in ("session_id", "tool_call_id", "cwd")}
    metadata = data.get("metadata")
    notes = own(metadata) if isinstance(metadata, dict) else {}
    return kind(event_type=event, tenant_id=data.get("tenant_id") or "", metadata=notes, **given)


def _differs(one: object, other: object) -> bool:
    """Return True if a hook has left another value than it was given; 1, 1.0 and True are three values."""
    try:
        return bool(one != other) or freeze(one) != freeze(other)
    except InputNotFreezable:
        return False  # equal, and no JSON
    except Exception:  # noqa: BLE001  # comparing runs the code of the values
        return True


def _post_event_handler(hook: HookObject, event: str) -> Handler:
    row = events.find(event)
    replaces = row is not None and row.replaces is not None

    async def follow(context: HookContext, call_next: CallNext) -> object:
        result = await call_next()
        if not hook.enabled:
            return None

        async def next_one(_context: object = None) -> object:
            return context.result

        if replaces:
            return _result_unless_context(context, await hook.execute(context, next_one))
        try:
            await hook.execute(context, next_one)
        except HookAbortError as abort:
            raise HookUsageError(f"{event} is told of what has happened, and cannot abort it: {abort.reason}") from None
        finally:
            context.result, context.abort = result, False
        return None

    return follow


def _participant_handler(hook: HookObject) -> Handler:
    async def take_part(event: str, data: Mapping[str, Any]) -> HookResult | None:
        if not hook.enabled:
            return None
        context = EventContext(event_type=event, tenant_id=data.get("tenant_id") or "", data=dict(data))

        async def next_one(_context: object = None) -> None:
            return None

        try:
            await hook.execute(context, next_one)
        except HookAbortError as abort:
            return HookResult.deny(abort.reason)
        if context.abort:
            return HookResult.deny(context.abort_reason)
        changes = {name: value for name, value in context.data.items() if name not in data or data[name] is not value}
        return HookResult.modify(changes) if changes else None

    return take_part


def _result_unless_context(context: HookContext, value: object) -> object:
    """Return the value, or None if it is the context: hook objects of other programs return the context they got."""
    return None if value is context else value


def loop_handler(row: Event, handler: Handler) -> Handler:
    """Adapt a handler `(context, data)`; `data` is the field that a modification replaces at this event.

    A returned value replaces the field; `None` leaves it as it is. At an event without a replaceable field, `data` is
    the whole payload.

    Raises `InvalidRegistration` for a handler that cannot be called with these arguments.
    """
    if not callable(handler):
        raise InvalidRegistration(f"handler {handler!r} is not callable: pass a function (context, data)")
    check_arguments(handler_name(handler), handler, "(context, data)")
    replaces = row.replaces

    async def loop_hook(_event: str, data: Mapping[str, Any]) -> HookResult | None:
        context = LoopContext(
            agent_id=data.get("agent_id") or data.get("agent") or "",
            session_id=data.get("session_id") or "",
            run_id=data.get("run_id") or "",
        )
        value = handler(context, data.get(replaces) if replaces else data)
        if inspect.isawaitable(value):
            value = await value
        if value is None or not replaces:
            return None
        return value if isinstance(value, HookResult) else HookResult.modify({replaces: value})

    return loop_hook
