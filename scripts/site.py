"""Build the documents as a site in .site/html/, and fail on a dead link.

    uv run --group docs scripts/site.py   build, and check every link of the built pages
    uv run scripts/site.py --no-build     write the pages that the build reads to .site/pages/, and stop

`--into FOLDER` takes another folder than .site.

The tree of the site is that of the repository, so that links between documents lead to the same pages in both. A file
of another kind that a document links to, such as an example, gets a page with its text; a folder gets a list of its
files. The reference has a page for each front door, written from docstrings by scripts/reference.py. mkdocstrings works
with Zensical, but leaves out the options that a `TypedDict` names, which are most options here, and brings MkDocs.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT: Final = Path(__file__).parent.parent
DOCUMENTS: Final = ("*.md", "docs/**/*.md", "examples/**/*.md", "specs/**/*.md", "benchmarks/RESULTS.md")
ASSETS: Final = ("docs/images/*", "docs/site.css", "docs/site.js", "llms.txt")
CONFIGURATION: Final = "docs/zensical.toml"
LINK: Final = re.compile(r"(\]\((?!\w+:|#))([^)#\s]+)")
FENCE: Final = re.compile(r"\s*(`{3,})")
LANGUAGES: Final = {".py": "python", ".sh": "sh", ".toml": "toml", ".yaml": "yaml", ".json": "json"}


def main() -> None:
    """Build the site, or only its pages."""
    parser = argparse.ArgumentParser(description="Build the documents as a site.")
    parser.add_argument("--no-build", action="store_true", help="write the pages only")
    parser.add_argument("--into", type=Path, default=ROOT / ".site", metavar="FOLDER", help="the folder of the site")
    given = parser.parse_args()
    folder = given.into.resolve()
    Pages(folder / "pages").write()
    if not given.no_build:
        build(folder)


def build(folder: Path) -> None:
    """Build the site from its pages. Exit with an error if a page has a dead link."""
    pages, html = folder / "pages", folder / "html"
    configuration = (ROOT / CONFIGURATION).read_text(encoding="utf-8").replace("README.md", "index.md")
    (folder / "zensical.toml").write_text(configuration, encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(folder / "zensical.toml")]
    run = subprocess.run(command, check=False)
    if run.returncode:
        sys.exit("the site was not built")
    for page in html.glob("**/*.html"):  # a header cell without text says nothing to a screen reader
        page.write_text(page.read_text(encoding="utf-8").replace("<th></th>", "<td></td>"), encoding="utf-8")
    for page in pages.glob("**/*.md"):  # llms.txt leads to the pages' sources
        shutil.copy(page, html / page.relative_to(pages))
    dead = sorted(dead_links(html))
    if dead:
        sys.exit("\n".join(["dead links:", *dead]))
    links = [len(Page.read(page).links) for page in html.glob("**/*.html")]
    print(f"{len(links)} pages with {sum(links)} links, none of them dead: {html / 'index.html'}")


# -- pages that the build reads ----------------------------------------------------------------------------------------


class Pages:
    """The pages that the build reads, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self) -> None:
        """Write every page, with the files that pages show."""
        shutil.rmtree(self.folder.parent, ignore_errors=True)
        waiting = [file for pattern in (*DOCUMENTS, *ASSETS) for file in sorted(ROOT.glob(pattern))]
        written = {*waiting}
        while waiting:
            file = waiting.pop()
            place = self.place(file)
            place.parent.mkdir(parents=True, exist_ok=True)
            if is_asset(file):
                shutil.copy(file, place)
                continue
            text, linked = self.page(file)
            place.write_text(text, encoding="utf-8")
            waiting += linked - written
            written |= linked
        reference = self.folder / "docs" / "reference"
        script = ROOT / "scripts" / "reference.py"
        subprocess.run([sys.executable, str(script), "--site", str(reference)], check=True)
        for page in self.folder.glob("**/*.md"):
            page.write_text(without_escapes(page.read_text(encoding="utf-8")), encoding="utf-8")

    def place(self, file: Path) -> Path:
        """Return the place of a file's page; that of a README is its folder's index. The build skips dot folders."""
        name = Path(*(part.lstrip(".") for part in file.relative_to(ROOT).parts))
        if file.is_dir():
            name /= "index.md"
        elif file.suffix == ".md":
            name = name.with_name(name.name.replace("README.md", "index.md"))
        elif not is_asset(file):
            name = name.with_name(f"{name.name}.md")
        return self.folder / name

    def page(self, file: Path) -> tuple[str, set[Path]]:
        """Return the text of a file's page, and the files that it links to."""
        title = f"# {file.relative_to(ROOT)}\n\n"
        if file.is_dir():
            names = sorted(path.name for path in file.iterdir() if not path.name.startswith(("_", ".")))
            return self.relinked(file / "index.md", title + "".join(f"- [{name}]({name})\n" for name in names))
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".md":
            return self.relinked(file, text)
        return f"{title}``````{LANGUAGES.get(file.suffix, 'text')}\n{text}``````\n", set()

    def relinked(self, file: Path, text: str) -> tuple[str, set[Path]]:
        """Return the text with links that lead to pages of the site, and the files behind these pages."""
        linked: set[Path] = set()

        def lead(found: re.Match[str]) -> str:
            target = (file.parent / found[2]).resolve()
            if not target.exists():
                return found[0]
            readme = target / "README.md"
            target = readme if readme.exists() else target
            linked.add(target)
            return found[1] + relpath(self.place(target), self.place(file).parent)

        return changed_lines(text, lambda line: LINK.sub(lead, line)), linked


def without_escapes(text: str) -> str:
    """Return the text for the build, which takes a bar in code for a bar, also in a table, where code hosts do not."""
    bars = re.compile(r"`[^`]+`")
    return changed_lines(
        text,
        lambda line: bars.sub(lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line,
    )


def changed_lines(text: str, change: Callable[[str], str]) -> str:
    """Return the text with each line changed that stands in no block of code."""
    fence, lines = "", []
    for line in text.splitlines(keepends=True):
        mark = FENCE.match(line)
        if mark and (not fence or mark[1] == fence):
            fence = "" if fence else mark[1]
        lines.append(line if fence else change(line))
    return "".join(lines)


def is_asset(file: Path) -> bool:
    """Return True for a file that the site has as it is."""
    return any(file.relative_to(ROOT).match(pattern) for pattern in ASSETS)


# -- links of the built pages ------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The addresses that a page leads to or loads, and the names of its places."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.names: set[str] = set()

    @classmethod
    def read(cls, file: Path) -> Page:
        """Read a built page."""
        page = cls()
        page.feed(file.read_text(encoding="utf-8"))
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the addresses of a tag, and its names."""
        given = {name: value for name, value in attrs if value is not None}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("img", "script", "iframe", "source") and "src" in given:
            self.loads.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loads.append(given["href"])


def dead_links(html: Path) -> Iterator[str]:
    """Name each link that leads nowhere, and each file that a page would load from elsewhere."""
    pages = {file.resolve(): Page.read(file) for file in sorted(html.glob("**/*.html"))}
    for file, page in pages.items():
        here = file.relative_to(html.resolve())
        for address in (*page.links, *page.loads):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.loads:
                    yield f"{here} loads {address}"
                continue
            start = html if parts.path.startswith("/") else file.parent
            target = (start / unquote(parts.path).lstrip("/")).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            known = pages.get(target)
            if not target.is_file() or (parts.fragment and known and unquote(parts.fragment) not in known.names):
                yield f"{here}: {address}"


if __name__ == "__main__":
    main()
