import pytest

from amplifier_hooks import HookRegistry, HookResult
from amplifier_hooks.library.rate_limit import RateLimit, RateLimitSettings

pytestmark = pytest.mark.rule("LIB-8", "LIB-6")


class Seconds:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


async def actions(registry: HookRegistry, *tools: str, session: str = "s") -> list[str]:
    """Return the actions of calls of these tools."""
    payloads = ({"session_id": session, "tool_name": tool, "tool_input": {}} for tool in tools)
    return [(await registry.emit("tool:pre", payload)).action for payload in payloads]


async def test_the_window_slides() -> None:
    """A call is denied while the window is full, does not count then, and is let through as the window moves on."""
    clock, registry = Seconds(), HookRegistry()
    RateLimit(RateLimitSettings(calls=2, seconds=10), now=clock).register(registry)
    assert await actions(registry, "Read") == ["continue"]
    clock.now += 4
    assert await actions(registry, "Read", "Write", "Read") == ["continue", "deny", "deny"]
    assert await actions(registry, "Read", session="other") == ["continue"]
    outcome = await registry.emit("tool:pre", {"session_id": "s", "tool_name": "Read", "tool_input": {}})
    assert "try again in 6 s" in (outcome.reason or "")
    clock.now += 6
    assert await actions(registry, "Read", "Read") == ["continue", "deny"]


async def test_usual_limit() -> None:
    """Without settings 200 calls of one session in 10 seconds pass, and a loop that runs away is stopped."""
    clock, registry = Seconds(), HookRegistry()
    RateLimit(now=clock).register(registry)
    for call in range(600):
        clock.now = 1_000 + call * 0.05
        assert await actions(registry, "Task" if call % 9 else "Read") == ["continue"]
    assert await actions(registry, "Read") == ["deny"]


async def test_some_tools() -> None:
    """Only the tools that settings name can be counted and held to the limit."""
    registry = HookRegistry()
    RateLimit(RateLimitSettings(calls=1, match="Web*"), now=Seconds()).register(registry)
    assert await actions(registry, "WebA", "WebB", "Read", "Read") == ["continue", "deny", "continue", "continue"]


async def test_changed_input_counts_once() -> None:
    """A call whose input another hook changes is counted once."""
    registry = HookRegistry()
    RateLimit(RateLimitSettings(calls=1)).register(registry)
    registry.on("tool:pre", lambda event, data: HookResult.modify({"tool_input": {"changed": True}}), priority=400)
    assert await actions(registry, "Read") == ["modify"]
