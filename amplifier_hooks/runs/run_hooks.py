"""The hooks before and after a run: their order, the effect of their answers, and the events that report them.

At the start the registry's hooks come first, system before tenant, and then the blueprint's own, in a registry of their
own. If the blueprint's hook changes the parameters, the registry's gates look again. The parameters are checked against
the agent's schema before all of them, after the registry's, and after the blueprint's. They are the input of an `Act`,
and the runner gets exactly that input.

`RunHooks` needs no queue: `start` and `finish` are for programs that have an engine of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from attrs import field, frozen
from msgspec.structs import replace

from amplifier_hooks import events as catalogue
from amplifier_hooks.act import Act, freeze
from amplifier_hooks.clock import SystemClock
from amplifier_hooks.definitions.kinds.event_codec import LONGEST_REASON
from amplifier_hooks.definitions.kinds.python import build_hook
from amplifier_hooks.definitions.kinds.webhook import PUBLIC, AllowedUrls
from amplifier_hooks.dispatch.merge import CAUSES, OBJECTIONS
from amplifier_hooks.errors import HookError, InvalidResult
from amplifier_hooks.foreign_code import DaemonPool
from amplifier_hooks.logs import get_logger
from amplifier_hooks.registry.registry import HookRegistry
from amplifier_hooks.runs.blueprint_hooks import NO_APPROVER, NO_CONTEXT, NO_REASON, BlueprintHook, freeze_parameters
from amplifier_hooks.runs.run_states import (
    HookPoint,
    NewRunEvent,
    RunEnding,
    RunRecord,
    StartOutcome,
    event_body,
    result_fields,
)
from amplifier_hooks.text.escape import clip

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from amplifier_hooks.definitions.kinds.agent import AgentRuns
    from amplifier_hooks.ports import Clock
    from amplifier_hooks.result import Answer, Outcome
    from amplifier_hooks.runs.blueprint import Blueprint, HookEntry

START: Final[HookPoint] = "on_run_start"
FINISH: Final[HookPoint] = "on_run_finish"
POINTS: Final = {START: catalogue.RUN_START, FINISH: catalogue.RUN_FINISH}
"""The two points of a blueprint's hooks, and their events."""
THREADS: Final = 8
FAILURES: Final = frozenset(CAUSES.values()) - {"denied_by_hook"}
"""Causes of a denial by a hook that failed."""

log = get_logger(__name__)


@frozen
class Blocked:
    """A run that does not start, and the reason. `failed` is True if a hook failed and no hook blocked the run."""

    reason: str
    """The reason."""
    failed: bool = False
    """True if a hook failed and no hook blocked the run."""


def find_function(name: str) -> Any:
    """Return the function that a `handler_ref` names; for a class, an instance. Raise `HookUnavailable`."""
    return build_hook(name, {})


async def _drop(run: str, told: Sequence[NewRunEvent]) -> None:
    """Store no events: an engine of its own has its own history."""


