"""Programs that ready-made hooks run: where they are, what they see, and what is said when they cannot be had."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, frozen

from amplifier_hooks.definitions.kinds.command import PASSED_ON
from amplifier_hooks.definitions.kinds.run_program import Programs
from amplifier_hooks.errors import HookFailed, HookUnavailable, InvalidResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from amplifier_hooks.definitions.kinds.event_codec import Ended
    from amplifier_hooks.result import HookResult


LONGEST: Final = 1024 * 1024
"""Bytes a program may write; what is made of them is shorter."""


@frozen
class Spoken:
    """A handler whose texts are a program's: they are labelled with it, and never stand in the system's name."""

    origin: str
    handler: Callable[[str, Mapping[str, Any]], Awaitable[HookResult]]

    async def __call__(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """As the handler."""
        return await self.handler(event, data)


@define(eq=False)
class Commands:
    """Runs programs for a hook, each within its time."""

    programs: Programs = field(factory=lambda: Programs(longest=LONGEST))

    async def run(self, argv: Sequence[str], *, cwd: str, seconds: float, **env: str) -> Ended:
        """Run it, without input, and wait for its end.

        It sees the few variables every command hook sees, and programs are also looked for beside this Python.
        Raises `HookUnavailable` when it cannot be started, `InvalidResult` when it writes without end, `HookFailed`
        when its time is up; it is then ended with everything it started. Cancelling it does the same.
        """
        seen = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        seen["PATH"] = os.pathsep.join(filter(None, (seen.get("PATH"), str(Path(sys.executable).parent))))
        seen |= {"NO_COLOR": "1", **env}
        running = asyncio.ensure_future(self.programs.run(argv, feed=b"", env=seen, cwd=cwd))
        try:
            await asyncio.wait({running}, timeout=seconds)
        finally:
            late = not running.done()
            if late:
                running.cancel()
                await asyncio.wait({running})
        if late:
            raise HookFailed(f"{argv[0]!r:.200} did not end within {seconds:g} s")
        return running.result()


PROBLEMS: Final = (HookUnavailable, HookFailed, InvalidResult)
"""What `Commands.run` raises for a program that cannot be had."""


def folder_of(cwd: str, data: Mapping[str, Any]) -> str:
    """The folder a setting means; if it is empty that of the session, and where nobody knows that, of this program."""
    told = data.get("cwd")
    known = told if isinstance(told, str) and os.path.isabs(told) else Path.cwd()  # noqa: PTH117  # text, on purpose
    return os.path.abspath(os.path.expanduser(cwd) or known)  # noqa: PTH100, PTH111  # links stay as they are written
