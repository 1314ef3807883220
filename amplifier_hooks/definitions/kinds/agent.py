"""A hook that is an agent: an event comes in and starts a run of the agent; the result of the run is the answer.

The host hands in an `AgentRuns`, which starts agents and waits for them. Agents of hooks run without run hooks of their
own, so hooks cannot multiply; the gates of tools apply to these agents as to all others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol

from attrs import frozen

from amplifier_hooks.definitions.kinds.event_codec import LONGEST_REASON, answer_in, encode_message
from amplifier_hooks.errors import HookFailed, HookUnavailable, InvalidResult
from amplifier_hooks.result import CONTINUE, HookResult, as_result
from amplifier_hooks.text.escape import clip, for_log

AGENT_TIMEOUT: Final = 300.0
"""Default timeout of an agent in seconds, including the time until a runner claims the run."""


class AgentInputRefused(HookUnavailable):
    """The agent does not take the payload of this hook. The mistake lies in the definition that made it a hook."""

    def __init__(self, agent: str, problem: str) -> None:
        self.agent = agent
        self.problem = problem
        super().__init__(f"agent {agent!r} does not take what this hook is given: {problem}")


@frozen(kw_only=True)
class AgentOrder:
    """An agent to run for a hook. Orders with one `key` and one parent start a single run, however often given."""

    agent: str
    parameters: Mapping[str, Any]
    owner: str = ""
    """Tenant that the hook belongs to, and so the run of its agent; empty for the operator's hook."""
    tenant: str = ""
    """Tenant of the event, and of the parent."""
    parent: str | None = None
    key: str | None = None


@frozen(kw_only=True)
class AgentResult:
    """The end of an agent's run, and its result."""

    run: str
    status: Literal["completed", "failed", "stopped"]
    text: str | None = None
    data: Any = None
    error: str | None = None


class AgentRuns(Protocol):
    """A host's way to start agents.

    Both methods raise `AgentInputRefused` for parameters that the agent does not take, and `HookUnavailable` if there
    is no such agent or it may not be started.
    """

    async def run(self, order: AgentOrder) -> AgentResult:
        """Start an agent and wait for its end. Cancelling stops the agent."""
        ...

    async def launch(self, order: AgentOrder) -> str:
        """Start an agent without waiting for it. Returns the id of its run."""
        ...


@frozen(kw_only=True)
class AgentHook:
    """An agent as a handler: register it with a timeout, by default `AGENT_TIMEOUT`.

    `detached` starts the agent without waiting, for observers. Without `gate`, a text is no decision.
    """

    agent_name: str
    runs: AgentRuns
    owner: str = ""
    """Tenant that the hook belongs to; empty for the operator's."""
    detached: bool = False
    gate: bool = True

    async def __call__(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Run the agent with the event and its payload, `{"event": …, "data": …}`.

        A result that is an object has the fields of a `HookResult`; no result is no decision; a text is read like the
        output of a command. Raises `HookFailed` if the agent fails, `InvalidResult` for a result that is not an answer,
        and the errors of `AgentRuns`. Cancelling stops the agent.
        """
        payload = json.loads(encode_message({"event": event, "data": dict(data)}))
        order = AgentOrder(
            agent=self.agent_name,
            parameters=payload,
            owner=self.owner,
            tenant=_text(data, "tenant_id") or "",
            parent=_text(data, "run_id"),
        )
        if self.detached:
            await self.runs.launch(order)
            return CONTINUE
        return as_result(await self.ask(order))

    async def ask(self, order: AgentOrder) -> dict[str, Any] | None:
        """Run an order, and return the object that its agent answered; None for no decision. Raises as a call does."""
        said = await self.runs.run(order)
        if said.status != "completed":
            why = clip(for_log(said.error or "it does not say why"), LONGEST_REASON)
            raise HookFailed(f"agent {order.agent!r} {said.status}: {why}")
        if said.text is not None:
            return answer_in(said.text.encode("utf-8", "surrogatepass"), gate=self.gate)
        if said.data is not None and not isinstance(said.data, Mapping):
            raise InvalidResult(f"an agent's result that is a {type(said.data).__name__}: answer one object")
        return None if said.data is None else dict(said.data)


def _text(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    return value if isinstance(value, str) and value else None
