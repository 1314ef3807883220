"""Rules of approvals: claims by digest, the scope of an "always", and the kinds of options.

`Claims` is the bookkeeping of backends that decide inside this process: each approval is claimed once, by its digest.
`make_grants` turns an "always" into grants, and `match_grants` judges a request by the grants in force; neither keeps
anything. `as_options` gives plain labels their meaning.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import evolve

from amplifier_hooks.act import Action, freeze
from amplifier_hooks.ports import Grant, GrantKey, Option, OptionKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from amplifier_hooks.ports import ApprovalRequest, Decision, Question
    from amplifier_hooks.result import Ask

__all__ = [
    "KNOWN_LABELS",
    "Claims",
    "answered_digest",
    "as_options",
    "common_options",
    "grant_keys",
    "make_grants",
    "match_grants",
    "with_refusal",
]


def answered_digest(request: ApprovalRequest, arguments: Mapping[str, Any] | None) -> str:
    """Return the digest of the action that would run: as it was shown, or with the approver's own arguments.

    Raises `InputNotFreezable` for arguments that are not plain JSON.
    """
    if arguments is None:
        return request.digest
    return Action(request.tenant, request.session, request.event, request.tool, freeze(dict(arguments))).digest


class Claims:
    """Approvals that were given and not yet claimed, by request."""

    def __init__(self) -> None:
        self._approved: dict[str, str] = {}

    def note(self, request: ApprovalRequest, decision: Decision) -> None:
        """Keep a decision if it allows the action.

        Raises `InputNotFreezable` for edited arguments that are not plain JSON.
        """
        if any(option.allows for option in request.options if option.id == decision.option):
            self._approved[request.id] = answered_digest(request, decision.arguments)

    def take(self, request_id: str, digest: str) -> bool:
        """Use an approval up; return True if it was given for this digest. Another digest voids the approval, too."""
        return self._approved.pop(request_id, None) == digest

    def drop(self, request_id: str) -> None:
        """Void the approval of a request."""
        self._approved.pop(request_id, None)


def grant_keys(request: ApprovalRequest, digest: str | None = None) -> tuple[GrantKey, ...]:
    """Return one key for each hook that asked; a grant for each of these keys covers the request."""
    return tuple(
        GrantKey(
            tenant=request.tenant,
            session=request.session,
            agent=request.agent,
            hook=question.hook,
            version=question.version,
            tool=request.tool,
            cwd=request.cwd,
            scope=_scope(question, digest or request.digest),
        )
        for question in request.questions
    )


def kept_keys(request: ApprovalRequest, arguments: Mapping[str, Any] | None = None) -> tuple[GrantKey, ...]:
    """Return the keys of grants that outlive their session, for the request or for the approver's own arguments.

    They hold in every session, so their digest is that of the action without its session.

    Raises `InputNotFreezable` for arguments that are not plain JSON.
    """
    given = freeze(dict(request.arguments if arguments is None else arguments))
    action = Action(request.tenant, request.session, request.event, request.tool, given)
    return tuple(evolve(key, session=None) for key in grant_keys(request, action.grant_digest))


def make_grants(
    request: ApprovalRequest, decision: Decision, decided: datetime, digest: str, keep: float | None = None
) -> tuple[Grant, ...]:
    """Return the grants that a decision makes: none, unless the approver chose "always".

    With `keep` they last that many seconds, in every session of the tenant and agent; otherwise until the session ends.
    `digest` is that of the action that was decided about.
    """
    option = next((option for option in request.options if option.id == decision.option), None)
    if option is None or not option.lasts:
        return ()
    if keep is None:
        keys = grant_keys(request, digest)
    else:
        keys = kept_keys(request, decision.arguments if option.allows else None)
    return tuple(
        Grant(
            id=f"{request.id}:{number}",
            key=key,
            allows=option.allows,
            by=decision.by,
            channel=decision.channel,
            request=request.id,
            created=decided,
            expires=None if keep is None else decided + timedelta(seconds=keep),
        )
        for number, key in enumerate(keys, start=1)
    )


def match_grants(request: ApprovalRequest, grants: Iterable[Grant]) -> Literal["allow", "deny"] | None:
    """Judge a request by the grants in force: allows have to cover every hook that asks, one deny is enough.

    No grant allows an action of high risk.
    """
    allowed: set[GrantKey] = set()
    denied: set[GrantKey] = set()
    for grant in grants:
        (allowed if grant.allows else denied).add(grant.key)
    asked = [set(keys) for keys in zip(grant_keys(request), kept_keys(request), strict=True)]
    if any(denied & keys for keys in asked):
        return "deny"
    if request.risk == "high":
        return None
    return "allow" if asked and all(allowed & keys for keys in asked) else None


def _scope(question: Question, digest: str) -> str:
    """Return the scope of a hook's "always". Its first word keeps a prompt from passing for a digest or a key."""
    if question.key is not None:
        return f"key:{question.key}"
    if question.scope == "action" or not question.prompt:
        return f"action:{digest}"
    return f"prompt:{question.prompt}"


KNOWN_LABELS: Final[Mapping[str, OptionKind]] = {
    "allow": "allow_once",
    "allow once": "allow_once",
    "approve": "allow_once",
    "approve once": "allow_once",
    "yes": "allow_once",
    "allow always": "allow_always",
    "always allow": "allow_always",
    "approve always": "allow_always",
    "deny": "reject_once",
    "deny once": "reject_once",
    "reject": "reject_once",
    "no": "reject_once",
    "deny always": "reject_always",
    "always deny": "reject_always",
    "reject always": "reject_always",
    "never": "reject_always",
}
"""The meanings of plain labels. Any other label is a rejection: an unknown word must not become a permit."""


def as_options(labels: Iterable[str]) -> tuple[Option, ...]:
    """Return the options that plain labels stand for."""
    return tuple(
        Option(id=f"option-{number}", label=label, kind=KNOWN_LABELS.get(label.strip().casefold(), "reject_once"))
        for number, label in enumerate(labels, start=1)
    )


def with_refusal(labels: Iterable[str]) -> tuple[Option, ...]:
    """Return the options that plain labels stand for, with a refusal added if none of them refuses."""
    options = as_options(labels)
    if any(not option.allows for option in options):
        return options
    return as_options([*(option.label for option in options), "Deny"])


def common_options(asks: Iterable[Ask]) -> tuple[Option, ...]:
    """Return the first hook's options of the kinds that every other hook offers, too; add a refusal if none is left."""
    first, *rest = (as_options(ask.options) for ask in asks)
    return with_refusal(option.label for option in first if all(option.kind in kinds_of(other) for other in rest))


def kinds_of(options: Iterable[Option]) -> set[OptionKind]:
    """Return the kinds of these options."""
    return {option.kind for option in options}
