"""One story over all SDKs: the decisions of hooks hold inside each of them, and the record shows it."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pytest
from attrs import define

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.injection.budget import InjectionLimits
from amplifier_hooks.record.line import VerifierKey
from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.record.report import LogVerdict
from amplifier_hooks.record.verify import verify
from amplifier_hooks.testing import ScriptedApprover
from approval_backends.backend import DeferredApprovals
from approval_backends.lifecycle import Decider
from approval_backends.stores.sqlite import SqliteStore
from tests.end_to_end.adapters.stage import Ran, Say, Stage, writes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.rule("DIA-3")

STAGES: Final[Mapping[str, tuple[str, str]]] = {
    "agent_framework": ("stage_agent_framework", "AgentFrameworkStage"),
    "agent_hooks": ("stage_agent_hooks", "AgentHooksStage"),
    "claude_agent_sdk": ("stage_claude_agent_sdk", "ClaudeAgentStage"),
    "langchain": ("stage_langchain", "LangChainStage"),
    "openai_agents": ("stage_openai_agents", "OpenAIAgentsStage"),
    "pydantic_ai": ("stage_pydantic_ai", "PydanticAIStage"),
}
"""File and class of each stage. A stage whose SDK is not installed is skipped with the reason."""
MARKS: Final[Mapping[str, pytest.MarkDecorator | tuple[()]]] = {
    "agent_framework": pytest.mark.agents,
    "agent_hooks": (),
    "claude_agent_sdk": pytest.mark.agents,
}
"""Marks of expensive stages: two start other programs, the others are slow to import."""
ROBIN: Final = Decider(name="Robin", channel="test")


@define
class Scene:
    """A folder with a record, a registry, and the class of the stage."""

    folder: Path
    kind: type[Stage]
    hooks: HookRegistry

    def stage(self) -> Stage:
        """The SDK as a process that has just started has it."""
        return self.kind(self.folder)

    @property
    def record(self) -> Path:
        """File of the record."""
        return self.folder / "record.jsonl"

    @property
    def kinds(self) -> list[str]:
        """Kinds of the record's entries, in order."""
        return [json.loads(line)["kind"] for line in self.record.read_text().splitlines()]

    @asynccontextmanager
    async def session(self, **options: Any) -> AsyncIterator[SessionCoordinator]:
        """Return a session with this record, which is verified at the end."""
        async with (
            AuditLog.open(self.record) as log,
            SessionCoordinator(self.hooks, session_id="story", audit=log, model="gpt-4o", **options) as session,
        ):
            yield session
        key = VerifierKey.parse(next(self.folder.glob("*.pub")).read_text())
        report = verify({1: self.record}, keys=[key])
        assert report.verdict is LogVerdict.UNBROKEN, report

    @asynccontextmanager
    async def waiting_in(self, store: Path) -> AsyncIterator[SessionCoordinator]:
        """Return a session whose questions stay open in this file."""
        async with (
            DeferredApprovals(SqliteStore(store)) as approvals,
            self.session(approvals=approvals, approval_wait=0.05) as session,
        ):
            yield session


@pytest.fixture(
    params=[pytest.param(name, marks=MARKS.get(name, pytest.mark.slow)) for name in STAGES],
)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    """Return a scene of each SDK in turn.

    An act that the SDK does not support is skipped, with the documented reason.
    """
    file, name = STAGES[request.param]
    kind: type[Stage] = getattr(import_module(f"tests.end_to_end.adapters.{file}"), name)
    act = request.function.__name__.removeprefix("test_")
    if act in kind.cannot:
        pytest.skip(kind.cannot[act])
    return Scene(tmp_path, kind, HookRegistry())


def after(ran: Ran) -> str:
    """Return the text that the model, or the host in its place, reads after the call."""
    return "\n".join([*ran.read[1:], *(json.dumps(one, default=str) for one in ran.answers)])


async def test_a_denied_call_does_not_run(scene: Scene) -> None:
    """A call that a gate denies does not run, the model reads why, and the next call runs."""

    @scene.hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Any) -> HookResult | None:
        return HookResult.deny("not in production") if data["tool_input"]["path"] == "production" else None

    async with scene.session() as session:
        stage = scene.stage()
        ran = await stage.run(session, writes("production"), writes("notes"), Say("finished"))
    assert [one["path"] for one in stage.wrote] == ["notes"]
    assert "not in production" in after(ran)
    assert scene.kinds.count("tool.denied") == 1
    assert scene.kinds.count("tool.done") == 1


async def test_a_changed_call_runs_as_it_was_left(scene: Scene) -> None:
    """A call runs as two hooks, one after the other, have changed it."""

    def move_to(folder: str) -> Any:
        def move(event: str, data: Any) -> HookResult | None:
            given = data["tool_input"]
            moved = {"tool_input": {**given, "path": f"{given['path']}/{folder}"}}
            return None if folder in given["path"] else HookResult.modify(moved)

        return move

    scene.hooks.gate("tool:pre", name="first", priority=1)(move_to("one"))
    scene.hooks.gate("tool:pre", name="second", priority=2)(move_to("two"))
    async with scene.session(rules=None, approvals=ScriptedApprover("Allow")) as session:
        stage = scene.stage()
        await stage.run(session, writes("build"), Say("finished"))
    assert stage.wrote == [{"path": "build/one/two", "text": "hello"}]


async def test_a_result_is_replaced(scene: Scene) -> None:
    """The model reads the text that a hook puts in place of a result."""

    @scene.hooks.on("tool:post", name="masks")
    async def masks(event: str, data: Any) -> HookResult:
        return HookResult.modify({"result": "masked"})

    async with scene.session() as session:
        ran = await scene.stage().run(session, writes("notes"), Say("finished"))
    assert "masked" in after(ran)
    assert "wrote notes" not in after(ran)


