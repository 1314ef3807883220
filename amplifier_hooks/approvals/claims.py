"""An approval is claimed once, by its digest: the bookkeeping of backends that decide inside this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_hooks.act import Action, freeze

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.ports import ApprovalRequest, Decision


def answered_digest(request: ApprovalRequest, arguments: Mapping[str, Any] | None) -> str:
    """The digest of what would run: the action as it was shown, or with the arguments of the approver.

    Raises `InputNotFreezable` for arguments that are not plain JSON.
    """
    if arguments is None:
        return request.digest
    return Action(request.tenant, request.session, request.event, request.tool, freeze(dict(arguments))).digest


class Claims:
    """What was approved and has not run yet, by request."""

    def __init__(self) -> None:
        self._approved: dict[str, str] = {}

    def note(self, request: ApprovalRequest, decision: Decision) -> None:
        """Keep what was decided, if it was to allow.

        Raises `InputNotFreezable` for edited arguments that are not plain JSON.
        """
        if any(option.allows for option in request.options if option.id == decision.option):
            self._approved[request.id] = answered_digest(request, decision.arguments)

    def take(self, request_id: str, digest: str) -> bool:
        """Whether this was approved; true once. Asked with another digest, the approval is gone, too."""
        return self._approved.pop(request_id, None) == digest

    def drop(self, request_id: str) -> None:
        """Nothing is approved here any more."""
        self._approved.pop(request_id, None)
