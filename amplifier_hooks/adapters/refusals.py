"""What keeps an SDK's run from going on, as the error that ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_hooks.errors import HookAbortError, HookUsageError

if TYPE_CHECKING:
    from amplifier_hooks.session.coordinator import Turn
    from amplifier_hooks.session.model_call import ModelOutcome


def begun(turn: Turn) -> Turn:
    """The turn. Raises `HookAbortError` when a hook has denied its prompt."""
    if turn.denied:
        raise HookAbortError(turn.reason or "the prompt was denied", turn.outcome.denied_by or "")
    return turn


def answer_of(outcome: ModelOutcome) -> Any:
    """The model's answer. Raises the provider's own error, and `HookAbortError` when a hook has denied it."""
    if outcome.error is not None:
        raise outcome.error
    if outcome.denied:
        raise HookAbortError(outcome.reason or "the model call was denied", outcome.by or "")
    return outcome.value


def out_of_reach(tool: str, why: str, adapter: str) -> HookUsageError:
    """The error for a tool that runs without any hook being asked, and that the host has not named."""
    return HookUsageError(
        f"the tool {tool!r} is out of reach of hooks: {why}. "
        f"Name it in {adapter}(session, outside=[…]) to let agents use it all the same"
    )
