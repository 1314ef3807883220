"""The rules of specs/ and the tests that name them, held against each other.

```
bind(pages, not_built, sources) → Book      ids that the pages define, the list admits and the tests cite
unproved(book) · list_flaws(book)           complaints, one line each; none is good
unknown_ids(book) · defined_twice(book)
misshapen(page) · docstring_flaw(text)      complaints about one text
marks_in(source) · find_tests(source)       marks and tests of a test file
```

Everything is text in, text out. Test files are parsed, never imported, so a test that cannot run still counts as
what it says it is.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

RULE: Final = re.compile(r"^## ([A-Z]+-\d+) — \S", re.MULTILINE)
FAULT: Final = re.compile(r"^\| (F-[A-Z]+-\d+) \|(?: \S.* \|){2}$", re.MULTILINE)
ALMOST: Final = re.compile(r"^ *(?:#+|\|)[ *`]*(?:F-)?[A-Z]{2,}-\d+.*$", re.MULTILINE)
"""A heading or a row that starts with an id: a rule or a fault, or meant to be one."""

SENTENCE_BREAK: Final = re.compile(r"""[.!?]["'`)]*\s+(?=["'`(]*[A-Z])""")
SENTENCE_END: Final = re.compile(r"""[.!?]["'`)]*$""")
ABOUT_TESTING: Final = re.compile(r"(?:tests?|verif(?:y|ies)|ensures?|checks? (?:that|if|whether))\b", re.IGNORECASE)

KINDS: Final = frozenset({"rule", "fault"})


@dataclass(frozen=True, slots=True)
class Mark:
    """One `pytest.mark.rule(...)` or `pytest.mark.fault(...)` on a test.

    Attributes:
        kind: `rule` or `fault`.
        ids: The ids that it names; empty if they cannot be read without running the file.
        where: File and line.
    """

    kind: str
    ids: tuple[str, ...]
    where: str


@dataclass(frozen=True, slots=True)
class Case:
    """A test, as read from its source.

    Attributes:
        name: Its name.
        docstring: Its docstring, or None.
        where: File and line.
    """

    name: str
    docstring: str | None
    where: str


@dataclass(frozen=True, slots=True)
class Book:
    """The ids that the pages define, the list admits and the tests cite.

    Attributes:
        rules: Ids of the headings, each as often as it is defined.
        faults: Ids of the rows, likewise.
        listed: Ids of the not-built list, each as often as it stands there.
        marks: Every mark of every test.
    """

    rules: tuple[str, ...]
    faults: tuple[str, ...]
    listed: tuple[str, ...]
    marks: tuple[Mark, ...]

    @property
    def defined(self) -> tuple[str, ...]:
        """All rules and faults."""
        return self.rules + self.faults

    @property
    def cited(self) -> frozenset[str]:
        """Every id that a test names."""
        return frozenset(name for mark in self.marks for name in mark.ids)


def bind(pages: Iterable[str], not_built: str, sources: Mapping[str, str]) -> Book:
    """Make the book from the texts of the pages, of the list, and of the test files by name."""
    pages = tuple(pages)
    return Book(
        rules=tuple(name for page in pages for name in RULE.findall(page)),
        faults=tuple(name for page in pages for name in FAULT.findall(page)),
        listed=tuple(ids_in_list(not_built)),
        marks=tuple(mark for file, source in sources.items() for mark in marks_in(source, file)),
    )


# -- complaints about the book -----------------------------------------------------------------------------------------


def unproved(book: Book) -> list[str]:
    """Rules and faults that neither have a test nor stand in the list."""
    kinds = dict.fromkeys(book.rules, "rule") | dict.fromkeys(book.faults, "fault")
    missing = kinds.keys() - book.cited - set(book.listed)
    return [
        f'{name} has no test. Mark the test that proves it with @pytest.mark.{kind}("{name}"), '
        f"or add {name} to specs/not-built.txt until there is one."
        for name, kind in kinds.items()
        if name in missing
    ]


def list_flaws(book: Book) -> list[str]:
    """Lines of the list that are not, or no longer, true."""
    times = Counter(book.listed)
    flaws: list[str] = []
    for name, count in times.items():
        if name not in book.defined:
            flaws.append(f"{name} stands in specs/not-built.txt, but no page of specs/ defines it. Remove the line.")
        elif name in book.cited:
            flaws.append(f"{name} has a test and still stands in specs/not-built.txt. Remove the line.")
        if count > 1:
            flaws.append(f"{name} stands {count} times in specs/not-built.txt. Once is enough.")
    return flaws


def unknown_ids(book: Book) -> list[str]:
    """Marks that name something the pages do not define, or that cannot be read."""
    known = {"rule": book.rules, "fault": book.faults}
    flaws: list[str] = []
    for mark in book.marks:
        if not mark.ids:
            flaws.append(
                f"{mark.where}: the ids of pytest.mark.{mark.kind} cannot be read without running the file. "
                "Write them out as strings, at least one."
            )
        flaws.extend(
            f"{mark.where}: pytest.mark.{mark.kind} names {name}, but specs/ defines no such {mark.kind}. "
            "Correct the id, or write it down in specs/ first."
            for name in mark.ids
            if name not in known[mark.kind]
        )
    return flaws


def defined_twice(book: Book) -> list[str]:
    """Ids that the pages define more than once."""
    return [
        f"{name} is defined {count} times in specs/. Give all but one of them the next free number."
        for name, count in Counter(book.defined).items()
        if count > 1
    ]


# -- one text ----------------------------------------------------------------------------------------------------------


def ids_in_list(text: str) -> list[str]:
    """Read the not-built list: one id on a line, `#` begins a comment."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def misshapen(page: str) -> list[str]:
    """Lines of a page that start with an id but are neither a rule's heading nor a fault's row."""
    return [line for line in ALMOST.findall(page) if not RULE.match(line) and not FAULT.match(line)]


def marks_in(source: str, file: str) -> list[Mark]:
    """Read the marks of a test file: on tests and test classes, in `pytestmark`, and in `pytest.param`."""
    return [mark for node in _nodes(source) for place in _places(node) for mark in _marks(place, file)]


def find_tests(source: str, file: str) -> list[Case]:
    """Find the tests of a file."""
    return [
        Case(node.name, ast.get_docstring(node), f"{file}:{node.lineno}")
        for node in _nodes(source)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
    ]


def docstring_flaw(docstring: str | None) -> str | None:
    """Say what keeps a docstring from being one sentence about behaviour; None if nothing does."""
    text = " ".join((docstring or "").split())
    if not text:
        return "has no docstring"
    if ABOUT_TESTING.match(text):
        return "has a docstring about testing, not about what holds"
    if SENTENCE_BREAK.search(text):
        return "has a docstring of more than one sentence"
    if not SENTENCE_END.search(text):
        return "has a docstring that does not end like a sentence"
    return None


# -- syntax ------------------------------------------------------------------------------------------------------------


@cache
def _nodes(source: str) -> tuple[ast.AST, ...]:
    """Parse a test file once, and keep what may be a test or bear a mark."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.Call)
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))


def _places(node: ast.AST) -> list[ast.expr]:
    """Expressions of this node in which pytest looks for marks."""
    match node:
        case ast.FunctionDef(name=name, decorator_list=places) | ast.AsyncFunctionDef(name=name, decorator_list=places):
            return places if name.startswith("test") else []
        case ast.ClassDef(name=name, decorator_list=places):
            return places if name.startswith("Test") else []
        case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
            return [value]
        case ast.Call(func=ast.Attribute(value=ast.Name(id="pytest"), attr="param"), keywords=keywords):
            return [keyword.value for keyword in keywords if keyword.arg == "marks"]
        case _:
            return []


def _marks(place: ast.expr, file: str) -> Iterator[Mark]:
    match place:
        case ast.List(elts=places) | ast.Tuple(elts=places):
            for one in places:
                yield from _marks(one, file)
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="mark"), attr=kind)) if kind in KINDS:
            yield Mark(kind, _literal_ids(place), f"{file}:{place.lineno}")


def _literal_ids(call: ast.Call) -> tuple[str, ...]:
    """The arguments, if all of them are plain strings."""
    ids = tuple(arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))
    return ids if len(ids) == len(call.args) and not call.keywords else ()
