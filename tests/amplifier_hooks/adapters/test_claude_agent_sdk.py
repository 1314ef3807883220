"""The permission callback: the program runs exactly the calls that were decided about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.adapters.claude_agent_sdk import ClaudeAgent
from amplifier_hooks.injection.memory_context import InMemoryContext
from amplifier_hooks.testing import CollectingAudit, ScriptedApprover
from tests.end_to_end.adapters.stage import Say, writes
from tests.end_to_end.adapters.stage_claude_agent_sdk import ClaudeAgentStage

if TYPE_CHECKING:
    from pathlib import Path

agents = pytest.mark.agents
"""The mark of a test that runs the program."""


class Meddling(ClaudeAgentStage):
    """A host with options of its own."""

    more: ClaudeAgentOptions

    def options(self) -> ClaudeAgentOptions:
        """Return its own options, on top of those of the stage."""
        own = super().options()
        own.hooks, own.can_use_tool = self.more.hooks, self.more.can_use_tool
        own.allowed_tools, own.settings = self.more.allowed_tools, self.more.settings
        own.setting_sources = self.more.setting_sources or []
        return own


@agents
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


@agents
@pytest.mark.rule("DIA-7")
@pytest.mark.parametrize("answer", ["yes", "no", "changed", "no callback"])
async def test_the_host_decides_what_is_not_allowed(answer: str, tmp_path: Path) -> None:
    """A tool that the host has not allowed runs when its own callback allows it, as it was decided about."""
    said: dict[str, Any] = {
        "yes": PermissionResultAllow(),
        "no": PermissionResultDeny(message="not today"),
        "changed": PermissionResultAllow(updated_input={"path": "elsewhere", "text": ""}),
    }

    async def decide(tool: str, given: dict[str, Any], context: Any) -> Any:
        return said[answer]

    stage = Meddling(tmp_path)
    stage.more = ClaudeAgentOptions(can_use_tool=decide if answer != "no callback" else None)
    async with SessionCoordinator() as session:
        await stage.run(session, writes("notes"), Say("finished"))
    assert [one["path"] for one in stage.wrote] == (["notes"] if answer == "yes" else [])


class Broken(InMemoryContext):
    """A context that cannot be read."""

    def get_messages(self) -> list[dict[str, Any]]:
        """Raise an error."""
        raise RuntimeError("broken")


@agents
@pytest.mark.rule("DIA-7")
async def test_a_callback_that_fails_is_closed(tmp_path: Path) -> None:
    """If our side of the callback fails, the program does not run the tool."""
    hooks = HookRegistry()
    stage = ClaudeAgentStage(tmp_path)
    async with SessionCoordinator(hooks=hooks, context=Broken()) as session:
        await stage.run(session, writes("notes"), Say("finished"))
    assert stage.wrote == []


@agents
@pytest.mark.rule("DIA-7")
async def test_a_hook_may_refuse_before_the_host_is_asked(tmp_path: Path) -> None:
    """A hook that refuses questions keeps the host's callback from being asked, and no other approver is asked."""
    asked: list[str] = []

    async def decide(tool: str, given: dict[str, Any], context: Any) -> Any:
        asked.append(tool)
        return PermissionResultAllow()

    hooks = HookRegistry()
    hooks.gate("approval:required", name="quiet")(lambda event, data: HookResult.deny("no approver is at home"))
    stage = Meddling(tmp_path)
    stage.more = ClaudeAgentOptions(can_use_tool=decide)
    async with SessionCoordinator(hooks=hooks) as session:
        ran = await stage.run(session, writes("notes"), Say("finished"))
        assert (stage.wrote, asked) == ([], [])
        assert "no approver is at home" in ran.read[1]
        stage.more = ClaudeAgentOptions(allowed_tools=[ClaudeAgentStage.tool])
        await stage.run(session, writes("notes"), Say("finished"))
    assert len(stage.wrote) == 1


@agents
@pytest.mark.rule("DIA-7")
async def test_a_changed_input_passes_the_callback(tmp_path: Path) -> None:
    """The host's callback sees the input as our hooks changed it."""
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


