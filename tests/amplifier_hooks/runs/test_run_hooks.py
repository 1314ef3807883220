"""Hooks at the start of a run: their possible answers, and the effects on the run."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult
from amplifier_hooks.runs.run_states import (
    AgentsTooDeep,
    Holder,
    ParametersRefused,
    ResultRefused,
    RunMoved,
    RunRecord,
    UnknownAgent,
    UnknownRun,
    UnknownSession,
)
from tests.runs import House, agent, agent_hook, house, python_hook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amplifier_hooks.runs.run_states import RunRecord

AMOUNT = {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer"}}}
FIELDS = {"event_type", "session_id", "run_id", "timestamp", "hook_type", "target_type", "target_name"}
ENVELOPE = {"type": "object", "required": ["parameters", "agent_name", "session_id", "run_id"]}


def answering(answer: Any) -> Callable[..., Any]:
    """Return a hook, or an agent, that gives this answer."""
    return lambda *_: answer


@pytest.mark.rule("RUN-2", "RUN-6", "RUN-7", "RUN-12")
async def test_a_hook_that_enriches() -> None:
    """A start hook gets the run, and the parameters it returns are those that run; both are kept."""
    seen: list[tuple[str, dict[str, Any]]] = []

    async def enrich(event: str, data: dict[str, Any]) -> dict[str, Any]:
        seen.append((event, data))
        return {"action": "continue", "parameters": {**data["parameters"], "tier": "gold"}}

    async with house(agent(start=python_hook("enrich"), parameters_schema=AMOUNT)) as here:
        here.functions["enrich"] = enrich
        queued = await here.runs.submit("writer", {"amount": 1}, tenant="acme")
        assert queued.status == "queued"
        record = await here.runs.claim("runner", wait=60)
        assert record is not None
        assert (record.status, record.holder) == ("running", "runner")
        assert (record.parameters, record.effective) == ({"amount": 1}, {"amount": 1, "tier": "gold"})
        assert seen == [
            (
                "run:start",
                {
                    "parameters": {"amount": 1},
                    "agent_name": "writer",
                    "session_id": record.session,
                    "run_id": record.id,
                },
            )
        ]
        start, complete = await here.told(record.id, "hook_")
        assert set(start) == FIELDS
        assert set(complete) == FIELDS | {"duration_ms", "action"}
        assert (start["event_type"], complete["event_type"]) == ("hook_start", "hook_complete")
        assert (complete["hook_type"], complete["target_type"], complete["target_name"], complete["action"]) == (
            *("on_run_start", "python", "tests:enrich", "continue"),
        )
        assert [event["event_type"] for event in await here.told(record.id)] == [
            *("run_queued", "run_starting", "hook_start", "hook_complete", "run_ready", "run_running"),
        ]


@pytest.mark.rule("RUN-2", "RUN-6", "RUN-9", "RUN-12")
async def test_a_hook_that_blocks() -> None:
    """A blocked run has failed with the hook's reason, and no runner ever sees it."""
    async with house(agent(start=python_hook())) as here:
        here.functions["hook"] = answering({"action": "block", "block_reason": "above the limit"})
        run = (await here.runs.submit("writer", {"amount": 1})).id
        assert await here.runs.claim("runner") is None
        record = await here.until(run)
        assert (record.status, record.error, record.blocked, record.handed) == ("failed", "above the limit", True, 0)
        _, blocked = await here.told(run, "hook_")
        assert set(blocked) == FIELDS | {"block_reason", "duration_ms"}
        assert (blocked["event_type"], blocked["block_reason"]) == ("hook_blocked", "above the limit")
        assert await here.runs.claim("runner") is None


