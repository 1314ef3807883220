"""Answers from the file system, for callers of `predict_impact`. The analysis itself never imports this module."""

from __future__ import annotations

import os
import stat

from amplifier_hooks.impacts import FileFact, FileKind


def is_share(path: str) -> bool:
    """Return True if a look at a path would log in at another machine, as Windows does for a share."""
    return os.sep == "\\" and path[:2].replace("\\", "/") == "//"


def ask_file_system(path: str) -> FileFact:
    """Return the path behind every link of an absolute path, and what lies there.

    An error counts as `unknown`, and so does a share, which is not looked at.
    """
    if is_share(path):
        return FileFact(path)
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError):
        return FileFact(path)
    try:
        mode = os.stat(real).st_mode  # noqa: PTH116  # pathlib refuses some texts that a system takes
    except FileNotFoundError:
        return FileFact(real, "missing")
    except (OSError, ValueError):
        return FileFact(real)
    kind: FileKind = "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"
    return FileFact(real, kind)
