"""The permission callback: what runs in the program is what was decided about here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.effects.context import InMemoryContext
from tests.conftest import require

try:
    from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, PermissionResultAllow, PermissionResultDeny

    from amplifier_hooks.adapters.claude_agent_sdk import ClaudeAgent
    from tests.end_to_end.adapters.stage import Say, writes
    from tests.end_to_end.adapters.stage_claude_agent_sdk import ClaudeAgentStage
except ImportError as missing:
    require("agents", f"{missing.name} is not installed: uv sync --all-extras")

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.agents


class Meddling(ClaudeAgentStage):
    """A host with options of its own."""

    more: ClaudeAgentOptions

    def options(self) -> ClaudeAgentOptions:
        """Its own, on top of those of the stage."""
        own = super().options()
        own.hooks, own.can_use_tool = self.more.hooks, self.more.can_use_tool
        own.allowed_tools = self.more.allowed_tools
        return own


@pytest.mark.rule("DIA-7")
async def test_what_another_hook_made_of_it_does_not_run(tmp_path: Path) -> None:
    """A hook of the program that changes an input behind ours keeps the call from running."""

    async def rewrite(given: Any, name: str | None, context: Any) -> Any:
        changed = {**given["tool_input"], "path": "elsewhere"}
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": changed}}

    stage = Meddling(tmp_path)
    stage.more = ClaudeAgentOptions(
        hooks={"PreToolUse": [HookMatcher(hooks=[rewrite])]}, allowed_tools=[ClaudeAgentStage.tool]
    )
    async with SessionCoordinator() as session:
        ran = await stage.run(session, writes("notes"), Say("finished"))
    assert stage.wrote == []
    assert "nothing else may run" in ran.read[1]


@pytest.mark.rule("DIA-7")
@pytest.mark.parametrize("answer", ["yes", "no", "changed", "nobody"])
async def test_the_host_decides_what_is_not_allowed(answer: str, tmp_path: Path) -> None:
    """A tool that the host has not allowed runs when its own callback says so, as it was decided about."""
    said: dict[str, Any] = {
        "yes": PermissionResultAllow(),
        "no": PermissionResultDeny(message="not today"),
        "changed": PermissionResultAllow(updated_input={"path": "elsewhere", "text": ""}),
    }

    async def decide(tool: str, given: dict[str, Any], context: Any) -> Any:
        return said[answer]

    stage = Meddling(tmp_path)
    stage.more = ClaudeAgentOptions(can_use_tool=decide if answer != "nobody" else None)
    async with SessionCoordinator() as session:
        await stage.run(session, writes("notes"), Say("finished"))
    assert [one["path"] for one in stage.wrote] == (["notes"] if answer == "yes" else [])


class Broken(InMemoryContext):
    """A context that cannot be read."""

    def get_messages(self) -> list[dict[str, Any]]:
        """Fail."""
        raise RuntimeError("broken")


@pytest.mark.rule("DIA-7")
async def test_a_callback_that_fails_is_closed(tmp_path: Path) -> None:
    """When our side of the callback fails, the program does not run the tool."""
    hooks = HookRegistry()
    stage = ClaudeAgentStage(tmp_path)
    async with SessionCoordinator(hooks=hooks, context=Broken()) as session:
        await stage.run(session, writes("notes"), Say("finished"))
    assert stage.wrote == []


@pytest.mark.rule("DIA-7")
async def test_a_hook_may_refuse_before_the_host_is_asked(tmp_path: Path) -> None:
    """A hook that refuses questions keeps the host's callback from being asked; nobody else is told of a question."""
    asked: list[str] = []

    async def decide(tool: str, given: dict[str, Any], context: Any) -> Any:
        asked.append(tool)
        return PermissionResultAllow()

    hooks = HookRegistry()
    hooks.gate("approval:required", name="quiet")(lambda event, data: HookResult.deny("nobody is at home"))
    stage = Meddling(tmp_path)
    stage.more = ClaudeAgentOptions(can_use_tool=decide)
    async with SessionCoordinator(hooks=hooks) as session:
        ran = await stage.run(session, writes("notes"), Say("finished"))
        assert (stage.wrote, asked) == ([], [])
        assert "nobody is at home" in ran.read[1]
        stage.more = ClaudeAgentOptions(allowed_tools=[ClaudeAgentStage.tool])
        await stage.run(session, writes("notes"), Say("finished"))
    assert len(stage.wrote) == 1


@pytest.mark.rule("DIA-7")
async def test_a_changed_input_passes_the_callback(tmp_path: Path) -> None:
    """The host's callback is shown what our hooks made of the input."""
    shown: list[Any] = []

    async def decide(tool: str, given: dict[str, Any], context: Any) -> Any:
        shown.append(given)
        return PermissionResultAllow()

    hooks = HookRegistry()
    changed = {"path": "safe", "text": ""}
    hooks.gate("tool:pre", name="guard")(lambda event, data: HookResult.modify({"tool_input": changed}))
    stage = Meddling(tmp_path)
    stage.more = ClaudeAgentOptions(can_use_tool=decide)
    async with SessionCoordinator(hooks=hooks) as session:
        await stage.run(session, writes("notes"), Say("finished"))
    assert shown == [changed]
    assert stage.wrote == [changed]


@pytest.mark.rule("DIA-7")
async def test_options_keep_what_looks_at_the_input() -> None:
    """Of what is allowed, only what allows a tool as a whole moves into the callback."""
    async with SessionCoordinator() as session:
        options = ClaudeAgent(session).options(
            ClaudeAgentOptions(allowed_tools=["Read", "Bash(ls:*)", "mcp__git", "Edit()"])
        )
        assert options.allowed_tools == ["Bash(ls:*)"]
        assert options.can_use_tool is not None
        everything = ClaudeAgent(session).options(ClaudeAgentOptions(permission_mode="bypassPermissions"))
        assert everything.can_use_tool is None
