"""One request for everything the hooks ask about one action."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from attrs import frozen

from amplifier_hooks.approvals import common_options
from amplifier_hooks.dispatch.chain import DataView
from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.logs import get_logger
from amplifier_hooks.ports import ApprovalRequest, Question
from amplifier_hooks.result import RISKS, Assessment, highest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from amplifier_hooks.act import Action
    from amplifier_hooks.result import Default, Outcome, Risk


DOMAIN: Final = b"amplifier-hooks/request/1\n"

LONGEST: Final = 366 * 86_400.0
"""Seconds. A hook may name any finite time; dates end sooner."""

HOST: Final = "host"
UNASSESSED: Final = Assessment(by="", risk="medium")
"""The risk of a question that comes without one."""

log = get_logger(__name__)


@frozen(kw_only=True)
class Origin:
    """Where a session's questions come from, and what its host says about them."""

    agent: str = ""
    cwd: str = ""
    wait: float | None = None
    """Seconds to wait inline."""
    assess: Callable[[str, Mapping[str, Any]], Risk] | None = None
    """The host's word on how much is at stake, by tool and arguments."""
    version: Callable[[str], str] = lambda _hook: ""
    """Of a hook, by name: a grant is for one version."""
    ours: Callable[[str], bool] = lambda _hook: True
    """Whether a hook is the host's own; only those may let silence allow."""

    def assessments(
        self, tool: str, arguments: Mapping[str, Any], outcome: Outcome | None = None
    ) -> tuple[Assessment, ...]:
        """Every risk that hooks, rules and the host give; the highest counts.

        Where the host gives none, a question that comes without one is `UNASSESSED`: a hook may call its own question
        harmless, but not that of another.
        """
        said = () if outcome is None else outcome.assessments
        if self.assess is not None:
            return (*said, self._assessed(self.assess, tool, arguments))
        asking = set() if outcome is None else {ask.hook_name for ask in outcome.asks}
        return said if asking and asking <= {one.by for one in said} else (*said, UNASSESSED)

    def risk(self, tool: str, arguments: Mapping[str, Any], outcome: Outcome | None = None) -> Risk:
        """The highest of the assessments."""
        return highest(self.assessments(tool, arguments, outcome)) or UNASSESSED.risk

    @staticmethod
    def _assessed(
        assess: Callable[[str, Mapping[str, Any]], object], tool: str, arguments: Mapping[str, Any]
    ) -> Assessment:
        """The host's word; where the host cannot say, the risk is high."""
        try:
            risk = assess(tool, arguments)
        except Exception as error:  # noqa: BLE001  # the host's code; its failure must not make an action look harmless
            problem = describe(error)
        else:
            if isinstance(risk, str) and risk in RISKS:
                return Assessment(by=HOST, risk=risk)
            said = f"{risk!r:.100}" if type(risk) is str else f"something of type {type(risk).__name__}"
            problem = f"{said} is none of {', '.join(RISKS)}"
        log.warning("risk_unknown", error=problem)
        return Assessment(by=HOST, risk="high", reason=f"The host could not say how high the risk is: {problem}")


def request_id(action: Action, call: str | None, attempt: int, questions: tuple[Question, ...] = ()) -> str:
    """The id of a question: the same after a restart for the same call, and different for every other.

    It is another one, too, once a hook that asks has changed: what somebody said to the old version does not count for
    the new one. An action that belongs to no call gets an id that nobody can come back to. Every part has its length
    before it, so that no two questions are spelt alike.
    """
    if call is None:
        return uuid4().hex
    hashed = hashlib.sha256(DOMAIN)
    versions = [part for question in questions for part in (question.hook, question.version)]
    for part in (action.tenant, action.session, action.event, call, str(attempt), *versions):
        data = part.encode("utf-8", "surrogatepass")
        hashed.update(len(data).to_bytes(8, "big"))
        hashed.update(data)
    return hashed.hexdigest()[:32]


def build_request(
    outcome: Outcome, action: Action, origin: Origin, now: datetime, *, call: str | None, attempt: int, durable: bool
) -> ApprovalRequest:
    """The request for an outcome that asks. If nobody could come back to it, its time ends with the inline wait."""
    time = min(outcome.approval_timeout, LONGEST)
    inline = time if origin.wait is None else min(origin.wait, time)
    returns = durable and call is not None
    arguments = action.input()
    view = DataView(arguments) if isinstance(arguments, dict) else DataView()
    questions = tuple(
        Question(
            hook=ask.hook_name,
            prompt=ask.prompt,
            version=origin.version(ask.hook_name),
            scope=ask.scope,
            key=ask.key,
        )
        for ask in outcome.asks
    )
    assessments = origin.assessments(action.tool, view, outcome)
    return ApprovalRequest(
        id=request_id(action, call, attempt, questions),
        tenant=action.tenant,
        session=action.session,
        agent=origin.agent,
        event=action.event,
        tool=action.tool,
        arguments=view,
        digest=action.digest,
        questions=questions,
        options=common_options(outcome.asks),
        default=default_of(outcome, origin),
        created=now,
        expires=now + timedelta(seconds=time if returns else inline),
        risk=highest(assessments) or UNASSESSED.risk,
        cwd=origin.cwd,
        wait=inline if returns and inline < time else None,
        assessments=assessments,
    )


def default_of(outcome: Outcome, origin: Origin) -> Default:
    """What silence means: to allow only if every hook that asks says so, and each of them is the host's own."""
    trusted = all(origin.ours(ask.hook_name) for ask in outcome.asks)
    return outcome.approval_default if trusted else "deny"
