"""A gate over the impact of tool calls: it lets through what does no harm, and asks about the rest.

The hook predicts what a call would do, without running it, and looks each impact up in one table: free, ask or deny. A
preset chooses the column. The hook is no sandbox: code of the project and programs that a table names run with the
rights of the agent, and may do anything.

```python
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import Guard

registry = HookRegistry()
Guard().register(registry)
command = {"command": "npm test && git push origin main"}
outcome = await registry.emit("tool:pre", {"tool_name": "Bash", "tool_input": command, "cwd": "/nowhere"})
print(outcome.approval_prompt)
```

```output
This call publishes with git (origin main). Allow it?
```
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from attrs import frozen
from pydantic import Field

from amplifier_hooks.events import TOOL_PRE
from amplifier_hooks.foreign_code import call_apart
from amplifier_hooks.impact.file_facts import FileSystem
from amplifier_hooks.impact.tools import predict_impact
from amplifier_hooks.impacts import KINDS, MEANINGS, Impact, ImpactKind, ImpactPolicy
from amplifier_hooks.library.parts.ready_made import HookSettings, Point, ReadyMade, folder_of
from amplifier_hooks.result import CONTINUE, RISKS, HookResult, Risk
from amplifier_hooks.text.escape import clip, for_log

if TYPE_CHECKING:
    from collections.abc import Sequence

PRIORITY: Final = 15
SHOWN: Final = 120
"""Characters of a place that a message shows."""
LONGEST: Final = 1_000
"""Bytes of a sentence about impacts."""
MOST_NAMED: Final = 6
"""Impacts that a message names."""

Preset = Literal["careful", "balanced", "open"]
Treatment = Literal["free", "ask", "deny"]
PRESETS: Final[tuple[Preset, ...]] = get_args(Preset)


@frozen
class KindRow:
    """The treatment of one kind of impact by each preset, the risk of it, and the words of a grant that covers it."""

    careful: Treatment
    balanced: Treatment
    open: Treatment
    risk: Risk
    grant: str = ""


FREE: Final = ("free", "free", "free")
CAREFUL: Final = ("ask", "free", "free")
BALANCED: Final = ("ask", "ask", "free")
OPEN: Final = ("ask", "ask", "ask")

ROWS: Final[Mapping[ImpactKind, KindRow]] = {
    "reads": KindRow(*FREE, "low"),
    "reads_secret": KindRow(*OPEN, "medium", "reading {place}"),
    "writes_tree": KindRow(*FREE, "low"),
    "writes_temporary": KindRow(*FREE, "low"),
    "writes_guarded": KindRow(*BALANCED, "medium", "writing {place}"),
    "writes_outside": KindRow(*BALANCED, "medium", "writing in {folder}"),
    "deletes_one": KindRow(*FREE, "low"),
    "deletes_generated": KindRow(*FREE, "low"),
    "deletes_many": KindRow(*OPEN, "high"),
    "deletes_outside": KindRow(*OPEN, "high"),
    "runs_project": KindRow(*CAREFUL, "low", "`{place}` in this project"),
    "runs_unread": KindRow(*OPEN, "medium", "running {place}, unread"),
    "inline_code": KindRow(*FREE, "low"),
    "git_local": KindRow(*FREE, "low"),
    "git_loses_work": KindRow(*OPEN, "high"),
    "git_publishes": KindRow(*BALANCED, "medium", "`git push` to `{place}`"),
    "git_configures": KindRow(*BALANCED, "medium"),
    "network_local": KindRow(*FREE, "low"),
    "network_known": KindRow(*FREE, "low"),
    "network_new": KindRow(*BALANCED, "medium", "host {place}"),
    "network_sends": KindRow(*OPEN, "high"),
    "installs_manifest": KindRow(*CAREFUL, "low"),
    "installs_new": KindRow(*BALANCED, "medium", "installing {place}"),
    "process": KindRow(*CAREFUL, "low"),
    "service_reads": KindRow(*FREE, "low"),
    "service_updates": KindRow(*BALANCED, "medium", "`{place}`"),
    "service_writes": KindRow(*OPEN, "high"),
    "system": KindRow(*OPEN, "high"),
    "environment": KindRow(*BALANCED, "medium"),
    "unknown_program": KindRow(*OPEN, "medium", "`{place}`"),
    "unreadable": KindRow(*OPEN, "medium", "unread: {place}"),
}
"""One row for each kind. A kind of high risk cannot be undone, and no "always" covers it."""

CONTAINED: Final[frozenset[ImpactKind]] = frozenset(("runs_project", "inline_code"))
"""Kinds that are free where the host says that it contains the agent."""


class GuardSettings(HookSettings):
    """The preset, exceptions from it, and the places that the host trusts."""

    preset: Preset = Field(
        default="balanced",
        description="careful: asks about all that leaves the project, installs, or runs code; balanced: about lost "
        "work, secrets, guarded files, and what leaves the machine or cannot be read; open: about what cannot be "
        "undone, secrets, and what cannot be read",
    )
    kinds: dict[ImpactKind, Treatment] = Field(
        default_factory=dict, description="kinds of impact that are free, ask or deny, whatever the preset says"
    )
    trusted_hosts: tuple[str, ...] = Field(
        default=(), description="hosts that calls may connect to; '.example.org' covers every name below"
    )
    trusted_folders: tuple[str, ...] = Field(
        default=(), description="folders that count as the project: absolute, from '~', or from the project"
    )
    trusted_programs: tuple[str, ...] = Field(default=(), description="programs that count as code of the project")
    contained: bool = Field(
        default=False, description="true if the agent runs in a container or a virtual machine that bounds its harm"
    )


class Guard(ReadyMade[GuardSettings]):
    """Asks about calls that lose work, leave the machine, touch secrets or cannot be read; lets the rest through.

    The question carries the shape of the call as its key, so that an "always" covers calls of that shape only. A call
    that cannot be read is asked about.
    """

    name = "guard"
    replays = True
    Settings = GuardSettings

    def __init__(self, settings: GuardSettings | None = None) -> None:
        super().__init__(settings)
        self._treatments = {kind: _treatment(kind, self.settings) for kind in KINDS}
        self._policy = lru_cache(maxsize=64)(self._make_policy)

    def points(self) -> tuple[Point, ...]:
        """Return a gate before every tool. It looks again at input that was changed."""
        return (Point(event=TOOL_PRE, call=self.before, intent="gate", priority=PRIORITY),)

    async def before(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Let a call pass, ask about it, or deny it, by the impacts that the table does not call free."""
        given = data.get("tool_input")
        arguments = given if isinstance(given, Mapping) else {"input": given}
        folder = folder_of("", data)
        root = folder_of("", {"cwd": data["root"]}) if data.get("root") else folder
        return await call_apart(arguments, self._judge, str(data.get("tool_name") or ""), arguments, folder, root)

    def _judge(self, tool: str, arguments: Mapping[str, Any], folder: str, root: str) -> HookResult:
        home = os.path.expanduser("~")  # noqa: PTH111  # a path of pathlib costs more than the rest of this line
        impacts = predict_impact(tool, arguments, self._policy(root, home), FileSystem(), folder=folder).impacts
        denied = [one for one in impacts if self._treatments[one.kind] == "deny"]
        if denied:
            return HookResult.deny(f"This call {_sentence(denied)}. Do it in another way, or ask the user.")
        asked = [one for one in impacts if self._treatments[one.kind] == "ask"]
        if not asked:
            return CONTINUE
        risk = max((ROWS[one.kind].risk for one in asked), key=RISKS.index)
        told = all(one.is_told for one in impacts)
        return HookResult.ask(
            f"This call {_sentence(asked)}. Allow it?",
            options=("Allow once", "Allow always", "Deny"),
            approval_key=_shape(asked) if told else None,
            scope="prompt" if told else "action",
            risk=risk,
            risk_reason=_sentence([one for one in asked if ROWS[one.kind].risk == risk]),
        )

    def _make_policy(self, root: str, home: str) -> ImpactPolicy:
        settings = self.settings
        folders = [posixpath.normpath(posixpath.join(root, _from_home(one, home))) for one in settings.trusted_folders]
        return ImpactPolicy(
            root,
            home,
            trusted_hosts=settings.trusted_hosts,
            trusted_folders=tuple(folders),
            trusted_programs=settings.trusted_programs,
        )