class Callbacks:
    """The program's side of our callbacks, without the program."""

    def __init__(self, options: ClaudeAgentOptions) -> None:
        assert options.hooks is not None
        assert options.can_use_tool is not None
        self._hook: Any = options.hooks["PreToolUse"][-1].hooks[0]
        self._permission = options.can_use_tool

    async def before(self, tool: str, name: str, **given: Any) -> Any:
        """Return the answer of the hooks before a tool."""
        common = {"session_id": "s", "transcript_path": "", "cwd": "/", "hook_event_name": "PreToolUse"}
        call = {"tool_name": tool, "tool_input": given or {"path": "a"}, "tool_use_id": name}
        return await self._hook({**common, **call}, name, {"signal": None})

    async def permission(self, tool: str, name: str) -> Any:
        """Return the answer of the callback for permissions, with the input that the program then runs the tool with.

        The SDK runs the tool with its own object if an answer has no input.
        """
        given = {"path": "a"}
        answer: Any = await self._permission(tool, given, ToolPermissionContext(tool_use_id=name))
        if isinstance(answer, PermissionResultAllow) and answer.updated_input is None:
            return PermissionResultAllow(updated_input=given)
        return answer

    async def permitted(self, tool: str, name: str) -> bool:
        """Return True if the callback for permissions lets the call pass, exactly as it was."""
        answer = await self.permission(tool, name)
        if isinstance(answer, PermissionResultAllow):
            assert answer.updated_input == {"path": "a"}
            return True
        return False

    async def runs(self, tool: str, name: str) -> bool:
        """Return True if the tool would run."""
        await self.before(tool, name)
        return await self.permitted(tool, name)


@pytest.mark.rule("DIA-10")
@pytest.mark.parametrize("host", ["refuses", "fails"])
async def test_a_call_that_gets_no_permission_is_over(host: str) -> None:
    """A call that the hooks allow and the permissions do not is on record as cancelled, and nothing waits for it."""

    async def theirs(tool: str, given: dict[str, Any], context: Any) -> Any:
        if host == "fails":
            raise OSError("the host is broken")
        return PermissionResultDeny(message="no")

    audit = CollectingAudit()
    async with SessionCoordinator(audit=audit) as session:
        program = Callbacks(ClaudeAgent(session).options(ClaudeAgentOptions(can_use_tool=theirs)))
        await program.before("Write", "1")
        if host == "fails":
            with pytest.raises(OSError, match="broken"):
                await program.permitted("Write", "1")
        else:
            assert not await program.permitted("Write", "1")
        assert audit.kinds.count("tool.cancelled") == 1


@pytest.mark.rule("DIA-10")
async def test_a_program_that_is_gone_leaves_nothing_behind() -> None:
    """A call that was admitted and never reported is on record as cancelled when the session ends."""
    audit = CollectingAudit()
    async with SessionCoordinator(audit=audit) as session:
        await Callbacks(ClaudeAgent(session).options()).before("Read", "1")
    assert audit.kinds.count("tool.cancelled") == 1


@pytest.mark.rule("DIA-7")
async def test_an_approval_is_for_the_tool_that_was_shown() -> None:
    """The approval of one tool does not let another tool pass with an equal id and input."""
    hooks = HookRegistry()
    hooks.gate("tool:pre", name="guard")(lambda event, data: HookResult.ask("Read it?"))
    async with SessionCoordinator(hooks=hooks, approvals=ScriptedApprover("Allow", "Allow")) as session:
        program = Callbacks(ClaudeAgent(session).options())
        await program.before("Read", "1")
        assert not await program.permitted("Write", "1")
        await program.before("Read", "2")
        assert await program.permitted("Read", "2")


@pytest.mark.rule("DIA-11")
async def test_an_approval_is_for_one_call_of_its_id() -> None:
    """An approved call begins once, and a later call under its id needs a permission of its own."""
    hooks, audit = HookRegistry(), CollectingAudit()
    hooks.gate("tool:pre", match="Read", name="guard")(lambda event, data: HookResult.ask("Read it?"))
    async with SessionCoordinator(hooks=hooks, approvals=ScriptedApprover("Allow", "Allow"), audit=audit) as session:
        program = Callbacks(ClaudeAgent(session).options())
        assert await program.runs("Read", "1")
        assert not await program.permitted("Read", "1")
        assert await program.runs("Read", "2")
        assert not await program.runs("Write", "2")
        assert not await program.permitted("Read", "2")
    assert audit.kinds.count("tool.cancelled") == audit.kinds.count("tool.running") == 3


