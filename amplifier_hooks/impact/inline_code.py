"""Code inside a command comes in (`python -c`, `awk '…'`, SQL); the impacts that its names show go out.

Nothing is parsed: the reader looks for names that a table holds, and at the texts between quotes. Code that hides its
names (`getattr`, `eval`) counts as unread.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from attrs import frozen

from amplifier_hooks.impact.places import UNKNOWN, Places, is_secret_name, show, url_impact
from amplifier_hooks.impact.shell_words import decode_escapes
from amplifier_hooks.impact.tables import load_table
from amplifier_hooks.impacts import Impact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amplifier_hooks.impacts import ImpactKind

LONGEST: Final = 32_768
"""Most characters of code that are read."""
LITERAL: Final = re.compile(
    r"\"\"\"(.*?)\"\"\"|'''(.*?)'''|\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`|%[qQwW]?[\[({](.*?)[\])}]",
    re.DOTALL,
)
HEAD_LENGTH: Final = 3
LETTERS: Final = bytes(sign if chr(sign).isalpha() or sign == ord("_") else ord(" ") for sign in range(128)) * 2
"""Table that makes a blank of every sign of ASCII but letters and underscores."""
NAME_OF_PATTERN: Final = re.compile(
    r"(\\b|\\\.|%|\(\?<!\[\.\\w\]\))?([A-Za-z_]{2,}(?![A-Za-z_]|[?*{])|[A-Za-z_]{2,}(?=[A-Za-z_][?*{]))"
)
ENDS_NAME: Final = re.compile(r"\\b|\\s\+|(?:\\s\*)?(?:\\[.(\[]|::)(?![?*{])")
"""The part of an expression behind a name, if no letter of a match can follow the name."""
NAMES_OF_PATTERN: Final = re.compile(r"\\b\(\?:([\w|]+)\)")
"""The beginning of an expression with several names, each of which counts as an expression of its own."""
GROUPS: Final = re.compile(r"\[[^\]]*\]|\([^()]*(?:\([^()]*\)[^()]*)*\)")
"""Classes and groups of an expression."""
INNER: Final = re.compile(r"(?<![\\A-Za-z_])[A-Za-z_]{3,}(?![A-Za-z_?*{])")
"""A word of an expression, outside its classes and groups, that every match holds."""
PATH: Final = re.compile(r"(?:~|\.{0,2}/|[\w.-]+/|\.)?[\w.@%+/ -]{1,200}")
HOME: Final = re.compile(r"\bhome\b|\bhomedir\b|expanduser|\bHOME\b|Dir\.home")
VARIABLE: Final = re.compile(r"(?:environ\b|getenv|env|ENV)\W{1,6}([A-Za-z_]\w*)")
LONGEST_JOINING: Final = 40
"""Most signs between two texts that a language puts together."""
JOINING: Final = re.compile(r"\s*[+.]?\s*(?:\\\n\s*)?[fFrRbBuU]?")
"""The signs between two texts that a language puts together."""
URL: Final = re.compile(r"(?:https?|wss?|ftp)://[^\s'\"`)]+", re.IGNORECASE)
DATABASE_COMMANDS: Final = tuple(
    r"\copy \i \o \c \s \. \lo \p .o .i .save .b .res .l .read .trace .cl .cd .ar".split()  # noqa: SIM905
)
"""Commands of database programs that read or write files, or leave the database."""
ONE_LINERS: Final = frozenset(("awk", "jq"))
"""Languages that are made for one line: their code matters only for what it does besides its own text."""


@frozen
class _Expression:
    """An expression, and the name that every match of it holds behind `offset` characters (0 or 1); it may be empty."""

    pattern: re.Pattern[str]
    name: str = ""
    offset: int = 0
    word: str = ""
    """The name, if it is a whole word of every match; or an empty text."""
    head: str = ""
    """The first letters of the name, if a word begins with them; or an empty text."""
    any_case: bool = False
    inner: str = ""
    """A text that every match holds somewhere, if no name is known."""

    def search(self, code: str) -> re.Match[str] | None:
        """Return the first match. Most places are ruled out by the name."""
        name, pattern = self.name, self.pattern
        if not name:
            return pattern.search(code) if self.inner in code else None
        written = _lower(code) if self.any_case else code
        if len(written) != len(code):
            return pattern.search(code)
        offset, match_at, find = self.offset, pattern.match, written.find
        place = find(name)
        while place >= 0:
            if match := match_at(code, place and place - offset):
                return match
            place = find(name, place + 1)
        return None


_lower = lru_cache(maxsize=2)(str.lower)


def _expression(pattern: str, *, any_case: bool = False) -> _Expression:
    compiled = re.compile(pattern, re.IGNORECASE if any_case else 0)
    match = NAME_OF_PATTERN.match(pattern)
    alternatives = "|" in GROUPS.sub("", pattern)
    if alternatives:
        return _Expression(compiled)
    if match is None:
        outside = GROUPS.sub(" ", pattern)
        words = [] if any_case else INNER.findall(outside)
        return _Expression(compiled, inner=max(words, key=len, default=""))
    sign, name = match[1], match[2]
    offset = 1 if sign in ("%", "\\.") else 0
    if any_case:
        return _Expression(compiled, name.lower(), offset, any_case=True)
    word = name if sign and ENDS_NAME.match(pattern, match.end()) else ""
    head = name[:HEAD_LENGTH] if sign and not word and len(name) >= HEAD_LENGTH else ""
    return _Expression(compiled, name, offset, word, head)


WRITING: Final = tuple(
    map(
        _expression,
        (
            *(
                rf"\b{name}\s*\([^()]{{0,160}}?(?:\([^()]{{0,80}}\)[^()]{{0,80}}?)?[,(]\s*(?:mode\s*=\s*)?"
                r"['\"][rbt]*[wax+][bt+]*['\"]"
                for name in (r"open\w*", "Open", "file")
            ),
            r"\.open\s*\(\s*(?:mode\s*=\s*)?['\"][rbt]*[wax+]",
            r"\bmode\s*=\s*['\"][rbt]*[wax+]",
        ),
    )
)
"""Expressions of a call that opens a file to write it."""
OPEN_PRAGMA: Final = re.compile(r"=\s*open\b(?!\s*\()")


@frozen
class _CodeRow:
    kind: ImpactKind
    reason: str
    text: bool
    unguards: bool


@frozen
class _CodeTable:
    """The expressions for one language with their rows, and the places of those that need a certain word."""

    expressions: tuple[tuple[_CodeRow, _Expression], ...]
    always: tuple[int, ...]
    words: dict[bytes, list[int]]
    heads: dict[bytes, list[int]]

    def candidates(self, code: str) -> list[tuple[_CodeRow, _Expression]]:
        """Return the expressions that may match code, in the order of the table."""
        words = set(code.encode("ascii", "replace").translate(LETTERS).split())
        heads = {word[:HEAD_LENGTH] for word in words}
        found = [self.words[word] for word in self.words.keys() & words]
        found += [self.heads[head] for head in self.heads.keys() & heads]
        return [self.expressions[place] for place in sorted({*self.always}.union(*found))]


@cache
def _code_tables() -> dict[str, _CodeTable]:
    """Return a table for each language that a row names, and one for all others, whose name is empty."""
    entries = [(entry, entry.get("languages", "").split()) for entry in load_table("inline_code")["code"]]
    tables: dict[str, list[tuple[_CodeRow, _Expression]]] = {
        language: [] for language in ("", *(one for _, languages in entries for one in languages))
    }
    for entry, languages in entries:
        row = _CodeRow(entry["kind"], entry["reason"], entry.get("literals", False), entry.get("unguards", False))
        patterns = [one for pattern in entry["patterns"] for one in _one_name_each(pattern)]
        found = [(row, _expression(pattern, any_case=entry.get("any_case", False))) for pattern in patterns]
        for language in languages or tables:
            tables[language] += found
    return {language: _code_table(expressions) for language, expressions in tables.items()}


def _one_name_each(pattern: str) -> list[str]:
    match = NAMES_OF_PATTERN.match(pattern)
    return [rf"\b{name}{pattern[match.end() :]}" for name in match[1].split("|")] if match else [pattern]


def _code_table(expressions: list[tuple[_CodeRow, _Expression]]) -> _CodeTable:
    always: list[int] = []
    words: dict[bytes, list[int]] = {}
    heads: dict[bytes, list[int]] = {}
    for place, (_, one) in enumerate(expressions):
        if one.word:
            words.setdefault(one.word.encode("ascii"), []).append(place)
        elif one.head:
            heads.setdefault(one.head.encode("ascii"), []).append(place)
        else:
            always.append(place)
    return _CodeTable(tuple(expressions), tuple(always), words, heads)


def read_code(code: str, language: str, places: Places, folder: str) -> Iterator[Impact]:
    """Yield the impacts that code in a command shows. A part that only a run can tell makes it unread."""
    if language not in ONE_LINERS:
        yield Impact("inline_code", language)
    if UNKNOWN in code or len(code) > LONGEST:
        yield Impact("runs_unread", language, "only a run tells the code" if UNKNOWN in code else "too long to be read")
        code = code[:LONGEST]
    texts: list[str] = []
    end, joined = len(code), ""

    def keep(match: re.Match[str]) -> str:
        nonlocal end, joined
        text = match[match.lastindex or 0]
        text = decode_escapes(text) if "\\" in text else text
        texts.append(text.lstrip("<>+| "))
        if 0 <= match.start() - end <= LONGEST_JOINING and JOINING.fullmatch(code, end, match.start()):
            joined += text  # A text that is put together counts as a whole, too.
            texts.append(joined)
        else:
            joined = text
        end = match.end()
        return '""'

    bare = LITERAL.sub(keep, code)
    texts = list(dict.fromkeys(texts))
    found: set[str] = set()
    tables = _code_tables()
    for row, expression in tables.get(language, tables[""]).candidates(code):
        match = None if row.kind in found else expression.search(code if row.text or language == "php" else bare)
        if match is None:
            continue
        found.add(row.kind)
        if row.kind == "network_new":
            urls = [url_impact(url, places.policy) for url in URL.findall(code)]
            yield from urls or [Impact("network_new", match[0].strip(), row.reason)]
        elif row.kind != "writes_tree":
            yield Impact(row.kind, show(match[0].strip()), row.reason, unguards=row.unguards)
    yield from _files(code, texts, places, folder, writes=_writes(code) or "writes_tree" in found)
    if found & {"deletes_many", "writes_tree"}:
        yield from _unguarded(texts, places, folder)


def _unguarded(texts: list[str], places: Places, folder: str) -> Iterator[Impact]:
    """Yield the guarded paths between quotes, in code that may move or delete a folder."""
    for path in [places.absolute(text, folder) for text in texts if PATH.fullmatch(text) and text.strip("./")]:
        if reason := places.unguards(path, whole=True):
            yield Impact("writes_guarded", show(path), reason, unguards=True)


def _writes(code: str) -> bool:
    return any(one.search(code) for one in WRITING) or ("open" in code and OPEN_PRAGMA.search(code) is not None)


def _files(code: str, texts: list[str], places: Places, folder: str, *, writes: bool) -> Iterator[Impact]:
    """Yield the impacts on the paths that stand between quotes; a text that looks like no path stands for none."""
    written: list[Impact] = []
    bases = (
        (folder, places.policy.home)
        if any(name in code for name in ("home", "HOME", "expanduser")) and HOME.search(code)
        else (folder,)
    )
    for text, base in [(text, base) for text in texts if PATH.fullmatch(text) for base in bases]:
        path = places.absolute(text, base)
        if (read := places.reads(path)).kind == "reads_secret":
            yield read
        if writes and ("/" in text or "." in text):
            written += [impact for impact in places.writes(path) if impact.kind != "writes_tree"]
            places.coded.add(path)
    if writes:
        yield from written or [Impact("writes_tree", "", "a function that writes files")]
    for name in VARIABLE.findall(code) if "env" in code or "ENV" in code else ():
        if is_secret_name(name):
            yield Impact("reads_secret", f"${name}", "a variable with a secret's name")


@cache
def _sql_words() -> tuple[frozenset[str], re.Pattern[str]]:
    """Return the words that begin a statement that only reads, and an expression for those that change something."""
    table = load_table("inline_code")["sql"]
    return frozenset(table["reading"]), re.compile(rf"\b({'|'.join(table['changing'])})\b", re.IGNORECASE)


def read_sql(text: str, program: str) -> Iterator[Impact]:
    """Yield the impacts of the statements in a text of SQL, or of commands that a database has besides."""
    reading, changes = _sql_words()
    bare = re.sub(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'", " ", text, flags=re.DOTALL)
    if UNKNOWN in text:
        yield Impact("unreadable", program, "only a run tells the statement")
    bare = re.sub(r"\n\s*(?=[.\\])|\s(?=\\(?:g|w|gexec|o)\b)", ";", bare)
    statements = [one.strip() for one in bare.split(";") if one.strip()]
    for statement in statements:
        word = statement.split(None, 1)[0].lstrip("(").upper()
        if statement.startswith(("\\!", "\\w", "\\g", "\\e", "\\P", "\\set ", "\\setenv", ".sh", ".sy", ".exc")):
            yield Impact("runs_unread", program, "a command of the database program")
        elif statement.startswith(DATABASE_COMMANDS) and not statement.startswith(
            (".indexes", "\\conninfo", "\\sf", "\\sv")
        ):
            yield Impact("service_writes", show(statement[:40]), "a command of the database program")
        elif statement.startswith(("\\", ".")) or (word in reading and not changes.search(statement)):
            yield Impact("service_reads", program)
        else:
            yield Impact("service_writes", program, show(statement[:40]))
