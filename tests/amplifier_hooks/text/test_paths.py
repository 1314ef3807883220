"""The paths in a call, and the patterns that cover them."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks.text.paths import CallPaths, _compile, matches, parse_patterns, patched_files

if TYPE_CHECKING:
    from pathlib import Path

AGENTS_PATCH = """*** Begin Patch
*** Add File: notes.md
+hello
*** Update File: src/a.py
*** Move to: config/live.yaml
@@
-x
*** Delete File: old.py
*** End Patch
"""
GIT_PATCH = """diff --git a/src/a.py b/config/live.yaml
similarity index 100%
rename from src/a.py
rename to config/live.yaml
--- a/src/a.py\t2026-01-01
+++ b/config/live.yaml
@@ -1 +1 @@
"""


def caught(folder: Path, pattern: str, **arguments: Any) -> str | None:
    """Return the path that a pattern catches."""
    found = CallPaths(arguments, str(folder)).find_match(parse_patterns(pattern))
    return None if found is None else found.text


@pytest.mark.rule("LIB-6", "BCK-9")
def test_patches() -> None:
    """The files of a patch are found in the format of coding agents and in that of git; other texts name none."""
    assert patched_files(AGENTS_PATCH) == [
        name for name in ("notes.md", "src/a.py", "config/live.yaml", "old.py") for _ in range(2)
    ]
    assert {"src/a.py", "config/live.yaml"} <= set(patched_files(GIT_PATCH))
    assert patched_files("# Title\n---\n*** Add File: x is how it begins\n") == []


@pytest.mark.rule("LIB-6", "BCK-9")
@pytest.mark.parametrize("patch", [AGENTS_PATCH, GIT_PATCH], ids=["agents", "git"])
def test_patched(tmp_path: Path, patch: str) -> None:
    """A pattern catches a file that only a patch names, whatever the name of the argument."""
    assert caught(tmp_path, "config/**", input=patch) == "config/live.yaml"
    assert caught(tmp_path, "config/**", deep=[{"patch": patch}]) == "config/live.yaml"
    assert caught(tmp_path, "elsewhere/**", input=patch) is None


@pytest.mark.rule("LIB-6", "BCK-9")
@pytest.mark.parametrize(
    "spelt",
    [
        "config/live.yaml",
        "./src/../config//live.yaml",
        "CONFIG/Live.YAML",
        "link/live.yaml",
        "config%2Flive.yaml",
        "config%252Flive.yaml",
        "%63%6F%6E%66%69%67/live.yaml",
        "file:config/live.yaml",
        "config/live.yaml/",
    ],
)
def test_disguises(tmp_path: Path, spelt: str) -> None:
    """A path is caught in every spelling."""
    (tmp_path / "config").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "config")
    assert caught(tmp_path, "config/live.yaml", file_path=spelt) is not None
    assert caught(tmp_path, f"{tmp_path}/config/live.yaml", file_path=spelt) is not None


NAMES = st.sampled_from(["a", "b", "ab", ".env", "x[y", "a-b", "Ä", "a\u0308"])
PARTS = st.sampled_from(["a", "*", "**", "?b", "a*", "*.e*v", "[ab]", "[!a]*", ".env", "a-b", "Ä"])


@pytest.mark.rule("LIB-6", "BCK-9")
@given(st.lists(PARTS, min_size=1, max_size=4), st.lists(NAMES, max_size=5))
def test_quick_look(parts: list[str], names: list[str]) -> None:
    """The quick test of literals rejects no match."""
    pattern, path = "/" + "/".join(parts), "/" + "/".join(names)
    assert matches([pattern], [path]) == bool(_compile(pattern).fullmatch(path))


@pytest.mark.rule("LIB-6", "BCK-9")
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_accents(tmp_path: Path, form: str) -> None:
    """Two spellings of an accent are equal."""
    name = unicodedata.normalize(form, "Bürö/Größe.txt")  # type: ignore[arg-type]
    assert caught(tmp_path, "büro/**", file_path=name) is None
    assert caught(tmp_path, unicodedata.normalize("NFC", "bürö/**"), file_path=name) == name
    assert caught(tmp_path, unicodedata.normalize("NFD", "bürö/**"), file_path=name) == name