@frozen(kw_only=True)
class RunHooks:
    """The hooks around runs: those of a registry, and those of blueprints, with all that they need.

    `note` stores events of a run.
    """

    registry: HookRegistry = field(factory=HookRegistry)
    """The registry whose hooks see every run; an empty one by default."""
    agents: AgentRuns | None = None
    """The way to start agents; without one, hooks of the kind agent fail."""
    find: Callable[[str], Any] = find_function
    """Function that finds the callable of a `handler_ref`. It raises `HookUnavailable`."""
    reach: AllowedUrls = PUBLIC
    """The addresses that http hooks may reach."""
    variables: Mapping[str, str] = field(factory=dict, repr=False)
    """Values of `${VAR}` in headers."""
    note: Callable[[str, Sequence[NewRunEvent]], Awaitable[object]] = _drop
    clock: Clock = field(factory=SystemClock)
    threads: DaemonPool = field(factory=lambda: DaemonPool(THREADS, "amplifier-hooks-runs"), repr=False)
    _registries: dict[str, tuple[Blueprint, HookRegistry]] = field(factory=dict, init=False)

    def problems(self, blueprint: Blueprint) -> list[str]:
        """Return why hooks of a blueprint would fail: a function, an address, a header or a variable that is wrong."""
        found: list[str] = []
        for point in POINTS:
            try:
                self.check(blueprint, point)
            except HookError as problem:
                found.append(f"{blueprint.name}: hooks.{point}: {problem}")
        return found

    def check(self, blueprint: Blueprint, point: HookPoint) -> None:
        """Raise the `HookError` with which a hook of a blueprint would fail at every run."""
        entry: HookEntry | None = getattr(blueprint.hooks, point)
        if entry is not None:
            BlueprintHook(self, blueprint, point, entry).load()

    # -- for engines of their own --------------------------------------------------------------------------------------

    async def start(
        self, blueprint: Blueprint, parameters: Mapping[str, Any], *, run: str = "", session: str = "", tenant: str = ""
    ) -> dict[str, Any] | Blocked:
        """Ask the start hooks; return the parameters with which the run starts, or `Blocked`.

        Args:
            run: Id of the run in its engine, by which a hook that runs again knows the run; a new one by default.
            session: Session of the run; a new one by default.
            tenant: Tenant of the run.

        Parameters that are no JSON, or against the agent's schema, block the run, too. No error of a hook is raised
        here: `on_error` decides about it. Cancelling the call cancels the hook that is running.
        """
        record = _run_of(blueprint, parameters, run, session, tenant)
        passed = await self.ask_start_hooks(record, blueprint)
        if passed.error is None:
            return dict(passed.parameters or {})
        await self.tell_end(replace(record, stage="failed", error=passed.error))
        return Blocked(passed.error, failed=not passed.blocked)

    async def finish(
        self,
        blueprint: Blueprint,
        parameters: Mapping[str, Any],
        result: Any = None,
        *,
        status: RunEnding = "completed",
        error: str | None = None,
        run: str = "",
        session: str = "",
        tenant: str = "",
    ) -> None:
        """Show a run that has ended to the registry's observers, and to the blueprint's finish hook.

        `parameters` are those with which the run ran. Hooks change nothing here, and a hook that fails is logged.
        Cancelling the call cancels the hook that is running.

        Args:
            parameters: Parameters with which the run ran.
            result: Result of the run.
            status: End of the run.
            run: Id of the run in its engine, as at its start.
            session: Session of the run.
            tenant: Tenant of the run.
        """
        field_of_result = {"result_text" if blueprint.brings_text else "result_data": result}
        record = _run_of(blueprint, parameters, run, session, tenant)
        record = replace(record, stage=status, ended=self.clock.now(), handed=1, error=error, **field_of_result)
        await self.tell_end(record)
        await self.ask_finish_hook(record, blueprint)

    # -- the start -----------------------------------------------------------------------------------------------------

    async def ask_start_hooks(self, record: RunRecord, blueprint: Blueprint) -> StartOutcome:
        """Ask the start hooks if a run may go on, and with which parameters.

        A service or an agent is reported when it begins, all other events with the outcome. Cancelling the call cancels
        the hook that is running.
        """
        try:
            data = freeze_parameters(blueprint, record.parameters)
        except InvalidResult as problem:
            return StartOutcome(error=f"these are no parameters for {blueprint.name!r}: {problem}")
        act = Act(record.tenant, record.session, catalogue.RUN_START, record.agent, "", data)
        payload, told, shared = self._payload(record), list[NewRunEvent](), self.registry
        before = shared.in_force(catalogue.RUN_START)
        first = await _emit_start(shared, act, payload)
        told += _answer_events(first.hook_results, first, self.clock.now())
        if (refusal := _refusal(first)) is not None:
            return replace(refusal, told=tuple(told))
        try:
            act = replace(act, input=freeze_parameters(blueprint, first.data["parameters"]))
        except InvalidResult as problem:
            error = f"hooks of the registry made parameters that do not fit: {problem}"
            return StartOutcome(error=error, told=tuple(told))
        entry = blueprint.hooks.on_run_start
        if entry is None:
            return StartOutcome(parameters=act.arguments(), told=tuple(told))
        begun = hook_event(self.clock.now(), "hook_start", START, entry.type, entry.target)
        told.append(begun)
        if entry.type != "python":
            await self.note(record.id, told)
            told = []
        await self._tell_hook(record, begun)
        own = await _emit_start(self.registry_of(blueprint), act, payload)
        done = replace(act, input=freeze(own.data["parameters"]))
        told.append(await self._tell_answer(record, own, (START, entry.type, entry.target), entry.on_error))
        refusal = _refusal(own)
        if refusal is None and (done.input != act.input or shared.in_force(catalogue.RUN_START) is not before):
            payload = {**first.data, "parameters": done.arguments()}
            found = await shared.look_again(first, payload, before, ("parameters",))
            objections = [one for one in found.answers if one.recheck and one.action in OBJECTIONS]
            told += _answer_events(objections, found, self.clock.now())
            refusal = _refusal(found)
        return replace(refusal or StartOutcome(parameters=done.arguments()), told=tuple(told))

    # -- the finish ----------------------------------------------------------------------------------------------------

    async def tell_result(self, record: RunRecord) -> None:
        """Report a posted result to the registry."""
        await self._emit(catalogue.RUN_RESULT, record, **_result_of(record))

    async def tell_end(self, record: RunRecord) -> None:
        """Report the end of a run to the registry, once the end is stored."""
        if record.handed:
            await self._emit(catalogue.RUN_FINISH, record, **_result_of(record))
        if record.status == "failed":
            await self._emit(catalogue.RUN_ERROR, record, error=record.error or "failed")

    async def ask_finish_hook(self, record: RunRecord, blueprint: Blueprint) -> None:
        """Run the finish hook of a run that ended, if the blueprint has one. The hook cannot change the run.

        Cancelling the call cancels the hook.
        """
        entry = blueprint.hooks.on_run_finish
        if entry is None:
            return
        target = (FINISH, entry.type, entry.target)
        begun = hook_event(self.clock.now(), "hook_start", *target)
        await self.note(record.id, (begun,))
        await self._tell_hook(record, begun)
        given = self._payload(record, **_result_of(record))
        outcome = await self.registry_of(blueprint).emit(catalogue.RUN_FINISH, given)
        what = await self._tell_answer(record, outcome, target, entry.on_error)
        await self.note(record.id, (what,))
        if what.type == "hook_failed" and entry.on_error != "ignore":
            report = log.error if entry.on_error == "block" else log.warning
            report("run_finish_hook_failed", run=record.id, target=entry.target, error=what.fields["error"])

    def registry_of(self, blueprint: Blueprint) -> HookRegistry:
        """Return the registry of a blueprint's own hooks, which lasts until the blueprint is another one.

        A start hook with `on_error` `block` is a gate.
        """
        known = self._registries.get(blueprint.name)
        if known is None or known[0] != blueprint:
            registry = HookRegistry()
            for point, event in POINTS.items():
                entry: HookEntry | None = getattr(blueprint.hooks, point)
                if entry is not None:
                    enter = registry.gate if point == START and entry.on_error == "block" else registry.on
                    handler = BlueprintHook(self, blueprint, point, entry)
                    enter(event, handler, name=entry.target, timeout=entry.timeout_seconds)
            known = self._registries[blueprint.name] = (blueprint, registry)
        return known[1]

    # -- reporting to the registry -------------------------------------------------------------------------------------

    async def _tell_hook(self, record: RunRecord, what: NewRunEvent) -> None:
        """Report a run hook to the observers of hooks in the registry."""
        event = what.type.replace("_", ":")  # hook:start and so on
        if self.registry.is_heard(event):
            body = event_body(record, what, self.clock.now())
            await self.registry.emit(event, {**body, "hook_name": body["target_name"], "tenant_id": record.tenant})

    async def _tell_answer(
        self, record: RunRecord, outcome: Outcome, target: tuple[HookPoint, str, str], on_error: str
    ) -> NewRunEvent:
        """Report the end of a blueprint's hook to the registry, and return it as an event of the run."""
        (answer,) = outcome.hook_results
        what = _answer_event(self.clock.now(), answer, target, outcome.total_duration_ms, on_error)
        await self._tell_hook(record, what)
        if answer.status == "timeout":
            await self._emit(catalogue.RUN_TIMEOUT, record, error=answer.error)
        return what

    async def _emit(self, event: str, record: RunRecord, **fields: Any) -> None:
        if self.registry.is_heard(event):
            await self.registry.emit(event, self._payload(record, **fields))

    def _payload(self, record: RunRecord, **fields: Any) -> dict[str, Any]:
        return {
            "session_id": record.session,
            "run_id": record.id,
            "tenant_id": record.tenant,
            "timestamp": self.clock.now().isoformat(),
            "agent_name": record.agent,
            "parameters": dict(record.effective),
            **fields,
        }


