"""Asking in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_hooks.ports import Decision
from approval_backends.in_process import InProcessBackend
from approval_backends.terminal.prompt import TerminalPrompt

if TYPE_CHECKING:
    from amplifier_hooks.ports import ApprovalRequest


class TerminalApprovals(InProcessBackend):
    """Asks the person at the terminal, one question at a time, on a card that shows all of what would run.

    Without a terminal on both ends nobody can be asked: a piped `y` must not approve. `prompt` is where to ask
    instead of at the program's own terminal; `user` is who sits there.
    """

    def __init__(self, user: str = "terminal user", *, prompt: TerminalPrompt | None = None) -> None:
        super().__init__()
        self._user = user
        self._prompt = prompt or TerminalPrompt()

    async def ask(self, request: ApprovalRequest) -> Decision:
        """Show the request and wait for an answer.

        Raises `BackendUnavailable` where nobody can be asked, and `ApprovalTimeout` when the request's time is up.
        Cancelling it takes the card away and restores the terminal.
        """
        choice = await self._prompt.ask(request)
        return Decision(
            option=choice.option.id,
            by=self._user,
            channel="terminal",
            message=choice.message,
            arguments=choice.arguments,
        )

    async def withdraw(self, request_id: str, reason: str) -> None:
        """Take the question away, and tell the person why."""
        await super().withdraw(request_id, reason)
        self._prompt.dismiss(request_id, reason)