WRONG: list[Any] = [
    None,
    "continue",
    [],
    {},
    {"action": "allow"},
    {"action": ["continue"]},
    {"action": "continue"},
    {"action": "continue", "parameters": None},
    {"action": "continue", "parameters": [1]},
    {"action": "continue", "parameters": {}, "block_reason": "x"},
    {"action": "continue", "parameters": {"amount": object()}},
    {"action": "continue", "parameters": {"amount": float("nan")}},
    {"action": "continue", "parameters": {1: 2}},
    {"action": "continue", "parameters": {"amount": "x"}},
    {"action": "continue", "parameters": {"amount": 1, "more": "x" * 1_100_000}},
    {"action": "modify"},
    {"action": "modify", "parameters": {"amount": 2}},
    HookResult.modify({"parameters": {"amount": "x"}}),
    HookResult.modify({"parameters": {"amount": object()}}),
]


@pytest.mark.rule("RUN-4", "RUN-9", "RUN-12")
async def test_answers_of_every_wrong_shape() -> None:
    """An invalid answer is a failure of the hook: the run fails with it, or goes on with its own parameters."""
    block = agent("blocking", start=python_hook(on_error="block"), parameters_schema=AMOUNT)
    go_on = agent("going-on", start=python_hook(on_error="continue"), parameters_schema=AMOUNT)
    answers: list[Any] = []
    async with house(block, go_on) as here:
        here.functions["hook"] = lambda event, data: answers[-1]
        for answer in WRONG:
            answers.append(answer)
            failing = (await here.runs.submit("blocking", {"amount": 1})).id
            assert await here.runs.claim("runner") is None
            failed = await here.until(failing)
            assert (failed.status, failed.blocked, failed.handed) == ("failed", False, 0), answer
            assert "the start hook tests:hook failed: " in str(failed.error)
            _, event = await here.told(failing, "hook_")
            assert set(event) == FIELDS | {"error", "on_error_behavior", "duration_ms"}
            assert (event["event_type"], event["on_error_behavior"]) == ("hook_failed", "block")
            await here.runs.submit("going-on", {"amount": 1})
            record = await here.runs.claim("runner", wait=60)
            assert record is not None, answer
            assert (record.agent, record.effective, record.ran_with) == ("going-on", {"amount": 1}, None)
            _, event = await here.told(record.id, "hook_")
            assert (event["event_type"], event["on_error_behavior"]) == ("hook_failed", "continue")


REFUSALS: list[tuple[Any, str]] = [
    (HookResult.deny("never on Fridays"), "never on Fridays"),
    (HookResult.deny(), "it said no and gave no reason"),
    (HookResult.deny("no", context_injection="text"), "no"),
    ({"action": "deny", "reason": "no"}, "no"),
    ({"action": "deny", "reason": 5}, "it said no and gave no reason"),
    ({"action": "block"}, "it said no and gave no reason"),
    ({"action": "block", "block_reason": " "}, "it said no and gave no reason"),
    ({"action": "block", "block_reason": "no", "parameters": {}}, "no"),
    (HookResult.ask("Really?"), "there is no approver to answer it"),
    ({"action": "ask_user", "prompt": "a misspelt field"}, "there is no approver to answer it"),
    (HookResult.inject("Be careful."), "there is no context for it"),
    (HookResult.proceed(context_injection="Be careful."), "there is no context for it"),
    (HookResult.modify({"parameters": {"amount": 2}}, context_injection="text"), "there is no context for it"),
    ({"action": "inject_context"}, "there is no context for it"),
    (HookResult.modify({"amount": 2}), "something else than the parameters"),
    (HookResult.modify({"parameters": {"amount": 2}, "agent_name": "other"}), "something else than the parameters"),
    (HookResult.modify({"parameters": None}), "something else than the parameters"),
]


@pytest.mark.rule("RUN-2", "RUN-9", "RUN-12")
@pytest.mark.parametrize("on_error", ["block", "continue"])
async def test_answers_that_keep_a_run_from_starting(on_error: str) -> None:
    """A denial, and an answer that no run can carry out, block the run, whatever on_error says."""
    answers: list[Any] = []
    async with house(agent(start=python_hook(on_error=on_error), parameters_schema=AMOUNT)) as here:
        here.functions["hook"] = lambda event, data: answers[-1]
        for answer, words in REFUSALS:
            answers.append(answer)
            run = (await here.runs.submit("writer", {"amount": 1})).id
            assert await here.runs.claim("runner") is None, answer
            record = await here.until(run)
            assert (record.status, record.blocked, record.handed) == ("failed", True, 0), answer
            assert words in str(record.error)
            _, blocked = await here.told(run, "hook_")
            assert (blocked["event_type"], blocked["block_reason"]) == ("hook_blocked", record.error)


