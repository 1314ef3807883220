"""What an adapter has to tidy up when its session ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_hooks.events import SESSION_END

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_hooks.session.coordinator import SessionCoordinator


def at_end(session: SessionCoordinator, adapter: str, tidy: Callable[[], Awaitable[Any]]) -> None:
    """Have this done once, when the session ends; its record is still open then.

    What it raises, and that it takes too long, is a failure of an observer: it keeps nothing from ending.
    """

    async def ended(_event: str, data: Mapping[str, Any], _outcome: object) -> None:
        if data.get("session_id") == session.session_id:
            undo()
            await tidy()

    undo = session.hooks.observe(SESSION_END, ended, name=f"{adapter}:{session.session_id}:end")