@pytest.mark.rule("DIA-7")
async def test_a_change_that_python_takes_for_none_is_told() -> None:
    """A hook that makes true of 1 has changed the input, and the program is told so."""
    hooks = HookRegistry()
    changed = {"path": "a", "on": True}
    hooks.gate("tool:pre", name="guard")(lambda event, data: HookResult.modify({"tool_input": changed}))
    async with SessionCoordinator(hooks=hooks) as session:
        told = await Callbacks(ClaudeAgent(session).options()).before("Write", "1", path="a", on=1)
    assert told["hookSpecificOutput"]["updatedInput"]["on"] is True


@agents
@pytest.mark.rule("DIA-7")
async def test_settings_do_not_switch_our_hooks_off(tmp_path: Path) -> None:
    """If the program's settings switch all hooks off, our hooks are asked nevertheless."""
    hooks = HookRegistry()
    hooks.gate("tool:pre", name="guard")(lambda event, data: HookResult.deny("not here"))
    stage = Meddling(tmp_path)
    stage.more = ClaudeAgentOptions(allowed_tools=[ClaudeAgentStage.tool], settings='{"disableAllHooks": true}')
    async with SessionCoordinator(hooks=hooks) as session:
        ran = await stage.run(session, writes("notes"), Say("finished"))
    assert stage.wrote == []
    assert "not here" in ran.read[1]


@agents
@pytest.mark.rule("DIA-9")
async def test_what_a_command_of_the_program_runs_is_not_asked_about(tmp_path: Path) -> None:
    """A shell line in a command of the program runs without our hooks, as docs/adapters.md says; a gate can deny it."""
    folder = tmp_path / ".claude" / "commands"
    folder.mkdir(parents=True)
    (folder / "go.md").write_text("---\nallowed-tools: Bash(touch:*)\n---\nGo !`touch ran`\n")
    hooks = HookRegistry()
    asked: list[str] = []
    hooks.gate("tool:pre", name="tools")(lambda event, data: asked.append(data["tool_name"]))
    stage = Meddling(tmp_path)
    stage.more = ClaudeAgentOptions(setting_sources=["project"])
    async with SessionCoordinator(hooks=hooks) as session:
        await stage.run(session, Say("finished"), prompt="/go")
        assert (asked, (tmp_path / "ran").exists()) == ([], True)
        (tmp_path / "ran").unlink()

        @hooks.gate("prompt:submit", name="commands")
        async def commands(event: str, data: Any) -> HookResult | None:
            return HookResult.deny("no commands") if data["prompt"].startswith("/") else None

        await stage.run(session, Say("finished"), prompt="/go")
    assert (tmp_path / "ran").exists() is False


@pytest.mark.rule("DIA-7")
async def test_options_keep_what_looks_at_the_input() -> None:
    """Of the allowed entries, only those that allow a whole tool move into the callback."""
    async with SessionCoordinator() as session:
        options = ClaudeAgent(session).options(
            ClaudeAgentOptions(allowed_tools=["Read", "Bash(ls:*)", "mcp__git", "Edit()", "[A-Z]*", "???"])
        )
        assert options.allowed_tools == ["Bash(ls:*)"]
        allowed = Callbacks(options)
        assert not await allowed.runs("NotAllowed", "1")
        assert await allowed.runs("mcp__git__log", "2")
        assert await allowed.runs("Read", "3")
        everything = ClaudeAgent(session).options(ClaudeAgentOptions(permission_mode="bypassPermissions"))
        assert everything.can_use_tool is None


SPOILT = {"path": "elsewhere"}


