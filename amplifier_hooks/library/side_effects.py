"""The effects of a shell command on files, noted before it runs. The hook reads the command, and runs nothing of it.

```python
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import SideEffects

registry = HookRegistry()
SideEffects().register(registry)
command = {"command": "mkdir -p out && ./build.sh > out/log.txt && rm -r old"}
print((await registry.emit("tool:pre", {"tool_name": "Bash", "tool_input": command, "cwd": "/nowhere"})).context_injection)
```

```output
As far as it can be read, this command writes out, out/log.txt; deletes old. Not seen is what build.sh does. None of the files it writes is there yet.
```
"""  # noqa: E501  # the call and its output are one line each

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from amplifier_hooks.events import TOOL_PRE
from amplifier_hooks.impact.file_facts import FileSystem
from amplifier_hooks.impact.tools import predict_impact
from amplifier_hooks.impacts import ImpactPolicy
from amplifier_hooks.library.parts.ready_made import HookSettings, Point, ReadyMade, ToolMatch, folder_of
from amplifier_hooks.result import CONTINUE, HookResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_hooks.impacts import CallImpact

PRIORITY: Final = 240
MOST_NAMED: Final = 12
LONGEST_NAME: Final = 120
UNSEEN: Final = frozenset(("unreadable", "unknown_program", "runs_unread", "runs_project", "inline_code"))
"""Kinds of impact whose effect on files is unknown."""


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
    """Before a shell command that writes, moves or deletes files, says which, and which are there already.

    The model reads a note; later hooks find the files in the payload as `side_effects`. The hook cannot see the
    effects of scripts and unknown programs, nor the values of variables, and the note says so. The hook guards nothing.
    """

    name = "side_effects"
    replays = True
    Settings = SideEffectsSettings

    def points(self) -> tuple[Point, ...]:
        """Return a hook before tools that run commands."""
        return (Point(event=TOOL_PRE, call=self.before, intent="on", priority=PRIORITY, match=self.settings.match),)

    async def before(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Note the effects of the command."""
        given = data.get("tool_input")
        inputs = given if isinstance(given, Mapping) else {}
        command = next((inputs[name] for name in self.settings.arguments if isinstance(inputs.get(name), str)), None)
        if command is None:
            return CONTINUE
        folder = folder_of(self.settings.cwd, data)
        policy = ImpactPolicy(folder, str(Path.home()))
        impact = await asyncio.to_thread(
            predict_impact, "shell", {"command": command}, policy, FileSystem(), folder=folder
        )
        facts = _facts(impact, folder)
        if not facts["writes"] and not facts["deletes"]:
            return CONTINUE
        noted = {"side_effects": {name: value for name, value in facts.items() if value}}
        return HookResult.modify(noted, context_injection=_note(facts, _existing(impact, folder)), ephemeral=True)


def _facts(impact: CallImpact, folder: str) -> dict[str, list[str]]:
    """Return the files that a command writes and deletes, and its parts of unknown effect, each once."""

    def places(*beginnings: str) -> list[str]:
        found = (_short(one.place, folder) for one in impact.impacts if one.kind.startswith(beginnings))
        return list(dict.fromkeys(place for place in found if place))

    unseen = [one for one in impact.impacts if one.kind in UNSEEN]
    named = [f"what {_short(one.place, folder)} does" if one.place else one.reason for one in unseen]
    return {"writes": places("writes"), "deletes": places("deletes"), "unseen": list(dict.fromkeys(named))}


def _existing(impact: CallImpact, folder: str) -> list[str] | None:
    """Return the written files that exist already, or None if a place is not known for sure."""
    kinds = dict(impact.answers)
    written = list(dict.fromkeys(one.place for one in impact.impacts if one.kind.startswith("writes")))
    if not all(place in kinds for place in written):
        return None
    return [_short(place, folder) for place in written if kinds[place].kind in ("file", "folder", "other")]


def _short(place: str, folder: str) -> str:
    return place.removeprefix(f"{folder}/")


def _note(facts: Mapping[str, Sequence[str]], there: list[str] | None) -> str:
    done = "; ".join(f"{what} {_name_list(facts[what])}" for what in ("writes", "deletes") if facts[what])
    said = [f"As far as it can be read, this command {done}."]
    if facts["unseen"]:
        said.append(f"Not seen is {_name_list(facts['unseen'])}.")
    if there is not None and facts["writes"]:
        said.append(
            f"There already: {_name_list(there)}; look before repeating it."
            if there
            else "None of the files it writes is there yet."
        )
    return " ".join(said)


def _name_list(names: Sequence[str]) -> str:
    shown = [name[:LONGEST_NAME] for name in names[:MOST_NAMED]]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(shown)}{more}"
