"""Asking in the terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

from amplifier_hooks.action import freeze
from amplifier_hooks.escape import for_terminal
from amplifier_hooks.ports import ApprovalRequest, Decision, Option
from approval_backends.base import InProcessBackend
from approval_backends.errors import BackendUnavailable

__all__ = ["TerminalApprovals"]


class TerminalApprovals(InProcessBackend):
    """Asks the person at the terminal, one question at a time; the answer is the option's label, typed out.

    Without a terminal on both ends nobody can be asked: a piped `y` must not approve.
    """

    def __init__(self, user: str = "terminal user") -> None:
        super().__init__()
        self._user = user
        self._one_at_a_time = asyncio.Lock()

    async def ask(self, request: ApprovalRequest) -> Decision:
        """Show the request and read an answer; anything but an offered label is asked for again.

        Raises `BackendUnavailable` without a terminal, and when the input ends. Cancelling it takes the question off
        the screen and restores the terminal.
        """
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise BackendUnavailable("no interactive terminal to ask in")
        from prompt_toolkit import PromptSession
        from prompt_toolkit.formatted_text import FormattedText
        from prompt_toolkit.patch_stdout import patch_stdout

        labels = {option.label.casefold(): option for option in request.options}
        async with self._one_at_a_time:
            session: PromptSession[str] = PromptSession()
            with patch_stdout():
                text = FormattedText([("", "\n".join(card(request)) + "\n> ")])
                while True:
                    try:
                        typed = await session.prompt_async(text)
                    except (EOFError, KeyboardInterrupt):
                        raise BackendUnavailable("the terminal's input ended before an answer") from None
                    option = labels.get(typed.strip().casefold())
                    if option is not None:
                        return Decision(option=option.id, by=self._user, channel="terminal")


def card(request: ApprovalRequest) -> Iterator[str]:
    """The request in lines: the action first, in full; then who asks; then the choice."""
    yield f"{for_terminal(request.agent)} wants to run {for_terminal(request.tool)}"
    yield f"  {for_terminal(freeze(dict(request.arguments)).decode('ascii'))}"
    for question in request.questions:
        yield f"{for_terminal(question.hook)} asks: {for_terminal(question.prompt)}"
    yield f"If nobody answers: {'allowed' if request.default == 'allow' else 'denied'}. Digest {request.digest[:12]}"
    yield f"Type one of: {', '.join(labelled(option) for option in request.options)}"


def labelled(option: Option) -> str:
    """An option's label, safe to show."""
    return for_terminal(option.label)
