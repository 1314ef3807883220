"""A program's settings file: it is found, read, compared, and written whole or not at all."""

from __future__ import annotations

import difflib
import json
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from amplifier_hooks.cli.common.terminal_io import stop
from amplifier_hooks.text.escape import for_terminal

if TYPE_CHECKING:
    from amplifier_hooks.programs.dialect import Dialect


def in_project(dialect: Dialect, project: Path) -> list[Path]:
    """Return the settings files in a project: the one that a team commits, and the user's own if there is one."""
    return [folder(project) / name for name in dialect.settings]


def folder(project: Path) -> Path:
    """Return the project's folder. Raises `BadParameter` if it is missing: a mistyped name is no new project."""
    if not project.is_dir():
        raise typer.BadParameter(f"{project} is no folder", param_hint="--project")
    return project.resolve()


def read_file(path: Path) -> tuple[dict[str, Any], str | None]:
    """Return settings and their text; an empty object and None if there is no file. Ends the command on an error."""
    try:
        text = path.read_text("utf-8")
        value = json.loads(text) if text.strip() else {}
    except FileNotFoundError:
        return {}, None
    except OSError as error:
        stop(f"{path} cannot be read: {error.strerror}")
    except (ValueError, RecursionError) as error:
        stop(f"{path} is no JSON: {error}; mend it first, nothing was changed")
    if not isinstance(value, dict):
        stop(f"{path} is no JSON object; mend it first, nothing was changed")
    return value, text


def file_text(settings: dict[str, Any]) -> str:
    """Return the text of settings, formatted as the other programs format it."""
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


TOKEN: Final = re.compile(r"(Bearer )[\w-]{20,}")


def difference(path: Path, before: str, after: str) -> None:
    """Print the change line by line, without tokens."""
    before, after = (TOKEN.sub(r"\1…", text) for text in (before, after))
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", os.fspath(path), lineterm="")
    for line in lines:
        print(for_terminal(line))


def replace(path: Path, text: str, *, private: bool = False) -> None:
    """Write a file whole, or not at all. Its permissions stay as they are; a `private` one is for its owner alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    if private:
        mode &= 0o700
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    Path(name).chmod(mode)
    Path(name).replace(path)


def remove(path: Path) -> None:
    """Remove a file, and its folder if nothing else is in it."""
    path.unlink()
    with suppress(OSError):
        path.parent.rmdir()
