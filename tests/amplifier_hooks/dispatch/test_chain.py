import asyncio
import re
from collections.abc import Mapping
from typing import Any

import pytest

from amplifier_hooks import HookRegistry, HookResult
from amplifier_hooks.dispatch.chain import SELECTIONS_KEPT
from amplifier_hooks.registry.registry import NAMES_KEPT


@pytest.mark.rule("REG-4", "REG-10")
async def test_invented_tool_names_do_not_fill_the_memory() -> None:
    """The cache by tool name is bounded, and a selection that was dropped is computed again with an equal result."""
    registry = HookRegistry()
    registry.gate("tool:pre", lambda event, data: HookResult.deny("no"), name="guard", match="Bash")
    for number in range(2 * SELECTIONS_KEPT + 10):
        assert not (await registry.emit("tool:pre", {"tool_name": f"Tool{number}"})).denied
    assert (await registry.emit("tool:pre", {"tool_name": "Bash"})).denied
    chain = registry._chains["tool:pre"]
    assert len(chain._selections) <= SELECTIONS_KEPT


@pytest.mark.rule("REG-10")
async def test_invented_event_names_do_not_fill_the_memory() -> None:
    """The cache of chains by event name is bounded."""
    registry = HookRegistry()
    for number in range(NAMES_KEPT + 10):
        await registry.emit(f"made:up{number}x{number}", {})
    assert len(registry._chains) <= NAMES_KEPT + 1


@pytest.mark.rule("REG-4")
@pytest.mark.parametrize(("intent", "denied"), [("gate", True), ("on", False)])
async def test_a_matcher_out_of_time_is_a_failure_of_its_hook(intent: str, denied: bool) -> None:
    """A hook whose matcher times out is not called, its on_error decides, and it is on record as a timeout."""
    registry = HookRegistry()
    called: list[str] = []
    getattr(registry, intent)(
        "tool:pre", lambda event, data: called.append(event), name="slow", match=re.compile("(a|aa)+(a|aa)+b")
    )
    outcome = await registry.emit("tool:pre", {"tool_name": "a" * 400})
    assert (outcome.denied, called) == (denied, [])
    assert [(answer.hook_name, answer.status) for answer in outcome.failures] == [("slow", "timeout")]


@pytest.mark.rule("REG-4")
@pytest.mark.parametrize(
    ("intent", "on_error", "reached"),
    [
        ("gate", None, True),
        ("on", "deny", True),
        ("on", None, False),
        ("register", None, False),
        ("observe", None, False),
    ],
)
@pytest.mark.parametrize("data", [{}, {"tool_name": None}, {"tool_name": 7}, {"tool_name": ["Bash"]}])
async def test_a_payload_without_a_tool(
    intent: str, on_error: str | None, reached: bool, data: Mapping[str, Any]
) -> None:
    """Hooks that fail closed see a payload without a tool, since it might be the guarded one; others do not."""
    registry = HookRegistry()
    called: list[str] = []

    def hook(event: str, data: Mapping[str, Any], outcome: Any = None) -> None:
        called.append(event)

    options = {"on_error": on_error} if on_error else {}
    getattr(registry, intent)("tool:pre", hook, match="Bash", **options)
    await asyncio.wait_for(registry.emit("tool:pre", data), 60)
    assert bool(called) is reached
