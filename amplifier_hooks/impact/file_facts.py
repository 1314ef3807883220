"""Answers from the file system, for callers of `predict_impact`. The analysis itself never imports this module."""

from __future__ import annotations

import os
import posixpath
import stat
from typing import Final

from attrs import define, field

from amplifier_hooks.impacts import FileFact, FileKind

LONGEST: Final = 1_000
"""Most characters of a path that every system takes."""


def is_share(path: str) -> bool:
    """Return True if a look at a path would log in at another machine, as Windows does for a share."""
    return os.sep == "\\" and path[:2].replace("\\", "/") == "//"


def ask_file_system(path: str) -> FileFact:
    """Return the path behind every link of an absolute path, and what lies there.

    An error counts as `unknown`, and so does a share, which is not looked at.
    """
    return FileSystem()(path)


@define(eq=False)
class FileSystem:
    """Answers about the paths of one call, which looks at each folder of them once."""

    _facts: dict[str, FileFact] = field(factory={"/": FileFact("/", "folder")}.copy)

    def __call__(self, path: str) -> FileFact:
        """Return what `ask_file_system` returns."""
        if is_share(path):
            return FileFact(path)
        try:
            plain = os.sep == "/" and path[:1] == "/" and path == posixpath.normpath(path) and path[:2] != "//"
            return self._look(path) if plain else _resolve(path)
        except ValueError:  # a text that no path can be
            return _resolve_text(path)

    def _look(self, path: str) -> FileFact:
        """Look at every part of a path, from the last one that is known."""
        facts, waiting = self._facts, []
        while (fact := facts.get(path)) is None:
            waiting.append(path)
            path = path.rpartition("/")[0] or "/"
        for one in reversed(waiting):
            real = one if fact.path == path else posixpath.join(fact.path, one.rpartition("/")[2])
            lost = fact.kind == "missing" and len(real) < LONGEST and real.isascii()
            fact = facts[one] = FileFact(real, "missing") if lost else _look_at(real)
            path = one
        return fact


def _look_at(path: str) -> FileFact:
    """Return what lies at a path that has no link but perhaps its last part."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return FileFact(path, "missing")
    except OSError:
        return FileFact(path)
    return _resolve(path) if stat.S_ISLNK(mode) else FileFact(path, _kind(mode))


def _resolve_text(path: str) -> FileFact:
    """Return the path behind links of a text that no path can be: behind a loop of links the system asks nothing."""
    try:
        return _resolve(path)
    except ValueError:
        return FileFact(path)


def _resolve(path: str) -> FileFact:
    """Return the path behind any links, and what lies there."""
    try:
        real = os.path.realpath(path)
    except OSError:
        return FileFact(path)
    try:
        return FileFact(real, _kind(os.stat(real).st_mode))  # noqa: PTH116  # pathlib refuses some texts that a system takes
    except FileNotFoundError:
        return FileFact(real, "missing")
    except (OSError, ValueError):
        return FileFact(real)


def _kind(mode: int) -> FileKind:
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"
