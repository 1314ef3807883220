"""What an "always" covers, and what standing answers come to. Pure: nothing is kept here."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from attrs import evolve

from amplifier_hooks.act import Action, freeze
from amplifier_hooks.ports import GrantKey, StandingAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from typing import Any

    from amplifier_hooks.ports import ApprovalRequest, Decision, Question


def grant_keys(request: ApprovalRequest, digest: str | None = None) -> tuple[GrantKey, ...]:
    """One key for each hook that asked; together they are what a grant has to cover."""
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
    """The keys of grants that are kept beyond their session, for the request or for the approver's own arguments.

    They hold in every session, so the digest in them is that of the action without its session.

    Raises `InputNotFreezable` for arguments that are not plain JSON.
    """
    given = freeze(dict(request.arguments if arguments is None else arguments))
    action = Action(request.tenant, request.session, request.event, request.tool, given)
    return tuple(evolve(key, session=None) for key in grant_keys(request, action.grant_digest))


def granted(
    request: ApprovalRequest, decision: Decision, decided: datetime, digest: str, keep: float | None = None
) -> tuple[StandingAnswer, ...]:
    """What a decision grants from now on; nothing, unless "always" was chosen.

    With `keep`, so many seconds and in every session of the same tenant and agent; otherwise until the session ends.
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
        StandingAnswer(
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


def standing(request: ApprovalRequest, grants: Iterable[StandingAnswer]) -> Literal["allow", "deny"] | None:
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
    """What a hook's "always" is about. The word in front keeps a prompt from passing for a digest or a key."""
    if question.key is not None:
        return f"key:{question.key}"
    if question.scope == "action" or not question.prompt:
        return f"action:{digest}"
    return f"prompt:{question.prompt}"
