"""Runs with an engine of one's own: RunHooks.start and RunHooks.finish, without a queue."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_hooks import HookRegistry, HookResult
from amplifier_hooks.runs import Blocked, RunHooks
from tests.runs import agent, agent_hook, python_hook

AMOUNT = {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer"}}}


def answers(answer: Any) -> Any:
    """Return a way to find functions that finds one with this answer."""

    def hook(event: str, data: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return lambda _: hook


def going_on(amount: Any) -> dict[str, Any]:
    """Return the answer of a start hook that goes on with this amount."""
    return {"action": "continue", "parameters": {"amount": amount}}


@pytest.mark.rule("RUN-23")
@pytest.mark.parametrize(
    ("answer", "begun"),
    [
        (going_on(2), {"amount": 2}),
        ({"action": "block", "block_reason": "too much"}, Blocked("too much")),
        (HookResult.deny("never"), Blocked("never")),
        (ValueError("broken"), Blocked("the start hook tests:hook failed: ValueError: broken", failed=True)),
    ],
    ids=["goes-on", "blocks", "denies", "fails"],
)
async def test_a_start_without_a_queue(answer: Any, begun: Any) -> None:
    """The start hooks give the parameters with which a run starts, or the reason why it does not start."""
    hooks = RunHooks(find=answers(answer))
    assert await hooks.start(agent(start=python_hook(), parameters_schema=AMOUNT), {"amount": 1}) == begun


@pytest.mark.rule("RUN-23", "RUN-9")
async def test_parameters_no_agent_takes() -> None:
    """Parameters against the schema start no run, whether the caller or a hook made them."""
    fussy = agent(start=python_hook(), parameters_schema=AMOUNT)
    for hooks, parameters in (
        (RunHooks(find=answers(going_on(1))), {"amount": "x"}),
        (RunHooks(find=answers(going_on("x"))), {"amount": 1}),
    ):
        begun = await hooks.start(fussy, parameters)
        assert isinstance(begun, Blocked)
        assert begun.failed


@pytest.mark.rule("RUN-23")
async def test_a_hook_knows_the_run_of_the_engine() -> None:
    """A hook gets the ids that the engine gives; without a session the run is one of its own."""
    seen: list[Any] = []

    def hook(event: str, data: Any) -> Any:
        seen.append((event, data["run_id"], data["session_id"], data["agent_name"]))
        return HookResult.proceed() if event == "run:start" else {}

    hooks = RunHooks(find=lambda _: hook)
    writer = agent(start=python_hook(), finish=python_hook())
    await hooks.start(writer, {}, run="workflow-7", session="s")
    await hooks.finish(writer, {}, {"total": 1}, run="workflow-7")
    assert seen == [
        ("run:start", "workflow-7", "s", "writer"),
        ("run:finish", "workflow-7", "workflow-7", "writer"),
    ]


@pytest.mark.rule("RUN-23", "RUN-14")
async def test_the_registry_stands_around_runs_of_an_engine() -> None:
    """Hooks of the registry, those of the tenant included, judge the start; its observers see the end."""
    registry, seen = HookRegistry(), []
    registry.gate("run:start", lambda event, data: HookResult.deny("not today"), name="closed", tenant="acme")

    @registry.observe("run:*")
    def observer(event: str, data: Any, outcome: Any) -> None:
        seen.append((event, data.get("status"), data.get("result_text"), data.get("error")))

    hooks, writer = RunHooks(registry=registry), agent(type="autonomous")
    assert await hooks.start(writer, {"a": 1}, tenant="acme") == Blocked("not today")
    assert await hooks.start(writer, {"a": 1}, tenant="other") == {"a": 1}
    await hooks.finish(writer, {"a": 1}, "done")
    await hooks.finish(writer, {"a": 1}, status="failed", error="no model")
    assert [one for one in seen if one[0] != "run:start"] == [
        ("run:error", None, None, "not today"),
        ("run:finish", "completed", "done", None),
        ("run:finish", "failed", None, "no model"),
        ("run:error", None, None, "no model"),
    ]


@pytest.mark.rule("RUN-23", "RUN-5")
async def test_agents_as_hooks_need_someone_to_start_them() -> None:
    """A hook of the kind agent fails where nothing starts agents, and the failure says what is missing."""
    begun = await RunHooks().start(agent(start=agent_hook()), {})
    assert isinstance(begun, Blocked)
    assert begun.failed
    assert "cannot be started: give RunHooks(agents=…)" in begun.reason
    assert await RunHooks().start(agent(start=agent_hook(on_error="continue")), {"a": 1}) == {"a": 1}


@pytest.mark.rule("RUN-23", "RUN-3")
async def test_a_finish_without_a_queue_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A finish hook that fails is logged, and the engine goes on."""
    hooks = RunHooks(find=answers(ValueError("broken")))
    await hooks.finish(agent(finish=python_hook()), {}, 1)
    assert "run_finish_hook_failed" in caplog.text
