"""Another program's settings come in; settings with or without the bridge as a hook go out. No file is touched.

The bridge's entry is recognised by the file or the command that it runs, or the address to which it posts. So a second
installation changes nothing, and a removal leaves everything else unchanged.
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

    from amplifier_hooks.programs.dialects import Dialect, Spelling


WhenDown = Literal["deny", "ask", "allow"]

PATH: Final = "/v1/bridge/"
"""Path at which the server takes questions; the name of the dialect follows."""

VARIABLE: Final = "AMPLIFIER_HOOKS_TOKEN"
"""Environment variable with the token, for a program that posts."""

COMMAND: Final = re.compile(r"amplifier_hooks/bridge\.py|\bamplifier-hooks(?:\.exe)?[\"']? bridge\b")
"""Pattern of the bridge in a command, by its file or by its name."""

EVERY_CALL: Final = frozenset({events.TOOL_PRE, events.TOOL_POST, events.TOOL_ERROR})
"""Events that come with every tool call, so that the time of a hook counts."""

REMEDY: Final = "?if-down=start-it-with:amplifier-hooks+serve+--programs+--web+--hooks+amplifier-hooks.yaml"
"""Query of the address of a server on this machine. A program that gets no answer shows the address to its model."""

ABSENT: Final = (
    "amplifier-hooks is not installed here, so this call was not decided. Install it, then start it: "
    'uv tool install "amplifier-hooks[server]"; '
    "amplifier-hooks serve --programs --web --hooks amplifier-hooks.yaml"
)
"""Message of a shared entry on a machine without the command; the model and the user read it."""

ROOM: Final = 15.0
"""Seconds that a program waits beyond the approver's timeout, so that it receives the outcome."""


@frozen(kw_only=True)
class Bridge:
    """A program's way to the server: it runs the bridge, or posts to an address.

    With `python`, `file` and `socket` the program runs this machine's bridge, which starts fast. Without them it runs
    the command `amplifier-hooks` from the PATH of its machine, which finds that machine's socket itself. With `url` it
    posts: with a `file` to a server on this machine at the events of every call, and runs the bridge at the others,
    which says how to start the server; without a `file` it posts at all events. `waits` is the approver's timeout in
    seconds. `when_down` is the answer at a gate if no server answers; at every other event the
    program continues.
    """

    python: str = ""
    file: str = ""
    socket: str = ""
    url: str = ""
    token: str = ""
    """Token in the settings; without one, a program that posts takes it from its environment."""
    waits: float = 300.0
    when_down: WhenDown = "deny"

    def entry(self, dialect: Dialect, spelling: Spelling) -> dict[str, Any] | None:
        """Return the hook for one event; None if the program skips it there.

        Raises `InvalidRegistration` if the program cannot post to an address.
        """
        row = events.find(spelling.ours)
        gate = row is not None and row.gate and spelling.blocks == "deny"
        timeout = round((self.waits + ROOM) * dialect.second)
        if self.url and (spelling.ours in EVERY_CALL or not self.file):
            if dialect.posting is None:
                raise InvalidRegistration(f"{dialect.title} posts to no address; install the command instead")
            if spelling.theirs in dialect.posting.never:
                return None
            return self._post(dialect, timeout, blocks=gate and self.when_down != "allow")
        policy = self.when_down if gate else "allow"
        entry: dict[str, Any] = {"type": "command", "command": self.command(dialect, policy), "timeout": timeout}
        if dialect.name == "claude_code" and policy == "deny":
            entry["onFailure"] = "block"
        return entry

    def _post(self, dialect: Dialect, timeout: int, *, blocks: bool) -> dict[str, Any]:
        """Return the hook that posts."""
        url = f"{self.url.rstrip('/')}{PATH}{dialect.name}" + REMEDY * bool(self.file)
        if self.token:
            headers: dict[str, Any] = {"headers": {"Authorization": f"Bearer {self.token}"}}
        else:
            headers = {"headers": {"Authorization": f"Bearer ${{{VARIABLE}}}"}, "allowedEnvVars": [VARIABLE]}
        policy = {"onFailure": "block"} if blocks else {}
        return {"type": "http", "url": url, **headers, "timeout": timeout, **policy}

    def command(self, dialect: Dialect, policy: WhenDown) -> str:
        """Return the shell line that runs the bridge. A missing or crashed bridge counts as a server that is down."""
        if self.python:
            words = [self.python, "-I", "-S", self.file, self.socket, dialect.name, policy]
        else:
            words = ["amplifier-hooks", "bridge", dialect.name.replace("_", "-"), "--when-down", policy]
        line = shlex.join(words)
        if policy != "allow":
            if self.python:
                return f"{line} || exit 2"
            return f"{line} || {{ command -v amplifier-hooks >/dev/null || echo '{ABSENT}' >&2; exit 2; }}"
        return f"{line} || [ $? -ne 2 ] || exit 2" if dialect.failures == "closed" else line


def with_bridge(settings: Mapping[str, Any], dialect: Dialect, bridge: Bridge) -> dict[str, Any]:
    """Return the settings with the bridge at every event of the dialect, once.

    Raises `InvalidRegistration` for settings whose hooks are not an object of lists: the operator must correct them.
    """
    changed = without_bridge(settings)
    hooks = changed.setdefault("hooks", {})
    for spelling in dialect.spellings:
        matched = {"matcher": "*"} if spelling.matcher_field == "tool_name" else {}
        if (entry := bridge.entry(dialect, spelling)) is not None:
            hooks.setdefault(spelling.theirs, []).append({**matched, "hooks": [entry]})
    return changed


def has_bridge(settings: Mapping[str, Any]) -> bool:
    """Return True if the settings have the bridge as a hook.

    Raises `InvalidRegistration` for settings whose hooks are not an object of lists.
    """
    return any(_without(groups) != groups for groups in _table(settings).values())


def _table(settings: Mapping[str, Any]) -> dict[str, list[Any]]:
    table = settings.get("hooks")
    if table is None:
        return {}
    if not isinstance(table, dict) or not all(isinstance(groups, list) for groups in table.values()):
        raise InvalidRegistration("the settings' hooks are no object of lists; mend that first")
    return table


def without_bridge(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without the bridge, and without groups and events that held nothing else.

    Raises `InvalidRegistration` for settings whose hooks are not an object of lists.
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
    """Return True if a hook in a program's settings is the bridge."""
    if not isinstance(hook, dict):
        return False
    command, url = hook.get("command"), hook.get("url")
    runs_us = isinstance(command, str) and COMMAND.search(command.replace("\\", "/")) is not None
    return runs_us or (isinstance(url, str) and PATH in url)
