r"""The conditions of rules: on the command, the paths, the impact and the arguments of a call.

Commands. An allow is about whole commands, as the analysis of impact reads them: every command that the text would run,
behind `;`, `&&` and `|` or as an argument of another one, has to be one that the rule names, in a folder of the
project, and a redirect may only read. No rule allows a text with `( ) $ ` \ ! ^ %`, with a pattern of file names
outside of quotes, or with an operator inside of them, because shells read these in different ways. A pattern that ends
in ` *` covers any words after its own that add no kind of impact to those that the program has anyway.

The words of a deny or ask count anywhere in the arguments, whatever the quotes and the paths of programs, and in every
command that the analysis finds. A word that only a run can tell may be any word. Such a rule is a net and no wall.

Paths. A path counts as what it really is, with `..` and links followed, against the session's folder.
`amplifier_hooks.impact.call_paths` describes the patterns; one that begins with `**` is for deny and ask only.

An allow wants every text of the call to match that the rule does not name otherwise, both as it is written and with
all links followed; of its pattern, only links in the working directory and the home folder are followed, since a link
below may be the agent's own. Any path of the call, in either form, meets a deny or ask, and so does a path that cannot
be resolved.

Impact. A condition lists kinds of impact, as `amplifier_hooks.impact` predicts them. An allow wants every impact of the
call in its list, so it may be about any command, however it is put together; one listed impact meets a deny or ask.

Arguments. A condition is a value, a glob or a regular expression, always over the whole argument. An allow names all
arguments that it accepts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any, Final

from attrs import define, frozen
from msgspec.structs import replace

from amplifier_hooks.act import freeze
from amplifier_hooks.errors import InputNotFreezable, InvalidRegistration
from amplifier_hooks.impact.call_paths import (
    COMMAND_NAMES,
    PATH_NAMES,
    TIME_LIMIT,
    CallPaths,
    PathForms,
    TooManyParts,
    UnknownFolder,
    Unresolved,
    foreign_values,
    is_texts,
    leaves_of,
    matches,
    texts_of,
    words_in,
)
from amplifier_hooks.impact.file_facts import ask_file_system
from amplifier_hooks.impact.places import MARKS, UNKNOWN, Places, show
from amplifier_hooks.impact.program_rows import program_name, program_rows, split_words
from amplifier_hooks.impact.tools import predict_impact
from amplifier_hooks.impacts import FileFact, ImpactPolicy
from amplifier_hooks.text.matching import MatchTimedOut, compile_glob, compile_matcher

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amplifier_hooks.impact.call_paths import PathPattern
    from amplifier_hooks.impact.program_rows import Row
    from amplifier_hooks.impacts import CallImpact, ImpactKind
    from amplifier_hooks.ports import ActionFacts
    from amplifier_hooks.text.matching import Matcher


@frozen
class ConditionFinding:
    """The finding about one condition: met, not met, or None if it cannot be decided; and the reason."""

    met: bool | None
    why: str


def agreement(why: str) -> ConditionFinding:
    """Return the finding that a condition is met."""
    return ConditionFinding(met=True, why=why)


def mismatch(why: str) -> ConditionFinding:
    """Return the finding that a condition is not met."""
    return ConditionFinding(met=False, why=why)


def doubt(why: str) -> ConditionFinding:
    """Return the finding that a condition cannot be decided."""
    return ConditionFinding(met=None, why=why)


@define(eq=False)
class Subject:
    """One call, with the findings about it so far."""

    facts: ActionFacts

    @cached_property
    def paths(self) -> CallPaths:
        """The targets of the paths in the call's arguments."""
        return CallPaths(self.facts.tool, self.facts.arguments, self.facts.cwd, self.facts.root)

    @cached_property
    def impact(self) -> CallImpact | str:
        """The impact of the call, or the reason why that is unknown."""
        known = self.paths.cwd and self.paths.home
        return self.paths.impact if known else "the folder of the call, or the home folder, is unknown"

    @cached_property
    def is_json(self) -> bool:
        """True if every argument is JSON, so that rules see all of it."""
        try:
            freeze(dict(self.facts.arguments))
        except InputNotFreezable:
            return False
        return True


