"""A text comes in; the positions of the secrets in it go out, for the record and for hooks that hide secrets.

Three things give a secret away: its name (`password`, `Authorization`, `API_KEY`), its shape (`SHAPES`), and its value,
if it is known (the values of the environment's secret names), as it is or encoded. This is a net for secrets of usual
shapes, and no wall: it misses an unknown secret without a shape.

The search takes time that is linear in the text, whatever the text is. One quick expression for all shapes tells that a
text has no secret, which is the usual case. Otherwise the search repeats that test on shorter pieces, and with each
shape by itself. Only in a short piece does it look for the exact position, with an expression that reads nothing twice.
At the end the first expression tests the text without the found secrets: if it still suspects one, it tests each piece,
and a piece that it suspects counts as a secret as a whole.

Each shape has one row with two expressions: `least` detects a secret, and `whole` finds all of it. An engine that takes
linear time for any pattern and cannot look around runs `least`. Python's engine, which can look around, runs `whole`.
`whole` reads nothing twice: it skips a mere beginning of a secret. It starts with a letter or a set of letters, because
Python then skips quickly to a candidate; therefore every name of a password has a row of its own.
"""

from __future__ import annotations

import html
import json
import os
import re
import unicodedata
from base64 import b64encode
from functools import cached_property
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, quote_plus

from amplifier_hooks.text.matching import SURROGATES, compile_linear, escape_literal, is_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


CODE: Final = "code"
"""Name of the group of `whole` that looks like a secret and is none."""


class SecretShape(NamedTuple):
    """One kind of secret. A group without a name in `whole` is the secret; a match without groups is ignored."""

    kind: str
    least: str
    whole: str


def _any_case(text: str) -> str:
    """Return an expression for these letters in either case; a flag would make Python's search slow."""
    return "".join(f"[{one.upper()}{one.lower()}]" if one.isalpha() else re.escape(one) for one in text)


WORD: Final = r"[A-Za-z0-9_\-]"
VALUE: Final = r"[A-Za-z0-9._~+/=\-]"
ANYTHING: Final = r"[A-Za-z0-9._~+/=!@\#$%^&*\-]"
IN_QUOTES: Final = r"[A-Za-z0-9._~+/=!@\#$%^&*()\[\]?,;:|\-]"
"""Characters of a password that quotes enclose; a blank still ends it."""
CRUMB: Final = r"[!\#-&(-:<-~]"
"""Characters in the value of a cookie."""

QUOTE: Final = r"""(?:["']|\\{1,7}["']|%22)"""
"""A quote, also in the spelling of JSON within JSON, and of an address."""
BLANKS: Final = r"(?:[\x20\t]+|\s)?"
SIGN: Final = r"(?::=|[:=]>?|%3[AaDd])"
BESIDE: Final = rf",?\s+{QUOTE}?[Vv]alue{QUOTE}?"
"""Text between a name and its value, as in `name: DB_PASSWORD, value: …`."""
ASSIGNED: Final = rf"(?:{SIGN}|(?:{QUOTE}?{BESIDE}|{QUOTE})?{BLANKS}{SIGN}{BLANKS})"
"""Text between a name and its value. The usual case stands first, because it takes nearly all the time."""

CALL: Final = r"\$?[A-Za-z_][A-Za-z0-9_.]*+[(\[]"
MEMBER: Final = (
    r"(?:self|this|cls|req|res|request|response|config|settings|args|options|props|params|env|process|os|ctx|context"
    r"|kwargs|session|state|event|payload)\.[A-Za-z_.]++"
)
VARIABLE: Final = r"\$[A-Z_][A-Z0-9_]*+"
TYPE: Final = r"(?:[Ss]tring|SecretStr|Optional|undefined|boolean|number|required|optional|hidden|\*{6,}+)"
"""Types, attributes of form fields, and a mask."""

NAMES: Final = (
    _any_case("passw") + f"(?:{_any_case('or')})?" + _any_case("d"),
    *map(_any_case, ("secret", "token", "credential")),
    *(f"{_any_case(word)}[_\\-]?{_any_case('key')}" for word in ("api", "access", "private", "account", "signing")),
)
"""Names of passwords; the full name may have more before and after them."""