def _run_of(blueprint: Blueprint, parameters: Mapping[str, Any], run: str, session: str, tenant: str) -> RunRecord:
    run = run or f"run_{uuid4().hex}"
    return RunRecord(id=run, tenant=tenant, session=session or run, agent=blueprint.name, parameters=parameters)


def hook_event(
    at: datetime, kind: str, point: HookPoint, target_type: str, target_name: str, **more: Any
) -> NewRunEvent:
    """Return an event of a hook, with the fields that all of them have."""
    fields = {"hook_type": point, "target_type": target_type, "target_name": target_name, **more}
    return NewRunEvent(kind, fields, at)


async def _emit_start(registry: HookRegistry, act: Act, payload: Mapping[str, Any]) -> Outcome:
    """Ask a registry about the start of a run. Each hook gets its own copy of the act's input."""
    return await registry.emit(act.event, {**payload, "parameters": act.arguments()}, exact=("parameters",))


def _refusal(outcome: Outcome) -> StartOutcome | None:
    """Return why a run does not start, or None if it does. It is blocked by a denial, and failed by a failure."""
    if outcome.denied:
        reason = clip(outcome.reason or NO_REASON, LONGEST_REASON)
        if outcome.cause in FAILURES:
            return StartOutcome(error=f"the start hook {outcome.denied_by} failed: {reason}")
        return StartOutcome(error=reason, blocked=True)
    if outcome.asks or outcome.injections:
        return StartOutcome(error=NO_APPROVER if outcome.asks else NO_CONTEXT, blocked=True)
    return None


