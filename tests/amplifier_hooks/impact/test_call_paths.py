"""The paths in a call, and the patterns that cover them."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplifier_hooks.impact.call_paths import CallPaths, matches, may_match, parse_patterns, patched_files
from amplifier_hooks.impact.places import ANY, ONE, UNKNOWN
from amplifier_hooks.text.matching import compile_path_glob
from tests.conftest import THOROUGH

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
    found = CallPaths("Write", arguments, str(folder)).find_match(parse_patterns(pattern))
    return None if found is None else found.text


@pytest.mark.rule("LIB-6", "BCK-9")
def test_patches() -> None:
    """The files of a patch are found in the format of coding agents and in that of git; other texts name none."""
    assert patched_files(AGENTS_PATCH) == ["notes.md", "src/a.py", "config/live.yaml", "old.py"]
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
    assert matches([pattern], [path]) == bool(compile_path_glob(pattern).fullmatch(path))


@pytest.mark.rule("LIB-6", "BCK-9")
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_accents(tmp_path: Path, form: Literal["NFC", "NFD"]) -> None:
    """Two spellings of an accent are equal."""
    name = unicodedata.normalize(form, "Bürö/Größe.txt")
    assert caught(tmp_path, "büro/**", file_path=name) is None
    assert caught(tmp_path, unicodedata.normalize("NFC", "bürö/**"), file_path=name) == name
    assert caught(tmp_path, unicodedata.normalize("NFD", "bürö/**"), file_path=name) == name


@pytest.mark.rule("LIB-6", "BCK-9")
@pytest.mark.parametrize(
    "spelt",
    [
        " .env ",
        "．ｅｎｖ",
        ".e\u200bnv",
        "src\\..\\.env",
        "//localhost/x/.env",
        "\\\\localhost\\c$\\.env",
        "\\\\?\\C:\\x\\.env",
        "$ANYWHERE/.env",
        "%APPDATA%\\.env",
        "${DIR}",
        "./" * 2_500 + ".env",
    ],
)
def test_spellings_of_tools(tmp_path: Path, spelt: str) -> None:
    """A path is caught as any tool may read it: padded, in wide letters, with backslashes, or with a variable."""
    assert caught(tmp_path, "**/.env", file_path=spelt) == spelt
    assert caught(tmp_path, "**/.env", edits=[{"path": spelt}]) == spelt


@pytest.mark.rule("LIB-6", "BCK-9")
@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("cat .en{v,x}", ".env"),
        ("cat $'.\\x65nv'", ".env"),
        ("cat .e*", ".e*"),
        ("cat .[e]nv", ".*nv"),
        ("cat conf*/.env", "conf*/.env"),
        ('cat "$X"', "…"),
        ("cat $X/.env", "…/.env"),
        ("a=.e; cat ${a}nv", ".env"),
        ("cd /etc && cat .env", ".env"),
        ("python3 -c \"print(open('.env').read())\"", ".env"),
        ("unknown-program --in=.env", ".env"),
        ("unknown-program $X", "…"),
        ("$X", "a command that only a run can tell"),
    ],
)
def test_paths_as_the_shell_reads_them(tmp_path: Path, command: str, text: str) -> None:
    """A pattern catches a path that a command has in any spelling of the shell, or may have."""
    assert caught(tmp_path, "**/.env", command=command) == text


@pytest.mark.rule("LIB-6", "BCK-9")
@pytest.mark.parametrize("command", ["cat *", "cat src/*.py", "kill $PID", "git commit -m '.*'", "ls src/?"])
def test_parts_that_cannot_become_the_path(tmp_path: Path, command: str) -> None:
    """A glob or a variable that cannot become the path is not caught."""
    assert caught(tmp_path, "**/.env", command=command) is None


SIGNS = st.sampled_from(["a", "b", ".", "/", UNKNOWN, ANY, ONE])


@pytest.mark.rule("LIB-6", "BCK-9")
@given(st.lists(PARTS, min_size=1, max_size=4), st.lists(SIGNS, max_size=6), st.data())
@settings(max_examples=400 if THOROUGH else 80)
def test_a_path_with_marks_matches_if_one_that_it_may_become_does(
    parts: list[str], signs: list[str], data: st.DataObject
) -> None:
    """A path with marks may match a pattern whenever a path that it may become matches."""
    pattern, path = "/" + "/".join(parts), "/" + "".join(signs)
    become = ""
    for sign in path:
        texts = {UNKNOWN: ["", "a", "a/b", ".env"], ANY: ["", "ab", "a.env"], ONE: ["a", "b"]}.get(sign, [sign])
        become += data.draw(st.sampled_from(texts))
    if "//" not in become and compile_path_glob(pattern).fullmatch(become):
        assert may_match(pattern, path)


@pytest.mark.rule("LIB-6", "BCK-9")
@pytest.mark.parametrize("share", ["\\\\host\\share\\x", "//host/share/x"])
def test_a_share_is_not_looked_at(tmp_path: Path, share: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows would log in at another machine for a look at its share, so a share counts as unresolved."""
    looked: list[str] = []

    def look(path: str) -> str:
        looked.append(path)
        return path

    monkeypatch.setattr("os.path.realpath", look)
    monkeypatch.setattr("os.sep", "\\")
    assert caught(tmp_path, "/nowhere/**", file_path=share) is not None
    assert looked
    assert not [path for path in looked if path[:2] in ("//", "\\\\")]
