"""Requests of low risk that ask the same thing, so that an approver can answer them together. Pure.

Each request of a group keeps its own decision and digest. A group needs a line for every action that leaves nothing
out, because an action that was not shown cannot be allowed.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from attrs import frozen

from amplifier_hooks.act import freeze
from amplifier_hooks.impacts import BOUNDED
from amplifier_hooks.text.escape import for_terminal
from approval_backends.card.contents import CLAIM
from approval_backends.card.oddities import oddities

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from amplifier_hooks.ports import ApprovalRequest


MOST_TOGETHER: Final = 20
"""Requests that are answered together, at most."""
LONGEST_LINE: Final = 512
"""Bytes of arguments, as canonical JSON, that one line of a group shows."""


@frozen
class GroupMember:
    """A request as a member of a group: the key of the group, and the whole action in a line."""

    group: str
    line: str


def group_member(request: ApprovalRequest, escape: Callable[[str], str]) -> GroupMember | None:
    """Return a request as a member of its group, or None if it is answered alone.

    A request is answered alone if its risk is not low, silence allows it, its arguments do not fit into a line, or
    something in them does not look like what it is.
    """
    arguments = dict(request.arguments)
    whole = freeze(arguments)
    if request.risk != "low" or request.default != "deny" or len(whole) > LONGEST_LINE:
        return None
    if oddities(arguments, escape):
        return None
    telling = [value for name, value in arguments.items() if name != CLAIM]
    text = telling[0] if len(telling) == 1 and isinstance(telling[0], str) else whole.decode("ascii")
    return GroupMember(_group_key(request), escape(text).replace("\n", "\\u{0A}"))


def alike_requests(request: ApprovalRequest, others: Iterable[ApprovalRequest]) -> tuple[ApprovalRequest, ...]:
    """Return those of other requests that can be answered together with this one."""
    member = group_member(request, for_terminal)
    if member is None:
        return ()
    found = ((one, group_member(one, for_terminal)) for one in others)
    return tuple(one for one, other in found if other and other.group == member.group)[: MOST_TOGETHER - 1]


def _group_key(request: ApprovalRequest) -> str:
    """Return the digest of all that members of a group have in common: everything but their arguments.

    Places of impacts count, except those of kinds whose meaning bounds the harm.
    """
    impacts = {(one.kind, *(("", "") if one.kind in BOUNDED else (one.place, one.reason))) for one in request.impacts}
    common = [
        [request.tenant, request.session, request.agent, request.event, request.tool, request.cwd, request.project],
        [[one.hook, one.version, one.prompt, one.key, one.scope] for one in request.questions],
        [[one.id, one.label, one.kind] for one in request.options],
        sorted(impacts),
    ]
    return hashlib.sha256(json.dumps(common).encode()).hexdigest()[:16]
