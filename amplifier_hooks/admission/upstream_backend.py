"""Adapts an object with the upstream kernel's four-argument method to an approval backend."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from amplifier_hooks.approvals import Claims
from amplifier_hooks.errors import ApprovalTimeout, HookError
from amplifier_hooks.ports import Decision
from amplifier_hooks.result import DEFAULT_OPTIONS
from amplifier_hooks.threads import DaemonPool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.ports import ApprovalBackend, ApprovalRequest, KeptResult, Settlement


THEIR_TIMEOUT: Final = "ApprovalTimeoutError"
"""Name of the upstream timeout error; compared by name, because the upstream package may be absent."""


ALLOW_ONCE: Final = "Allow once"
"""The upstream kernel's label for the answer that the default options call "Allow"."""


class UpstreamApprovals:
    """Asks through `request_approval(prompt, options, timeout, default) -> str`, plain or async.

    The method is called by keyword if it takes these names, and by position otherwise. A plain method runs in a thread,
    because it may wait for a person. The returned label counts only if it is exactly one of the offered labels; "Allow
    once" also stands for the "Allow" of the default options. There is one approver without a name, so decisions are by
    `user`.
    """

    def __init__(self, system: Any, user: str = "user", channel: str = "upstream") -> None:
        self._system = system
        self._user = user
        self._channel = channel
        self._claims = Claims()
        self._pool = DaemonPool(1, "approvals")

    async def request(self, request: ApprovalRequest) -> Decision:
        """Ask for one of the labels.

        Raises `ApprovalTimeout` for the upstream timeout, `HookError` for a label that was not offered, and any other
        error of the method. Cancelling it leaves a plain method running in its thread.
        """
        labels = [option.label for option in request.options]
        seconds = (request.expires - request.created).total_seconds()
        asked = {"prompt": request.prompt, "options": labels, "timeout": seconds, "default": request.default}
        method = self._system.request_approval
        ask = partial(method, **asked) if _takes_keywords(method, asked) else partial(method, *asked.values())
        try:
            answer: object = ask() if inspect.iscoroutinefunction(method) else await self._pool.run(ask)
            label = await answer if inspect.isawaitable(answer) else answer
        except Exception as error:
            if any(kind.__name__ == THEIR_TIMEOUT for kind in type(error).__mro__):
                raise ApprovalTimeout(str(error)) from error
            raise
        if tuple(labels) == DEFAULT_OPTIONS and label == ALLOW_ONCE:
            label = DEFAULT_OPTIONS[0]
        chosen = next((option.id for option in request.options if option.label == label), None)
        if chosen is None:
            raise HookError(f"{label!r:.100} was not offered")
        decision = Decision(option=chosen, by=self._user, channel=self._channel)
        self._claims.note(request, decision)
        return decision

    async def claim(self, request_id: str, digest: str) -> bool:
        """Claim the approval: once, and for the digest that was shown."""
        return self._claims.take(request_id, digest)

    async def settle(self, request_id: str, outcome: Settlement, result: KeptResult | None = None) -> None:
        """Do nothing: this backend stores no results."""

    async def withdraw(self, request_id: str, reason: str) -> None:  # noqa: ARG002  # upstream has no such method
        """Void an approval of this request."""
        self._claims.drop(request_id)


def _takes_keywords(method: Any, asked: Mapping[str, object]) -> bool:
    """Return True if the method accepts the four arguments by their names."""
    try:
        inspect.signature(method).bind(**asked)
    except (TypeError, ValueError):  # other names, or a callable without a signature
        return False
    return True


def as_backend(approvals: Any) -> ApprovalBackend | None:
    """Return a session's approver as a backend; adapt an object with the four-argument method."""
    if approvals is None or hasattr(approvals, "request"):
        return cast("ApprovalBackend | None", approvals)
    return UpstreamApprovals(approvals)
