"""The agents there are: their blueprints by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amplifier_hooks.runs.blueprint import LARGEST_BLUEPRINT, read_blueprint, read_entries
from amplifier_hooks.runs.run_errors import BlueprintError, UnknownAgent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from amplifier_hooks.runs.blueprint import Blueprint


NAMED_HOOKS: Final = "hooks.json"
"""The file among the blueprints that holds no blueprint but the hooks they refer to."""


class Agents:
    """Blueprints by name. Raises `BlueprintError` for a name given twice."""

    def __init__(self, blueprints: Iterable[Blueprint] = ()) -> None:
        self._known: dict[str, Blueprint] = {}
        for blueprint in blueprints:
            if blueprint.name in self._known:
                raise BlueprintError(blueprint.name, ["there are two agents of this name; give one another"])
            self._known[blueprint.name] = blueprint

    def __iter__(self) -> Iterator[Blueprint]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def get(self, name: str) -> Blueprint:
        """The blueprint of this name. Raises `UnknownAgent`."""
        found = self._known.get(name)
        if found is None:
            raise UnknownAgent(name, self._known)
        return found

    def missing(self) -> list[str]:
        """Hooks whose agent is not here. To be told early: at a run such a hook fails, and its on_error decides."""
        return [
            f"{blueprint.name}: hooks.{point}: there is no agent {entry.agent_name!r}"
            for blueprint in self
            for point, entry in blueprint.hooks
            if entry is not None and entry.agent_name is not None and entry.agent_name not in self._known
        ]


def load_agents(folder: Path) -> Agents:
    """Every blueprint of a folder: its `*.json`, but `hooks.json`, which holds the hooks they refer to.

    Raises `BlueprintError` with the mistakes of all files: a folder is taken as a whole or not at all.
    """
    if not folder.is_dir():
        raise BlueprintError(str(folder), ["there is no such folder; name one that holds blueprints"])
    problems: list[str] = []
    blueprints: list[Blueprint] = []
    shared = folder / NAMED_HOOKS
    named = read_entries(_text(shared), name=shared.name) if shared.exists() else {}
    for path in sorted(folder.glob("*.json")):
        if path.name == NAMED_HOOKS:
            continue
        try:
            blueprints.append(read_blueprint(_text(path), name=path.name, named=named))
        except BlueprintError as problem:
            problems += str(problem).splitlines()
    if problems:
        raise BlueprintError(str(folder), problems)
    return Agents(blueprints)


def _text(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_BLUEPRINT + 1)
    except OSError as problem:
        raise BlueprintError(path.name, [f"it cannot be read: {problem.strerror or problem}"]) from None
