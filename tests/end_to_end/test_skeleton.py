"""The whole way, with nothing stood in for but the person: hooks, session, approver, context, screen, file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import AuditLog, HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.act import Act, freeze
from amplifier_hooks.injection.memory_context import InMemoryContext
from amplifier_hooks.session.display import CollectingDisplay
from amplifier_hooks.testing import ScriptedApprover

if TYPE_CHECKING:
    from amplifier_hooks import ToolOutcome


@pytest.mark.rule("COO-2", "COO-3", "AUD-1", "AUD-3", "DIS-1")
async def test_a_turn(tmp_path: Path) -> None:
    """One turn goes the whole way: denied, corrected, asked twice, and all of it on record before it happened."""
    registry = HookRegistry()

    @registry.gate("tool:pre", match="Bash")
    async def no_wiping(event: str, data: Any) -> HookResult | None:
        return HookResult.deny("not here") if "rm -rf" in data["tool_input"]["command"] else None

    @registry.on("tool:pre", match="Write", priority=-10)
    async def absolute(event: str, data: Any) -> HookResult:
        given = data["tool_input"]
        return HookResult.modify({"tool_input": {**given, "file_path": str(tmp_path / given["file_path"])}})

    @registry.gate("tool:pre", match="Write")
    async def protect(event: str, data: Any) -> HookResult | None:
        prod = data["tool_input"]["file_path"].endswith("prod.yaml")
        return HookResult.ask("Change production?", options=["Allow once", "Deny"]) if prod else None

    @registry.on("tool:post", match="Write")
    async def lint(event: str, data: Any) -> HookResult | None:
        bad = data["tool_input"]["content"].endswith(" \n")
        return HookResult.inject("trailing blank", user_message="1 finding") if bad else None

    def write(given: Any) -> str:
        # The record already has the decision and the start of the call, before the call happens.
        kinds.append([json.loads(line)["kind"] for line in path.read_text().splitlines()][-1])
        with open(given["file_path"], "w", encoding="utf-8") as file:  # noqa: PTH123  # the tool's own business
            file.write(given["content"])
        return "written"

    kinds: list[str] = []
    path = tmp_path / "record.jsonl"
    context, display, approver = InMemoryContext(), CollectingDisplay(), ScriptedApprover("Deny", "Allow once")
    async with (
        AuditLog.open(path) as log,
        SessionCoordinator(
            registry, session_id="s1", context=context, approvals=approver, display=display, audit=log
        ) as session,
        session.turn("tidy up") as began,
    ):
        assert not began.denied
        wiped: ToolOutcome[Any] = await session.call_tool(
            "Bash", {"command": "rm -rf /"}, lambda _: pytest.fail("it ran")
        )
        written = await session.call_tool("Write", {"file_path": "a.py", "content": "a = 1 \n"}, write)
        refused = await session.call_tool("Write", {"file_path": "prod.yaml", "content": "x\n"}, write)
        assert not (tmp_path / "prod.yaml").exists()
        allowed = await session.call_tool("Write", {"file_path": "prod.yaml", "content": "y\n"}, write)

    assert wiped.reason == "Operation denied by no_wiping: not here"
    assert written.value == "written"
    assert refused.reason == "Operation denied by protect: User denied: Change production?"
    assert allowed.ok
    assert (tmp_path / "prod.yaml").read_text() == "y\n"
    assert context.messages[0]["content"] == f"⟦hook lint · {context.mark}⟧\ntrailing blank"
    assert len(context.messages) == 1
    assert display.messages == [("1 finding", "info", "hook:lint")]
    assert kinds == ["tool.running", "tool.running"]

    lines = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    records = [{"kind": line["kind"], **line["facts"]} for line in lines]
    decided = [(record["status"], record["by"]) for record in records if record["kind"] == "approval.decided"]
    assert decided == [("denied", "Robin"), ("approved", "Robin")]
    final = freeze({"file_path": str(tmp_path / "prod.yaml"), "content": "y\n"})
    digest = Act("", "s1", "tool:pre", "Write", str(Path.cwd()), final).digest
    assert [record["kind"] for record in records if record.get("digest") == digest] == [
        "approval.requested",
        "approval.decided",
        "tool.running",
        "tool.done",
    ]
