"""The promises of the page's files before a browser has read them."""

from __future__ import annotations

import gzip
import re
from importlib.resources import files
from typing import Final

import pytest

FILES: Final = {
    file.name: file.read_text("utf-8") for file in files("approval_backends.web").iterdir() if "." in file.name[1:]
}
PAGE: Final = {name: text for name, text in FILES.items() if name.endswith((".html", ".css", ".js"))}
SCRIPTS: Final = {name: text for name, text in PAGE.items() if name.endswith(".js")}

MARKUP: Final = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|setHTML|\beval\b|new Function|srcdoc"
OUTSIDE: Final = r"https?://(?!www\.w3\.org/2000/svg)|\bimport\(|url\("


@pytest.mark.rule("BCK-3")
@pytest.mark.fault("F-WS-13")
@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_scripts_make_no_markup(name: str) -> None:
    """No script turns a text into markup or into code."""
    assert re.findall(MARKUP, SCRIPTS[name]) == []


@pytest.mark.rule("BCK-3")
@pytest.mark.parametrize("name", sorted(PAGE))
def test_nothing_from_outside(name: str) -> None:
    """No file of the page names another place to load something from."""
    assert re.findall(OUTSIDE, PAGE[name]) == []


@pytest.mark.rule("BCK-3")
def test_nothing_inline() -> None:
    """The page itself has no script, no style and no handler in it, so that its policy can forbid them."""
    page = PAGE["index.html"]
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:", page) == []


@pytest.mark.rule("BCK-3")
def test_everything_named_is_there() -> None:
    """Every file that the page or a script loads is one of its own, and every one of them is loaded."""
    loaded = {*re.findall(r'(?:href|src)="assets/([^"]+)"', PAGE["index.html"])}
    for text in SCRIPTS.values():
        loaded |= set(re.findall(r'from "\./([^"]+)"', text))
    assert loaded == set(PAGE) - {"index.html"}


@pytest.mark.rule("BCK-3")
def test_every_icon_is_drawn() -> None:
    """Every icon that is used exists."""
    drawn = set(re.findall(r'<symbol id="i-([a-z]+)"', PAGE["index.html"]))
    named = set(re.findall(r"#i-([a-z]+)", "".join(PAGE.values())))
    named |= set(re.findall(r'\bicon\("([a-z]+)"', "".join(SCRIPTS.values())))
    assert named <= drawn


@pytest.mark.rule("BCK-3")
def test_weight() -> None:
    """The whole page is at most 60 KB as it is sent."""
    assert sum(len(gzip.compress(text.encode())) for text in PAGE.values()) <= 60 * 1024
