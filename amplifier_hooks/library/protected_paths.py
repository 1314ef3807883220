"""Files that no tool touches without a person's yes, or at all.

The target of a path decides, not its spelling: the hook resolves `..`, links, the case of letters, accents, `~`,
variables, percent signs and `file:`, in every argument, in the words of commands and in patches. The hook is a net and
no wall: a command can build a path from parts, or remove the folder above. It fails closed, also for a path that cannot
be resolved.

```python
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import ProtectedPaths

registry = HookRegistry()
ProtectedPaths.from_config({"paths": ["config/**"], "action": "deny"}).register(registry)
given = {"file_path": "src/../Config/live.yaml", "content": "debug: true"}
print((await registry.emit("tool:pre", {"tool_name": "Write", "tool_input": given})).reason)
```

```output
'src/../Config/live.yaml' is protected ('config/**'); leave it as it is, or ask the user
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from amplifier_hooks.events import TOOL_PRE
from amplifier_hooks.foreign_code import call_apart
from amplifier_hooks.impact.call_paths import CallPaths, PathMatch, TooManyParts, UnknownFolder, parse_patterns
from amplifier_hooks.library.parts.ready_made import HookSettings, Point, ReadyMade, ToolMatch, folder_of
from amplifier_hooks.result import CONTINUE, HookResult
from amplifier_hooks.text.escape import for_log

PRIORITY: Final = 10

SHOWN: Final = 120
"""Characters of a path that a message shows."""


def _patterns(texts: tuple[str, ...]) -> tuple[str, ...]:
    parse_patterns(list(texts))
    return texts


class ProtectedPathsSettings(HookSettings):
    """The protected files, and the effect on a call that touches one."""

    paths: Annotated[tuple[str, ...], AfterValidator(_patterns)] = Field(
        default=("**/.env", "**/.env.*", "**/.git/**", "~/.ssh/**", "~/.aws/**", "~/.config/**"),
        min_length=1,
        description="what is protected: './x' is in the working folder, '**/x' anywhere, '~/x' at home, '/x' itself",
    )
    action: Literal["ask", "deny"] = Field(default="ask", description="whether a person is asked, or it is denied")
    match: ToolMatch = Field(default="*", description="the tools that are held to it; those that only read are, too")
    cwd: str = Field(default="", description="the folder at which relative patterns begin; the session's root")


class ProtectedPaths(ReadyMade[ProtectedPathsSettings]):
    """Asks a person about calls that touch protected files, or denies them, however the path is spelt."""

    name = "protected_paths"
    replays = True
    Settings = ProtectedPathsSettings

    def __init__(self, settings: ProtectedPathsSettings | None = None) -> None:
        super().__init__(settings)
        self._patterns = parse_patterns(list(self.settings.paths))

    def points(self) -> tuple[Point, ...]:
        """Return a gate before tools. It looks again at input that was changed."""
        match = self.settings.match
        return (Point(event=TOOL_PRE, call=self.before, intent="gate", priority=PRIORITY, match=match),)

    async def before(self, event: str, data: Mapping[str, Any]) -> HookResult:  # a hook's
        """Let a call pass unless a path in it is protected or cannot be resolved."""
        given = data.get("tool_input")
        arguments = given if isinstance(given, Mapping) else {"input": given}
        own = "" if data.get("cwd") else self.settings.cwd
        root = folder_of(self.settings.cwd, {"cwd": data.get("root") or data.get("cwd")})
        where = CallPaths(str(data.get("tool_name")), arguments, folder_of(own, data), root)
        problem = await call_apart(arguments, self._problem, where)
        if problem is None:
            return CONTINUE
        if self.settings.action == "deny":
            return HookResult.deny(f"{problem}; leave it as it is, or ask the user")
        return HookResult.ask(f"{problem}. Let {for_log(str(data.get('tool_name')))} do it?", scope="action")

    def _problem(self, where: CallPaths) -> str | None:
        try:
            caught = where.find_match(self._patterns)
        except TooManyParts:
            return "there is too much in the call to look for protected files"
        except UnknownFolder as unknown:
            return str(unknown)
        except TimeoutError:
            return "the search for protected files took too long"
        if isinstance(caught, PathMatch):
            verb = "is" if caught.sure else "may be"
            return f"{_short_text(caught.text)} {verb} protected ({caught.pattern.spec!r})"
        return None if caught is None else f"the path {_short_text(caught.text)} cannot be resolved"


def _short_text(text: str) -> str:
    shown = for_log(text)
    return f"'{shown if len(shown) <= SHOWN else shown[:SHOWN] + '…'}'"
