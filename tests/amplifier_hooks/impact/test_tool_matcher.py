"""Matchers by the kind of a tool, over the names that agent programs have for it."""

from __future__ import annotations

import pytest

from amplifier_hooks import HookRegistry, HookResult
from amplifier_hooks.errors import InvalidRegistration
from amplifier_hooks.impact.tool_matcher import compile_tool_matcher
from amplifier_hooks.programs.program_session import ProgramSessions

pytestmark = pytest.mark.rule("REG-4")


@pytest.mark.parametrize(
    ("spec", "tool", "matches"),
    [
        ("kind:shell", "Bash", True),
        ("kind:shell", "run_shell_command", True),
        ("kind:shell", "Write", False),
        ("kind:write|kind:edit", "apply_patch", True),
        ("kind:write|kind:edit", "mcp__filesystem__write_file", True),
        ("kind:write|Special*", "SpecialTool", True),
        ("kind:write|Special*", "Read", False),
        ("kind:agent", "mcp__x__unheard_of", False),
        ("kind:server", "mcp__x__unheard_of", True),
    ],
)
def test_a_kind_stands_for_its_tools_in_every_program(spec: str, tool: str, matches: bool) -> None:
    """A kind stands for the tools of that kind in every program, beside names and globs."""
    assert compile_tool_matcher(spec).matches(tool) is matches
    assert compile_tool_matcher(spec.split("|")).matches(tool) is matches


def test_an_expression_names_no_kind() -> None:
    """In a regular expression the word `kind:` is text like any other, and stands for no tools."""
    matcher = compile_tool_matcher("re:Special|kind:write")
    assert [tool for tool in ("Special", "kind:write", "Write") if matcher.matches(tool)] == ["Special", "kind:write"]


@pytest.mark.parametrize("spec", ["kind:shall", "kind:", "Write|kind:Shell"])
def test_an_unknown_kind_is_refused(spec: str) -> None:
    """A kind that no table has is refused with the known ones, because it would match nothing."""
    with pytest.raises(InvalidRegistration, match=r"unknown kind|is no tool name"):
        HookRegistry().gate("tool:pre", lambda event, data: None, match=spec)


async def test_one_gate_guards_every_program() -> None:
    """One gate by kinds denies the shells and the writes of Claude Code, Codex and Gemini."""
    registry = HookRegistry()
    registry.gate("tool:pre", match="kind:shell|kind:write|kind:edit")(lambda _e, _d: HookResult.deny("no"))
    sessions = ProgramSessions(registry)
    for program, event, tool in (
        ("claude_code", "PreToolUse", "MultiEdit"),
        ("codex", "PreToolUse", "apply_patch"),
        ("gemini", "BeforeTool", "run_shell_command"),
        ("gemini", "BeforeTool", "write_file"),
    ):
        about = {"session_id": program, "cwd": "/tmp", "tool_use_id": tool, "tool_input": {"command": "id"}}
        ended = await sessions.answer(program, {"hook_event_name": event, "tool_name": tool, **about})
        assert b"deny" in ended.output, tool
    await sessions.close()