def _password(name: str, begins: str = "", holds: str = IN_QUOTES) -> SecretShape:
    """Return the shape of a value that is assigned to a password's name, or stands between its tags.

    `begins` is an expression for the beginning of the value, and `holds` for its characters within quotes.
    """
    called, bare, quoted = f"{name}{WORD}*", begins + ANYTHING, (begins or ANYTHING) + holds
    code = f"(?P<{CODE}>{CALL}|(?:{MEMBER}|{VARIABLE}|{TYPE}|{QUOTE}(?:{VARIABLE}|{TYPE}))(?!{ANYTHING}))"
    return SecretShape(
        "password",
        f"{called}(?:{ASSIGNED}(?:{bare}{{6}}|{QUOTE}{quoted}{{5}})|>{quoted}{{5}}{holds}*</)",
        f"{called}+(?:{ASSIGNED}(?:{code}|({bare}{{6,}}+)|{QUOTE}({quoted}{{5,}}+))|>({quoted}{{5,}}+)(?=</))?",
    )


ISSUERS: Final = (
    "gh[pousr]_", "github_pat_", "glpat-", "npm_", "hf_", "pypi-", "dop_v1_", "shpat_", "whsec_", "sk-", "rk_live_",
    "sk_live_", "rk_test_", "sk_test_", "xox[abeoprs]-", "xapp-", "AIza", r"ya29\.", r"SG\.",
)  # fmt: skip
"""Prefixes of tokens, by issuer."""
ISSUED: Final = "|".join(
    f"{letter}(?<=\\b{letter})(?:{'|'.join(one[1:] for one in begun)})"
    for letter, begun in groupby(sorted(ISSUERS), itemgetter(0))
)
"""Expression for `ISSUERS` that tests each first letter once, and the word boundary after it."""

OPTION: Final = rf"--(?:[a-z]+-)*(?:password|passwd|passphrase|secret|token|api-?key|secret-key)\x20{QUOTE}?"
"""Option of a command before its password; `--password=…` is an assignment."""
HEADER: Final = rf"{_any_case('authorization')}{QUOTE}?{BLANKS}(?:{SIGN}|,){BLANKS}{QUOTE}?"
"""Authorization header, also as the first of two items in a list."""
COOKIES: Final = rf"{_any_case('cookie')}{QUOTE}?:\x20?{QUOTE}?"
ENCODED: Final = r"LS0tLS1CRUdJTiB(?:QUklWQVRF|SU0EgUFJJVkFUR|FQyBQUklWQVRF|EU0EgUFJJVkFUR|FTkNSWVBURUQ|PUEVOU1NI)"
"""`-----BEGIN …PRIVATE` and similar beginnings, in base64."""
BEGIN: Final = r"-----BEGIN\x20[A-Z\x20]*PRIVATE\x20KEY"
END: Final = r"-----END\x20[A-Z\x20]*PRIVATE\x20KEY(?:\x20BLOCK)?-----"

PRIVATE_KEY: Final = SecretShape("private key", BEGIN, rf"({BEGIN}(?s:.*?{END}|.*))")
"""Shape of a private key, the only shape that is longer than a line."""

