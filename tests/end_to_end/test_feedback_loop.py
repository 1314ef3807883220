"""A real linter reads along, and the agent mends its findings in the same turn."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.injection.memory_context import InMemoryContext
from amplifier_hooks.injection.tokens.counter import count
from amplifier_hooks.testing import CollectingAudit, CollectingDisplay

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BROKEN = "import os\n\nprint('hello')\n"
MENDED = "print('hello')\n"
OLD = "".join(f"import module_{number}\n" for number in range(150))


async def ruff(folder: Path, name: str) -> str:
    """Return the findings of ruff."""
    options = ["check", "--isolated", "--no-cache", "--output-format", "concise", "--quiet", name]
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ruff", *options, cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    findings, _ = await program.communicate()
    return findings.decode()


class Agent:
    """A scripted model, and its one tool: it mends the findings, then writes worse code."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reads: list[str] = []
        self.writes: list[str] = []

    def __call__(self, messages: list[Any]) -> dict[str, Any] | None:
        """Read all messages, and decide on the next call."""
        self.reads.append("\n".join(message["content"] for message in messages))
        script = [("app.py", BROKEN), ("app.py", MENDED), ("old.py", OLD)]
        if len(self.writes) == len(script):
            return None
        if self.writes:
            assert "app.py:1:8: F401" in self.reads[-1], "it mends what it has read about"
        name, text = script[len(self.writes)]
        return {"name": name, "text": text}

    def write(self, given: dict[str, Any]) -> str:
        """The tool."""
        self.writes.append(given["name"])
        (self.folder / given["name"]).write_text(given["text"], encoding="utf-8")
        return "written"


@pytest.mark.rule("COO-3", "INJ-1", "INJ-3", "DIS-1")
@pytest.mark.fault("F-INJ-05")
async def test_findings_are_mended_in_the_same_turn(tmp_path: Path) -> None:
    """The model reads and mends a linter's findings in one turn; excess findings are cut, marked and reported."""
    registry, context, display, audit = HookRegistry(), InMemoryContext(), CollectingDisplay(), CollectingAudit()
    session = SessionCoordinator(hooks=registry, context=context, display=display, audit=audit)
    agent = Agent(tmp_path)

    @registry.on("tool:post", match="Write", timeout=60)
    async def lint(event: str, data: Mapping[str, Any]) -> HookResult | None:
        findings = await ruff(tmp_path, data["tool_input"]["name"])
        return HookResult.inject(findings, user_message=f"{findings.count('F401')} findings") if findings else None

    async with session, session.turn("Tidy up."):
        while (wanted := (await session.call_model(agent)).value) is not None:
            call_id = f"call-{len(agent.writes)}"
            context.add_tool_calls([{"id": call_id, "name": "Write", "input": wanted}])
            done = await session.call_tool("Write", wanted, agent.write, call_id=call_id)
            context.add_tool_result(call_id, done.value or "")

    assert agent.writes == ["app.py", "app.py", "old.py"]
    assert await ruff(tmp_path, "app.py") == ""
    assert "F401" not in agent.reads[0]
    assert agent.reads[1].endswith(f"⟦hook lint · {context.mark}⟧\napp.py:1:8: F401 [*] `os` imported but unused\n")
    assert agent.reads[2] == agent.reads[1] + "\n\nwritten"

    injected = [message["content"] for message in context.messages if message["role"] == "system"]
    assert sum(count(text).tokens for text in injected) == session.tokens_this_turn <= 1_000
    report = injected[-1].splitlines()
    cut = re.fullmatch(r"⟦trimmed · kept (\d+) of ([\d,]+) tokens · \w+⟧", report[-1])
    assert cut is not None
    assert all(re.fullmatch(r"old\.py:\d+:8: F401 .* imported but unused", line) for line in report[1:-1])
    assert 20 < len(report) - 2 < 150
    assert audit.facts("injection.trimmed")[0]["kept"] == int(cut[1])

    *told, warning = display.messages
    assert told == [("1 findings", "info", "hook:lint"), ("150 findings", "info", "hook:lint")]
    assert warning[0].startswith(f"a text of hook 'lint' was cut: the model reads {cut[1]} of its {cut[2]} tokens")
    assert warning[1:] == ("warning", "session")
    assert not any("old.py" in text for text, _, _ in display.messages)