@pytest.mark.rule("RUN-2")
@pytest.mark.parametrize(
    ("answer", "amount"),
    [
        (HookResult.proceed(), 1),
        (HookResult.proceed(user_message="looks good"), 1),
        (HookResult.modify({"parameters": {"amount": 2}}), 2),
        ({"action": "modify", "data": {"parameters": {"amount": 2}}}, 2),
    ],
)
async def test_hook_results_that_let_a_run_start(answer: Any, amount: int) -> None:
    """A HookResult that goes on starts the run with the parameters unchanged, or as it has changed them."""
    async with house(agent(start=python_hook(), parameters_schema=AMOUNT)) as here:
        here.functions["hook"] = answering(answer)
        await here.runs.submit("writer", {"amount": 1})
        record = await here.runs.claim("runner", wait=60)
        assert record is not None
        assert record.effective == {"amount": amount}
        assert [event["event_type"] for event in await here.told(record.id, "hook_")] == ["hook_start", "hook_complete"]


@pytest.mark.rule("RUN-2", "RUN-9")
async def test_an_agent_that_denies() -> None:
    """A hook's agent can deny in the form of a HookResult, too."""
    async with house(agent(start=agent_hook(on_error="continue")), agent("validator")) as here:
        run = (await here.runs.submit("writer", {})).id
        await here.work(validator=answering({"action": "deny", "reason": "no budget"}))
        record = await here.until(run)
        assert (record.status, record.error, record.blocked) == ("failed", "no budget", True)


async def raises(event: str, data: Mapping[str, Any]) -> None:
    """Raise an error."""
    raise ZeroDivisionError("division by zero")


async def hangs(event: str, data: Mapping[str, Any]) -> None:
    """Never answer, and resist cancellation at first."""
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await asyncio.Event().wait()


async def cancels(event: str, data: Mapping[str, Any]) -> None:
    """Raise a cancellation, although the hook was not cancelled."""
    raise asyncio.CancelledError


class Mute(Exception):
    """An error without a readable message."""

    def __str__(self) -> str:
        raise SystemExit


def raising(problem: BaseException) -> Callable[..., Any]:
    """Return a hook that raises this error."""

    def hook(event: str, data: Mapping[str, Any]) -> None:
        raise problem

    return hook


async def leaves(event: str, data: Mapping[str, Any]) -> None:
    """Try to end the program."""
    sys.exit(3)


@pytest.mark.rule("RUN-4", "RUN-19")
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (raising(Mute()), "failed: Mute"),
        (raising(SystemExit(3)), "failed: SystemExit: 3"),
        (leaves, "failed: SystemExit: 3"),
        (raising(BaseExceptionGroup("odd", [GeneratorExit()])), "failed: BaseExceptionGroup of 1"),
    ],
    ids=["mute", "exit", "exit-in-a-coroutine", "group"],
)
async def test_no_hook_ends_its_coordinator(function: Any, words: str) -> None:
    """A hook fails, and the run goes on, also after an error that ends programs or has no message."""
    async with house(agent(start=python_hook(), finish=python_hook())) as here:
        here.functions["hook"] = function
        run = (await here.runs.submit("writer", {})).id
        assert await here.runs.claim("runner", wait=0.01) is None
        assert words in str((await here.until(run)).error)


