"""The description of hooks with matchers, as agent SDKs have them: its own words, one test for each line of it.

Each test shows a line that works as it was described, or the difference, and names the rule.
"""

from pathlib import Path
from typing import Any

import pytest

from amplifier_hooks import HookMatcher, HookRegistry, SessionCoordinator
from amplifier_hooks import library as lib

SCHEMA = {
    "type": "object",
    "required": ["file_path", "content"],
    "properties": {"file_path": {"type": "string"}, "content": {"type": "string", "minLength": 5}},
    "examples": [{"file_path": "a.md", "content": "hello"}],
}
TOOLS = {"tools": {"Write": {"input_schema": SCHEMA}}}


async def read(session: SessionCoordinator) -> str:
    """Return what the model would read next."""
    messages: list[Any] = []
    await session.call_model(messages.extend)
    return "\n".join(message["content"] for message in messages)


@pytest.mark.rule("REG-15", "REG-4", "EVT-3")
async def test_the_table_of_matchers() -> None:
    """The description's table works verbatim; other than described, `register_matchers` takes it."""
    ran: list[tuple[str, str]] = []

    def hook(name: str) -> Any:
        async def handler(event: str, data: dict[str, Any]) -> None:
            ran.append((name, data.get("tool_name", "")))

        return handler

    registry = HookRegistry()
    registry.register_matchers(
        {
            "PreToolUse": [
                HookMatcher(matcher="*", hooks=[hook("pre")]),
                HookMatcher(matcher="execute_bash_command", hooks=[hook("bash")]),
            ],
            "PostToolUse": [HookMatcher(matcher="*", hooks=[hook("one"), hook("two")])],
            "UserPromptSubmit": [HookMatcher(matcher="*", hooks=[hook("prompt")])],
            "SubagentStop": [HookMatcher(matcher=None, hooks=[hook("sub")])],
            "AgentStop": [HookMatcher(matcher=None, hooks=[hook("stop")])],
        }
    )
    async with SessionCoordinator(registry) as session, session.turn("hi"):
        await session.call_tool("execute_bash_command", {"command": "ls"}, lambda _: 1)
        await session.call_tool("Read", {}, lambda _: 1)
        await session.emit("AgentStop", {})
        await session.emit("SubagentStop", {})
    bash = "execute_bash_command"
    assert ran == [
        ("prompt", ""), ("pre", bash), ("bash", bash), ("one", bash), ("two", bash),
        ("pre", "Read"), ("one", "Read"), ("two", "Read"), ("stop", ""), ("sub", ""),
    ]  # fmt: skip


@pytest.mark.rule("LIB-1")
async def test_schema_guard_and_nudge() -> None:
    """An input that does not fit is denied with place, rule and example; a failed one is followed by one hint."""
    registry = HookRegistry()
    lib.SchemaGuard.from_config(TOOLS).register(registry)
    async with SessionCoordinator(registry) as session:
        outcome = await session.call_tool("Write", {"file_path": "a", "content": "x"}, pytest.fail)
        assert "/content" in str(outcome.reason)
        assert '{"file_path": "a.md", "content": "hello"}' in str(outcome.reason)
    registry = HookRegistry()
    lib.SchemaNudge.from_config(TOOLS).register(registry)
    async with SessionCoordinator(registry) as session:
        await session.call_tool("Write", {"file_path": "a"}, lambda _: "validation error: missing field 'content'")
        assert '"content" is a required property' in await read(session)
        assert '"content" is a required property' not in await read(session)


@pytest.mark.rule("LIB-2")
async def test_ledger_and_side_effects(tmp_path: Path) -> None:
    """The ledger has tool, input, status and duration of a call; effects of `execute_bash_command` are noted."""
    registry = HookRegistry()
    ledger = lib.ToolLedger.from_config({"store": str(tmp_path / "ledger.db")})
    ledger.register(registry)
    lib.SideEffects.from_config({}).register(registry)

    def broken(_: Any) -> None:
        raise RuntimeError("x")

    async with SessionCoordinator(registry, session_id="s") as session:
        await session.call_tool("execute_bash_command", {"command": "touch a.txt && echo hi > b.txt"}, lambda _: "ok")
        await session.call_tool("Write", {"path": "p"}, broken)
        noted = await read(session)
        entries = await ledger.entries(session="s")
    await ledger.close()
    assert "a.txt" in noted
    assert "b.txt" in noted
    assert [(one.tool, one.status) for one in entries] == [("Write", "failed"), ("execute_bash_command", "ok")]


@pytest.mark.rule("LIB-3", "LIB-4", "RES-6")
async def test_stop_hooks_and_skills(tmp_path: Path) -> None:
    """A stop is held up for at most three rounds, a sub-agent's until its file is there; a skill comes when named."""
    (tmp_path / "pdf").mkdir()
    skill = "---\nname: pdf\ndescription: make PDFs\nkeywords: [pdf, report]\n---\nUse reportlab.\n"
    (tmp_path / "pdf" / "SKILL.md").write_text(skill)
    registry = HookRegistry()
    lib.Skills.from_config({"folders": [str(tmp_path)]}).register(registry)
    lib.KeepGoing.from_config({"promise": "ALL DONE"}).register(registry)
    lib.SubagentArtifacts.from_config({"expected": {"writer": ["report.md"]}}).register(registry)
    session = SessionCoordinator(registry, cwd=tmp_path)
    async with session, session.turn("please make a pdf report"):
        assert "Use reportlab." in await read(session)
        stops = [await session.emit("AgentStop", {"response": "I think so"}) for _ in range(4)]
        assert [stop.denied for stop in stops] == [True, True, True, False]
        assert "round 1 of 3" in str(stops[0].reason)
        ended = {"agent_name": "writer", "response": "done"}
        assert (await session.emit("SubagentStop", ended)).denied
        (tmp_path / "report.md").write_text("x" * 500)
        outcome = await session.emit("SubagentStop", ended)
        assert not outcome.denied
        assert [one.content for one in outcome.injections] == ["Found: report.md (500 bytes)."]


@pytest.mark.rule("LIB-7")
async def test_recovery_hints() -> None:
    """A failed call is followed by a hint about its kind of failure."""
    registry = HookRegistry()
    lib.RecoveryHint.from_config({}).register(registry)

    def missing(_: Any) -> None:
        raise FileNotFoundError("a.txt")

    async with SessionCoordinator(registry) as session:
        await session.call_tool("Read", {"path": "a.txt"}, missing)
        assert "list the folder it should be in" in await read(session)
