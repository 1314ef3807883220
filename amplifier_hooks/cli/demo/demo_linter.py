"""The linter of the demo: ruff where it is there, and where it is not a few lines that find the same."""

from __future__ import annotations

import ast
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import field, frozen

from amplifier_hooks.definitions.kinds.run_program import Programs

if TYPE_CHECKING:
    from collections.abc import Iterator


OPTIONS: Final = ("check", "--isolated", "--no-cache", "--output-format", "concise", "--quiet")
FINDINGS: Final = 1
"""How ruff exits when it found something; above that it could not look."""


@frozen
class Linter:
    """What looks at a file. Without a `program` it is `unused_imports`."""

    program: str | None = None
    programs: Programs = field(factory=Programs)

    @classmethod
    def found(cls) -> Linter:
        """The ruff beside this Python, or the one on the path, or none."""
        beside = Path(sys.executable).with_name("ruff")
        return cls(os.fspath(beside) if os.access(beside, os.X_OK) else shutil.which("ruff"))

    @property
    def name(self) -> str:
        """What it is called."""
        return "a check of our own" if self.program is None else "ruff"

    async def findings(self, folder: Path, name: str) -> list[str]:
        """A line for each thing that is wrong with this file. Raises what running a program raises, and `OSError`."""
        if self.program is None:
            return list(_own(folder, name))
        ended = await self.programs.run(
            [self.program, *OPTIONS, name], feed=b"", env=dict(os.environ), cwd=os.fspath(folder)
        )
        if ended.code > FINDINGS:
            raise OSError(f"ruff could not look at {name}: {ended.errors.decode('utf-8', 'replace')}")
        return ended.output.decode("utf-8", "replace").splitlines()


def _own(folder: Path, name: str) -> Iterator[str]:
    for line, module in unused_imports((folder / name).read_text(encoding="utf-8")):
        yield f"{name}:{line}: `{module}` imported but unused"


def unused_imports(source: str) -> list[tuple[int, str]]:
    """Line and name of every plain import whose name does not occur again."""
    tree = ast.parse(source)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    return [(node.lineno, alias.name) for node in imports for alias in node.names if alias.name not in used]
