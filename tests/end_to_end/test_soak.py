"""Everything at once, for as long as one likes: `AMPLIFIER_SOAK` is the seconds it takes."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import threading
import tracemalloc
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any, Final

import pytest

from amplifier_hooks import HookAbortError, HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.foreign_code import LEFT_BEHIND
from amplifier_hooks.injection.budget import InjectionLimits
from amplifier_hooks.testing import HANG, CollectingAudit, ScriptedApprover

pytestmark = pytest.mark.slow

SECONDS: Final = float(os.environ.get("AMPLIFIER_SOAK", "10"))
GROWTH: Final = 8 * 2**20
"""Bytes that may be added from the first half to the second."""


class Canary:
    """A tool that notes every start, and if the start was on record before."""

    def __init__(self, audit: CollectingAudit, call_id: str, chance: random.Random) -> None:
        self.audit, self.call_id, self.chance = audit, call_id, chance
        self.starts = 0
        self.recorded = True

    async def __call__(self, given: Any) -> Any:
        """Run, and sometimes fail."""
        self.starts += 1
        running = [record.facts["call"] for record in self.audit.records if record.kind == "tool.running"]
        self.recorded = self.recorded and self.call_id in running
        await asyncio.sleep(self.chance.choice([0, 0, 0.001]))
        if self.chance.random() < 0.1:
            raise LookupError("the tool's own")
        return given


def odd(chance: random.Random) -> Any:
    """Return a hook that answers at random, waits, or fails."""

    async def hook(event: str, data: Any) -> Any:
        what = chance.randrange(12)
        if what == 0:
            raise ValueError("a hook's own")
        if what == 1:
            await asyncio.sleep(chance.choice([0, 0.001, 10]))
        if what == 2:
            return chance.choice([object(), "yes", {"action": "allow"}, {}])
        if what == 3:
            return HookResult.deny("not now")
        if what == 4 and event == "tool:pre":
            return HookResult.modify({"tool_input": {"n": chance.randrange(9)}})
        if what == 5:
            return HookResult.ask("Really?", options=["Allow", "Deny"], timeout=0.02)
        if what == 6:
            return HookResult.inject("x " * chance.randrange(1, 4000), ephemeral=chance.random() < 0.3)
        if what == 7:
            raise asyncio.CancelledError
        return None

    return hook


async def layer(context: Any, call_next: Any) -> Any:
    """Wrap every tool; now and then stop one."""
    if random.random() < 0.05:
        raise HookAbortError("used up")
    return await call_next()


async def one_session(registry: HookRegistry, chance: random.Random, ends: Counter[str]) -> None:
    """A session with a few calls, some cancelled, a record that may fail, and an approver who may not answer."""
    script: list[Any] = [
        chance.choice(["Allow", "Deny", HANG, RuntimeError("line is down"), "Maybe"]) for _ in range(40)
    ]
    audit = CollectingAudit()
    session = SessionCoordinator(
        hooks=registry, approvals=ScriptedApprover(*script), audit=audit, budget=InjectionLimits(per_session=5_000)
    )
    async with session:
        for number in range(chance.randrange(1, 6)):
            audit.error = OSError("disk full") if chance.random() < 0.05 else None
            async with session.turn("go on"):
                call_id = f"call-{number}"
                tool = Canary(audit, call_id, chance)
                task = asyncio.create_task(session.call_tool("Write", {"n": number}, tool, call_id=call_id))
                if chance.random() < 0.1:
                    await asyncio.sleep(0)
                    task.cancel()
                if chance.random() < 0.05:
                    await session.cancel()
                await asyncio.wait({task})
                done = "cancelled" if task.cancelled() else task.result().status
                ends[done] += 1
                assert tool.recorded
                assert tool.starts == (1 if done in ("ok", "failed") else 0) or done == "cancelled"
                assert tool.starts <= 1
                await session.call_model(len)
            assert session.tokens_this_turn <= 1_000
        audit.error = None


def open_files() -> int:
    """Return the number of open descriptors, where the system has it."""
    descriptors = Path("/proc/self/fd")
    return len(list(descriptors.iterdir())) if descriptors.exists() else 0


@pytest.mark.fault("F-LC-05")
async def test_nothing_adds_up(caplog: pytest.LogCaptureFixture) -> None:
    """Random hooks, approvals, cancellations and faults: every call ends in one way, and nothing is left over."""
    caplog.set_level(logging.CRITICAL, "amplifier_hooks")  # or every warning is kept until the test ends
    chance, ends = random.Random(7), Counter[str]()
    registry = HookRegistry()
    for event in ("tool:pre", "tool:post", "llm:pre", "prompt:submit"):
        registry.on(event, odd(chance), name=f"odd at {event}", timeout=0.01)
    registry.gate("tool:pre", odd(chance), name="odd gate", timeout=0.01)
    hook = odd(chance)
    registry.observe("*", lambda event, data, outcome: hook(event, data), name="odd observer", timeout=0.01)
    registry.around("tool", layer)
    halves: list[tuple[int, int, int]] = []
    await one_session(registry, chance, ends)
    tracemalloc.start()
    try:
        for _ in range(2):
            until = monotonic() + SECONDS / 2
            while monotonic() < until:
                await asyncio.gather(*(one_session(registry, chance, ends) for _ in range(8)))
                for hook in registry.hooks():
                    registry.enable(hook.given_name)  # out of quarantine
            LEFT_BEHIND.clear()
            gc.collect()
            halves.append((tracemalloc.get_traced_memory()[0], open_files(), threading.active_count()))
            assert asyncio.all_tasks() == {asyncio.current_task()}
    finally:
        tracemalloc.stop()
    (memory, files, threads), (more_memory, more_files, more_threads) = halves
    assert {"ok", "denied", "failed", "cancelled"} <= ends.keys()
    assert more_memory - memory < GROWTH
    assert (more_files, more_threads) == (files, threads)
