"""The base of backends that decide inside this process, and the upstream kernel's view of every backend.

An approval is claimed once, by its digest. `AsUpstream` adds the four-argument method that the upstream kernel calls.
"""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal
from uuid import uuid4

from amplifier_hooks.act import Act, freeze
from amplifier_hooks.approvals import Claims, check_digest, with_refusal
from amplifier_hooks.errors import NO_ANSWER, ApprovalTimeout
from amplifier_hooks.foreign_code import cancel_all
from amplifier_hooks.ports import ApprovalRequest, Question
from approval_backends.errors import BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_hooks.ports import ApprovalBackend, Decision


SESSION: Final = "upstream"
"""Session and agent of upstream questions, which name neither a session nor a tool."""


class AsUpstream:
    """Gives a backend `request_approval(prompt, options, timeout, default) -> str`.

    A question that comes this way is about nothing but its words: the upstream kernel sends neither tool nor arguments.
    An allowed question is claimed on the spot, because the upstream kernel never claims.
    """

    async def request_approval(
        self: ApprovalBackend,
        prompt: str,
        options: Sequence[str],
        timeout: float = 300.0,  # theirs
        default: Literal["allow", "deny"] = "deny",
    ) -> str:
        """Return the label of the chosen option.

        Raises `ApprovalTimeout` when the time is up, which is the upstream `ApprovalTimeoutError` too where its package
        is loaded, and the errors of the backend. Cancelling withdraws the question.
        """
        request = question(prompt, options, timeout, default)
        decision = await decide_in_time(self, request, timeout)
        chosen = next((option for option in request.options if option.id == decision.option), None)
        if chosen is not None and chosen.allows:
            if await self.claim(request.id, request.digest):
                await self.settle(request.id, "done")
            else:
                chosen = None
        refusal = next(option for option in request.options if not option.allows)
        return (chosen or refusal).label


def question(prompt: str, labels: Sequence[str], seconds: float, default: Literal["allow", "deny"]) -> ApprovalRequest:
    """Return a request about nothing but its words."""
    now = datetime.now(UTC)
    arguments = {"prompt": prompt}
    return ApprovalRequest(
        id=uuid4().hex,
        tenant="",
        session=SESSION,
        agent=SESSION,
        event="approval:required",
        tool="",
        arguments=arguments,
        digest=Act("", SESSION, "approval:required", "", "", freeze(arguments)).digest,
        questions=(Question(hook=SESSION, prompt=prompt, scope="action"),),
        options=with_refusal(labels),
        default=default,
        created=now,
        expires=now + timedelta(seconds=seconds),
    )


async def decide_in_time(backend: ApprovalBackend, request: ApprovalRequest, seconds: float) -> Decision:
    """Return the decision, if it comes in time: the upstream kernel does not look at the clock."""
    asking = asyncio.ensure_future(backend.request(request))
    try:
        await asyncio.wait({asking}, timeout=seconds)
        if asking.done():
            return asking.result()
        decision = await backend.withdraw(request.id, "expired")
    except ApprovalTimeout as error:
        raise timeout_error(str(error)) from error
    finally:
        await cancel_all({asking})
    if decision is None:
        raise timeout_error(NO_ANSWER)
    return decision


def timeout_error(text: str) -> ApprovalTimeout:
    """Return our timeout error, which is the upstream one as well where its package is loaded."""
    theirs = getattr(sys.modules.get("amplifier_core.approval"), "ApprovalTimeoutError", None)
    if theirs is None:
        return ApprovalTimeout(text)
    both: ApprovalTimeout = type("ApprovalTimeout", (ApprovalTimeout, theirs), {})(text)
    return both


class InProcessBackend(Claims, AsUpstream, ABC):
    """A backend whose requests live and die with the process. Subclasses only ask."""

    def __init__(self) -> None:
        super().__init__()
        self._open: set[str] = set()

    async def request(self, request: ApprovalRequest) -> Decision:
        """Ask, and keep the digest of the approved action until it is claimed.

        Raises the errors of `ask`, `ApprovalMismatch` for arguments that do not have the request's digest,
        `BackendUnavailable` for an answer to a question that was withdrawn meanwhile, and `InputNotFreezable` for
        edited arguments that are not plain JSON. Cancelling `request` cancels the question.
        """
        check_digest(request)
        self._open.add(request.id)
        try:
            decision = await self.ask(request)
            if request.id not in self._open:
                raise BackendUnavailable("the question was withdrawn before the answer")
        finally:
            self._open.discard(request.id)
        self.note(request, decision)
        return decision

    @abstractmethod
    async def ask(self, request: ApprovalRequest) -> Decision:
        """Put the question to an approver and return the decision."""

    async def withdraw(self, request_id: str, reason: str) -> None:
        """Forget the request. For an unknown request this does nothing."""
        self._open.discard(request_id)
        await super().withdraw(request_id, reason)
