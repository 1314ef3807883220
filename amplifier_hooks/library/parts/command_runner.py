"""A runner of programs for hooks. Texts of a program are labelled with the program, and never as the system's."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, frozen

from amplifier_hooks.definitions.kinds.command import NO_MONITOR, PASSED_ON, Programs, git_settings
from amplifier_hooks.errors import HookFailed, HookUnavailable, InvalidResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from amplifier_hooks.definitions.kinds.event_codec import ProgramExit
    from amplifier_hooks.result import HookResult


LONGEST: Final = 1024 * 1024
"""Bytes that a program may write. Its output is shortened later."""


@frozen
class ExternalHandler:
    """A handler whose texts come from a program. They are labelled with the program, and never as the system's."""

    origin: str
    handler: Callable[[str, Mapping[str, Any]], Awaitable[HookResult]]

    async def __call__(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Call the handler."""
        return await self.handler(event, data)


@define(eq=False)
class CommandRunner:
    """A runner of programs for a hook, each with a timeout."""

    programs: Programs = field(factory=lambda: Programs(longest=LONGEST))

    async def run(self, argv: Sequence[str], *, cwd: str, seconds: float, **env: str) -> ProgramExit:
        """Run a program without input, and wait for its end.

        The program sees the few variables that every command hook sees, and is also looked for beside this Python.
        Raise `HookUnavailable` if it cannot be started, `InvalidResult` if it writes without end, `HookFailed` at the
        timeout; the program is then ended with everything it started. Cancelling the call ends it, too.
        """
        seen = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        seen["PATH"] = os.pathsep.join(filter(None, (seen.get("PATH"), str(Path(sys.executable).parent))))
        seen |= {"NO_COLOR": "1", **git_settings(NO_MONITOR), **env}
        try:
            async with asyncio.timeout(seconds):
                return await self.programs.run(argv, feed=b"", env=seen, cwd=cwd)
        except TimeoutError:
            raise HookFailed(f"{argv[0]!r:.200} did not end within {seconds:g} s") from None


PROBLEMS: Final = (HookUnavailable, HookFailed, InvalidResult)
"""Errors that `CommandRunner.run` raises for a program that fails."""
