"""A matcher's spelling comes in; a test of tool names goes out, and never one that silently matches nothing.

| written                            | means                                                             |
|------------------------------------|-------------------------------------------------------------------|
| `None`, `"*"`                      | every tool                                                        |
| `"Write"`                          | that tool: the whole name, in this case                           |
| `"Write|Edit"`, `["Write", "Edit"]`| any of them; each may be a glob                                   |
| `"mcp__*"`, `"Ba?h"`, `"[A-C]x"`   | a glob over the whole name                                        |
| `"re:mcp__(a|b)__.+"`, re.compile()| a regular expression over the whole name, run with a time limit   |

A regular expression as text needs the prefix `re:`. An expression without it, and any other spelling that could never
match a tool (`"Write, Edit"`, `"a||b"`, `"[z-a]"`), is refused with the right way to write it: a gate that matches
nothing would be an open door that looks closed. A dialect with rules of its own builds its own `Matcher`.

`compile_linear` searches a text in time that is linear in the text, whatever the text and the pattern are. Its
expressions are those of Rust's `regex`: no backtracking, and so no look-around and no back-references. It does not tell
the position of a match.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from amplifier_hooks.errors import HookError, InvalidRegistration

if TYPE_CHECKING:
    from collections.abc import Iterable

    import regex


MAX_PATTERN_LENGTH: Final = 512
_TIME_LIMIT: Final = 0.05  # seconds for one match
# The engine copies a repeated part as often as it must occur, `+` included, and nested repeats multiply: 25 characters
# such as ((a{500}){500}){500} took all memory at compile time, where no time limit holds.
_MAX_COPIED: Final = 2**18


class MatchTimedOut(HookError):
    """A regular expression exceeded its time limit; the caller treats that as a failure of the hook."""

    def __init__(self, spec: str, limit: float) -> None:
        self.spec = spec
        self.limit = limit
        super().__init__(f"matcher {spec!r} gave no answer within {limit * 1000:g} ms; simplify the pattern")


class Matcher(msgspec.Struct, frozen=True, eq=False):
    """A test of tool names. `spec` is its spelling; two matchers of one spelling are equal."""

    spec: str
    _test: Callable[[str], bool]

    def __eq__(self, other: object) -> bool:
        return self.spec == other.spec if isinstance(other, Matcher) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.spec)

    def __repr__(self) -> str:
        return f"Matcher({self.spec!r})"

    def matches(self, tool_name: str) -> bool:
        """Return True if the hook is for this tool. Raises `MatchTimedOut`."""
        return self._test(tool_name)


ANY: Final = Matcher("*", lambda _name: True)


def compile_matcher(spec: str | Iterable[str] | re.Pattern[str] | None) -> Matcher:
    """Return the matcher for one of the spellings in the module's table. Raises `InvalidRegistration`."""
    if spec is None or spec == "*":
        return ANY
    if isinstance(spec, re.Pattern):
        return _from_regex(f"re:{spec.pattern!s}", spec.pattern, spec.flags)
    if isinstance(spec, str):
        return _from_regex(spec, spec[3:]) if spec.startswith("re:") else _from_names(spec)
    try:
        names = "|".join(spec)
    except TypeError:
        raise InvalidRegistration(f"matcher {spec!r} is not text, a list of text, a compiled pattern or None") from None
    return _from_names(names)


_PART: Final = r"(?:[\w.:/@*?-]|\[!?[\w.:/@ -]+\])+"
_NAMES: Final = rf"{_PART}(?:\|{_PART})*"
_MISTAKES: Final = (  # the first that is found is named, so the more telling ones come first
    (
        r"[\^$(){}+\\]|\.[*?]",
        "looks like a regular expression; write {as_regex!r} to mean one, 'Write*' for a glob, '[.]*' after a dot",
    ),
    (r",", "has a comma; separate names by '|', as in 'Write|Edit'"),
    (r"\A\Z|\A\||\|\Z|\|\|", "has an empty name in it; remove that, or write '*' for every tool"),
    (r"(?<!\[)\s(?!\])", "has a space; names are listed as 'Write|Edit', and one with a space is 'My[ ]tool'"),
    (r"(?:\A|\|)re:", "has a regular expression in a list; write one regular expression for all of it"),
)


def _from_names(spec: str) -> Matcher:
    for mistake, advice in _MISTAKES:
        if re.search(mistake, spec):
            raise InvalidRegistration(f"matcher {spec!r} {advice.format(as_regex='re:' + spec)}")
    parts = spec.split("|")
    if not re.fullmatch(_NAMES, spec):
        raise InvalidRegistration(f"matcher {spec!r} is no tool name, list or glob; write {'re:' + spec!r} for a regex")
    if max(map(len, parts)) > MAX_PATTERN_LENGTH:
        raise InvalidRegistration(f"matcher {spec[:40]!r}… has a name of more than {MAX_PATTERN_LENGTH} characters")
    names = frozenset(part for part in parts if not set(part) & set("*?["))
    globs = [compile_glob(part) for part in parts if part not in names]
    if not globs:
        return Matcher(spec, names.__contains__)
    return Matcher(spec, lambda name: name in names or any(glob.matches(name) for glob in globs))


_IN_A_PATH: Final = r"(?P<below>/\*\*(?=/|\Z))|(?P<whole>(?<=/)\*+(?=/|\Z))|(?P<slash>/)|"