@pytest.mark.rule("RUN-4", "RUN-19")
@pytest.mark.parametrize(
    ("entry", "function", "words"),
    [
        (python_hook(), raises, "ZeroDivisionError: division by zero"),
        (python_hook(timeout_seconds=0.02), hangs, "no answer within 0.02 s"),
        (python_hook(), cancels, "CancelledError"),
        (python_hook("nowhere"), raises, "there is no function"),
        (python_hook("number"), raises, "cannot be called"),
        (agent_hook("missing"), raises, "there is no agent 'missing'"),
        ({"type": "http", "url": "http://127.0.0.1/", "on_error": "block"}, raises, "scheme"),
        (
            {"type": "http", "url": "https://a.example/", "headers": {"x": "${NONE}"}, "on_error": "block"},
            raises,
            "${NONE} stands in its headers",
        ),
    ],
)
async def test_hooks_that_fail(entry: dict[str, Any], function: Any, words: str) -> None:
    """An error, a timeout, a missing function or agent and a service out of reach fail the hook, and are reported."""
    async with house(agent(start=entry), agent("kind", start={**entry, "on_error": "continue"})) as here:
        here.functions.update(hook=function, number=5)
        failing = (await here.runs.submit("writer", {})).id
        assert await here.runs.claim("runner", wait=0.01) is None
        failed = await here.until(failing)
        assert failed.status == "failed"
        assert words in str(failed.error)
        await here.runs.submit("kind", {"a": 1})
        record = await here.runs.claim("runner", wait=60)
        assert record is not None
        assert record.effective == {"a": 1}
        events = await here.told(record.id, "hook_")
        assert [event["event_type"] for event in events] == ["hook_start", "hook_failed"]
        assert words in events[1]["error"]


@pytest.mark.rule("RUN-2")
async def test_parameters_that_do_not_fit() -> None:
    """Parameters against the schema are refused at submission, and so is an unknown agent."""
    async with house(agent(parameters_schema=AMOUNT)) as here:
        for wrong in ({}, {"amount": "x"}, {"amount": 1, "odd": object()}):
            with pytest.raises(ParametersRefused, match="these are no parameters for 'writer'"):
                await here.runs.submit("writer", wrong)
        with pytest.raises(UnknownAgent, match="there are: writer"):
            await here.runs.submit("painter", {})
        assert await here.runs.claim("runner") is None


@pytest.mark.rule("RUN-2", "RUN-7")
async def test_a_blueprint_that_changed_meanwhile() -> None:
    """A waiting run fails with a reason if its agent's schema changed, and waits on if its agent is gone."""
    async with house(agent(start=python_hook())) as here:
        here.functions["hook"] = answering({"action": "continue", "parameters": {}})
        changed = (await here.runs.submit("writer", {})).id
        here.runs.agents._known["writer"] = agent(start=python_hook(), parameters_schema=AMOUNT)
        assert await here.runs.claim("runner") is None
        assert "these are no parameters" in str((await here.until(changed)).error)
        here.runs.agents._known = {"other": agent("other")}
        plain = (await here.runs.submit("other", {})).id
        here.runs.agents._known = {}
        assert await here.runs.claim("runner") is None
        assert (await here.runs.get(plain)).status == "queued"
        here.runs.agents._known = {"other": agent("other")}
        assert await here.work() is not None


# -- agents as hooks ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("RUN-5", "RUN-11", "RUN-16")
async def test_one_runner_and_a_hook_agent() -> None:
    """A single runner runs the hook's agent while the parent run is starting, and then the parent run."""
    validator = agent("validator", parameters_schema=ENVELOPE, start=python_hook("never"))
    async with house(agent(start=agent_hook()), validator) as here:
        run = await here.runs.submit("writer", {"amount": 1}, tenant="acme")
        assert await here.runs.claim("acme's", tenant="acme", wait=0.01) is None
        child = await here.runs.claim("only", wait=60)
        assert child is not None
        assert (child.agent, child.parent, child.parent_session, child.tenant) == (
            *("validator", run.id, run.session, ""),
        )
        assert child.session != run.session
        assert child.parameters["parameters"] == {"amount": 1}
        assert (await here.runs.get(run.id)).status == "starting"
        await here.do(child, validator=lambda _: {"action": "continue", "parameters": {"amount": 2}})
        record = await here.runs.claim("only", tenant="acme", wait=60)
        assert record is not None
        assert (record.id, record.effective) == (run.id, {"amount": 2})
        assert [event["event_type"] for event in await here.told(child.id, "hook_")] == []
        assert [found.id for found in await here.runs.store.children(run.id)] == [child.id]


