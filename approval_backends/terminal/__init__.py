"""Asking the person at the terminal.

approvals     TerminalApprovals: the backend
prompt        TerminalPrompt: one question, whoever asks it
line          LinePrompt: a line of text, between two questions
turns         one card at a time at each terminal
device        whether there is a terminal, and how it is left
held          what the program prints meanwhile
application   the card as a prompt-toolkit application
card          the lines on the screen              ┐
form          what was chosen, and what a key does │ pure
pages         what there is to read                │
edits         arguments as a person writes them    │
cells  masks  widths and wraps · covered secrets   ┘
"""

from approval_backends.terminal.approvals import TerminalApprovals
from approval_backends.terminal.form import Chosen
from approval_backends.terminal.line import LinePrompt
from approval_backends.terminal.prompt import TerminalPrompt

__all__ = ["Chosen", "LinePrompt", "TerminalApprovals", "TerminalPrompt"]
