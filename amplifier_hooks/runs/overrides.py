"""Overrides of the hooks that blueprints name: stored beside the runs, each made for one content of its blueprint.

The files of blueprints stay as they are. A coordinator reads the overrides of an agent each time before it runs the
agent's hooks, so that all coordinators over a store follow a change at once.
"""

from __future__ import annotations

from datetime import datetime  # msgspec reads the annotations
from typing import TYPE_CHECKING, Any, Final

import msgspec

from amplifier_hooks.runs.blueprint import HookTarget, OnError, StartEntry
from amplifier_hooks.runs.run_states import HookPoint
from amplifier_hooks.storage.database import CorruptStore

if TYPE_CHECKING:
    from amplifier_hooks.runs.blueprint import Blueprint, HookEntry
    from amplifier_hooks.storage.database import Database


OVERRIDE_TABLE: Final = (
    "CREATE TABLE {schema}.hook_override (agent TEXT NOT NULL, point TEXT NOT NULL, body TEXT NOT NULL, "
    "PRIMARY KEY (agent, point))"
)
READ: Final = "SELECT body FROM {schema}.hook_override WHERE agent = $1 ORDER BY point"
ADD: Final = (
    "INSERT INTO {schema}.hook_override (agent, point, body) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING agent"
)
CHANGE: Final = (
    "UPDATE {schema}.hook_override SET body = $4 WHERE agent = $1 AND point = $2 AND body = $3 RETURNING agent"
)
REMOVE: Final = "DELETE FROM {schema}.hook_override WHERE agent = $1 AND point = $2 AND body = $3 RETURNING agent"
OUTDATED: Final = "its override was made for another content of the blueprint; make it again, or remove it"


class HookOverride(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that replace those of a blueprint's hook, while the blueprint has this digest."""

    agent: str
    point: HookPoint
    digest: str
    type: HookTarget
    on_error: OnError
    timeout_seconds: float
    agent_name: str | None = None
    url: str | None = None
    by: str
    """Name of its author in the record."""
    at: datetime

    def entry_over(self, entry: HookEntry) -> HookEntry:
        """Return the hook of the blueprint with the fields of the override. Raise pydantic's `ValidationError`.

        A Python hook keeps its function. Method and headers, which may hold secrets, stay with their URL.
        """
        fields: dict[str, Any] = {"type": self.type, "on_error": self.on_error, "timeout_seconds": self.timeout_seconds}
        targets = {"agent_name": self.agent_name, "url": self.url}
        fields |= {name: value for name, value in targets.items() if value is not None}
        kept = {"handler_ref"} if self.type == "python" else {"method", "headers"} if self.url == entry.url else set()
        own = entry.model_dump(include={"mode", *kept}, exclude_unset=True)
        return type(entry).model_validate({**own, **fields})


class OutdatedEntry(StartEntry):
    """A start hook that fails: its override was made for another content of the blueprint."""


def apply_overrides(blueprint: Blueprint, overrides: tuple[HookOverride, ...]) -> tuple[Blueprint, list[str]]:
    """Return a blueprint with these overrides of its hooks, and the points whose override is outdated.

    A start hook whose failure blocks, in the blueprint or in its outdated override, fails; other hooks with an outdated
    override are those of the blueprint.
    """
    hooks: dict[str, HookEntry] = {}
    outdated: list[str] = []
    for one in overrides:
        entry: HookEntry | None = getattr(blueprint.hooks, one.point)
        if entry is None:
            continue
        if one.digest == blueprint.digest:
            hooks[one.point] = one.entry_over(entry)
            continue
        outdated.append(one.point)
        if one.point == "on_run_start" and "block" in (entry.on_error, one.on_error):
            hooks[one.point] = OutdatedEntry.model_construct(**{**dict(entry), "on_error": "block"})
    changed = blueprint.hooks.model_copy(update=hooks)
    return (blueprint.model_copy(update={"hooks": changed}) if hooks else blueprint), outdated


class HookOverrides:
    """The overrides in the database of the runs. All methods raise `StoreUnavailable` if it cannot be used."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, agent: str) -> tuple[HookOverride, ...]:
        """Return the overrides of an agent's hooks, at most one for each point."""
        rows = await self._database.fetch(READ, agent)
        try:
            return tuple(msgspec.json.decode(body, type=HookOverride) for (body,) in rows)
        except msgspec.DecodeError as problem:
            raise CorruptStore(f"an override of {agent!r} cannot be read: {problem}") from problem

    async def replace(self, before: HookOverride | None, after: HookOverride | None) -> bool:
        """Replace an override of a hook; None is no override. Return False if there is not `before` any more."""
        about = after or before
        if about is None:
            return True
        sql = ADD if before is None else CHANGE if after is not None else REMOVE
        bodies = [msgspec.json.encode(one).decode() for one in (before, after) if one is not None]
        return bool(await self._database.fetch(sql, about.agent, about.point, *bodies))
