"""The hooks before and after a run: their order, the effect of their answers, and the events that report them.

At the start the registry's hooks come first, system before tenant, and then the blueprint's own. The parameters are
checked against the agent's schema before all of them, after the registry's, and after the blueprint's.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from attrs import define, evolve, frozen

from amplifier_hooks import events as catalogue
from amplifier_hooks.definitions.kinds.agent import AgentInputRefused
from amplifier_hooks.definitions.kinds.event_codec import LONGEST_REASON
from amplifier_hooks.dispatch.bounded_wait import TooLate, within
from amplifier_hooks.errors import InvalidResult
from amplifier_hooks.logs import get_logger
from amplifier_hooks.runs.hooks.call_hooks import failure_of
from amplifier_hooks.runs.hooks.hook_answers import (
    NO_APPROVER,
    NO_CONTEXT,
    StartAnswer,
    as_finish_answer,
    as_start_answer,
    finish_input,
    plain_parameters,
    start_input,
)
from amplifier_hooks.runs.run_states import HookPoint, NewRunEvent, event_body
from amplifier_hooks.runs.store.run_rows import StartOutcome
from amplifier_hooks.text.escape import clip

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from amplifier_hooks.ports import Clock
    from amplifier_hooks.registry.registry import HookRegistry
    from amplifier_hooks.result import Answer, Outcome
    from amplifier_hooks.runs.blueprint import Blueprint, HookEntry
    from amplifier_hooks.runs.hooks.call_hooks import HookCaller
    from amplifier_hooks.runs.run_states import RunRecord


START: Final[HookPoint] = "on_run_start"
FINISH: Final[HookPoint] = "on_run_finish"
SOON: Final = 0.05
"""Seconds after which the run reports that a hook is at work; most hooks are done by then."""
CANONICAL: Final[Mapping[str, str]] = {
    "hook_start": catalogue.HOOK_START,
    "hook_complete": catalogue.HOOK_COMPLETE,
    "hook_failed": catalogue.HOOK_FAILED,
    "hook_blocked": catalogue.HOOK_BLOCKED,
}

log = get_logger(__name__)


def hook_event(
    at: datetime, kind: Any, point: HookPoint, target_type: str, target_name: str, **more: Any
) -> NewRunEvent:
    """Return an event of a hook, with the fields that all of them have."""
    fields = {"hook_type": point, "target_type": target_type, "target_name": target_name, **more}
    return NewRunEvent(kind, fields, at)


class Notes(Protocol):
    """Stores events of a run while its hooks are at work."""

    async def __call__(self, run: str, told: Iterable[NewRunEvent]) -> object:
        """Store the events."""
        ...


@define(eq=False)
class EarlyEvents:
    """The events of a run before its start hooks are done.

    They are held back briefly, since most hooks are done by then.
    """

    run: str
    note: Notes
    untold: list[NewRunEvent]
    _telling: bool = False

    async def add(self, *told: NewRunEvent) -> None:
        """Store the events, at once or with the rest."""
        if self._telling:
            await self.note(self.run, told)
        else:
            self.untold += told

    async def tell(self) -> None:
        """Store the events held back, and hold back no more."""
        self._telling = True
        untold, self.untold = self.untold, []
        await self.note(self.run, untold)


@frozen(kw_only=True)
class RunHooks:
    """The hooks around runs: the registry's and the blueprints'."""

    carriers: HookCaller
    note: Notes
    clock: Clock
    registry: HookRegistry | None = None

    def is_heard(self, event: str) -> bool:
        """Return True if the registry has a hook for this event."""
        return self.registry is not None and self.registry.is_heard(event)

    # -- the start -----------------------------------------------------------------------------------------------------

    async def start(self, record: RunRecord, blueprint: Blueprint) -> StartOutcome:
        """Ask the start hooks if a run may go on, and with which parameters.

        Events are stored together with the result if the hooks finish within 50 ms, otherwise as they happen.
        Cancelling the call cancels the hook that is running.
        """
        early = EarlyEvents(record.id, self.note, [NewRunEvent("run_starting", {}, self.clock.now())])
        hooks = asyncio.ensure_future(self._ask_start_hooks(record, blueprint, early))
        try:
            done, _ = await asyncio.wait({hooks}, timeout=SOON)
            if not done:
                await early.tell()
            passed = await hooks
        finally:
            if not hooks.done():
                hooks.cancel()
                await asyncio.wait({hooks})
        return evolve(passed, told=(*early.untold, *passed.told))

    async def _ask_start_hooks(self, record: RunRecord, blueprint: Blueprint, early: EarlyEvents) -> StartOutcome:
        problem = _parameter_problem(blueprint, record.parameters)
        if problem is not None:
            return StartOutcome(error=f"these are no parameters for {blueprint.name!r}: {problem}")
        parameters, passed = await self._ask_registry(record, blueprint)
        entry = blueprint.hooks.on_run_start
        if entry is None or passed.error is not None:
            return passed
        begun = hook_event(self.clock.now(), "hook_start", START, entry.type, entry.target)
        await early.add(*passed.told, begun)
        await self._tell_hook(record, begun)
        return await self._ask_blueprint_hook(record, blueprint, entry, parameters)

    async def _ask_registry(self, record: RunRecord, blueprint: Blueprint) -> tuple[dict[str, Any], StartOutcome]:
        """Ask the registry's hooks about a run. Return the parameters and the outcome."""
        parameters = dict(record.parameters)
        if self.registry is None or not self.is_heard(catalogue.RUN_START):
            return parameters, StartOutcome(parameters=parameters)
        outcome = await self.registry.emit(catalogue.RUN_START, self._payload(record, parameters=parameters))
        told = tuple(_answer_events(outcome, self.clock.now()))
        if outcome.action == "deny":
            reason = clip(outcome.reason or f"{outcome.denied_by or 'a hook'} said no", LONGEST_REASON)
            return parameters, StartOutcome(error=reason, blocked=True, told=told)
        if outcome.asks or outcome.injections:
            return parameters, StartOutcome(error=NO_APPROVER if outcome.asks else NO_CONTEXT, blocked=True, told=told)
        try:
            parameters = plain_parameters(outcome.data["parameters"])
            problem = _parameter_problem(blueprint, parameters)
        except (InvalidResult, KeyError, TypeError, ValueError) as error:
            problem = failure_of(error)
        if problem is not None:
            return parameters, StartOutcome(
                error=f"hooks of the registry made parameters that do not fit: {problem}", told=told
            )
        return parameters, StartOutcome(parameters=parameters, told=told)

    async def _ask_blueprint_hook(
        self, record: RunRecord, blueprint: Blueprint, entry: HookEntry, parameters: dict[str, Any]
    ) -> StartOutcome:
        """Ask the blueprint's own hook about a run."""
        began = monotonic()
        target = (START, entry.type, entry.target)
        try:
            given = start_input(record, parameters)
            raw = await within(entry.timeout_seconds, self.carriers.ask(entry, START, record, given))
            answer = _check_answer(as_start_answer(raw), blueprint)
        except AgentInputRefused as problem:  # a mistake in the blueprint: on_error is not for that
            answer = StartAnswer(block_reason=clip(str(problem), LONGEST_REASON))
        except Exception as problem:  # noqa: BLE001  # on_error decides about any error of a hook
            await self._tell_timeout(record, problem)
            return await self._start_failure(
                record, entry, clip(failure_of(problem), LONGEST_REASON), parameters, began
            )
        took = _elapsed_ms(began)
        if answer.block_reason is not None:
            what = hook_event(
                self.clock.now(), "hook_blocked", *target, block_reason=answer.block_reason, duration_ms=took
            )
            await self._tell_hook(record, what)
            return StartOutcome(error=answer.block_reason, blocked=True, told=(what,))
        what = hook_event(self.clock.now(), "hook_complete", *target, duration_ms=took, action="continue")
        await self._tell_hook(record, what)
        return StartOutcome(parameters=parameters if answer.parameters is None else answer.parameters, told=(what,))

    async def _start_failure(
        self, record: RunRecord, entry: HookEntry, error: str, parameters: dict[str, Any], began: float
    ) -> StartOutcome:
        """Return the outcome of a failed start hook, as `on_error` decides."""
        what = hook_event(
            self.clock.now(),
            *("hook_failed", START, entry.type, entry.target),
            error=error,
            on_error_behavior=entry.on_error,
            duration_ms=_elapsed_ms(began),
        )
        await self._tell_hook(record, what)
        if entry.on_error == "continue":
            return StartOutcome(parameters=parameters, told=(what,))
        return StartOutcome(error=f"the start hook {entry.target} failed: {error}", told=(what,))

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

    async def finish(self, record: RunRecord, entry: HookEntry) -> None:
        """Run the finish hook of a run that ended. The hook cannot change the run.

        Cancelling the call cancels the hook.
        """
        target = (FINISH, entry.type, entry.target)
        begun, began = hook_event(self.clock.now(), "hook_start", *target), monotonic()
        await self.note(record.id, (begun,))
        await self._tell_hook(record, begun)
        given = finish_input(record)
        try:
            if entry.type == "agent":  # started without waiting
                await self.carriers.agents.launch(self.carriers.order(entry, FINISH, record, given))
            else:
                as_finish_answer(await within(entry.timeout_seconds, self.carriers.ask(entry, FINISH, record, given)))
        except Exception as problem:  # noqa: BLE001  # reported, without effect on the run
            await self._tell_timeout(record, problem)
            error = clip(failure_of(problem), LONGEST_REASON)
            what = hook_event(
                self.clock.now(),
                "hook_failed",
                *target,
                error=error,
                on_error_behavior=entry.on_error,
                duration_ms=_elapsed_ms(began),
            )
            if entry.on_error != "ignore":
                report = log.error if entry.on_error == "block" else log.warning
                report("run_finish_hook_failed", run=record.id, target=entry.target, error=error)
        else:
            what = hook_event(self.clock.now(), "hook_complete", *target, duration_ms=_elapsed_ms(began))
        await self.note(record.id, (what,))
        await self._tell_hook(record, what)

    # -- reporting to the registry -------------------------------------------------------------------------------------

    async def _tell_hook(self, record: RunRecord, what: NewRunEvent) -> None:
        """Report a run hook to the observers of hooks in the registry."""
        event = CANONICAL[what.type]
        if self.registry is not None and self.registry.is_heard(event):
            body = event_body(record, what, self.clock.now())
            await self.registry.emit(event, {**body, "hook_name": body["target_name"], "tenant_id": record.tenant})

    async def _tell_timeout(self, record: RunRecord, problem: Exception) -> None:
        """Report the timeout of a hook to the registry."""
        if isinstance(problem, TooLate):
            await self._emit(catalogue.RUN_TIMEOUT, record, error=str(problem))

    async def _emit(self, event: str, record: RunRecord, **fields: Any) -> None:
        if self.registry is not None and self.registry.is_heard(event):
            await self.registry.emit(event, self._payload(record, parameters=dict(record.effective), **fields))

    def _payload(self, record: RunRecord, **fields: Any) -> dict[str, Any]:
        return {
            "session_id": record.session,
            "run_id": record.id,
            "tenant_id": record.tenant,
            "timestamp": self.clock.now().isoformat(),
            "agent_name": record.agent,
            **fields,
        }


