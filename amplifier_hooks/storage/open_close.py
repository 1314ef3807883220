"""What is opened and closed, and can be used as an async context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Opened:
    """Entering the context opens it, and leaving closes it, whatever happened meanwhile."""

    async def open(self) -> Self:
        """Make it ready, and return it. Twice is harmless."""
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of it. Twice is harmless."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