def _treatment(kind: ImpactKind, settings: GuardSettings) -> Treatment:
    if kind in settings.kinds:
        return settings.kinds[kind]
    if settings.contained and kind in CONTAINED:
        return "free"
    treatment: Treatment = getattr(ROWS[kind], settings.preset)
    return treatment


def _from_home(folder: str, home: str) -> str:
    return home + folder[1:] if folder == "~" or folder.startswith("~/") else folder


def _sentence(impacts: Sequence[Impact]) -> str:
    """Return the impacts as verbs with their places: `deletes outside the project folder (~/photos)`."""
    words: dict[str, list[str]] = {}
    for one in impacts:
        place = ": ".join(_place_text(part) for part in (one.place, one.reason) if part)
        words.setdefault(MEANINGS[one.kind], []).append(place)
    parts = [f"{words_of} ({_listed(places)})" if any(places) else words_of for words_of, places in words.items()]
    return clip(f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0], LONGEST)


def _listed(places: Sequence[str]) -> str:
    named = [place for place in dict.fromkeys(places) if place]
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return f"{', '.join(named[:MOST_NAMED])}{more}"


def _shape(impacts: Sequence[Impact]) -> str:
    """Return the words of a grant for calls with these impacts: one phrase for each impact, in a fixed order."""
    phrases = {
        (ROWS[one.kind].grant or f"{MEANINGS[one.kind]}: {{place}}").format(
            place=_place_text(one.place or one.reason), folder=_place_text(posixpath.dirname(one.place))
        )
        for one in impacts
    }
    return clip(_listed(sorted(phrases)), LONGEST)


def _place_text(place: str) -> str:
    text = for_log(place)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
