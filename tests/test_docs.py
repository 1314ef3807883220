"""The code, the commands and the data in documents work.

- ```` ```python ```` blocks run. The blocks of one file share a namespace, as a reader would expect.
  `<!-- no-run: reason -->` on the line before a block leaves it out.
- ```` ```output ```` after them is what they printed since the last such block.
- ```` ```sh ```` blocks name commands and options of `amplifier-hooks` that exist, and run: each command exits 0, or 1
  where its comment says so. A command that cannot run here has the `no-run` line before it; a command that
  installs has `<!-- typed-in-ci: reason -->`, and `.ci/run` types it in a clone.
- ```` ```yaml ```` and ```` ```json ```` blocks can be read; files of hooks, of rules and blueprints are right.
- `<!-- file: name -->` before a block: the commands after it find it there. With `under a line`, it takes that line's
  place in the file.
- Python, in documents and in examples, imports public names only.
- Relative links lead somewhere.
"""

import ast
import asyncio
import inspect
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from amplifier_hooks.cli.app import app
from amplifier_hooks.definitions import load_files
from amplifier_hooks.runs.blueprint import read_blueprint
from approval_backends.rules.policy import Rules
from tests.cases import each
from tests.test_exports import PACKAGES, listed

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "specs/**/*.md", "amplifier_hooks/.agents/**/*.md")
    for path in sorted(ROOT.glob(pattern))
]
FENCE = re.compile(r"(`{3,})(\w*)")
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
NAMED = re.compile(r"<!-- file: (\S+?)(?:, under (\S+))? -->")
NO_RUN = ("<!-- no-run:", "<!-- typed-in-ci:")


class Block(NamedTuple):
    """A fenced block: its language, the number of its first line, its text, and the line before the fence."""

    language: str
    line: int
    text: str
    before: str


def blocks(document: str, *languages: str) -> Iterator[Block]:
    """Read the blocks of some languages from a document."""
    lines = (ROOT / document).read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        number += 1
        if fence:
            start = number
            while not lines[number].startswith(fence[1]):
                number += 1
            if fence[2] in languages:
                text = "".join(f"{line}\n" for line in lines[start:number])
                yield Block(fence[2], start + 1, text, lines[start - 2] if start > 1 else "")
            number += 1


