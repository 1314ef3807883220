"""Code inside a command comes in (`python -c`, `awk '…'`, SQL); the impacts that its names show go out.

Nothing is parsed: the reader looks for names that a table holds, and at the texts between quotes. Code that hides its
names (`getattr`, `eval`) counts as unread.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from attrs import frozen

from amplifier_hooks.impact.places import UNKNOWN, Places, is_secret_name, show, url_impact
from amplifier_hooks.impact.shell_words import decode_escapes
from amplifier_hooks.impact.tables import load_table
from amplifier_hooks.impacts import Impact
from amplifier_hooks.text.matching import SURROGATES, compile_linear, is_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from amplifier_hooks.impacts import ImpactKind

LONGEST: Final = 32_768
"""Most characters of code that are read."""
LITERAL: Final = re.compile(
    r"\"\"\"(.*?)\"\"\"|'''(.*?)'''|\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`|%[qQwW]?[\[({](.*?)[\])}]",
    re.DOTALL,
)
LOOSER: Final = ((re.compile(r"^\(\?<!.*?\)|\(\?[!=].*"), ""), (re.compile(r"\{0,\d+\}"), "*"))
"""Parts of an expression, with their places in a quick test: a look back, a look ahead with the rest behind it, and a
limit of repeats, which would take most of the time to compile."""
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
class _Names:
    """Expressions for names in code. Most code has none of them, which one quick test for all tells."""

    patterns: tuple[str, ...]
    any_case: bool = False

    def search(self, code: str) -> re.Match[str] | None:
        """Return a match of the first expression that has one."""
        if not quick_test(self.patterns, any_case=self.any_case)(code):
            return None
        flags = re.IGNORECASE if self.any_case else 0
        likely = (one for one in self.patterns if quick_test((one,), any_case=self.any_case)(code))
        return next(filter(None, (re.compile(one, flags).search(code) for one in likely)), None)


@cache
def quick_test(patterns: tuple[str, ...], *, any_case: bool) -> Callable[[str], bool]:
    """Return a test that is True for every code in which an expression matches, and for little other code."""
    return compile_linear("(?i)" * any_case + "|".join(map(_loosened, patterns)))


def _loosened(pattern: str) -> str:
    for part, looser in LOOSER:
        pattern = part.sub(looser, pattern)
    return pattern


WRITING: Final = _Names(
    (
        *(
            rf"\b{name}\s*\([^()]{{0,160}}?(?:\([^()]{{0,80}}\)[^()]{{0,80}}?)?[,(]\s*(?:mode\s*=\s*)?"
            r"['\"][rbt]*[wax+][bt+]*['\"]"
            for name in (r"open\w*", "Open", "file")
        ),
        r"\.open\s*\(\s*(?:mode\s*=\s*)?['\"][rbt]*[wax+]",
        r"\bmode\s*=\s*['\"][rbt]*[wax+]",
    )
)
"""Expressions of a call that opens a file to write it."""
OPEN_PRAGMA: Final = re.compile(r"=\s*open\b(?!\s*\()")


@frozen
class _CodeRow:
    kind: ImpactKind
    reason: str
    names: _Names
    text: bool
    unguards: bool


@cache
def _code_rows(language: str) -> tuple[_CodeRow, ...]:
    """Return the rows for a language."""
    return tuple(
        _CodeRow(
            entry["kind"],
            entry["reason"],
            _Names(tuple(entry["patterns"]), entry.get("any_case", False)),
            entry.get("literals", False),
            entry.get("unguards", False),
        )
        for entry in load_table("inline_code")["code"]
        if "languages" not in entry or language in entry["languages"].split()
    )


def read_code(code: str, language: str, places: Places, folder: str) -> Iterator[Impact]:
    """Yield the impacts that code in a command shows. A part that only a run can tell makes it unread."""
    if language not in ONE_LINERS:
        yield Impact("inline_code", language)
    if UNKNOWN in code or len(code) > LONGEST:
        yield Impact("runs_unread", language, "only a run tells the code" if UNKNOWN in code else "too long to be read")
        code = code[:LONGEST]
    code = code if is_text(code) else code.translate(SURROGATES)
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
    for row in _code_rows(language):
        match = None if row.kind in found else row.names.search(code if row.text or language == "php" else bare)
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
    return WRITING.search(code) is not None or ("open" in code and OPEN_PRAGMA.search(code) is not None)


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
