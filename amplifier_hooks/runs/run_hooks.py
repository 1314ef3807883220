"""The hooks before and after a run: their order, the effect of their answers, and the events that report them.

At the start the registry's hooks come first, system before tenant, and then the blueprint's own, in a registry of their
own. If the blueprint's hook changes the parameters, the registry's gates look again. The parameters are checked against
the agent's schema before all of them, after the registry's, and after the blueprint's; the runner gets exactly the
canonical JSON that was checked last.

`RunHooks` needs no queue: `start` and `finish` are for programs that have an engine of their own. `BlueprintHook` is a
hook of a blueprint as a handler:

python   `handler_ref` is called with the event and the hook's input; plain functions run in their own threads
http     the input is the body, the answer a JSON object; the request has one id for each run and hook
agent    the input is the agent's parameters
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

from attrs import field, frozen
from msgspec.structs import replace

from amplifier_hooks import events as catalogue
from amplifier_hooks.act import freeze, thaw
from amplifier_hooks.clock import SystemClock
from amplifier_hooks.definitions.kinds.agent import AgentHook, AgentInputRefused, AgentOrder
from amplifier_hooks.definitions.kinds.event_codec import LARGEST_PAYLOAD, LONGEST_REASON, decode_answer, encode_message
from amplifier_hooks.definitions.kinds.python import build_hook
from amplifier_hooks.definitions.kinds.webhook import PUBLIC, AllowedUrls, WebhookHook
from amplifier_hooks.dispatch.merge import CAUSES, OBJECTIONS
from amplifier_hooks.errors import HookError, HookUnavailable, InputNotFreezable, InvalidResult
from amplifier_hooks.foreign_code import DaemonPool
from amplifier_hooks.logs import get_logger
from amplifier_hooks.registry.registration import awaits
from amplifier_hooks.registry.registry import HookRegistry
from amplifier_hooks.result import CONTINUE, HookResult, as_result
from amplifier_hooks.runs.blueprint import OUTDATED, OutdatedEntry
from amplifier_hooks.runs.run_states import Blocked, HookPoint, RunEnding, RunEvent, RunRecord
from amplifier_hooks.text.escape import clip, visible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from amplifier_hooks.definitions.kinds.agent import AgentRuns
    from amplifier_hooks.ports import Clock
    from amplifier_hooks.result import Answer, Outcome
    from amplifier_hooks.runs.blueprint import Agents, Blueprint, HookEntry
    from amplifier_hooks.text.json_schema import Schema

START: Final[HookPoint] = "on_run_start"
FINISH: Final[HookPoint] = "on_run_finish"
POINTS: Final = {START: catalogue.RUN_START, FINISH: catalogue.RUN_FINISH}
"""The two points of a blueprint's hooks, and their events."""
EXACT: Final = {START: ("parameters",), FINISH: ()}
"""Fields of the events whose values hooks get and give byte for byte."""
THREADS: Final = 8
FAILURES: Final = frozenset(CAUSES.values()) - {"denied_by_hook"}
"""Causes of a denial by a hook that failed."""

KEPT_BACK: Final = ("tenant_id", "timestamp")
"""Fields of the event that a blueprint's hook does not get."""
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

NO_APPROVER: Final = "it asks a question, and before a run there is no approver to answer it"
NO_CONTEXT: Final = "it injects text, and before a run there is no context for it; change the parameters instead"
ONLY_PARAMETERS: Final = (
    "it changes something else than the parameters; return all of them, as modify({'parameters': …})"
)
FORMS: Final = "return {'action': 'continue', 'parameters': …} or {'action': 'block', 'block_reason': …}"
NO_REASON: Final = "it said no and gave no reason"

log = get_logger(__name__)


