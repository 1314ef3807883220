"""Sessions of other programs: their questions, over a real socket and the real bridge."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from attrs import define, field

from amplifier_hooks import AuditLog, HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks import bridge as bridge_module
from amplifier_hooks.definitions.kinds.event_codec import ProgramExit
from amplifier_hooks.errors import InvalidPayload
from amplifier_hooks.programs.dialects import DIALECTS, Dialect, Verdict
from amplifier_hooks.programs.program_session import DeliveryStore, ProgramOutbox, ProgramSession, ProgramSessions
from amplifier_hooks.server.edge.listen import listening, unix_socket
from amplifier_hooks.server.program_api import create_app
from amplifier_hooks.storage.postgres import PostgresDatabase
from amplifier_hooks.storage.sqlite import SqliteDatabase
from amplifier_hooks.testing import CollectingAudit, ManualClock, ScriptedApprover
from approval_backends.backend import DeferredApprovals
from approval_backends.lifecycle import Decider
from approval_backends.stores.sqlite import SqliteStore
from tests.stores import DSN, schema, server, until

BRIDGE = Path(bridge_module.__file__)
PERSON = Decider(name="ada", channel="test")


def asks(event: str, **fields: Any) -> dict[str, Any]:
    """Return a question of Claude Code."""
    common = {"session_id": "s", "transcript_path": "/tmp/t", "cwd": "/tmp", "hook_event_name": event}
    return {**common, **fields}


def tool(event: str, number: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a question about a tool call."""
    call = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": f"toolu_{number}"}
    return asks(event, **call, **fields)


def answer_in(ended: ProgramExit) -> dict[str, Any]:
    """Return the answer that the program reads."""
    assert (ended.code, ended.errors) == (0, b"")
    answer: dict[str, Any] = json.loads(ended.output or b"{}")
    return answer


def decision(ended: ProgramExit) -> str | None:
    """Return the permission in the answer."""
    value: str | None = answer_in(ended).get("hookSpecificOutput", {}).get("permissionDecision")
    return value


@pytest.fixture
def registry() -> HookRegistry:
    """Return a registry without hooks."""
    return HookRegistry()


async def full_call(pool: ProgramSessions, number: int = 1, **result: Any) -> tuple[ProgramExit, ProgramExit]:
    """Admit a call and report its result."""
    before = await pool.answer("claude_code", tool("PreToolUse", number))
    after = await pool.answer("claude_code", tool("PostToolUse", number, tool_response=result or {"stdout": "ok"}))
    return before, after


# -- the way of a call -------------------------------------------------------------------------------------------------


@pytest.mark.rule("DIA-2")
async def test_a_call_nobody_objects_to_is_left_to_the_program(registry: HookRegistry) -> None:
    """A call to which no hook objects is neither granted nor refused, and both its ends are on record."""
    audit = CollectingAudit()
    pool = ProgramSessions(registry, options={"audit": audit})
    before, after = await full_call(pool)
    await pool.close()
    assert (before, after) == (ProgramExit(code=0), ProgramExit(code=0))
    kinds = [record.kind for record in audit.records]
    assert "tool.running" in kinds
    assert "tool.done" in kinds


