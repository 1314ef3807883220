"""The common part of the linter, type checker and test hooks, and the programs that they run.

A hook runs a program over the files that were just written. The agent reads its output in the same turn, labelled as
that of a program and not of the system; the user gets one line.
"""

from __future__ import annotations

import asyncio
import os
import sys
from abc import abstractmethod
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from attrs import define, field, frozen
from pydantic import Field, field_validator

from amplifier_hooks.definitions.kinds.command import PASSED_ON, Programs
from amplifier_hooks.errors import HookFailed, HookUnavailable, InvalidResult
from amplifier_hooks.events import TOOL_POST
from amplifier_hooks.impact.call_paths import CallPaths, PathForms, TooManyParts, patched_files, texts_of
from amplifier_hooks.library.parts.ready_made import HookSettings, Once, Point, ReadyMade, ToolMatch
from amplifier_hooks.result import CONTINUE, HookResult
from amplifier_hooks.text.escape import clip, for_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from amplifier_hooks.definitions.kinds.event_codec import ProgramExit


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
"""Errors that `CommandRunner.run` raises for a program that fails."""


def folder_of(cwd: str, data: Mapping[str, Any]) -> str:
    """Return the folder of a setting; if it is empty, the session's, and without one this program's."""
    told = data.get("cwd")
    known = told if isinstance(told, str) and os.path.isabs(told) else Path.cwd()  # noqa: PTH117  # text, on purpose
    return os.path.abspath(os.path.expanduser(cwd) or known)  # noqa: PTH100, PTH111  # links stay as they are written


WRITERS: Final = "Write|Edit|MultiEdit|NotebookEdit|apply_patch"
"""Tools of common agent programs that write files."""

WRITTEN: Final = ("file_path", "notebook_path", "path", "filename")
"""Arguments of those tools that name the file."""

MOST_FILES: Final = 20
"""Files of one call that are checked."""

GRACE: Final = 5.0
"""Seconds that a hook may take beyond its command, so that the command reaches its timeout first."""


class FeedbackSettings(HookSettings):
    """The program, and the writes after which it runs."""

    command: tuple[str, ...] = Field(
        default=(),
        min_length=1,
        description="the program and its arguments, without a shell; {file} stands for the files that were written",
    )
    files: tuple[str, ...] = Field(default=("*.py",), description="which files it is for, by name; globs")
    match: ToolMatch = Field(default=WRITERS, description="the tools that write files")
    findings: frozenset[int] = Field(
        default=frozenset({1}), description="exit statuses that mean it has found something; others but 0 are trouble"
    )
    seconds: float = Field(default=20.0, gt=0, le=55, description="how long it may take")
    cwd: str = Field(default="", description="the folder it runs in, and relative paths are in; the session's")
    longest: int = Field(default=8_000, ge=200, le=64_000, description="bytes of what it says that are passed on")

    @field_validator("command")
    @classmethod
    def _check_command(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if any("{file}" in part and part != "{file}" for part in command):
            raise ValueError("write {file} as an argument of its own; it may stand for several")
        return command


S = TypeVar("S", bound=FeedbackSettings)


class Feedback(ReadyMade[S]):
    """A hook that runs a program over the files that were just written."""

    def __init__(self, settings: S | None = None, *, commands: CommandRunner | None = None) -> None:
        super().__init__(settings)
        self._commands = CommandRunner() if commands is None else commands
        self._once = Once()

    def points(self) -> tuple[Point, ...]:
        """Return a hook after tools that write."""
        call = ExternalHandler(Path(self.settings.command[0]).name, self.after)
        seconds = self.settings.seconds + GRACE
        return (
            Point(event=TOOL_POST, call=call, intent="on", priority=310, match=self.settings.match, timeout=seconds),
        )

    @abstractmethod
    def targets(self, path: Path, folder: Path) -> list[Path]:
        """Return the files that the program has to check after this file was written."""

    async def after(self, event: str, data: Mapping[str, Any]) -> HookResult:  # a hook's
        """Run the program over the written files, and inject its findings.

        A program that is missing, hangs or fails causes one warning in a session, and nothing else.
        """
        folder = folder_of(self.settings.cwd, data)
        targets = dict.fromkeys(
            target
            for file in self._written_files(data.get("tool_input"), folder)
            for target in self.targets(file, Path(folder))
        )
        if not targets:
            return CONTINUE
        names = [os.fspath(target) for target in targets]
        argv = [part for given in self.settings.command for part in (names if given == "{file}" else [given])]
        try:
            ended = await self._commands.run(argv, cwd=folder, seconds=self.settings.seconds)
        except PROBLEMS as problem:
            return self._trouble_result(data, str(problem))
        if ended.code == 0:
            return CONTINUE
        said = self._output_text(ended)
        if ended.code not in self.settings.findings or not said:
            silent = "" if said else ", and said nothing"
            return self._trouble_result(data, f"{argv[0]!r:.200} {ended.in_words}{silent}", said)
        about = ", ".join(for_log(target.name) for target in targets)
        return HookResult.inject(
            f"{Path(argv[0]).name} on {about}:\n{said}", user_message=f"{Path(argv[0]).name} has findings in {about}"
        )

    def _written_files(self, value: object, folder: str) -> list[Path]:
        """Return the files that a call wrote, as far as they exist and match the settings."""
        if not isinstance(value, Mapping):
            return []
        where = CallPaths("", value, folder)
        try:
            texts = [text for text in where.arguments_named(WRITTEN).values() if isinstance(text, str)]
            texts += [name for text in texts_of([*value.values()]) for name in patched_files(text)]
            found = [where.resolve(text) for text in texts]
        except TooManyParts:
            return []
        files = dict.fromkeys(Path(forms.lexical) for forms in found if isinstance(forms, PathForms))
        meant = (file for file in files if any(fnmatchcase(file.name, glob) for glob in self.settings.files))
        return [file for file in meant if file.is_file()][:MOST_FILES]

    def _output_text(self, result: ProgramExit) -> str:
        """Return the program's output, cut at the end of a line."""
        text = (result.output.strip() or result.errors.strip()).decode("utf-8", "backslashreplace")
        lines = text.splitlines()
        while lines and len("\n".join(lines).encode("utf-8", "surrogatepass")) > self.settings.longest:
            lines = lines[: len(lines) * 3 // 4]
        if text and not lines:
            return clip(text.splitlines()[0], self.settings.longest)
        left = len(text.splitlines()) - len(lines)
        return "\n".join([*lines, f"… and {left:,} more lines"] if left else lines)

    def _trouble_result(self, data: Mapping[str, Any], problem: str, output: str = "") -> HookResult:
        if not self._once.is_first(data, problem):
            return CONTINUE
        more = f": {for_log(output)[:300]}" if output else ""
        return HookResult(user_message=f"{problem}{more}; this warning appears once", user_message_level="warning")
