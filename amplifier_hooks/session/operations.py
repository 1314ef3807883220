"""Agents, workflow steps, and all other operations with a pre and a post event, past the hooks of a session."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from copy import deepcopy
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs
from attrs import define, frozen

from amplifier_hooks.dispatch.captured_output import without_capture
from amplifier_hooks.dispatch.middleware import OPERATIONS, HookContext, operation_of
from amplifier_hooks.errors import HookAbortError, InvalidRegistration
from amplifier_hooks.session.session import problem_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_hooks.result import Outcome
    from amplifier_hooks.session.session import Session


OWN_WAY: Final[Mapping[str, str]] = {"tool": "call_tool", "model": "call_model"}
"""The methods of operations that have more steps than an `OperationCall`."""

SHARED: Final = frozenset(field.name for field in attrs.fields(HookContext))
"""Fields of a context that belong to the layers, and not to the operation inside them."""


@frozen(kw_only=True)
class StepOutcome:
    """The end of a workflow step."""

    status: Literal["completed", "failed"]
    result: Any = None
    error: str | None = None


@define(eq=False)
class OperationCall:
    """One operation on its way through a pre event, around hooks and a post event."""

    session: Session
    kind: str
    data: dict[str, Any]

    async def carry_out(self, call: Callable[[dict[str, Any]], Awaitable[Any] | Any]) -> Any:
        """Ask the hooks, run `call` with the data as they left it, and report the result, also an error.

        Raises the errors of `call`, and `HookAbortError` when a hook denies or stops it. Cancelling cancels the call.
        """
        session, row = self.session, OPERATIONS[self.kind]
        data = await self._decide()
        around = self._context(data)

        async def operate() -> Any:
            given = {name: getattr(around, name) if name in self._fields else data[name] for name in data}
            with without_capture():  # as in a tool call
                value = call(given)
                return await value if inspect.isawaitable(value) else value

        began = perf_counter()
        try:
            result = await session.wrap(self.kind, lambda: around, operate)
        except HookAbortError as abort:
            await self._record_denial(abort)
            raise
        except Exception as error:
            facts = {"result": None, "duration_ms": (perf_counter() - began) * 1e3, "error": problem_of(error)}
            await session.emit(row.last, {**data, **facts, "status": "failed"})
            raise
        spent = (perf_counter() - began) * 1e3
        await session.emit(row.last, {**data, "result": result, "duration_ms": spent, "status": "completed"})
        return result

    async def _decide(self) -> dict[str, Any]:
        """Return the data as the hooks at the pre event left it."""
        session = self.session
        if session.stopped is not None:
            raise await self._record_denial(HookAbortError(session.stopped, "session"))
        outcome = await session.emit(OPERATIONS[self.kind].first, self.data)
        if outcome.denied:
            by = outcome.denied_by or "registry"
            said = [outcome.reason or f"denied by {by}", *await session.quote_injections(outcome)]
            raise await self._record_denial(HookAbortError("\n\n".join(said), by))
        return await self._apply_changes(outcome)

    async def _apply_changes(self, outcome: Outcome) -> dict[str, Any]:
        data = {name: outcome.data[name] for name in self.data}
        for name, value in data.items():
            if isinstance(self.data[name], Mapping) and not isinstance(value, Mapping):
                problem = f"a hook replaced {name} by something of type {type(value).__name__}"
                raise await self._record_denial(HookAbortError(problem, "session"))
        return data

    async def _record_denial(self, abort: HookAbortError) -> HookAbortError:
        facts = {"by": abort.hook, "reason": abort.reason}
        await self.session.recorder.note(f"{self.kind}.denied", facts, durable=True)
        return abort

    @property
    def _fields(self) -> frozenset[str]:
        """The fields of the data that the layers see, and may replace where their context lets them."""
        fields = {field.name for field in attrs.fields(OPERATIONS[self.kind].context)}
        return frozenset(fields.difference(SHARED).intersection(self.data))

    def _context(self, data: Mapping[str, Any]) -> HookContext:
        row = OPERATIONS[self.kind]
        known = {name: data[name] for name in self._fields}
        return row.context(event_type=row.first, tenant_id=self.session.tenant, **known)


async def invoke_agent(
    session: Session,
    name: str,
    inputs: Mapping[str, Any],
    call: Callable[[dict[str, Any], str | None], Awaitable[Any] | Any],
    *,
    definition: Any = None,
    system_prompt: str | None = None,
    model: str | None = None,
) -> Any:
    """Invoke an agent with the inputs and the system prompt that the hooks left."""
    data = {
        "agent_name": name,
        "inputs": dict(inputs),
        "system_prompt": system_prompt,
        "agent_definition": definition,
        "model": model,
    }
    return await OperationCall(session, "agent", data).carry_out(
        lambda data: call(dict(data["inputs"]), data["system_prompt"])
    )


async def run_step(
    session: Session,
    workflow: str,
    step_id: str,
    inputs: Mapping[str, Any],
    call: Callable[[dict[str, Any]], Awaitable[Any] | Any],
    *,
    action: str | None = None,
    state: Mapping[str, Any] | None = None,
) -> StepOutcome:
    """Run a workflow step, its retries inside `call`. A step that is denied or stopped has failed."""
    data = {
        "workflow_name": workflow,
        "step_id": step_id,
        "step_action": action,
        "inputs": dict(inputs),
        "state": snapshot(state or {}),
    }
    try:
        result = await OperationCall(session, "workflow", data).carry_out(lambda data: call(dict(data["inputs"])))
    except HookAbortError as abort:
        return StepOutcome(status="failed", error=f"Hook aborted: {abort.reason}")
    return StepOutcome(status="completed", result=result)


async def operate(
    session: Session,
    kind: str,
    data: Mapping[str, Any],
    call: Callable[[dict[str, Any]], Awaitable[Any] | Any],
) -> Any:
    """Run any other operation with around hooks, such as `memory`, with its pre and post events.

    Raises `InvalidRegistration` for a kind without around hooks, or with a method of its own.
    """
    kind = operation_of(kind)
    if kind in OWN_WAY:
        raise InvalidRegistration(f"a {kind} call has more steps than these; use {OWN_WAY[kind]}")
    return await OperationCall(session, kind, dict(data)).carry_out(call)


def snapshot(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the state as it is now, as deep as it can be copied."""
    try:
        return deepcopy(dict(state))
    except Exception:  # noqa: BLE001  # a lock or a connection refuses to be copied
        return dict(state)
