"""A secret on its way through a session reaches its destination, and no log or record."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import AuditLog, HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.injection.memory_context import InMemoryContext
from amplifier_hooks.testing import CollectingDisplay, ScriptedApprover

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def files(folder: Path) -> str:
    """Return the content of all files."""
    return "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.is_file())


@pytest.mark.rule("AUD-4", "AUD-7")
@pytest.mark.fault("F-LC-06")
async def test_a_secret_stays_where_it_belongs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A secret in prompts, inputs, results, injections and output of hooks is in no log line and no record."""
    caplog.set_level(logging.DEBUG)
    canary = secrets.token_hex(16)
    registry, context, display = HookRegistry(), InMemoryContext(), CollectingDisplay()
    approver, path = ScriptedApprover("Allow"), tmp_path / "audit.jsonl"
    ran: list[Any] = []

    def tool(given: Any) -> Any:
        ran.append(given)
        return given["text"]

    @registry.gate("tool:pre", name="asker", capture=True)
    async def ask(event: str, data: Mapping[str, Any]) -> HookResult:
        print(data["tool_input"])  # noqa: T201  # it is captured
        return HookResult.ask("Really?", suppress_output=True)

    @registry.on("tool:post", name="echoes")
    async def echo(event: str, data: Mapping[str, Any]) -> HookResult:
        return HookResult.inject(data["result"] * 100)

    @registry.on("prompt:submit", name="changes")
    async def change(event: str, data: Mapping[str, Any]) -> HookResult:
        return HookResult.modify({"prompt": f"{data['prompt']}!"})

    async with (
        AuditLog.open(path) as audit,
        SessionCoordinator(
            hooks=registry, context=context, approvals=approver, display=display, audit=audit
        ) as session,
        session.turn(f"use {canary}") as turn,
    ):
        await session.call_model(lambda messages: canary, [{"role": "user", "content": turn.prompt}])
        done = await session.call_tool("Write", {"text": canary}, tool)
        await session.run_step("flow", "one", {"secret": canary}, lambda given: given)
        turn.response = canary

    assert (done.value, ran) == (canary, [{"text": canary}])
    assert canary in context.messages[0]["content"]
    assert approver.requests[0].arguments == {"text": canary}
    told = capfd.readouterr()
    places = {
        "log": "\n".join(str(vars(record)) for record in caplog.records),
        "record": files(tmp_path),
        "screen": str(display.messages),
        "output": told.out + told.err,
        "transcript": str(session.transcript),
    }
    assert {name for name, text in places.items() if canary in text} == set()
    assert "hook_context_injection" in places["log"]
    assert '"injection' in places["record"]
