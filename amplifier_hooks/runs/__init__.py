"""Runs of agents come in and are queued; hooks judge their start and their end, and their results go out."""

from typing import TYPE_CHECKING

from amplifier_hooks import load_on_use

if TYPE_CHECKING:
    from amplifier_hooks.runs.blueprint import Agents, load_agents
    from amplifier_hooks.runs.run_coordinator import RunCoordinator
    from amplifier_hooks.runs.run_hooks import RunHooks
    from amplifier_hooks.runs.run_states import ENDED, Blocked, Holder, ParametersRefused, RunRecord
    from amplifier_hooks.runs.run_store import MemoryRuns, PostgresRuns, SqliteRuns
    from amplifier_hooks.runs.runner import Runner

__all__ = [
    "ENDED",
    "Agents",
    "Blocked",
    "Holder",
    "MemoryRuns",
    "ParametersRefused",
    "PostgresRuns",
    "RunCoordinator",
    "RunHooks",
    "RunRecord",
    "Runner",
    "SqliteRuns",
    "load_agents",
]

__getattr__ = load_on_use(
    __name__,
    {
        "blueprint": ("Agents", "load_agents"),
        "run_coordinator": ("RunCoordinator",),
        "run_hooks": ("RunHooks",),
        "run_states": ("ENDED", "Blocked", "Holder", "ParametersRefused", "RunRecord"),
        "run_store": ("MemoryRuns", "PostgresRuns", "SqliteRuns"),
        "runner": ("Runner",),
    },
)
