"""Calls that their program carries out itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.session.program_call import ProgramModelCall, ProgramToolCall
from amplifier_hooks.testing import HANG, CollectingAudit, ScriptedApprover

GIVEN = {"path": "notes"}


@pytest.mark.rule("DIA-7")
async def test_it_runs_between_the_decision_and_the_report() -> None:
    """The program gets the input as the hooks left it, and its result passes the hooks behind the tool."""
    hooks, audit = HookRegistry(), CollectingAudit()
    hooks.gate("tool:pre", name="pre")(lambda event, data: HookResult.modify({"tool_input": {"path": "safe"}}))
    hooks.on("tool:post", name="post")(lambda event, data: HookResult.modify({"result": f"{data['result']}, masked"}))
    async with SessionCoordinator(hooks=hooks, audit=audit) as session:
        call = ProgramToolCall(session, "write", GIVEN)
        assert await call.admit()
        assert await call.admit()
        assert call.input == {"path": "safe"}
        assert "tool.done" not in audit.kinds
        outcome = await call.report_result("wrote")
    assert (outcome.value, call.outcome) == ("wrote, masked", outcome)
    assert audit.kinds.count("tool.running") == audit.kinds.count("tool.done") == 1


@pytest.mark.rule("DIA-7")
async def test_a_denied_call_says_why() -> None:
    """A call that is denied is not admitted, and its outcome has the reason."""
    hooks = HookRegistry()
    hooks.gate("tool:pre", name="guard")(lambda event, data: HookResult.deny("not here"))
    async with SessionCoordinator(hooks=hooks) as session:
        call = ProgramToolCall(session, "write", GIVEN)
        assert not await call.admit()
    assert call.outcome is not None
    assert "not here" in (call.outcome.reason or "")


@pytest.mark.rule("DIA-7")
async def test_what_nobody_reports_is_on_record_as_cancelled() -> None:
    """A call without a report is on record as cancelled, once."""
    audit = CollectingAudit()
    async with SessionCoordinator(audit=audit) as session:
        call = ProgramToolCall(session, "write", GIVEN)
        assert await call.admit()
        await call.give_up()
        await call.give_up()
    assert audit.kinds.count("tool.cancelled") == 1


@pytest.mark.rule("DIA-7")
async def test_a_call_that_was_given_up_is_admitted_no_more() -> None:
    """A call that was given up raises its cancellation, however often it is asked for."""
    async with SessionCoordinator() as session:
        call = ProgramToolCall(session, "write", GIVEN)
        assert await call.admit()
        await call.give_up()
        for _ in range(2):
            with pytest.raises(asyncio.CancelledError):
                await call.admit()


@pytest.mark.rule("DIA-11")
async def test_no_question_is_about_arguments_that_are_no_json() -> None:
    """A call is never taken for one whose arguments cannot be read."""
    async with SessionCoordinator() as session:
        call = ProgramToolCall(session, "write", GIVEN)
        assert await call.admit()
        for given in (b'{"path": "notes", "path": "notes"}', {"path": {1}}, None):
            assert not call.asks_about("write", given)
            assert not call.permits("write", given)
        await call.give_up()


@pytest.mark.rule("DIA-7")
async def test_cancelling_the_question_takes_it_back() -> None:
    """A program that gives up while a person is asked leaves no open question behind."""
    hooks = HookRegistry()
    hooks.gate("tool:pre", name="guard")(lambda event, data: HookResult.ask("Write it?"))
    approver = ScriptedApprover(HANG)
    async with SessionCoordinator(hooks=hooks, approvals=approver) as session:
        waiting = asyncio.create_task(ProgramToolCall(session, "write", GIVEN).admit())
        await approver.asked.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert approver.step_names == ["request", "withdraw"]


@pytest.mark.rule("DIA-7")
async def test_cancelling_the_report_ends_the_call() -> None:
    """A program that is cancelled while hooks judge the result waits for its call to end."""
    hooks, audit, seen = HookRegistry(), CollectingAudit(), asyncio.Event()

    @hooks.on("tool:post", name="slow")
    async def slow(event: str, data: Any) -> None:
        seen.set()
        await asyncio.Event().wait()

    async with SessionCoordinator(hooks=hooks, audit=audit) as session:
        call = ProgramToolCall(session, "write", GIVEN)
        assert await call.admit()
        reporting = asyncio.create_task(call.report_result("wrote"))
        await seen.wait()
        reporting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reporting
    assert "tool.done" in audit.kinds


@pytest.mark.rule("DIA-7")
async def test_nothing_is_reported_that_was_not_asked_about() -> None:
    """A report about a call that was not admitted is an error."""
    async with SessionCoordinator() as session:
        with pytest.raises(RuntimeError, match="await admit"):
            await ProgramToolCall(session, "write", GIVEN).report_result("wrote")


@pytest.mark.rule("DIA-7")
async def test_a_tool_that_failed_is_an_error() -> None:
    """A failure that the program reports is the outcome's error."""
    async with SessionCoordinator() as session:
        call = ProgramToolCall(session, "write", GIVEN)
        assert await call.admit()
        outcome = await call.report_error(OSError("the disk is full"))
    assert isinstance(outcome.error, OSError)


@pytest.mark.rule("DIA-3")
async def test_a_model_call_passes_its_hooks() -> None:
    """A model is called with the messages as the hooks left them, and its answer passes the hooks, too."""
    hooks = HookRegistry()
    hooks.gate("llm:pre", name="pre")(lambda event, data: HookResult.modify({"messages": [*data["messages"], "more"]}))
    hooks.gate("llm:post", name="post")(lambda event, data: HookResult.deny("not that"))
    async with SessionCoordinator(hooks=hooks) as session:
        call = ProgramModelCall(session, ["hello"])
        assert await call.admit()
        assert call.input == ["hello", "more"]
        outcome = await call.report_result("an answer")
    assert outcome.denied
    assert "not that" in (outcome.reason or "")
