"""The description of hooks that take part in an orchestrator's loop: its own words, one test for each line of it.

Each test shows a line that works as it was described, or the difference, and names the rule.
"""

import asyncio
import subprocess
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from amplifier_hooks import AuditLog, HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks import library as lib
from amplifier_hooks.errors import ApprovalTimeout, InjectionTooLarge, InvalidCollaborator, InvalidRegistration
from amplifier_hooks.injection.budget import INJECTION_BUDGET_PER_TURN, MAX_INJECTION_SIZE, InjectionLimits
from amplifier_hooks.testing import CollectingAudit, CollectingDisplay, RecordingContext, ScriptedApprover
from approval_backends import Broker, Decider, DeferredApprovals, Rules, SqliteStore, TerminalApprovals
from approval_backends import WebSocketApprovals as WebApprovals
from tests.hooks import saying

OPTIONS = ["Allow once", "Allow always", "Deny"]
CALL = {"tool_name": "Write", "tool_call_id": "1", "tool_input": {}}


def asking(**said: Any) -> HookRegistry:
    """Return a registry with the description's hook for writes to production."""
    registry = HookRegistry()

    async def production_protection_hook(event: str, data: Any) -> HookResult:
        return HookResult(
            action="ask_user",
            approval_prompt="Allow write to production?",
            approval_options=OPTIONS,
            **{"approval_timeout": 300.0, "approval_default": "deny", **said},
        )

    registry.register("tool:pre", production_protection_hook, name="production_protection")
    return registry


def injecting(*texts: str, event: str = "tool:post", **said: Any) -> HookRegistry:
    """Return a registry with hooks that inject these texts."""
    registry = HookRegistry()
    for number, text in enumerate(texts):
        answer = HookResult(action="inject_context", context_injection=text, **said)
        registry.register(event, saying(answer), name=f"hook_{number}")
    return registry


async def written(registry: HookRegistry, **options: Any) -> Any:
    """Return the outcome of one call of Write."""
    async with SessionCoordinator(hooks=registry, **options) as session:
        return await session.call_tool("Write", {"file_path": "a.py"}, lambda _: "written")


@pytest.mark.rule("REG-1", "REG-2", "RES-4")
async def test_register_order_and_emit() -> None:
    """`register(event, handler, priority, name)` returns its undo, and lower priorities run first."""
    registry, order = HookRegistry(), []

    def hook(tag: str) -> Any:
        async def handler(event: str, data: dict[str, Any]) -> HookResult:
            order.append(tag)
            return HookResult(action="continue")

        return handler

    undo = registry.register("tool:post", hook("c"), 20)
    registry.register("tool:post", hook("a"), 0, "a")
    registry.register(HookRegistry.TOOL_POST, hook("b"), priority=10)
    outcome = await registry.emit("tool:post", {"x": 1})
    undo()
    await registry.emit("tool:post", {})
    assert (order, outcome.action) == (["a", "b", "c", "a", "b"], "continue")


@pytest.mark.rule("DSP-1", "COO-8")
async def test_deny_short_circuits() -> None:
    """The first deny ends the chain, and the tool does not run."""
    registry, ran = HookRegistry(), []
    registry.register("tool:pre", lambda event, data: HookResult(action="deny", reason="why"), name="hook_1")
    registry.register("tool:pre", lambda event, data: ran.append("later"), priority=10)
    async with SessionCoordinator(hooks=registry) as session:
        outcome = await session.call_tool("Write", {}, ran.append)
    assert (ran, outcome.reason) == ([], "Operation denied by hook_1: why")


@pytest.mark.rule("DSP-1", "EVT-8")
async def test_modify_chains() -> None:
    """Each hook reads what the hooks before it have changed; `data` is laid over the payload."""
    registry, seen = HookRegistry(), []
    registry.register("my:event", lambda e, d: HookResult(action="modify", data={"value": d["value"] * 2}), 0)
    registry.register("my:event", lambda e, d: HookResult(action="modify", data={"value": d["value"] + 5}), 1)
    registry.register("my:event", lambda e, d: seen.append(dict(d)), 2)
    outcome = await registry.emit("my:event", {"value": 10, "kept": 1})
    assert (outcome.action, outcome.data, seen) == ("modify", {"value": 25, "kept": 1}, [{"value": 25, "kept": 1}])


