"""The end of a run: its result, its finish hooks, and stopping it before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry
from amplifier_hooks.runs.run_errors import AgentsTooDeep, ResultRefused, RunMoved, UnknownRun, UnknownSession
from amplifier_hooks.runs.run_states import Holder, RunRecord
from tests.runs import House, agent, agent_hook, house, python_hook

if TYPE_CHECKING:
    from collections.abc import Mapping

FIELDS = {"event_type", "session_id", "run_id", "timestamp", "hook_type", "target_type", "target_name"}


async def claimed(here: House, name: str = "writer", **options: Any) -> tuple[RunRecord, Holder]:
    """Return a run in the hands of a runner."""
    await here.runs.submit(name, {"amount": 1}, **options)
    record = await here.runs.claim("runner", wait=60)
    assert record is not None
    return record, Holder("runner", record.attempt)


@pytest.mark.rule("RUN-3", "RUN-10", "RUN-12")
async def test_a_finish_hook_observes() -> None:
    """A finish hook gets the run as it ended, with the parameters that ran; the end is visible before the hook runs."""
    seen: list[tuple[str, Any]] = []

    async with house(agent(start=python_hook("enrich"), finish=python_hook("audit"))) as here:

        async def audit(event: str, data: Mapping[str, Any]) -> dict[str, Any]:
            seen.append(((await here.runs.get(data["run_id"])).status, data))
            return {}

        here.functions["audit"] = audit
        here.functions["enrich"] = lambda event, data: {"action": "continue", "parameters": {"amount": 2}}
        record, by = await claimed(here)
        await here.runs.report(record.id, by, data={"total": 3})
        await here.runs.complete(record.id, by, "completed")
        await here.until(record.id)
        assert seen == [
            (
                "completed",
                {
                    "parameters": {"amount": 2},
                    "result_text": None,
                    "result_data": {"total": 3},
                    "status": "completed",
                    "error": None,
                    "session_id": record.session,
                    "run_id": record.id,
                    "agent_name": "writer",
                },
            )
        ]
        told = await here.told(record.id)
        assert [event["event_type"] for event in told][-4:] == [
            *("run_result", "run_completed", "hook_start", "hook_complete"),
        ]
        assert set(told[-1]) == FIELDS | {"duration_ms"}
        assert (told[-1]["hook_type"], told[-1]["target_name"]) == ("on_run_finish", "tests:audit")


@pytest.mark.rule("RUN-3", "RUN-4", "RUN-8")
@pytest.mark.parametrize("on_error", ["block", "continue", "ignore"])
@pytest.mark.parametrize("answer", [{"status": "failed"}, "text", [], RuntimeError("broken")])
async def test_a_finish_hook_changes_nothing(answer: Any, on_error: str, caplog: pytest.LogCaptureFixture) -> None:
    """After any failure or answer of a finish hook, the run stays as it ended; on_error sets the log level."""

    def hook(event: str, data: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with house(agent(finish=python_hook(on_error=on_error))) as here:
        here.functions["hook"] = hook
        record, by = await claimed(here)
        await here.runs.report(record.id, by, data=1)
        ended = await here.runs.complete(record.id, by, "completed")
        after = await here.until(record.id)
        assert (after.status, after.result_data, after.error, after.ended) == ("completed", 1, None, ended.ended)
        *_, failed = await here.told(record.id)
        assert set(failed) == FIELDS | {"error", "on_error_behavior", "duration_ms"}
        assert (failed["event_type"], failed["on_error_behavior"]) == ("hook_failed", on_error)
    levels = [line.levelname for line in caplog.records if "finish_hook_failed" in line.getMessage()]
    assert levels == {"block": ["ERROR"], "continue": ["WARNING"], "ignore": []}[on_error]


@pytest.mark.rule("RUN-5", "RUN-8", "RUN-10")
async def test_a_finish_agent_is_a_run_of_its_own() -> None:
    """A finish agent starts in a session of its own, linked to its parent, and the run does not wait for it."""
    audit = agent("audit", start=python_hook("never"), finish=python_hook("never"))
    async with house(agent(finish=agent_hook("audit")), audit) as here:
        record, by = await claimed(here, tenant="acme")
        await here.runs.report(record.id, by, data={"total": 3})
        await here.runs.complete(record.id, by, "completed")
        parent = await here.until(record.id)
        assert parent.status == "completed"
        child = await here.runs.claim("runner", wait=60)
        assert child is not None
        assert (child.agent, child.parent, child.parent_session, child.tenant, child.depth) == (
            *("audit", record.id, record.session, "acme", 1),
        )
        assert child.session != record.session
        assert child.parameters["result_data"] == {"total": 3}
        assert (await here.do(child)).status == "completed"
        again = await here.runs.submit("writer", {}, tenant="acme", session=parent.session, parent=child.id)
        assert again.session == parent.session
        with pytest.raises(UnknownSession):
            await here.runs.submit("writer", {}, tenant="other", session=parent.session)


@pytest.mark.rule("RUN-4", "RUN-5")
async def test_a_finish_agent_that_cannot_start() -> None:
    """A finish agent that is missing, or does not take its input, is reported and nothing more."""
    picky = agent("picky", parameters_schema={"required": ["nothing of it"]})
    async with house(
        agent("one", finish=agent_hook("missing")), agent("two", finish=agent_hook("picky")), picky
    ) as here:
        for name, words in (("one", "there is no agent 'missing'"), ("two", "does not take")):
            record, by = await claimed(here, name)
            await here.runs.complete(record.id, by, "failed", error="out of tokens")
            after = await here.until(record.id)
            assert (after.status, after.error) == ("failed", "out of tokens")
            assert words in (await here.told(record.id))[-1]["error"]


@pytest.mark.rule("RUN-8", "DEF-2")
async def test_a_finish_hook_nobody_waits_for() -> None:
    """With mode async a run is over while its finish hook still runs; the hook's end is reported later."""
    go, begun = asyncio.Event(), asyncio.Event()

    async def slow(event: str, data: Any) -> dict[str, Any]:
        begun.set()
        await go.wait()
        return {}

    async with house(agent(finish=python_hook("slow", mode="async"))) as here:
        here.functions["slow"] = slow
        record, by = await claimed(here)
        await here.runs.complete(record.id, by, "failed", error="x")
        await begun.wait()
        assert not (await here.runs.get(record.id)).owes
        go.set()
        await asyncio.wait(set(here.runs._finishing.values()))
        assert (await here.told(record.id))[-1]["event_type"] == "hook_complete"


