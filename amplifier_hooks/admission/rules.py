"""Rules that decide without a person: a denial beats everything, an allowance answers questions.

`FailClosedRules` asks the policies of a session, and `apply_verdict` applies their verdict to an outcome. One policy is
here: `SelfProtection` keeps an agent from switching hooks off, and from deciding in a person's place.
"""

from __future__ import annotations

import inspect
import os
from asyncio import CancelledError
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.events import TOOL_PRE, find
from amplifier_hooks.foreign_code import call_apart, within
from amplifier_hooks.logs import get_logger
from amplifier_hooks.ports import RuleVerdict
from amplifier_hooks.result import APPROVAL_TIMEOUT, DEFAULT_PROMPT, RISKS, Ask, Assessment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from os import PathLike

    from amplifier_hooks.ports import ActionFacts, RulePolicy
    from amplifier_hooks.result import Outcome


RULES_TIMEOUT: Final = 5.0
"""Timeout, in seconds, of the rules."""
ANY: Final = "*"
OPTIONS: Final = ("Allow once", "Allow always", "Deny")
"""Options of a rule's own question."""

SELF_PROTECTION: Final = "self-protection"
UNGUARDS: Final = (
    "{place} is not for the agent to change ({reason}); an operator does that outside of the agent's session"
)

log = get_logger(__name__)


class FailClosedRules:
    """Policies of which the first verdict counts; a failure of a policy is a denial."""

    def __init__(self, *policies: RulePolicy) -> None:
        self._policies = policies

    @property
    def digest(self) -> str:
        """The digests of the rules in force; empty for policies that have none."""
        return "".join(str(read_attribute(policy, "digest") or "") for policy in self._policies)

    def select(self, *, report_only: bool) -> FailClosedRules | None:
        """Return the policies that are report-only, or those that are in force; None if there are none."""
        chosen = [one for one in self._policies if (read_attribute(one, "report_only") is True) is report_only]
        return FailClosedRules(*chosen) if chosen else None

    async def judge(self, facts: ActionFacts) -> RuleVerdict | None:
        """Return the first policy's verdict. An invalid verdict, a timeout or an error is a denial by no rule.

        An ask at an event at which no question can be asked is a denial.
        """
        for policy in self._policies:
            if (verdict := await self._judge(policy, facts)) is not None:
                return verdict
        return None

    async def _judge(self, policy: RulePolicy, facts: ActionFacts) -> RuleVerdict | None:
        try:
            verdict = _ask(policy, facts)
            if inspect.isawaitable(verdict):
                verdict = await within(RULES_TIMEOUT, _wait_for(verdict))
        except Exception as error:  # noqa: BLE001  # a policy may raise anything; an act that was not judged does not run
            return failed_verdict(describe(error))
        if verdict is None:
            return None
        if isinstance(verdict, RuleVerdict) and well_formed(verdict):
            return replace(verdict, action="deny") if verdict.action == "ask" and not can_ask(facts.event) else verdict
        return failed_verdict(f"the verdict was {verdict!r:.100}")


def _ask(policy: RulePolicy, facts: ActionFacts) -> object:
    """Return the policy's answer, or an awaitable of it. An exit or a cancellation of its own is an error."""
    try:
        if getattr(policy, "any_thread", False):
            return call_apart(facts.arguments, policy.judge, facts)
        return policy.judge(facts)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise RuntimeError(describe(error)) from error


async def _wait_for(answer: Awaitable[object]) -> object:
    """Return a policy's answer. An exit is an error; in a task it would end the event loop."""
    try:
        return await answer
    except (Exception, KeyboardInterrupt, CancelledError):
        raise
    except BaseException as error:
        raise RuntimeError(describe(error)) from error


def read_attribute(policy: RulePolicy, name: str) -> object:
    """Return an attribute of a policy; None if it has none, or if reading it fails."""
    try:
        return getattr(policy, name, None)
    except Exception as error:  # noqa: BLE001  # a policy may raise anything; its verdict counts all the same
        log.warning("rules_attribute_failed", attribute=name, error=describe(error))
        return None


def can_ask(event: str) -> bool:
    """Return True if a question can be asked at an event."""
    row = find(event)
    return row is None or "ask_user" in row.answers


def well_formed(verdict: RuleVerdict) -> bool:
    """Return True if the verdict's effect and risk are known words."""
    return verdict.action in ("allow", "ask", "deny") and verdict.risk in (None, *RISKS)


def failed_verdict(problem: str) -> RuleVerdict:
    """Return the denial by rules that could not judge."""
    log.error("rules_unavailable", error=problem)
    return RuleVerdict(action="deny", rule="", reason=f"the rules could not judge this: {problem}")