async def _drop(run: str, told: Sequence[RunEvent]) -> None:
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
    find: Callable[[str], Any] = field(default=partial(build_hook, config={}))
    """Function that finds the callable of a `handler_ref`. It raises `HookUnavailable`."""
    reach: AllowedUrls = PUBLIC
    """The addresses that http hooks may reach."""
    variables: Mapping[str, str] = field(factory=dict, repr=False)
    """Values of `${VAR}` in headers."""
    note: Callable[[str, Sequence[RunEvent]], Awaitable[object]] = _drop
    clock: Clock = field(factory=SystemClock)
    threads: DaemonPool = field(factory=lambda: DaemonPool(THREADS, "amplifier-hooks-runs"), repr=False)
    _registries: dict[str, tuple[Blueprint, HookRegistry]] = field(factory=dict, init=False)

    def problems(self, agents: Agents) -> list[str]:
        """Return why hooks of these agents would fail at every run.

        An agent, a function, an address, a header or a variable is wrong.
        """
        found: list[str] = []
        for blueprint in agents:
            for point, entry in blueprint.entries.items():
                try:
                    if entry.agent_name is not None:
                        agents.get(entry.agent_name)
                    BlueprintHook(self, blueprint, point, entry).load()
                except HookError as problem:
                    found.append(f"{blueprint.name}: hooks.{point}: {problem}")
        return found

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
        begun = await self.ask_start_hooks(record, blueprint, [])
        if isinstance(begun, Blocked):
            await self.tell_end(replace(record, stage="failed", error=begun.reason))
        return begun

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

    async def ask_start_hooks(
        self, record: RunRecord, blueprint: Blueprint, told: list[RunEvent]
    ) -> dict[str, Any] | Blocked:
        """Ask the start hooks if a run may go on; return the parameters with which it does, or why it does not.

        `told` gets the events. The begin of a service or an agent is stored at once, with all before it.
        Cancelling the call cancels the hook that is running.
        """
        payload, shared = self._payload(record), self.registry
        before = shared.in_force(catalogue.RUN_START)
        try:
            given = thaw(freeze_parameters(blueprint, record.parameters))
        except InvalidResult as problem:
            return Blocked(f"these are no parameters for {blueprint.name!r}: {problem}", failed=True)
        first = await shared.emit(catalogue.RUN_START, {**payload, "parameters": given}, exact=EXACT[START])
        told += self._registry_events(record, first.hook_results, first)
        if (blocked := _blocked_by(first)) is not None:
            return blocked
        try:
            data = freeze_parameters(blueprint, first.data["parameters"])
        except InvalidResult as problem:
            return Blocked(f"hooks of the registry made parameters that do not fit: {problem}", failed=True)
        if START not in blueprint.entries:
            return cast("dict[str, Any]", thaw(data))
        own = await self._ask_own_hook(record, blueprint, START, {**payload, "parameters": thaw(data)}, told)
        if (blocked := _blocked_by(own)) is not None:
            return blocked
        blocked, final = None, freeze(own.data["parameters"])
        if final != data or shared.in_force(catalogue.RUN_START) is not before:
            found = await shared.look_again(first, {**first.data, "parameters": thaw(final)}, before, EXACT[START])
            objections = [one for one in found.answers if one.recheck and one.action in OBJECTIONS]
            told += self._registry_events(record, objections, found)
            blocked = _blocked_by(found)
        return blocked or cast("dict[str, Any]", thaw(final))

    # -- the finish ----------------------------------------------------------------------------------------------------

    async def tell_end(self, record: RunRecord) -> None:
        """Report the end of a run to the registry, once the end is stored."""
        if record.handed:
            await self.tell(catalogue.RUN_FINISH, record, **record.outcome)
        if record.status == "failed":
            await self.tell(catalogue.RUN_ERROR, record, error=record.error or "failed")

    async def ask_finish_hook(self, record: RunRecord, blueprint: Blueprint) -> None:
        """Run the finish hook of a run that ended, if the blueprint has one. The hook cannot change the run.

        Cancelling the call cancels the hook.
        """
        entry, told = blueprint.entries.get(FINISH), list[RunEvent]()
        if entry is None:
            return
        await self._ask_own_hook(record, blueprint, FINISH, self._payload(record, **record.outcome), told)
        await self.note(record.id, told)
        if told[-1]["event_type"] == "hook_failed" and entry.on_error != "ignore":
            report = log.error if entry.on_error == "block" else log.warning
            report("run_finish_hook_failed", run=record.id, target=entry.target, error=told[-1]["error"])

    # -- the hook of a blueprint ---------------------------------------------------------------------------------------

    async def _ask_own_hook(
        self, record: RunRecord, blueprint: Blueprint, point: HookPoint, payload: Any, told: list[RunEvent]
    ) -> Outcome:
        """Ask a blueprint's hook, and report its begin and its end to the registry; `told` gets both.

        The begin is stored at once, with all that is in `told`, unless a function at the start is about to answer.
        """
        entry = blueprint.entries[point]
        target = {"hook_type": point, "target_type": entry.type, "target_name": entry.target}
        begun = record.event(self.clock.now(), "hook_start", **target)
        told.append(begun)
        if point == FINISH or entry.type != "python":
            await self.note(record.id, tuple(told))
            told.clear()
        await self._tell_hook(record, begun)
        outcome = await self.registry_of(blueprint).emit(POINTS[point], payload, exact=EXACT[point])
        (answer,) = outcome.hook_results
        told.append(self._end_of_hook(record, target, answer, outcome.total_duration_ms, entry.on_error))
        await self._tell_hook(record, told[-1])
        if answer.status == "timeout":
            await self.tell(catalogue.RUN_TIMEOUT, record, error=answer.error)
        return outcome

    def registry_of(self, blueprint: Blueprint) -> HookRegistry:
        """Return the registry of a blueprint's own hooks, which lasts until the blueprint is another one.

        A start hook with `on_error` `block` is a gate.
        """
        known = self._registries.get(blueprint.name)
        if known is None or known[0] != blueprint:
            registry = HookRegistry()
            for point, entry in blueprint.entries.items():
                enter = registry.gate if point == START and entry.on_error == "block" else registry.on
                handler = BlueprintHook(self, blueprint, point, entry)
                enter(POINTS[point], handler, name=entry.target, timeout=entry.timeout_seconds)
            known = self._registries[blueprint.name] = (blueprint, registry)
        return known[1]

    # -- events --------------------------------------------------------------------------------------------------------

    def _registry_events(self, record: RunRecord, answers: Iterable[Answer], outcome: Outcome) -> Iterator[RunEvent]:
        """Yield the answers of the registry's hooks as events of the run."""
        for answer in answers:
            if answer.status != "disabled":
                target = {"hook_type": START, "target_type": "registry", "target_name": answer.hook_name}
                yield record.event(self.clock.now(), "hook_start", **target)
                yield self._end_of_hook(record, target, answer, outcome.total_duration_ms, "continue")

    def _end_of_hook(
        self, record: RunRecord, target: Mapping[str, str], answer: Answer, chain_ms: float, on_error: str
    ) -> RunEvent:
        """Return the event of a hook that has answered or failed."""
        took = chain_ms if answer.duration_ms is None else answer.duration_ms
        fields: dict[str, Any] = {**target, "duration_ms": round(took, 3)}
        if not answer.success:
            fields["error"] = clip(answer.error or answer.status, LONGEST_REASON)
            fields["on_error_behavior"] = "block" if answer.denies else on_error
            return record.event(self.clock.now(), "hook_failed", **fields)
        if (reason := objection(answer.result)) is not None:
            return record.event(self.clock.now(), "hook_blocked", **fields, block_reason=reason)
        more = {"action": "continue"} if target["hook_type"] == START else {}
        return record.event(self.clock.now(), "hook_complete", **fields, **more)

    async def _tell_hook(self, record: RunRecord, told: RunEvent) -> None:
        """Report a run hook to the observers of hooks in the registry."""
        event = told["event_type"].replace("_", ":")  # hook:start and so on
        if self.registry.is_heard(event):
            more = {"hook_name": told["target_name"], "tenant_id": record.tenant}
            await self.registry.emit(event, {**told, **more})

    async def tell(self, event: str, record: RunRecord, **fields: Any) -> None:
        """Report an event of a run to the registry."""
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


