"""Who is told, and in which order.

An emit is *decide*, then *notify*: the participants answer in turn and their answers become one Outcome; then the
observers are shown it, whatever it is. Both run over the registrations as they were when they began.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import evolve, frozen

from amplifier_hooks import events
from amplifier_hooks.around import HookContext, context_class, run_around
from amplifier_hooks.chain import Chain, Selection, reached
from amplifier_hooks.dispatch import CURRENT, Run, meet_cancellation
from amplifier_hooks.errors import (
    EmitTooDeep,
    EventNameWarning,
    HookRefused,
    InvalidPayload,
    InvalidRegistration,
    UnknownEvent,
)
from amplifier_hooks.events import Event
from amplifier_hooks.hook import Hook, Intent, OnError
from amplifier_hooks.merge import refusal
from amplifier_hooks.registration import Handler, Registrar, Seen, Undo, make_hook, seconds
from amplifier_hooks.result import Outcome
from amplifier_hooks.trust import BUILT_IN, Scope, check_access, check_operation
from amplifier_hooks.view import DataView

__all__ = ["Change", "HookMatcher", "HookRegistry", "RegistryScope"]

NAMES_KEPT: Final = 4096
"""Chains kept by event name; whoever emits made-up names must not fill the memory."""


@frozen(kw_only=True)
class Change:
    """One thing that happened to the registry, for whoever keeps the record."""

    what: str
    """registered, unregistered, enabled, disabled, refused, declared, required, stopped, resumed."""
    hook: str = ""
    event: str = ""
    detail: str = ""


@frozen
class HookMatcher:
    """Hooks for the tools a matcher names, as agent SDKs write them; no matcher means every tool."""

    matcher: str | None = None
    hooks: Sequence[Handler] = ()
    timeout: float | None = None


class HookRegistry(Registrar):
    """The hooks of a program: register them, emit events to them.

    Args:
        strict_events: Refuse event names that are neither in the catalogue nor declared.
        register_on_error: What a failure of a plain `register` hook means at an event that can be stopped.
        max_depth: How deep hooks may emit events whose hooks emit events.
        max_per_event: How many hooks from definitions one event may have, for each tenant.
        chain_timeout: Seconds the hooks of one emit may take together.
        timing: Keep every hook's duration, also of those that had nothing to say.

    One registry may serve any number of sessions and event loops. Register and unregister from one thread.
    """

    # One constant for each event: HookRegistry.TOOL_POST == "tool:post".
    # fmt: off
    from amplifier_hooks.events import (
        AGENT_POST, AGENT_PRE, AGENT_STOP, APPROVAL_DENIED, APPROVAL_EXPIRED, APPROVAL_GRANTED, APPROVAL_REQUIRED,
        ARTIFACT_READ, ARTIFACT_WRITE, CANCEL_COMPLETED, CANCEL_REQUESTED, CONTENT_BLOCK_DELTA, CONTENT_BLOCK_END,
        CONTENT_BLOCK_START, CONTEXT_ASSEMBLED, CONTEXT_COMPACTION, CONTEXT_INCLUDE, CONTEXT_POST_COMPACT,
        CONTEXT_PRE_COMPACT, DECISION_TOOL_RESOLUTION, ERROR_ORCHESTRATOR, ERROR_PROVIDER, ERROR_TOOL, EXECUTION_END,
        EXECUTION_START, HOOK_BLOCKED, HOOK_COMPLETE, HOOK_FAILED, HOOK_START, HOOK_TIMEOUT, LLM_POST, LLM_PRE,
        LLM_REQUEST, LLM_RESPONSE, MEMORY_POST, MEMORY_PRE, MODULE_LOAD_FAILED, MODULE_ON_SESSION_READY_FAILED,
        ORCHESTRATOR_COMPLETE, PLAN_END, PLAN_START, POLICY_VIOLATION, PROMPT_COMPLETE, PROMPT_SUBMIT, PROVIDER_ERROR,
        PROVIDER_REQUEST, PROVIDER_RESOLVE, PROVIDER_RESPONSE, PROVIDER_RETRY, PROVIDER_THROTTLE,
        PROVIDER_TOOL_SEQUENCE_REPAIRED, REQUEST_POST, REQUEST_PRE, RUN_ERROR, RUN_FINISH, RUN_RESULT, RUN_START,
        RUN_TIMEOUT, SESSION_END, SESSION_FORK, SESSION_RESUME, SESSION_START, SUBAGENT_START, SUBAGENT_STOP,
        THINKING_DELTA, THINKING_FINAL, TOOL_ERROR, TOOL_POST, TOOL_PRE, USER_NOTIFICATION, WORKFLOW_POST,
        WORKFLOW_PRE,
    )
    # fmt: on

    def __init__(
        self,
        *,
        strict_events: bool = False,
        register_on_error: OnError = "continue",
        max_depth: int = 4,
        max_per_event: int = 20,
        chain_timeout: float | None = None,
        timing: bool = False,
    ) -> None:
        if register_on_error not in ("continue", "deny"):
            raise InvalidRegistration(f"register_on_error {register_on_error!r} is neither 'continue' nor 'deny'")
        self._strict = strict_events
        self._register_on_error = register_on_error
        self._max_depth = max_depth
        self._max_per_event = max_per_event
        self._budget = None if chain_timeout is None else seconds(chain_timeout, "chain_timeout")
        self._timing = timing
        self._hooks: list[Hook] = []
        self._number = 0
        self._chains: dict[str, Chain] = {}
        self._declared: dict[str, Event] = {}
        self._defaults: dict[str, Any] = {}
        self._required: dict[str, int] = {}
        self._stopped: str | None = None
        self._listeners: list[Callable[[Change], None]] = []

    # -- emitting ------------------------------------------------------------------------------------------------

    async def emit(self, event: str, data: Mapping[str, Any]) -> Outcome:
        """Tell every hook of this event, and return what they said together.

        The event may be spelled in any vocabulary. The data is not changed; the outcome's `data` is what the hooks
        made of it. Cancelling it cancels the hook that is running; no further hook runs.

        Raises `InvalidPayload` for data that is no mapping, `UnknownEvent` under strict_events, `EmitTooDeep` when
        hooks emit in circles. What a hook raises is never raised here, `KeyboardInterrupt` excepted.
        """
        chain = self._chains.get(event) or self._chain(event)
        if chain.silent:
            return Outcome(chain.event.name, data)
        run = self._run(chain, data)
        if not run.start():
            await run.finish()
        outcome = run.outcome()
        if chain.careful or self._stopped is not None:
            outcome = await self._conclude(chain, run, outcome)
        if chain.observers:
            await self._notify(chain, outcome)
        return outcome

    async def decide(self, event: str, data: Mapping[str, Any]) -> Outcome:
        """The first half of `emit`: ask the participants. Follow it with `notify`, once the effects are known."""
        chain = self._chains.get(event) or self._chain(event)
        if chain.silent:
            return Outcome(chain.event.name, data)
        run = self._run(chain, data)
        if not run.start():
            await run.finish()
        outcome = run.outcome()
        if chain.careful or self._stopped is not None:
            outcome = await self._conclude(chain, run, outcome)
        return outcome

    async def notify(self, outcome: Outcome) -> None:
        """The second half of `emit`: show the observers an outcome, as it stands after its effects.

        Observers run in order, those that said `concurrent` side by side; none can change the outcome, and their
        failures are logged and go no further.
        """
        chain = self._chains.get(outcome.event) or self._chain(outcome.event)
        if chain.observers:
            await self._notify(chain, outcome)

    async def emit_and_collect(self, event: str, data: Mapping[str, Any], timeout: float = 1.0) -> list[dict[str, Any]]:
        """Gather contributions: the `data` of every hook's answer, in order. No hook sees another's.

        Each hook has `timeout` seconds. Failures and answers without data are left out; a denial stops nobody.
        """
        chain = self._chains.get(event) or self._chain(event)
        limit = seconds(timeout, "timeout")
        collected: list[dict[str, Any]] = []
        for hook in chain.pick(data).hooks:
            alone = evolve(hook, timeout=min(hook.timeout, limit), timed=True)
            run = self._run(chain, data, Selection((alone,)))
            if not run.start():
                await run.finish()
            collected += [dict(answer.data) for answer in run.answers if answer.success and answer.data is not None]
        return collected

    def set_default_fields(self, **fields: Any) -> None:
        """Merge these fields into the data of every emit from now on; the event's own data wins. Replaces the last set."""
        self._defaults = fields

    # -- around operations ---------------------------------------------------------------------------------------

    async def wrap(
        self, operation: str, context: HookContext, call: Callable[[], Awaitable[Any]], *, tool: str | None = None
    ) -> Any:
        """Run `call` inside the around hooks of this operation and return its result.

        Raises what `call` raises, and `HookAbortError` when a hook stopped it.
        """
        layers = self._wrapping(operation, context.tenant_id, tool)
        return await run_around(layers, operation, context, call)

    def _wrapping(self, operation: str, tenant: str, tool: str | None) -> tuple[Hook, ...]:
        layers = (hook for hook in self._hooks if hook.intent == "around" and hook.event == operation and hook.enabled)
        chosen = (reached(hook, tenant, tool) for hook in sorted(layers, key=lambda hook: hook.place))
        return tuple(hook for hook in chosen if hook is not None)

    # -- registering ---------------------------------------------------------------------------------------------

    def _add(self, intent: Intent, event: str, handler: Handler, **options: Any) -> Undo:
        return self.add_scoped(BUILT_IN, intent, event, handler, **options)

    def add_scoped(self, scope: Scope, intent: Intent, event: str, handler: Handler, **options: Any) -> Undo:
        """Register on somebody's behalf; what every way in comes down to."""
        tenant = options.get("tenant") or ""
        if intent == "around":
            context_class(event)
            name = event
        else:
            name = self._known(event)
        try:
            if intent == "around":
                check_operation(scope, name)
            elif not is_pattern(name):
                check_access(scope, self._row(name), intent, tenant)
        except HookRefused as refused:
            self._tell(Change(what="refused", event=name, detail=str(refused)))
            raise
        row_gates = intent == "register" and self._row(name).gate
        if row_gates and options.get("on_error") is None and name not in events.GOES_ON_WHEN_DENIED:
            options["on_error"] = self._register_on_error
        options.setdefault("budget", self._budget)
        self._number += 1
        hook = make_hook(intent, name, handler, scope, self._number, timing=self._timing, **options)
        hook.name = self._unique(hook)
        self._hooks.append(hook)
        self._chains = {}
        self._tell(Change(what="registered", hook=hook.name, event=name, detail=intent))

        def undo() -> None:
            self._remove([hook])

        return undo

    def unregister(self, name: str) -> int:
        """Remove every hook registered under this name; takes effect with the next emit. Returns how many."""
        return self._remove(self._named(name))

    def disable(self, name: str) -> int:
        """Stop calling the hooks of this name, at once: also in an emit that is under way. Returns how many.

        A gate that is disabled denies nothing; where one is required (`require`), its absence does.
        """
        return self._switch(name, enabled=False)

    def enable(self, name: str) -> int:
        """Call them again, also out of quarantine. Returns how many."""
        return self._switch(name, enabled=True)

    def list_handlers(self, event: str | None = None) -> dict[str, list[str]]:
        """The names of the hooks by event, in the order they run; only those of one event where one is named."""
        wanted = None if event is None else events.canonical(event)
        listed: dict[str, list[str]] = {}
        for hook in sorted(self._hooks, key=lambda hook: hook.place):
            if wanted is None or applies(hook.event, wanted):
                listed.setdefault(wanted or hook.event, []).append(hook.name)
        return listed

    def hooks(self) -> tuple[Hook, ...]:
        """Every hook, in the order they were registered. To look at; change them through the registry."""
        return tuple(self._hooks)

    def count(self) -> int:
        """How many hooks are registered."""
        return len(self._hooks)

    def declare(
        self, name: str, *, gate: bool = False, fires: str = "", replaces: str | None = None, payload: str = "Payload"
    ) -> None:
        """Make a custom event known: strict registries accept it then, and typos of it are noticed."""
        if is_pattern(name) or not name or events.find(name):
            raise InvalidRegistration(f"{name!r} is no name for a custom event: choose one nobody uses, as 'domain:phase'")
        row = Event(name=name, fires=fires or f"When somebody emits {name}.", gate=gate, replaces=replaces, payload=payload)
        self._declared[name] = row
        self._chains = {}
        self._tell(Change(what="declared", event=name))

    def require(self, event: str) -> Undo:
        """Deny this event, as `no_policy`, whenever no gate looks at it. Returns the undo."""
        name = self._known(event)
        self._required[name] = self._required.get(name, 0) + 1
        self._chains = {}
        self._tell(Change(what="required", event=name))
        open_ = [True]

        def undo() -> None:
            if open_:
                open_.clear()
                self._required[name] -= 1
                self._chains = {}

        return undo

    def emergency_stop(self, reason: str) -> Undo:
        """Deny every event that can be stopped, at once, without asking a hook. Returns what lifts it.

        A refusal to let an agent stop (`agent:stop`, `subagent:stop`) would set it going again, so those are left out.
        """
        self._stopped = reason
        self._chains = {}
        self._tell(Change(what="stopped", detail=reason))

        def lift() -> None:
            if self._stopped is not None:
                self._stopped = None
                self._chains = {}
                self._tell(Change(what="resumed", detail=reason))

        return lift

    def watch(self, listener: Callable[[Change], None]) -> Undo:
        """Be told of every change to the registry itself; this is how it gets on record. Returns the undo."""
        self._listeners.append(listener)

        def undo() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return undo

    def scoped(self, plugin: str, *, built_in: bool = False, permissions: Iterable[str] = ()) -> RegistryScope:
        """What a plugin gets instead of the registry: it can register, within its permissions, and undo its own."""
        return RegistryScope(self, Scope(owner=plugin, built_in=built_in, permissions=permissions))

    # -- inside --------------------------------------------------------------------------------------------------

    def _chain(self, event: str) -> Chain:
        """The chain of an event in any spelling, made when it is first asked for after a registration."""
        name = self._known(event)
        chain = self._chains.get(name)
        if chain is None:
            row = self._row(name)
            hooks = sorted(
                (hook for hook in self._hooks if hook.enabled and hook.intent != "around" and joins(hook, row)),
                key=lambda hook: hook.place,
            )
            chain = Chain(
                row,
                tuple(hook for hook in hooks if hook.intent != "observe"),
                tuple(hook for hook in hooks if hook.intent == "observe"),
                required=bool(self._required.get(name)),
                stopped=self._stopped is not None,
            )
        if len(self._chains) < NAMES_KEPT:
            self._chains[name] = self._chains[event] = chain
        return chain

    def _run(self, chain: Chain, data: Mapping[str, Any], picked: Selection | None = None) -> Run:
        if not isinstance(data, Mapping):
            raise InvalidPayload(f"{chain.name}: data of type {type(data).__name__}; pass a mapping of field to value")
        if self._defaults:
            data = {**self._defaults, **data}
        outer = CURRENT.get()
        depth = 1 if outer is None else outer.depth + 1
        if depth > self._max_depth:
            raise EmitTooDeep(chain.name, self._max_depth)
        if picked is None:
            picked = chain.everybody or chain.pick(data)
        return Run(
            chain.name, picked.hooks, picked.names, data, DataView(data), chain.keeps, picked.patience, self._timing,
            False, outer, depth,
        )  # fmt: skip

    async def _conclude(self, chain: Chain, run: Run, outcome: Outcome) -> Outcome:
        """What follows the first pass, where anything does."""
        if run.modifier is not None and run.denied is None:
            earlier = run.hooks[: run.hooks.index(run.modifier)]
            again = tuple(hook for hook in earlier if hook.recheck and hook.enabled)
            if again:
                outcome = await run.once_more(again)
        await meet_cancellation()
        if chain.required and not any(hook.intent == "gate" and hook.enabled for hook in run.hooks):
            outcome = refusal(outcome, "no_policy", "registry", f"no gate looks at this {chain.name}, and one must")
        if self._stopped is not None and chain.stoppable:
            outcome = refusal(outcome, "emergency_stop", "registry", f"emergency stop: {self._stopped}")
        return outcome

    async def _notify(self, chain: Chain, outcome: Outcome) -> None:
        watchers = chain.watchers(outcome.data)
        beside = tuple(hook for hook in watchers.hooks if hook.concurrent)
        in_turn = tuple(hook for hook in watchers.hooks if not hook.concurrent)
        rounds = [in_turn, *((hook,) for hook in beside)]
        told = [self._show(chain, outcome, hooks) for hooks in rounds if hooks]
        if len(told) == 1:
            await told[0]
        else:
            await asyncio.gather(*told)

    async def _show(self, chain: Chain, outcome: Outcome, hooks: tuple[Hook, ...]) -> None:
        run = self._run(chain, outcome.data, Selection(hooks))
        run.view = Seen(run.view, outcome)
        if not run.start():
            await run.finish()

    def _known(self, event: str) -> str:
        """The canonical name; a misspelt one is warned about, an unknown one refused where only known ones may be."""
        if not isinstance(event, str) or not event:
            raise InvalidRegistration(f"event {event!r} is not a name; pass one such as 'tool:pre'")
        name = events.canonical(event)
        if name in self._declared or events.find(name) or is_pattern(name):
            return name
        likely = events.likely(name, self._declared)
        if self._strict:
            raise UnknownEvent(name, likely)
        if likely:
            warnings.warn(f"event {name!r} is unknown; did you mean {likely!r}?", EventNameWarning, stacklevel=2)
        return name

    def _row(self, name: str) -> Event:
        return events.find(name) or self._declared.get(name) or Event(name=name, fires="")

    def _unique(self, hook: Hook) -> str:
        """The name an answer is told by: numbered where another hook of that name can be in the same chain."""
        others = {
            other.name
            for other in self._hooks
            if other.given_name == hook.given_name and (is_pattern(other.event) or is_pattern(hook.event) or other.event == hook.event)
        }
        name, number = hook.given_name, 1
        while name in others:
            number += 1
            name = f"{hook.given_name}#{number}"
        return name

    def _named(self, name: str) -> list[Hook]:
        return [hook for hook in self._hooks if name in (hook.given_name, hook.name)]

    def _remove(self, hooks: Sequence[Hook]) -> int:
        there = [hook for hook in hooks if hook in self._hooks]
        for hook in there:
            self._hooks.remove(hook)
            self._tell(Change(what="unregistered", hook=hook.name, event=hook.event))
        if there:
            self._chains = {}
        return len(there)

    def _switch(self, name: str, *, enabled: bool) -> int:
        hooks = self._named(name)
        for hook in hooks:
            hook.enabled = enabled
            if enabled:
                hook.leaks, hook.quarantined = 0, False
            hook.settle()
            self._tell(Change(what="enabled" if enabled else "disabled", hook=hook.name, event=hook.event))
        self._chains = {}
        return len(hooks)

    def _tell(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)


class RegistryScope(Registrar):
    """A plugin's way to a registry: everything it registers is marked as its own and held to its permissions."""

    def __init__(self, registry: HookRegistry, scope: Scope) -> None:
        self._registry = registry
        self._scope = scope
        self._undo: dict[str, list[Undo]] = {}

    def _add(self, intent: Intent, event: str, handler: Handler, **options: Any) -> Undo:
        return self._registry.add_scoped(self._scope, intent, event, handler, **options)


def is_pattern(event: str) -> bool:
    """Whether an event name stands for several: `*`, or `domain:*`."""
    return event.endswith("*")


def applies(spec: str, event: str) -> bool:
    """Whether a hook registered for `spec` is for this event. `*` leaves out what the system says about its hooks."""
    if spec == "*":
        return not event.startswith("hook:")
    return spec == event or (is_pattern(spec) and event.startswith(spec[:-1]))


def joins(hook: Hook, row: Event) -> bool:
    """The same, and whether it may: a pattern does not carry a plugin's or tenant's hook to privileged points."""
    if not applies(hook.event, row.name):
        return False
    return not (is_pattern(hook.event) and row.privileged and (hook.tier == "plugin" or hook.tenant))