@pytest.mark.rule("RUN-5", "RUN-9")
async def test_an_agent_that_answers_in_text() -> None:
    """The answer of an agent that writes text is the object in its text."""
    validator = agent("validator", type="autonomous")
    async with house(agent(start=agent_hook()), validator) as here:
        for text, status in (
            ('{"action": "block", "block_reason": "no"}', "no"),
            ("I see no problem.", "the start hook validator failed"),
            ('{"action": "block"', "the start hook validator failed"),
        ):
            run = (await here.runs.submit("writer", {})).id
            await here.work(validator=answering(text))
            assert str((await here.until(run)).error).startswith(status)


@pytest.mark.rule("RUN-16")
async def test_parameters_that_only_seem_equal() -> None:
    """A change to values that Python calls equal is a change: the runner gets exactly what the hooks decided about."""
    async with house(agent(start=python_hook())) as here:
        here.functions["hook"] = lambda *_: {"action": "continue", "parameters": {"force": False, "amount": 1}}
        await here.runs.submit("writer", {"force": 0, "amount": 1.0})
        record = await here.runs.claim("runner", wait=60)
        assert record is not None
        assert repr(record.effective) == repr({"amount": 1, "force": False})


@pytest.mark.rule("RUN-4", "RUN-5")
async def test_an_agent_that_fails() -> None:
    """A hook's agent that fails, or is stopped, is a failure of the hook."""
    async with house(agent(start=agent_hook()), agent("validator")) as here:

        def fails(record: RunRecord) -> Any:
            raise RuntimeError("no model")

        run = (await here.runs.submit("writer", {})).id
        await here.work(validator=fails)
        assert "agent 'validator' failed: no model" in str((await here.until(run)).error)
        run = (await here.runs.submit("writer", {})).id
        child = await here.runs.claim("runner", wait=60)
        assert child is not None
        assert (await here.runs.stop(child.id)).stopping
        await here.runs.complete(child.id, Holder("runner", child.attempt), "stopped", error="as told")
        assert "agent 'validator' stopped: as told" in str((await here.until(run)).error)


@pytest.mark.rule("RUN-4", "RUN-5", "RUN-17")
async def test_an_agent_that_takes_too_long() -> None:
    """At the timeout of a hook's agent its run is stopped, with or without a runner."""
    entry = agent_hook(timeout_seconds=0.05)
    async with house(agent(start=entry), agent("validator")) as here:
        run = (await here.runs.submit("writer", {})).id
        await here.runs.claim("runner")  # a busy machine hands out nothing within the timeout, or has nothing yet
        assert "no answer within 0.05 s" in str((await here.until(run)).error)
        assert all(child.stopping or child.status == "stopped" for child in await here.runs.store.children(run))


@pytest.mark.rule("RUN-9")
async def test_an_agent_that_does_not_take_a_hook() -> None:
    """If the hook's input does not fit its agent's schema, the run is blocked, whatever on_error says."""
    picky = agent("validator", parameters_schema=AMOUNT)
    async with house(agent(start=agent_hook(on_error="continue")), picky) as here:
        run = (await here.runs.submit("writer", {"amount": 1})).id
        assert await here.runs.claim("runner") is None
        record = await here.until(run)
        assert (record.status, record.blocked) == ("failed", True)
        assert "does not take what this hook is given" in str(record.error)
        *_, event = await here.told(run, "hook_")
        assert (event["event_type"], event["block_reason"]) == ("hook_blocked", record.error)


# -- hooks of the registry ---------------------------------------------------------------------------------------------