@pytest.mark.parametrize("document", [document for document in DOCUMENTS if any(blocks(document, "python"))])
def test_python_blocks_run(
    document: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Python blocks of a document run, one after the other, and print what the document says."""
    monkeypatch.chdir(tmp_path)  # each document writes into a folder of its own
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for block in blocks(document, "python", "output"):
            if block.before.startswith("<!-- no-run:"):
                continue
            if block.language == "output":
                assert capsys.readouterr().out == block.text, f"{document}:{block.line}"
                continue
            # Blank lines first, so that a traceback shows the line of the document; `await` is allowed as in a REPL.
            source = "\n" * (block.line - 1) + block.text
            code = compile(source, ROOT / document, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if code.co_flags & inspect.CO_COROUTINE:
                runner.run(eval(code, namespace))
            else:
                exec(code, namespace)


def imported(source: str) -> Iterator[tuple[str, str]]:
    """Read the modules of both packages that Python code imports, with the names it takes from them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found = [(one.name, "") for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [(node.module or "", one.name) for one in node.names]
        else:
            continue
        yield from (one for one in found if one[0].split(".")[0] in {package.__name__ for package in PACKAGES})


def awaits_outside(text: str) -> bool:
    """Return True for code that no file may have as it stands: it awaits outside of a function."""
    try:
        compile(text, "a block", "exec")
    except SyntaxError:
        return True
    return False


@pytest.mark.rule("CLI-1")
@pytest.mark.parametrize("document", [one for one in DOCUMENTS if one.startswith("docs/") or "/.agents/" in one])
def test_code_that_awaits_is_explained(document: str) -> None:
    """A page with code that awaits outside of a function says how a file runs such code."""
    awaiting = [block.line for block in blocks(document, "python") if awaits_outside(block.text)]
    assert not awaiting or "`asyncio.run(main())` runs" in (ROOT / document).read_text("utf-8"), awaiting


@pytest.mark.rule("PKG-1")
def test_readers_need_public_names_only() -> None:
    """Documents and examples import front doors only, and from them only names that they list."""
    sources = [(document, block.text) for document in DOCUMENTS for block in blocks(document, "python")]
    sources += [(path.name, path.read_text(encoding="utf-8")) for path in ROOT.glob("examples/**/*.py")]
    offered = {(door, name) for door, names in listed().items() for name in ("", *names)}
    used = {(where, *one) for where, text in sources for one in imported(text)}
    assert not {one for one in used if one[1:] not in offered}


def commands(text: str, prompt: str = "") -> Iterator[tuple[list[str], str]]:
    """Read the words of each call of `amplifier-hooks` in a block, and its comment."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.startswith(prompt):
            typed, _, comment = line.removeprefix(prompt).partition(" # ")
            words = shlex.split(typed)
            if "amplifier-hooks" in words:
                yield words[words.index("amplifier-hooks") + 1 :], comment


@pytest.mark.parametrize("document", [document for document in DOCUMENTS if any(blocks(document, "sh", "console"))])
def test_commands_exist(document: str) -> None:
    """Every command in a document exists, with its options."""
    for block in blocks(document, "sh", "console"):
        for words, _ in commands(block.text, "$ " if block.language == "console" else ""):
            command: Any = get_command(app)
            names = iter(words)
            while hasattr(command, "commands"):
                name = next(names)
                assert name in command.commands, f"{document}:{block.line}: amplifier-hooks {' '.join(words)}"
                command = command.commands[name]
            known = {"--help", *(option for one in command.params for option in one.opts)}
            used = {word.partition("=")[0] for word in names if re.fullmatch(r"--?[a-z].*", word)}
            assert used <= known, f"{document}:{block.line}: amplifier-hooks {' '.join(words)}"


@pytest.mark.slow
@pytest.mark.parametrize("document", [document for document in DOCUMENTS if any(blocks(document, "sh"))])
def test_commands_run(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of a document work, one after the other, in an empty folder and home with no terminal."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_STATE_HOME", "AMPLIFIER_HOOKS_STORE", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for block in blocks(document, "sh", "python", "yaml", "json"):
        if named := NAMED.fullmatch(block.before):
            file, under = Path(named[1]), named[2]
            file.write_text(file.read_text().replace(f"{under}\n", block.text, 1) if under else block.text)
        if block.language != "sh" or block.before.startswith(NO_RUN):
            continue
        found = list(commands(block.text))
        assert len(found) == len(block.text.splitlines()), f"{document}:{block.line}: what else is there has no no-run"
        for words, comment in found:
            told = CliRunner().invoke(app, words, catch_exceptions=False)
            assert told.exit_code == ("exits 1" in comment), f"{document}:{block.line}: {words}: {told.output}"


@pytest.mark.parametrize("document", [document for document in DOCUMENTS if any(blocks(document, "yaml", "json"))])
def test_data_is_right(document: str, tmp_path: Path) -> None:
    """Blocks of YAML and JSON can be read, and their definitions are valid."""
    for block in blocks(document, "yaml", "json"):
        value = yaml.safe_load(block.text) if block.language == "yaml" else json.loads(block.text)
        if not isinstance(value, dict):
            continue
        file = tmp_path / f"block.{block.language}"
        file.write_text(block.text if "version" in value or block.language == "json" else f"version: 1\n{block.text}")
        if {"name", "type"} <= value.keys():
            read_blueprint(block.text)
        elif "rules" in value:
            Rules.load(file)
        elif value.keys() & {"hooks", "library", "definitions", "settings"}:
            load_files(file)


@each("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    """Every relative link of a document leads to a file or folder of the checkout."""
    path = ROOT / document
    links = LINK.findall(path.read_text(encoding="utf-8"))
    assert not [link for link in links if not (path.parent / link).exists()]


@pytest.mark.rule("PKG-6")
def test_skill_has_its_heading() -> None:
    """The skill has the front matter by which coding agents find it: its folder's name, and a bounded description."""
    (skill,) = ROOT.glob("amplifier_hooks/.agents/skills/*/SKILL.md")
    _, heading, _ = skill.read_text(encoding="utf-8").split("---\n", 2)
    facts = yaml.safe_load(heading)
    assert (facts.keys(), facts["name"]) == ({"name", "description"}, skill.parent.name)
    assert len(facts["description"]) <= 1_024


def table(document: str, heading: str) -> dict[str, dict[str, str]]:
    """Read the first table after a heading: each row by its first cell, its cells by their columns."""
    text = (ROOT / document).read_text(encoding="utf-8").partition(f"{heading}\n")[2]
    lines = re.search(r"(?m)(?:^\|.*\n)+", text)
    assert lines is not None
    columns, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[0].splitlines()]
    return {row[0]: dict(zip(columns[1:], row[1:], strict=True)) for row in rows}


def test_the_readme_compares_as_the_page_does() -> None:
    """Each row of the README's comparison is one of docs/comparison.md, and its columns name versions."""
    short, whole = table("README.md", "## Beside others"), table("docs/comparison.md", "# Beside others")
    assert short
    for name, row in short.items():
        assert row.items() <= whole[name].items()
        assert all(re.search(r" \d+\.\d+\.\d+\S*$", column) for column in row.keys() - {"here"})


def test_the_readme_is_short() -> None:
    """The README has less than 200 lines, and each quick start at most ten lines of code."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 200
    starts = text.partition("## I want to")[2].partition("\n## ")[0]
    codes = re.findall(r"```(?:python|sh)\n(.*?)```", starts, re.DOTALL)
    assert len(codes) == starts.count("\n### ") == 5
    assert max(sum(bool(line) for line in code.splitlines()) for code in codes) <= 10


def test_the_map_leads_to_what_is_there() -> None:
    """Each file and each term in the table of what to change is there, so that one search finds the place."""
    packages = [ROOT / package.__name__ for package in PACKAGES]
    paths = [path for package in packages for path in package.rglob("*") if path.suffix in (".py", ".toml")]
    texts = [path.read_text("utf-8") for path in paths]
    for row in table("CONTRIBUTING.md", "`in_process.py`.").values():
        for name in re.findall(r"`([^`]+/[^`]*|[^`]+\.\w+)`", row["look in"]):
            assert any([*folder.glob(name)] for folder in (ROOT, *packages)), name
        for term in re.findall(r"`([^`]+)`", row["or search for"]):
            assert any(term in text for text in texts), term
