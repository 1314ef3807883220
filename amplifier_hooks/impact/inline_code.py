"""Code inside a command comes in (`python -c`, `awk '…'`, SQL); the impacts that its names show go out.

Nothing is parsed: the reader looks for names that a table holds, and at the texts between quotes. Code that hides its
names (`getattr`, `eval`) counts as unread.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from attrs import frozen

from amplifier_hooks.impact.hosts import url_impact
from amplifier_hooks.impact.places import UNKNOWN, Places, is_secret_name, show
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
NEEDED: Final = re.compile(
    r"(?:\\b|\\\.|%|\(\?<!\[\.\\w\]\))?([A-Za-z_]{2,}(?![A-Za-z_]|[?*{])|[A-Za-z_]{2,}(?=[A-Za-z_][?*{]))"
)
PATH: Final = re.compile(r"(?:~|\.{0,2}/|[\w.-]+/|\.)?[\w.@%+/ -]{1,200}")
HOME: Final = re.compile(r"\bhome\b|\bhomedir\b|expanduser|\bHOME\b|Dir\.home")
VARIABLE: Final = re.compile(r"(?:environ\b|getenv|env|ENV)\W{1,6}([A-Za-z_]\w*)")
URL: Final = re.compile(r"(?:https?|wss?|ftp)://[^\s'\"`)]+", re.IGNORECASE)
DATABASE_COMMANDS: Final = tuple(
    r"\copy \i \o \c \s \. \lo \p .o .i .save .b .res .l .read .trace .cl .cd .ar".split()  # noqa: SIM905
)
"""Commands of database programs that read or write files, or leave the database."""
ONE_LINERS: Final = frozenset(("awk", "jq"))
"""Languages that are made for one line: their code matters only for what it does besides its own text."""
WRITING: Final = re.compile(
    r"""(?:\bopen\w*|\bOpen|\bfile)\s*\([^()]{0,160}?(?:\([^()]{0,80}\)[^()]{0,80}?)?[,(]\s*(?:mode\s*=\s*)?['"][rbt]*[wax+][bt+]*['"]|"""
    r"""\.open\s*\(\s*(?:mode\s*=\s*)?['"][rbt]*[wax+]|\bmode\s*=\s*['"][rbt]*[wax+]|=\s*open\b(?!\s*\()"""
)


@frozen
class _CodeRow:
    kind: ImpactKind
    reason: str
    patterns: tuple[tuple[str, re.Pattern[str]], ...]
    """Expressions, each with a text that every match of it holds."""
    languages: frozenset[str]
    text: bool
    any_case: bool
    unguards: bool

    def search(self, code: str) -> re.Match[str] | None:
        """Return a match of one of the expressions; most are ruled out by the text that they need."""
        plain = code.lower() if self.any_case else code
        return next(
            (found for needed, pattern in self.patterns if needed in plain and (found := pattern.search(code))), None
        )


def _needed(pattern: str) -> str:
    """Return the name that an expression begins with, which every match holds; or an empty text."""
    match = NEEDED.match(pattern)
    alternatives = "|" in re.sub(r"\[[^\]]*\]|\([^()]*(?:\([^()]*\)[^()]*)*\)", "", pattern)
    return match[1] if match and not alternatives else ""


@cache
def _rows() -> tuple[_CodeRow, ...]:
    return tuple(
        _CodeRow(
            entry["kind"],
            entry["reason"],
            tuple(
                (
                    _needed(pattern).lower() if entry.get("any_case") else _needed(pattern),
                    re.compile(pattern, re.IGNORECASE if entry.get("any_case") else 0),
                )
                for pattern in entry["patterns"]
            ),
            frozenset(entry.get("languages", "").split()),
            entry.get("literals", False),
            entry.get("any_case", False),
            entry.get("unguards", False),
        )
        for entry in load_table("inline_code")["code"]
    )


def read_code(code: str, language: str, places: Places, folder: str) -> Iterator[Impact]:
    """Yield the impacts that code in a command shows. A part that only a run can tell makes it unread."""
    if language not in ONE_LINERS:
        yield Impact("inline_code", language)
    if UNKNOWN in code or len(code) > LONGEST:
        yield Impact("runs_unread", language, "only a run tells the code" if UNKNOWN in code else "too long to be read")
        code = code[:LONGEST]
    texts: list[str] = []

    def keep(match: re.Match[str]) -> str:
        text = match[match.lastindex or 0]
        texts.append((decode_escapes(text) if "\\" in text else text).lstrip("<>+| "))
        return '""'

    bare = LITERAL.sub(keep, code)
    texts = list(dict.fromkeys(texts))
    found: set[str] = set()
    for row in _rows():
        if row.languages and language not in row.languages:
            continue
        match = None if row.kind in found else row.search(code if row.text or language == "php" else bare)
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
    names = ("open", "Open", "file", "mode")
    return any(name in code for name in names) and WRITING.search(code) is not None


def _files(code: str, texts: list[str], places: Places, folder: str, *, writes: bool) -> Iterator[Impact]:
    """Yield the impacts on the paths that stand between quotes; a text that looks like no path stands for none."""
    written: list[Impact] = []
    bases = (folder, places.policy.home) if re.search("(?i)home|expanduser", code) and HOME.search(code) else (folder,)
    for text, base in [(text, base) for text in texts if PATH.fullmatch(text) for base in bases]:
        path = places.absolute(text, base)
        if (read := places.reads(path)).kind == "reads_secret":
            yield read
        if writes and ("/" in text or "." in text):
            written += [impact for impact in places.writes(path) if impact.kind != "writes_tree"]
    if writes:
        yield from written or [Impact("writes_tree", "", "a function that writes files")]
    for name in VARIABLE.findall(code) if "env" in code or "ENV" in code else ():
        if is_secret_name(name):
            yield Impact("reads_secret", f"${name}", "a variable with a secret's name")


def read_sql(text: str, program: str) -> Iterator[Impact]:
    """Yield the impacts of the statements in a text of SQL, or of commands that a database has besides."""
    table = load_table("inline_code")["sql"]
    bare = re.sub(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'", " ", text, flags=re.DOTALL)
    if UNKNOWN in text:
        yield Impact("unreadable", program, "only a run tells the statement")
    bare = re.sub(r"\n\s*(?=[.\\])|\s(?=\\(?:g|w|gexec|o)\b)", ";", bare)
    statements = [one.strip() for one in bare.split(";") if one.strip()]
    for statement in statements:
        word = statement.split(None, 1)[0].lstrip("(").upper()
        changing = re.search(rf"\b({'|'.join(table['changing'])})\b", statement, re.IGNORECASE)
        if statement.startswith(("\\!", "\\w", "\\g", "\\e", "\\P", "\\set ", "\\setenv", ".sh", ".sy", ".exc")):
            yield Impact("runs_unread", program, "a command of the database program")
        elif statement.startswith(DATABASE_COMMANDS) and not statement.startswith(
            (".indexes", "\\conninfo", "\\sf", "\\sv")
        ):
            yield Impact("service_writes", show(statement[:40]), "a command of the database program")
        elif statement.startswith(("\\", ".")) or (word in table["reading"] and not changing):
            yield Impact("service_reads", program)
        else:
            yield Impact("service_writes", program, show(statement[:40]))
