"""The registry keeps hooks, orders them, and emits events to them.

An emit is *decide*, then *notify*: the participants answer in turn and their answers become one Outcome; then the
observers see the Outcome, whatever it is. Each half uses the registrations as they were when that half began.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from time import monotonic as clock
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from amplifier_hooks import events
from amplifier_hooks.dispatch.chain import Chain, Selection, as_payload, tenant_and_tool
from amplifier_hooks.dispatch.merge import refusal
from amplifier_hooks.dispatch.middleware import HookContext, operation_of, run_middleware
from amplifier_hooks.dispatch.run_hooks import CURRENT, Run
from amplifier_hooks.errors import (
    EmitTooDeep,
    HookAbortError,
    HookRefused,
    InvalidLimit,
    InvalidRegistration,
)
from amplifier_hooks.events import IDENTITY_FIELDS, Event
from amplifier_hooks.foreign_code import has_cancelled_itself
from amplifier_hooks.logs import get_logger
from amplifier_hooks.provenance import TRUST_LEVELS, SourceTrust
from amplifier_hooks.registry.decorators import Registrar, Undo
from amplifier_hooks.registry.event_names import Vocabulary, applies, is_pattern
from amplifier_hooks.registry.hook_table import RegistryChange, Roster, explain
from amplifier_hooks.registry.permissions import (
    BUILT_IN,
    RegistryScope,
    Scope,
    check_access,
    check_operation,
    check_tenant,
    may_change,
)
from amplifier_hooks.registry.registration import (
    Handler,
    HookOptions,
    check_timeout,
    handler_name,
    make_hook,
)
from amplifier_hooks.result import Answer, Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping

    from amplifier_hooks.dispatch.chain import Hook, Intent, OnError, PayloadData
    from amplifier_hooks.payloads import Payload
    from amplifier_hooks.registry.entry_points import DiscoveryResult
    from amplifier_hooks.registry.hook_table import Explanation
    from amplifier_hooks.result import Cause


NAMES_KEPT: Final = 4096
"""Chains kept by event name; made-up names must not fill the memory."""

NAMED_IN_FILE: Final = "name it under 'events' in a file of hooks, or declare it where the registry is made"

log = get_logger(__name__)


class HookRegistry(Registrar):
    """The hooks of a program: register them, emit events to them.

    Args:
        strict_events: Refuse event names that are neither in the catalogue nor declared.
        register_on_error: Effect of a failure of a plain `register` hook at an event that can be stopped.
        max_depth: Depth to which hooks may emit events whose hooks emit events.
        max_per_event: Number of hooks from definitions that one event may have, for each tenant.
        chain_timeout: Seconds the hooks of one emit may take together.
        timing: Keep every hook's duration, also of hooks without an answer.

    Raises `InvalidRegistration` or `InvalidLimit` for invalid settings.

    One registry may serve any number of sessions and event loops. Register and unregister from one thread.
    """

    # The constants that the upstream kernel's registry has.
    SESSION_START: Final = events.SESSION_START
    SESSION_END: Final = events.SESSION_END
    PROMPT_SUBMIT: Final = events.PROMPT_SUBMIT
    TOOL_PRE: Final = events.TOOL_PRE
    TOOL_POST: Final = events.TOOL_POST
    CONTEXT_PRE_COMPACT: Final = events.CONTEXT_PRE_COMPACT
    ORCHESTRATOR_COMPLETE: Final = events.ORCHESTRATOR_COMPLETE
    USER_NOTIFICATION: Final = events.USER_NOTIFICATION

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
        limits: dict[str, object] = {"max_depth": max_depth, "max_per_event": max_per_event}
        for name, limit in limits.items():
            if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
                raise InvalidLimit(name, limit, "an integer from 1")
        self._register_on_error = register_on_error
        self._max_depth = max_depth
        self._max_per_event = max_per_event
        self._chain_timeout = check_timeout(chain_timeout, "chain_timeout")
        self._timing = timing
        self._vocabulary = Vocabulary(strict=strict_events)
        self._roster = Roster(self._apply_change)
        self._number = 0
        self._settled = False  # True once a check has found no gate at an unknown event
        self._chains: dict[str, Chain] = {}
        self._layers: dict[str, Chain] = {}
        self._stoppable: dict[str, bool] = {}
        self._trust: dict[tuple[str, str], SourceTrust] = {}
        self._asking: dict[str, list[Hook]] = {}  # hooks whose version was asked for, by name
        self._defaults: dict[str, Any] = {}
        self._required: list[str] = []
        self._stops: list[str] = []
        self._stopped: str | None = None
        self._listeners: list[Callable[[RegistryChange], None]] = []

    # -- emitting ------------------------------------------------------------------------------------------------

    async def emit(
        self, event: str, data: PayloadData, *, notify: bool = True, exact: Collection[str] = (), rests: Any = None
    ) -> Outcome:
        """Call every hook of this event and return their merged outcome.

        The event may be spelled in any vocabulary. The data is not changed; the outcome's `data` includes the hooks'
        changes. Each hook gets a copy of its own. Without `notify` the caller notifies the observers later. `exact`
        names fields of JSON that are decided about: a hook that changes them in place denies the event. The hook
        objects that wait for the operation are added to `rests`. Cancelling an emit cancels the running hook; no
        further hook runs.

        Raises `InvalidPayload` for data that is neither a mapping nor a model, `UnknownEvent` under strict_events and
        while a gate is at an unknown event, `MisspeltEvent` for a name that reads like a known one, `EmitTooDeep` when
        hooks emit in circles. An emit never raises an error of a hook, `KeyboardInterrupt` excepted.
        """
        chain = self._chains.get(event) or self._chain(event)
        if type(data) is dict and chain.silent:
            return Outcome(chain.name, data)
        # `_run` for the common case, inlined: a call costs half as much as the work in it.
        if type(data) is dict and not chain.completed and CURRENT.get() is None:
            run = Run(chain.everybody or chain.pick(data), data, exact=exact, rests=rests)
        else:
            run = self._run(chain, data)
            run.exact, run.rests = exact, rests
        outcome = run.start() or await run.finish()
        if chain.stoppable and has_cancelled_itself():
            await asyncio.sleep(0)  # raises: a hook has cancelled the caller, and nothing may run
        if chain.careful or self._stopped is not None:
            outcome = await self._conclude(chain, run, outcome)
        if notify and chain.watched:
            await self._notify(chain, outcome)
        return outcome

    def decide(self, event: str, data: PayloadData) -> Coroutine[Any, Any, Outcome]:
        """Call the participants only, the first half of `emit`. Call `notify` once the effects are known."""
        return self.emit(event, data, notify=False)

    def in_force(self, event: str) -> Chain:
        """Return the hooks in force at an event; any change to the registry puts another object in force."""
        return self._chains.get(event) or self._chain(event)

    async def look_again(
        self, outcome: Outcome, data: Mapping[str, Any], before: Chain | None, exact: Collection[str], rests: Any = None
    ) -> Outcome:
        """Return the outcome with a second look: of the gates, and of hooks that are not in the chain `before`.

        Only their denials, questions and risks count. A hook that wants another change denies; only the hook whose
        change was the last may want it again. Without `before` every hook looks, and none conflicts.

        Args:
            outcome: Outcome of the first look.
            data: Payload that is looked at now.
            before: Chain of the first look; None lets every hook look.
        """
        chain = self._chains.get(outcome.event) or self._chain(outcome.event)
        looked = () if before is None else before.participants
        run = self._run(chain, data)
        taking = [hook for hook in run.selection.hooks if hook.enabled]
        hooks = tuple([hook for hook in taking if hook.recheck or all(hook.number != one.number for one in looked)])
        if hooks != run.selection.hooks:
            run.selection = replace(run.selection, hooks=hooks)
        run.exact, run.rests = exact, rests
        run.recheck, run.answers = True, list(outcome.answers) or None
        run.changer = None if before is None else outcome.changed_by(exact) if outcome.modified else ""
        found = run.start() or await run.finish()
        if chain.stoppable and has_cancelled_itself():
            await asyncio.sleep(0)  # raises, as in `emit`
        found = self._refuse_by_registry(chain, data, found)
        ran = outcome.ran if found.ran == outcome.ran else tuple(dict.fromkeys((*outcome.ran, *found.ran)))
        return replace(found, data=outcome.data, modified=outcome.modified, ran=ran)

    async def notify(self, outcome: Outcome) -> None:
        """Show the observers an outcome as it stands after its effects, the second half of `emit`.

        Observers run in order, `concurrent` ones side by side. An observer cannot change the outcome; its failure is
        logged and has no other effect. Each observer gets a copy of its own.

        Args:
            outcome: Outcome as it stands after its effects.
        """
        chain = self._chains.get(outcome.event) or self._chain(outcome.event)
        if chain.watched:
            await self._notify(chain, outcome)

    async def emit_and_collect(self, event: str, data: PayloadData, timeout: float = 1.0) -> list[dict[str, Any]]:
        """Return the `data` of every hook's answer, in order. No hook sees the data of another.

        Each hook has `timeout` seconds. Failures and answers without data are left out; a denial stops no other hook.

        Args:
            timeout: Seconds that each hook has.
        """
        chain = self._chains.get(event) or self._chain(event)
        limit = check_timeout(timeout, "timeout")
        collected: list[dict[str, Any]] = []
        before: Run | None = None
        for hook in self._run(chain, data).selection.hooks:
            alone = replace(hook, timeout=min(hook.timeout, limit))
            run = self._run(chain, data, chain.selection_of((alone,)))
            if before is not None:
                run.shared, run.total = before.shared, before.total
            before = run
            try:
                run.start() or await run.finish()
            finally:
                if alone.leaks > hook.leaks:  # the leak counts for the registered hook
                    hook.count_leak(run.tenant)
            answers = run.answers or ()
            collected += [dict(answer.data) for answer in answers if answer.success and answer.data is not None]
        return collected

    def set_default_fields(self, **fields: Any) -> None:
        """Merge these fields into the data of every emit from now on; the event's own data wins.

        Replaces earlier default fields.

        Args:
            fields: Fields of every payload, by their names.
        """
        self._defaults = fields
        self._chains = {}

    def is_watched(self, event: str) -> bool:
        """Return True if `notify` would show an outcome of this event to an observer."""
        return (self._chains.get(event) or self._chain(event)).watched

    def is_heard(self, event: str) -> bool:
        """Return True if emitting this event would run a hook, or be denied."""
        return not (self._chains.get(event) or self._chain(event)).silent

    def can_be_stopped(self, event: str) -> bool:
        """Return True if a denial keeps the act from happening, which is assumed of undescribed events.

        A denial in front of an agent's stop does not: the agent continues.
        """
        stops = self._stoppable.get(event)
        if stops is None:
            row = self._vocabulary.find(event)
            stops = row is None or (row.gate and row.name not in events.GOES_ON_WHEN_DENIED)
            if row is not None:  # undescribed names must not fill the memory
                self._stoppable[event] = stops
        return stops

    def wraps(self, operation: str) -> bool:
        """Return True if a hook runs around this operation, or an emergency stop blocks the operation."""
        layers = self._layers.get(operation) or self._operation_chain(operation)
        return bool(layers.participants) or self._stopped is not None

    def has_tenants(self) -> bool:
        """Return True if a hook of a tenant is registered, for any event, enabled or not."""
        return self._roster.has_tenants()

    def may_instruct(self, hook: str) -> bool:
        """Return True if this hook speaks in its host's name; hooks of plugins, tenants and data do not."""
        return self.source_trust(hook, events.TOOL_PRE).instructs

    def source_trust(self, hook: str, event: str) -> SourceTrust:
        """Return the trust level and origin of the hook with this name, and its right to inject text at this event.

        No hook may inject where a text has no effect. A plugin's or tenant's hook may inject only where it may
        register. Among hooks that share a name the least trusted counts. A handler's origin counts as it was at the
        first question after a change of the registry.
        """
        known = self._trust
        if (found := known.get((hook, event))) is not None:
            return found
        named = self._roster.named(hook)
        row = self._vocabulary.find(event)
        means = row is None or "inject_context" in row.answers
        heard = means and all(row is None or may_change(one.tier, one.tenant, row) for one in named)
        if not named:
            return SourceTrust(may_inject=heard)
        least = max(named, key=lambda one: TRUST_LEVELS.index(one.trust_level))
        trust = SourceTrust(trust_level=least.trust_level, origin=least.origin, may_inject=heard)
        if row is not None:  # undescribed names must not fill the memory
            known[hook, event] = trust
        return trust

    def version_of(self, hook: str, tenant: str = "") -> str:
        """Return the version of a hook, found by the name that a tenant knows. A new version needs new approvals."""
        named = self._asking.get(hook)
        if named is None:
            named = self._roster.named(hook)
            if named:  # names of no hook must not fill the memory
                self._asking[hook] = named
        for one in named:
            if one.tenant in ("", tenant):
                return one.current_version
        return ""

    # -- around operations ---------------------------------------------------------------------------------------

    async def wrap(
        self,
        operation: str,
        context: HookContext,
        call: Callable[[], Awaitable[Any]],
        *,
        tool: str | None = None,
        rests: tuple[Hook, ...] = (),
    ) -> Any:  # a layer may return anything in its place
        """Run `call` inside the around hooks of this operation and return its result.

        `rests` are layers outside of them: the rests of hook objects that took part in the decision. Matchers match
        `tool`, or the context's `tool_name` if `tool` is not given. Raises what `call` raises, and `HookAbortError`
        when a hook or an emergency stop kept `call` from running.

        Args:
            context: Context that the layers see.
            call: The operation itself, which runs at most once.
            tool: Name that matchers are compared with; the context's `tool_name` if None.
        """
        self._check_not_stopped()

        def call_unless_stopped() -> Awaitable[Any]:
            self._check_not_stopped()  # an operator may have pulled it while the layers ran
            return call()

        layers = self._layers.get(operation) or self._operation_chain(operation)
        about = {"tenant_id": context.tenant_id, "tool_name": tool or getattr(context, "tool_name", None)}
        began = clock()
        try:
            return await run_middleware((*rests, *layers.pick(about).hooks), operation, context, call_unless_stopped)
        finally:
            if layers.reported and context.results and not _is_about_hooks():
                await self._report(operation, about, context.results, (clock() - began) * 1e3)

    # -- registering ---------------------------------------------------------------------------------------------

    def hooks(self) -> tuple[Hook, ...]:
        """Return every hook, in order of registration. Read them only; change a hook by its name."""
        return tuple(self._roster)

    def scope(
        self,
        plugin: str,
        *,
        built_in: bool = False,
        permissions: Iterable[str] = (),
        tenant: str = "",
        report_only: bool = False,
    ) -> RegistryScope:
        """Return a plugin's view of the registry. It registers hooks within its permissions and removes only its own.

        With a `tenant`, every hook of the scope is for that tenant alone; with `report_only`, no answer of them has an
        effect.

        Args:
            plugin: Name of the plugin, which owns the hooks.
            built_in: True for hooks that ship with this package, which need no permissions.
            permissions: Rights of the plugin, such as `privileged_hooks`.
            report_only: True if no answer of the hooks has an effect.
        """
        names: dict[str, object] = {"plugin": plugin or None, "tenant": tenant}
        for what, value in names.items():
            if not isinstance(value, str):
                raise InvalidRegistration(f"{what} {value!r} is no name; a scope needs an owner")
        given = frozenset({permissions} if isinstance(permissions, str) else permissions)
        scope = Scope(owner=plugin, built_in=built_in, permissions=given, tenant=tenant, report_only=report_only)
        return RegistryScope(scope, self._roster, self._admit, self._row)

    def discover(
        self,
        enabled: Iterable[str],
        *,
        permissions: Mapping[str, Iterable[str]] | None = None,
        required: bool = False,
    ) -> tuple[DiscoveryResult, ...]:
        """Load hooks of installed packages: the ones named here, and no others.

        Each package registers in a scope of its own, as a plugin with the `permissions` given for its name; hooks that
        ship with this package are built-in. A broken package is reported and skipped, unless the names are `required`.

        Args:
            enabled: Names of entry points, in the order of their registration.
            permissions: Permissions by the name of a package's entry point; none if None.
            required: True raises for a package that cannot be used, instead of reporting it.

        Raises `HookUnavailable` for a required package that cannot be used.
        """
        from amplifier_hooks.registry.entry_points import discover

        if isinstance(enabled, str):
            raise InvalidRegistration(f"enabled {enabled!r} is one text; pass a list of names")
        results = discover(self, enabled, permissions or {}, required=required)
        for result in results:
            if result.error is not None:
                self._apply_change(
                    RegistryChange(what="broken", hook=result.name, owner=result.package, detail=result.error)
                )
        return results

    def declare(
        self,
        name: str,
        *,
        gate: bool = False,
        fires: str = "",
        replaces: str | None = None,
        payload: type[Payload] | None = None,
    ) -> None:
        """Make a custom event known: gates and strict registries accept it, and typos of it are noticed.

        `replaces` is the field of the payload that a modification replaces, `payload` the model that describes the
        payload. Repeating a declaration is harmless.

        Args:
            name: Name of the event, `domain:phase`.
            gate: True if a denial keeps the act from happening.
            fires: Moment at which the event fires, in one sentence.
            replaces: Field of the payload that a modification replaces; None if there is none.
            payload: Model that describes the payload; `Payload` if None.

        Raises `InvalidRegistration` for a name that is taken, and `MisspeltEvent` for one that reads like a known one.
        """
        answers = {"continue", "inject_context"}
        if gate:
            answers |= {"deny", "ask_user"}
        if replaces:
            answers |= {"modify"}
        row = Event(
            name=name,
            fires=fires or f"When the host emits {name}.",
            payload=payload.__name__ if payload else "Payload",
            answers=frozenset(answers),
            replaces=replaces,
            keeps=events.IDENTITY_FIELDS.union(payload.model_fields if payload else ()).difference((replaces,)),
        )
        self._vocabulary.declare(row, payload)
        self._apply_change(RegistryChange(what="declared", event=name))

    def forget_own_events(self, names: Iterable[str]) -> None:
        """Remove the events that `at_once` made known.

        Args:
            names: Names that `at_once` got as `own_events`.
        """
        self._vocabulary.remove_own(names)

    def check_event(self, event: str, hook: str) -> None:
        """Refuse an unknown event, or pattern, for the definition `hook`. Raises `UnknownEvent`.

        Args:
            hook: Name of the definition, for the error.
        """
        self._vocabulary.require(self._vocabulary.resolve_name(event, patterns=True, warn=False), hook, NAMED_IN_FILE)

    def check_gates(self) -> None:
        """Refuse gates at unknown events, as the first session and the first emit do. Raises `UnknownEvent`.

        After a check without error, each new gate needs an event that is known when the gate registers.
        """
        if self._settled:
            return
        for hook in self._roster:
            if hook.intent != "around" and (hook.intent == "gate" or hook.on_error == "deny"):
                self._vocabulary.require(hook.event, hook.name)
        for event in self._required:
            self._vocabulary.require(event, "")
        self._settled = True

    def payload_model(self, event: str) -> type[Payload]:
        """Return the model of an event's payload, from the catalogue or as declared."""
        return self._vocabulary.payload_model(event)

    # -- policy --------------------------------------------------------------------------------------------------

    def require(self, event: str, *, own_event: bool = False) -> Undo:
        """Deny this event, as `no_policy`, whenever no gate looks at it. Return the undo.

        Args:
            own_event: True for an event that the host emits and the catalogue lacks.

        Raises `InvalidRegistration` for an event that cannot be stopped, and for one in front of a stop, and
        `UnknownEvent` as for a gate.
        """
        name = self._event(self._vocabulary.resolve_name(event, warn=False), "", own=own_event)
        row = events.find(name)
        if name in events.GOES_ON_WHEN_DENIED or (row is not None and not row.gate):
            raise InvalidRegistration(f"{name} cannot require a gate: denying it would keep nothing from happening")
        self._required.append(name)
        self._apply_change(RegistryChange(what="required", event=name))

        def relax() -> None:
            self._required.remove(name)
            self._apply_change(RegistryChange(what="relaxed", event=name))

        return _once(relax)

    def emergency_stop(self, reason: str) -> Undo:
        """Deny every event that can be stopped, and every operation, at once and without calling a hook.

        Returns the undo of this stop; each of several stops has to be lifted. Denying an agent's stop (`agent:stop`,
        `subagent:stop`) would make the agent continue, so those events are left out.
        """
        self._stops.append(reason)
        self._stopped = self._stops[0]
        self._apply_change(RegistryChange(what="stopped", detail=reason))

        def lift() -> None:
            self._stops.remove(reason)
            self._stopped = self._stops[0] if self._stops else None
            self._apply_change(RegistryChange(what="resumed", detail=reason))

        return _once(lift)

    def explain(self, event: str, data: Mapping[str, Any] | None = None) -> Explanation:
        """Explain what an emit of this event would do now: the hooks that would run, and the reasons. Runs no hook."""
        chain = self._chain(event)
        payload = self._payload(chain, {} if data is None else data)
        refused: Cause | None = None
        if self._stopped is not None and chain.stoppable:
            refused = "emergency_stop"
        elif chain.required and not _has_gate(chain.pick(payload).hooks):
            refused = "no_policy"
        return explain(chain, self._roster, *tenant_and_tool(payload), refused)

    @contextmanager
    def at_once(
        self, *, max_per_event: int | None = None, own_events: Collection[str] = (), keep: bool = True
    ) -> Iterator[None]:
        """Apply all registrations and removals of the block together, or none of them if the block raises.

        Emits see the hooks as before the block or as after it, so the block must not wait. From then on an event may
        have `max_per_event` hooks from definitions, if given, and `own_events` are known as the host's own. Without
        `keep` the block is a trial: it raises the same errors, and its changes are dropped.

        Args:
            max_per_event: Number of hooks from definitions that an event may have from then on; None leaves it.
            own_events: Names of events that the host emits itself; gates may stand at them from then on.
        """
        before, kept = self._max_per_event, False
        self._vocabulary.add_own(own_events)
        try:
            self._max_per_event = before if max_per_event is None else max_per_event
            with self._roster.at_once(keep=keep):
                yield
            kept = keep
        finally:
            if not kept:
                self._max_per_event = before
                self._vocabulary.remove_own(own_events)

    def remove(self, hooks: Iterable[Hook]) -> int:
        """Remove exactly these hooks, whatever their names, from the next emit on. Return how many were removed."""
        return self._roster.remove(hooks)

    def renumber(self, hooks: Iterable[Hook]) -> None:
        """Move these hooks to the positions they would have if they were registered now, in this order."""
        for hook in hooks:
            self._number += 1
            hook.number = self._number
        self._chains, self._layers = {}, {}

    def tell(self, change: RegistryChange) -> None:
        """Report a change that explains changes of hooks, such as the change of a definition, to the listeners.

        Args:
            change: Change that the listeners get.
        """
        self._roster.tell(change)

    def watch(self, listener: Callable[[RegistryChange], None]) -> Undo:
        """Call a listener for every change of the registry, for example to record it. Return the undo.

        An error of a listener is logged and has no other effect.

        Args:
            listener: Function that is called with each change, after the change.
        """
        self._listeners.append(listener)
        return _once(lambda: self._listeners.remove(listener))

    # -- admitting a hook ----------------------------------------------------------------------------------------

    def _enter(self, intent: Intent, event: str, handler: Handler, **options: Any) -> Hook:
        return self._admit(BUILT_IN, intent, event, handler, **options)

    def _admit(self, scope: Scope, intent: Intent, event: str, handler: Handler, /, **options: Any) -> Hook:
        """Register a hook on behalf of a scope. Every way to register ends here."""
        for unknown in options.keys() - HookOptions.__optional_keys__:
            from amplifier_hooks.text.strict_parsing import suggestion  # for a mistake only

            raise TypeError(
                f"{intent}() takes no option {unknown!r}; {suggestion(unknown, sorted(HookOptions.__optional_keys__))}"
            )
        tenant = options.setdefault("tenant", scope.tenant)
        if scope.report_only and intent != "observe":
            options["report_only"] = True
        around = operation_of(event) if intent == "around" else None
        own = options.pop("own_event", False)
        defined = options.get("source") == "definition"
        guards = intent == "gate" or options.get("on_error") == "deny"
        who = options.get("name") or handler_name(handler)
        if around:
            name = events.canonical(event)
        else:
            name = self._event(event, who, guards=guards, own=own, defined=defined, late=not scope.built_in)
        try:
            check_tenant(scope, tenant)
            if around:
                check_operation(scope, around, tenant)
            elif not is_pattern(name):
                check_access(scope, self._row(name), intent, tenant)
            if options.get("on_error") is None:
                options["on_error"] = self._on_failure(intent, name)
            self._number += 1
            hook = make_hook(
                intent,
                name,
                handler,
                scope,
                self._number,
                chain_timeout=self._chain_timeout,
                timing=self._timing,
                **options,
            )
            self._roster.add(hook, self._max_per_event)
        except HookRefused as refused:
            self._apply_change(
                RegistryChange(
                    what="refused", hook=who, event=name, owner=scope.owner, tenant=tenant, detail=str(refused)
                )
            )
            raise
        return hook

    def _event(
        self, event: str, who: str, *, guards: bool = True, own: bool = False, defined: bool = False, late: bool = False
    ) -> str:
        """Return the canonical name of a new hook's event. Raises `UnknownEvent` for an event that would never occur.

        A host may declare the event of its gate until the first session starts; a plugin may not (`late`).
        """
        vocabulary = self._vocabulary
        name = vocabulary.resolve_name(event, patterns=True, warn=not (own or defined or guards))
        if own:
            vocabulary.add_own([name])
        elif name not in vocabulary and (
            defined or (guards and (late or self._settled or vocabulary.likely(name) is not None))
        ):
            vocabulary.require(name, who, NAMED_IN_FILE if defined else "")
        return name

    def _on_failure(self, intent: Intent, name: str) -> OnError | None:
        """Return the default effect of a failure; None is the default of the intent."""
        if name in events.GOES_ON_WHEN_DENIED:
            return "continue"  # a denial there would make an agent continue
        if intent == "register" and any(row.gate and applies(name, row.name) for row in self._vocabulary):
            return self._register_on_error
        return None

    # -- chains --------------------------------------------------------------------------------------------------

    def _chain(self, event: str) -> Chain:
        """Return the chain of an event in any spelling; create it at the first use after a change."""
        if not self._settled:
            self.check_gates()
        name = self._vocabulary.resolve_name(event)
        chains = self._chains  # a thread that changes the registry meanwhile replaces this dict
        chain = chains.get(name)
        if chain is None:
            row = self._row(name)
            hooks = self._roster.hooks_for(row)
            if self._vocabulary.find(name) is None and (name in self._required or _has_gate(hooks)):
                row = replace(row, answers=row.answers | {"deny"})  # an undescribed event with a gate
            chain = Chain(
                row,
                tuple(hook for hook in hooks if hook.intent != "observe"),
                tuple(hook for hook in hooks if hook.intent == "observe"),
                required=name in self._required,
                completed=bool(self._defaults),
                stopped=self._stopped is not None,
                reported=not name.startswith("hook:") and self._roster.watches_hooks(),
            )
        if len(chains) >= NAMES_KEPT:
            chains.clear()
        chains[name] = chains[event] = chain
        return chain

    def _operation_chain(self, operation: str) -> Chain:
        """Return the chain of an operation's layers; create it at the first use after a change."""
        name, known = operation_of(operation), self._layers
        layers = tuple(self._roster.layers_of(name))
        chain = Chain(Event(name), layers, (), reported=self._roster.watches_hooks())
        known[operation] = chain
        return chain

    def _check_not_stopped(self) -> None:
        if self._stopped is not None:
            raise HookAbortError(f"emergency stop: {self._stopped}", "registry", "emergency_stop")

    def _row(self, event: str) -> Event:
        return self._vocabulary.row(event)

    def _apply_change(self, change: RegistryChange) -> None:
        """Apply a change from the next emit on, and call the listeners."""
        self._chains, self._layers, self._trust, self._asking = {}, {}, {}, {}
        for listener in tuple(self._listeners):
            try:
                listener(change)
            except Exception:  # a broken record must not leave a hook half registered
                log.exception("registry_listener_failed", change=change.what, hook=change.hook)

    # -- running them --------------------------------------------------------------------------------------------

    def _payload(self, chain: Chain, data: PayloadData) -> Mapping[str, Any]:
        if data.__class__ is not dict:
            data = as_payload(chain.name, data)
        return {**self._defaults, **data} if self._defaults else data

    def _run(
        self, chain: Chain, data: PayloadData, selection: Selection | None = None, *, notification: bool = False
    ) -> Run:
        """Return a run of one chain.

        A `notification` works at any depth; an emit of the notified observers is one level deeper.
        """
        data = self._payload(chain, data)
        outer = CURRENT.get()
        depth = 1 if outer is None else outer.depth + 1
        if depth > self._max_depth and not notification:
            raise EmitTooDeep(chain.name, self._max_depth)
        if selection is None:
            selection = chain.everybody or chain.pick(data)
        return Run(selection, data, outer, depth)

    async def _conclude(self, chain: Chain, run: Run, outcome: Outcome) -> Outcome:
        """Return the outcome after second looks, required gates and an emergency stop."""
        if run.modifier is not None and run.denied is None:
            earlier = run.selection.hooks[: run.selection.hooks.index(run.modifier)]
            again = tuple(hook for hook in earlier if hook.recheck and hook.enabled)
            if again:
                outcome = await run.look_again(again)
        return self._refuse_by_registry(chain, run.data, outcome)

    def _refuse_by_registry(self, chain: Chain, data: Mapping[str, Any], outcome: Outcome) -> Outcome:
        """Return the outcome, denied if a required gate is missing, or under an emergency stop."""
        if chain.required and not _has_gate(chain.pick(data).hooks):
            outcome = refusal(outcome, "no_policy", "registry", f"no gate looks at this {chain.name}, and one must")
        if self._stopped is not None and chain.stoppable:
            outcome = refusal(outcome, "emergency_stop", "registry", f"emergency stop: {self._stopped}")
        return outcome

    async def _notify(self, chain: Chain, outcome: Outcome) -> None:
        shown = await self._show(chain, outcome)
        if chain.reported and not _is_about_hooks():
            answers = (*outcome.hook_results, *shown)
            await self._report(chain.name, outcome.data, answers, outcome.total_duration_ms)

    async def _report(self, event: str, data: Mapping[str, Any], answers: Iterable[Answer], chain_ms: float) -> None:
        """Report the answers of these hooks to the observers of `hook:*`."""
        for name, facts in _hook_events(event, data, answers, chain_ms):
            chain = self._chains.get(name) or self._chain(name)
            await self._show(chain, Outcome(name, facts))

    async def _show(self, chain: Chain, outcome: Outcome) -> tuple[Answer, ...]:
        """Show the observers an outcome. Return their recorded answers."""
        watchers = chain.watched_by_all or chain.watchers(outcome.data)
        beside = [(hook,) for hook in watchers.hooks if hook.concurrent]
        if not beside:
            return await self._show_to(chain, outcome, watchers)
        in_turn = tuple(hook for hook in watchers.hooks if not hook.concurrent)
        groups = (chain.selection_of(hooks) for hooks in (in_turn, *beside))
        shown = await asyncio.gather(*(self._show_to(chain, outcome, group) for group in groups))
        return tuple(answer for answers in shown for answer in answers)

    async def _show_to(self, chain: Chain, outcome: Outcome, watchers: Selection) -> tuple[Answer, ...]:
        if not watchers.hooks:
            return ()
        run = self._run(chain, outcome.data, watchers, notification=True)
        run.given = outcome
        found = run.start() or await run.finish()
        return found.hook_results if chain.reported else ()