def _answer_events(answers: Iterable[Answer], outcome: Outcome, at: datetime) -> Iterable[NewRunEvent]:
    """Yield the answers of the registry's hooks as events of the run."""
    for answer in answers:
        if answer.status == "disabled":
            continue
        target = (START, "registry", answer.hook_name)
        yield hook_event(at, "hook_start", *target)
        yield _answer_event(at, answer, target, outcome.total_duration_ms, "block" if answer.denies else "continue")


def _answer_event(
    at: datetime, answer: Answer, target: tuple[HookPoint, str, str], chain_ms: float, on_error: str
) -> NewRunEvent:
    took = round(chain_ms if answer.duration_ms is None else answer.duration_ms, 3)
    if not answer.success:
        error = clip(answer.error or answer.status, LONGEST_REASON)
        behavior = "block" if answer.denies else on_error
        return hook_event(at, "hook_failed", *target, error=error, on_error_behavior=behavior, duration_ms=took)
    reason = None
    if answer.action == "deny":
        reason = clip(answer.result.reason or NO_REASON, LONGEST_REASON)
    elif answer.action == "ask_user":
        reason = NO_APPROVER
    elif answer.result.injects:
        reason = NO_CONTEXT
    if reason is not None:
        return hook_event(at, "hook_blocked", *target, block_reason=reason, duration_ms=took)
    more: dict[str, Any] = {"action": "continue"} if target[0] == START else {}
    return hook_event(at, "hook_complete", *target, duration_ms=took, **more)


def _result_of(record: RunRecord) -> dict[str, Any]:
    return {**result_fields(record), "status": record.status if record.ended else None, "error": record.error}
