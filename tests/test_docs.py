"""What the documents show is true.

- ```` ```python ```` blocks run. The blocks of one file share a namespace, as a reader would expect.
  `<!-- no-run: reason -->` on the line before a block leaves it out.
- ```` ```output ```` after them is what they printed since the last such block.
- ```` ```sh ```` blocks name commands of `amplifier-hooks` that exist.
- Relative links lead somewhere.
"""

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "specs/**/*.md")
    for path in sorted(ROOT.glob(pattern))
]
FENCE = re.compile(r"(`{3,})(\w*)")
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
COMMAND = re.compile(r"\bamplifier-hooks ([a-z][\w-]*)")


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
    monkeypatch.chdir(tmp_path)  # what a block writes is nobody else's
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


@pytest.mark.parametrize("document", [document for document in DOCUMENTS if any(blocks(document, "sh"))])
def test_commands_exist(document: str) -> None:
    """Every command a document tells to type answers to --help."""
    for command in sorted({name for block in blocks(document, "sh") for name in COMMAND.findall(block.text)}):
        program = "from amplifier_hooks.cli import main; main()"
        run = subprocess.run(
            [sys.executable, "-c", program, command, "--help"], check=False, capture_output=True, text=True
        )
        assert run.returncode == 0, f"{document}: amplifier-hooks {command}: {run.stderr}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    """Every relative link of a document leads to a file or folder of the checkout."""
    path = ROOT / document
    links = LINK.findall(path.read_text(encoding="utf-8"))
    assert not [link for link in links if not (path.parent / link).exists()]
