"""Asking in the terminal."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

from amplifier_hooks.action import freeze
from amplifier_hooks.escape import for_terminal
from amplifier_hooks.ports import ApprovalRequest, Decision, Option
from approval_backends.base import InProcessBackend
from approval_backends.errors import BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prompt_toolkit.input import Input

__all__ = ["TerminalApprovals"]

QUOTED: Final = "\n    | "
"""Before every further line of what others wrote, so that none of it can pass for a line of ours."""


class Interrupted(Exception):
    """The person at the terminal wants this to stop."""


class TerminalApprovals(InProcessBackend):
    """Asks the person at the terminal, one question at a time; the answer is the option's label, typed out.

    Without a terminal on both ends nobody can be asked: a piped `y` must not approve. What was typed before the
    question was there does not count. Ctrl-C is a refusal.
    """

    def __init__(self, user: str = "terminal user") -> None:
        super().__init__()
        self._user = user
        self._one_at_a_time = asyncio.Lock()

    async def ask(self, request: ApprovalRequest) -> Decision:
        """Show the request and read an answer; anything but an offered label is asked for again.

        Raises `BackendUnavailable` without a terminal, and when the input ends. Cancelling it ends the prompt and
        restores the terminal.
        """
        if not at_a_terminal():
            raise BackendUnavailable("no interactive terminal to ask in")
        async with self._one_at_a_time:
            option = await self._choose(request)
        return Decision(option=option.id, by=self._user, channel="terminal")

    async def _choose(self, request: ApprovalRequest) -> Option:
        from prompt_toolkit import PromptSession, print_formatted_text
        from prompt_toolkit.formatted_text import FormattedText
        from prompt_toolkit.patch_stdout import patch_stdout

        labels = {option.label.strip().casefold(): option for option in request.options}
        session: PromptSession[str] = PromptSession(interrupt_exception=Interrupted)
        # Printed, not part of the prompt: a prompt that is taller than the screen is cut, and what was not shown
        # must not be allowed.
        print_formatted_text(FormattedText([("", "\n".join(card(request)))]))
        with patch_stdout():
            while True:
                forget_typed(session.input)
                try:
                    typed = await session.prompt_async(FormattedText([("", "Answer: ")]))
                except Interrupted:
                    return refusal(request)
                except EOFError:
                    raise BackendUnavailable("the terminal's input ended before an answer") from None
                option = labels.get(typed.strip().casefold())
                if option is not None:
                    return option


def at_a_terminal() -> bool:
    """Whether a person can read what is written, and answer."""
    try:
        return sys.stdin.isatty() and sys.stdout.isatty()
    except (AttributeError, ValueError):  # None, or closed
        return False


def forget_typed(source: Input) -> None:
    """Drop what was typed before there was anything to answer, in the kernel's queue and in the library's."""
    from prompt_toolkit.input.typeahead import clear_typeahead

    clear_typeahead(source)
    try:
        import termios
    except ImportError:  # Windows
        return
    termios.tcflush(source.fileno(), termios.TCIFLUSH)


def refusal(request: ApprovalRequest) -> Option:
    """The first option that refuses.

    Raises `BackendUnavailable` for a request that offers none.
    """
    for option in request.options:
        if not option.allows:
            return option
    raise BackendUnavailable("interrupted at the terminal")


def card(request: ApprovalRequest) -> Iterator[str]:
    """The request in lines: the action first, in full; then who asks; then the choice."""
    yield f"{quoted(request.agent)} wants to run {quoted(request.tool)}"
    yield f"  {quoted(freeze(dict(request.arguments)).decode('ascii'))}"
    for question in request.questions:
        yield f"{quoted(question.hook)} asks: {quoted(question.prompt)}"
    yield f"If nobody answers: {'allowed' if request.default == 'allow' else 'denied'}. Digest {request.digest[:12]}"
    yield f"Type one of: {', '.join(quoted(option.label) for option in request.options)}"


def quoted(text: str) -> str:
    """What somebody else wrote, safe to show."""
    return for_terminal(text).replace("\n", QUOTED)
