"""The errors of backends and stores.

```
HookError
├── BackendUnavailable        no approver can be asked here now; the request is denied, but not by an approver
│   ├── TooManyRequests       one session, or one tenant, already has as many open requests as it may have
│   ├── RequestMismatch       the id was used for another action
│   ├── RequestWithdrawn      the question was withdrawn before an approver answered it
│   └── TokenRefused          the gateway does not know this token, or not any more
├── RequestSkipped            the approver left it to others, or to later; it is open as before
├── GatewayRefusal            the gateway understood the client and does not do what it wants
├── InvalidRules (ValueError)  a rules file with mistakes; each has its line and what to write instead
├── RulesUnreadable           a rules file that is not there, or that other users may write
└── UnknownStore (ValueError)  an address that names no store that can be reached from here
```

An answer that does not count is no error but a value: `lifecycle.Refusal`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_hooks.errors import ApprovalMismatch, HookError, HookUsageError

if TYPE_CHECKING:
    from collections.abc import Iterable


class BackendUnavailable(HookError):
    """No approver can be asked through this backend now; the reason says why.

    The request is denied, and the record states that no approver denied it.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class TooManyRequests(BackendUnavailable):
    """One session, or one tenant, already has as many open requests as it may have. One more is not queued."""

    def __init__(self, scope: str, limit: int) -> None:
        self.scope = scope
        self.limit = limit
        super().__init__(f"{limit} requests of this {scope} wait for an answer already, and no more may")


class RequestMismatch(BackendUnavailable, ApprovalMismatch):
    """A request with this id exists already, and it is about something else."""

    def __init__(self, request: str) -> None:
        self.request = request
        super().__init__(f"approval_mismatch: the id {request!r} was used for another action already")


class RequestWithdrawn(BackendUnavailable):
    """The question was withdrawn before an approver answered it."""


class TokenRefused(BackendUnavailable):
    """The gateway does not know this token, or not any more. Another connection needs another token."""

    def __init__(self) -> None:
        super().__init__("the gateway refuses this token; take the one it printed when it started")


class RequestSkipped(HookError):
    """The approver has seen the question and did not answer it. It stays open, for this approver and for others."""

    def __init__(self) -> None:
        super().__init__("left open; nothing was decided")


class GatewayRefusal(HookError):
    """The gateway understood a client and does not do what it wants; `code` is that of the error response."""

    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        self.reason = reason
        super().__init__(reason)


class InvalidRules(HookUsageError, ValueError):
    """A rules file has mistakes, all of them named by line; none of its rules applies."""

    def __init__(self, file: str, mistakes: Iterable[tuple[int, str]]) -> None:
        self.file = file
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(f"{file}:{line}: {what}" for line, what in self.mistakes))


class RulesUnreadable(HookError):
    """A rules file cannot be read, or should not be trusted."""

    def __init__(self, file: str, problem: str) -> None:
        self.file = file
        self.problem = problem
        super().__init__(f"the rules in {file} cannot be used: {problem}")


class UnknownStore(HookUsageError, ValueError):
    """The address is neither a file nor a server of a kind that can be reached from here."""
