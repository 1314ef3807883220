"""Behaviour that the tests of the upstream kernel expect: it holds, or differs by the named rule."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.errors import InjectionTooLarge, InvalidPayload
from amplifier_hooks.injection.budget import MAX_INJECTION_SIZE
from amplifier_hooks.testing import CollectingDisplay


class Model:
    """Data that is no mapping and has `model_dump`."""

    def model_dump(self) -> dict[str, Any]:
        """Return the fields."""
        return {"greeting": "hello"}


class Approvals:
    """The kernel's approval system; it allows."""

    async def request_approval(self, prompt: str, options: list[str], timeout: float, default: str) -> str:
        """Answer in the kernel's words."""
        return "Allow once"


def heard() -> tuple[HookRegistry, list[dict[str, Any]]]:
    """Return a registry, and the data of its event as a hook reads it."""
    registry = HookRegistry()
    seen: list[dict[str, Any]] = []

    def handler(event: str, data: dict[str, Any]) -> HookResult:
        seen.append(data)
        return HookResult(action="continue", data=data)

    registry.register("test:event", handler, 0, name="test-hook")
    return registry, seen


@pytest.mark.rule("EVT-8", "REG-8")
async def test_models_as_data() -> None:
    """`emit` and `emit_and_collect` take data with `model_dump`."""
    registry, seen = heard()
    model: Any = Model()
    assert (await registry.emit("test:event", model)).action == "continue"
    assert await registry.emit_and_collect("test:event", model) == [{"greeting": "hello"}]
    assert seen == [{"greeting": "hello"}] * 2


@pytest.mark.rule("EVT-8")
async def test_values_that_are_no_json() -> None:
    """A decimal and a date reach a hook as they are; the kernel's hooks read texts."""
    registry, seen = heard()
    values = {"cost": Decimal("1.23"), "at": datetime(2026, 1, 1, tzinfo=UTC)}
    await registry.emit("test:event", values)
    assert seen == [values]


@pytest.mark.rule("EVT-8")
async def test_text_as_data() -> None:
    """Text is refused as data, which the kernel passes on against its own annotation."""
    with pytest.raises(InvalidPayload):
        await heard()[0].emit("test:event", "{}")  # type: ignore[arg-type]


@pytest.mark.rule("EVT-2")
async def test_timestamps() -> None:
    """A session stamps a time that its caller cannot set; a registry, unlike the kernel's, stamps none."""
    registry, seen = heard()
    async with SessionCoordinator(registry) as session:
        await session.emit("test:event", {"timestamp": "mine"})
    await registry.emit("test:event", {})
    await registry.emit_and_collect("test:event", {})
    assert datetime.fromisoformat(seen[0]["timestamp"]).utcoffset() is not None
    assert seen[1:] == [{}, {}]


@pytest.mark.rule("RES-5", "RES-4")
@pytest.mark.parametrize(("answer", "action"), [("modify", "modify"), ("deny", "deny")])
async def test_the_action_of_an_outcome(answer: Any, action: str) -> None:
    """A change is reported as such and a denial keeps its data; the kernel says `continue`, and None."""
    registry = HookRegistry()
    changed = {"handled": True} if answer == "modify" else None
    registry.register("test:event", lambda event, data: HookResult(action=answer, data=changed))
    outcome = await registry.emit("test:event", {"given": 1})
    assert (outcome.action, outcome.data) == (action, {"given": 1, **(changed or {})})


@pytest.mark.rule("APR-11", "RES-7")
async def test_allow_once_and_a_message() -> None:
    """An "Allow once" allows; a message beside the question is shown, which the kernel leaves out."""
    display = CollectingDisplay()
    session = SessionCoordinator(approval_system=Approvals(), display_system=display)
    result = HookResult(action="ask_user", approval_prompt="Allow this?", user_message="Mind the disk")
    assert (await session.process_hook_result(result, "tool:pre", "test")).action == "continue"
    assert [text for text, _, _ in display.messages] == ["Mind the disk"]


@pytest.mark.rule("RES-3")
async def test_a_mapping_as_result() -> None:
    """A plain dict is an answer, which the kernel refuses."""
    session = SessionCoordinator()
    mapping: Any = {"action": "continue"}
    processed = await session.process_hook_result(mapping, "tool:post", "test")
    assert processed.action == "continue"


@pytest.mark.rule("INJ-3")
async def test_the_tokens_of_an_ephemeral_text() -> None:
    """An ephemeral text counts and stays out of the context; unlike the kernel, its heading counts, too."""
    sessions = [SessionCoordinator(), SessionCoordinator()]
    for session, name in zip(sessions, ("a", "a hook with a much longer name of its own"), strict=True):
        result = HookResult(action="inject_context", context_injection="x" * 40, ephemeral=True)
        await session.process_hook_result(result, "tool:post", name)
        assert session.context.get_messages() == []
    assert 0 < sessions[0].tokens_this_turn < sessions[1].tokens_this_turn


@pytest.mark.rule("INJ-2", "INJ-9")
async def test_the_size_in_the_error() -> None:
    """The error of a text that is too long says "exceeds" and counts bytes, where the kernel counts characters."""
    result = HookResult(action="inject_context", context_injection="ü" * MAX_INJECTION_SIZE)
    with pytest.raises(InjectionTooLarge, match=r"20,480 bytes.*exceeds"):
        await SessionCoordinator().process_hook_result(result, "tool:post", "test")