@pytest.mark.rule("APR-3", "COO-8")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("Allow once", None),
        ("Deny", "Operation denied by production_protection: User denied: Allow write to production?"),
        (None, "Operation denied by production_protection: No approval system available"),
    ],
)
async def test_ask_user(answer: str | None, reason: str | None) -> None:
    """The description's four-argument protocol is asked by its keywords; without an approver the call is denied."""
    got: list[Any] = []

    class Approvals:
        async def request_approval(self, **asked: Any) -> str:
            got.append(asked)
            return str(answer)

    outcome = await written(asking(), approval_system=Approvals() if answer else None)
    assert outcome.reason == reason
    asked = {
        "prompt": "Allow write to production?", "options": OPTIONS, "timeout": 300.0, "default": "deny"
    }  # fmt: skip
    assert got == ([asked] if answer else [])


@pytest.mark.rule("RES-1")
def test_the_fields_of_a_result() -> None:
    """A `HookResult` has the description's twelve fields, with its defaults."""
    defaults = {
        "action": "continue", "data": None, "reason": None, "context_injection": None,
        "context_injection_role": "system", "approval_prompt": None, "approval_options": None,
        "approval_timeout": 300.0, "approval_default": "deny", "suppress_output": False, "user_message": None,
        "user_message_level": "info",
    }  # fmt: skip
    assert {name: getattr(HookResult(), name) for name in defaults} == defaults


@pytest.mark.rule("INJ-1", "INJ-6")
@pytest.mark.parametrize("role", ["system", "user", "assistant"])
async def test_injection_in_the_same_turn(role: Any) -> None:
    """Injected text is in the context at once, with its role, under a heading that a tool cannot forge."""
    registry = injecting("Linter found issues", context_injection_role=role)
    async with SessionCoordinator(registry) as session, session.turn("Update config"):
        await session.call_tool("Write", {}, lambda _: "written")
        (message,) = session.context.get_messages()
    heading, text = message["content"].split("\n", 1)
    assert (message["role"], text) == (role, "Linter found issues")
    assert heading == f"⟦hook hook_0 · {session.mark}⟧"


