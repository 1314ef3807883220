from typing import Any

import pytest

from amplifier_hooks import HookRegistry
from amplifier_hooks.library import RecoveryHint

pytestmark = pytest.mark.rule("LIB-7")


async def hint(registry: HookRegistry, error: object, **more: Any) -> str | None:
    """Return the text that is injected after this error."""
    return (
        await registry.emit("tool:error", {"session_id": "s", "tool_name": "Read", "error": error, **more})
    ).context_injection


def hinting(**settings: Any) -> HookRegistry:
    """Return a registry with the hook."""
    registry = HookRegistry()
    RecoveryHint.from_config(settings).register(registry)
    return registry


async def test_the_same_failure_again() -> None:
    """The first failure gets a hint, the third equal one the advice to stop, and the others nothing."""
    registry = hinting()
    error = {"type": "PermissionError", "message": "no"}
    said = [await hint(registry, error) for _ in range(5)]
    assert said[0] is not None
    assert said[0].startswith("Read failed (PermissionError). This is not permitted here")
    assert said[1] is None
    assert said[2] is not None
    assert "3 times. Do not repeat it" in said[2]
    assert said[3:] == [None, None]
    assert await hint(registry, error, session_id="other")
    lasting = [
        (await registry.emit("tool:error", {"session_id": "t", "tool_name": "Read", "error": error})).ephemeral
        for _ in range(3)
    ]
    assert lasting == [True, False, False], "the hint is for the next call; the advice to stop stays"
    assert await hint(registry, {"type": "PermissionError", "message": "also no"})


async def test_hints_of_ones_own() -> None:
    """The user's own hints come first, for their tools and errors; the usual hints follow."""
    own = [{"tool": "Re*", "contains": "LOCKED", "says": "Unlock it with `door open`."}]
    assert await hint(hinting(hints=own), "the door is locked") == "Read failed. Unlock it with `door open`."
    assert await hint(hinting(hints=own), "locked", tool_name="Write") == (
        "Write failed. Read the error before the next step: the same call again will most likely fail again."
    )
    assert await hint(hinting(), {"type": "OSError", "message": "No space left on device"}) == (
        "Read failed (OSError). There is no space left: free some, or write elsewhere; do not repeat it as it is."
    )


@pytest.mark.parametrize("error", [None, 3, {}, [], {"type": None, "message": None}, {"type": "x" * 9_000}, "\ud800"])
async def test_odd_errors(error: object) -> None:
    """An error without type or message, or of any other shape, gets the general hint, in a short text."""
    said = await hint(hinting(), error)
    assert said is not None
    assert len(said) < 300


async def test_many_failures() -> None:
    """Of very many different failures the first are forgotten."""
    registry = hinting()
    for number in range(300):
        await hint(registry, str(number))
    assert await hint(registry, "299") is None
    assert await hint(registry, "0")
