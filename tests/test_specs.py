"""Rules and tests find each other: specs/ against the marks of all tests, and the reading of both against samples."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Final

import pytest

from tests.specbook import (
    Book,
    Mark,
    bind,
    defined_twice,
    docstring_flaw,
    find_tests,
    ids_in_list,
    list_flaws,
    marks_in,
    misshapen,
    unknown_ids,
    unproved,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

TESTS: Final = Path(__file__).parent
SPECS: Final = TESTS.parent / "specs"


def texts(folder: Path, pattern: str) -> dict[str, str]:
    """The files under a folder, by their path in the project."""
    return {
        path.relative_to(TESTS.parent).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob(pattern))
    }


def report(complaints: list[str]) -> str:
    """One complaint a line, below pytest's own line."""
    return "\n".join(["", *complaints])


@pytest.fixture(scope="module")
def pages() -> Mapping[str, str]:
    """The pages of specs/."""
    return texts(SPECS, "*.md")


@pytest.fixture(scope="module")
def sources() -> Mapping[str, str]:
    """The Python files of tests/."""
    return texts(TESTS, "*.py")


@pytest.fixture(scope="module")
def book(pages: Mapping[str, str], sources: Mapping[str, str]) -> Book:
    """The project's own book."""
    return bind(pages.values(), (SPECS / "not-built.txt").read_text(encoding="utf-8"), sources)


# -- the project -------------------------------------------------------------------------------------------------------


def test_the_book_is_not_empty(book: Book) -> None:
    """Rules, faults and marks are found at all, so that the other claims are about something."""
    assert len(book.rules) > 100
    assert len(book.faults) > 100
    assert set(book.cited) | set(book.listed)


def test_every_rule_is_proved_or_admitted(book: Book) -> None:
    """Each rule and each fault has a test or stands in the not-built list."""
    complaints = unproved(book)
    assert not complaints, report(complaints)


def test_the_list_is_true(book: Book) -> None:
    """The not-built list names only defined rules and faults without a test, each once."""
    complaints = list_flaws(book)
    assert not complaints, report(complaints)


def test_marks_name_real_rules(book: Book) -> None:
    """A test that names a rule or a fault names one that specs/ defines."""
    complaints = unknown_ids(book)
    assert not complaints, report(complaints)


def test_ids_are_unique(book: Book) -> None:
    """No id is defined twice."""
    complaints = defined_twice(book)
    assert not complaints, report(complaints)


def test_rules_have_their_shape(pages: Mapping[str, str]) -> None:
    """Every heading and every row that starts with an id has the shape in which ids are found."""
    complaints = [
        f"{page}: {line!r} starts with an id, but is neither `## REG-1 — short title` nor "
        "`| F-HD-01 | situation | required outcome |`. Give it that shape."
        for page, text in pages.items()
        for line in misshapen(text)
    ]
    assert not complaints, report(complaints)


def test_the_index_is_complete(pages: Mapping[str, str]) -> None:
    """Every page of specs/ is linked from the index."""
    index = pages["specs/README.md"]
    names = [Path(page).name for page in pages if page != "specs/README.md"]
    complaints = [f"specs/{name} is not in specs/README.md. Add a row." for name in names if f"({name})" not in index]
    assert not complaints, report(complaints)


def test_every_test_says_what_holds(sources: Mapping[str, str]) -> None:
    """Every test has a docstring of one sentence in words of behaviour."""
    complaints = [
        f"{test.where}: {test.name} {flaw}. Say in one sentence what holds."
        for file, source in sources.items()
        for test in find_tests(source, file)
        if (flaw := docstring_flaw(test.docstring))
    ]
    assert not complaints, report(complaints)


# -- samples: complaints -----------------------------------------------------------------------------------------------

PAGE: Final = """\
# Station

## REG-1 — Registering
Text that mentions REG-9.

## REG-2 — Order

| id | situation | required outcome |
|---|---|---|
| F-HD-01 | it hangs | it ends |
| F-HD-20 | a list "a\\|b" | it matches |
"""


