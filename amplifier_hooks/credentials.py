r"""What secrets look like, and where they are in a text: for the record, which keeps them out, and for hooks that do.

Three things give a secret away: the name it stands under (`password`, `Authorization`, `API_KEY`), its shape (`ghp_…`,
`AKIA…`, `Bearer …`, `password=…`, a private key, the password in a URL), and being one that is known (the values of
the environment's secret names). It is a net for what everybody's secrets look like, and no wall: what has no shape and
is not known is not found.

Time is linear in the text, whatever the text is. One expression for all shapes says whether there is a secret, which
is quick and the usual end of it. If there is, the same question goes to shorter and shorter pieces, and only in the
shortest a second expression looks for where; it never goes back over what it has read. Then the first is asked once
more about what is left: where the two disagree, all of that piece counts as a secret.
"""

from __future__ import annotations

import os
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from amplifier_hooks.linear import SURROGATES, is_text, linear, literally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["SHORTEST", "Secrets", "Span", "is_secret_name"]

SHORTEST: Final = 8
"""Characters of a known secret at least: shorter ones stand in too many texts by accident."""

MOST_KNOWN: Final = 256

PIECES: Final = (16_384, 1_024, 64)
"""Characters of the pieces that are asked for secrets, one within the other, before anybody looks for where it is."""

WORD: Final = r"[A-Za-z0-9_\-]"
VALUE: Final = r"[A-Za-z0-9._~+/=\-]"
ANYTHING: Final = r"[A-Za-z0-9._~+/=!@\#$%^&*\-]"
CALLED: Final = (
    r"(?:passw(?:or)?d|passphrase|secret|token|api[_\-]?key|access[_\-]?key|private[_\-]?key|credentials?)"
    rf"{WORD}"
)
ASSIGNED: Final = r"""["']?\s?[:=]\s?["']?"""

ISSUED: Final = (
    r"\b(?:gh[pousr]_|github_pat_|glpat-|npm_|hf_|pypi-|dop_v1_|shpat_|whsec_|sk-|[rs]k_live_|[rs]k_test_"
    rf"|xox[abeoprs]-|xapp-|AIza|ya29\.|SG\.){WORD}"
)


class Shape(NamedTuple):
    """One kind of secret.

    `least` is enough of it to know. `whole` is all of it, with what comes before the secret itself in `lead`; it takes
    possessively, so that it reads nothing twice. `skip` is what is passed over when `whole` was not there after all.
    """

    kind: str
    least: str
    whole: str
    lead: str = ""
    skip: str = ""


SHAPES: Final = (
    Shape("token", rf"{ISSUED}{{12}}", rf"{ISSUED}{{12,}}+"),
    Shape("access key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}", r"\b(?:AKIA|ASIA)[A-Z0-9]{16,}+"),
    Shape(
        "JSON web token",
        rf"\beyJ{WORD}{{8}}{WORD}*\.{WORD}{{8}}",
        rf"\beyJ{WORD}{{8,}}+\.{WORD}{{8,}}+(?:\.{WORD}*+)?",
        skip=rf"\beyJ{WORD}*+",
    ),
    Shape(
        "bearer token",
        rf"(?i:bearer\s+{VALUE}{{16}})",
        rf"{VALUE}{{16,}}+",
        lead=r"(?i:bearer\s++)",
    ),
    Shape(
        "authorization",
        rf"(?i:authorization{ASSIGNED}(?:[a-z\-]+\s{VALUE}{{8}}|{VALUE}{{20}}))",
        rf"(?:(?i:[a-z\-]++\s){VALUE}{{8,}}+|{VALUE}{{20,}}+)",
        lead=rf"(?i:authorization){ASSIGNED}",
    ),
    Shape(
        "password",
        rf"(?i:{CALLED}*{ASSIGNED}{ANYTHING}{{6}})",
        rf"{ANYTHING}{{6,}}+",
        lead=rf"(?i:{CALLED}*+){ASSIGNED}",
        skip=rf"(?i:{CALLED}*+)",
    ),
    Shape(
        "password in a URL",
        r"://[!-.0-9;-?A-~]*:[!-.0-?A-~]+@",
        r"[!-.0-?A-~]++(?=@)",
        lead=r"://[!-.0-9;-?A-~]*+:",
    ),
    Shape(
        "private key",
        r"-----BEGIN\x20[A-Z\x20]*PRIVATE\x20KEY",
        r"-----BEGIN\x20[A-Z\x20]*PRIVATE\x20KEY(?s:.*?-----END\x20[A-Z\x20]*PRIVATE\x20KEY-----|.*)",
    ),
)
"""Nothing but a private key is longer than a line."""

OF_LINES: Final = "PRIVATE KEY"

