"""Conditions on arguments: a value, a glob or a regular expression, always over the whole of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, frozen

from amplifier_hooks.act import freeze
from amplifier_hooks.errors import InvalidRegistration
from amplifier_hooks.text.matching import MatchTimedOut, compile_matcher
from amplifier_hooks.text.paths import TooManyParts, leaves_of
from approval_backends.rules.subject import Finding

if TYPE_CHECKING:
    from amplifier_hooks.text.matching import Matcher
    from approval_backends.rules.subject import Subject


PATTERNS: Final = ("glob", "regex")
SCALARS: Final = (str, int, float, bool, type(None))


@frozen
class Value:
    """What an argument has to be: one of some exact values, or what a pattern matches as a whole."""

    exact: frozenset[bytes]
    matchers: tuple[Matcher, ...] = ()
    spec: str = ""

    def matches(self, value: object) -> bool | None:
        """Whether a plain value is one of these; None if nobody can say. `1`, `1.0`, `"1"` and `true` all differ."""
        if isinstance(value, Mapping | list | tuple):
            return None
        if freeze(value) in self.exact:
            return True
        if not self.matchers:
            return False
        if not isinstance(value, str):
            return None  # a pattern is about text, and what a tool makes of another value nobody knows
        try:
            return any(matcher.matches(value) for matcher in self.matchers)
        except MatchTimedOut:
            return None


@frozen
class Arguments:
    """Conditions on several arguments, all of which have to hold.

    With `strict`, as in an allow, a value has to be plain, and there may be no other arguments unless `others`, but for
    those that other conditions look at; without it, a match anywhere inside a value counts.
    """

    values: Mapping[str, Value]
    strict: bool
    others: bool = False
    elsewhere: frozenset[str] = frozenset()

    def check(self, subject: Subject) -> Finding:
        """Whether the arguments of a call are these."""
        arguments = subject.facts.arguments
        doubtful = ""
        for name, value in self.values.items():
            if name not in arguments:
                return Finding(met=False, why=f"there is no argument {name!r}")
            met = value.matches(arguments[name]) if self.strict else _anywhere(value, arguments[name])
            if met is False:
                return Finding(met=False, why=f"argument {name!r} is not {value.spec}")
            if met is None:
                doubtful = f"nobody can say whether argument {name!r} is {value.spec}"
        unnamed = sorted(arguments.keys() - self.values.keys() - self.elsewhere)
        if self.strict and not self.others and unnamed:
            return Finding(met=False, why=f"argument {unnamed[0]!r} is none of those it names")
        return (
            Finding(met=None, why=doubtful) if doubtful else Finding(met=True, why="the arguments are those it names")
        )


def as_values(given: object) -> dict[str, Value]:
    """The conditions on arguments, from a file. Raises `ValueError`."""
    if not isinstance(given, dict) or not given:
        raise ValueError("names one argument or more with what each has to be; without it, any arguments will do")
    return {name: as_value(value) for name, value in given.items()}


def as_value(given: object) -> Value:
    """One condition, from a file: a plain value, {glob: …}, {regex: …}, or a list of those. Raises `ValueError`."""
    choices = given if isinstance(given, list) else [given]
    if not choices:
        raise ValueError("is an empty list, which nothing matches; name what the argument may be")
    exact: set[bytes] = set()
    matchers: list[Matcher] = []
    for choice in choices:
        if isinstance(choice, SCALARS):
            exact.add(freeze(choice))
        else:
            matchers.append(_pattern(choice))
    spec = " or ".join([*(text.decode() for text in sorted(exact)), *(matcher.spec for matcher in matchers)])
    return Value(frozenset(exact), tuple(matchers), spec)


def _pattern(given: Any) -> Matcher:
    if not isinstance(given, dict) or len(given) != 1 or (kind := next(iter(given))) not in PATTERNS:
        raise ValueError("is neither a plain value nor a pattern; write {glob: 'x*'} or {regex: 'x.*'}")
    pattern = given[kind]
    if not isinstance(pattern, str) or not pattern:
        raise ValueError(f"needs a text as its {kind}")
    try:
        # A dot is any character, so that a new line hides nothing.
        matcher = compile_matcher(f"re:{_of_glob(pattern) if kind == 'glob' else '(?s)' + pattern}")
    except InvalidRegistration as problem:
        raise ValueError(f"has a pattern that cannot be used: {problem}") from None
    return evolve(matcher, spec=f"the {kind} {pattern!r}")


def _of_glob(pattern: str) -> str:
    """The same as a regular expression."""
    from wcmatch import fnmatch

    [translated], _ = fnmatch.translate(pattern, flags=fnmatch.FORCEUNIX | fnmatch.DOTMATCH)
    if "(?!)" in translated:
        raise ValueError(f"has the glob {pattern!r}, which nothing matches; turn the range in its brackets around")
    return str(translated)


def _anywhere(value: Value, given: object) -> bool | None:
    """Whether this value, or anything in it, is what is meant; None if that is too much to look at."""
    doubt = False
    try:
        for one in leaves_of(given):
            met = value.matches(one)
            if met is None and not isinstance(one, str):
                met = value.matches(freeze(one).decode())
            if met:
                return True
            doubt = doubt or met is None
    except TooManyParts:
        return None
    return None if doubt else False
