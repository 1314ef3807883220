"""Any object with the upstream kernel's four-argument method as a backend of ours."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from amplifier_hooks.approvals import Claims
from amplifier_hooks.errors import ApprovalTimeout, HookError
from amplifier_hooks.ports import Decision
from amplifier_hooks.threads import DaemonPool

if TYPE_CHECKING:
    from amplifier_hooks.ports import ApprovalBackend, ApprovalRequest, Settlement


THEIR_TIMEOUT: Final = "ApprovalTimeoutError"
"""Told by its name: their package need not be there."""


class UpstreamApprovals:
    """Asks through `request_approval(prompt, options, timeout, default) -> str`, plain or async.

    A plain one is called in a thread, because it may wait for a person. The label it returns counts only if it is
    exactly one of those that were offered. There is one approver and no name, so decisions are by `user`.
    """

    def __init__(self, system: Any, user: str = "user", channel: str = "upstream") -> None:
        self._system = system
        self._user = user
        self._channel = channel
        self._claims = Claims()
        self._pool = DaemonPool(1, "approvals")

    async def request(self, request: ApprovalRequest) -> Decision:
        """Ask for one of the labels.

        Raises `ApprovalTimeout` for their timeout, `HookError` for a label that was not offered, and what it raises.
        Cancelling it leaves a plain method behind in its thread.
        """
        labels = [option.label for option in request.options]
        seconds = (request.expires - request.created).total_seconds()
        method = self._system.request_approval
        ask = partial(method, request.prompt, labels, seconds, request.default)
        try:
            answer: object = ask() if inspect.iscoroutinefunction(method) else await self._pool.run(ask)
            label = await answer if inspect.isawaitable(answer) else answer
        except Exception as error:
            if any(kind.__name__ == THEIR_TIMEOUT for kind in type(error).__mro__):
                raise ApprovalTimeout(str(error)) from error
            raise
        chosen = next((option.id for option in request.options if option.label == label), None)
        if chosen is None:
            raise HookError(f"{label!r:.100} was not offered")
        decision = Decision(option=chosen, by=self._user, channel=self._channel)
        self._claims.note(request, decision)
        return decision

    async def claim(self, request_id: str, digest: str) -> bool:
        """Take the approval: once, and for the digest that was shown."""
        return self._claims.take(request_id, digest)

    async def settle(self, request_id: str, outcome: Settlement) -> None:
        """Nothing is kept, so there is nothing to settle."""

    async def withdraw(self, request_id: str, reason: str) -> None:  # noqa: ARG002  # they have no way to be told
        """Whatever was approved is void."""
        self._claims.drop(request_id)


def as_backend(approvals: Any) -> ApprovalBackend | None:
    """What was passed as a session's approver: a backend as it is, or what has the four-argument method, adapted."""
    if approvals is None or hasattr(approvals, "request"):
        return cast("ApprovalBackend | None", approvals)
    return UpstreamApprovals(approvals)