_LEAST: Final = "(?-u)(?:" + "|".join(shape.least for shape in SHAPES) + ")"
_WHOLE: Final = "|".join(
    [
        *(f"(?P<l{number}>{shape.lead})(?P<s{number}>{shape.whole})" for number, shape in enumerate(SHAPES)),
        *(shape.skip for shape in SHAPES if shape.skip),
    ]
)

_WORDS: Final = frozenset((
    "accesskey", "apikey", "apikeys", "authorization", "cookie", "cookies", "credential", "credentials", "passphrase",
    "passwd", "password", "passwords", "privatekey", "pwd", "secret", "secrets", "token",
))  # fmt: skip
_PAIRS: Final = frozenset(("api key", "api keys", "access key", "private key", "signing key", "encryption key"))
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BLANK: Final = re.compile(r"\s")
_LONGEST_NAME: Final = 128


def is_secret_name(name: str) -> bool:
    """Whether what stands under this name is taken for a secret: `API_KEY`, `apiKey`, `x-api-key`, `userPassword`."""
    words = re.split(r"[^a-z0-9]+", _HUMP.sub(" ", name[-_LONGEST_NAME:]).lower())
    return not _WORDS.isdisjoint(words) or any(f"{one} {two}" in _PAIRS for one, two in pairwise(words))


class Span(NamedTuple):
    """Where a secret is in a text, and what kind it is."""

    start: int
    end: int
    kind: str


class Secrets:
    """Finds secrets in texts.

    Args:
        known: Secrets by their value; those shorter than `SHORTEST` are passed over.
        environment: Where to look for more of them, by their names; that of the process if it is not given.
    """

    def __init__(self, *, known: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        values = {*known, *(value for name, value in environment.items() if is_secret_name(name))}
        longest = sorted(
            (value for value in values if len(value) >= SHORTEST and is_text(value)), key=len, reverse=True
        )
        self._known = longest[:MOST_KNOWN]
        self._where: re.Pattern[str] | None = None
        self.suspects: Callable[[str], bool] = linear("|".join([_LEAST, *map(literally, self._known)]))
        """Whether a text has a secret in it. The text must have no lone surrogates."""

    def spans(self, text: str) -> list[Span]:
        """Where its secrets are, in order, none over another. Where that cannot be told, it is a whole piece of it."""
        if not is_text(text):
            text = text.translate(SURROGATES)
        return self._search(text, 0, PIECES)

    def _search(self, text: str, start: int, sizes: tuple[int, ...]) -> list[Span]:
        """Where they are in a piece that begins at `start`; here, where no smaller piece has them for itself."""
        if not self.suspects(text):
            return []
        if sizes and OF_LINES not in text:
            found: list[Span] = []
            for begin, end in _pieces(text, sizes[0]):
                found += self._search(text[begin:end], start + begin, sizes[1:])
            if found and not self.suspects(_without(text, found, start)):
                return found
        return self._located(text, start)

    def _located(self, text: str, start: int) -> list[Span]:
        if self._where is None:
            self._where = re.compile(_WHOLE, re.ASCII)
        found = [*self._known_in(text, start)]
        for match in self._where.finditer(text):
            if match.lastgroup is not None:
                kind = SHAPES[int(match.lastgroup[1:])].kind
                found.append(Span(start + match.start(match.lastgroup), start + match.end(), kind))
        spans = _merged(found)
        whole = not spans or self.suspects(_without(text, spans, start))
        return [Span(start, start + len(text), "secret")] if whole else spans

    def _known_in(self, piece: str, start: int) -> Iterator[Span]:
        for value in self._known:
            place = piece.find(value)
            while place >= 0:
                yield Span(start + place, start + place + len(value), "known secret")
                place = piece.find(value, place + len(value))


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.start < merged[-1].end:
            last = merged.pop()
            span = Span(last.start, max(last.end, span.end), last.kind)  # noqa: PLW2901  # the two as one
        merged.append(span)
    return merged


def _without(text: str, spans: list[Span], start: int) -> str:
    """A text that begins at `start`, with a blank in the place of every secret."""
    parts, place = [], 0
    for span in spans:
        parts.append(text[place : span.start - start])
        place = span.end - start
    return " ".join([*parts, text[place:]])


def _pieces(text: str, size: int) -> Iterator[tuple[int, int]]:
    """A text in pieces of about this size, that begin after a new line where there is one, or after a blank."""
    begin, last = 0, len(text)
    while begin < last:
        aim = begin + size
        end = text.find("\n", aim, aim + size) + 1
        if not end and aim < last:
            blank = _BLANK.search(text, aim)
            end = 0 if blank is None else blank.end()
        yield begin, end or last
        begin = end or last
