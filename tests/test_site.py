"""The site of the documents: every page is in its navigation, and a dead link fails the build."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.test_exports import listed

ROOT: Final = Path(__file__).parent.parent
CONFIGURATION: Final = (ROOT / "docs" / "zensical.toml").read_text("utf-8")


def script() -> Any:
    """Return the module scripts/site.py."""
    path = ROOT / "scripts" / "site.py"
    spec = importlib.util.spec_from_file_location("site_of_documents", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_document_is_in_the_navigation() -> None:
    """The navigation of the site has each page of docs/ and specs/, each front door, and nothing that is not there."""
    named = re.findall(r'= "([^"]+\.md)"', CONFIGURATION)
    doors = [f"docs/reference/{door}.md" for door in listed()]
    pages = [
        path.relative_to(ROOT).as_posix() for folder in ("docs", "specs") for path in ROOT.glob(f"{folder}/**/*.md")
    ]
    assert {*pages, *doors} - {*named} == set()
    assert [name for name in named if name not in doors and not (ROOT / name).exists()] == []
    assert len(named) == len({*named})


@pytest.mark.parametrize(
    ("link", "found"),
    [
        ('<a href="other.html">', []),
        ('<a href="other.html#there">', []),
        ('<a href="#here" id="here">', []),
        ('<a href="https://example.org/">', []),
        ('<a href="gone.html">', ["page.html: gone.html"]),
        ('<a href="other.html#gone">', ["page.html: other.html#gone"]),
        ('<img src="gone.png">', ["page.html: gone.png"]),
        ('<script src="https://example.org/x.js"></script>', ["page.html loads https://example.org/x.js"]),
        ('<link rel="stylesheet" href="//example.org/x.css">', ["page.html loads //example.org/x.css"]),
    ],
)
def test_dead_links_are_found(link: str, found: list[str], tmp_path: Path) -> None:
    """The check of the built pages names a link that leads nowhere, and a file that would come from elsewhere."""
    (tmp_path / "other.html").write_text('<h1 id="there">')
    (tmp_path / "page.html").write_text(link)
    assert [*script().dead_links(tmp_path)] == found


@pytest.mark.parametrize("name", ["llms.py", "decision_picture.py"])
def test_what_scripts_write_is_up_to_date(name: str) -> None:
    """llms.txt lists the pages as they are, and the picture of a decision shows the path as the code has it."""
    run = subprocess.run([sys.executable, str(ROOT / "scripts" / name)], check=False, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


def test_bars_in_code_are_bars() -> None:
    """A bar in the code of a table's cell is escaped for code hosts, and shown as a bar on the site."""
    text = "| `a \\| b` | c \\| d |\n`a \\| b`\n```text\n| `a \\| b` |\n```\n"
    assert script().without_escapes(text) == "| `a | b` | c \\| d |\n`a \\| b`\n```text\n| `a \\| b` |\n```\n"


def test_links_keep_their_targets(tmp_path: Path) -> None:
    """A README is the index of its folder, a file of code becomes a page, and text in a block of code stays."""
    pages = script().Pages(tmp_path)
    text = "[a](README.md) [b](../examples/deny.py) [c](../examples) [d](guide.md#x)\n```text\n[a](README.md)\n```\n"
    relinked, linked = pages.relinked(ROOT / "docs" / "new.md", text)
    assert relinked == (
        "[a](index.md) [b](../examples/deny.py.md) [c](../examples/index.md) [d](guide.md#x)\n"
        "```text\n[a](README.md)\n```\n"
    )
    assert {path.relative_to(ROOT).as_posix() for path in linked} == {
        "docs/README.md",
        "examples/deny.py",
        "examples",
        "docs/guide.md",
    }
