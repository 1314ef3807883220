"""Ready-made hooks over a session with model calls, skills and side effects: all their counts agree."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pytest
from attrs import define, field
from prometheus_client import CollectorRegistry

from amplifier_hooks import AuditLog, HookRegistry, SessionCoordinator, library
from amplifier_hooks.definitions.model import band_of
from amplifier_hooks.injection.memory_context import InMemoryContext
from amplifier_hooks.library.cost_guard import Usage
from amplifier_hooks.testing import CollectingDisplay
from tests.records import entries

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from amplifier_hooks.library.parts.ready_made import ReadyMade
    from amplifier_hooks.library.tool_ledger import LedgerEntry
    from amplifier_hooks.record.line import LogEntry
    from amplifier_hooks.session.tool_call import ToolOutcome

TURNS: Final = 5
CALLS: Final = 50
ALLOWED: Final = 45
WRITE: Final = {
    "type": "object",
    "properties": {"file_path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["file_path", "content"],
}
UNUSED: Final = "import os\n"
SECRET: Final = b"abcdef1234567890"


def project(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the hooks of the project, by name, as they would stand in a file."""
    return {
        "protected_paths": {"paths": ["**/.env"], "action": "deny"},
        "redact_secrets": {},
        "rate_limit": {"calls": ALLOWED, "seconds": 3_600},
        "cost_guard": {"tokens_per_session": 10_000, "then": "deny"},
        "schema_guard": {"tools": {"Write": {"input_schema": WRITE}}},
        "skills": {"folders": [str(folder / "skills")]},
        "side_effects": {},
        "tool_ledger": {"store": str(folder / "ledger.db")},
        "linter_feedback": {},
        "recovery_hint": {},
        "date_time": {},
        "metrics": {},
    }


def script() -> list[tuple[str, dict[str, Any]]]:
    """Return the calls, in five turns of ten."""
    return [
        call
        for turn in range(TURNS)
        for call in (
            ("Read", {"file_path": f"notes{turn}.txt"}),
            ("Write", {"file_path": f"app{turn}.py", "content": UNUSED}),
            ("Write", {"file_path": f"notes{turn}.txt", "content": "token=abcdef1234567890"}),
            ("Write", {"file_path": f"notes{turn}.txt", "content": "token=abcdef1234567890"}),
            ("Read", {"file_path": f"notes{turn}.txt"}),
            ("Write", {"file_path": f"broken{turn}.txt"}),
            ("Bash", {"command": f"touch made{turn} && rm -f gone{turn}"}),
            ("Bash", {"command": "ls"}),
            ("Write", {"file_path": ".env" if turn < 3 else "env.txt", "content": "x"}),
            ("Read", {"file_path": f"app{turn}.py"}),
        )
    ]


def carry_out(folder: Path, tool: str, given: Mapping[str, Any]) -> Any:
    """Run a tool, which really reads and writes."""
    if tool == "Bash":
        return {"stdout": "", "status": 0}
    path = folder / given["file_path"]
    if tool == "Read":
        return path.read_text(encoding="utf-8")
    path.write_text(given["content"], encoding="utf-8")
    return "written"


def answer(usage: dict[str, int], messages: list[Any]) -> dict[str, Any]:
    """Return the model's answer."""
    return {"text": "on it", "usage": usage}


def counted(text: str, name: str, **labels: str) -> float:
    """Return the sum of a metric over all series with these labels."""
    total = 0.0
    for series, value in re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE):
        found = dict(re.findall(r'(\w+)="([^"]*)"', series))
        if labels.items() <= found.items():
            total += float(value)
    return total


@define
class Played:
    """The session, once it is over."""

    hooks: dict[str, ReadyMade[Any]]
    folder: Path
    numbers: CollectorRegistry = field(factory=CollectorRegistry)
    messages: list[Any] = field(factory=list)
    outcomes: dict[str, ToolOutcome[Any]] = field(factory=dict)
    ran: list[tuple[str, ...]] = field(factory=list)
    """Hooks that each call met, in their order."""
    spent: int = 0
    """Tokens of the model, as its provider counts them."""
    injected: list[int] = field(factory=list)
    """Tokens of injected text, turn by turn."""
    kept: dict[str, LedgerEntry] = field(factory=dict)
    used: Usage = field(factory=Usage)
    recorded: list[LogEntry] = field(factory=list)

    @property
    def statuses(self) -> Counter[str]:
        """Numbers of calls by status, in the ledger."""
        return Counter(entry.status for entry in self.kept.values())