@pytest.mark.rule("DIA-2", "AUD-9")
async def test_one_session_ends_and_the_others_go_on(
    registry: HookRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that ends, or makes room for another, leaves the record to the others; its program may come back."""
    monkeypatch.setattr("amplifier_hooks.programs.program_session.MOST", 2)
    async with AuditLog.open(tmp_path / "record.jsonl") as log:
        pool = ProgramSessions(registry, options={"audit": log})

        async def decided(session: str, event: str = "PreToolUse") -> str | None:
            return decision(await pool.answer("claude_code", {**tool(event), "session_id": session}))

        assert [await decided(session) for session in "ab"] == [None, None]
        await decided("a", "SessionEnd")
        assert [await decided(session) for session in "bacda"] == [None] * 5
        await pool.close()


@pytest.mark.rule("DIA-2")
async def test_a_denied_call_says_why(registry: HookRegistry) -> None:
    """A gate's denial reaches the program with hook and reason, and the call is never admitted."""

    @registry.gate("tool:pre", match="Bash", name="guard")
    async def guard(event: str, data: Any) -> HookResult:
        return HookResult.deny("not on Sundays")

    pool = ProgramSessions(registry)
    answer = answer_in(await pool.answer("claude_code", tool("PreToolUse")))["hookSpecificOutput"]
    await pool.close()
    assert answer["permissionDecision"] == "deny"
    assert "guard" in answer["permissionDecisionReason"]
    assert "not on Sundays" in answer["permissionDecisionReason"]


@pytest.mark.rule("DIA-2")
@pytest.mark.parametrize(("answer", "expected"), [("Allow", "allow"), ("Deny", "deny")])
async def test_a_person_decides_in_our_place(registry: HookRegistry, answer: str, expected: str) -> None:
    """The program gets the approver's decision, and does not ask its own user again."""

    @registry.gate("tool:pre")
    async def guard(event: str, data: Any) -> HookResult:
        return HookResult.ask("Run this?")

    pool = ProgramSessions(registry, options={"approvals": ScriptedApprover(answer)})
    before = await pool.answer("claude_code", tool("PreToolUse"))
    await pool.close()
    assert decision(before) == expected


@pytest.mark.rule("DIA-11")
async def test_an_approval_is_not_found_by_its_id(registry: HookRegistry) -> None:
    """A later call under an approved id is left to the program's own prompt, and the approved call is over."""

    @registry.gate("tool:pre", match="Read")
    async def guard(event: str, data: Any) -> HookResult:
        return HookResult.ask("Read this?")

    approver, audit = ScriptedApprover("Allow"), CollectingAudit()
    pool = ProgramSessions(registry, options={"approvals": approver, "audit": audit})
    read = {**tool("PreToolUse"), "tool_name": "Read", "tool_input": {"file_path": "a"}}
    assert decision(await pool.answer("claude_code", read)) == "allow"
    assert decision(await pool.answer("claude_code", tool("PreToolUse"))) is None
    assert audit.kinds.count("tool.cancelled") == 1
    assert approver.step_names == ["request", "claim", "settle"]
    assert list(approver.became) == ["unknown"]
    await pool.answer("claude_code", tool("PostToolUse", tool_response="ok"))
    await pool.close()
    assert audit.kinds.count("tool.done") == 1


@pytest.mark.rule("DIA-11")
async def test_two_questions_under_one_id_at_once(registry: HookRegistry) -> None:
    """Of two calls that are asked about under one id at once, one is given up, and the other is reported."""
    audit = CollectingAudit()
    pool = ProgramSessions(registry, options={"audit": audit})
    other = {**tool("PreToolUse"), "tool_input": {"command": "pwd"}}
    await asyncio.gather(*(pool.answer("claude_code", one) for one in (tool("PreToolUse"), other)))
    assert audit.kinds.count("tool.cancelled") == 1
    await pool.close()
    assert audit.kinds.count("tool.cancelled") == audit.kinds.count("tool.running") == 2


@pytest.mark.rule("DIA-11")
async def test_each_question_has_its_own_folder(registry: HookRegistry, tmp_path: Path) -> None:
    """Hooks and approver see the folder of each question, and an "always" for one folder holds in no other."""
    seen: list[str] = []
    for event in ("prompt:submit", "tool:post", "agent:stop"):
        registry.on(event)(lambda event, data: seen.append(data["cwd"]))

    @registry.gate("tool:pre")
    async def guard(event: str, data: Any) -> HookResult:
        return HookResult.ask("Run this?", options=["Allow always", "Deny"])

    approver = ScriptedApprover("Allow always", "Deny")
    pool = ProgramSessions(registry, options={"approvals": approver})
    folders = [str(tmp_path / name) for name in ("one", "one", "two")]
    told = [
        decision(await pool.answer("claude_code", {**tool("PreToolUse", number), "cwd": folder}))
        for number, folder in enumerate(folders)
    ]
    assert told == ["allow", "allow", "deny"]
    assert [request.cwd for request in approver.requests] == [folders[0], folders[2]]
    for event in ("UserPromptSubmit", "PostToolUse", "Stop"):
        await pool.answer("claude_code", {**tool(event, 9, prompt="hi"), "cwd": folders[2]})
    assert seen == [folders[2]] * 3
    await pool.close()


@pytest.mark.rule("DIA-11")
@pytest.mark.parametrize("cwd", ["relative", "", 1, "/a\0b", ["/"]])
async def test_a_folder_that_is_none_is_refused(cwd: Any, registry: HookRegistry) -> None:
    """A question whose folder is no absolute path is refused."""
    pool = ProgramSessions(registry)
    with pytest.raises(InvalidPayload, match="absolute path"):
        await pool.answer("claude_code", {**tool("PreToolUse"), "cwd": cwd})
    await pool.close()


@pytest.mark.rule("DIA-11")
@pytest.mark.parametrize("event", ["PostToolUse", "PostToolUseFailure"])
@pytest.mark.parametrize("change", [{"tool_input": {}}, {"tool_name": "Shell"}, {"tool_input": 1}])
async def test_a_report_of_another_act_is_a_mismatch(
    change: dict[str, Any], event: str, registry: HookRegistry
) -> None:
    """A report of another act is on record with both digests, warns the user, and settles the approval as unknown."""
    registry.gate("tool:pre", name="guard")(lambda event, data: HookResult.ask("Run this?"))
    registry.on("tool:post", name="redact")(lambda event, data: HookResult.modify({"result": "***"}))
    approver, audit = ScriptedApprover("Allow"), CollectingAudit()
    pool = ProgramSessions(registry, options={"approvals": approver, "audit": audit})
    await pool.answer("claude_code", tool("PreToolUse"))
    report = {**tool(event, tool_response="secret", error="exit 1"), **change}
    answer = answer_in(await pool.answer("claude_code", report))
    await pool.close()
    (facts,) = audit.facts("tool.mismatch")
    (running,) = audit.facts("tool.running")
    assert facts["digest"] == running["digest"] != facts["reported"]
    assert "another call" in answer["systemMessage"]
    assert answer["systemMessage"].startswith("warning: ")
    assert list(approver.became) == ["unknown"]
    assert {"tool.done", "tool.failed", "tool.cancelled"}.isdisjoint(audit.kinds)
    if event == "PostToolUse":
        assert answer["hookSpecificOutput"]["updatedToolOutput"] == "***"


async def test_an_unapproved_change_is_asked_about_there(registry: HookRegistry) -> None:
    """The program's own user decides about a changed input without an approval."""

    @registry.on("tool:pre")
    async def change(event: str, data: Any) -> HookResult:
        return HookResult.modify({"tool_input": {"command": "ls -l"}})

    pool = ProgramSessions(registry)
    answer = answer_in(await pool.answer("claude_code", tool("PreToolUse")))["hookSpecificOutput"]
    await pool.close()
    assert (answer["permissionDecision"], answer["updatedInput"]) == ("ask", {"command": "ls -l"})


@pytest.mark.rule("DIA-2")
@pytest.mark.parametrize("passing", [False, True])
async def test_what_a_hook_says_after_the_tool_reaches_the_model(passing: bool, registry: HookRegistry) -> None:
    """An injection after a tool, also an ephemeral one, is in the answer to its report, and the message beside it."""

    @registry.on("tool:post")
    async def lint(event: str, data: Any) -> HookResult:
        return HookResult.inject("E501 in line 3", user_message="one lint issue", ephemeral=passing)

    pool = ProgramSessions(registry)
    _, after = await full_call(pool)
    await pool.close()
    answer = answer_in(after)
    assert "E501 in line 3" in answer["hookSpecificOutput"]["additionalContext"]
    assert "one lint issue" in answer["systemMessage"]
    assert "one lint issue" not in answer["hookSpecificOutput"]["additionalContext"]


async def test_a_result_can_be_replaced(registry: HookRegistry) -> None:
    """A hook's replacement of a result reaches the program."""

    @registry.on("tool:post")
    async def redact(event: str, data: Any) -> HookResult:
        return HookResult.modify({"result": {"stdout": "***"}})

    pool = ProgramSessions(registry)
    _, after = await full_call(pool, stdout="secret")
    await pool.close()
    assert answer_in(after)["hookSpecificOutput"]["updatedToolOutput"] == {"stdout": "***"}


async def test_a_failed_tool_is_a_failed_tool(registry: HookRegistry) -> None:
    """A failure that the program reports is the tool's own, and reaches the hooks of tool:error."""
    told = []

    @registry.on("tool:error")
    async def hint(event: str, data: Any) -> HookResult:
        told.append(data["error"]["message"])
        return HookResult.inject("try again")

    pool = ProgramSessions(registry)
    await pool.answer("claude_code", tool("PreToolUse"))
    after = await pool.answer("claude_code", tool("PostToolUseFailure", error="exit 1"))
    await pool.close()
    assert told == ["exit 1"]
    assert "try again" in answer_in(after)["hookSpecificOutput"]["additionalContext"]


async def test_calls_at_once_do_not_meet(registry: HookRegistry) -> None:
    """Several calls of one session, reported in another order, keep their own results."""
    seen = {}

    @registry.on("tool:post")
    async def note(event: str, data: Any) -> None:
        seen[data["tool_call_id"]] = data["result"]

    pool = ProgramSessions(registry)
    await asyncio.gather(*(pool.answer("claude_code", tool("PreToolUse", number)) for number in range(20)))
    for number in reversed(range(20)):
        await pool.answer("claude_code", tool("PostToolUse", number, tool_response={"n": number}))
    await pool.close()
    assert seen == {f"toolu_{number}": {"n": number} for number in range(20)}


async def test_calls_without_a_name_are_told_by_what_they_do(registry: HookRegistry) -> None:
    """A program that names no calls has its reports matched by tool and input, the oldest call first."""
    pool = ProgramSessions(registry, options={"audit": (audit := CollectingAudit())})
    call = {"session_id": "s", "tool_name": "run_shell_command", "tool_input": {"command": "ls"}}
    await pool.answer("gemini", {**call, "hook_event_name": "BeforeTool"})
    await pool.answer("gemini", {**call, "hook_event_name": "AfterTool", "tool_response": {"llmContent": "x"}})
    await pool.close()
    assert [record.kind for record in audit.records].count("tool.done") == 1


async def test_a_report_about_nothing_is_an_event(registry: HookRegistry) -> None:
    """A report about an unknown call still reaches the hooks."""
    told = []
    registry.on("tool:post")(lambda event, data: told.append(data["result"]))
    pool = ProgramSessions(registry)
    await pool.answer("claude_code", tool("PostToolUse", tool_response="late"))
    await pool.close()
    assert told == ["late"]


async def test_a_call_that_is_never_reported_is_unknown(registry: HookRegistry) -> None:
    """When the session ends, a call without a report has an unknown outcome on record."""
    audit = CollectingAudit()
    pool = ProgramSessions(registry, options={"audit": audit})
    await pool.answer("claude_code", tool("PreToolUse"))
    await pool.answer("claude_code", asks("SessionEnd", reason="other"))
    assert "tool.cancelled" in [record.kind for record in audit.records]
    await pool.close()


# -- asking a person ---------------------------------------------------------------------------------------------------


def asking(registry: HookRegistry) -> None:
    """Register a gate that asks about every call."""

    @registry.gate("tool:pre", name="guard")
    async def guard(event: str, data: Any) -> HookResult:
        return HookResult.ask("Run this?")


@pytest.mark.rule("DIA-6", "APR-4")
async def test_the_time_of_the_question_is_up_first(registry: HookRegistry, tmp_path: Path) -> None:
    """A question whose own timeout ends with the wait has expired; the program reads so, and another try asks again."""

    @registry.gate("tool:pre", name="guard")
    async def guard(event: str, data: Any) -> HookResult:
        return HookResult.ask("Run this?", timeout=0.01)

    async with DeferredApprovals(SqliteStore(tmp_path / "a.db")) as approvals:
        pool = ProgramSessions(registry, waits=0.01, options={"approvals": approvals})
        for number in (1, 2):
            answer = await pool.answer("claude_code", tool("PreToolUse", number))
            assert decision(answer) == "deny"
            assert answer_in(answer)["hookSpecificOutput"]["permissionDecisionReason"] == (
                "Operation denied by guard: Timeout - denied by default\n"
                "Not decided yet: no approver answered in time. Another try of this call asks again."
            )
        assert [record.status for record in await approvals.broker.store.history()] == ["expired"] * 2
        await pool.close()


@pytest.mark.rule("APR-12", "DIA-6")
async def test_a_call_that_ran_is_refused_with_its_result(registry: HookRegistry, tmp_path: Path) -> None:
    """A call that was approved and has run does not run again under its id, and the program reads its result."""
    asking(registry)
    async with DeferredApprovals(SqliteStore(tmp_path / "a.db")) as approvals:
        pool = ProgramSessions(registry, waits=0.01, options={"approvals": approvals})
        await pool.answer("claude_code", tool("PreToolUse"))
        (record,) = await approvals.broker.pending(PERSON)
        allow = next(option.id for option in record.request.options if option.allows)
        await approvals.broker.decide(record.id, record.digest, allow, PERSON)
        before, _ = await full_call(pool, stdout="a.txt")
        assert decision(before) == "allow"
        again = await pool.answer("claude_code", tool("PreToolUse"))
        assert decision(again) == "deny"
        assert answer_in(again)["hookSpecificOutput"]["permissionDecisionReason"] == (
            'This call has run already, and is not run again. Its result was:\n{"stdout": "a.txt"}'
        )
        await pool.close()


@pytest.mark.rule("DIA-6")
async def test_what_is_approved_later_is_found_by_the_second_try(registry: HookRegistry, tmp_path: Path) -> None:
    """A question without an answer in time is refused for now; once it is approved, another try of the call runs."""
    asking(registry)
    async with DeferredApprovals(SqliteStore(tmp_path / "a.db")) as approvals:
        pool = ProgramSessions(registry, waits=0.01, options={"approvals": approvals})
        first = await pool.answer("claude_code", tool("PreToolUse", 1))
        assert decision(first) == "deny"
        assert answer_in(first)["hookSpecificOutput"]["permissionDecisionReason"] == (
            "Not decided yet: Bash waits for an approval. The question stays open. Once it is approved, make "
            "the same call again."
        )
        (record,) = await approvals.broker.pending(PERSON)
        allow = next(option.id for option in record.request.options if option.allows)
        assert (await approvals.broker.decide(record.id, record.digest, allow, PERSON)).accepted
        second = await pool.answer("claude_code", tool("PreToolUse", 2))
        assert decision(second) == "allow"
        third = await pool.answer("claude_code", tool("PreToolUse", 3))
        assert decision(third) == "deny", "an approval is for one call"
        deep: Any = "x"
        for _ in range(65):
            deep = [deep]
        odd = answer_in(await pool.answer("claude_code", {**tool("PreToolUse", 4), "tool_input": {"command": deep}}))
        assert "nested deeper" in odd["hookSpecificOutput"]["permissionDecisionReason"]
        await pool.close()


@pytest.mark.rule("DIA-6")
@pytest.mark.parametrize("end", ["closed", "killed"])
async def test_the_second_try_after_a_restart(registry: HookRegistry, tmp_path: Path, end: str) -> None:
    """After a restart the server leads the second try to the open question, and the third try is a new question."""
    asking(registry)
    async with DeferredApprovals(SqliteStore(tmp_path / "a.db")) as before, opened_pool(registry, before) as pool:
        assert decision(await pool.answer("claude_code", tool("PreToolUse", 1))) == "deny"
        if end == "closed":
            await pool.close()
        async with DeferredApprovals(SqliteStore(tmp_path / "a.db")) as after, opened_pool(registry, after) as again:
            assert decision(await again.answer("claude_code", tool("PreToolUse", 2))) == "deny"
            (record,) = await after.broker.pending(PERSON)
            allow = next(option.id for option in record.request.options if option.allows)
            assert (await after.broker.decide(record.id, record.digest, allow, PERSON)).accepted
            async with opened_pool(registry, after) as third:
                assert decision(await third.answer("claude_code", tool("PreToolUse", 3))) == "allow"
            async with opened_pool(registry, after) as fourth:
                assert decision(await fourth.answer("claude_code", tool("PreToolUse", 4))) == "deny"
            assert [one.id for one in await after.broker.pending(PERSON)] != [record.id]


@asynccontextmanager
async def opened_pool(registry: HookRegistry, approvals: DeferredApprovals) -> AsyncIterator[ProgramSessions]:
    """Return a server's sessions over this store, as after a start."""
    book = await DeliveryStore.beside(approvals.broker.store.database)  # type: ignore[attr-defined]  # this store has a database
    pool = ProgramSessions(registry, waits=0.01, options={"approvals": approvals}, deliveries=book)
    yield pool
    await pool.close()


@pytest.mark.rule("DIA-6")
async def test_a_book_that_cannot_be_read(registry: HookRegistry, tmp_path: Path) -> None:
    """If a try cannot be stored for after a restart, the answer stands, and the second try still finds its question."""
    asking(registry)
    async with DeferredApprovals(SqliteStore(tmp_path / "a.db")) as approvals:
        outbox = ProgramOutbox()
        lost = DeliveryStore(SqliteDatabase(tmp_path / "closed.db")).tries("s")
        session = SessionCoordinator(registry, session_id="s", context=outbox, approvals=approvals, approval_wait=0.01)
        program_session = ProgramSession(DIALECTS["claude_code"], session, outbox, "inbox", lost)
        for number in (1, 2):
            answer = await program_session.answer(tool("PreToolUse", number))
            assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"
        assert len(await approvals.broker.pending(PERSON)) == 1
        await program_session.close()


@pytest.mark.rule("DIA-2", "DIA-4")
@pytest.mark.parametrize("answer", [HookResult.deny("not today"), HookResult.modify({"prompt": "another"})])
async def test_a_prompt_that_is_denied_or_changed_is_refused(registry: HookRegistry, answer: HookResult) -> None:
    """A prompt that a hook denies, or changes, does not reach the program's model; any other does."""
    pool = ProgramSessions(registry)
    assert answer_in(await pool.answer("claude_code", asks("UserPromptSubmit", prompt="go"))) == {}
    registry.gate("prompt:submit", name="guard")(lambda event, data: answer)
    refused = answer_in(await pool.answer("claude_code", asks("UserPromptSubmit", prompt="go")))
    assert (refused["decision"], bool(refused["reason"])) == ("block", True)
    await pool.close()


@pytest.mark.rule("DIA-6")
@pytest.mark.parametrize(("place", "decided"), [("inbox", "deny"), ("defer", "defer"), ("both", "ask")])
async def test_the_answer_without_a_decision(registry: HookRegistry, tmp_path: Path, place: Any, decided: str) -> None:
    """Without a decision in time the program refuses, ends its run, or asks at its own prompt, as the place says."""
    asking(registry)
    async with DeferredApprovals(SqliteStore(tmp_path / "a.db")) as approvals:
        pool = ProgramSessions(registry, place, waits=0.01, options={"approvals": approvals})
        assert decision(await pool.answer("claude_code", tool("PreToolUse"))) == decided
        await pool.close()


# -- deliveries --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("DIA-8")
@pytest.mark.fault("F-WH-13")
async def test_a_question_that_is_delivered_twice(registry: HookRegistry, tmp_path: Path) -> None:
    """A second delivery under one id gets the first answer, before and after a restart, and no hook runs again."""
    ran: list[Any] = []

    @registry.gate("tool:pre", name="guard")
    async def guard(event: str, data: Any) -> HookResult:
        ran.append(data)
        return HookResult.deny(f"number {len(ran)}")

    def posted(pool: ProgramSessions, delivery: str | None, command: str = "ls", program: str = "claude_code") -> Any:
        question = {**tool("PreToolUse"), "tool_input": {"command": command}}
        return pool.answer_once(program, json.dumps(question).encode(), delivery)

    async with SqliteDatabase(tmp_path / "book.db") as database:
        clock = ManualClock()
        pool = ProgramSessions(registry, deliveries=await DeliveryStore.beside(database, clock))
        first, second = await asyncio.gather(posted(pool, "msg_1"), posted(pool, "msg_1"))
        assert first == second == await posted(pool, "msg_1")
        assert len(ran) == 1
        with pytest.raises(InvalidPayload, match="another question"):
            await posted(pool, "msg_1", "rm")
        await pool.close()
    async with SqliteDatabase(tmp_path / "book.db") as database:
        pool = ProgramSessions(registry, deliveries=await DeliveryStore.beside(database, clock))
        assert await posted(pool, "msg_1") == first
        with pytest.raises(InvalidPayload, match="another question"):
            await posted(pool, "msg_1", "rm")
        assert len(ran) == 1
        assert await posted(pool, "msg_1", program="codex") != first
        assert await posted(pool, "msg_2") != first
        assert len(ran) == 3
        for _ in range(2):
            await posted(pool, None)
        assert len(ran) == 5
        clock.advance(25 * 3600)
        await posted(pool, "msg_3")
        assert await posted(pool, "msg_1") != first, "answers are kept for a day"
        await pool.close()


@pytest.mark.rule("DIA-8")
async def test_a_delivery_belongs_to_its_tenant(registry: HookRegistry, tmp_path: Path) -> None:
    """A question under the id of another tenant's delivery is decided about, although both share one store."""

    @registry.gate("tool:pre", name="guard")
    async def guard(event: str, data: Any) -> HookResult | None:
        return HookResult.deny("not there") if data["tenant_id"] == "there" else None

    question = json.dumps(tool("PreToolUse")).encode()
    async with SqliteDatabase(tmp_path / "book.db") as database:
        deliveries = await DeliveryStore.beside(database)
        answers = []
        for tenant in ("here", "there"):
            pool = ProgramSessions(registry, options={"tenant": tenant}, deliveries=deliveries)
            answers.append((await pool.answer_once("claude_code", question, "msg_1")).output)
            await pool.close()
    assert answers[0] == b""
    assert b"not there" in answers[1]


@pytest.mark.rule("DIA-6", "DIA-8")
@pytest.mark.postgres
async def test_the_book_in_postgres() -> None:
    """Another server finds the answers that are kept in PostgreSQL."""
    await server()
    async with schema() as name, PostgresDatabase(DSN, schema=name) as one, PostgresDatabase(DSN, schema=name) as two:
        books = [await DeliveryStore.beside(database) for database in (one, two)]
        ended = ProgramExit(code=2, errors="n\u00f6\0".encode())

        async def answer() -> ProgramExit:
            return ended

        async def never() -> ProgramExit:
            raise AssertionError

        assert [await books[0].answer_once("m", b"?", answer), await books[1].answer_once("m", b"?", never)] == [
            ended,
            ended,
        ]
        first, second = (book.tries("acme", "codex", "s") for book in books)
        await first.keep("content", "call_1")
        await second.keep("content", "call_2")
        assert await first.load() == {"content": "call_2"}
        assert await books[0].tries("acme", "codex", "t").load() == {}
        await first.forget("content")
        assert await second.load() == {}


@pytest.mark.rule("DIA-8")
@pytest.mark.fault("F-WH-13")
async def test_a_delivery_that_was_given_up(registry: HookRegistry, tmp_path: Path) -> None:
    """An unanswered delivery is answered the next time, and a delivery that waited for it is, too."""
    async with SqliteDatabase(tmp_path / "book.db") as database:
        book, answers = await DeliveryStore.beside(database), [asyncio.Event(), asyncio.Event()]
        began: list[int] = []

        async def answer() -> ProgramExit:
            began.append(len(began))
            await answers[began[-1]].wait()
            return ProgramExit(code=0, output=b"{}")

        first = asyncio.ensure_future(book.answer_once("msg_1", b"?", answer))
        await until(lambda: len(began) == 1)
        second = asyncio.ensure_future(book.answer_once("msg_1", b"?", answer))
        first.cancel()
        await until(lambda: len(began) == 2)
        answers[1].set()
        assert await second == ProgramExit(code=0, output=b"{}")
        assert await book.answer_once("msg_1", b"?", answer) == await second
        assert first.cancelled()
        assert len(began) == 2


@pytest.mark.rule("DIA-6")
async def test_the_program_may_ask_for_us(registry: HookRegistry) -> None:
    """With native asking the program's own prompt decides, and the hooks get reports about the allowed calls."""
    asking(registry)
    told = []
    registry.on("tool:post")(lambda event, data: told.append(data["tool_call_id"]))
    pool = ProgramSessions(registry, asking="native")
    before, _ = await full_call(pool)
    assert decision(before) == "ask"
    assert told == ["toolu_1"]
    await pool.close()


async def test_a_program_that_cannot_ask_refuses(registry: HookRegistry) -> None:
    """At a program without a prompt for hooks, an open question is a refusal."""
    asking(registry)
    pool = ProgramSessions(registry, asking="native")
    answer = answer_in(await pool.answer("codex", tool("PreToolUse")))["hookSpecificOutput"]
    assert answer["permissionDecision"] == "deny"
    await pool.close()


async def test_hanging_up_takes_the_question_back(registry: HookRegistry, tmp_path: Path) -> None:
    """If the program hangs up while an approver is asked, the question is withdrawn."""
    asking(registry)
    async with DeferredApprovals(SqliteStore(tmp_path / "a.db")) as approvals:
        pool = ProgramSessions(registry, waits=30.0, options={"approvals": approvals})
        task = asyncio.create_task(pool.answer("claude_code", tool("PreToolUse")))
        with approvals.broker.watch() as watch:
            while not await approvals.broker.pending(PERSON):
                await watch.wait(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await approvals.broker.pending(PERSON) == []
        await pool.close()


@pytest.mark.rule("DIA-6")
async def test_a_bridge_that_is_killed_takes_the_question_back(registry: HookRegistry, tmp_path: Path) -> None:
    """If the program kills its bridge while an approver is asked, the server withdraws the question."""
    asking(registry)
    path = os.fspath(tmp_path / "hooks.sock")
    async with DeferredApprovals(SqliteStore(tmp_path / "a.db")) as approvals:
        pool = ProgramSessions(registry, waits=30.0, options={"approvals": approvals})
        async with listening(create_app(pool), unix_socket(Path(path))):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", os.fspath(BRIDGE), path, "claude_code", stdin=asyncio.subprocess.PIPE
            )
            assert process.stdin is not None
            process.stdin.write(json.dumps(tool("PreToolUse")).encode())
            process.stdin.close()
            with approvals.broker.watch() as watch:
                while not await approvals.broker.pending(PERSON):
                    await watch.wait(1.0)
                process.kill()
                while await approvals.broker.pending(PERSON):
                    await watch.wait(1.0)
            await process.wait()
        assert [record.status for record in await approvals.broker.store.history()] == ["cancelled"]
        await pool.close()


# -- the rest of a session ---------------------------------------------------------------------------------------------


async def test_a_prompt_begins_a_turn_and_a_stop_ends_it(registry: HookRegistry) -> None:
    """A hook may refuse a prompt, or a stop with an instruction, and the turn ends if it does not refuse."""
    seen: list[str] = []
    for event in ("prompt:submit", "prompt:complete"):
        registry.observe(event)(lambda event, data, outcome: seen.append(event))
    reasons = iter(["tests fail", None])

    @registry.on("agent:stop")
    async def keep_going(event: str, data: Any) -> HookResult | None:
        reason = next(reasons)
        return HookResult.deny(reason) if reason else None

    pool = ProgramSessions(registry)
    assert answer_in(await pool.answer("claude_code", asks("UserPromptSubmit", prompt="hi"))) == {}
    assert answer_in(await pool.answer("claude_code", asks("Stop"))) == {"decision": "block", "reason": "tests fail"}
    assert seen == ["prompt:submit"]
    assert answer_in(await pool.answer("claude_code", asks("Stop", stop_hook_active=True))) == {}
    assert seen == ["prompt:submit", "prompt:complete"]
    await pool.close()


async def test_a_prompt_that_was_changed_is_refused(registry: HookRegistry) -> None:
    """A program whose prompt cannot be replaced does not get the old prompt past a hook that changed it."""

    @registry.on("prompt:submit")
    async def change(event: str, data: Any) -> HookResult:
        return HookResult.modify({"prompt": "other"})

    pool = ProgramSessions(registry)
    assert answer_in(await pool.answer("claude_code", asks("UserPromptSubmit", prompt="hi")))["decision"] == "block"
    await pool.close()


async def test_context_waits_for_an_event_that_takes_it(registry: HookRegistry) -> None:
    """A text for the model at an event where the program takes none goes out at the next event that does."""

    @registry.on("context:pre_compact")
    async def remind(event: str, data: Any) -> HookResult:
        return HookResult.inject("remember the plan")

    pool = ProgramSessions(registry)
    assert answer_in(await pool.answer("claude_code", asks("PreCompact", trigger="auto"))) == {}
    prompt = answer_in(await pool.answer("claude_code", asks("UserPromptSubmit", prompt="hi")))
    assert "remember the plan" in prompt["hookSpecificOutput"]["additionalContext"]
    await pool.close()


@pytest.mark.parametrize("dialect", DIALECTS.values())
async def test_every_event_has_an_answer(dialect: Dialect, registry: HookRegistry) -> None:
    """Every event of every dialect, and an unknown one, has an empty answer if there is nothing to answer."""
    pool = ProgramSessions(registry)
    for name in [*(row.theirs for row in dialect.spellings if row.theirs != "SessionEnd"), "SomethingNew"]:
        question = tool(name, 1, prompt="hi", error="x", tool_response="y")
        assert await pool.answer(dialect.name, question) == ProgramExit(code=0)
    await pool.close()


@pytest.mark.parametrize(
    ("program", "question"),
    [("emacs", asks("Stop")), ("claude_code", {}), ("claude_code", {"session_id": "s"}), ("codex", {"session_id": 1})],
)
async def test_a_question_that_is_none_is_refused(program: str, question: Any, registry: HookRegistry) -> None:
    """A question from an unknown program, without a session or without an event is refused."""
    pool = ProgramSessions(registry)
    with pytest.raises(InvalidPayload):
        await pool.answer(program, question)
    await pool.close()


# -- over the socket ---------------------------------------------------------------------------------------------------


@define
class Serving:
    """A server on its own socket."""

    path: Path
    registry: HookRegistry = field(factory=HookRegistry)

    async def bridge(self, question: bytes, *arguments: str, path: str = "") -> tuple[int, bytes, bytes]:
        """Run the real bridge, as a program does."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", os.fspath(BRIDGE), path or os.fspath(self.path), "claude_code", *arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, errors = await process.communicate(question)
        return process.returncode or 0, output, errors


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncIterator[Serving]:
    """A server that answers."""
    served = Serving(tmp_path / "hooks.sock")
    pool = ProgramSessions(served.registry)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.fspath(served.path))
    server = uvicorn.Server(uvicorn.Config(create_app(pool), log_level="critical", lifespan="off"))
    task = asyncio.create_task(server.serve([listener]))
    try:
        yield served
    finally:
        server.should_exit = True
        await task
        await pool.close()
        listener.close()


def denies(registry: HookRegistry) -> None:
    """Register a gate that refuses every call."""
    registry.gate("tool:pre", name="guard")(lambda event, data: HookResult.deny("no"))


@pytest.mark.rule("DIA-2")
async def test_the_bridge_passes_question_and_answer(serving: Serving) -> None:
    """A question on the bridge's standard input is answered on its standard output, byte for byte."""
    denies(serving.registry)
    status, output, errors = await serving.bridge(json.dumps(tool("PreToolUse")).encode())
    assert (status, errors) == (0, b"")
    assert json.loads(output)["hookSpecificOutput"]["permissionDecision"] == "deny"


@pytest.mark.rule("DIA-2")
@pytest.mark.parametrize(
    ("policy", "status", "output"),
    [((), 2, b""), (("deny",), 2, b""), (("allow",), 0, b""), (("ask",), 0, bridge_module.ASK.encode())],
)
async def test_without_a_server_the_bridge_keeps_to_its_policy(
    policy: tuple[str, ...], status: int, output: bytes, tmp_path: Path
) -> None:
    """Without a server the bridge refuses and names the command to start one, unless `when_down` is ask or allow."""
    missing = Serving(tmp_path / "missing.sock")
    result = await missing.bridge(b"{}", *policy)
    assert result[:2] == (status, output)
    assert (b"amplifier-hooks serve" in result[2]) is (status == 2)


@pytest.mark.rule("DIA-11")
async def test_a_denied_question_gives_the_earlier_call_up(registry: HookRegistry) -> None:
    """A call under an id that comes again is over, also if the later question is denied."""
    audit = CollectingAudit()

    @registry.gate("tool:pre", name="guard")
    async def guard(event: str, data: Any) -> HookResult | None:
        return HookResult.deny("not that") if data["tool_input"]["command"] == "rm" else None

    pool = ProgramSessions(registry, options={"audit": audit})
    await pool.answer("claude_code", tool("PreToolUse"))
    await pool.answer("claude_code", {**tool("PreToolUse"), "tool_input": {"command": "rm"}})
    assert [kind for kind in audit.kinds if kind.startswith("tool.")] == [
        *("tool.running", "tool.cancelled", "tool.denied")
    ]
    await pool.close()


@pytest.mark.rule("DIA-4", "DIA-6")
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda one: one.name)
async def test_the_programs_prompt_asks_about_the_changed_input(dialect: Dialect, registry: HookRegistry) -> None:
    """With native asking the program's user decides about the input as a gate left it, and that input runs."""
    changed = {"command": "ls", "sandbox": True}
    registry.gate("tool:pre", name="sandbox")(lambda event, data: HookResult.modify({"tool_input": changed}))
    registry.gate("tool:pre", name="guard")(lambda event, data: HookResult.ask("Run it?"))
    pool = ProgramSessions(registry, asking="native")
    gate = dialect.spelling("tool:pre")
    assert gate is not None
    answer = answer_in(await pool.answer(dialect.name, tool(gate.theirs)))
    own = answer.get("hookSpecificOutput", {})
    decision = answer.get("decision", own.get("permissionDecision"))
    kept = own.get("updatedInput", own.get("tool_input"))
    assert (decision, kept) == (("deny", None) if dialect.name == "codex" else ("ask", changed))
    await pool.close()