NO_JSON: Final = "a value in the arguments is no JSON"
LONGEST: Final = 4_096
"""Characters of a command that an allow may be for; an approver reads no more."""

IN_QUOTES: Final = r"[^\W_]|[ _@+=:,./#~*?{}\[\]-]"
READ_ALIKE: Final = re.compile(rf"(?:[\w@+=:,./ \n;|<>-]|&(?!>)|'(?:{IN_QUOTES}|\")*'|\"(?:{IN_QUOTES}|')*\")+")
"""A text that all shells read in the same way."""
NEUTRAL: Final = frozenset(("cd", ":", "true", "false", "exit", "wait"))
"""Commands that an allow does not name: they only choose the folder or the result of others."""
ESCAPING: Final[frozenset[ImpactKind]] = frozenset(
    (
        "runs_unread",
        "unreadable",
        "unknown_program",
        "inline_code",
        "environment",
        "git_configures",
        "reads_secret",
        "writes_guarded",
        "system",
    )
)
"""Kinds that a pattern for a program with subcommands covers only if each of its words does."""


@lru_cache(maxsize=1_024)
def usual_kinds(words: tuple[str, ...]) -> frozenset[ImpactKind]:
    """Return the kinds of impact that words of a command have with plain operands, or with a plain subcommand."""
    row = program_rows().get(program_name(words[0]))

    def kinds(*more: str) -> frozenset[ImpactKind]:
        policy = ImpactPolicy("/x", "/home/x")
        return predict_impact("shell", {"command": [*words, *more]}, policy, FileFact).commands[0].kinds

    usual = kinds("x", "x") - (set() if row is None else {"unknown_program"})
    verbs = row.verbs if row is not None and len(words) == 1 else {}
    return usual.union({"reads"}, *(kinds(verb, "x") - ESCAPING for verb in verbs))


@frozen
class CommandPattern:
    """Words, and if any others may follow."""

    words: tuple[str, ...]
    more: bool

    @property
    def spec(self) -> str:
        """The pattern as it is written."""
        return " ".join([*map(shlex.quote, self.words), *["*"] * self.more])

    def covers(self, words: Sequence[str]) -> bool:
        """Return True if these words, all of them, match the pattern."""
        begins = tuple(words[: len(self.words)]) == self.words
        return begins and (self.more or len(words) == len(self.words))

    def may_occur(self, words: Sequence[str]) -> bool:
        """Return True if a command, some words of which only a run can tell, may begin with the pattern's words."""
        for wanted, given in zip(self.words, words, strict=False):
            if given == UNKNOWN:
                return True
            glob = given.casefold().translate(dict.fromkeys(map(ord, MARKS), "*"))
            if not fnmatchcase(wanted.casefold(), glob.rpartition("/")[2] if wanted is self.words[0] else glob):
                return False
        return len(words) >= len(self.words)

    def occurs(self, words: Sequence[str]) -> bool:
        """Return True if the pattern's words stand anywhere among these, the first also as a path to the program."""
        wanted = [word.casefold() for word in self.words]
        given = [word.casefold() for word in words]
        for start in range(len(given) - len(wanted) + 1):
            first, *others = given[start : start + len(wanted)]
            if wanted[0] in (first, first.rpartition("/")[2]) and others == wanted[1:]:
                return True
        return False

    def has_options_of(self, words: Sequence[str]) -> bool | None:
        """Return True if a command has the pattern's program, first operands and options, in any order or bundle.

        The program may stand behind others, as the pattern's words may. The table of programs says which options take
        values and which letters stand for options; the case of letters counts as little as elsewhere. None if a word in
        front of `--` that only a run can tell may be an option.
        """
        name = self.words[0].casefold()
        row = program_rows().get(name)
        if row is None or not any(word[:1] == "-" for word in self.words):
            return False
        places = [at for at, word in enumerate(words) if program_name(word).casefold() == name]
        if len(places) > MOST_PLACES:
            return True
        wanted, options = _split(row, self.words[1:])
        inner = row.verbs.get(wanted[0], row) if wanted else row
        doubt = False
        for reading in (reading for at in places for reading in _readings(words[at + 1 :], wanted)):
            given, found = _split(row, reading)
            if given[: len(wanted)] == wanted and set(options) <= {*found, *((option, "") for option, _ in found)}:
                return True
            plain, _ = _split(inner, tuple(takewhile(lambda word: word != "--", reading)))
            doubt = doubt or (plain[: len(wanted)] == wanted and UNKNOWN in plain[len(wanted) :])
        return None if doubt else False