def _blocked_by(outcome: Outcome) -> Blocked | None:
    """Return why a run does not start, or None if it does. It is blocked by a denial, and failed by a failure."""
    if outcome.denied:
        reason = clip(outcome.reason or NO_REASON, LONGEST_REASON)
        if outcome.cause in FAILURES:
            return Blocked(f"the start hook {outcome.denied_by} failed: {reason}", failed=True)
        return Blocked(reason)
    if outcome.asks or outcome.injections:
        return Blocked(NO_APPROVER if outcome.asks else NO_CONTEXT)
    return None


# -- hooks of blueprints -----------------------------------------------------------------------------------------------


def child_id(parent: str, key: str) -> str:
    """Return the id of the run that a hook of a run starts. It is the same each time the hook is called."""
    return f"run_{sha256(f'{parent}/{key}'.encode()).hexdigest()[:32]}"


@frozen(eq=False)
class BlueprintHook:
    """One hook of a blueprint as a handler. `kit` has the agents, functions, URLs and variables that it needs."""

    kit: RunHooks
    blueprint: Blueprint
    point: HookPoint
    entry: HookEntry
    _loaded: list[Any] = field(factory=list, init=False)
    """The function or the service, once it was needed."""

    async def __call__(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Call the function, service or agent, and return its checked answer. Raise `HookError`s, and any error."""
        given = {name: value for name, value in data.items() if name not in KEPT_BACK}
        try:
            answer = await self._ask(event, given, data["tenant_id"])
        except AgentInputRefused as problem:  # a mistake in the blueprint: on_error is not for that
            if self.point == "on_run_finish":
                raise
            return HookResult.deny(clip(str(problem), LONGEST_REASON))
        if self.point == "on_run_start":
            return as_start_answer(answer, self.blueprint)
        if answer is not None and (not isinstance(answer, Mapping) or answer):
            raise InvalidResult("an answer of a finish hook: return {}; it can change nothing any more")
        return CONTINUE

    async def _ask(self, event: str, given: dict[str, Any], tenant: str) -> Any:
        entry, agents = self.entry, self.kit.agents
        if isinstance(entry, OutdatedEntry):
            raise HookUnavailable(OUTDATED)
        key = f"{self.point} {entry.url or entry.target}"  # an override may have named another target, or another query
        if entry.type == "agent":
            if agents is None:
                raise HookUnavailable(f"agent {entry.target!r} cannot be started: give RunHooks(agents=…)")
            parent = given["run_id"]
            order = AgentOrder(agent=entry.target, parameters=given, tenant=tenant, parent=parent, key=key)
            if self.point == "on_run_finish":  # started without waiting
                return await agents.launch(order) and None
            return await AgentHook(agent_name=order.agent, runs=agents).ask(order)
        if not self._loaded:  # loading may import modules, and this loop is busy
            self._loaded.append(await self.kit.threads.run(self.load))
        target = self._loaded[0]
        if entry.type == "http":
            request_id = f"msg_{child_id(given['run_id'], key).removeprefix('run_')}"
            return decode_answer(await target.exchange(request_id, encode_message(given), tenant))
        answer = target(event, given) if awaits(target) else await self.kit.threads.run(target, event, given)
        return await answer if inspect.isawaitable(answer) else answer

    def load(self) -> Any:
        """Return the function or the service that the hook asks; None for an agent. Raise `HookError` if it fails."""
        entry, kit = self.entry, self.kit
        if entry.type == "agent":
            return None
        if entry.type == "http":
            return WebhookHook(
                url=entry.url or "",
                method=entry.method,
                headers=self._headers(),
                reach=kit.reach,
                retry_within=entry.timeout_seconds,
            )
        function = kit.find(entry.target)
        if not callable(function):
            raise HookUnavailable(f"{entry.target!r} is a {type(function).__name__}, which cannot be called")
        return function

    def _headers(self) -> dict[str, str]:
        """Return the headers with the values of their variables. Raise `HookUnavailable` with all unknown ones."""
        headers = {name: value for name, value in self.entry.headers.items() if name.lower() != "content-type"}
        named = {found for value in headers.values() for found in VARIABLE.findall(value)}
        if unknown := sorted(named.difference(self.kit.variables)):
            there = ", ".join(f"${{{name}}}" for name in unknown)
            raise HookUnavailable(f"{there} stands in its headers, and there is no such variable here")
        return {
            name: VARIABLE.sub(lambda found: self.kit.variables[found[1]], value) for name, value in headers.items()
        }


# -- answers -----------------------------------------------------------------------------------------------------------


def objection(result: HookResult) -> str | None:
    """Return why an answer keeps a run from starting; None if it does not."""
    if result.action == "deny":
        return clip(result.reason or NO_REASON, LONGEST_REASON)
    if result.action == "ask_user":
        return NO_APPROVER
    return NO_CONTEXT if result.injects else None


def as_start_answer(given: object, blueprint: Blueprint) -> HookResult:
    """Read a start hook's answer: one of the two objects of a blueprint, or a `HookResult`.

    An answer that denies, asks or injects becomes a denial, in either form. Raise `InvalidResult` for every other form,
    and for parameters that are no JSON or do not fit the agent's schema; nothing is guessed.
    """
    fields = dict(given) if isinstance(given, Mapping) else {}
    action = fields.get("action", getattr(given, "action", None))
    if action in ("block", "deny"):
        reason = fields.get("block_reason", fields.get("reason", getattr(given, "reason", None)))
        return HookResult.deny(clip(reason, LONGEST_REASON) if isinstance(reason, str) and reason.strip() else None)
    if action in ("ask_user", "inject_context"):
        return HookResult.deny(NO_APPROVER if action == "ask_user" else NO_CONTEXT)
    if action is None or (fields and action not in ("continue", "modify")):
        flaw = f"with action {visible(repr(action))[:60]}" if fields else f"that is a {type(given).__name__}"
        raise InvalidResult(f"an answer {flaw}: {FORMS}")
    if fields and action == "continue":
        if set(fields) != {"action", "parameters"} or not isinstance(fields["parameters"], Mapping):
            raise InvalidResult("continue brings parameters, all of them as one object, and nothing else")
        given = HookResult.modify({"parameters": fields["parameters"]})
    result = as_result(given)
    if result.injects:
        return HookResult.deny(NO_CONTEXT)
    if result.action != "modify":
        return result
    data = result.data or {}
    if set(data) != {"parameters"} or not isinstance(data["parameters"], Mapping):
        return HookResult.deny(ONLY_PARAMETERS)
    try:
        return HookResult.modify({"parameters": thaw(freeze_parameters(blueprint, data["parameters"]))})
    except InvalidResult as problem:
        raise InvalidResult(f"parameters that do not fit {blueprint.name!r}: {problem}") from None


def freeze_parameters(blueprint: Blueprint, given: Mapping[str, Any]) -> bytes:
    """Return the parameters of a run as canonical JSON. Raise `InvalidResult` if the agent does not accept them."""
    return freeze_fitting(dict(given), blueprint.parameters_schema)


def freeze_fitting(value: Any, schema: Schema | None) -> bytes:
    """Return a value as canonical JSON. Raise `InvalidResult` if it is none, too large, or against the schema."""
    try:
        data = freeze(value)
    except InputNotFreezable as problem:
        raise InvalidResult(f"no plain JSON: {problem.problem}") from None
    if len(data) > LARGEST_PAYLOAD:
        raise InvalidResult(f"{len(data):,} bytes; at most {LARGEST_PAYLOAD:,} are kept")
    flaw = None if schema is None else schema.problem(thaw(data))
    if flaw is not None:
        raise InvalidResult(flaw)
    return data