@pytest.mark.rule("DIA-4", "DIA-10")
async def test_gemini_cannot_be_given_an_input_without_an_argument(registry: HookRegistry) -> None:
    """Gemini CLI would keep an argument that a gate takes away: the call is refused with the reason, and is over."""
    audit = CollectingAudit()
    registry.gate("tool:pre", name="guard")(lambda event, data: HookResult.modify({"tool_input": {"path": "a"}}))
    pool = ProgramSessions(registry, options={"audit": audit})
    question = {"session_id": "s", "cwd": "/tmp", "hook_event_name": "BeforeTool", "tool_name": "write_file"}
    kept = json.loads((await pool.answer("gemini", {**question, "tool_input": {"path": "b"}})).output)
    assert (kept["decision"], kept["hookSpecificOutput"]["tool_input"]) == ("ask", {"path": "a"})
    lacking = json.loads((await pool.answer("gemini", {**question, "tool_input": {"path": "b", "force": True}})).output)
    assert (lacking["decision"], "hookSpecificOutput" in lacking) == ("deny", False)
    assert "Gemini CLI would keep it" in lacking["reason"]
    assert audit.kinds.count("tool.cancelled") == 1
    await pool.close()


@pytest.mark.rule("DIA-4", "DIA-5")
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda one: one.name)
def test_a_bridge_asks_no_program_that_cannot_ask(dialect: Dialect, tmp_path: Path) -> None:
    """Without a server, a question is a refusal for a program that takes it for no answer, and goes on."""
    command = [sys.executable, "-I", "-S", os.fspath(BRIDGE), os.fspath(tmp_path / "missing.sock"), dialect.name, "ask"]
    ended = subprocess.run(command, input="{}", capture_output=True, text=True, check=False)
    gate = dialect.spelling("tool:pre")
    assert gate is not None
    asks = "ask" in json.dumps(dialect.write(gate, Verdict(decision="ask")))
    assert (ended.returncode, ended.stdout) == ((0, bridge_module.ASK) if asks else (2, ""))


