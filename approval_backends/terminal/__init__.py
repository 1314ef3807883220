"""A request comes in; a card on the terminal shows it, and the person's decision goes out."""

from approval_backends.terminal.form import Chosen
from approval_backends.terminal.line_prompt import LinePrompt
from approval_backends.terminal.prompt import TerminalPrompt
from approval_backends.terminal.terminal_approvals import TerminalApprovals

__all__ = ["Chosen", "LinePrompt", "TerminalApprovals", "TerminalPrompt"]