@cache
def glob_parts(*, path: bool) -> re.Pattern[str]:
    """Return the expression that finds the parts of a glob; the name of a group says which part it is."""
    first, outside = (_IN_A_PATH, "/") if path else ("", "")  # brackets in a path end within their name
    return re.compile(
        rf"{first}(?P<star>\*+)|(?P<one>\?)"
        rf"|\[(?P<no>[!^]?)(?P<set>\]?(?:\[:\w+:\]|[^\]{outside}])*)\]|\\?(?P<text>.)",
        re.DOTALL,
    )


_IN_A_SET: Final = r"(\[:\w+:\])|([\\\[\]])"
_NAME_GLOB: Final = {"star": ".*?", "one": ".", "set": ""}
_PATH_GLOB: Final = {
    "below": "(?:/.*)?", "whole": "[^/]+", "slash": "/+", "star": "[^/]*?", "one": "[^/]", "set": "(?!/)"
}  # fmt: skip


def translate_glob(glob: str, *, path: bool = False) -> str:
    """Return the expression for a glob over a whole text. A range that is turned around makes it invalid.

    A backslash outside of brackets quotes the next character. With `path`, a slash is matched by a slash and by `/**`,
    which matches a folder with everything below it.
    """
    table = _PATH_GLOB if path else _NAME_GLOB
    translated: list[str] = []
    star = None  # the place of the last star in this name
    for part in glob_parts(path=path).finditer(glob):
        kind = str(part.lastgroup)
        if kind == "star" and star is not None:  # the first match up to the next star is as good as any: no way back
            translated[star] = f"(?>{translated[star]}"
            translated.append(")")
        if kind in ("star", "below", "slash"):
            star = len(translated) if kind == "star" else None
        translated.append(table[kind] if kind in table else re.escape(part["text"]))
        if kind == "set":
            members = re.sub(_IN_A_SET, lambda found: found[1] or f"\\{found[2]}", part["set"])
            translated.append(f"[{'^' * bool(part['no'])}{members}]")
    return f"(?s:{''.join(translated)})"


@lru_cache(maxsize=1_024)
def compile_path_glob(glob: str) -> regex.Pattern[str]:
    """Return the expression for a glob over a whole path. Raises `InvalidRegistration` if nothing matches it."""
    import regex

    try:
        return regex.compile(translate_glob(glob, path=True))
    except regex.error:
        raise InvalidRegistration(f"matcher {glob!r} can never match; turn the range in its brackets around") from None


def compile_glob(glob: str) -> Matcher:
    """Return the matcher for one glob over the whole text. Raises `InvalidRegistration`."""
    if len(glob) > MAX_PATTERN_LENGTH:
        raise InvalidRegistration(f"matcher {glob[:40]!r}… has more than {MAX_PATTERN_LENGTH} characters; shorten it")
    try:
        return Matcher(glob, _regex_test(glob, translate_glob(glob), 0))  # stars backtrack: same engine, same limit
    except InvalidRegistration:
        raise InvalidRegistration(f"matcher {glob!r} can never match; turn the range in its brackets around") from None


def _from_regex(spec: str, pattern: str | bytes, flags: int = 0) -> Matcher:
    if not isinstance(pattern, str) or not pattern or pattern != pattern.strip():
        raise InvalidRegistration(f"matcher {spec!r} needs a pattern of text after 're:', with no spaces around it")
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise InvalidRegistration(f"matcher {spec[:40]!r}… is longer than {MAX_PATTERN_LENGTH} characters; shorten it")
    repeats = 2 ** pattern.count("+") * math.prod(int(n) or 1 for n in re.findall(r"\{\s*(\d+)", pattern))
    if len(pattern) * repeats > _MAX_COPIED:
        raise InvalidRegistration(f"matcher {spec!r} repeats too much; use '*' for '+', and smaller counts in braces")
    return Matcher(spec, _regex_test(spec, pattern, flags))


def _regex_test(spec: str, pattern: str, flags: int) -> Callable[[str], bool]:
    import regex  # most registries have no pattern

    # By name: re.ASCII has the number of another flag there.
    known = ("ASCII", "IGNORECASE", "MULTILINE", "DOTALL", "VERBOSE")
    translated = sum(getattr(regex, name) for name in known if flags & getattr(re, name))
    try:
        compiled = regex.compile(pattern, translated)
    except (regex.error, OverflowError, RecursionError, ValueError) as problem:
        raise InvalidRegistration(f"matcher {spec!r} is not a regular expression: {problem}") from None

    def test(name: str) -> bool:
        try:
            return compiled.fullmatch(name, timeout=_TIME_LIMIT) is not None
        except TimeoutError:
            raise MatchTimedOut(spec, _TIME_LIMIT) from None

    return test


SURROGATES: Final = dict.fromkeys(range(55296, 57344), "�")
"""Table for `str.translate` that replaces lone surrogates, which linear expressions cannot read, at equal length."""


def compile_linear(pattern: str) -> Callable[[str], bool]:
    """Return a function that is True for texts in which the pattern matches. It is False for lone surrogates.

    Raises `pydantic_core.SchemaError` for an invalid pattern.
    """
    from pydantic_core import SchemaValidator, core_schema  # its expressions are Rust's

    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")).isinstance_python


def escape_literal(text: str) -> str:
    """Return the expression for exactly this text."""
    return "".join(f"\\x{{{ord(character):X}}}" for character in text)


def is_text(value: str) -> bool:
    """Return True if a text can be written as UTF-8, because it has no lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