@pytest.mark.rule("INJ-2", "INJ-9")
async def test_the_size_limit() -> None:
    """10 KB, counted in bytes: one byte more raises a `ValueError` that says it exceeds the limit."""
    session = SessionCoordinator(budget=InjectionLimits(per_turn=None))
    most = HookResult(action="inject_context", context_injection="x" * MAX_INJECTION_SIZE)
    assert (await session.process_hook_result(most, "tool:post", "linter")).action == "continue"
    for text in ("x" * (MAX_INJECTION_SIZE + 1), "ü" * (MAX_INJECTION_SIZE // 2 + 1)):
        result = HookResult(action="inject_context", context_injection=text)
        with pytest.raises(ValueError, match="exceeds"):
            await session.handle_context_injection(result, "linter", "tool:post")
    assert issubclass(InjectionTooLarge, ValueError)


@pytest.mark.rule("INJ-3")
@pytest.mark.parametrize("overflow", ["trim", "warn"])
async def test_the_token_budget(overflow: Any) -> None:
    """1,000 tokens a turn, anew with each turn; other than described, text is cut, unless the policy is `warn`."""
    display, text = CollectingDisplay(), "\n".join(f"line {number} of the report" for number in range(400))
    async with SessionCoordinator(
        injecting(text), display=display, budget=InjectionLimits(overflow=overflow)
    ) as session:
        async with session.turn("go"):
            await session.call_tool("Write", {}, lambda _: "written")
            used = session.tokens_this_turn
        async with session.turn("again"):
            assert session.tokens_this_turn == 0
    assert (used <= INJECTION_BUDGET_PER_TURN) == (overflow == "trim")
    assert INJECTION_BUDGET_PER_TURN == session.injection_budget_per_turn == 1000
    assert any(level == "warning" for _, level, _ in display.messages)


@pytest.mark.rule("INJ-5", "INJ-6")
async def test_several_injections_are_one_message() -> None:
    """Three texts are one message; other than described, its headings carry sizes, and a mark against forgery."""
    async with SessionCoordinator(injecting("lint output", "types output", "tests")) as session:
        await session.call_tool("Write", {}, lambda _: "written")
        (message,) = session.context.get_messages()
    for number, text in enumerate(("lint output", "types output", "tests")):
        assert f"⟦hook hook_{number} · {len(text)} bytes · {session.mark}⟧\n{text}" in message["content"]


@pytest.mark.rule("INJ-6")
async def test_provenance() -> None:
    """The metadata of an injected message says source, hook, event and time, under the description's names."""
    context = RecordingContext()
    session = SessionCoordinator(context=context)
    result = HookResult(action="inject_context", context_injection="hello")
    await session.process_hook_result(result, "tool:post", "linter")
    metadata = (await context.get_messages())[0].metadata or {}
    assert {name: metadata[name] for name in ("source", "hook_name", "event")} == {
        "source": "hook", "hook_name": "linter", "event": "tool:post"
    }  # fmt: skip
    assert datetime.fromisoformat(metadata["timestamp"]).utcoffset() is not None


@pytest.mark.rule("BCK-1", "BCK-3", "BCK-5")
def test_three_approval_systems() -> None:
    """A terminal, a web page and an API are approval systems with `request_approval`."""
    assert all(hasattr(kind, "request_approval") for kind in (TerminalApprovals, WebApprovals, DeferredApprovals))


@pytest.mark.rule("APR-5")
async def test_allow_always_is_for_the_session() -> None:
    """An "Allow always" is asked once a session; other than described, it does not cover another tool."""
    approver = ScriptedApprover("Allow always", "Deny", "Deny")
    registry = asking()
    async with SessionCoordinator(registry, approvals=approver) as session:
        assert [(await session.call_tool("Write", {"n": n}, lambda _: 1)).ok for n in range(2)] == [True, True]
        assert not (await session.call_tool("Edit", {}, lambda _: 1)).ok
    assert not (await written(registry, approvals=approver)).ok
    assert len(approver.requests) == 3


@pytest.mark.rule("APR-4", "APR-11")
@pytest.mark.parametrize("default", ["deny", "allow"])
@pytest.mark.parametrize("raises", [True, False])
async def test_timeouts_and_their_default(default: Any, raises: bool) -> None:
    """No answer in time is the hook's default, whether the approver hangs or raises its timeout."""

    class Nobody:
        async def request_approval(self, prompt: str, options: list[str], timeout: float, default: str) -> str:
            if raises:
                raise ApprovalTimeout("no answer")
            await asyncio.Event().wait()
            return "Allow once"

    outcome = await written(asking(approval_timeout=0.05, approval_default=default), approvals=Nobody())
    reason = "Operation denied by production_protection: Timeout - denied by default"
    assert (outcome.ok, outcome.reason) == ((True, None) if default == "allow" else (False, reason))


@pytest.mark.rule("DIS-1", "RES-7")
async def test_messages_for_the_user() -> None:
    """`show_message(message, level, source)` gets the message, and the model's context does not."""
    shown: list[Any] = []

    class Display:
        def show_message(self, message: str, level: str, source: str) -> None:
            shown.append((message, level, source))

    session = SessionCoordinator(display_system=Display())
    result = HookResult(user_message="Found 3 issues", user_message_level="warning")
    await session.process_hook_result(result, "tool:post", "linter")
    assert (shown, session.context.get_messages()) == ([("Found 3 issues", "warning", "hook:linter")], [])


@pytest.mark.rule("DIS-2")
async def test_output_suppression(capsys: pytest.CaptureFixture[str]) -> None:
    """A hook's text with `suppress_output` reaches neither the terminal nor the transcript; tools print on."""
    registry = HookRegistry()

    async def quiet(event: str, data: Any) -> HookResult:
        sys.stdout.write("noise\n")
        return HookResult(suppress_output=True)

    registry.register("tool:post", quiet)
    async with SessionCoordinator(registry) as session:
        outcome = await session.call_tool("Write", {}, lambda _: sys.stdout.write("tool\n"))
        transcript = list(session.transcript)
    assert (outcome.value, transcript, capsys.readouterr().out) == (5, [], "tool\n")


@pytest.mark.rule("EVT-6")
async def test_the_events_of_a_turn() -> None:
    """A turn emits the description's events in their order, `orchestrator:complete` with the status `success`."""
    registry, seen = HookRegistry(), []
    registry.observe("*", lambda event, data, outcome: seen.append((event, data.get("status"))))
    async with SessionCoordinator(hooks=registry) as session, session.turn("hi"):
        await session.call_model(lambda _: {"tools": ["Write"]}, tool_calls=lambda answer: answer["tools"])
        await session.call_tool("Write", {}, lambda _: "written")
        await session.emit("user:notification", {"message": "done"})
    assert [event for event, _ in seen] == [
        "session:start", "prompt:submit", "context:assembled", "llm:pre", "llm:post", "decision:tool_resolution",
        "tool:pre", "tool:post", "user:notification", "orchestrator:complete", "prompt:complete", "session:end",
    ]  # fmt: skip
    assert ("orchestrator:complete", "success") in seen


@pytest.mark.rule("EVT-6", "COO-3")
async def test_the_events_of_errors() -> None:
    """Errors of a tool, a provider and the orchestrator have their events, and a hook there may inject advice."""
    registry, seen = injecting("try another way", event="error:tool"), []
    for event in ("error:tool", "error:provider", "error:orchestrator"):
        registry.observe(event, lambda event, data, outcome: seen.append((event, data["error"]["type"])))

    def broken(_: Any) -> None:
        raise ValueError("x")

    async with SessionCoordinator(hooks=registry) as session:
        assert (await session.call_tool("Write", {}, broken)).status == "failed"
        await session.call_model(broken)
        with suppress(KeyError):
            async with session.turn("hi"):
                raise KeyError
        texts = [message["content"] for message in session.context.get_messages()]
    names = [("error:tool", "ValueError"), ("error:provider", "ValueError"), ("error:orchestrator", "KeyError")]
    assert seen == names
    assert any("try another way" in text for text in texts)


@pytest.mark.rule("AUD-1", "AUD-2")
async def test_the_audit_shows_tampering(tmp_path: Path) -> None:
    """Injections, approvals and decisions are on record, and one changed word shows."""
    registry = asking()
    registry.register("tool:post", lambda e, d: HookResult(action="inject_context", context_injection="E501"), name="l")
    path = tmp_path / "audit.jsonl"
    async with AuditLog.open(path) as record:
        await written(registry, audit=record, approvals=ScriptedApprover("Allow once"))
    said = path.read_text()
    assert all(kind in said for kind in ("approval.requested", "approval.decided", "injection", "tool.done"))

    def verify() -> str:
        command = [sys.executable, "-m", "amplifier_hooks", "audit", "verify", str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    assert "tampered" not in verify()
    path.write_text(said.replace("production_protection", "production_protectioN"))
    assert verify().startswith("tampered")


@pytest.mark.rule("DSP-3", "DSP-10")
async def test_a_failing_hook_harms_no_other() -> None:
    """A hook that crashes is skipped; a context that fails is reported to the user, and the tool has run."""
    registry, display = injecting("x"), CollectingDisplay()

    async def broken(event: str, data: Any) -> HookResult:
        raise RuntimeError("bug")

    class FullContext:
        def add_message(self, role: str, content: str, metadata: Any = None) -> None:
            raise OSError("full")

        def get_messages(self) -> list[Any]:
            return []

    registry.register("tool:pre", broken)
    assert (await written(registry, context=FullContext(), display=display)).value == "written"
    assert any("OSError: full" in text for text, _, _ in display.messages)


@pytest.mark.rule("RES-3", "RES-1")
async def test_invalid_results() -> None:
    """A text is no answer and is skipped; None and a mapping are answers."""
    registry = HookRegistry()
    for name, answer in (("text", "yes"), ("mapping", {"action": "continue"}), ("nothing", None)):
        registry.register("tool:pre", saying(answer), name=name)
    outcome = await registry.emit("tool:pre", CALL)
    assert outcome.action == "continue"
    assert {one.hook_name: one.status for one in outcome.hook_results} == {
        "text": "invalid", "mapping": "ok", "nothing": "ok"
    }  # fmt: skip


@pytest.mark.rule("APR-5", "BCK-9")
async def test_persistent_approvals(tmp_path: Path) -> None:
    """An "allow always" may hold in later sessions; other than described, a store keeps it, or a file of rules."""
    robin, registry = Decider(name="robin", channel="test"), asking(approval_timeout=5)
    oks = []
    for number in range(2):
        async with Broker(SqliteStore(tmp_path / "approvals.db"), keep_grants=3600) as broker:
            options: dict[str, Any] = {"session_id": f"s{number}", "approvals": DeferredApprovals(broker)}
            async with SessionCoordinator(registry, **options) as session:
                call = asyncio.create_task(session.call_tool("Write", {}, lambda _: "written"))
                while number == 0 and not (waiting := await broker.pending(robin)):
                    with broker.watch() as watch:
                        await watch.wait(0.05)
                if number == 0:
                    request = waiting[0].request
                    lasting = (one for one in request.options if one.kind == "allow_always" and not one.session_only)
                    option = next(lasting).id  # "in this project"
                    await broker.decide(request.id, request.digest, option, robin)
                oks.append((await asyncio.wait_for(call, 10)).ok)
    assert oks == [True, True]
    rules = tmp_path / "rules.json"
    rules.write_text('{"version": 1, "rules": [{"id": "r", "action": "deny", "tool": "Write", "reason": "closed"}]}')
    outcome = await written(HookRegistry(), rules=Rules.load(rules))
    assert "closed" in str(outcome.reason)


@pytest.mark.rule("REG-7")
async def test_parallel_hooks_on_request() -> None:
    """Observers run side by side if asked to; a gate cannot."""
    registry, together = HookRegistry(), asyncio.Barrier(3)

    async def observer(event: str, data: Any, outcome: Any) -> None:
        await asyncio.wait_for(together.wait(), 60)

    for number in range(3):
        registry.observe("tool:post", observer, name=f"o{number}", concurrent=True)
    await registry.emit("tool:post", CALL)
    assert together.n_waiting == 0
    assert not together.broken
    with pytest.raises(InvalidRegistration, match="only observers run side by side"):
        registry.gate("tool:pre", lambda event, data: None, concurrent=True)


@pytest.mark.rule("LIB-6", "COO-9")
async def test_the_example_hooks() -> None:
    """Example hooks run as written or are in the library; other than described, outcomes have `.ok` and `.reason`."""

    async def simple_hook(event: str, data: Any) -> HookResult:
        return HookResult(action="continue")

    async def enhanced_hook(event: str, data: Any) -> HookResult:
        return HookResult(action="inject_context", context_injection="feedback")

    async def git_status_injector(event: str, data: Any) -> HookResult:
        return HookResult(action="inject_context", context_injection="Git status:\nclean", suppress_output=True)

    registry = asking()
    registry.register("tool:post", simple_hook)
    registry.register("tool:post", enhanced_hook)
    registry.register("session:start", git_status_injector)
    read: list[Any] = []
    async with SessionCoordinator(hooks=registry, approval_system=ScriptedApprover("Deny")) as session:
        async with session.turn("hi"):
            await session.call_model(read.extend)
        outcome = await session.call_tool("Write", {"file_path": "/production/config.py"}, lambda _: 1)
    assert "Git status:\nclean" in read[0]["content"]
    assert (outcome.ok, "denied" in str(outcome.reason)) == (False, True)
    assert {"LinterFeedback", "TypeFeedback", "TestFeedback", "CostGuard", "DateTime", "Notify", "GitStatus"} <= set(
        lib.__all__
    )


# -- the rest of the description ---------------------------------------------------------------------------------------


@pytest.mark.rule("COO-1")
async def test_the_coordinators_constructor() -> None:
    """The registry comes first, then `approval_system` and others by name; other than described, none by its place."""
    registry = asking()
    session = SessionCoordinator(registry, context=None, approval_system=None, display_system=None)
    assert (await session.execute_with_hooks("tool:pre", CALL)).denied
    with pytest.raises(TypeError):
        SessionCoordinator(registry, None, None, None)  # type: ignore[call-arg, arg-type]
    with pytest.raises(InvalidCollaborator):
        SessionCoordinator("s1")  # type: ignore[arg-type]


@pytest.mark.rule("COO-1", "COO-2")
async def test_the_coordinators_methods_and_settings() -> None:
    """`handle_context_injection`, `handle_approval_request`, and the two limits work under the described names."""
    session = SessionCoordinator(injection_budget_per_turn=7, injection_size_limit=5)
    assert (session.injection_budget_per_turn, session.injection_size_limit) == (7, 5)
    session = SessionCoordinator(approvals=ScriptedApprover("Allow"))
    question = HookResult(action="ask_user", approval_prompt="ok?")
    assert (await session.handle_approval_request(question, "guard")).action == "continue"
    text = HookResult(action="inject_context", context_injection="hello")
    await session.handle_context_injection(text, "linter", "tool:post")
    assert session.tokens_this_turn > 0
    session.reset_turn()
    assert session.tokens_this_turn == 0


@pytest.mark.rule("EVT-2")
async def test_session_and_time_cannot_be_forged() -> None:
    """A session writes both over the emitter's; other than described, a registry without a session writes neither."""
    registry, seen = HookRegistry(), []
    registry.observe("tool:post", lambda event, data, outcome: seen.append(dict(data)))
    forged = {**CALL, "session_id": "forged", "timestamp": "forged"}
    async with SessionCoordinator(registry, session_id="mine") as session:
        await session.emit("tool:post", forged)
    await registry.emit("tool:post", CALL)
    assert seen[0]["session_id"] == "mine"
    assert datetime.fromisoformat(seen[0]["timestamp"]).utcoffset() is not None
    assert not {"session_id", "timestamp"} & set(seen[1])


@pytest.mark.rule("APR-11")
async def test_allow_once_answers_default_options() -> None:
    """A hook without options of its own offers Allow and Deny, and an approver's "Allow once" is the first."""

    class Approvals:
        async def request_approval(self, prompt: str, options: list[str], timeout: float, default: str) -> str:
            return "Allow once"

    assert (await written(asking(approval_options=None), approvals=Approvals())).ok


@pytest.mark.rule("AUD-1", "DIS-2")
async def test_hooks_and_their_output_on_record() -> None:
    """Hooks that answered are on record, with their output's size and digest; other than described, its text is not."""
    registry, audit = HookRegistry(), CollectingAudit()

    async def noisy(event: str, data: Any) -> HookResult:
        sys.stdout.write("noise\n")
        return HookResult(suppress_output=True, user_message="hello")

    registry.register("tool:post", noisy, name="noisy")
    await written(registry, audit=audit)
    (answer,) = [one for facts in audit.facts("outcome") for one in facts.get("answers", ())]
    assert (answer["hook"], answer["output"]["size"], answer["output"]["hidden"]) == ("noisy", 6, True)
    assert answer["duration_ms"] >= 0


@pytest.mark.rule("INJ-9", "APR-5")
async def test_review_and_the_end_of_a_session() -> None:
    """Injections can be listed for review, and grants end with the session."""
    registry = asking()
    registry.register("tool:post", lambda e, d: HookResult(action="inject_context", context_injection="E501"), name="l")
    session = SessionCoordinator(registry, approvals=ScriptedApprover("Allow always"))
    async with session:
        await session.call_tool("Write", {}, lambda _: 1)
        assert len(await session.grants()) == 1
        assert [one.hook for one in session.injections] == ["l"]
    assert list(await session.grants()) == []


@pytest.mark.rule("COO-6")
async def test_processing_takes_milliseconds() -> None:
    """Processing a result takes less than the described ten milliseconds."""
    session = SessionCoordinator()
    began = process_time()  # a busy machine takes longer
    for _ in range(50):
        await session.process_hook_result(HookResult(), "tool:post", "l")
    assert (process_time() - began) / 50 < 0.01