def _answer_events(outcome: Outcome, at: datetime) -> Iterable[NewRunEvent]:
    """Yield the answers of the registry's hooks as events of the run."""
    for answer in outcome.hook_results:
        if answer.status == "disabled":
            continue
        target = (START, "registry", answer.hook_name)
        yield hook_event(at, "hook_start", *target)
        yield _answer_event(at, answer, target, outcome.total_duration_ms)


def _answer_event(at: datetime, answer: Answer, target: tuple[HookPoint, str, str], chain_ms: float) -> NewRunEvent:
    took = round(chain_ms if answer.duration_ms is None else answer.duration_ms, 3)
    if not answer.success:
        behavior = "block" if answer.denies else "continue"
        error = answer.error or answer.status
        return hook_event(at, "hook_failed", *target, error=error, on_error_behavior=behavior, duration_ms=took)
    if answer.action == "deny":
        reason = answer.result.reason or "it said no"
        return hook_event(at, "hook_blocked", *target, block_reason=reason, duration_ms=took)
    if answer.action == "ask_user":
        return hook_event(at, "hook_blocked", *target, block_reason=NO_APPROVER, duration_ms=took)
    if answer.result.injects:
        return hook_event(at, "hook_blocked", *target, block_reason=NO_CONTEXT, duration_ms=took)
    return hook_event(at, "hook_complete", *target, duration_ms=took, action="continue")


def _parameter_problem(blueprint: Blueprint, parameters: Mapping[str, Any]) -> str | None:
    """Return why the agent does not accept these parameters, or None if it does."""
    schema = blueprint.parameters_schema
    return None if schema is None else schema.problem(dict(parameters))


def _check_answer(answer: StartAnswer, blueprint: Blueprint) -> StartAnswer:
    problem = None if answer.parameters is None else _parameter_problem(blueprint, answer.parameters)
    if problem is not None:
        raise InvalidResult(f"parameters that do not fit the schema of {blueprint.name!r}: {problem}")
    return answer


def _result_of(record: RunRecord) -> dict[str, Any]:
    status = record.status if record.ended else None
    return {
        "result_text": record.result_text,
        "result_data": record.result_data,
        "status": status,
        "error": record.error,
    }


def _elapsed_ms(began: float) -> float:
    return round((monotonic() - began) * 1e3, 3)