SHAPES: Final = (
    SecretShape("token", rf"\b(?:{'|'.join(ISSUERS)}){WORD}{{12}}", rf"((?:{ISSUED}){WORD}{{12,}}+)"),
    SecretShape("access key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}", r"\b((?:AKIA|ASIA)[A-Z0-9]{16,}+)"),
    SecretShape(
        "JSON web token",
        rf"\beyJ{WORD}{{8}}{WORD}*\.{WORD}{{8}}",
        rf"\b(eyJ{WORD}{{8,}}+\.{WORD}{{8,}}+(?:\.{WORD}*+)?)|\beyJ{WORD}*+",
    ),
    SecretShape(
        "bearer token",
        rf"{_any_case('bearer')}\s+{VALUE}{{16}}",
        rf"{_any_case('bearer')}\s++({VALUE}{{16,}}+)",
    ),
    SecretShape(
        "authorization",
        rf"{HEADER}(?:[A-Za-z\-]+\s{VALUE}{{8}}|{VALUE}{{20}})",
        rf"{HEADER}([A-Za-z\-]++\s{VALUE}{{8,}}+|{VALUE}{{20,}}+)",
    ),
    *map(_password, NAMES),
    _password(_any_case("passphrase"), holds=IN_QUOTES.replace("[", r"[\x20", 1)),
    _password(_any_case("pwd"), r"[A-Za-z0-9_+=!@\#$%^&*]"),
    SecretShape("password", rf"{OPTION}[A-Za-z0-9]{ANYTHING}{{5}}", rf"{OPTION}([A-Za-z0-9]{ANYTHING}{{5,}}+)"),
    SecretShape("cookie", rf"{COOKIES}{WORD}+={CRUMB}{{8}}", rf"{COOKIES}((?:{WORD}++={CRUMB}++(?:;\x20)?)++)"),
    SecretShape(
        "password in a URL",
        r"://[!-.0-9;-?A-~]*:[!-.0-?A-~]+@",
        r"://[!-.0-9;-?A-~]*+:([!-.0-?A-~]++)(?=@)",
    ),
    SecretShape("password in a URL", r"://[A-Za-z0-9_\-]{20}[A-Za-z0-9_\-]*@", r"://([A-Za-z0-9_\-]{20,}+)(?=@)"),
    SecretShape("private key", ENCODED, rf"({ENCODED}[A-Za-z0-9+/=]*+)"),
)


SHORTEST: Final = 8
"""Fewest characters of a known secret: shorter values occur in too many texts by accident."""

MOST_KNOWN: Final = 256

LONGEST_ENCODED: Final = 4_096
"""Most characters of a known secret that is found in encoded forms, too."""

LONGEST_PATTERN: Final = 300_000
"""Characters of one expression. The engine searches many times slower for a larger one."""

PIECES: Final = (16_384, 1_024)
"""Characters of the nested pieces that are tested for secrets before the search for exact positions."""

_WORDS: Final = frozenset((
    "accesskey", "apikey", "apikeys", "authorization", "cookie", "cookies", "credential", "credentials", "passphrase",
    "passwd", "password", "passwords", "privatekey", "pwd", "secret", "secrets", "token",
))  # fmt: skip
_PAIRS: Final = frozenset(("api key", "api keys", "access key", "private key", "signing key", "encryption key"))
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_URL_ALPHABET: Final = str.maketrans("+/", "-_")
_PERCENT: Final = re.compile("%..")
GONE: Final = "\0"
"""Replacement of a found secret while the rest is tested. No shape contains it."""

_BLANK: Final = re.compile(r"\s")
_LONGEST_NAME: Final = 128
_LOOKALIKES: Final = str.maketrans("аеорсѕіԁһкмтуɑοενԝАВЕКМОРСТІЅ", "aeopcsidhkmtyaoevwABEKMOPCTIS")

_NO_SECRET: Final = frozenset(("PWD", "OLDPWD"))
"""Variables of the environment whose names look like those of secrets."""


def is_secret_name(name: str) -> bool:
    """Return True if this name marks its value as a secret: `API_KEY`, `apiKey`, `x-api-key`, `userPassword`.

    Letters that look like Latin ones count as those, and invisible characters do not count.
    """
    name = name[-_LONGEST_NAME:]
    if not name.isascii():
        seen = (one for one in unicodedata.normalize("NFKC", name) if unicodedata.category(one) != "Cf")
        name = "".join(seen).translate(_LOOKALIKES)
    words = re.split(r"[^a-z0-9]+", _HUMP.sub(" ", name).lower())
    return not _WORDS.isdisjoint(words) or any(f"{one} {two}" in _PAIRS for one, two in pairwise(words))


def names_a_secret(members: Mapping[Any, Any]) -> bool:
    """Return True if the `name` or `key` makes the `value` a secret: `{"name": "DB_PASSWORD", "value": "…"}`."""
    return "value" in members and any(
        isinstance(name := members.get(called), str) and is_secret_name(name) for called in ("name", "key")
    )