@pytest.mark.rule("DIA-7")
@pytest.mark.parametrize(
    ("answer", "runs", "message"),
    [
        (PermissionResultAllow(), True, ""),
        (PermissionResultAllow(updated_input={"path": "a"}), True, ""),
        (PermissionResultAllow(updated_input=SPOILT), False, "nothing else may run"),
        (PermissionResultDeny(message="not today"), False, "not today"),
        (None, False, "not among allowed_tools"),
    ],
)
async def test_the_answer_of_the_hosts_own_callback(answer: Any, runs: bool, message: str) -> None:
    """The host's own callback lets a call pass that no approver has allowed, as it was decided about, or refuses it."""

    async def theirs(tool: str, given: dict[str, Any], context: Any) -> Any:
        given.update(SPOILT)
        return answer

    async with SessionCoordinator() as session:
        options = ClaudeAgentOptions(can_use_tool=theirs if answer is not None else None)
        program = Callbacks(ClaudeAgent(session).options(options))
        await program.before("Write", "1")
        given = await program.permission("Write", "1")
    assert isinstance(given, PermissionResultAllow) is runs
    assert message in getattr(given, "message", "")
    assert not runs or given.updated_input == {"path": "a"}


@pytest.mark.rule("DIA-7")
async def test_a_hook_that_refuses_the_question_to_the_host() -> None:
    """A hook that refuses the question keeps the host's callback from being asked, and the call from running."""
    asked: list[str] = []

    async def theirs(tool: str, given: dict[str, Any], context: Any) -> Any:
        asked.append(tool)
        return PermissionResultAllow()

    hooks = HookRegistry()
    hooks.gate("approval:required", name="quiet")(lambda event, data: HookResult.deny("no approver is at home"))
    async with SessionCoordinator(hooks=hooks) as session:
        program = Callbacks(ClaudeAgent(session).options(ClaudeAgentOptions(can_use_tool=theirs)))
        await program.before("Write", "1")
        answer = await program.permission("Write", "1")
    assert (answer.message, asked) == ("no approver is at home", [])


@pytest.mark.rule("DIA-7", "DSP-7")
async def test_no_hook_holds_the_input_that_the_program_runs() -> None:
    """A hook that changes the input in place, when the host is asked, changes nothing that runs."""

    async def theirs(tool: str, given: dict[str, Any], context: Any) -> Any:
        return PermissionResultAllow()

    hooks = HookRegistry()
    hooks.on("approval:required", lambda event, data: dict.update(data["tool_input"], SPOILT), name="spoil")
    async with SessionCoordinator(hooks=hooks) as session:
        program = Callbacks(ClaudeAgent(session).options(ClaudeAgentOptions(can_use_tool=theirs)))
        assert await program.runs("Write", "1")


@pytest.mark.rule("DIA-7")
async def test_where_the_program_asks_no_callback() -> None:
    """With `bypassPermissions`, or a permission tool of the host, the host's options stay; a failing hook blocks."""
    async with SessionCoordinator() as session:
        for given in (
            ClaudeAgentOptions(permission_mode="bypassPermissions", allowed_tools=["Read"]),
            ClaudeAgentOptions(permission_prompt_tool_name="mcp__host__ask", allowed_tools=["Read"]),
        ):
            options = ClaudeAgent(session).options(given)
            assert (options.can_use_tool, options.allowed_tools) == (None, ["Read"])
            assert options.hooks is not None
            assert {one.on_failure for matchers in options.hooks.values() for one in matchers} == {"block"}


@pytest.mark.rule("DIA-7")
async def test_an_entry_that_looks_at_the_input_allows_no_other_input() -> None:
    """An entry such as `Bash(ls:*)` stays with the program; our callback allows no call of its tool."""
    async with SessionCoordinator() as session:
        given = ClaudeAgentOptions(allowed_tools=["Bash(ls:*)", "mcp__git__log", "Edit(*)"])
        program = Callbacks(ClaudeAgent(session).options(given))
        assert not await program.runs("Bash", "1")
        assert not await program.runs("mcp__git__log__more", "2")
        assert not await program.runs("Editor", "3")
        assert await program.runs("mcp__git__log", "4")
        assert await program.runs("Edit", "5")
