"""Modules that a program imports on its event loop, counted in an interpreter of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from textwrap import indent

__all__ = ["MOST", "WATCH", "imported_on_the_loop"]

MOST = 8
"""Modules that a first call may import on the loop."""

WATCH = """
import json, sys, threading

class Watch:
    on, seen, thread = False, [], threading.get_ident()

    def find_spec(self, name, path=None, target=None):
        if self.on and threading.get_ident() == self.thread:
            self.seen.append(name)

watch = Watch()
sys.meta_path.insert(0, watch)
"""

PROGRAM = """
import asyncio

async def main():
__BODY__

asyncio.run(main())
watch.on = False
print(json.dumps(watch.seen))
"""


def imported_on_the_loop(body: str) -> list[str]:
    """Return the modules that this body of a coroutine imports in the loop's thread, once it has set `watch.on`."""
    source = WATCH + PROGRAM.replace("__BODY__", indent(body.strip("\n"), "    "))
    run = subprocess.run([sys.executable, "-c", source], check=True, capture_output=True, text=True)
    names: list[str] = json.loads(run.stdout.splitlines()[-1])
    return names
