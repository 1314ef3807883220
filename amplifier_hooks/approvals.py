"""Rules of approvals: claims by digest, the scope of an "always", and the kinds of options.

`Claims` is the base of backends that decide inside this process: each approval is claimed once, by its digest.
`make_grants` turns an "always" into grants, and `match_grants` judges a request by the grants in force; neither keeps
anything. `SessionGrants` keeps grants in memory for sessions whose backend keeps none. `as_options` gives plain labels
their meaning.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from amplifier_hooks.act import Act, freeze
from amplifier_hooks.errors import ApprovalMismatch, InputNotFreezable
from amplifier_hooks.impacts import covers
from amplifier_hooks.ports import Grant, GrantKey, GrantMatch, GrantStore, Option, OptionKind
from amplifier_hooks.result import RISKS, Risk

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from amplifier_hooks.ports import ApprovalRequest, Clock, Decision, KeptResult, Question, Settlement
    from amplifier_hooks.result import Ask

__all__ = [
    "Claims",
    "act_of",
    "match_grants",
]


def answered_digest(request: ApprovalRequest, arguments: Mapping[str, Any] | None) -> str:
    """Return the digest of the action that would run: as it was shown, or with the approver's own arguments.

    Raises `InputNotFreezable` for arguments that are not plain JSON.
    """
    return request.digest if arguments is None else act_of(request, arguments).digest


def act_of(request: ApprovalRequest, arguments: Mapping[str, Any] | None = None) -> Act:
    """Return the act that a request is about, with the arguments shown or with others.

    Raises `InputNotFreezable` for arguments that are not plain JSON.
    """
    given = freeze(dict(request.arguments if arguments is None else arguments))
    return Act(request.tenant, request.session, request.event, request.tool, request.cwd, given)


def check_digest(request: ApprovalRequest) -> None:
    """Raise `ApprovalMismatch` unless the request has the digest of the act that it shows."""
    try:
        digest = act_of(request).digest
    except InputNotFreezable as problem:
        raise ApprovalMismatch(f"the arguments of request {request.id!r} are not plain JSON: {problem}") from problem
    if digest != request.digest:
        raise ApprovalMismatch(f"the arguments of request {request.id!r} do not have its digest")


CEILING: Final[Risk] = "medium"
"""The highest risk of a request that an "allow always" can answer."""


def within_ceiling(option: Option, risk: Risk) -> bool:
    """Return True if a request of this risk may be answered with this option."""
    return option.kind != "allow_always" or RISKS.index(risk) <= RISKS.index(CEILING)


CHANGED_ONCE: Final = 'changed arguments are allowed once: an "always" is for the question as it was asked'


def is_for_another(option: Option, request: ApprovalRequest, digest: str) -> bool:
    """Return True if this option would keep an "allow always" for another action than the request asks about."""
    return option.allows and option.lasts and digest != request.digest


def offered(request: ApprovalRequest) -> tuple[Option, ...]:
    """Return the options that a card shows."""
    return tuple(option for option in request.options if within_ceiling(option, request.risk))


class Claims:
    """The base of a backend that lives in one process: an approval is claimed once, by its digest, or withdrawn."""

    def __init__(self) -> None:
        self._approved: dict[str, str] = {}

    def note(self, request: ApprovalRequest, decision: Decision) -> None:
        """Keep a decision if it allows the action.

        Raises `InputNotFreezable` for edited arguments that are not plain JSON.
        """
        if any(option.allows for option in request.options if option.id == decision.option):
            self._approved[request.id] = answered_digest(request, decision.arguments)

    async def claim(self, request_id: str, digest: str) -> bool:
        """Use an approval up; return True if it was given for this digest. Another digest voids the approval, too."""
        return self._approved.pop(request_id, None) == digest

    async def settle(self, request_id: str, outcome: Settlement, result: KeptResult | None = None) -> None:
        """Do nothing: such a backend stores no results."""

    async def withdraw(self, request_id: str, reason: str) -> None:  # noqa: ARG002  # for backends that can show it
        """Void the approval of a request. For an unknown request this does nothing."""
        self._approved.pop(request_id, None)


def grant_keys(request: ApprovalRequest) -> tuple[GrantKey, ...]:
    """Return one key for each hook that asked; a grant for each of these keys covers the request.

    A hook's own key names the shape of calls, whatever tool makes them, and the impacts bound the grant.
    """
    return tuple(
        GrantKey(
            tenant=request.tenant,
            session=request.session,
            agent=request.agent,
            hook=question.hook,
            version=question.version,
            tool="" if question.key is not None and request.impacts else request.tool,
            cwd=request.cwd,
            scope=_scope(question, request.digest),
        )
        for question in request.questions
    )


def kept_keys(request: ApprovalRequest) -> tuple[GrantKey, ...]:
    """Return the keys of grants that outlive their session.

    They hold in every session of the project, so their folder is the project's, and their digest is that of the action
    without its session.
    """
    keys = grant_keys(replace(request, digest=act_of(request).grant_digest))
    return tuple(replace(key, session=None, cwd=request.project or request.cwd) for key in keys)


def make_grants(
    request: ApprovalRequest, decision: Decision, time: datetime, age: float | None = None
) -> tuple[Grant, ...]:
    """Return the grants that a decision makes: none, unless the approver chose an "always" within the ceiling of risk.

    They last as long as the decision says, from `time` on, and from the store's `age`, if it has one.
    """
    option = next((option for option in request.options if option.id == decision.option), None)
    if option is None or not option.lasts or not within_ceiling(option, request.risk):
        return ()
    keys = grant_keys(request) if decision.keep is None else kept_keys(request)
    lasts = min((one for one in (decision.keep, decision.seconds) if one is not None), default=None)
    return tuple(
        Grant(
            id=f"{request.id}:{number}",
            key=key,
            allows=option.allows,
            ceiling=request.risk,
            by=decision.by,
            channel=decision.channel,
            request=request.id,
            created=time,
            expires=None if lasts is None else time + timedelta(seconds=lasts),
            ends=None if lasts is None or age is None else age + lasts,
            impacts=request.impacts,
            times=decision.times,
        )
        for number, key in enumerate(keys, start=1)
    )


def match_grants(request: ApprovalRequest, grants: Iterable[Grant]) -> GrantMatch | None:
    """Judge a request by the grants in force, and return the verdict with the grants that give it.

    Allows have to cover every hook that asks, and the first one for each is used up; one deny is enough.

    A grant allows nothing of a higher risk than that of the request for which it was given, nothing of high risk, and
    no call with an impact that its card did not name.
    """
    grants, risk = tuple(grants), RISKS.index(request.risk)
    asked = [set(keys) for keys in zip(grant_keys(request), kept_keys(request), strict=True)]
    denials = tuple(grant for grant in grants if not grant.allows and any(grant.key in keys for keys in asked))
    if denials:
        return "deny", denials
    if risk > RISKS.index(CEILING):
        return None
    allowing = [
        grant
        for grant in grants
        if grant.allows
        and (grant.times is None or grant.used < grant.times)
        and risk <= RISKS.index(grant.ceiling)
        and covers(grant.impacts, request.impacts)
    ]
    found = [next((grant for grant in allowing if grant.key in keys), None) for keys in asked]
    used = tuple(dict.fromkeys(grant for grant in found if grant is not None))
    return ("allow", used) if asked and None not in found else None


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
    "allow always in this session": "allow_always",
    "allow always in this project": "allow_always",
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


def common_options(asks: Iterable[Ask], risk: Risk) -> tuple[Option, ...]:
    """Return the first hook's options of the kinds that every other hook offers, too; add a refusal if none is left.

    Above the ceiling of risk, "Allow once" takes the place of an "allow always".
    """
    first, *rest = (as_options(ask.options) for ask in asks)
    common = [option for option in first if all(option.kind in kinds_of(other) for other in rest)]
    offered = [option for option in common if within_ceiling(option, risk)]
    once = offered == common or any(option.allows for option in offered)
    return with_refusal([*(() if once else ("Allow once",)), *(option.label for option in offered)])


def with_project(options: Iterable[Option]) -> tuple[Option, ...]:
    """Return the options for a store that keeps grants: an "allow always" is for this session, or for this project."""
    found: list[Option] = []
    for option in options:
        if option.kind != "allow_always":
            found.append(option)
        elif all(one.kind != "allow_always" for one in found):
            here = replace(option, label="Allow always in this session", session_only=True)
            found += here, replace(option, id=f"{option.id}-project", label="Allow always in this project")
    return tuple(found)


def kinds_of(options: Iterable[Option]) -> set[OptionKind]:
    """Return the kinds of these options."""
    return {option.kind for option in options}


class SessionGrants:
    """Grants in memory: those of a session until it ends, and, with `keep_grants`, those of a project for its seconds.

    Implements `GrantStore` and `ProjectGrants`.
    """

    def __init__(self, clock: Clock, *, keep_grants: float | None = None) -> None:
        self.keep_grants = keep_grants
        self._clock = clock
        self._kept: dict[str, Grant] = {}

    async def match_grants(self, request: ApprovalRequest) -> GrantMatch | None:
        """Return the decision by grants for this request, with these grants; None without one."""
        if not self._kept:
            return None
        keys = {*grant_keys(request), *kept_keys(request)}
        return match_grants(request, [grant for grant in self._in_force() if grant.key in keys])

    async def remember(self, request: ApprovalRequest, decision: Decision) -> None:
        """Store a decision that lasts as grants."""
        for grant in make_grants(request, decision, decision.at or self._clock.now()):
            self._kept[grant.id] = grant

    async def use_grants(self, request: ApprovalRequest, grants: Sequence[Grant]) -> bool:
        """Count a call that these grants cover, unless one of them is over or used up."""
        chosen = {grant.id for grant in grants}
        if match_grants(request, [grant for grant in self._in_force() if grant.id in chosen]) is None:
            return False
        for grant in grants:
            self._kept[grant.id] = replace(self._kept[grant.id], used=self._kept[grant.id].used + 1)
        return True

    async def list_grants(self, tenant: str, session: str) -> list[Grant]:
        """Return the grants in force, oldest first."""
        return [grant for grant in self._in_force() if (grant.key.tenant, grant.key.session) == (tenant, session)]

    async def revoke_grant(self, grant_id: str, tenant: str, session: str) -> bool:
        """End one grant. Return True if it was in force."""
        there = any(grant.id == grant_id for grant in await self.list_grants(tenant, session))
        if there:
            del self._kept[grant_id]
        return there

    def _in_force(self) -> list[Grant]:
        now = self._clock.now()
        return [grant for grant in self._kept.values() if grant.expires is None or grant.expires > now]

    async def end_grants(self, tenant: str, session: str) -> None:
        """Remove all grants of the session."""
        for grant in await self.list_grants(tenant, session):
            del self._kept[grant.id]


def grant_store_of(backend: object) -> GrantStore | None:
    """Return the backend if it keeps grants itself, otherwise None."""
    if backend is None:  # a look at a protocol takes 10 µs
        return None
    return backend if isinstance(backend, GrantStore) else None
