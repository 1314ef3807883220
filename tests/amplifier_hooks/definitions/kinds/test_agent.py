"""Hooks that are agents: what they are started with, and what their results mean."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import define, field

from amplifier_hooks import HookRegistry
from amplifier_hooks.definitions.kinds.agent import AgentHook, AgentOrder, AgentResult
from amplifier_hooks.errors import HookFailed, HookUnavailable, InvalidResult

CALL = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "session_id": "s", "tenant_id": "acme", "run_id": "run_1"}


@define
class Desk:
    """Starts nothing, and says what it was told to say."""

    said: AgentResult | Exception
    orders: list[AgentOrder] = field(factory=list)
    launched: int = 0

    async def run(self, order: AgentOrder) -> AgentResult:
        """Return the prepared result of the agent, or raise its error."""
        self.orders.append(order)
        if isinstance(self.said, Exception):
            raise self.said
        return self.said

    async def launch(self, order: AgentOrder) -> str:
        """Starts it."""
        self.orders.append(order)
        self.launched += 1
        return "run_2"


def completed(**fields: Any) -> AgentResult:
    """An agent that came to its end."""
    return AgentResult(run="run_2", status="completed", **fields)


@pytest.mark.rule("DEF-2", "RUN-5")
@pytest.mark.parametrize(
    ("said", "action"),
    [
        (completed(data={"action": "deny", "reason": "no"}), "deny"),
        (completed(text='{"action": "deny", "reason": "no"}'), "deny"),
        (completed(), "continue"),
        (completed(text="\n"), "continue"),
    ],
)
async def test_an_agent_decides(said: AgentResult, action: str) -> None:
    """An agent is started for its tenant and parent with event and payload; its result is the hook's answer."""
    desk = Desk(said)
    registry = HookRegistry()
    registry.register("tool:pre", AgentHook(agent_name="guard", runs=desk), name="guard", on_error="deny")
    outcome = await registry.emit("tool:pre", CALL)
    assert outcome.action == action
    (order,) = desk.orders
    assert (order.agent, order.tenant, order.parent) == ("guard", "acme", "run_1")
    assert order.parameters == {"event": "tool:pre", "data": CALL}


@pytest.mark.rule("DEF-2", "RUN-5")
@pytest.mark.parametrize(
    ("said", "error"),
    [
        (AgentResult(run="run_2", status="failed", error="no model"), HookFailed),
        (AgentResult(run="run_2", status="stopped"), HookFailed),
        (completed(data=[1]), InvalidResult),
        (completed(data={"acton": "deny"}), InvalidResult),
        (completed(text='{"action": '), InvalidResult),
        (completed(text="I see great harm in it."), InvalidResult),
        (completed(text='```json\n{"action": "deny"}\n```'), InvalidResult),
        (HookUnavailable("there is no such agent"), HookUnavailable),
    ],
)
async def test_an_agent_that_decides_nothing(said: Any, error: type[Exception]) -> None:
    """An agent that fails, is missing or answers nonsense fails its hook, which a gate takes for a denial."""
    hook = AgentHook(agent_name="guard", runs=Desk(said))
    with pytest.raises(error):
        await hook("tool:pre", CALL)
    registry = HookRegistry()
    registry.register("tool:pre", hook, name="guard", on_error="deny")
    assert (await registry.emit("tool:pre", CALL)).denied


@pytest.mark.rule("DEF-2", "DEF-4")
async def test_an_agent_that_is_no_gate() -> None:
    """Where no gate stands, an agent may answer in prose; an answer inside of prose is invalid there, too."""
    prose = AgentHook(agent_name="note", runs=Desk(completed(text="I see great harm in it.")), gate=False)
    assert (await prose("tool:pre", CALL)).action == "continue"
    buried = AgentHook(agent_name="note", runs=Desk(completed(text='Sure: {"action": "deny"}')), gate=False)
    with pytest.raises(InvalidResult, match="no other text"):
        await buried("tool:pre", CALL)


@pytest.mark.rule("DEF-2")
async def test_an_agent_nobody_waits_for() -> None:
    """A detached agent is started, and says nothing."""
    desk = Desk(HookUnavailable("not asked for"))
    answer = await AgentHook(agent_name="note", runs=desk, detached=True)("tool:post", CALL)
    assert (answer.action, desk.launched) == ("continue", 1)
