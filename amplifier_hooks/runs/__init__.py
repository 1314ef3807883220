"""A run of an agent is queued, its hooks judge its start and its end, and its result goes out."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from amplifier_hooks.runs.agents import Agents, load_agents
    from amplifier_hooks.runs.run_coordinator import RunCoordinator
    from amplifier_hooks.runs.run_errors import ParametersRefused
    from amplifier_hooks.runs.run_states import ENDED, Holder, RunRecord
    from amplifier_hooks.runs.runner import Runner
    from amplifier_hooks.runs.store.postgres import PostgresRuns
    from amplifier_hooks.runs.store.run_store import MemoryRuns, SqliteRuns

__all__ = [
    "ENDED",
    "Agents",
    "Holder",
    "MemoryRuns",
    "ParametersRefused",
    "PostgresRuns",
    "RunCoordinator",
    "RunRecord",
    "Runner",
    "SqliteRuns",
    "load_agents",
]

HOMES: Final = {
    "Agents": "agents",
    "ENDED": "run_states",
    "Holder": "run_states",
    "MemoryRuns": "store.run_store",
    "ParametersRefused": "run_errors",
    "PostgresRuns": "store.postgres",
    "RunCoordinator": "run_coordinator",
    "RunRecord": "run_states",
    "Runner": "runner",
    "SqliteRuns": "store.run_store",
    "load_agents": "agents",
}
"""The module of each name; it loads on first use."""


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"amplifier_hooks.runs.{HOMES[name]}"), name)