def sample(tests: str = "", *, page: str = PAGE, listed: str = "") -> Book:
    """A book about one page and one test file."""
    return bind([page], listed, {"tests/test_x.py": dedent(tests)})


def test_headings_and_rows_are_found() -> None:
    """Rules are found in headings, faults in rows, and an id in running text is neither."""
    book = sample()
    assert book.rules == ("REG-1", "REG-2")
    assert book.faults == ("F-HD-01", "F-HD-20")


def test_unproved_is_noticed() -> None:
    """A rule with neither test nor line in the list is reported, with the mark that would settle it."""
    book = sample(
        """
        @pytest.mark.rule("REG-1")
        def test_a(): ...
        """,
        listed="F-HD-01",
    )
    rule, fault = unproved(book)
    assert '@pytest.mark.rule("REG-2")' in rule
    assert '@pytest.mark.fault("F-HD-20")' in fault


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ("REG-1", "has a test and still stands"),
        ("REG-7", "no page of specs/ defines it"),
        ("REG-2\nREG-2", "stands 2 times"),
    ],
)
def test_untrue_lines_are_noticed(listed: str, words: str) -> None:
    """A line of the list is reported if its id has a test, is unknown, or stands there twice."""
    (flaw,) = list_flaws(sample('pytestmark = pytest.mark.rule("REG-1")', listed=listed))
    assert words in flaw


def test_true_lines_pass() -> None:
    """A line whose id is defined and has no test is not reported."""
    assert list_flaws(sample(listed="REG-1\nF-HD-01")) == []


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ('rule("REG-9")', "names REG-9"),
        ('fault("REG-1")', "defines no such fault"),
        ('rule("F-HD-01")', "defines no such rule"),
        ("rule(*IDS)", "cannot be read"),
        ('rule("REG-1", NAME)', "cannot be read"),
        ('rule(id="REG-1")', "cannot be read"),
        ("fault()", "cannot be read"),
    ],
)
def test_unknown_marks_are_noticed(mark: str, words: str) -> None:
    """A mark is reported, with file and line, if it names nothing real or nothing that can be read."""
    (flaw,) = unknown_ids(sample(f"@pytest.mark.{mark}\ndef test_a(): ...\n"))
    assert words in flaw
    assert flaw.startswith("tests/test_x.py:1: ")


def test_second_definitions_are_noticed() -> None:
    """An id that two headings define is reported."""
    (flaw,) = defined_twice(sample(page=f"{PAGE}\n## REG-1 — Again\n"))
    assert "REG-1 is defined 2 times" in flaw


# -- samples: reading --------------------------------------------------------------------------------------------------


def test_the_list_has_comments() -> None:
    """Comments and empty lines of the list are not ids."""
    assert ids_in_list("# registry\nREG-1\n\n  REG-2  # soon\n") == ["REG-1", "REG-2"]


@pytest.mark.parametrize(
    "line",
    [
        "## REG-1 - a hyphen for the dash",
        "## REG-1 —",
        "### REG-1 — One level too deep",
        "## `REG-1` — Code",
        "| F-HD-01 | no outcome |",
        "|F-HD-01|no|space|",
        "| **F-HD-01** | it hangs | it ends |",
        "| F-HD-1a | it hangs | it ends |",
    ],
)
def test_almost_is_noticed(line: str) -> None:
    """A heading or a row that would be overlooked because of its shape is reported."""
    assert misshapen(f"text\n{line}\ntext\n") == [line]


@pytest.mark.parametrize("page", [PAGE, "UTF-8 begins this line.\n", "## All events\n", "| P1 | a check |\n"])
def test_other_lines_are_left_alone(page: str) -> None:
    """Well-formed rules, and lines that start with no id, are not reported."""
    assert misshapen(page) == []