MOST_PLACES: Final = 4
"""Places of a program in one command that are read. A command with more of them counts as one that has the options."""


def _split(row: Row, words: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return operands and options with their values, in lower case."""
    operands, found = split_words(row, words, single=row.single)
    return [one.casefold() for one in operands], [(option.casefold(), value.casefold()) for option, value in found]


def _readings(words: Sequence[str], wanted: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the words behind a program, and those from its subcommand on."""
    yield words
    lowered = [word.casefold() for word in words]
    if wanted and wanted[0] in lowered:  # An option of the program may have a value that its row does not know.
        at = lowered.index(wanted[0])
        if all("-" in (before[:1], word[:1]) for before, word in pairwise(["", *words[:at]])):
            yield words[at:]


def without_options(words: tuple[str, ...], most: int) -> Iterator[tuple[str, ...]]:
    """Yield a command, and its first `most` words without the options between its program and its subcommand.

    An option may have a value of its own in the next word; both readings are given.
    """
    yield words
    program = next((at for at, word in enumerate(words) if "=" not in word), 0)
    places = {program + 1}
    for at, word in enumerate(words):
        if at in places:
            yield (program_name(words[program]), *words[at : at + most - 1])
            places |= {at + 1, at + 2} if word[:1] == "-" else set()


@frozen
class CommandCondition:
    """A condition on the command of a call."""

    patterns: tuple[CommandPattern, ...]
    strict: bool
    argument: str | None = None

    @property
    def spec(self) -> str:
        """The condition as it is written."""
        return " or ".join(repr(pattern.spec) for pattern in self.patterns)

    def check(self, subject: Subject) -> ConditionFinding:
        """Return whether the command of a call matches one of the patterns."""
        return self._check_strictly(subject) if self.strict else self._check_loosely(subject)

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments in which an allow looks for the command."""
        return (self.argument,) if self.argument else COMMAND_NAMES

    def _check_strictly(self, subject: Subject) -> ConditionFinding:
        found = subject.paths.arguments_named(self.names)
        if len(found) != 1:
            return mismatch(f"there is not one argument {' or '.join(self.names)} with the command")
        [command] = found.values()
        if isinstance(command, str) and (len(command) > LONGEST or not READ_ALIKE.fullmatch(command)):
            return doubt("the command has signs that shells read in different ways")
        if not isinstance(command, str) and not (isinstance(command, list) and command and is_texts(command)):
            return doubt("the command is neither a text nor a list of words")
        if not subject.paths.cwd:
            return doubt("the folder of the call is unknown")
        return self._check_reading(subject.paths.read_command(command), subject.paths.policy)

    def _check_reading(self, reading: CallImpact, policy: ImpactPolicy) -> ConditionFinding:
        """Return whether every command in a text is covered."""
        places = Places(policy, ask_file_system)
        covering: list[CommandPattern | None] = []
        for one in reading.commands:
            if places.is_foreign(one.folders):
                return mismatch(f"{show(one.words[0])!r} runs outside of the project")
            outer = covering[one.outer] if one.outer >= 0 else None
            if outer is not None and (not outer.more or one.kinds <= usual_kinds(outer.words)):
                covering.append(outer)
                continue
            named = [pattern for pattern in self.patterns if pattern.covers(one.words)]
            able = [
                pattern
                for pattern in named
                if not pattern.more or (one.kinds <= usual_kinds(pattern.words) and not places.is_foreign(one.entered))
            ]
            if not able and (one.words[0] not in NEUTRAL or one.kinds):
                text = show(" ".join(one.words))
                if not named:
                    return mismatch(f"the command {text!r} is not {self.spec}")
                more = ", ".join(sorted(one.kinds - usual_kinds(named[0].words))) or "another folder"
                return mismatch(f"the command {text!r} adds {more}, so ' *' does not cover it")
            covering.append(next(iter(able), None))
        if more := ", ".join(sorted(reading.loose - {"reads"})):
            return mismatch(f"a redirect or an assignment in it has the impact {more}")
        if not any(covering):
            return mismatch(f"the command is not {self.spec}")
        return agreement(f"the command is {self.spec}")

    def _check_loosely(self, subject: Subject) -> ConditionFinding:
        arguments = subject.paths.arguments_named(self.names) if self.argument else subject.facts.arguments
        try:
            leaves = list(leaves_of([*arguments.values()]))
        except TooManyParts:
            return doubt("there is too much in the arguments to look through")
        # A list is one command: its items are words already, and each may be a whole script.
        words = [word for text in leaves if isinstance(text, str) for word in words_in(text)]
        if any(pattern.occurs(words) for pattern in self.patterns):
            return agreement(f"{self.spec} stands in it")
        paths = subject.paths
        readings = [paths.read_command(one) for one in arguments.values()] if self.argument else paths.readings
        found = dict.fromkeys(command.words for reading in readings for command in reading.commands)
        most = max(len(pattern.words) for pattern in self.patterns)
        commands = [reading for words in found for reading in without_options(words, most)]
        optional = {pattern.has_options_of(words) for pattern in self.patterns for words in found}
        if True in optional or any(pattern.occurs(command) for pattern in self.patterns for command in commands):
            return agreement(f"{self.spec} stands in it")
        if None in optional or any(pattern.may_occur(command) for pattern in self.patterns for command in commands):
            return doubt(f"only a run tells if {self.spec} stands in it")
        if foreign_values(leaves):
            return doubt(NO_JSON)
        return mismatch(f"{self.spec} does not stand in it")


def as_patterns(given: object) -> tuple[CommandPattern, ...]:
    """Return the commands that a file names. Raises `ValueError`."""
    texts = given if isinstance(given, list) else [given]
    if not texts or not is_texts(texts):
        raise ValueError("is a command or a list of commands, as text: 'git status' or ['git status', 'git log *']")
    return tuple(_command_pattern(text) for text in texts)


def _command_pattern(text: str) -> CommandPattern:
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise ValueError(f"has a command that is no list of words, {text!r}: {problem}") from None
    more = bool(words) and words[-1] == "*"
    words = words[:-1] if more else words
    if not words or "*" in words:
        raise ValueError(f"has {text!r}; write the words of a command, and ' *' at its end for any words after them")
    return CommandPattern(tuple(words), more)


EXPANDABLE: Final = re.compile(r"^[~\s]|[$\\]|\s$|^[A-Za-z][A-Za-z+.-]+:")
"""Texts that some tools turn into another path: home folders, variables, schemes, backslashes, blanks around them."""


@frozen
class PathCondition:
    """A condition on the paths of a call."""

    patterns: tuple[PathPattern, ...]
    strict: bool
    named: tuple[str, ...] = ()
    elsewhere: frozenset[str] = frozenset()
    """The arguments that the rule names otherwise; an allow does not take them for paths."""

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments in which an allow looks for paths."""
        return self.named or PATH_NAMES

    @property
    def spec(self) -> str:
        """The condition as it is written."""
        return " or ".join(repr(pattern.spec) for pattern in self.patterns)

    def check(self, subject: Subject) -> ConditionFinding:
        """Return whether the paths of a call match the patterns."""
        try:
            return self._check_strictly(subject) if self.strict else self._check_loosely(subject)
        except TooManyParts:
            return doubt("there is too much in the arguments to look through")
        except TimeoutError:
            return doubt(f"{self.spec} gave no answer within {TIME_LIMIT * 1000:g} ms")

    def _check_strictly(self, subject: Subject) -> ConditionFinding:
        if not subject.paths.arguments_named(self.names):
            return mismatch(f"there is no argument {' or '.join(self.names)} with a path")
        places = [place for one in self.patterns for place in one.absolute_patterns(subject.paths, follow=False)]
        for name, value in subject.facts.arguments.items():
            if name in self.elsewhere and name not in self.names:
                continue
            texts = [value] if isinstance(value, str) else value
            if name in self.names and not (isinstance(texts, list | tuple) and texts and is_texts(texts)):
                return doubt(f"argument {name!r} is no path")
            for text in texts_of(value):
                forms = None if EXPANDABLE.search(text) else subject.paths.resolve(text)
                if not isinstance(forms, PathForms):
                    return doubt(f"the target of the path in {name!r} is unknown")
                if not matches(places, (forms.lexical,)):
                    return mismatch(f"the path in {name!r} is {forms.lexical!r}, not {self.spec}")
                if not matches(places, (forms.real,)):
                    return mismatch(f"the path in {name!r} leads to {forms.real!r}, not {self.spec}")
        return agreement(f"its paths are {self.spec}")

    def _check_loosely(self, subject: Subject) -> ConditionFinding:
        try:
            caught = subject.paths.find_match(self.patterns, self.named)
        except UnknownFolder as unknown:
            return doubt(str(unknown))
        if caught is None:
            return mismatch(f"no path in it is {self.spec}")
        if isinstance(caught, Unresolved):
            return doubt(f"the target of the path {caught.text[:80]!r} is unknown")
        verb = "is" if caught.sure else "may be"
        return agreement(f"{caught.text[:80]!r} {verb} {caught.pattern.spec!r}")


@frozen
class ImpactCondition:
    """A condition on the impact of a call."""

    kinds: frozenset[ImpactKind]
    strict: bool

    def check(self, subject: Subject) -> ConditionFinding:
        """Return whether the impact of a call is one of these kinds; in an allow, whether all of it is."""
        impact = subject.impact
        if isinstance(impact, str):
            return doubt(impact)
        if self.strict:
            more = [one for one in impact.impacts if one.kind not in self.kinds]
            why = f"it has the impact {more[0].kind} ({more[0].place})" if more else "its impact is in the list"
            return ConditionFinding(met=not more, why=why)
        found = [one for one in impact.impacts if one.kind in self.kinds]
        why = f"it has the impact {found[0].kind} ({found[0].place})" if found else "it has none of these impacts"
        return ConditionFinding(met=bool(found), why=why)


PATTERNS: Final = ("glob", "regex")
SCALARS: Final = (str, int, float, bool, type(None))


@frozen
class Value:
    """The condition on one argument: one of some exact values, or a pattern that matches the whole."""

    exact: frozenset[bytes]
    matchers: tuple[Matcher, ...] = ()
    spec: str = ""

    def matches(self, value: object) -> bool | None:
        """Return whether a plain value matches; None if that is undecided. `1`, `1.0`, `"1"` and `true` all differ."""
        try:
            frozen = None if isinstance(value, Mapping | list | tuple) else freeze(value)
        except InputNotFreezable:
            frozen = None
        if frozen is None:
            return None
        if frozen in self.exact:
            return True
        if not self.matchers:
            return False
        if not isinstance(value, str):
            return None  # a pattern is about text, and the tool may turn another value into any text
        try:
            return any(matcher.matches(value) for matcher in self.matchers)
        except MatchTimedOut:
            return None


@frozen
class ArgumentCondition:
    """Conditions on several arguments, all of which have to hold.

    With `strict`, as in an allow, a value has to be plain; without it, a match anywhere inside a value counts.
    """

    values: Mapping[str, Value]
    strict: bool

    def check(self, subject: Subject) -> ConditionFinding:
        """Return whether the arguments of a call match."""
        arguments = subject.facts.arguments
        doubtful = ""
        for name, value in self.values.items():
            if name not in arguments:
                return mismatch(f"there is no argument {name!r}")
            met = value.matches(arguments[name]) if self.strict else _matches_anywhere(value, arguments[name])
            if met is False:
                return mismatch(f"argument {name!r} is not {value.spec}")
            if met is None:
                doubtful = f"it cannot be decided if argument {name!r} is {value.spec}"
        return ConditionFinding(met=None if doubtful else True, why=doubtful or "the arguments are those it names")


@frozen
class AcceptedArguments:
    """The arguments that a call may have to be allowed: those that its rule names, or with None any that are JSON."""

    names: frozenset[str] | None

    def check(self, subject: Subject) -> ConditionFinding:
        """Return whether a call has only these arguments."""
        if not subject.is_json:
            return doubt(NO_JSON)
        others = set[str]() if self.names is None else subject.facts.arguments.keys() - self.names
        if others:
            return mismatch(f"argument {min(others)!r} is none of those it names")
        return agreement("the arguments are those it names")


def as_values(given: object) -> dict[str, Value]:
    """Return the conditions on arguments, from a file. Raises `ValueError`."""
    if not isinstance(given, dict) or not given:
        raise ValueError("names one argument or more with what each has to be; without it, any arguments will do")
    return {name: as_value(value) for name, value in given.items()}


def as_value(given: object) -> Value:
    """Return a condition from a file: a plain value, {glob: …}, {regex: …}, or a list of these. Raises `ValueError`."""
    choices = given if isinstance(given, list) else [given]
    if not choices:
        raise ValueError("is an empty list, which nothing matches; name what the argument may be")
    exact: set[bytes] = set()
    matchers: list[Matcher] = []
    for choice in choices:
        if isinstance(choice, SCALARS):
            exact.add(freeze(choice))
        else:
            matchers.append(_argument_matcher(choice))
    spec = " or ".join([*(text.decode() for text in sorted(exact)), *(matcher.spec for matcher in matchers)])
    return Value(frozenset(exact), tuple(matchers), spec)


def _argument_matcher(given: Any) -> Matcher:
    if not isinstance(given, dict) or len(given) != 1 or (kind := next(iter(given))) not in PATTERNS:
        raise ValueError("is neither a plain value nor a pattern; write {glob: 'x*'} or {regex: 'x.*'}")
    pattern = given[kind]
    if not isinstance(pattern, str) or not pattern:
        raise ValueError(f"needs a text as its {kind}")
    try:
        # A dot is any character, so that a new line hides nothing.
        matcher = compile_glob(pattern) if kind == "glob" else compile_matcher(f"re:(?s){pattern}")
    except InvalidRegistration as problem:
        raise ValueError(f"has a pattern that cannot be used: {problem}") from None
    return replace(matcher, spec=f"the {kind} {pattern!r}")


def _matches_anywhere(value: Value, given: object) -> bool | None:
    """Return whether this value, or any part of it, matches; None if it is too large to look through."""
    doubt = False
    try:
        for one in leaves_of(given):
            met = value.matches(one)
            if met is None and not isinstance(one, str):
                with suppress(InputNotFreezable):
                    met = value.matches(freeze(one).decode())
            if met:
                return True
            doubt = doubt or met is None
    except TooManyParts:
        return None
    return None if doubt else False
