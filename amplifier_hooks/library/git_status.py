"""The state of the repository, injected when a session starts.

A repository may be hostile: its own configuration can name programs that git would run. None of them runs: monitors and
hooks are off, filters that a repository names are emptied before the question, submodules are left alone, nothing is
fetched, and nothing is written. The output of git is labelled as git's, because others choose the names of files. The
hook fails open.

```python
from subprocess import run
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import GitStatus

registry = HookRegistry()
GitStatus().register(registry)
run(["git", "init", "--quiet", "--initial-branch=main", "."], check=True)
print((await registry.emit("session:start", {})).context_injection)
```

```output
git status of this folder when the session started:
## No commits yet on main
```
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from amplifier_hooks.definitions.kinds.command import SAFE_GIT, git_settings
from amplifier_hooks.events import SESSION_RESUME, SESSION_START
from amplifier_hooks.library.parts.command_runner import PROBLEMS, CommandRunner, ExternalHandler
from amplifier_hooks.library.parts.ready_made import HookSettings, Point, ReadyMade, folder_of
from amplifier_hooks.result import CONTINUE, HookResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


PRIORITY: Final = 410

GRACE: Final = 5.0

NO_REPOSITORY: Final = 128
"""Exit status of git if there is no repository, or none that git would read."""

HARMLESS: Final = (
    *SAFE_GIT,
    ("core.untrackedCache", "false"),
    ("core.pager", "cat"),
    ("color.ui", "false"),
    ("log.showSignature", "false"),
    ("protocol.allow", "never"),
    ("safe.bareRepository", "explicit"),
    ("status.showUntrackedFiles", "normal"),
    ("submodule.recurse", "false"),
)
"""Configuration that overrides that of the repository."""

ENVIRONMENT: Final = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_ATTR_NOSYSTEM": "1",
    "LC_ALL": "C",
}

RUNS: Final = (".clean", ".smudge", ".process")
"""Endings of the configuration names whose values git would run on the content of files."""


class GitStatusSettings(HookSettings):
    """The folder, the number of files, and the timeout."""

    cwd: str = Field(default="", description="the folder to look at; the session's")
    lines: int = Field(default=40, ge=1, le=1_000, description="changed files that are told; of others, how many")
    seconds: float = Field(default=10.0, gt=0, le=27, description="how long git may take for each of two questions")


class GitStatus(ReadyMade[GitStatusSettings]):
    """Tells the agent the branch and the changed files when a session starts; runs nothing that a repository names."""

    name = "git_status"
    Settings = GitStatusSettings

    def __init__(self, settings: GitStatusSettings | None = None, *, commands: CommandRunner | None = None) -> None:
        super().__init__(settings)
        self._commands = CommandRunner() if commands is None else commands

    def points(self) -> tuple[Point, ...]:
        """Return hooks at the start and the resumption of a session."""
        call = ExternalHandler("git", self.on_session_start)
        seconds = 2 * self.settings.seconds + GRACE
        return tuple(
            Point(event=event, call=call, intent="on", priority=PRIORITY, timeout=seconds)
            for event in (SESSION_START, SESSION_RESUME)
        )

    async def on_session_start(self, event: str, data: Mapping[str, Any]) -> HookResult:  # a hook's
        """Ask git, and inject its output. Without a repository or without git, show the user one line."""
        folder = folder_of(self.settings.cwd, data)
        question = ("status", "--porcelain=v1", "--branch", "--ignore-submodules=all", "--untracked-files=normal")
        try:
            filters = await self._filters(folder)
            code, said = await self._git(folder, *question, filters=filters)
        except PROBLEMS as problem:
            return HookResult(user_message=f"git status: {problem}", user_message_level="warning")
        if code == NO_REPOSITORY:
            return HookResult(user_message=f"git status: no repository in {folder!r} that git would read")
        if code != 0:
            return HookResult(user_message=f"git status: git ended with status {code}", user_message_level="warning")
        said = os.fsencode(said).decode("utf-8", "backslashreplace")
        branch, *changed = said.splitlines() or [""]
        told = changed[: self.settings.lines]
        if len(changed) > len(told):
            told.append(f"… and {len(changed) - len(told):,} more")
        if not branch:
            return CONTINUE
        return HookResult.inject("\n".join(["git status of this folder when the session started:", branch, *told]))

    async def _filters(self, folder: str) -> list[tuple[str, str]]:
        """Return configuration that disables the filters of the repository. Reading the configuration runs nothing."""
        _, said = await self._git(folder, "config", "--list", "--name-only", "-z")
        names = dict.fromkeys(name for name in said.split("\0") if name.startswith("filter."))
        off = [(name, "") for name in names if name.endswith(RUNS)]
        return off + [(name, "false") for name in names if name.endswith(".required")]

    async def _git(self, folder: str, *question: str, filters: Iterable[tuple[str, str]] = ()) -> tuple[int, str]:
        argv = ["git", "--no-pager", *question]
        env = {**ENVIRONMENT, **git_settings((*HARMLESS, *filters))}
        ended = await self._commands.run(argv, cwd=folder, seconds=self.settings.seconds, **env)
        # Bytes that are no text have to round-trip: the name of a filter can hold them.
        return ended.code, os.fsdecode(ended.output)
