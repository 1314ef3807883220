"""The errors of runs, and the role that has to act on each.

```
HookError
├── BlueprintError (ValueError)     a blueprint that cannot be used; its author corrects it
└── RunRefused                      the request has no effect; the reason says why
    ├── UnknownAgent (LookupError)  there is no blueprint of that name
    ├── UnknownRun (LookupError)    there is no such run, or it belongs to another tenant
    ├── UnknownSession (LookupError)  there is no such session to continue
    ├── ParametersRefused (ValueError)  parameters that do not fit the agent's schema
    ├── ResultRefused (ValueError)  a result of another kind than the agent's, or against its schema
    ├── AgentsTooDeep               agents start agents that start agents …
    └── RunMoved                    the run is in another state, or another runner holds it
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_hooks.errors import HookError

if TYPE_CHECKING:
    from collections.abc import Iterable


class BlueprintError(HookError, ValueError):
    """A blueprint that cannot be used. `problems` lists all its mistakes, each with its place."""

    def __init__(self, name: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{name}: {problem}" for problem in self.problems))


class RunRefused(HookError):
    """A request about a run that has no effect."""


class UnknownAgent(RunRefused, LookupError):
    """An agent without a blueprint."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        there = ", ".join(sorted(known)) or "none"
        super().__init__(f"there is no agent {name!r:.80}; there are: {there}")


class UnknownRun(RunRefused, LookupError):
    """A run that does not exist, or that the caller may not see."""

    def __init__(self, run: str) -> None:
        super().__init__(f"there is no run {run!r:.80}")


class UnknownSession(RunRefused, LookupError):
    """A session in which no run of this tenant exists."""

    def __init__(self, session: str) -> None:
        super().__init__(f"there is no session {session!r:.80}; leave it out to begin a new one")


class ParametersRefused(RunRefused, ValueError):
    """Parameters that do not fit the schema of their agent."""

    def __init__(self, agent: str, problem: str) -> None:
        self.problem = problem
        super().__init__(f"these are no parameters for {agent!r}: {problem}")


class ResultRefused(RunRefused, ValueError):
    """A result that this agent may not bring."""

    def __init__(self, agent: str, problem: str) -> None:
        super().__init__(f"this is no result of {agent!r}: {problem}")


class AgentsTooDeep(RunRefused):
    """Agents have started agents, deeper than the limit. `chain` names them, the first one first."""

    def __init__(self, chain: Iterable[str], limit: int) -> None:
        self.chain = tuple(chain)
        self.limit = limit
        super().__init__(
            f"agents start agents more than {limit} deep: {' → '.join(self.chain)}; break the cycle, or raise "
            "max_depth of the coordinator"
        )


class RunMoved(RunRefused):
    """The run is in a state that does not allow the request: it ended, was stopped, or another runner holds it."""

    def __init__(self, run: str, status: str, problem: str) -> None:
        self.run = run
        self.status = status
        super().__init__(f"run {run}: {problem}")
