"""Calls of a blueprint's hooks: a Python function, a web service, an agent.

python   `handler_ref` is called with the event and the hook's input; plain functions run in their own threads
http     the input is the body, the answer a JSON object; the request has one id for each run and hook
agent    the input is the agent's parameters
"""

from __future__ import annotations

import asyncio
import inspect
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from attrs import field, frozen

from amplifier_hooks.definitions.kinds.agent import AgentHook, AgentOrder, AgentRuns
from amplifier_hooks.definitions.kinds.allowed_urls import PUBLIC, AllowedUrls
from amplifier_hooks.definitions.kinds.event_codec import decode_answer, encode_message
from amplifier_hooks.definitions.kinds.python import build_hook
from amplifier_hooks.definitions.kinds.webhook import WebhookHook
from amplifier_hooks.errors import HookError, HookUnavailable
from amplifier_hooks.runs.contain_errors import contain_errors, describe_error
from amplifier_hooks.threads import DaemonPool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amplifier_hooks.runs.blueprint import HookEntry
    from amplifier_hooks.runs.run_states import HookPoint, RunRecord


THREADS: Final = 8
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
EVENT_OF: Final[Mapping[HookPoint, str]] = {"on_run_start": "run:start", "on_run_finish": "run:finish"}


def child_id(parent: str, key: str) -> str:
    """Return the id of the run that a hook of a run starts. It is the same each time the hook is called."""
    return f"run_{sha256(f'{parent}/{key}'.encode()).hexdigest()[:32]}"


def find_function(name: str) -> Any:
    """Return the function that a `handler_ref` names; for a class, an instance. Raise `HookUnavailable`."""
    return build_hook(name, {})


@frozen(kw_only=True)
class HookCaller:
    """A caller of blueprint hooks, with the agents, functions, URLs and variables that they need."""

    agents: AgentRuns
    find: Callable[[str], Any] = find_function
    """Function that finds the callable of a `handler_ref`. It raises `HookUnavailable`."""
    reach: AllowedUrls = PUBLIC
    variables: Mapping[str, str] = field(factory=dict, repr=False)
    """Values of `${VAR}` in headers."""
    threads: DaemonPool = field(factory=lambda: DaemonPool(THREADS, "amplifier-hooks-runs"), repr=False)
    _functions: dict[str, Any] = field(factory=dict, init=False, repr=False)
    _services: dict[tuple[str, str], tuple[HookEntry, WebhookHook]] = field(factory=dict, init=False, repr=False)

    async def ask(self, entry: HookEntry, point: HookPoint, record: RunRecord, given: dict[str, Any]) -> Any:
        """Return the hook's answer, unchecked.

        Raise `HookError`s, and any error that a function raises. Cancelling the call cancels the hook as far as
        possible.
        """
        if entry.type == "python":
            return await self._call_function(str(entry.handler_ref), EVENT_OF[point], given)
        if entry.type == "http":
            return await self._post_to_service(entry, point, record, given)
        return await AgentHook(agent_name=entry.target, runs=self.agents).ask(self.order(entry, point, record, given))

    def order(self, entry: HookEntry, point: HookPoint, record: RunRecord, given: dict[str, Any]) -> AgentOrder:
        """Return the order for a hook's agent."""
        return AgentOrder(agent=entry.target, parameters=given, tenant=record.tenant, parent=record.id, key=point)

    async def _call_function(self, name: str, event: str, given: dict[str, Any]) -> Any:
        function = self._functions.get(name)
        if function is None:
            try:
                function = await self.threads.run(self.find, name)  # it may import modules, and this loop is busy
            except HookError:
                raise
            except Exception as problem:
                raise HookUnavailable(f"{name!r} cannot be loaded: {describe_error(problem)}") from problem
            if not callable(function):
                raise HookUnavailable(f"{name!r} is a {type(function).__name__}, which cannot be called")
            function = self._functions.setdefault(name, function)
        with contain_errors():
            if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
                return await function(event, given)
            answer = await self.threads.run(function, event, given)
            return await answer if inspect.isawaitable(answer) else answer

    async def _post_to_service(
        self, entry: HookEntry, point: HookPoint, record: RunRecord, given: dict[str, Any]
    ) -> Any:
        known = self._services.get((record.agent, point))
        if known is None or known[0] != entry:
            service = WebhookHook(
                url=str(entry.url),
                method=entry.method,
                headers={name: self._fill_variables(value) for name, value in entry.headers.items()},
                reach=self.reach,
                retry_within=entry.timeout_seconds,
            )
            known = self._services[record.agent, point] = (entry, service)
        request_id = f"msg_{child_id(record.id, point).removeprefix('run_')}"
        return decode_answer(await known[1].exchange(request_id, encode_message(given), record.tenant))

    def _fill_variables(self, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            name = found.group(1)
            if name not in self.variables:
                raise HookUnavailable(f"${{{name}}} stands in its headers, and there is no such variable here")
            return self.variables[name]

        return VARIABLE.sub(value, text)


def failure_of(problem: BaseException) -> str:
    """Return an error in words, for readers of the run."""
    if isinstance(problem, HookError | TimeoutError):
        return str(problem)
    if isinstance(problem, asyncio.CancelledError):
        return "it cancelled itself"
    return describe_error(problem)
