"""A line from the person at the terminal, for programs that talk with them between two questions."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO

from approval_backends.terminal.device import terminal_of

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession


class LinePrompt:
    """Reads lines, with the keys and the history people are used to. A card that comes meanwhile takes its place."""

    def __init__(self, prompt: str, *, stdin: TextIO | None = None, stdout: TextIO | None = None) -> None:
        terminal_of(stdin, stdout)
        self._prompt = prompt
        self._session: PromptSession[str] | None = None

    async def read(self) -> str:
        """The next line. Raises `EOFError` for Ctrl-D, `KeyboardInterrupt` for Ctrl-C. Cancelling it takes it away."""
        if self._session is None:
            await asyncio.to_thread(import_module, "prompt_toolkit")
            from prompt_toolkit import PromptSession
            from prompt_toolkit.output import ColorDepth

            options: dict[str, Any] = {"color_depth": ColorDepth.MONOCHROME}  # it draws nothing that needs colour
            self._session = PromptSession(self._prompt, **options)
        return await self._session.prompt_async()
