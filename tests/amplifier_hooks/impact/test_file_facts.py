"""Questions about paths: one look at each folder gives what a look at every path gives."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_hooks.impact.file_facts import FileSystem, ask_file_system
from amplifier_hooks.impacts import FileFact

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.rule("IMP-3", "IMP-5")

NAMES: Final = st.sampled_from(("a", "b", "c", "é", "\udc80", "\ud800", "..", ".", "", "n" * 300))
PATHS: Final = st.lists(NAMES, min_size=1, max_size=6).map("/".join)
ENTRIES: Final = st.tuples(st.sampled_from(("folder", "file", "link")), PATHS, PATHS)


def look_at(path: str) -> FileFact:
    """Return what the system itself says of one path."""
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError):
        return FileFact(path)
    try:
        mode = os.stat(real).st_mode
    except FileNotFoundError:
        return FileFact(real, "missing")
    except (OSError, ValueError):
        return FileFact(real)
    return FileFact(real, "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other")


def make(root: str, kind: str, name: str, target: str) -> None:
    """Make an entry, unless the system refuses it."""
    path = f"{root}/{name}"
    if not os.path.normpath(path).startswith(root):
        return
    try:
        if kind == "folder":
            os.makedirs(path)
        elif kind == "link":
            os.symlink(target if "c" in target else f"{root}/{target}", path)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except (OSError, ValueError):
        return


@example([("link", "b", "b/a")], ["b/\ud800"])
@given(st.lists(ENTRIES, max_size=12), st.lists(PATHS, min_size=1, max_size=12))
def test_a_call_gets_the_answers_of_the_system(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[str, str, str]], paths: list[str]
) -> None:
    """Links, loops, missing folders and odd names have the answers that the system gives for each path alone."""
    root = os.path.realpath(tmp_path_factory.mktemp("tree"))
    for kind, name, target in entries:
        make(root, kind, name, target)
    ask = FileSystem()
    for path in [f"{root}/{one}" for one in (*paths, *(name for _, name, _ in entries))]:
        assert ask(path) == ask_file_system(path) == look_at(path)


def test_each_folder_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call looks at each folder once, and at nothing below a folder that is missing."""
    looked: list[str] = []
    lstat = os.lstat

    def look(path: str) -> os.stat_result:
        looked.append(path)
        return lstat(path)

    monkeypatch.setattr(os, "lstat", look)
    ask = FileSystem()
    for name in ("a", "b", "gone/c/d", "gone/c/e"):
        ask(f"{tmp_path}/{name}")
    assert len(looked) == len(set(looked))
    assert [path for path in looked if path.startswith(f"{tmp_path}/")] == [
        f"{tmp_path}/{name}" for name in ("a", "b", "gone")
    ]
