"""Agents, workflow steps, and all other operations with a pre and a post event, past the hooks of a session."""

from __future__ import annotations

import inspect
from copy import deepcopy
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec

from amplifier_hooks.act import Call, freeze, thaw
from amplifier_hooks.admission.admit import Permit, Verdict
from amplifier_hooks.admission.judge import problem_of
from amplifier_hooks.dispatch.middleware import OPERATIONS, HookContext, Rests, operation_of
from amplifier_hooks.errors import HookAbortError, InputNotFreezable, InvalidRegistration
from amplifier_hooks.foreign_code import without_capture
from amplifier_hooks.session.session import metadata_of, notes_of, without_empty_metadata

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_hooks.ports import Settlement
    from amplifier_hooks.session.session import Session


ENDS: Final[Mapping[Settlement, str]] = {"done": "done", "failed": "failed", "unknown": "cancelled"}
"""The record of an operation's end, by the end."""

OWN_WAY: Final[Mapping[str, str]] = {"tool": "call_tool", "model": "call_model"}
"""The methods of operations that have more steps than an `OperationCall`."""

SHARED: Final = frozenset(HookContext.__struct_fields__)
"""Fields of a context that belong to the layers, and not to the operation inside them."""


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a workflow step."""

    status: Literal["completed", "failed"]
    result: Any = None
    error: str | None = None


class OperationCall(msgspec.Struct, eq=False):
    """One operation on its way through admission, around hooks and a post event."""

    session: Session
    kind: str
    data: dict[str, Any]

    @classmethod
    def of_kind(cls, session: Session, kind: str, data: Mapping[str, Any]) -> OperationCall:
        """Return an operation of a kind that a host names, such as `memory`.

        Raises `InvalidRegistration` for a kind without around hooks, or with a method of its own.
        """
        kind = operation_of(kind)
        if kind in OWN_WAY:
            raise InvalidRegistration(f"a {kind} call has more steps than these; use {OWN_WAY[kind]}")
        return cls(session, kind, dict(data))

    async def carry_out(self, call: Callable[[dict[str, Any]], Awaitable[Any] | Any]) -> Any:
        """Admit the operation, run `call` with the data as it was decided about, and report the result or error.

        Fields that are JSON are frozen: `call` gets fresh copies of exactly what was judged, shown and approved. Other
        fields are passed by reference. Raises the errors of `call`, and `HookAbortError` when a hook denies or stops
        it. Cancelling takes back an open question, or cancels the call.
        """
        rests = Rests(OPERATIONS[self.kind].first)
        try:
            return await self._carry_out(call, rests)
        finally:
            await rests.end()

    async def _carry_out(self, call: Callable[[dict[str, Any]], Awaitable[Any] | Any], rests: Rests) -> Any:
        session, row = self.session, OPERATIONS[self.kind]
        verdict = await self._admit(rests)
        if not isinstance(verdict, Permit):
            await self._deliver(verdict)
            by, outcome = verdict.outcome.denied_by or "registry", verdict.outcome
            reasons = [outcome.reason or f"denied by {by}", *await session.quote_injections(outcome)]
            rests.why = f"{by}: {outcome.reason}"
            raise await self._record_denial(HookAbortError("\n\n".join(reasons), by, outcome.cause))
        permit = verdict
        data = {name: permit.outcome.data[name] for name in self.data} | permit.act.arguments()
        notes = notes_of(permit.outcome, row.last)
        around = self._context(data, metadata_of(notes) if "metadata" not in data else {})
        began = perf_counter()
        became: Settlement = "failed"

        async def operate() -> Any:
            nonlocal became
            given = await self._check_layers(permit, around, data)
            became = "unknown"  # from here on it may have had its effect
            with without_capture():  # as in a tool call
                value = call(given)
                return await value if inspect.isawaitable(value) else value

        try:
            await self._deliver(permit)
            began = perf_counter()
            result = await session.wrap(self.kind, lambda: around, operate, rests.layers, permit.stops)
            became = "done"
        except HookAbortError as abort:
            await self._record_denial(abort)
            raise
        except Exception as error:
            became = "failed"
            facts = {"result": None, "duration_ms": (perf_counter() - began) * 1e3, "error": problem_of(error)}
            await session.emit(row.last, {**without_empty_metadata(notes), **data, **facts, "status": "failed"})
            raise
        finally:
            spent = {"duration_ms": (perf_counter() - began) * 1e3}
            await session.admission.settle(permit, became, ENDS[became], spent)
        await session.emit(
            row.last, {**without_empty_metadata(notes), **data, "result": result, **spent, "status": "completed"}
        )
        return result

    async def _admit(self, rests: Rests) -> Verdict:
        """Return the verdict on the data as the hooks at the pre event left it."""
        session, row = self.session, OPERATIONS[self.kind]
        if session.stopped is not None:
            raise await self._record_denial(HookAbortError(session.stopped, "session", "session_cancelled"))
        fields, handles, problem = split_fields(self.data, row.handles)
        name = "/".join(str(self.data[part]) for part in row.name if self.data.get(part) is not None)
        act = session.act(row.first, name, fields)
        call = Call(id=session.new_id(), chosen=False, returns=False, rests=rests)
        with session.undecided:
            return await session.admission.admit(act, call, handles, kind=self.kind, problem=problem)

    async def _deliver(self, verdict: Verdict) -> None:
        """Inject what the hooks want the model to read, and show the observers the outcome."""
        await self.session.inject(verdict.outcome)
        notifying = self.session.start_notifying(verdict.outcome, verdict.act)
        if notifying is not None:
            await notifying

    async def _check_layers(self, permit: Permit, around: HookContext, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data for the call, as the layers left it where their context lets them change it."""
        given = {name: getattr(around, name) if name in self._fields else value for name, value in data.items()}
        try:
            frozen = freeze({name: given[name] for name in permit.act.arguments()})
        except InputNotFreezable as error:
            raise HookAbortError(str(error), "InputNotFreezable") from error
        if frozen != permit.act.input:
            denial = await self.session.admission.admit_change(permit, frozen)
            if denial is not None:
                raise HookAbortError(denial.reason or "denied", denial.denied_by or "registry", denial.cause)
        return {**given, **cast("dict[str, Any]", thaw(frozen))}

    async def _record_denial(self, abort: HookAbortError) -> HookAbortError:
        facts = {"by": abort.hook, "reason": abort.reason, "cause": abort.cause}
        await self.session.recorder.note(f"{self.kind}.denied", facts, durable=True)
        return abort

    @property
    def _fields(self) -> frozenset[str]:
        """The fields of the data that the layers see, and may replace where their context lets them."""
        fields = set(OPERATIONS[self.kind].context.__struct_fields__)
        return frozenset(fields.difference(SHARED).intersection(self.data))

    def _context(self, data: Mapping[str, Any], metadata: dict[str, Any]) -> HookContext:
        row = OPERATIONS[self.kind]
        known = {name: data[name] for name in self._fields}
        return row.context(event_type=row.first, tenant_id=self.session.tenant, metadata=metadata, **known)


def split_fields(data: Mapping[str, Any], declared: frozenset[str]) -> tuple[bytes, dict[str, Any], str]:
    """Return the JSON fields as frozen bytes, the other fields, and the problem with an undeclared one of those."""
    frozen: dict[str, Any] = {}
    handles: dict[str, Any] = {}
    problem = ""
    for name, value in data.items():
        if name in declared:
            handles[name] = value
            continue
        try:
            freeze({name: value})
        except InputNotFreezable as error:
            handles[name] = value
            problem = problem or str(error)
        else:
            frozen[name] = value
    return freeze(frozen), handles, problem


def snapshot(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the state as it is now, as deep as it can be copied."""
    try:
        return deepcopy(dict(state))
    except Exception:  # noqa: BLE001  # a lock or a connection refuses to be copied
        return dict(state)