@pytest.mark.parametrize("question", [b"", b"nonsense", b"[]", b"{}", b"[" * 10_000, b'{"session_id": "s"}'])
@pytest.mark.rule("DIA-11")
async def test_nonsense_over_the_bridge_is_blocked(question: bytes, serving: Serving) -> None:
    """A malformed question ends with the exit status that blocks, and with the reason."""
    status, output, errors = await serving.bridge(question)
    assert (status, output) == (2, b"")
    assert errors.startswith(b"amplifier-hooks: ")


@pytest.mark.rule("DIA-11")
@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('"ls"', '"ls", "command": "rm"', "stands twice"),
        ('"ls"', "1.00000000000000001", "does not read back"),
        ("{", "\ufeff{", "BOM"),
        ("", "{} ", "Extra data"),
    ],
)
async def test_json_that_two_readers_read_differently(before: str, after: str, why: str, serving: Serving) -> None:
    """A question whose JSON is ambiguous is blocked, and the program reads the reason."""
    question = json.dumps(tool("PreToolUse")).replace(before, after, 1)
    status, output, errors = await serving.bridge(question.encode())
    assert (status, output) == (2, b"")
    assert why in errors.decode()


def half_an_answer(connection: socket.socket) -> None:
    """Break off in the middle of an answer."""
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\nx-exit-status: 0\r\nx-output-length: 0\r\n\r\n{")


@pytest.mark.parametrize("behaves", [half_an_answer, socket.socket.close, lambda peer: peer.sendall(b"\0" * 10)])
async def test_half_an_answer_is_none(behaves: Callable[[socket.socket], Any], tmp_path: Path) -> None:
    """An answer that breaks off, or is malformed, counts as no answer."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.fspath(tmp_path / "bad.sock"))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        behaves(connection)
        connection.close()

    thread = asyncio.create_task(asyncio.to_thread(serve))
    status, output, _ = await Serving(tmp_path / "bad.sock").bridge(b"{}")
    await thread
    listener.close()
    assert (status, output) == (2, b"")