@pytest.mark.rule("RUN-14", "RUN-6")
async def test_registry_hooks_come_first() -> None:
    """Hooks of the system, then the tenant's, then the blueprint's: each sees the changes of the one before."""
    registry, order = HookRegistry(), []

    def adding(name: str) -> Any:
        def hook(event: str, data: Any) -> HookResult:
            order.append((name, sorted(data["parameters"])))
            return HookResult.modify({"parameters": {**data["parameters"], name: True}})

        return hook

    registry.register("run:start", adding("tenant"), tenant="acme", name="tenant's")
    registry.register("run:start", adding("system"), name="system's")
    registry.register("run:start", adding("foreign"), tenant="other", name="foreign")

    def own(event: str, data: Any) -> Any:
        order.append(("own", sorted(data["parameters"])))
        return {"action": "continue", "parameters": {**data["parameters"], "own": True}}

    async with house(agent(start=python_hook("own")), agent("plain"), registry=registry) as here:
        here.functions["own"] = own
        await here.runs.submit("writer", {}, tenant="acme")
        record = await here.runs.claim("runner", wait=60)
        assert record is not None
        assert order == [("system", []), ("tenant", ["system"]), ("own", ["system", "tenant"])]
        assert record.effective == {"system": True, "tenant": True, "own": True}
        told = await here.told(record.id, "hook_")
        assert [(event["event_type"], event["target_type"], event["target_name"]) for event in told] == [
            ("hook_start", "registry", "system's"),
            ("hook_complete", "registry", "system's"),
            ("hook_start", "registry", "tenant's"),
            ("hook_complete", "registry", "tenant's"),
            ("hook_start", "python", "tests:own"),
            ("hook_complete", "python", "tests:own"),
        ]
        await here.runs.submit("plain", {})
        plain = await here.runs.claim("runner", wait=60)
        assert plain is not None
        assert (plain.effective, plain.hooked) == ({"system": True}, True)


@pytest.mark.rule("RUN-14", "RUN-9")
async def test_a_registry_hook_that_denies() -> None:
    """A denial of the registry blocks the run with its reason; the blueprint's own hook is not asked."""
    registry = HookRegistry()

    @registry.gate("run:start", name="quota")
    def quota(event: str, data: Any) -> HookResult:
        return HookResult.deny("no runs today")

    async with house(agent(start=python_hook("never")), registry=registry) as here:
        run = (await here.runs.submit("writer", {})).id
        assert await here.runs.claim("runner") is None
        record = await here.until(run)
        assert (record.status, record.error, record.blocked) == ("failed", "no runs today", True)
        assert [(event["event_type"], event["target_name"]) for event in await here.told(run, "hook_")] == [
            ("hook_start", "quota"),
            ("hook_blocked", "quota"),
        ]


@pytest.mark.rule("RUN-14")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (HookResult.ask("Run this?", default="allow"), "there is no approver to answer it"),
        (HookResult.inject("Be careful."), "there is no context for it"),
        (HookResult.proceed(context_injection="Be careful."), "there is no context for it"),
    ],
)
async def test_a_registry_hook_that_asks_or_injects(answer: HookResult, words: str) -> None:
    """Before a run there is neither an approver nor a context: a question or a text blocks the run."""
    registry = HookRegistry()

    @registry.gate("run:start", name="careful")
    def careful(event: str, data: Any) -> HookResult:
        return answer

    async with house(agent(), registry=registry) as here:
        run = (await here.runs.submit("writer", {})).id
        assert await here.runs.claim("runner") is None
        record = await here.until(run)
        assert (record.status, record.blocked, record.handed) == ("failed", True, 0)
        assert words in str(record.error)
        assert [event["event_type"] for event in await here.told(run, "hook_")] == ["hook_start", "hook_blocked"]


