import os
from pathlib import Path
from typing import Any

import pytest

from amplifier_hooks import HookRegistry, Outcome
from amplifier_hooks.library.subagent_artifacts import SubagentArtifacts, SubagentArtifactsSettings

pytestmark = pytest.mark.rule("LIB-3", "RES-6")

NOW = 1_700_000_000.0


@pytest.fixture
def registry() -> HookRegistry:
    """Return a registry to which each test adds its own hook."""
    return HookRegistry()


def expecting(registry: HookRegistry, folder: Path, **settings: Any) -> None:
    """Expect a report of writers."""
    given = {"expected": {"writer*": ["report.md", "out/*.csv"]}, "cwd": str(folder), **settings}
    SubagentArtifacts(SubagentArtifactsSettings.model_validate(given), now=lambda: NOW).register(registry)


def leave(path: Path, text: str = "x", *, at: float = NOW) -> None:
    """Leave a file behind."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (at, at))


async def stop(registry: HookRegistry, agent: str = "a1", **more: Any) -> Outcome:
    """Emit the stop of a sub-agent."""
    return await registry.emit(
        "subagent:stop", {"session_id": "s", "agent_name": "writer-2", "agent_id": agent, **more}
    )


async def test_found_or_sent_back(registry: HookRegistry, tmp_path: Path) -> None:
    """While a file is missing or empty the sub-agent is sent back; then it reads the names of the files."""
    expecting(registry, tmp_path)
    leave(tmp_path / "report.md", "")
    first = await stop(registry)
    assert (first.action, first.reason) == (
        "deny", "retry 1 of 2: there is no report.md, out/*.csv, or it is empty. Write it, then stop",
    )  # fmt: skip
    leave(tmp_path / "report.md", "Report")
    leave(tmp_path / "out" / "a.csv")
    done = await stop(registry)
    assert (done.action, done.context_injection) == (
        "inject_context",
        "Found: report.md (6 bytes), out/a.csv (1 bytes).",
    )


async def test_a_bound(registry: HookRegistry, tmp_path: Path) -> None:
    """A sub-agent is sent back a limited number of times; then it stops, and agent and user read the missing files."""
    expecting(registry, tmp_path, retries=1)
    actions = [(await stop(registry)).action for _ in range(3)]
    assert actions == ["deny", "inject_context", "inject_context"]
    last = await stop(registry)
    assert last.user_message == "The sub-agent stopped, and there is no report.md, out/*.csv, or it is empty."
    assert last.context_injection == last.user_message
    assert (await stop(registry, "a2")).denied


async def test_older_files_do_not_count(registry: HookRegistry, tmp_path: Path) -> None:
    """A file from before the sub-agent's start is not its work."""
    leave(tmp_path / "report.md", at=NOW - 60)
    leave(tmp_path / "out" / "a.csv", at=NOW - 1)
    expecting(registry, tmp_path)
    assert (await stop(registry)).context_injection
    await registry.emit("subagent:start", {"session_id": "s", "agent_name": "writer-2", "agent_id": "a1"})
    assert (await stop(registry)).reason == (
        "retry 1 of 2: there is no report.md, or it is empty or older than this sub-agent. Write it, then stop"
    )


async def test_others_may_stop(registry: HookRegistry, tmp_path: Path) -> None:
    """Sub-agents without expected files stop at once; they are known by name or by type."""
    expecting(registry, tmp_path)
    assert (await stop(registry, agent_name="reader")).action == "continue"
    assert (await stop(registry, agent_name="reader", agent_type="writer")).denied


async def test_many(registry: HookRegistry, tmp_path: Path) -> None:
    """Of many files some are named; of very many sub-agents the first are forgotten."""
    expecting(registry, tmp_path, expected={"*": ["*.txt"]})
    for number in range(10):
        leave(tmp_path / f"{number:02}.txt")
    assert ((await stop(registry)).context_injection or "").endswith("09.txt (1 bytes).")
    for number in range(12):
        leave(tmp_path / f"{number:02}.txt")
    assert ((await stop(registry)).context_injection or "").endswith("09.txt (1 bytes) and 2 more.")
    for number in range(1_001):
        await stop(registry, f"b{number}")


async def test_where_it_is_looked_for(registry: HookRegistry, tmp_path: Path) -> None:
    """Artifacts are searched for in the session's folder, and a folder of that name does not count."""
    SubagentArtifacts.from_config({"expected": {"*": ["report.md"]}}).register(registry)
    (tmp_path / "one" / "report.md").mkdir(parents=True)
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "report.md").write_text("done")
    assert (await stop(registry, cwd=str(tmp_path / "one"))).denied
    assert not (await stop(registry, cwd=str(tmp_path / "two"))).denied