async def play(base: Path) -> Played:
    """Switch the hooks on and play the script."""
    folder = base / "project"
    (folder / "skills").mkdir(parents=True)
    (folder / "skills" / "release.md").write_text("---\nname: release\n---\nTag it, then push.\n", encoding="utf-8")
    made = {hook.name: hook for hook in (getattr(library, name) for name in library.__all__)}
    one = Played({name: made[name].from_config(config) for name, config in project(folder).items()}, folder)
    one.hooks["metrics"] = library.Metrics(prometheus=one.numbers)
    registry, context = HookRegistry(), InMemoryContext()
    for hook in one.hooks.values():
        hook.register(registry)
    ledger, guard = one.hooks["tool_ledger"], one.hooks["cost_guard"]
    assert isinstance(ledger, library.ToolLedger)
    assert isinstance(guard, library.CostGuard)
    registry.observe("tool:pre", lambda event, data, outcome: one.ran.append(outcome.ran), name="order")
    (base / "audit").mkdir(mode=0o700)
    async with (
        ledger,
        AuditLog.open(base / "audit" / "record.jsonl") as audit,
        SessionCoordinator(
            registry, session_id="s", context=context, display=CollectingDisplay(), audit=audit, cwd=folder
        ) as session,
    ):
        calls = iter(enumerate(script()))
        for turn in range(TURNS):
            async with session.turn("Prepare the release." if turn < 2 else "Go on."):
                usage = {"input_tokens": 100 + turn, "output_tokens": 10}
                one.spent += sum(usage.values())
                assert (await session.call_model(partial(answer, usage))).ok
                for number, (tool, given) in islice(calls, CALLS // TURNS):
                    call = f"call-{number:02}"
                    done = partial(carry_out, folder, tool)
                    one.outcomes[call] = await session.call_tool(tool, given, done, call_id=call)
                one.injected.append(session.tokens_this_turn)
        one.kept = {entry.call: entry for entry in await ledger.entries(session="s")}
        one.used = (await guard.usage_of({"session_id": "s"}))["session"]
    one.messages = context.messages
    one.recorded = entries(base / "audit" / "record.jsonl")
    return one


@pytest.mark.slow
@pytest.mark.rule("LIB-1", "LIB-2", "LIB-4", "LIB-5", "LIB-6", "LIB-7", "LIB-8", "REG-2", "INJ-3")
@pytest.mark.fault("F-LC-06")
async def test_everybody_counts_the_same(tmp_path: Path) -> None:
    """Order, budgets, ledger, metrics, cost and record agree about every one of fifty calls."""
    one = await play(tmp_path)
    the_calls_agree(one)
    the_numbers_agree(one)
    the_order_is_that_of_the_bands(one)
    the_budget_held(one)
    files = [tmp_path / "audit" / "record.jsonl", one.folder / "ledger.db"]
    seen = [*(path.read_bytes() for path in files), repr((one.messages, one.outcomes, one.kept)).encode()]
    seen += [path.read_bytes() for path in one.folder.glob("notes*.txt")]
    assert not [text for text in seen if SECRET in text]


def the_calls_agree(one: Played) -> None:
    """Check that the caller, the ledger and the record agree about the end of each call."""
    assert {call: entry.status for call, entry in one.kept.items()} == {
        call: outcome.status for call, outcome in one.outcomes.items()
    }
    by = Counter(outcome.by for outcome in one.outcomes.values() if outcome.denied)
    assert by == {"protected_paths": 3, "schema_guard": 5, "rate_limit": 2}
    assert one.statuses == {"ok": 35, "failed": 5, "denied": 10}
    recorded = {
        kind: {entry.facts["call"]: entry.facts for entry in one.recorded if entry.kind == kind}
        for kind in ("tool.running", "tool.done", "tool.failed", "tool.denied")
    }
    ends = {"tool.done": "ok", "tool.failed": "failed", "tool.denied": "denied"}
    assert {call: status for kind, status in ends.items() for call in recorded[kind]} == {
        call: entry.status for call, entry in one.kept.items()
    }
    assert {call: facts["digest"] for call, facts in recorded["tool.running"].items()} == {
        call: entry.digest for call, entry in one.kept.items() if entry.status != "denied"
    }
    assert all(one.kept[call].reason.startswith(f"{facts['by']}: ") for call, facts in recorded["tool.denied"].items())


def the_numbers_agree(one: Played) -> None:
    """Check that the metrics count the calls of the ledger, and the tokens of the cost guard."""
    text = library.Metrics(prometheus=one.numbers).text()
    assert counted(text, "amplifier_events_total", event="tool:pre") == CALLS
    assert counted(text, "amplifier_events_total", event="tool:pre", action="deny") == one.statuses["denied"]
    assert counted(text, "amplifier_tool_duration_seconds_count", status="ok") == one.statuses["ok"]
    assert counted(text, "amplifier_tool_duration_seconds_count", status="error") == one.statuses["failed"]
    assert counted(text, "amplifier_hook_failures_total") == 0
    assert one.used.tokens == one.spent == counted(text, "amplifier_model_tokens_sum")


def the_order_is_that_of_the_bands(one: Played) -> None:
    """Check that every call met its hooks in the order of their bands."""
    places = {
        point.priority: name
        for name, hook in one.hooks.items()
        for point in hook.points()
        if (point.event, point.intent != "observe") == ("tool:pre", True)
    }
    wanted = [places[priority] for priority in sorted(places)]
    assert wanted == ["protected_paths", "redact_secrets", "rate_limit", "schema_guard", "side_effects", "tool_ledger"]
    assert [band_of(priority).name for priority in sorted(places)] == [
        "security", "security", "governance", "input", "execution", "execution",
    ]  # fmt: skip
    assert len(one.ran) == CALLS
    assert all([name for name in wanted if name in names] == list(names) for names in one.ran)


def the_budget_held(one: Played) -> None:
    """Check that no turn had more injected than its budget, the record has every token, and a skill is shown once."""
    assert all(0 < tokens <= 1_000 for tokens in one.injected)
    recorded = [entry.facts["tokens"] for entry in one.recorded if entry.kind == "injection"]
    assert sum(recorded) == sum(one.injected)
    texts = [str(message["content"]) for message in one.messages]
    assert sum("Skill release\nTag it, then push." in text for text in texts) == 1
    assert [sum(f"app{turn}.py:1:8: F401" in text for text in texts) for turn in range(TURNS)] == [1] * TURNS
