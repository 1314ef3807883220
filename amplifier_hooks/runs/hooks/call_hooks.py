"""Handlers for the hooks of blueprints: a Python function, a web service, an agent.

python   `handler_ref` is called with the event and the hook's input; plain functions run in their own threads
http     the input is the body, the answer a JSON object; the request has one id for each run and hook
agent    the input is the agent's parameters
"""

from __future__ import annotations

import inspect
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, get_args

from attrs import field, frozen

from amplifier_hooks import events
from amplifier_hooks.definitions.kinds.agent import AgentHook, AgentInputRefused, AgentOrder, AgentRuns
from amplifier_hooks.definitions.kinds.allowed_urls import PUBLIC, AllowedUrls
from amplifier_hooks.definitions.kinds.event_codec import LONGEST_REASON, decode_answer, encode_message
from amplifier_hooks.definitions.kinds.python import build_hook
from amplifier_hooks.definitions.kinds.webhook import WebhookHook
from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.errors import HookError, HookUnavailable
from amplifier_hooks.registry.registry import HookRegistry
from amplifier_hooks.result import CONTINUE, HookResult
from amplifier_hooks.runs.hooks.hook_answers import as_finish_answer, as_start_answer
from amplifier_hooks.runs.overrides import OUTDATED, OutdatedEntry
from amplifier_hooks.runs.run_states import HookPoint
from amplifier_hooks.text.escape import clip
from amplifier_hooks.threads import DaemonPool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amplifier_hooks.runs.blueprint import Blueprint, HookEntry


THREADS: Final = 8
POINTS: Final[tuple[HookPoint, ...]] = get_args(HookPoint)
KEPT_BACK: Final = ("tenant_id", "timestamp")
"""Fields of the event that a blueprint's hook does not get."""
JSON_TYPE: Final = "content-type"
"""A header that is sent with every request; a blueprint may name it with the value that it always has."""
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def child_id(parent: str, key: str) -> str:
    """Return the id of the run that a hook of a run starts. It is the same each time the hook is called."""
    return f"run_{sha256(f'{parent}/{key}'.encode()).hexdigest()[:32]}"


def find_function(name: str) -> Any:
    """Return the function that a `handler_ref` names; for a class, an instance. Raise `HookUnavailable`."""
    return build_hook(name, {})


@frozen(kw_only=True)
class HookKit:
    """The agents, functions, URLs and variables that hooks of blueprints need."""

    agents: AgentRuns | None = None
    """The way to start agents; without one, hooks of the kind agent fail."""
    find: Callable[[str], Any] = find_function
    """Function that finds the callable of a `handler_ref`. It raises `HookUnavailable`."""
    reach: AllowedUrls = PUBLIC
    variables: Mapping[str, str] = field(factory=dict, repr=False)
    """Values of `${VAR}` in headers."""
    threads: DaemonPool = field(factory=lambda: DaemonPool(THREADS, "amplifier-hooks-runs"), repr=False)

    def register(self, blueprint: Blueprint) -> HookRegistry:
        """Return a registry with the hooks of a blueprint: a gate where `on_error` is `block`."""
        registry = HookRegistry()
        start, finish = blueprint.hooks.on_run_start, blueprint.hooks.on_run_finish
        if start is not None:
            enter = registry.gate if start.on_error == "block" else registry.on
            handler = BlueprintHook(self, blueprint, "on_run_start", start)
            enter(events.RUN_START, handler, name=start.target, timeout=start.timeout_seconds)
        if finish is not None:
            handler = BlueprintHook(self, blueprint, "on_run_finish", finish)
            registry.on(events.RUN_FINISH, handler, name=finish.target, timeout=finish.timeout_seconds)
        return registry

    def problems(self, blueprint: Blueprint) -> list[str]:
        """Return why hooks of a blueprint would fail: a function, an address, a header or a variable that is wrong."""
        found: list[str] = []
        for point in POINTS:
            entry: HookEntry | None = getattr(blueprint.hooks, point)
            if entry is not None and entry.type != "agent":
                problems = BlueprintHook(self, blueprint, point, entry).problems()
                found += [f"{blueprint.name}: hooks.{point}: {problem}" for problem in problems]
        return found

    def check(self, blueprint: Blueprint, point: HookPoint) -> None:
        """Raise the `HookError` with which a hook of a blueprint would fail, if it is no agent."""
        entry: HookEntry | None = getattr(blueprint.hooks, point)
        if entry is not None and entry.type != "agent":
            BlueprintHook(self, blueprint, point, entry).load()

    def fill_variables(self, text: str) -> str:
        """Return a header with the values of its variables. Raise `HookUnavailable` for an unknown one."""

        def value(found: re.Match[str]) -> str:
            name = found.group(1)
            if name not in self.variables:
                raise HookUnavailable(f"${{{name}}} stands in its headers, and there is no such variable here")
            return self.variables[name]

        return VARIABLE.sub(value, text)


@frozen(eq=False)
class BlueprintHook:
    """One hook of a blueprint as a handler."""

    kit: HookKit
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
        as_finish_answer(answer)
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
        if inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(type(target).__call__):
            return await target(event, given)
        answer = await self.kit.threads.run(target, event, given)
        return await answer if inspect.isawaitable(answer) else answer

    def problems(self) -> list[str]:
        """Return every reason why the hook could not be asked."""
        found: list[str] = []
        headers: dict[str, str] = {}
        for name, value in self.entry.headers.items() if self.entry.type == "http" else ():
            try:
                headers[name] = self.kit.fill_variables(value)
            except HookError as problem:
                found.append(str(problem))
        try:
            self._service(headers) if found else self.load()
        except HookError as problem:
            found.append(str(problem))
        return found

    def load(self) -> Any:
        """Return the function or the service that the hook asks. Raise `HookError` if it cannot be asked."""
        entry, kit = self.entry, self.kit
        if entry.type == "http":
            return self._service({name: kit.fill_variables(value) for name, value in entry.headers.items()})
        try:
            function = kit.find(entry.target)
        except HookError:
            raise
        except Exception as problem:
            raise HookUnavailable(f"{entry.target!r} cannot be loaded: {describe(problem)}") from problem
        if not callable(function):
            raise HookUnavailable(f"{entry.target!r} is a {type(function).__name__}, which cannot be called")
        return function

    def _service(self, headers: Mapping[str, str]) -> WebhookHook:
        """Return the service with these headers. Raise `HookError` for an address or a header that cannot be used."""
        entry = self.entry
        return WebhookHook(
            url=entry.url or "",
            method=entry.method,
            headers={name: value for name, value in headers.items() if name.lower() != JSON_TYPE},
            reach=self.kit.reach,
            retry_within=entry.timeout_seconds,
        )
