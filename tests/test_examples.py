"""Every example runs and prints what it says it prints."""

import ast
import subprocess
import sys
from inspect import cleandoc
from pathlib import Path
from textwrap import dedent

import pytest

EXAMPLES = sorted(Path(__file__).parent.parent.joinpath("examples").glob("*.py"))


def promised(example: Path) -> str:
    """Read what follows the line `Prints:` in the docstring of an example."""
    docstring = cleandoc(ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or "")
    _, found, output = f"\n{docstring}".partition("\nPrints:\n")
    assert found, f"{example.name} does not say what it prints"
    return dedent(output).strip()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_example(example: Path, tmp_path: Path) -> None:
    """An example, run in an empty folder with nobody at the keyboard, prints what its docstring promises."""
    run = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        check=False,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == promised(example)
