"""An act whose caller is cancelled at every step, and then again and again while the path cleans up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.foreign_code import DaemonPool
from amplifier_hooks.session.program_call import ProgramToolCall
from amplifier_hooks.testing import CollectingAudit, ScriptedApprover

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

ENDS = ("done", "failed", "cancelled", "denied")
STEPS = 400
"""More steps of the loop than any of these calls takes."""


async def pause() -> None:
    """Let the loop turn twice."""
    for _ in range(2):
        await asyncio.sleep(0)


class Slow(ScriptedApprover):
    """An approver that takes some turns of the loop for every step, and notes which of them it has finished."""

    def __init__(self) -> None:
        super().__init__("Allow")
        self.claimed: list[str] = []
        self.settled: list[str] = []

    async def request(self, request: Any) -> Any:
        """Think, and answer."""
        await pause()
        return await super().request(request)

    async def claim(self, request_id: str, digest: str) -> bool:
        """Give the approval out, slowly."""
        await pause()
        given = await super().claim(request_id, digest)
        self.claimed += [request_id] * given
        await pause()
        return given

    async def settle(self, request_id: str, outcome: Any, result: Any = None) -> None:
        """Note the end, slowly."""
        await pause()
        await super().settle(request_id, outcome, result)
        self.settled.append(request_id)

    async def withdraw(self, request_id: str, reason: str) -> None:
        """Take the question back, slowly."""
        await pause()
        await super().withdraw(request_id, reason)


class SlowAudit(CollectingAudit):
    """A record that takes some turns of the loop for every line."""

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append one record, slowly; a cancellation takes back what was not written yet."""
        await pause()
        await super().write(kind, facts, durable=durable)


async def tool(_given: Any, *_more: Any) -> str:
    """Run for a while."""
    await pause()
    return "done"


async def program(session: SessionCoordinator) -> None:
    """Ask, run the tool, and report, as a program does."""
    call = ProgramToolCall(session=session, tool="Write", arguments={"n": 1})
    try:
        if await call.admit():
            await call.report_result(await tool(call.input))
    except asyncio.CancelledError:
        await call.give_up()
        raise


ENTRIES: dict[str, Callable[[SessionCoordinator], Awaitable[Any]]] = {
    "tool": lambda session: session.call_tool("Write", {"n": 1}, tool, call_id="c1"),
    "workflow": lambda session: session.run_step("w", "s", {"n": 1}, tool),
    "agent": lambda session: session.invoke_agent("a", {"n": 1}, tool),
    "program": program,
    "event": lambda session: session.emit("tool:pre", {"tool_name": "Write", "tool_input": {"n": 1}}),
}


class Scene:
    """A session with a slow approver, a slow record, a slow observer and hooks that inject."""

    def __init__(self) -> None:
        registry, self.audit, self.approver = HookRegistry(), SlowAudit(), Slow()
        for event in ("tool:pre", "workflow:pre", "agent:pre"):
            registry.gate(event, lambda _event, _data: HookResult.ask("?", options=["Allow", "Deny"]), name="asker")
            registry.on(event, lambda _event, _data: HookResult.inject("note"), name="voice")
            registry.observe(event, self.watch)
        self.session = SessionCoordinator(registry, audit=self.audit, approvals=self.approver)

    async def watch(self, _event: str, _data: Any, _outcome: Any) -> None:
        """Look on slowly."""
        await pause()

    async def cancel_at(self, step: int, act: Callable[[SessionCoordinator], Awaitable[Any]], *, again: bool) -> bool:
        """Cancel the caller at a step, and again at every later turn of the loop. Return False if it had ended."""
        caller = asyncio.ensure_future(act(self.session))
        for _ in range(step):
            await asyncio.sleep(0)
        if caller.done():
            return False
        caller.cancel()
        while not caller.done():
            await asyncio.sleep(0)
            if again:
                caller.cancel()
        self.check()
        await asyncio.gather(caller, return_exceptions=True)
        return True

    def check(self) -> None:
        """Check that nothing is left: no claim without its end, no unused approval, no act without an end."""
        kinds, approver = self.audit.kinds, self.approver
        assert set(approver.claimed) <= set(approver.settled), "it stays claimed"
        assert not approver._approved, "it can be used later"
        assert kinds.count("approval.requested") <= 1
        if "approval.requested" in kinds:
            assert kinds.count("approval.decided") == 1
        for kind in ("tool", "workflow", "agent"):
            if f"{kind}.running" in kinds:
                assert sum(kinds.count(f"{kind}.{end}") for end in ENDS) == 1


@pytest.mark.rule("COO-9", "APR-12")
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("entry", ENTRIES)
async def test_cancelled_at_every_step(entry: str, again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a caller is cancelled, and however often, no approval stays claimed or unused; the record is whole."""
    loop, step = asyncio.get_running_loop(), 0
    # A thread takes as many steps of the loop as the machine pleases; in the loop, its call takes one.
    monkeypatch.setattr(DaemonPool, "_submit", lambda _pool, call: loop.call_soon(call.carry_out))
    while await Scene().cancel_at(step, ENTRIES[entry], again=again):
        step += 1
    assert 10 < step < STEPS