def _hook_events(
    event: str, data: Mapping[str, Any], answers: Iterable[Answer], chain_ms: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield two events for each hook that was called, for its start and its end. A disabled hook was not called.

    The identity fields come from the payload of the event. A hook whose own duration was not measured gets the duration
    of its chain.
    """
    about = {name: data[name] for name in IDENTITY_FIELDS.intersection(data)}
    if "event_id" in about:
        about["parent_id"] = about.pop("event_id")
    for answer in answers:
        if answer.status == "disabled":
            continue
        duration = chain_ms if answer.duration_ms is None else answer.duration_ms
        for name, facts in ((events.HOOK_START, {}), _end_event(answer, duration)):
            names = {"hook_name": answer.hook_name, "event": event, "event_type": name.replace(":", "_")}
            yield name, {**about, **names, **facts}


def _end_event(answer: Answer, duration_ms: float) -> tuple[str, dict[str, Any]]:
    if not answer.success:
        name = events.HOOK_TIMEOUT if answer.status == "timeout" else events.HOOK_FAILED
        behavior = "deny" if answer.denies else "continue"
        return name, {"error": answer.error or answer.status, "on_error_behavior": behavior, "duration_ms": duration_ms}
    if answer.action == "deny":
        return events.HOOK_BLOCKED, {"block_reason": answer.result.reason, "duration_ms": duration_ms}
    would = {} if answer.would is None else {"would": answer.would.action}
    return events.HOOK_COMPLETE, {"action": answer.action, **would, "duration_ms": duration_ms}


def _has_gate(hooks: Iterable[Hook]) -> bool:
    """Return True if a gate is among the hooks that can deny."""
    return any(hook.intent == "gate" and hook.enabled and not hook.report_only for hook in hooks)


def _is_about_hooks() -> bool:
    """Return True if an observer of `hook:*` runs this code; its hooks are not reported again."""
    run = CURRENT.get()
    while run is not None:
        if run.event.startswith("hook:"):
            return True
        run = run.outer
    return False


def _once(action: Callable[[], None]) -> Undo:
    """Return an undo that runs the action at the first call, and nothing at a later one."""
    left = [action]

    def undo() -> None:
        if left:
            left.pop()()

    return undo