@pytest.mark.rule("RUN-14", "RUN-4")
async def test_a_hook_whose_time_is_up() -> None:
    """The registry receives an event about a hook that took too long, with its run."""
    registry, heard = HookRegistry(), []

    @registry.observe("run:timeout")
    async def watch(event: str, data: Any, outcome: Any) -> None:
        heard.append((data["run_id"], data["error"]))

    slow = python_hook(timeout_seconds=0.02, on_error="continue")
    async with house(agent(start=slow, finish=slow), registry=registry) as here:
        here.functions["hook"] = hangs
        run = (await here.runs.submit("writer", {})).id
        await here.work()
        await here.until(run)
        assert heard == [(run, "no answer within 0.02 s")] * 2


@pytest.mark.rule("RUN-14", "RUN-2")
@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"amount": "x"}, "hooks of the registry made parameters that do not fit"),
        (None, "the start hook odd failed"),
        ([1], "the start hook odd failed"),
        ({"amount": object()}, "the start hook odd failed"),
    ],
)
async def test_what_registry_hooks_make_has_to_fit(made: Any, words: str) -> None:
    """Parameters of the registry's hooks that are invalid, or break the schema, fail the run before its own hook."""
    registry = HookRegistry()
    registry.register("run:start", lambda event, data: HookResult.modify({"parameters": made}), name="odd")
    async with house(agent(parameters_schema=AMOUNT, start=python_hook("never")), registry=registry) as here:
        run = (await here.runs.submit("writer", {"amount": 1})).id
        assert await here.runs.claim("runner") is None
        record = await here.until(run)
        assert (record.status, record.handed) == ("failed", 0)
        assert words in str(record.error)


@pytest.mark.rule("RUN-4", "RUN-14")
async def test_a_gate_of_the_registry_that_fails() -> None:
    """A failure of a gate fails the run with the gate's error, and the run does not count as blocked."""
    registry = HookRegistry()
    registry.gate("run:start", raises, name="quota")
    async with house(agent(), registry=registry) as here:
        run = (await here.runs.submit("writer", {})).id
        assert await here.runs.claim("runner") is None
        record = await here.until(run)
        assert (record.error, record.blocked) == (
            *("the start hook quota failed: ZeroDivisionError: division by zero", False),
        )


@pytest.mark.rule("RUN-14")
async def test_gates_look_again_at_what_a_blueprints_hook_makes() -> None:
    """A gate of the registry sees the parameters that run: it looks again after the blueprint's hook changed them."""
    registry, seen = HookRegistry(), []

    @registry.gate("run:start", name="quota")
    def quota(event: str, data: Any) -> HookResult:
        seen.append(data["parameters"])
        return HookResult.deny("too much") if data["parameters"]["amount"] > 100 else HookResult.proceed()

    async with house(agent(start=python_hook()), registry=registry) as here:
        answers: list[Any] = [{"amount": 2}, {"amount": 1_000}]
        here.functions["hook"] = lambda event, data: {"action": "continue", "parameters": answers.pop(0)}
        await here.runs.submit("writer", {"amount": 1})
        record = await here.runs.claim("runner", wait=60)
        assert record is not None
        assert record.effective == {"amount": 2}
        run = (await here.runs.submit("writer", {"amount": 1})).id
        assert await here.runs.claim("runner") is None
        blocked = await here.until(run)
        assert (blocked.error, blocked.blocked, blocked.handed) == ("too much", True, 0)
        assert [one["amount"] for one in seen] == [1, 2, 1, 1_000]
        *_, start, event = await here.told(run, "hook_")
        assert (start["target_name"], event["event_type"]) == ("quota", "hook_blocked")


@pytest.mark.rule("RUN-14")
async def test_a_gate_that_comes_while_the_blueprints_hook_works() -> None:
    """A gate that is registered while a blueprint's hook works looks at the run before a runner gets it."""
    registry, begun, go = HookRegistry(), asyncio.Event(), asyncio.Event()

    async def waits(event: str, data: Any) -> HookResult:
        begun.set()
        await go.wait()
        return HookResult.proceed()

    async with house(agent(start=python_hook()), registry=registry) as here:
        here.functions["hook"] = waits
        run = (await here.runs.submit("writer", {})).id
        assert await here.runs.claim("runner", wait=0.01) is None
        await begun.wait()
        registry.gate("run:start", lambda event, data: HookResult.deny("no runs from now on"), name="late")
        go.set()
        assert (await here.until(run)).error == "no runs from now on"


