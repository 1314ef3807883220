"""A tool that failed: hint at the usual remedy, and advise to stop when the call keeps failing.

```python
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import RecoveryHint

registry = HookRegistry()
RecoveryHint().register(registry)
failed = {"tool_name": "Read", "error": {"type": "FileNotFoundError", "message": "no such file: 'a.txt'"}}
print((await registry.emit("tool:error", failed)).context_injection)
```

```output
Read failed (FileNotFoundError). That path does not exist: list the folder it should be in, and use a name from it.
```
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field

from amplifier_hooks.events import TOOL_ERROR
from amplifier_hooks.impact.tool_matcher import compile_tool_matcher
from amplifier_hooks.library.parts.ready_made import HookSettings, PerSession, Point, ReadyMade, ToolMatch
from amplifier_hooks.result import HookResult

PRIORITY: Final = 320

FAILURES_KEPT: Final = 256
"""Failures of one session that are counted apart. If there are more, the oldest are forgotten."""

LONGEST_NAME: Final = 80


class Hint(HookSettings):
    """A hint for one kind of failure."""

    says: str = Field(default="", description="what the model is told; what it could do instead")
    tool: ToolMatch = Field(default="*", description="the tools it is about")
    error: str = Field(default="", description="the type of the error; left out, any")
    contains: str = Field(default="", description="a text within the error's message, in any case; left out, any")


def _hint(error: str, says: str, contains: str = "") -> Hint:
    return Hint(error=error, says=says, contains=contains)


USUAL: Final = (
    _hint("FileNotFoundError", "That path does not exist: list the folder it should be in, and use a name from it."),
    _hint("IsADirectoryError", "That is a folder: name a file in it."),
    _hint("NotADirectoryError", "A part of that path is a file: look at the folder above it."),
    _hint("FileExistsError", "It is there already: read it before deciding whether to replace it."),
    _hint("PermissionError", "This is not permitted here: do not try to get around it; use another place, or ask."),
    _hint(
        "TimeoutError", "It may have happened in part: look at what is there before repeating it, or do less at once."
    ),
    _hint("ConnectionError", "The other side did not answer: repeat it once, later; then go on without it, or ask."),
    _hint("ConnectionRefusedError", "Nothing listens there: check the address, and whether the service is running."),
    _hint("ModuleNotFoundError", "A package is missing: look at what is installed before installing anything."),
    _hint("UnicodeDecodeError", "That is not text, or in another encoding: look at what kind of file it is."),
    _hint("JSONDecodeError", "That is not JSON: look at its first lines."),
    _hint("", "There is no space left: free some, or write elsewhere; do not repeat it as it is.", "no space left"),
    _hint("", "There were too many requests: wait before the next one.", "rate limit"),
)
"""Hints for errors that every tool can have; the first match counts."""

OTHERWISE: Final = "Read the error before the next step: the same call again will most likely fail again."


class RecoveryHintSettings(HookSettings):
    """Hints, and the number of failures after which the advice is to stop."""

    hints: tuple[Hint, ...] = Field(default=(), description="hints of your own; they are looked at first")
    repeats: int = Field(default=3, ge=2, le=100, description="after how many equal failures the advice is to stop")


class RecoveryHint(ReadyMade[RecoveryHintSettings]):
    """After a tool failed, tells the model what usually helps; if a call keeps failing, to stop repeating it.

    Two failures are equal if their tool, type and message are. The first failure gets a hint; once it has happened
    `repeats` times, the model is told to stop repeating the call. Failures in between get no hint.
    """

    name = "recovery_hint"
    Settings = RecoveryHintSettings

    def __init__(self, settings: RecoveryHintSettings | None = None) -> None:
        super().__init__(settings)
        self._hints = tuple((compile_tool_matcher(hint.tool), hint) for hint in (*self.settings.hints, *USUAL))
        self._failures: PerSession[OrderedDict[bytes, int]] = PerSession(OrderedDict)

    def points(self) -> tuple[Point, ...]:
        """Return a hook after a tool failed."""
        return (Point(event=TOOL_ERROR, call=self.on_failure, intent="on", priority=PRIORITY),)

    async def on_failure(self, event: str, data: Mapping[str, Any]) -> HookResult | None:
        """Inject a hint, if there is a new one."""
        error = data.get("error")
        facts: Mapping[str, Any] = error if isinstance(error, Mapping) else {"message": error}
        tool, kind, message = (
            str(value) for value in (data.get("tool_name"), facts.get("type") or "", facts.get("message"))
        )
        times = self._count_failure(data, f"{tool}\n{kind}\n{message}")
        called = f"{tool[:LONGEST_NAME]} failed" + (f" ({kind[:LONGEST_NAME]})" if kind else "")
        if times == self.settings.repeats:
            return HookResult.inject(
                f"{called} in the same way {times} times. Do not repeat it: take another way, or tell the user "
                "what is in the way."
            )
        if times != 1:
            return None
        says = next(
            (hint.says for matcher, hint in self._hints if matcher.matches(tool) and _fits(hint, kind, message)), ""
        )
        return HookResult.inject(f"{called}. {says or OTHERWISE}", ephemeral=True)

    def _count_failure(self, data: Mapping[str, Any], failure: str) -> int:
        failures = self._failures.of(data)
        key = hashlib.sha256(failure.encode("utf-8", "surrogatepass")).digest()
        failures[key] = failures.pop(key, 0) + 1
        if len(failures) > FAILURES_KEPT:
            failures.popitem(last=False)
        return failures[key]


def _fits(hint: Hint, kind: str, message: str) -> bool:
    return hint.error in ("", kind) and hint.contains.casefold() in message.casefold()