def _environment_secrets(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of an environment's secret names, except paths of existing files."""
    for name, value in environment.items():
        if is_secret_name(name) and name not in _NO_SECRET:
            try:
                is_path = value.startswith(("/", "~")) and os.path.exists(os.path.expanduser(value))  # noqa: PTH110, PTH111  # text
            except (OSError, ValueError):
                is_path = False
            if not is_path:
                yield value


def _any_of(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return a test for any of these patterns: one expression, or several where one would be too long."""
    groups: list[list[str]] = [[]]
    size = 0
    for pattern in patterns:
        size += len(pattern)
        if size > LONGEST_PATTERN and groups[-1]:
            groups.append([])
            size = len(pattern)
        groups[-1].append(pattern)
    tests = [compile_linear("|".join(group)) for group in groups]
    return tests[0] if len(tests) == 1 else lambda text: any(test(text) for test in tests)


Span = tuple[int, int, str]
"""Start, end and kind of a secret in a text. A plain tuple, because there may be very many."""


def replace_spans(text: str, spans: Iterable[Span], marks: Iterable[str]) -> str:
    """Return the text with these marks in the places of these spans."""
    pieces: list[str] = []
    place = 0
    for (start, end, _), mark in zip(spans, marks, strict=True):
        pieces += text[place:start], mark
        place = end
    return "".join([*pieces, text[place:]])


class _Finder:
    """One shape, with a test for it (`suspects`) and a search (`spans`)."""

    def __init__(self, shape: SecretShape) -> None:
        self.kind = shape.kind
        self.suspects = compile_linear(f"(?-u)(?:{shape.least})")
        self._whole = shape.whole

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self._whole, re.ASCII)

    def spans(self, text: str, begin: int, end: int) -> list[Span]:
        """Return the spans of this shape between `begin` and `end`, in order."""
        kind, found = self.kind, self._pattern.finditer(text, begin, end)
        if CODE not in self._pattern.groupindex:
            return [(*match.span(match.lastindex), kind) for match in found if match.lastindex]
        return [
            (*match.span(match.lastindex), kind if match.lastgroup is None else CODE)
            for match in found
            if match.lastindex
        ]


def encoded_forms(value: str) -> set[str]:
    """Return the spellings in which this value occurs in texts: itself, in base64, hex, URLs, JSON, Python and HTML.

    The base64 forms are the characters that depend on the value alone, for each of its three alignments.
    """
    data = value.encode()
    forms = {value, data.hex(), data.hex().upper(), repr(value)[1:-1]}
    for shift in range(3):
        whole = b64encode(bytes(shift) + data).decode()
        inner = whole[-(-8 * shift // 6) : 8 * (shift + len(data)) // 6]
        forms |= {inner, inner.translate(_URL_ALPHABET)}
    for quoted in (quote(value, safe=""), quote(value), quote_plus(value)):
        forms |= {quoted, _PERCENT.sub(lambda code: code[0].lower(), quoted)}
    for spelled in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        forms |= {spelled, spelled.replace("/", "\\/"), json.dumps(spelled)[1:-1]}
    tags = html.escape(value, quote=False)
    forms |= {tags, html.escape(value), tags.replace('"', "&#34;").replace("'", "&#39;")}
    return forms


class _KnownSecret:
    """A secret with a known value, in all its forms."""

    def __init__(self, value: str) -> None:
        self.forms = encoded_forms(value) if len(value) <= LONGEST_ENCODED else {value}

    @cached_property
    def suspects(self) -> Callable[[str], bool]:
        """Return True if a text has a form of the secret in it."""
        return compile_linear("|".join(map(escape_literal, self.forms)))

    def spans(self, text: str, begin: int, end: int) -> list[Span]:
        """Return the spans of the secret between `begin` and `end`, in order."""
        found: list[Span] = []
        for form in self.forms:
            place = text.find(form, begin, end)
            while place >= 0:
                after = place + len(form)
                found.append((place, after, "known secret"))
                place = text.find(form, after, end)
        return _merge_spans(found)


class Secrets:
    """A finder of secrets in texts.

    Args:
        known: Secrets by their value; values shorter than `SHORTEST` are ignored.
        environment: An environment with more secrets, found by their names. The default is that of the process.
    """

    def __init__(self, *, secrets: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> None:
        values = {*secrets, *_environment_secrets(os.environ if environment is None else environment)}
        longest = sorted(
            (value for value in values if len(value) >= SHORTEST and is_text(value)), key=len, reverse=True
        )[:MOST_KNOWN]
        known_secrets = [_KnownSecret(value) for value in longest]
        least = "|".join(shape.least for shape in (*SHAPES, PRIVATE_KEY))
        self._keys = _Finder(PRIVATE_KEY)
        self._finders: Finders = (*map(_Finder, SHAPES), *known_secrets)
        forms = {form for secret in known_secrets for form in secret.forms}
        self.suspects: Callable[[str], bool] = _any_of([f"(?-u)(?:{least})", *map(escape_literal, sorted(forms))])
        """Return True if a text may have a secret in it, and False if it has none.

        The text must have no lone surrogates.
        """

    def spans(self, text: str) -> list[Span]:
        """Return the spans of a text's secrets, in order and disjoint; a whole piece where a position is unclear."""
        if not is_text(text):
            text = text.translate(SURROGATES)
        if not self.suspects(text):
            return []
        search = _SecretSearch(self.suspects, text)
        found: list[Span] = []
        place = 0
        for key in self._keys.spans(text, 0, len(text)) if self._keys.suspects(text) else ():
            found += search.between(place, key[0], self._finders)
            found.append(key)
            place = key[1]
        found += search.between(place, len(text), self._finders)
        return [span for span in found if span[2] != CODE]


Finders = tuple[_Finder | _KnownSecret, ...]


class _SecretSearch(NamedTuple):
    """The search in one text."""

    suspects: Callable[[str], bool]
    text: str

    def between(self, begin: int, end: int, finders: Finders) -> list[Span]:
        """Return the spans of secrets and of code between `begin` and `end`.

        The first search tests the text without the spans once, as a whole. Only if that still has a secret, a second
        search tests it piece by piece.
        """
        found, rest = self._walk(begin, end, PIECES, finders, careful=False)
        return self._walk(begin, end, PIECES, finders, careful=True)[0] if self.suspects(rest) else found

    def _walk(
        self, begin: int, end: int, sizes: tuple[int, ...], finders: Finders, *, careful: bool
    ) -> tuple[list[Span], str]:
        """Return the spans between `begin` and `end`, and the text without them.

        Searches shorter pieces; if `careful`, unless a secret crosses their borders.
        """
        piece = self.text[begin:end]
        if not self.suspects(piece):
            return [], piece
        if len(sizes) < len(PIECES):
            finders = tuple(finder for finder in finders if finder.suspects(piece))
        pieces = list(_pieces(self.text, begin, end, sizes[0])) if sizes else []
        if len(pieces) > 1:
            inner = [self._walk(*each, sizes[1:], finders, careful=careful) for each in pieces]
            rest = "".join(left for _, left in inner)
            if not (careful and self.suspects(rest)):
                return list(chain.from_iterable(spans for spans, _ in inner)), rest
        found = [span for finder in finders for span in finder.spans(self.text, begin, end)]
        if len(finders) > 1:
            found = _merge_spans(found)
        rest = self._blank_spans(begin, end, found)
        return ([(begin, end, "secret")], GONE) if careful and self.suspects(rest) else (found, rest)

    def _blank_spans(self, begin: int, end: int, spans: list[Span]) -> str:
        """Return the text between `begin` and `end`, with `GONE` in the place of each span."""
        parts, text = [], self.text
        for first, last, _ in spans:
            parts.append(text[begin:first])
            begin = last
        parts.append(text[begin:end])
        return GONE.join(parts)


def _merge_spans(spans: list[Span]) -> list[Span]:
    """Return the spans in order, with overlapping ones merged: of the first kind, and code only if all of them are."""
    merged: list[Span] = []
    for span in sorted(spans, key=itemgetter(0)):
        if merged and span[0] < merged[-1][1]:
            start, end, kind = merged.pop()
            span = start, max(end, span[1]), span[2] if kind == CODE else kind  # noqa: PLW2901  # the two as one
        merged.append(span)
    return merged


def _pieces(text: str, begin: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield pieces of about this size between `begin` and `last`, each of which begins after a newline or a blank."""
    while begin < last:
        aim = begin + size
        end = text.find("\n", aim, min(aim + size, last)) + 1
        if not end and aim < last:
            blank = _BLANK.search(text, aim, last)
            end = 0 if blank is None else blank.end()
        yield begin, end or last
        begin = end or last
