"""The registration methods that a registry and a plugin's scope share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from amplifier_hooks import events
from amplifier_hooks.errors import InvalidRegistration
from amplifier_hooks.registry.event_names import applies
from amplifier_hooks.registry.handler_shapes import (
    HookMatcher,
    HookObject,
    LoopContext,
    hooks_of,
    loop_handler,
    object_handler,
)
from amplifier_hooks.registry.registration import (
    Handler,
    HookOptions,
    Middleware,
    MoreOptions,
    Observer,
    Participant,
    handler_name,
)

if TYPE_CHECKING:
    from amplifier_hooks.dispatch.chain import Hook, Intent
    from amplifier_hooks.events import Event
    from amplifier_hooks.registry.hook_table import Roster


Undo = Callable[[], None]
P = TypeVar("P", bound=Participant)
W = TypeVar("W", bound=Observer)
M = TypeVar("M", bound=Middleware)


class Registrar(ABC):
    """Five ways to register by intent, three more for hooks in other programs' shapes, and the removal of hooks.

    The five are `register`, `on`, `gate`, `observe` and `around`. Each returns its undo, which may be called any number
    of times; all but `register` are decorators when no handler is given.

    Options of all: `priority` (lower runs first), `name`, `timeout` in seconds (`None`: no limit), `on_error`
    (`"continue"` or `"deny"`), `tenant`, and `match` (selects the tools). `source="definition"` marks a hook from a
    definition: its priority is within 0 to 1000, each event has a limit for such hooks, and without a `budget` of its
    own the hook shares half a second with the other definitions of its chain.

    A handler with an `origin`, the address of a service or a program, speaks for a party outside of this process: its
    texts are labelled with the origin and never reach the model in the system's name.

    A gate needs a known event: one from the catalogue, or one declared by the time the first session starts.
    `own_event=True` declares that the event is the host's own, and needs no declaration.

    `thread=True` runs a plain function in a small pool of its own, `recheck=False` is for gates that count, such as
    rate limits, `concurrent=True` lets observers run side by side, `risk` with `risk_reason` is that of a hook's
    questions, and with `report_only=True` an answer is recorded and has no effect.

    Hooks that answer also take `capture`: their printed text is then kept with their answer and reaches no stream. The
    default is True for hooks whose code names `suppress_output`.

    Raises `InvalidRegistration` for options that cannot work, `UnknownEvent` for a gate at an unknown event and under
    strict_events, `MisspeltEvent` for a name that reads like a known one, and `HookRefused` (`PrivilegeRequired`,
    `TooManyHooks`) for a registration that this registrar may not make.
    """

    _roster: Roster

    @abstractmethod
    def _enter(self, intent: Intent, event: str, handler: Handler, **options: Any) -> Hook:
        """Register a hook."""

    @abstractmethod
    def _row(self, event: str) -> Event:
        """Return the description of an event."""

    @abstractmethod
    def hooks(self) -> tuple[Hook, ...]:
        """Return every hook registered here, in order of registration. Read them only; change a hook by its name."""

    # -- by intent -----------------------------------------------------------------------------------------------

    def register(
        self,
        event: str,
        handler: Participant,
        priority: int = 0,
        name: str | None = None,
        **options: Unpack[MoreOptions],
    ) -> Undo:
        """Register a handler as the upstream kernel does: it gets a copy of the data and runs exactly once.

        A failure is skipped, unless `on_error="deny"` or the registry says otherwise. `thread=True` runs a plain
        function in a small pool of its own.

        Args:
            event: An event of the catalogue in any spelling, one declared, or a pattern such as `tool:*`.
            handler: A function `(event, data)`, plain or async, that returns a `HookResult`, a mapping of its fields,
                or None.
            priority: The hook's place: lower numbers run first.
            name: The hook's name in answers and records; by default, that of the handler.

        Raises `InvalidRegistration` for a handler or an option that cannot work, `MisspeltEvent` for a known event in
        another writing, and `UnknownEvent` for any other unknown event under `strict_events`.
        """
        return self._add("register", event, handler, priority=priority, name=name, **options)

    @overload
    def on(self, event: str, **options: Unpack[HookOptions]) -> Callable[[P], P]: ...
    @overload
    def on(
        self,
        event: str,
        handler: Participant,
        priority: int = 0,
        name: str | None = None,
        **options: Unpack[MoreOptions],
    ) -> Undo: ...
    def on(
        self,
        event: str,
        handler: Participant | None = None,
        priority: int = 0,
        name: str | None = None,
        **options: Unpack[MoreOptions],
    ) -> Any:
        """Register a hook that answers and gets a read-only view of the data.

        A failure is skipped; with `on_error="deny"` it denies.

        Args:
            event: An event of the catalogue in any spelling, one declared, or a pattern such as `tool:*`.
            handler: A function `(event, data)`, plain or async, that returns a `HookResult`, a mapping of its fields,
                or None. Without a handler, `on` returns a decorator.
            priority: The hook's place: lower numbers run first.
            name: The hook's name in answers and records; by default, that of the handler.

        Raises `InvalidRegistration` for a handler or an option that cannot work, `MisspeltEvent` for a known event in
        another writing, and `UnknownEvent` for any other unknown event under `strict_events`.
        """
        return self._register_or_decorate("on", event, handler, priority=priority, name=name, **options)

    @overload
    def gate(self, event: str, **options: Unpack[HookOptions]) -> Callable[[P], P]: ...
    @overload
    def gate(self, event: str, handler: Participant, **options: Unpack[HookOptions]) -> Undo: ...
    def gate(self, event: str, handler: Participant | None = None, **options: Unpack[HookOptions]) -> Any:
        """Register a hook that answers and fails closed: an error, a timeout, or an invalid answer denies.

        A gate sees changed data a second time; `recheck=False` is for gates that count, such as rate limits. In front
        of a stop (`agent:stop`, `subagent:stop`) a failure is skipped: a denial there would make the agent continue.
        `risk` and `risk_reason` apply to all its questions.

        Args:
            event: An event of the catalogue that can be stopped, in any spelling, or one declared with `gate=True`.
            handler: A function `(event, data)`, plain or async, that returns a `HookResult`, a mapping of its fields,
                or None. Without a handler, `gate` returns a decorator.

        Raises `InvalidRegistration` for a handler or an option that cannot work, `MisspeltEvent` for a known event in
        another writing, and `UnknownEvent` for any other unknown event, unless no session has started yet; then the
        first session raises it.
        """
        return self._register_or_decorate("gate", event, handler, **options)

    @overload
    def observe(self, event: str, **options: Unpack[HookOptions]) -> Callable[[W], W]: ...
    @overload
    def observe(self, event: str, handler: Observer, **options: Unpack[HookOptions]) -> Undo: ...
    def observe(self, event: str, handler: Observer | None = None, **options: Unpack[HookOptions]) -> Any:
        """Register a hook that receives the event and its outcome, last and always, and gives no answer.

        `"*"` is every event but `hook:*`. `concurrent=True` lets the hook run beside the other concurrent observers.

        Args:
            event: An event of the catalogue in any spelling, one declared, or a pattern such as `tool:*`.
            handler: A function `(event, data, outcome)`, plain or async, whose result is ignored. Without a handler,
                `observe` returns a decorator.

        Raises `InvalidRegistration` for a handler or an option that cannot work, `MisspeltEvent` for a known event in
        another writing, and `UnknownEvent` for any other unknown event under `strict_events`.
        """
        return self._register_or_decorate("observe", event, handler, **options)

    @overload
    def around(self, operation: str, **options: Unpack[HookOptions]) -> Callable[[M], M]: ...
    @overload
    def around(self, operation: str, handler: Middleware, **options: Unpack[HookOptions]) -> Undo: ...
    def around(self, operation: str, handler: Middleware | None = None, **options: Unpack[HookOptions]) -> Any:
        """Register middleware around an operation: agent, tool, workflow, request, model or memory.

        Time spent inside `call_next` does not count against the hook's timeout.

        Args:
            operation: `agent`, `tool`, `workflow`, `request`, `model` or `memory`.
            handler: An async function `(context, call_next)`; the operation determines the class of the context.
                Without a handler, `around` returns a decorator.

        Raises `InvalidRegistration` for an unknown operation, and for a handler or an option that cannot work.
        """
        return self._register_or_decorate("around", operation, handler, **options)

    # -- in other programs' shapes -------------------------------------------------------------------------------

    def add(self, hook: HookObject, **options: Unpack[MoreOptions]) -> Undo:
        """Register a hook object, with the event, the name and the priority from its attributes.

        Args:
            hook: An object with `name`, `event_type`, `priority`, `enabled` and an async `execute`, which takes
                `(context, call_next)`.

        Raises `InvalidRegistration` for an object or an option that cannot work.
        """
        intent, event, handler = object_handler(hook)
        return self._add(intent, event, handler, priority=hook.priority, name=hook.name, **options)

    def register_loop_hook(
        self, event: str, handler: Callable[[LoopContext, Any], Any], /, **options: Unpack[HookOptions]
    ) -> Undo:
        """Register `handler(context, data)` at a point of the loop, `onIntake` to `onTurnComplete`.

        `data` is the replaceable part of the payload there. A returned value replaces it; `None` or a failure leaves
        it.

        Args:
            event: The point of the loop, such as `onIntake`.
            handler: A function `(context, data)`, plain or async.

        Raises `InvalidRegistration` for a handler or an option that cannot work.
        """
        options["name"] = options.get("name") or handler_name(handler)
        return self._add("on", event, loop_handler(self._row(event), handler), **options)

    def register_matchers(self, table: Mapping[str, Iterable[HookMatcher]], **options: Unpack[HookOptions]) -> Undo:
        """Register a whole table of events and matchers, or nothing of it. The handlers are those of `register`.

        Args:
            table: The matchers of each event, as agent SDKs write them: `{"PreToolUse": [HookMatcher(…)]}`.

        Raises `InvalidRegistration` for a matcher, a handler or an option that cannot work.
        """
        added: list[Hook] = []
        try:
            for event, handler, chosen in hooks_of(table):
                added.append(self._enter("register", event, handler, **{**chosen, **options}))
        except BaseException:
            self._roster.remove(added)
            raise
        return self._undo(added)

    # -- removing and listing ------------------------------------------------------------------------------------

    def unregister(self, name: str) -> int:
        """Remove every hook with this name from the next emit on. Return the number of removed hooks.

        Args:
            name: Name of the hooks.
        """
        return self._roster.remove(self._hooks_named(name))

    def disable(self, name: str) -> int:
        """Stop calling the hooks with this name at once, also in an emit under way. Return the number of hooks.

        A disabled gate denies nothing; where a gate is required (`require`), its absence denies.

        Args:
            name: Name of the hooks.
        """
        return self._roster.switch(self._hooks_named(name), enabled=False)

    def enable(self, name: str) -> int:
        """Call the hooks with this name again, and end their quarantine. Return the number of hooks.

        Args:
            name: Name of the hooks.
        """
        return self._roster.switch(self._hooks_named(name), enabled=True)

    def list_handlers(self, event: str | None = None) -> dict[str, list[str]]:
        """Return the names of the hooks by event, in the order they run; only those of `event` if it is given."""
        wanted = None if event is None else events.canonical(event)
        listed: dict[str, list[str]] = {}
        for hook in sorted(self.hooks(), key=lambda hook: hook.sort_key):
            if wanted is None or applies(hook.event, wanted):
                listed.setdefault(wanted or hook.event, []).append(hook.name)
        return listed

    def count(self, event: str | None = None) -> int:
        """Return the number of registered hooks; only those of `event` if it is given."""
        return sum(len(names) for names in self.list_handlers(event).values())

    # -- inside --------------------------------------------------------------------------------------------------

    def _add(self, intent: Intent, event: str, handler: Handler, **options: Any) -> Undo:
        return self._undo([self._enter(intent, event, handler, **options)])

    def _register_or_decorate(
        self, intent: Intent, event: str, handler: Handler | None, **options: Any
    ) -> Undo | Callable[[Handler], Handler]:
        if handler is not None:
            return self._add(intent, event, handler, **options)
        if callable(event):  # without this error no hook would guard the event, silently
            raise InvalidRegistration(f"event {event!r} is a handler; name the event: @registry.{intent}('tool:pre')")

        def decorate(function: Handler) -> Handler:
            self._enter(intent, event, function, **options)
            return function

        return decorate

    def _undo(self, hooks: list[Hook]) -> Undo:
        def undo() -> None:
            self._roster.remove(hooks)

        return undo

    def _hooks_named(self, name: str) -> list[Hook]:
        return [hook for hook in self.hooks() if name in (hook.given_name, hook.name)]
