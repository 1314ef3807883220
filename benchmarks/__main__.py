"""List the benchmarks, or run one: `python -m benchmarks [NAME [OPTION ...]]`; with `--uvloop`, in the loops of uvloop.

A benchmark is a module beside this one with a `main(arguments)`; the first line of its docstring tells its subject.
"""

from __future__ import annotations

import ast
import asyncio
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
UVLOOP = "--uvloop"


def benchmarks() -> dict[str, str]:
    """Return the benchmarks with the first line of each docstring; it is read from the files, without an import."""
    found = {}
    for path in sorted(HERE.glob("[!_]*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in module.body):
            found[path.stem] = (ast.get_docstring(module) or "").partition("\n")[0]
    return found


def main(arguments: Sequence[str]) -> None:
    """Run the benchmark that is named, or list them all."""
    known = benchmarks()
    name, *rest = [one for one in arguments if one != UVLOOP] or ("",)
    if name in known:
        if UVLOOP in arguments:
            uvloop = import_module("uvloop")  # of the group `benchmarks`
            asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
        import_module(f"benchmarks.{name}").main(rest)
        return
    print("python -m benchmarks NAME [--quick] [--write] [--uvloop]\n")
    for known_name, what in known.items():
        print(f"  {known_name:10} {what}")
    if name not in ("", "-h", "--help"):
        sys.exit(f"\nthere is no benchmark {name!r}")


if __name__ == "__main__":
    main(sys.argv[1:])
