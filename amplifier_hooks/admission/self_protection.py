"""A tool call comes in; a denial goes out if the call could switch hooks off or decide in a person's place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import define, field

from amplifier_hooks.events import TOOL_PRE
from amplifier_hooks.ports import RuleVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from os import PathLike

    from amplifier_hooks.ports import ActionFacts

RULE: Final = "self-protection"
REASON: Final = (
    "{place} is not for the agent to change ({reason}); an operator does that outside of the agent's session"
)


def nothing_more() -> tuple[()]:
    """Return no paths."""
    return ()


@define(eq=False, kw_only=True)
class SelfProtection:
    """Denies the tool calls of a session that could take its guard away.

    These calls write, delete, rename or link a protected path or a setting of an agent program that can switch a hook
    off, read a token of ours, connect to a protected port, or run an `amplifier-hooks` command that does more than
    look. No person and no rule allows such a call. A call whose text cannot be read is not denied for that.

    Args:
        paths: Files and folders to protect, besides those that a table names.
        more: A function that returns more of them at every call, for files that change while the session runs.
        ports: Ports of this machine at which people or programs decide.
        off: A reason to deny nothing; the record of the session has it. Empty if the protection is on.
    """

    paths: tuple[str | PathLike[str], ...] = ()
    more: Callable[[], Iterable[str | PathLike[str]]] = nothing_more
    ports: tuple[int, ...] = ()
    off: str = ""
    any_thread: bool = field(default=True, init=False)
    _home: str = field(factory=lambda: os.fspath(Path.home()), init=False)
    _guarded: Mapping[tuple[str | PathLike[str], ...], tuple[str, ...]] = field(factory=dict, init=False)
    """The spellings of the last paths."""

    def judge(self, facts: ActionFacts) -> RuleVerdict | None:
        """Return the denial of a tool call that could take the guard away, or None."""
        if facts.event != TOOL_PRE:
            return None
        from amplifier_hooks.impact.file_facts import ask_file_system
        from amplifier_hooks.impact.tools import predict_impact
        from amplifier_hooks.impacts import ImpactPolicy

        folder = facts.cwd or facts.root or "/"
        policy = ImpactPolicy(facts.root or folder, self._home, guarded=self._spellings(), guarded_ports=self.ports)
        impact = predict_impact(facts.tool, facts.arguments, policy, ask_file_system, folder=folder)
        for one in impact.impacts:
            if one.unguards:
                reason = REASON.format(place=one.place or facts.tool, reason=one.reason)
                return RuleVerdict(action="deny", rule=RULE, reason=reason)
        return None

    def _spellings(self) -> tuple[str, ...]:
        """Return the absolute paths, and the paths behind their links."""
        paths = (*self.paths, *self.more())
        if paths not in self._guarded:
            full = [os.path.abspath(path) for path in paths]  # noqa: PTH100  # pathlib keeps `..`
            self._guarded = {paths: tuple(dict.fromkeys((*full, *map(os.path.realpath, full))))}
        return self._guarded[paths]
