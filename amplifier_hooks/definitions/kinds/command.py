"""A hook that is a command: JSON on its standard input, its exit status and standard output for an answer."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import field, frozen

from amplifier_hooks.definitions.kinds.event_codec import NATIVE, Codec
from amplifier_hooks.definitions.kinds.hop_limit import HOPS_VARIABLE, next_hop
from amplifier_hooks.definitions.kinds.run_program import Programs
from amplifier_hooks.dispatch import captured_output
from amplifier_hooks.errors import HookUnavailable, InvalidRegistration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from amplifier_hooks.result import HookResult


COMMAND_TIMEOUT: Final = 60.0
"""Seconds a command has if nobody says otherwise."""

PASSED_ON: Final = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    "SYSTEMROOT", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE",
)  # fmt: skip
"""The variables of our environment that a command sees. No others: they hold keys."""

TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)

INTERPRETERS: Final = re.compile(r"(?:python[0-9.]*|node|ruby|perl|bash|dash|sh|zsh)(?:\.exe)?")
"""Programs whose first argument, unless it is an option, is a script that has to be there."""


def _checked_argv(value: Sequence[str]) -> tuple[str, ...]:
    if isinstance(value, str) or not value or not all(isinstance(part, str) for part in value) or not value[0]:
        raise InvalidRegistration(f"command {value!r:.200}: pass a list of strings, the program first")
    return tuple(value)


@frozen(kw_only=True)
class CommandHook:
    """One command as a handler: register it with a timeout, `COMMAND_TIMEOUT` if there is no better one.

    No shell stands in between; who wants one says `["sh", "-c", "…"]`. `cwd` is fixed here: where the agent has gone
    does not decide where its guard runs. `env` adds variables to the few that are passed on. Everything it prints
    besides its answer is kept as its output.
    """

    argv: tuple[str, ...] = field(converter=_checked_argv)
    cwd: str = field(factory=os.getcwd)
    env: Mapping[str, str] = field(factory=dict)
    codec: Codec = NATIVE
    programs: Programs = field(factory=Programs)

    @property
    def origin(self) -> str:
        """Whose texts they are: the program's, without its arguments, where there may be secrets."""
        return self.argv[0]

    async def __call__(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Run it for one event.

        Raises `HookUnavailable` when it cannot be started, `InvalidResult` for an answer that is none, `HookFailed`
        when it ends in any other way. Cancelling it ends it and everything it started.
        """
        question = self.codec.question(event, data)
        problem = next(self.problems(), None)
        if problem is not None:
            raise HookUnavailable(problem)
        env = {**self._environment(data.get("traceparent")), HOPS_VARIABLE: next_hop()}
        ended = await self.programs.run(self.argv, feed=question, env=env, cwd=self.cwd)
        captured_output.keep(ended.errors)
        return self.codec.answer(event, data, ended)

    def problems(self) -> Iterator[str]:
        """What would keep it from running, as far as a look at the files tells; nothing is run."""
        folder = Path(self.cwd)
        if not (folder.is_dir() and os.access(folder, os.X_OK)):
            yield f"the command's working directory {self.cwd!r} is not there, or cannot be entered"
            return
        program, *rest = self.argv
        path = os.fspath(folder / program) if os.sep in program else program
        found = shutil.which(path, path=self._environment().get("PATH"))
        if found is None:
            yield f"the command {program!r} is not there, or is not executable"
            return
        interpreter = _interpreter_of(Path(found))
        if interpreter is not None and not os.access(interpreter, os.X_OK):
            yield f"the interpreter {interpreter!r} of the command {program!r} is not there"
        if rest and INTERPRETERS.fullmatch(Path(found).name) and not rest[0].startswith("-"):
            script = folder / rest[0]
            if not (script.is_file() and os.access(script, os.R_OK)):
                yield f"the script {rest[0]!r} of the command {program!r} is not there, or cannot be read"

    def _environment(self, traceparent: object = None) -> dict[str, str]:
        """The few variables a command sees, the trace it belongs to among them."""
        passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        trace = traceparent if isinstance(traceparent, str) else os.environ.get("TRACEPARENT", "")
        if TRACEPARENT.fullmatch(trace):
            passed["TRACEPARENT"] = trace
        return passed | dict(self.env)


def _interpreter_of(path: Path) -> str | None:
    """What the first line of a script names; None for a program that is none."""
    try:
        with path.open("rb") as script:
            first = script.readline(256)
    except OSError:
        return None
    words = first[2:].split()
    return os.fsdecode(words[0]) if first.startswith(b"#!") and words else None