def nested(depth: int) -> list[Any]:
    """Return lists in lists."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.rule("RUN-10", "RUN-13")
@pytest.mark.parametrize(
    ("fields", "text", "data", "fits"),
    [
        ({"type": "autonomous"}, "done", None, True),
        ({"type": "autonomous"}, "", None, True),
        ({"type": "autonomous"}, None, {"a": 1}, False),
        ({"type": "autonomous"}, "done", {"a": 1}, False),
        ({"type": "autonomous", "output_schema": {"required": ["a"]}}, None, {"a": 1}, True),
        ({"type": "autonomous", "output_schema": {"required": ["a"]}}, None, {}, False),
        ({"type": "autonomous", "output_schema": {"required": ["a"]}}, "done", None, False),
        ({}, None, None, True),
        ({}, None, [1, 2], True),
        ({}, "done", None, False),
        ({}, None, float("nan"), False),
        ({}, None, object(), False),
        ({}, None, "x" * 1_100_000, False),
        ({}, None, nested(60), True),
        ({}, None, nested(900), False),
    ],
)
async def test_the_kind_of_result(fields: dict[str, Any], text: str | None, data: Any, fits: bool) -> None:
    """Autonomous agents without an output schema bring a text, all others data; the other one is null."""
    async with house(agent(**fields)) as here:
        record, by = await claimed(here)
        if not fits:
            with pytest.raises(ResultRefused):
                await here.runs.report(record.id, by, text=text, data=data)
            return
        await here.runs.report(record.id, by, text=text, data=data)
        after = await here.runs.complete(record.id, by, "completed")
        assert (after.result_text, after.result_data) == (text, data)
        (event,) = await here.told(record.id, "run_completed")
        assert (event["status"], event["result_text"], event["result_data"]) == ("completed", text, data)


@pytest.mark.rule("RUN-13")
async def test_a_result_comes_before_completion() -> None:
    """A runner posts its result, the registry is told of it, and only then the run can be completed."""
    registry = HookRegistry()
    heard: list[Any] = []

    @registry.observe("run:*")
    async def watch(event: str, data: Any, outcome: Any) -> None:
        heard.append((event, data.get("status"), data.get("result_data"), data.get("error")))

    async with house(agent(), registry=registry) as here:
        record, by = await claimed(here)
        with pytest.raises(RunMoved, match="no result yet"):
            await here.runs.complete(record.id, by, "completed")
        await here.runs.report(record.id, by, data=5)
        assert heard[-1] == ("run:result", None, 5, None)
        await here.runs.complete(record.id, by, "completed")
        await here.until(record.id)
        assert heard[-1] == ("run:finish", "completed", 5, None)
        record, by = await claimed(here)
        await here.runs.complete(record.id, by, "failed", error="broken")
        await here.until(record.id)
        assert heard[-2:] == [("run:finish", "failed", None, "broken"), ("run:error", None, None, "broken")]


@pytest.mark.rule("RUN-10", "RUN-16")
async def test_completed_twice() -> None:
    """A second, equal completion changes nothing and starts no hook; a different one fails."""
    calls = []
    async with house(agent(finish=python_hook())) as here:
        here.functions["hook"] = lambda event, data: calls.append(data["run_id"])
        record, by = await claimed(here)
        await here.runs.report(record.id, by, data=1)
        once = await here.runs.complete(record.id, by, "completed")
        assert (await here.runs.complete(record.id, by, "completed")).ended == once.ended
        await here.until(record.id)
        assert (await here.runs.complete(record.id, by, "completed")).ended == once.ended
        for refused in (
            here.runs.complete(record.id, by, "failed", error="x"),
            here.runs.complete(record.id, Holder("another", by.attempt), "completed"),
            here.runs.report(record.id, by, data=2),
            here.runs.renew(record.id, by),
        ):
            with pytest.raises(RunMoved, match="it is completed"):
                await refused
        assert calls == [record.id]
        assert (await here.runs.get(record.id)).result_data == 1


@pytest.mark.rule("RUN-17")
async def test_stopping_a_start_hook() -> None:
    """Stopping a run in its start hook cancels the hook, and stops the agent it had started."""
    cancelled = asyncio.Event()

    async def waits(event: str, data: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with house(agent(start=python_hook("waits")), agent("two", start=agent_hook()), agent("validator")) as here:
        here.functions["waits"] = waits
        run = (await here.runs.submit("writer", {})).id
        assert await here.runs.claim("runner", wait=0.01) is None
        assert (await here.runs.stop(run, reason="not today")).status == "stopped"
        await cancelled.wait()
        run = (await here.runs.submit("two", {})).id
        child = await here.runs.claim("runner", wait=60)
        assert child is not None
        assert (await here.runs.stop(run)).status == "stopped"
        assert (await here.runs.renew(child.id, Holder("runner", child.attempt))).stopping
        for tenant in ("other", "acme"):
            with pytest.raises(UnknownRun):
                await here.runs.stop(run, tenant=tenant)


@pytest.mark.rule("RUN-18")
async def test_agents_that_start_agents() -> None:
    """A cycle of agents ends at the limit, with an error that names the chain."""
    async with house(agent("a"), agent("b"), max_depth=3) as here:
        record = await here.runs.submit("a", {})
        for name in ("b", "a", "b"):
            record = await here.runs.submit(name, {}, parent=record.id)
        with pytest.raises(AgentsTooDeep, match="a → b → a → b → a; break the cycle") as caught:
            await here.runs.submit("a", {}, parent=record.id)
        assert (caught.value.chain, caught.value.limit) == (("a", "b", "a", "b", "a"), 3)


@pytest.mark.rule("RUN-5", "RUN-18")
async def test_hooks_of_agents_cannot_breed() -> None:
    """An agent that is its own start hook starts one child, which has no hooks, and no more."""
    async with house(agent("narcissus", start=agent_hook("narcissus"))) as here:
        run = (await here.runs.submit("narcissus", {})).id
        await here.work(narcissus=lambda _: {"action": "continue", "parameters": {"from": "itself"}})
        record = await here.runs.claim("runner", wait=60)
        assert record is not None
        assert (record.id, record.effective) == (run, {"from": "itself"})
        assert len(await here.runs.store.children(run)) == 1


@pytest.mark.rule("RUN-13")
async def test_following_a_run() -> None:
    """A follower of a run gets each of its events once, from any starting point, until nothing can follow."""
    async with house(agent(finish=python_hook())) as here:
        here.functions["hook"] = lambda event, data: {}
        run = (await here.runs.submit("writer", {})).id
        seen: list[tuple[int, str]] = []

        async def follow() -> None:
            seen.extend([(event.number, event.type) async for event in here.runs.follow(run)])

        following = asyncio.ensure_future(follow())
        await here.work()
        await following
        assert [number for number, _ in seen] == list(range(1, len(seen) + 1))
        assert [kind for _, kind in seen] == [
            *("run_queued", "run_starting", "run_running", "run_result", "run_completed", "hook_start"),
            "hook_complete",
        ]
        assert [event.type async for event in here.runs.follow(run, after=5)] == ["hook_start", "hook_complete"]


@pytest.mark.rule("RUN-11", "RUN-16")
async def test_a_coordinator_that_closes() -> None:
    """The work that a coordinator leaves when it closes is taken up by the next one, with the agents it had started."""
    blueprints = (agent(start=agent_hook(), finish=python_hook()), agent("validator"))
    async with house(*blueprints) as first:
        run = (await first.runs.submit("writer", {})).id
        child = await first.runs.claim("runner", wait=60)
        assert child is not None
        await first.runs.close()
        assert (await first.runs.get(child.id)).status == "running"
        async with house(*blueprints, store=first.runs.store) as second:
            waiting = asyncio.ensure_future(second.runs.claim("other", wait=60))
            await second.until(run, "starting")
            await second.do(child, validator=lambda _: {"action": "continue", "parameters": {"a": 1}})
            record = await waiting
            assert record is not None
            assert (record.id, record.effective) == (run, {"a": 1})
            assert len(await second.runs.store.children(run)) == 1
