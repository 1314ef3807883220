r"""Programs check every written file, and the agent mends their findings in the same turn.

A hook runs a linter, a type checker or the tests over the files that were just written. The agent reads the output in
the same turn, labelled as that of a program and not of the system; the user gets one line. All three fail open.

```python
from pathlib import Path
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import LinterFeedback

registry = HookRegistry()
LinterFeedback().register(registry)
Path("app.py").write_text("import os\n")
outcome = await registry.emit("tool:post", {"tool_name": "Write", "tool_input": {"file_path": "app.py"}})
print(outcome.context_injection)
```

```output
ruff on app.py:
app.py:1:8: F401 [*] `os` imported but unused
```
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import Field, field_validator

from amplifier_hooks.events import TOOL_POST
from amplifier_hooks.impact.call_paths import CallPaths, PathForms, TooManyParts, patched_files, texts_of
from amplifier_hooks.library.parts.command_runner import PROBLEMS, CommandRunner, ExternalHandler
from amplifier_hooks.library.parts.ready_made import HookSettings, Once, Point, ReadyMade, ToolMatch, folder_of
from amplifier_hooks.result import CONTINUE, HookResult
from amplifier_hooks.text.escape import clip, for_log

if TYPE_CHECKING:
    from amplifier_hooks.definitions.kinds.event_codec import ProgramExit


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

    def targets(self, path: Path, folder: Path) -> list[Path]:  # for those of one file
        """Return the files that the program has to check after this file was written: the file alone.

        Args:
            path: Path of the file that was written.
            folder: Folder of the session.
        """
        return [path]

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


class LinterFeedbackSettings(FeedbackSettings):
    """Settings of the linter, and of the writes after which it runs."""

    command: tuple[str, ...] = Field(
        default=("ruff", "check", "--quiet", "--no-fix", "--no-cache", "--output-format=concise", "{file}"),
        min_length=1,
        description="the linter and its arguments, without a shell; {file} stands for the files that were written",
    )


class LinterFeedback(Feedback[LinterFeedbackSettings]):
    """Runs a linter, ruff by default, over the files a tool has just written, and passes on its findings.

    The project's configuration decides what the linter does. For a project that is not trusted, choose a linter that
    runs no code of the project; ruff is one.
    """

    name = "linter_feedback"
    Settings = LinterFeedbackSettings


class TypeFeedbackSettings(FeedbackSettings):
    """Settings of the type checker, and of the writes after which it runs."""

    command: tuple[str, ...] = Field(
        default=("mypy", "--no-error-summary", "--no-pretty", "--follow-imports=silent", "{file}"),
        min_length=1,
        description="the checker and its arguments, without a shell; {file} stands for the files that were written",
    )
    files: tuple[str, ...] = Field(default=("*.py", "*.pyi"), description="which files it is for, by name; globs")
    seconds: float = Field(default=50.0, gt=0, le=55, description="how long it may take; the first time takes longest")


class TypeFeedback(Feedback[TypeFeedbackSettings]):
    r"""Runs a type checker, mypy by default, over the files a tool has just written.

    The project's configuration decides what the checker does, and mypy runs the plugins that it names: switch this hook
    on only in projects that are trusted.

    ```python
    from pathlib import Path
    from amplifier_hooks import HookRegistry
    from amplifier_hooks.library import TypeFeedback

    registry = HookRegistry()
    TypeFeedback.from_config({"seconds": 55}).register(registry)
    Path("app.py").write_text("x: int = 'one'\n")
    outcome = await registry.emit("tool:post", {"tool_name": "Write", "tool_input": {"file_path": "app.py"}})
    print(outcome.context_injection)
    ```

    ```output
    mypy on app.py:
    app.py:1: error: Incompatible types in assignment (expression has type "str", variable has type "int")  [assignment]
    ```
    """

    name = "type_feedback"
    Settings = TypeFeedbackSettings


MOST_TESTS: Final = 20
"""Test files that are run for one written file."""


class TestFeedbackSettings(FeedbackSettings):
    """Settings of the test runner, and the places of tests."""

    command: tuple[str, ...] = Field(
        default=("pytest", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "{file}"),
        min_length=1,
        description="the runner and its arguments, without a shell; {file} stands for the test files",
    )
    tests: tuple[str, ...] = Field(
        default=("tests/**/test_{name}.py", "test_{name}.py"),
        description="where the tests of a file are, as globs in the folder; {name} stands for its name without ending",
    )

    @field_validator("tests")
    @classmethod
    def _check_patterns(cls, tests: tuple[str, ...]) -> tuple[str, ...]:
        for glob in tests:
            if not glob.strip("./") or Path(glob).is_absolute():
                raise ValueError(f"has {glob!r:.80}; write it as it is in the folder, such as 'tests/test_{{name}}.py'")
        return tests

    findings: frozenset[int] = Field(
        default=frozenset({1, 2}), description="exit statuses that mean a test failed, or could not be loaded"
    )
    seconds: float = Field(default=50.0, gt=0, le=55, description="how long they may take")


class TestFeedback(Feedback[TestFeedbackSettings]):
    r"""Runs the tests of the files a tool has just written, with pytest by default; passes on what fails.

    A test runner runs the agent's code: switch this hook on only where the agent may run its code anyway.

    ```python
    from pathlib import Path
    from amplifier_hooks import HookRegistry
    from amplifier_hooks.library import TestFeedback

    registry = HookRegistry()
    TestFeedback.from_config({"seconds": 55}).register(registry)
    Path("test_app.py").write_text("def test_sum():\n    assert 1 + 1 == 3\n")
    outcome = await registry.emit("tool:post", {"tool_name": "Write", "tool_input": {"file_path": "test_app.py"}})
    print(outcome.context_injection.splitlines()[-2])
    ```

    ```output
    FAILED test_app.py::test_sum - assert (1 + 1) == 3
    ```
    """

    __test__ = False  # pytest would take it for tests
    name = "test_feedback"
    Settings = TestFeedbackSettings

    def targets(self, path: Path, folder: Path) -> list[Path]:
        """Return the file itself if it is a test, otherwise the tests that are named after it."""
        name = path.stem
        if any(fnmatchcase(path.name, glob.rpartition("/")[2].replace("{name}", "*")) for glob in self.settings.tests):
            return [path]
        if not name.isidentifier():
            return []
        found = (file for glob in self.settings.tests for file in folder.glob(glob.replace("{name}", name)))
        return list(dict.fromkeys(islice((file for file in found if file.is_file()), MOST_TESTS)))
