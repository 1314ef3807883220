"""The verdict of the rules about a call, and the reasons."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from attrs import frozen

from amplifier_hooks.events import TOOL_PRE
from amplifier_hooks.ports import ActionFacts, RuleAction, RuleVerdict
from amplifier_hooks.result import STOPS_NOTHING, Assessment, highest
from amplifier_hooks.text.matching import MatchTimedOut
from approval_backends.rules.conditions import Subject
from approval_backends.rules.model import OTHERWISE, Rule, parse_rules, read_file, takes_part

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable


STRICTEST_FIRST: Final[tuple[RuleAction, ...]] = ("deny", "ask", "allow")
SELECTIONS_KEPT: Final = 1_024
"""Pairs of an event and a tool of which the rules are kept; models choose the names of tools."""

RulesByAction = tuple[tuple[RuleAction, tuple[Rule, ...]], ...]
"""The rules of each action, the strictest action first, and among them in the order of their names."""


class RuleIndex:
    """The rules of a file, and for each event and tool those of them that are about it."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        by_name = sorted(rules, key=lambda rule: rule.id)
        self.all: RulesByAction = tuple(
            (action, tuple(rule for rule in by_name if rule.action == action)) for action in STRICTEST_FIRST
        )
        self._selected: dict[tuple[str, str], RulesByAction] = {}

    def select(self, event: str, tool: str) -> RulesByAction:
        """Return the rules about this event and tool. Raises `MatchTimedOut` where a pattern gives no answer."""
        found = self._selected.get((event, tool))
        if found is None:
            if len(self._selected) >= SELECTIONS_KEPT:
                self._selected.clear()
            found = tuple(
                (action, tuple(rule for rule in rules if rule.event.matches(event) and rule.tool.matches(tool)))
                for action, rules in self.all
            )
            self._selected[event, tool] = found
        return found


@frozen
class ConsideredRule:
    """One rule and its finding about a call. `met` is None if that is undecided, which counts against the call."""

    rule: str
    action: RuleAction
    line: int
    met: bool | None
    why: str
    matched: bool
    """True if the rule takes part in the verdict."""

    def __str__(self) -> str:
        return f"{self.rule} ({self.action}, line {self.line}): {self.why}"


@frozen(kw_only=True)
class RulesExplanation:
    """The verdict of the rules about a call, and the part of each rule in it."""

    verdict: RuleVerdict | None
    considered: tuple[ConsideredRule, ...]
    report_only: bool = False

    @property
    def deciding(self) -> tuple[ConsideredRule, ...]:
        """The rules that gave the verdict."""
        action = self.verdict.action if self.verdict else None
        return tuple(one for one in self.considered if one.matched and one.action == action)

    @property
    def outdone(self) -> tuple[ConsideredRule, ...]:
        """Rules that matched as well, and lost to a stricter one."""
        return tuple(one for one in self.considered if one.matched and one not in self.deciding)

    @property
    def others(self) -> tuple[ConsideredRule, ...]:
        """Rules that did not match."""
        return tuple(one for one in self.considered if not one.matched)

    def __str__(self) -> str:
        lines = [f"The file is {STOPS_NOTHING}."] if self.report_only else []
        lines.append(_verdict_text(self.verdict))
        for title, rules in (("decides", self.deciding), ("matches", self.outdone), ("no match", self.others)):
            lines += [f"  {title}: {one}" for one in rules]
        return "\n".join(lines)


