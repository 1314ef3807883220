"""A sub-agent that wants to stop: check that the files it has to leave behind exist.

```python
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import SubagentArtifacts

registry = HookRegistry()
SubagentArtifacts.from_config({"expected": {"writer": ["report.md"]}}).register(registry)
outcome = await registry.emit("subagent:stop", {"agent_name": "writer", "agent_id": "a1"})
print(outcome.action, "-", outcome.reason)
```

```output
deny - retry 1 of 2: there is no report.md, or it is empty. Write it, then stop
```
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from attrs import define
from pydantic import Field

from amplifier_hooks.events import SUBAGENT_START, SUBAGENT_STOP
from amplifier_hooks.library.parts.ready_made import HookSettings, PerSession, Point, ReadyMade, find_files, folder_of
from amplifier_hooks.result import HookResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


PRIORITY: Final = 420
AGENTS_KEPT: Final = 1_000
SLACK: Final = 2.0
"""Seconds by which the clock of a file system may be behind the process's."""
MOST_NAMED: Final = 10


class SubagentArtifactsSettings(HookSettings):
    """The files that sub-agents have to leave behind, and the number of retries."""

    expected: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="files or globs, by the name or type of the sub-agent, which may be a glob too",
    )
    cwd: str = Field(default="", description="the folder they are looked for in; the session's")
    retries: int = Field(default=2, ge=0, le=100, description="how often one sub-agent is sent back")


@define
class _Agent:
    """One sub-agent at work."""

    began: float = 0.0
    sent_back: int = 0


class SubagentArtifacts(ReadyMade[SubagentArtifactsSettings]):
    """When a sub-agent wants to stop, looks for the files it was to leave, and says "found" or sends it back.

    An empty file counts as missing, and so does one from before the sub-agent's start, if that start was reported. The
    sub-agent is sent back a limited number of times; then it stops, and the agent and the user are told which files are
    missing.
    """

    name = "subagent_artifacts"
    Settings = SubagentArtifactsSettings

    def __init__(
        self, settings: SubagentArtifactsSettings | None = None, *, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(settings)
        self._now = now
        self._expected = lru_cache(AGENTS_KEPT)(self._expected_files)
        self._agents: PerSession[OrderedDict[str, _Agent]] = PerSession(OrderedDict)

    def points(self) -> tuple[Point, ...]:
        """Return an observer of a sub-agent's start, and a gate at a sub-agent's stop."""
        return (
            Point(event=SUBAGENT_START, call=self.on_subagent_start, intent="observe", priority=PRIORITY),
            Point(event=SUBAGENT_STOP, call=self.on_stop, intent="gate", priority=PRIORITY, timeout=30.0),
        )

    async def on_subagent_start(self, event: str, data: Mapping[str, Any], outcome: object) -> None:
        """Remember the time of the start."""
        self._agent(data, anew=True).began = self._now() - SLACK

    async def on_stop(self, event: str, data: Mapping[str, Any]) -> HookResult | None:
        """Let the sub-agent stop, or send it back."""
        wanted = self._expected(*(str(data.get(name) or "") for name in ("agent_name", "agent_type")))
        if not wanted:
            return None
        agent = self._agent(data)
        folder = folder_of(self.settings.cwd, data)
        there = await asyncio.to_thread(
            lambda: {pattern: find_files(folder, pattern, since=agent.began) for pattern in wanted}
        )
        absent = ", ".join(pattern for pattern, files in there.items() if not files)
        if not absent:
            files = [f"{path} ({size:,} bytes)" for pattern in wanted for path, size in there[pattern]]
            more = f" and {len(files) - MOST_NAMED} more" if len(files) > MOST_NAMED else ""
            return HookResult.inject(f"Found: {', '.join(files[:MOST_NAMED])}{more}.")
        why = f"there is no {absent}, or it is empty"
        if agent.began:
            why += " or older than this sub-agent"
        if agent.sent_back < self.settings.retries:
            agent.sent_back += 1
            return HookResult.deny(f"retry {agent.sent_back} of {self.settings.retries}: {why}. Write it, then stop")
        message = f"The sub-agent stopped, and {why}."
        return HookResult.inject(message, user_message=message, user_message_level="warning")

    def _expected_files(self, *names: str) -> tuple[str, ...]:
        """Return the files that a sub-agent of these names has to leave behind, each once."""
        expected = self.settings.expected.items()
        groups = [patterns for who, patterns in expected if any(fnmatchcase(name, who) for name in names)]
        return tuple(dict.fromkeys(chain.from_iterable(groups)))

    def _agent(self, data: Mapping[str, Any], *, anew: bool = False) -> _Agent:
        agents = self._agents.of(data)
        key = str(data.get("agent_id") or data.get("agent_name") or data.get("agent_type") or "")
        if anew or key not in agents:
            agents[key] = _Agent()
        if len(agents) > AGENTS_KEPT:
            agents.popitem(last=False)
        return agents[key]