def apply_verdict(outcome: Outcome, verdict: RuleVerdict | None) -> tuple[Outcome, tuple[Ask, ...]]:
    """Return the outcome after the verdict, and the questions that the verdict answered.

    A rule's question joins those of the hooks. The question and its risk carry the rule's name.
    """
    if verdict is None:
        return outcome, ()
    if verdict.risk is not None:
        assessed = Assessment(by=rule_name(verdict), risk=verdict.risk, reason=verdict.risk_reason)
        outcome = replace(outcome, assessments=(*outcome.assessments, assessed))
    if verdict.action == "deny":
        reason = verdict.reason or "a rule forbids it"
        return replace(outcome, action="deny", denied_by=rule_name(verdict), reason=reason, cause="denied_by_rule"), ()
    if verdict.action == "ask":
        return replace(outcome, action="ask_user", asks=(*outcome.asks, rule_question(verdict))), ()
    answered = tuple(ask for ask in outcome.asks if ANY in verdict.answers or ask.hook_name in verdict.answers)
    if not answered:
        return outcome, ()
    left = tuple(ask for ask in outcome.asks if ask not in answered)
    return replace(outcome, action="ask_user" if left else "continue", asks=left), answered


def rule_question(verdict: RuleVerdict) -> Ask:
    """Return the question of a rule. An "always" covers this one action: a rule asks about many different ones."""
    return Ask(
        hook_name=rule_name(verdict),
        prompt=verdict.reason or DEFAULT_PROMPT,
        options=OPTIONS,
        timeout=APPROVAL_TIMEOUT,
        default="deny",
        scope="action",
        key=None,
    )


def rule_name(verdict: RuleVerdict) -> str:
    """Return the name of a rule, for places where hooks and people have names."""
    return f"rule:{verdict.rule}" if verdict.rule else "rules"


def report_facts(outcome: Outcome, tool: str, verdict: RuleVerdict | None) -> dict[str, Any] | None:
    """Return the record of a report-only verdict; None for a verdict that would have changed nothing."""
    if verdict is None:
        return None
    _, answered = apply_verdict(outcome, verdict)
    if verdict.action == "allow" and not answered:
        return None
    would = {"action": "ask_user" if verdict.action == "ask" else verdict.action, "reason": verdict.reason or None}
    answers = [ask.hook_name for ask in answered]
    return {"event": outcome.event, "tool": tool, "hook": rule_name(verdict), "would": would, "answers": answers}


def verdict_facts(verdict: RuleVerdict, answered: tuple[Ask, ...]) -> dict[str, Any]:
    """Return an automatic decision in the form of the record, with the fields of a person's decision."""
    allowed = verdict.action == "allow"
    return {
        "status": "approved" if allowed else "denied",
        "allowed": allowed,
        "reason": verdict.reason or None,
        "by": rule_name(verdict),
        "channel": "rules",
        "rule": verdict.rule,
        "hooks": [ask.hook_name for ask in answered],
    }


class SelfProtection:
    """Denies the tool calls of a session that could take its guard away.

    These calls write, delete, rename or link a protected path or a setting of an agent program that can switch a hook
    off, read a token of ours, connect to a protected port, or run an `amplifier-hooks` command that does more than
    look. No person and no rule allows such a call. A call whose text cannot be read is not denied for that.

    Args:
        paths: Files and folders to protect, besides those that a table names.
        more: A function that returns more of them at every call, for files that change while the session runs.
        ports: Ports of this machine at which people or programs decide.
        off: A reason to deny nothing; the record of the session has it. Empty if the protection is on.
    """

    any_thread = True

    def __init__(
        self,
        *,
        paths: tuple[str | PathLike[str], ...] = (),
        more: Callable[[], Iterable[str | PathLike[str]]] = tuple,
        ports: tuple[int, ...] = (),
        off: str = "",
    ) -> None:
        from pathlib import Path  # loads slowly, and few sessions are protected

        self.off = off
        self.paths = paths
        self.more = more
        self.ports = ports
        self._home = str(Path.home())
        self._guarded: dict[tuple[str | PathLike[str], ...], tuple[str, ...]] = {}
        """The spellings of the last paths."""

    def judge(self, facts: ActionFacts) -> RuleVerdict | None:
        """Return the denial of a tool call that could take the guard away, or None."""
        if facts.event != TOOL_PRE:
            return None
        from amplifier_hooks.impact.file_facts import FileSystem
        from amplifier_hooks.impact.tools import predict_impact
        from amplifier_hooks.impacts import ImpactPolicy

        folder = facts.cwd or facts.root or "/"
        policy = ImpactPolicy(facts.root or folder, self._home, guarded=self._spellings(), guarded_ports=self.ports)
        impact = predict_impact(facts.tool, facts.arguments, policy, FileSystem(), folder=folder)
        for one in impact.impacts:
            if one.unguards:
                reason = UNGUARDS.format(place=one.place or facts.tool, reason=one.reason)
                return RuleVerdict(action="deny", rule=SELF_PROTECTION, reason=reason)
        return None

    def _spellings(self) -> tuple[str, ...]:
        """Return the absolute paths, and the paths behind their links."""
        paths = (*self.paths, *self.more())
        if paths not in self._guarded:
            full = [os.path.abspath(path) for path in paths]  # noqa: PTH100  # pathlib keeps `..`
            self._guarded = {paths: tuple(dict.fromkeys((*full, *map(os.path.realpath, full))))}
        return self._guarded[paths]
