"""Write llms.txt: the pages of the site for programs that read text, each with its first sentence.

    uv run scripts/llms.py          compare the file with the pages
    uv run scripts/llms.py --write  write it

The file follows llmstxt.org. Its order is that of the navigation in docs/zensical.toml.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parent.parent
FILE: Final = ROOT / "llms.txt"
OPTIONAL: Final = ("Rules", "Project")
"""Sections that a reader with little room may leave out."""


def main() -> None:
    """Compare the file with the pages, or write it."""
    parser = argparse.ArgumentParser(description="Write llms.txt.")
    parser.add_argument("--write", action="store_true", help="write the file, instead of comparing it")
    text = "\n".join(lines())
    if parser.parse_args().write:
        FILE.write_text(text, encoding="utf-8")
    elif not FILE.exists() or FILE.read_text(encoding="utf-8") != text:
        sys.exit("llms.txt differs from the pages; write it: uv run scripts/llms.py --write")


def lines() -> Iterator[str]:
    """Yield the lines of the file."""
    project = tomllib.loads((ROOT / "docs" / "zensical.toml").read_text(encoding="utf-8"))["project"]
    yield f"# {project['site_name']}\n"
    yield f"> {project['site_description']}\n"
    yield "Every page is Markdown, and the code in the pages is tested.\n"
    sections = [(title, part) for entry in project["nav"] for title, part in entry.items()]
    for optional in (False, True):
        if optional:
            yield "## Optional\n"
        for title, part in sections:
            if (title in OPTIONAL) is optional:
                if not optional:
                    yield f"## {title}\n"
                yield from (row(name, path) for name, path in pages(title, part))
                if not optional:
                    yield ""
    yield ""


def pages(title: str, part: Any) -> Iterator[tuple[str, str]]:
    """Yield the pages of a part of the navigation that the repository has, each with its title."""
    if isinstance(part, str):
        if (ROOT / part).exists():  # the entries of the reference are only on the site
            yield title, part
        return
    for entry in part:
        for name, inner in entry.items():
            yield from pages(name, inner)


def row(name: str, path: str) -> str:
    """Return the line of a page: its title with a link, and the first sentence of its text."""
    text = re.sub(r"<!--.*?-->|^#.*$|^!\[.*$|^\|.*$", "", (ROOT / path).read_text(encoding="utf-8"), flags=re.MULTILINE)
    paragraph = " ".join(text.strip().split("\n\n", maxsplit=1)[0].split())
    sentence = re.split(r"(?<=[.!?]) (?=[A-Z`])", re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", paragraph), maxsplit=1)[0]
    return f"- [{name}]({path}): {sentence}"


if __name__ == "__main__":
    main()