async def test_an_injection_stays_within_its_budget(scene: Scene) -> None:
    """The model reads what hooks inject, cut where the budget ends, and in every later call as well."""

    @scene.hooks.on("tool:post", name="lint")
    async def lint(event: str, data: Any) -> HookResult:
        return HookResult.inject("E501 in line 42. " + "word " * 400 + "the very end")

    async with scene.session(budget=InjectionLimits(per_turn=60)) as session:
        ran = await scene.stage().run(session, writes("one"), writes("two"), Say("finished"))
        assert 0 < session.tokens_this_turn <= 60
    assert "E501 in line 42" not in ran.read[0]
    for read in ran.read[1:]:
        assert read.count("E501 in line 42") == 1
        assert "the very end" not in read
    assert "injection.trimmed" in scene.kinds


async def test_a_question_is_approved(scene: Scene) -> None:
    """A call that the approver allows runs once, exactly as it was shown."""

    @scene.hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Any) -> HookResult:
        return HookResult.ask("Write to production?")

    approver = ScriptedApprover("Allow")
    async with scene.session(approvals=approver) as session:
        stage = scene.stage()
        await stage.run(session, writes("production"), Say("finished"))
    (request,) = approver.requests
    assert (request.tool, dict(request.arguments)) == (stage.tool, {"path": "production", "text": "hello"})
    assert stage.wrote == [dict(request.arguments)]
    assert approver.step_names == ["request", "claim", "settle"]
    assert approver.became == ["done"]


async def test_a_question_is_denied(scene: Scene) -> None:
    """A call that the approver refuses does not run, and the model reads the refusal."""

    @scene.hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Any) -> HookResult:
        return HookResult.ask("Write to production?")

    async with scene.session(approvals=ScriptedApprover("Deny")) as session:
        stage = scene.stage()
        ran = await stage.run(session, writes("production"), Say("finished"))
    assert stage.wrote == []
    assert "Write to production?" in after(ran)
    assert "tool.denied" in scene.kinds


async def test_an_approval_outlives_the_process(scene: Scene) -> None:
    """If the run ends before a decision, a later process finds the decision, and the call runs once."""

    @scene.hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Any) -> HookResult:
        return HookResult.ask("Write to production?", timeout=3600)

    store = scene.folder / "approvals.db"
    first = scene.stage()
    async with scene.waiting_in(store) as session:
        ran = await first.run(session, writes("production"), Say("finished"))
    assert first.wrote == []
    async with DeferredApprovals(SqliteStore(store)) as elsewhere:
        (waiting,) = await elsewhere.broker.pending(ROBIN)
        request = waiting.request
        await elsewhere.broker.decide(request.id, request.digest, request.options[0].id, ROBIN)
    second = scene.stage()
    async with scene.waiting_in(store) as session:
        await second.resume(session, ran.stored, Say("finished"))
    assert second.wrote == [{"path": "production", "text": "hello"}]
    assert scene.kinds.count("tool.pending") == 1
    assert scene.kinds.count("tool.done") == 1


async def test_a_gate_that_fails_is_closed(scene: Scene) -> None:
    """A gate that raises denies the call."""

    @scene.hooks.gate("tool:pre", name="guard")
    async def guard(event: str, data: Any) -> HookResult:
        raise RuntimeError("broken")

    async with scene.session() as session:
        stage = scene.stage()
        ran = await stage.run(session, writes("production"), Say("finished"))
    assert stage.wrote == []
    assert "guard" in after(ran)
    assert "tool.denied" in scene.kinds


async def test_a_tool_that_fails_is_told(scene: Scene) -> None:
    """An error of a tool reaches the hooks as an error, and is on record as one."""
    seen: list[Any] = []

    @scene.hooks.observe("tool:error", name="watch")
    async def watch(event: str, data: Any, outcome: Any) -> None:
        seen.append(data["error"]["message"])

    async with scene.session() as session:
        stage = scene.stage()
        stage.broken = True
        await stage.run(session, writes("notes"), Say("finished"))
    assert len(seen) == 1
    assert stage.failure in seen[0]
    assert "tool.failed" in scene.kinds


async def test_a_prompt_is_denied(scene: Scene) -> None:
    """No model reads a prompt that a gate denies."""

    @scene.hooks.gate("prompt:submit", name="guard")
    async def guard(event: str, data: Any) -> HookResult | None:
        return HookResult.deny("not on a Friday") if "deploy" in data["prompt"] else None

    async with scene.session() as session:
        ran = await scene.stage().run(session, Say("finished"), prompt="deploy it")
    assert ran.read == []
    assert "not on a Friday" in (ran.refused or "")


async def test_a_model_call_is_denied(scene: Scene) -> None:
    """A model call that a gate denies is not made."""
    scene.hooks.gate("llm:pre", name="guard")(lambda event, data: HookResult.deny("too dear"))
    async with scene.session() as session:
        ran = await scene.stage().run(session, Say("finished"))
    assert ran.read == []
    assert "too dear" in (ran.refused or "")


async def test_a_changed_prompt_reaches_the_model(scene: Scene) -> None:
    """The model reads the prompt as the hooks left it."""
    scene.hooks.gate("prompt:submit", name="guard")(lambda event, data: HookResult.modify({"prompt": "be careful"}))
    async with scene.session() as session:
        ran = await scene.stage().run(session, Say("finished"), prompt="be quick")
    assert "be careful" in ran.read[0]
    assert "be quick" not in ran.read[0]
