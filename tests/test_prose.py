"""The rule for prose: the subject of a sentence is a named thing, and the verb says what it does.

Run as a program, this file lists what breaks the rule, for a whole tree or for the paths it is given.
"""

import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CODE = ["amplifier_hooks", "approval_backends", "benchmarks", "examples", "scripts", "tests"]
PAGES = ["*.md", "docs/**/*.md", "specs/**/*.md"]
OPENINGS = ("What", "Who", "Whoever", "Whose", "Which", "Whether", "How", "Why", "Those", "The same")
"""No sentence starts with one of these, unless it is a question."""
NOBODYS = ("anybody", "nobody", "somebody", "whoever")
"""Roles take their place: approver, runner, caller, store, client, operator."""

_OPENING = re.compile(rf"(?:{'|'.join(OPENINGS)})\b")
_NOBODY = re.compile(rf"\b(?:{'|'.join(NOBODYS)})\b", re.IGNORECASE)
_ENDS = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`\"'(\[*_])|\n\s*\n|\n\s*(?:[-*|]|\d+\.)\s+|\s+\|\s+")
_SUSPECT = re.compile(rf"(?:{'|'.join(OPENINGS)})\b|(?i:{'|'.join(NOBODYS)})".replace(" ", r"\W+"))
"""Words without which no sentence of a file can break the rule; most files have none."""
_CODE = re.compile(r"(?s:```.*?```|<!--.*?-->)|^#.*$|^(?: {4}|\t).*$|\]\([^)]*\)", re.MULTILINE)


def sentences(text: str) -> Iterator[str]:
    """Return the sentences of a text, one by one, each on one line."""
    for part in _ENDS.split(text):
        if flat := " ".join((part or "").split()).lstrip("-*|>_ "):
            yield flat


def misspoken(text: str) -> Iterator[str]:
    """Return each sentence of a text that breaks the rule."""
    for sentence in sentences(text):
        if (_OPENING.match(sentence) and not sentence.endswith("?")) or _NOBODY.search(sentence):
            yield sentence


def words_of(file: Path) -> Iterator[tuple[int, str]]:
    """Return the docstrings, attribute docstrings, other strings and comments of a Python file, with their lines."""
    text = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    with file.open("rb") as stream:
        for token in tokenize.tokenize(stream.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string.lstrip("#:! ")


def flaws(file: Path) -> list[str]:
    """Return what breaks the rule in a file, with its line."""
    name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
    text = file.read_text(encoding="utf-8")
    if not _SUSPECT.search(text):
        return []
    if file.suffix == ".py":
        return [f"{name}:{line}: {flaw[:110]}" for line, words in words_of(file) for flaw in misspoken(words)]
    prose = _CODE.sub("\n\n", text)
    return [f"{name}: {flaw[:110]}" for flaw in misspoken(prose)]


def code(folder: str) -> list[Path]:
    """Return the Python files of a folder, without this one."""
    return sorted(file for file in (ROOT / folder).rglob("*.py") if file != Path(__file__))


@pytest.mark.rule("PKG-3")
@pytest.mark.parametrize("folder", CODE)
def test_code_names_its_subjects(folder: str) -> None:
    """Every docstring, message and comment names its subject, and uses roles instead of somebody and nobody."""
    assert not [flaw for file in code(folder) for flaw in flaws(file)]


@pytest.mark.rule("PKG-3")
@pytest.mark.parametrize("pages", PAGES)
def test_pages_name_their_subjects(pages: str) -> None:
    """Every sentence of README, docs and specs names its subject, and uses roles instead of somebody and nobody."""
    assert not [flaw for file in sorted(ROOT.glob(pages)) for flaw in flaws(file)]


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("What it holds.", ["What it holds."]),
        ("A store. Whoever asks waits.", ["Whoever asks waits."]),
        ("The same, later.", ["The same, later."]),
        ("Nothing, which nobody reads.", ["Nothing, which nobody reads."]),
        ("The store keeps what it is given.", []),
        ("What is allowed?", []),
        ("When the call ends, the store keeps it.", []),
    ],
)
def test_the_rule_tells_them_apart(text: str, broken: list[str]) -> None:
    """The check finds a sentence without a subject, and leaves the others alone."""
    assert list(misspoken(text)) == broken


if __name__ == "__main__":
    given = [Path(argument).resolve() for argument in sys.argv[1:]] or [ROOT / folder for folder in CODE]
    files = [file for path in given for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]
    found = [flaw for file in files if file != Path(__file__) for flaw in flaws(file)]
    sys.stdout.write("\n".join([*found, f"{len(found)} in {len(files)} files\n"]))
