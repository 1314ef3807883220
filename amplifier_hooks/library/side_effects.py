"""The effects of a shell command on files, noted before it runs. The hook reads the command, and runs nothing of it.

```python
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import SideEffects

registry = HookRegistry()
SideEffects().register(registry)
command = {"command": "mkdir -p out && python build.py > out/log.txt && rm -r old"}
print((await registry.emit("tool:pre", {"tool_name": "Bash", "tool_input": command})).context_injection)
```

```output
As far as it can be read, this command creates out, out/log.txt; deletes old. Not seen is what python does. None of the files it creates is there yet.
```
"""  # noqa: E501  # the output is one line

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from amplifier_hooks.events import TOOL_PRE
from amplifier_hooks.impact.shell_impact import IMPACT_KINDS, predict_impact
from amplifier_hooks.impact.shell_parser import ShellReader
from amplifier_hooks.library.parts.feedback import folder_of
from amplifier_hooks.library.parts.ready_made import HookSettings, Point, ReadyMade, ToolMatch
from amplifier_hooks.result import CONTINUE, HookResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_hooks.impact.shell_impact import ShellImpact


PRIORITY: Final = 240
MOST_NAMED: Final = 12
LONGEST_NAME: Final = 120


class SideEffectsSettings(HookSettings):
    """The calls that are shell commands."""

    match: ToolMatch = Field(
        default="Bash|Shell|shell|run_command|execute_command|execute_bash_command",
        description="tools that run commands",
    )
    arguments: tuple[str, ...] = Field(
        default=("command", "cmd", "script"), description="where the command stands in the input"
    )
    cwd: str = Field(default="", description="the folder it runs in; the session's")


class SideEffects(ReadyMade[SideEffectsSettings]):
    """Before a shell command that creates, moves, changes or deletes files, says which, and which are there already.

    The model reads a note; later hooks find the effects in the payload as `side_effects`. The hook cannot see the
    effects of scripts and unknown programs, nor the values of variables, and the note says so. The hook guards nothing.

    Raise `MissingExtra` if the grammar of the shell is not installed.
    """

    name = "side_effects"
    Settings = SideEffectsSettings

    def __init__(self, settings: SideEffectsSettings | None = None) -> None:
        super().__init__(settings)
        self._reader = ShellReader()

    def points(self) -> tuple[Point, ...]:
        """Return a hook before tools that run commands."""
        return (Point(event=TOOL_PRE, call=self.before, intent="on", priority=PRIORITY, match=self.settings.match),)

    async def before(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Note the effects of the command."""
        given = data.get("tool_input")
        inputs = given if isinstance(given, Mapping) else {}
        command = next((inputs[name] for name in self.settings.arguments if isinstance(inputs.get(name), str)), None)
        foreseen = None if command is None else predict_impact(self._reader, command)
        if foreseen is None or not foreseen.impacts:
            return CONTINUE
        there = await asyncio.to_thread(_existing_files, foreseen, folder_of(self.settings.cwd, data))
        facts = {what: foreseen.paths_of(what) for what in IMPACT_KINDS} | {"unseen": foreseen.unseen}
        noted = {"side_effects": {name: value for name, value in facts.items() if value}}
        return HookResult.modify(noted, context_injection=_note(foreseen, there), ephemeral=True)


def _existing_files(foreseen: ShellImpact, folder: str) -> list[str] | None:
    """Return the created files that exist already, or None if that cannot be determined."""
    created = [effect for effect in foreseen.impacts if effect.what == "creates"]
    if foreseen.moves or not all(effect.known for effect in created):
        return None
    names = dict.fromkeys(effect.path for effect in created)
    return [
        name for name in names if os.path.lexists(Path(folder, Path(name).expanduser() if name[:1] == "~" else name))
    ]


def _note(foreseen: ShellImpact, there: list[str] | None) -> str:
    done = "; ".join(f"{what} {_name_list(named)}" for what in IMPACT_KINDS if (named := foreseen.paths_of(what)))
    said = [f"As far as it can be read, this command {done}."]
    if foreseen.unseen:
        said.append(f"Not seen is {_name_list(foreseen.unseen)}.")
    if there is not None and foreseen.paths_of("creates"):
        said.append(
            f"There already: {_name_list(there)}; look before repeating it."
            if there
            else "None of the files it creates is there yet."
        )
    return " ".join(said)


def _name_list(names: Sequence[str]) -> str:
    shown = [name[:LONGEST_NAME] for name in names[:MOST_NAMED]]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(shown)}{more}"