@pytest.mark.rule("RUN-4", "DSP-7")
async def test_a_start_hook_that_changes_its_input_in_place() -> None:
    """A start hook that changes its input in place, and says nothing of it, fails the run whatever on_error says."""

    def hook(event: str, data: Any) -> HookResult:
        data["parameters"]["amount"] = 2
        return HookResult.proceed()

    async with house(agent(start=python_hook(on_error="continue"))) as here:
        here.functions["hook"] = hook
        run = (await here.runs.submit("writer", {"amount": 1})).id
        assert await here.runs.claim("runner") is None
        assert "changed the input in place" in str((await here.until(run)).error)


@pytest.mark.rule("RUN-6", "RUN-12", "RUN-14")
async def test_observers_hear_of_the_hooks_of_runs() -> None:
    """Observers of hooks in the registry receive the hooks of runs, with the same fields."""
    registry, heard = HookRegistry(), []

    @registry.observe("hook:*")
    async def watch(event: str, data: Any, outcome: Any) -> None:
        heard.append((event, data["hook_type"], data["target_name"], data["run_id"]))

    async with house(agent(start=python_hook(), finish=python_hook("finish")), registry=registry) as here:
        here.functions["hook"] = answering({"action": "continue", "parameters": {}})
        here.functions["finish"] = answering({})
        run = (await here.runs.submit("writer", {})).id
        await here.work()
        await here.until(run)
        assert heard == [
            ("hook:start", "on_run_start", "tests:hook", run),
            ("hook:complete", "on_run_start", "tests:hook", run),
            ("hook:start", "on_run_finish", "tests:finish", run),
            ("hook:complete", "on_run_finish", "tests:finish", run),
        ]


# -- the end of a run --------------------------------------------------------------------------------------------------


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
            *("audit", record.id, record.session, "", 1),
        )
        assert child.session != record.session
        assert child.parameters["result_data"] == {"total": 3}
        assert (await here.do(child)).status == "completed"
        again = await here.runs.submit("writer", {}, tenant="acme", session=parent.session, parent=record.id)
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
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def waits(event: str, data: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with house(agent(start=python_hook("waits")), agent("two", start=agent_hook()), agent("validator")) as here:
        here.functions["waits"] = waits
        run = (await here.runs.submit("writer", {})).id
        assert await here.runs.claim("runner", wait=0.01) is None
        await begun.wait()
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
    """A cycle of agents ends at the limit, with an error that names the run above."""
    async with house(agent("a"), agent("b"), max_depth=3) as here:
        record = await here.runs.submit("a", {})
        for name in ("b", "a", "b"):
            record = await here.runs.submit(name, {}, parent=record.id)
        with pytest.raises(AgentsTooDeep, match=f"'a' below run {record.id} of 'b'; break the cycle"):
            await here.runs.submit("a", {}, parent=record.id)


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


@pytest.mark.rule("RUN-12")
async def test_an_agent_at_work_is_seen() -> None:
    """While the agent of a start hook works, the run shows that it is starting, and which hook it waits for."""
    async with house(agent(start=agent_hook()), agent("validator")) as here:
        run = (await here.runs.submit("writer", {})).id
        assert await here.runs.claim("runner", agents=["writer"]) is None
        validator = await here.runs.claim("runner", agents=["validator"], wait=60)
        assert validator is not None
        told = await here.told(run)
        assert [one["event_type"] for one in told] == ["run_queued", "run_starting", "hook_start", "run_child"]
        assert told[2]["target_name"] == "validator"
        await here.do(validator, validator=answering({"action": "continue", "parameters": {}}))
        assert (await here.until(run, "ready")).status == "starting"