@pytest.mark.parametrize(
    ("source", "ids"),
    [
        ('@pytest.mark.rule("REG-1", "REG-2")\ndef test_a(): ...', [("REG-1", "REG-2")]),
        ('@pytest.mark.fault("F-HD-01")\nasync def test_a(): ...', [("F-HD-01",)]),
        ('@pytest.mark.rule("REG-1")\n@pytest.mark.slow\nclass TestA: ...', [("REG-1",)]),
        ('class TestA:\n    @pytest.mark.rule("REG-1")\n    def test_a(self): ...', [("REG-1",)]),
        ('pytestmark = pytest.mark.rule("REG-1")', [("REG-1",)]),
        ('pytestmark = [pytest.mark.slow, pytest.mark.rule("REG-1")]', [("REG-1",)]),
        ('class TestA(Contract):\n    pytestmark = (pytest.mark.rule("REG-1"),)', [("REG-1",)]),
        ('CASES = [pytest.param(1, id="x", marks=pytest.mark.fault("F-HD-01"))]', [("F-HD-01",)]),
        ('CASES = [pytest.param(1, marks=[pytest.mark.slow, pytest.mark.fault("F-HD-01")])]', [("F-HD-01",)]),
        ('@pytest.mark.rule("REG-1")\ndef helper(): ...', []),
        ('UNUSED = pytest.mark.rule("REG-1")', []),
        ('TEXT = """\n@pytest.mark.rule("REG-1")\n"""', []),
        ('# @pytest.mark.rule("REG-1")', []),
        ('@pytest.mark.parametrize("x", [1])\ndef test_a(x): ...', []),
    ],
)
def test_marks_are_read_where_pytest_reads_them(source: str, ids: list[tuple[str, ...]]) -> None:
    """A mark counts on a test, on a test class, in `pytestmark` and in `pytest.param`, and nowhere else."""
    assert [mark.ids for mark in marks_in(source, "tests/test_x.py")] == ids


def test_a_mark_knows_its_place() -> None:
    """A mark remembers its kind, and the file and line where it stands."""
    source = '\n@pytest.mark.fault("F-HD-01")\ndef test_a(): ...\n'
    assert marks_in(source, "tests/test_x.py") == [Mark("fault", ("F-HD-01",), "tests/test_x.py:2")]


def test_tests_are_found_in_classes_too() -> None:
    """Functions and methods that pytest would run are found with their docstrings, others are not."""
    source = dedent('''
        async def test_a():
            """It holds."""

        class StoreContract:
            def test_b(self): ...
            def check(self): ...
    ''')
    assert [(test.name, test.docstring) for test in find_tests(source, "x.py")] == [
        ("test_a", "It holds."),
        ("test_b", None),
    ]


@pytest.mark.parametrize(
    ("docstring", "words"),
    [
        (None, "no docstring"),
        ("  \n ", "no docstring"),
        ("Test the registry.", "about testing"),
        ("Verifies that a deny wins.", "about testing"),
        ("A deny wins. It always does.", "more than one sentence"),
        ("A deny wins.\n\n`It` always does.", "more than one sentence"),
        ("A deny wins", "does not end"),
    ],
)
def test_poor_docstrings_are_noticed(docstring: str | None, words: str) -> None:
    """A docstring is reported if it is missing, is about testing, has two sentences or does not end."""
    assert words in (docstring_flaw(docstring) or "")


@pytest.mark.parametrize(
    "docstring",
    [
        "A deny wins.",
        "A deny wins, whatever stands\n    before or after it.",
        "The prompt reads `Allow this operation?`.",
        "`AuditLog.open(path)` refuses a symlink.",
        "Checks run in the order of their priority.",
        "0.999 s is in time, 1.000 s is late.",
    ],
)
def test_one_sentence_passes(docstring: str) -> None:
    """One sentence about behaviour is not reported, also across lines and with dots inside."""
    assert docstring_flaw(docstring) is None
