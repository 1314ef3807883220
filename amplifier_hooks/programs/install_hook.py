"""Our hook in another program's settings: put in, recognised, taken out. Settings in, settings out; no file is touched.

An entry of ours is recognised by the file or the command it runs, or the address it posts to, so putting it in twice is
the same as once, and taking it out leaves everything else as it was.
"""

from __future__ import annotations

import re
import shlex
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import frozen

from amplifier_hooks import events
from amplifier_hooks.errors import InvalidRegistration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.programs.dialect import Dialect, Spelling


WhenDown = Literal["deny", "ask", "allow"]

PATH: Final = "/v1/bridge/"
"""Where the server takes questions; the name of the dialect follows."""

COMMAND: Final = re.compile(r"amplifier_hooks/bridge\.py|\bamplifier-hooks(?:\.exe)?[\"']? bridge\b")
"""The bridge in a command, by its file or by its name."""

ROOM: Final = 15.0
"""Seconds a program waits longer than a person has, so that it hears what became of it."""


@frozen(kw_only=True)
class Bridge:
    """A program's way to the server: it runs the bridge, or posts to an address.

    With `python`, `file` and `socket` the bridge is that of this machine, which starts fast. Without them it is the
    command `amplifier-hooks` on the PATH of the machine where the program runs, and it finds that machine's socket
    itself. `waits` is how many seconds a person has. `when_down` is what happens at a gate when no server answers;
    elsewhere the program goes on.
    """

    python: str = ""
    file: str = ""
    socket: str = ""
    url: str = ""
    token_variable: str = "AMPLIFIER_HOOKS_TOKEN"  # noqa: S105  # a name
    """The variable of the environment that holds the token, for programs that post."""
    waits: float = 300.0
    when_down: WhenDown = "deny"

    def entry(self, dialect: Dialect, spelling: Spelling) -> dict[str, Any]:
        """The hook for one event."""
        row = events.find(spelling.ours)
        gate = row is not None and row.gate and spelling.blocks == "deny"
        timeout = round((self.waits + ROOM) * dialect.second)
        if self.url:
            if dialect.name != "claude_code":
                raise InvalidRegistration(f"{dialect.title} posts to no address; install the command instead")
            return {
                "type": "http",
                "url": f"{self.url.rstrip('/')}{PATH}{dialect.name}",
                "headers": {"Authorization": f"Bearer ${{{self.token_variable}}}"},
                "allowedEnvVars": [self.token_variable],
                "timeout": timeout,
            } | ({"onFailure": "block"} if gate and self.when_down == "deny" else {})
        policy = self.when_down if gate else "allow"
        entry: dict[str, Any] = {"type": "command", "command": self.command(dialect, policy), "timeout": timeout}
        if dialect.name == "claude_code" and policy == "deny":
            entry["onFailure"] = "block"
        return entry

    def command(self, dialect: Dialect, policy: WhenDown) -> str:
        """The line of shell that runs the bridge. A bridge that is gone, or crashes, is a server that is down."""
        if self.python:
            words = [self.python, "-I", "-S", self.file, self.socket, dialect.name, policy]
        else:
            words = ["amplifier-hooks", "bridge", dialect.name.replace("_", "-"), "--when-down", policy]
        line = shlex.join(words)
        if policy != "allow":
            return f"{line} || exit 2"
        return f"{line} || [ $? -ne 2 ] || exit 2" if dialect.failures == "closed" else line


def with_bridge(settings: Mapping[str, Any], dialect: Dialect, bridge: Bridge) -> dict[str, Any]:
    """The settings with our hook at every event of the dialect, once.

    Raises `InvalidRegistration` for settings whose hooks are no object of lists: somebody has to mend them first.
    """
    changed = without_bridge(settings)
    hooks = changed.setdefault("hooks", {})
    for spelling in dialect.spellings:
        matched = {"matcher": "*"} if spelling.tested == "tool_name" else {}
        hooks.setdefault(spelling.theirs, []).append({**matched, "hooks": [bridge.entry(dialect, spelling)]})
    return changed


def has_bridge(settings: Mapping[str, Any]) -> bool:
    """Whether a hook of ours is in there. Raises `InvalidRegistration` as below."""
    groups = [group for groups in _table(settings).values() for group in groups if isinstance(group, dict)]
    return any(is_ours(hook) for group in groups for hook in _list(group.get("hooks")))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _table(settings: Mapping[str, Any]) -> dict[str, list[Any]]:
    table = settings.get("hooks")
    if table is None:
        return {}
    if not isinstance(table, dict) or not all(isinstance(groups, list) for groups in table.values()):
        raise InvalidRegistration("the settings' hooks are no object of lists; mend that first")
    return table


def without_bridge(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without any hook of ours; groups and events that held nothing else go, too.

    Raises `InvalidRegistration` for settings whose hooks are no object of lists.
    """
    changed = deepcopy(dict(settings))
    kept = {event: without for event, groups in _table(changed).items() if (without := _without(groups))}
    changed.pop("hooks", None)
    return {**changed, "hooks": kept} if kept else changed


def _without(groups: list[Any]) -> list[Any]:
    kept = []
    for group in groups:
        hooks = group.get("hooks") if isinstance(group, dict) else None
        if not isinstance(hooks, list) or not any(map(is_ours, hooks)):
            kept.append(group)
        elif others := [hook for hook in hooks if not is_ours(hook)]:
            kept.append({**group, "hooks": others})
    return kept


def is_ours(hook: Any) -> bool:
    """Whether a hook in somebody's settings is the bridge."""
    if not isinstance(hook, dict):
        return False
    command, url = hook.get("command"), hook.get("url")
    runs_us = isinstance(command, str) and COMMAND.search(command.replace("\\", "/")) is not None
    return runs_us or (isinstance(url, str) and PATH in url)
