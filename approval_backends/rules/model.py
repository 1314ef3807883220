"""The rules file: strict YAML comes in, checked rules go out, with a line for every mistake."""

from __future__ import annotations

import re
import stat
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError, model_validator

from amplifier_hooks.errors import InvalidRegistration
from amplifier_hooks.events import (
    APPROVAL_REQUIRED,
    CATALOGUE,
    GOES_ON_WHEN_DENIED,
    REQUEST_PRE,
    RUN_START,
    TOOL_PRE,
    canonical,
    find,
    suggestion,
)
from amplifier_hooks.impact.call_paths import PathPattern, parse_patterns
from amplifier_hooks.impact.tool_matcher import compile_tool_matcher
from amplifier_hooks.impact.tools import argument_names
from amplifier_hooks.impacts import KINDS, ImpactKind
from amplifier_hooks.ports import RuleAction
from amplifier_hooks.result import RISKS, Risk
from amplifier_hooks.text.matching import ANY, Matcher, MatchTimedOut
from amplifier_hooks.text.strict_parsing import (
    TOO_DEEP,
    KeyPath,
    NotReadable,
    ParsedDocument,
    error_sentence,
    parse_yaml,
)
from approval_backends.errors import InvalidRules, RulesUnreadable
from approval_backends.rules.conditions import (
    AcceptedArguments,
    ArgumentCondition,
    CommandCondition,
    CommandPattern,
    ConditionFinding,
    ImpactCondition,
    PathCondition,
    Subject,
    Value,
    as_patterns,
    as_values,
    usual_kinds,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pydantic_core import ErrorDetails


UNREAD: Final[frozenset[ImpactKind]] = frozenset(("runs_unread", "unreadable"))
"""Kinds of impact of words that run any program."""
OTHERWISE: Final = "otherwise"
"""Name in the record when no rule matched and the file says what happens then."""

ID: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
MOST_RULES: Final = 1_000
LONGEST_REASON: Final = 2_048

UNJUDGED: Final = {
    APPROVAL_REQUIRED: "rules have judged the act at its own event",
    REQUEST_PRE: "no session judges it",
    RUN_START: "no session judges it",
    **dict.fromkeys(GOES_ON_WHEN_DENIED, "a denial would set the agent going again"),
}
"""Gates at which rules are not consulted, with the reason."""
JUDGED: Final = tuple(row.name for row in CATALOGUE if row.gate and row.name not in UNJUDGED)
"""The catalogued events at which a session consults rules."""


def _id(given: object) -> str:
    if not isinstance(given, str) or not ID.fullmatch(given) or given == OTHERWISE:
        raise ValueError(f"is no name for a rule; write small letters, digits and '-', at most 64, not {OTHERWISE!r}")
    return given


def _matcher(given: object) -> Matcher:
    if not isinstance(given, str | list) or (isinstance(given, list) and not all(isinstance(n, str) for n in given)):
        raise ValueError("is a tool name, 'Write|Edit', a glob like 'mcp__*', 're:…', or '*' for every tool")
    try:
        return compile_tool_matcher(given)
    except InvalidRegistration as problem:
        raise ValueError(f"cannot be used: {problem}") from None


def _event(given: object) -> Matcher:
    matcher = _matcher(given)
    names = [] if matcher.spec.startswith("re:") else matcher.spec.split("|")
    for name in (name for name in names if name not in JUDGED and not set(name) & set("*?[")):
        row = find(name)
        if row is None:
            likely = canonical(suggestion(name) or TOOL_PRE)
            raise ValueError(f"is {name!r}, an unknown event; did you mean {likely!r}?")
        if row.name in JUDGED:
            raise ValueError(f"is {name!r}; write the event's own name, {row.name!r}")
        why = UNJUDGED.get(row.name, "nothing can stop it")
        raise ValueError(f"is {name!r}, where no rule is consulted: {why}; write one of {', '.join(JUDGED)}")
    if not any(matcher.matches(name) for name in JUDGED):
        raise ValueError(f"is {matcher.spec!r}, which covers no event that has rules; those are {', '.join(JUDGED)}")
    return matcher


def _names(given: object) -> tuple[str, ...]:
    names = given if isinstance(given, list) else [given]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError("is a name or a list of names")
    return tuple(names)


def _others(given: object) -> tuple[str, ...] | None:
    """Return the names of the other arguments that an allow accepts; None for any."""
    return None if given == "any" else () if given == "none" else _names(given)


def _risks(given: object) -> frozenset[Risk]:
    names = _names(given)
    found = frozenset(risk for risk in RISKS if risk in names)
    if len(found) != len(names):
        raise ValueError(f"is {', '.join(names)}; write one or more of {', '.join(RISKS)}")
    return found


def _impacts(given: object) -> frozenset[ImpactKind]:
    names = _names(given)
    found: frozenset[ImpactKind] = frozenset(kind for kind in KINDS if kind in names)
    if unknown := next((name for name in names if name not in KINDS), None):
        raise ValueError(f"has {unknown!r}, which is no kind of impact; the kinds are {', '.join(KINDS)}")
    return found


def _version(given: object) -> int:
    if type(given) is not int or given != 1:
        raise ValueError(f"is {given!r:.40}; this program reads version: 1")
    return given


def _text(given: object) -> object:
    if not isinstance(given, str):
        raise ValueError("is no text; put it between quotes")  # noqa: TRY004  # pydantic collects this kind
    return given


def _reason(given: object) -> object:
    if len(str(_text(given))) > LONGEST_REASON:
        raise ValueError(f"has more than {LONGEST_REASON:,} characters; say it shorter")
    return given


Condition = ArgumentCondition | CommandCondition | ImpactCondition | PathCondition


class StrictRulesModel(BaseModel):
    """A model that guesses nothing: an unknown key or a value of another kind is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


class Rule(StrictRulesModel):
    """One rule of a file. All of its conditions have to hold."""

    id: Annotated[str, PlainValidator(_id), Field(description="a name of its own")]
    action: RuleAction = Field(description="allow, ask or deny")
    tool: Annotated[Matcher, PlainValidator(_matcher), Field(description="a tool, or '*'")]
    event: Annotated[Matcher, PlainValidator(_event)] = Field(default_factory=lambda: compile_tool_matcher("tool:pre"))
    risk: Annotated[frozenset[Risk] | None, PlainValidator(_risks)] = None
    arguments: Annotated[dict[str, Value] | None, PlainValidator(as_values)] = None
    other_arguments: Annotated[tuple[str, ...] | None, PlainValidator(_others)] = ()
    command: Annotated[tuple[CommandPattern, ...] | None, PlainValidator(as_patterns)] = None
    command_argument: Annotated[str | None, BeforeValidator(_text)] = None
    impact: Annotated[frozenset[ImpactKind] | None, PlainValidator(_impacts)] = None
    path: Annotated[tuple[PathPattern, ...] | None, PlainValidator(parse_patterns)] = None
    path_arguments: Annotated[tuple[str, ...], PlainValidator(_names)] = ()
    hooks: Annotated[tuple[str, ...], PlainValidator(_names)] = ()
    reason: Annotated[str, PlainValidator(_reason)] = ""
    with_risk: Risk | None = None
    risk_reason: Annotated[str, PlainValidator(_reason)] = ""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        for wrong, advice in self._mistakes():
            if wrong:
                raise ValueError(advice)
        return self

    def _mistakes(self) -> list[tuple[bool, str]]:
        allow = self.action == "allow"
        bounded = self.arguments or self.command or self.impact or self.path or self.risk or self.tool is not ANY
        return [
            (allow and not self.hooks, "an allow answers questions of hooks: add hooks: '*' for all, or their names"),
            (allow and not bounded, "this would allow everything; name tools, or what their arguments have to be"),
            (not allow and bool(self.hooks), "only an allow names hooks; deny and ask apply whichever hook asks"),
            (
                "other_arguments" in self.model_fields_set and not allow,
                "other_arguments belongs to an allow; deny and ask apply whatever the other arguments are",
            ),
            (
                allow and any(pattern.more and usual_kinds(pattern.words) & UNREAD for pattern in self.command or ()),
                "in an allow, ' *' may not follow words that run any program; write the whole command",
            ),
            (self.command_argument is not None and not self.command, "command_argument belongs to a command"),
            (bool(self.path_arguments) and not self.path, "path_arguments belongs to a path"),
            (
                self.with_risk is not None and self.action != "ask",
                "with_risk is the risk of what an ask asks about; the condition is called risk",
            ),
            (bool(self.risk_reason) and self.with_risk is None, "risk_reason belongs to with_risk"),
            (
                allow and any(pattern.spec.startswith("**/") for pattern in self.path or ()),
                "in an allow, '**/…' would be anywhere on the machine; write './**/…' for the working directory",
            ),
        ]

    @cached_property
    def checks(self) -> tuple[tuple[Condition, ...], AcceptedArguments | None]:
        """The conditions on a call, and for an allow the arguments that it accepts: a deny or ask takes any."""
        strict = self.action == "allow"
        conditions: list[Condition] = []
        named = {*(self.arguments or ()), *(self.other_arguments or ())}
        if self.arguments is not None:
            conditions.append(ArgumentCondition(self.arguments, strict))
        if self.command is not None:
            conditions.append(command := CommandCondition(self.command, strict, self.command_argument))
            named.update(command.names)
        if self.path is not None:
            conditions.append(path := PathCondition(self.path, strict, self.path_arguments, frozenset(named)))
            named.update(path.names)
        if self.impact is not None:
            conditions.append(ImpactCondition(self.impact, strict))
            named |= argument_names()
        accepted = AcceptedArguments(None if self.other_arguments is None else frozenset(named))
        return tuple(conditions), accepted if strict else None

    def check(self, subject: Subject) -> ConditionFinding:
        """Return whether all conditions are met. The first unmet one, else an undecided one, gives the reason."""
        facts = subject.facts
        names = (_name_finding(self.event, facts.event, "the event"), _name_finding(self.tool, facts.tool, "the tool"))
        return self._combine(chain(names, self._findings(subject)), subject)

    def check_conditions(self, subject: Subject) -> ConditionFinding:
        """Like `check`, for a call of which the event and the tool are known to match."""
        return self._combine(self._findings(subject), subject)

    def _combine(self, findings: Iterable[ConditionFinding], subject: Subject) -> ConditionFinding:
        doubtful: ConditionFinding | None = None
        last = ConditionFinding(met=True, why="")
        for last in findings:
            if last.met is False:
                return last
            if last.met is None:
                doubtful = doubtful or last
        accepted = self.checks[1]
        if accepted is not None and (finding := accepted.check(subject)).met is not True:
            return finding
        return doubtful or last

    def _findings(self, subject: Subject) -> Iterator[ConditionFinding]:
        if self.risk is not None:
            risk = subject.facts.risk
            wanted = "" if risk in self.risk else f", not {' or '.join(one for one in RISKS if one in self.risk)}"
            yield ConditionFinding(not wanted, f"the risk is {risk}{wanted}")
        for condition in self.checks[0]:
            yield condition.check(subject)


class RulesModel(StrictRulesModel):
    """A whole file."""

    version: Annotated[Literal[1], PlainValidator(_version), Field(description="1")]
    otherwise: Literal["ask", "deny"] | None = None
    report_only: bool = False
    rules: Annotated[list[Rule], Field(min_length=1, max_length=MOST_RULES, description="a list of rules")]


def takes_part(action: RuleAction, finding: ConditionFinding) -> bool:
    """Return True if a rule takes part in the verdict: an undecided rule does, unless it would allow."""
    return finding.met is True or (finding.met is None and action != "allow")


def _name_finding(matcher: Matcher, name: str, what: str) -> ConditionFinding:
    try:
        met = matcher.matches(name)
    except MatchTimedOut as problem:
        return ConditionFinding(met=None, why=str(problem))
    return ConditionFinding(
        met, f"{what} is {matcher.spec!r}" if met else f"{what} is {name[:80]!r}, not {matcher.spec!r}"
    )


LARGEST: Final = 1_048_576
"""Bytes of a file; far more than a person writes by hand."""


def read_file(path: Path) -> bytes:
    """Return the bytes of a rules file. Raises `RulesUnreadable`, also if other users may write it."""
    try:
        with path.open("rb") as file:
            found = path.stat()
            if stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IWOTH:
                raise RulesUnreadable(str(path), f"every user may write to it; chmod o-w {path}")
            data = file.read(LARGEST + 1)
    except OSError as problem:
        raise RulesUnreadable(str(path), f"{problem.strerror or problem}; name a file of rules that is there") from None
    if len(data) > LARGEST:
        raise RulesUnreadable(str(path), f"it has more than {LARGEST:,} bytes; split what it says")
    return data


def parse_rules(data: bytes, name: str) -> tuple[RulesModel, dict[KeyPath, int]]:
    """Return the rules of a file, and the line of each part. Raises `InvalidRules` with all mistakes."""
    marked = _load(data, name)
    lines = marked.lines
    try:
        model = RulesModel.model_validate(marked.value)
    except ValidationError as problem:
        found = [_mistake(error, lines) for error in problem.errors(include_url=False)]
        raise InvalidRules(name, sorted(found)) from None
    first: dict[str, int] = {}
    twice: list[tuple[int, str]] = []
    for number, rule in enumerate(model.rules):
        line = lines["rules", number]
        if first.setdefault(rule.id, line) != line:
            twice.append((line, f"rule {rule.id!r} is there already, in line {first[rule.id]}; give one another id"))
    if twice:
        raise InvalidRules(name, twice)
    return model, lines


def _load(data: bytes, name: str) -> ParsedDocument:
    try:
        marked = parse_yaml(data)
    except NotReadable as problem:
        sentence = f"{problem.sentence}; rules are a flat list" * (problem.sentence == TOO_DEEP) or problem.sentence
        raise InvalidRules(name, [(problem.line, sentence)]) from None
    if marked.value is None:
        raise InvalidRules(name, [(1, "the file is empty; to have no rules, name no file")])
    return marked


def _mistake(error: ErrorDetails, lines: dict[KeyPath, int]) -> tuple[int, str]:
    """Return one mistake as line and sentence."""
    at: KeyPath = error["loc"]
    known = at
    while known not in lines:  # the file itself is in line 1
        known = known[:-1]
    if not at or (at[0] == "rules" and error["type"] in ("list_type", "model_type", "too_short")):
        return lines[known], SHAPES[min(len(at), 2)]
    if at[0] == "rules" and len(at) > 1:
        return lines[known], error_sentence({**error, "loc": at[2:]}, Rule)
    return lines[known], error_sentence(error, RulesModel)


SHAPES: Final = (
    "a file of rules is a mapping with version: 1 and rules",
    "'rules' is no list with rules in it; begin each with '- id: …', or name no file to have none",
    "a rule is a mapping, as in '- id: no-secrets'",
)
