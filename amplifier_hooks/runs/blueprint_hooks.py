"""Hooks of blueprints as handlers, and the meaning of their answers.

python   `handler_ref` is called with the event and the hook's input; plain functions run in their own threads
http     the input is the body, the answer a JSON object; the request has one id for each run and hook
agent    the input is the agent's parameters
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from attrs import field, frozen

from amplifier_hooks.act import freeze, thaw
from amplifier_hooks.definitions.kinds.agent import AgentHook, AgentInputRefused, AgentOrder
from amplifier_hooks.definitions.kinds.event_codec import LARGEST_PAYLOAD, LONGEST_REASON, decode_answer, encode_message
from amplifier_hooks.definitions.kinds.webhook import WebhookHook
from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.errors import HookError, HookUnavailable, InputNotFreezable, InvalidResult
from amplifier_hooks.registry.registration import awaits
from amplifier_hooks.result import CONTINUE, HookResult, as_result
from amplifier_hooks.runs.overrides import OUTDATED, OutdatedEntry
from amplifier_hooks.text.escape import clip, visible

if TYPE_CHECKING:
    from amplifier_hooks.runs.blueprint import Blueprint, HookEntry
    from amplifier_hooks.runs.run_hooks import RunHooks
    from amplifier_hooks.runs.run_states import HookPoint
    from amplifier_hooks.text.json_schema import Schema


KEPT_BACK: Final = ("tenant_id", "timestamp")
"""Fields of the event that a blueprint's hook does not get."""
JSON_TYPE: Final = "content-type"
"""A header that is sent with every request; a blueprint may name it with the value that it always has."""
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

NO_APPROVER: Final = "it asks a question, and before a run there is no approver to answer it"
NO_CONTEXT: Final = "it injects text, and before a run there is no context for it; change the parameters instead"
ONLY_PARAMETERS: Final = (
    "it changes something else than the parameters; return all of them, as modify({'parameters': …})"
)
FORMS: Final = "return {'action': 'continue', 'parameters': …} or {'action': 'block', 'block_reason': …}"
NO_REASON: Final = "it said no and gave no reason"
IMPOSSIBLE: Final[Mapping[object, str]] = {"ask_user": NO_APPROVER, "inject_context": NO_CONTEXT}
"""Answers that a run cannot carry out, and the reasons."""


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
        try:
            function = kit.find(entry.target)
        except HookError:
            raise
        except Exception as problem:
            raise HookUnavailable(f"{entry.target!r} cannot be loaded: {describe(problem)}") from problem
        if not callable(function):
            raise HookUnavailable(f"{entry.target!r} is a {type(function).__name__}, which cannot be called")
        return function

    def _headers(self) -> dict[str, str]:
        """Return the headers with the values of their variables. Raise `HookUnavailable` with all unknown ones."""
        headers = {name: value for name, value in self.entry.headers.items() if name.lower() != JSON_TYPE}
        named = {found for value in headers.values() for found in VARIABLE.findall(value)}
        if unknown := sorted(named.difference(self.kit.variables)):
            there = ", ".join(f"${{{name}}}" for name in unknown)
            raise HookUnavailable(f"{there} stands in its headers, and there is no such variable here")
        return {
            name: VARIABLE.sub(lambda found: self.kit.variables[found[1]], value) for name, value in headers.items()
        }


# -- answers -----------------------------------------------------------------------------------------------------------


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
    if isinstance(action, str) and action in IMPOSSIBLE:
        return HookResult.deny(IMPOSSIBLE[action])
    if action is None and not fields:
        raise InvalidResult(f"an answer that is a {type(given).__name__}: {FORMS}")
    result = _going_on(fields, action) if fields and action != "modify" else as_result(given)
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


def _going_on(fields: Mapping[str, Any], action: object) -> HookResult:
    """Return the answer in the object with which a blueprint's hook lets a run go on. Raise `InvalidResult`."""
    if action != "continue":
        raise InvalidResult(f"an answer with action {visible(repr(action))[:60]}: it is 'continue' or 'block'")
    if odd := sorted(str(name) for name in fields.keys() - {"action", "parameters"}):
        raise InvalidResult(f"continue with {visible(odd[0])[:60]!r}: it has action and parameters, no more")
    if not isinstance(fields.get("parameters"), Mapping):
        raise InvalidResult("continue without parameters: return them all, changed or not, as one object")
    return HookResult.modify({"parameters": fields["parameters"]})


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
