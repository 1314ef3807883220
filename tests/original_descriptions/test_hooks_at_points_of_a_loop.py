"""The description of hooks at five points of an agent's loop: its own words, one test for each line of it.

Each test shows a line that works as it was described, or the difference, and names the rule.
"""

import asyncio
from typing import Any

import pytest

from amplifier_hooks import HookRegistry, SessionCoordinator
from amplifier_hooks.dispatch.chain import DEFAULT_TIMEOUT
from amplifier_hooks.errors import PrivilegeRequired
from amplifier_hooks.testing import CollectingAudit

POINTS = ["onIntake", "onContextAssembled", "onModelResponse", "onToolResult", "onTurnComplete"]


@pytest.mark.rule("REG-14", "EVT-6", "EVT-7")
async def test_five_points_in_their_order() -> None:
    """Each point is met once in a turn, with agent, session and run; hooks of a point form a pipeline."""
    registry, seen = HookRegistry(), []

    def at(point: str, change: Any = None) -> None:
        async def hook(context: Any, data: Any) -> Any:
            seen.append((point, context.agent_id, bool(context.session_id), context.run_id))
            return None if change is None else change(data)

        registry.register_loop_hook(point, hook)

    changes = {"onIntake": lambda prompt: f"{prompt} (please)", "onToolResult": lambda result: f"{result}!"}
    for point in POINTS:
        at(point, changes.get(point))
    registry.register_loop_hook("onToolResult", lambda context, data: f"{data}?")
    registry.register_loop_hook("onContextAssembled", lambda context, data: [*data, {"role": "user", "content": "x"}])
    read: list[Any] = []
    session = SessionCoordinator(registry, run_id="run_1", agent="writer")
    async with session, session.turn("hi") as turn:
        await session.call_model(read.extend)
        assert (await session.call_tool("W", {}, lambda _: "r")).value == "r!?"
    assert turn.prompt == "hi (please)"
    assert read[-1] == {"role": "user", "content": "x"}
    assert seen == [(point, "writer", True, "run_1") for point in POINTS]


@pytest.mark.rule("TRU-1", "TRU-3")
@pytest.mark.parametrize("point", ["onContextAssembled", "onModelResponse"])
async def test_trust_tiers(point: str) -> None:
    """A plugin needs `privileged_hooks` where the model's input and output pass; its refusal is on record."""
    registry, audit = HookRegistry(), CollectingAudit()
    async with SessionCoordinator(registry, audit=audit) as session:
        with pytest.raises(PrivilegeRequired, match="Plugin untrusted lacks privileged_hooks permission"):
            registry.scope("untrusted").register_loop_hook(point, lambda context, data: None)
        registry.scope("trusted", permissions={"privileged_hooks"}).register_loop_hook(
            point, lambda context, data: None
        )
        registry.scope("ours", built_in=True).register_loop_hook(point, lambda context, data: None)
        registry.scope("untrusted").register_loop_hook("onIntake", lambda context, data: None)
        await session.emit("user:notification", {"message": "x"})
    refused = [facts for facts in audit.facts("registry.changed") if facts["what"] == "refused"]
    assert [facts["owner"] for facts in refused] == ["untrusted"]


@pytest.mark.rule("DSP-4", "DSP-5")
async def test_timeouts() -> None:
    """A hook has five seconds, or as many as it is registered with; then the next hook runs."""
    registry = HookRegistry()

    async def slow(context: Any, data: Any) -> Any:
        await asyncio.Event().wait()

    registry.register_loop_hook("onToolResult", slow, timeout=0.02)
    registry.register_loop_hook("onToolResult", lambda context, data: "after")
    async with SessionCoordinator(registry) as session:
        assert (await session.call_tool("W", {}, lambda _: "r")).value == "after"
    assert DEFAULT_TIMEOUT == 5.0


@pytest.mark.rule("DSP-3", "AUD-1")
async def test_isolation_and_the_record() -> None:
    """A hook that fails changes nothing; its failure is on record, and so are registrations."""
    registry, audit = HookRegistry(), CollectingAudit()

    async def broken(context: Any, data: Any) -> Any:
        raise RuntimeError("bug-77")

    async with SessionCoordinator(registry, audit=audit) as session:
        registry.register_loop_hook("onToolResult", broken)
        registry.register_loop_hook("onToolResult", lambda context, data: f"{data}!", name="late")
        assert (await session.call_tool("W", {}, lambda _: "r")).value == "r!"
    errors = [one["error"] for facts in audit.facts("outcome") for one in facts.get("answers", ())]
    assert "RuntimeError: bug-77" in errors
    assert [facts["hook"] for facts in audit.facts("registry.changed")] == ["broken", "late"]