class Rules:
    """Rules that decide without a person; a `RulePolicy`.

    Rules are read once; a file that changes meanwhile takes effect only at `reload`, so that an agent that can write
    the file for a moment cannot let a call pass. Keep the file where the agent cannot write.

    Args:
        data: Bytes of a rules file.
        name: Name of the rules, for the record.
    """

    any_thread: Final = True
    """True because `judge` may be called in any thread: large arguments are judged off the event loop."""

    def __init__(self, data: bytes, name: str = "rules") -> None:
        """Read rules from the text of a file. Raises `InvalidRules`, with every mistake and its line."""
        self.source: Path | None = None
        self._name = name
        self._take(data)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the rules of a file. Raises `RulesUnreadable` if it cannot be read, `InvalidRules`.

        Args:
            path: Path of a rules file.
        """
        source = Path(path)
        rules = cls(read_file(source), str(source))
        rules.source = source
        return rules

    def reload(self) -> bool:
        """Read the file again. Return True if its rules changed.

        Raises the errors of `load`; the rules then stay as they were.
        """
        if self.source is None:
            return False
        before = self.digest
        self._take(read_file(self.source))
        return self.digest != before

    def _take(self, data: bytes) -> None:
        model, lines = parse_rules(data, self._name)
        self._rules, self._index, self._otherwise = model.rules, RuleIndex(model.rules), model.otherwise
        self._lines = [lines["rules", number] for number in range(len(model.rules))]
        self.report_only = model.report_only
        """True if the verdicts have no effect and are only on record."""
        self.digest = hashlib.sha256(data).hexdigest()
        """The digest of the file's bytes: it identifies these rules."""

    def __len__(self) -> int:
        return len(self._rules)

    def judge(self, facts: ActionFacts) -> RuleVerdict | None:
        """Return the verdict of the rules about this call; None if no rule matches."""
        try:
            rules = self._index.select(facts.event, facts.tool)
        except MatchTimedOut:  # such a rule may count against the call
            return self.explain(facts).verdict
        subject = Subject(facts)
        return self._verdict(rules, facts.event, lambda rule: takes_part(rule.action, rule.check_conditions(subject)))

    def explain(self, facts: ActionFacts) -> RulesExplanation:
        """Return the verdict that the rules would give to a call, and the reasons. Nothing is run."""
        subject = Subject(facts)
        considered = []
        for rule, line in zip(self._rules, self._lines, strict=True):
            finding = rule.check(subject)
            part = takes_part(rule.action, finding)
            considered.append(ConsideredRule(rule.id, rule.action, line, finding.met, finding.why, part))
        matched = {one.rule for one in considered if one.matched}
        verdict = self._verdict(self._index.all, facts.event, lambda rule: rule.id in matched)
        return RulesExplanation(verdict=verdict, considered=tuple(considered), report_only=self.report_only)

    def _verdict(self, rules: RulesByAction, event: str, counts: Callable[[Rule], bool]) -> RuleVerdict | None:
        """Return the strictest action of the rules that count, by all that have it, in the order of their names."""
        for action, candidates in rules:
            if found := [rule for rule in candidates if counts(rule)]:
                given = [Assessment(by=r.id, risk=r.with_risk, reason=r.risk_reason) for r in found if r.with_risk]
                risk = highest(given)
                return RuleVerdict(
                    action=action,
                    rule=", ".join(rule.id for rule in found),
                    reason="\n".join(rule.reason for rule in found if rule.reason),
                    answers=tuple(dict.fromkeys(name for rule in found for name in rule.hooks)),
                    risk=risk,
                    risk_reason="\n".join(one.reason for one in given if one.risk == risk and one.reason),
                )
        if self._otherwise is None or event != TOOL_PRE:
            return None
        return RuleVerdict(action=self._otherwise, rule=OTHERWISE, reason="No rule allows this.")


def _verdict_text(verdict: RuleVerdict | None) -> str:
    if verdict is None:
        return "no rule speaks: the hooks decide"
    if verdict.action == "allow":
        hooks = "every hook" if "*" in verdict.answers else ", ".join(verdict.answers)
        return f"allow, by {verdict.rule}: answers the questions of {hooks}"
    text = f"{verdict.action}, by {verdict.rule}{verdict.reason and ': ' + verdict.reason}"
    if verdict.risk is None:
        return text
    return f"{text}\n  with {verdict.risk} risk{verdict.risk_reason and ': ' + verdict.risk_reason}"
