"""What is asked of a store of runs, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from datetime import datetime

    from amplifier_hooks.runs.run_events import Told
    from amplifier_hooks.runs.run_states import Holder, RunRecord, RunStatus


@frozen(kw_only=True)
class NewRun:
    """A run to be queued. One whose id is there already is that run."""

    id: str
    tenant: str
    session: str
    agent: str
    parameters: dict[str, Any]
    parent: str | None = None
    bare: bool = False
    urgent: bool = False
    hooked: bool = False
    resumes: bool = False
    """The session is to be there already."""


@frozen(kw_only=True)
class Wanted:
    """What whoever claims would take.

    `tenant` and `agents` None mean all. `begin`: also runs whose start hooks have to run first; `heard`: the registry
    has hooks for the start of any run.
    """

    tenant: str | None = None
    agents: frozenset[str] | None = None
    begin: bool = True
    heard: bool = False


@frozen(kw_only=True)
class Passed:
    """What the start hooks made of a run: go on with `parameters`, or `error`; blocked if a hook said so."""

    parameters: dict[str, Any] | None = None
    error: str | None = None
    blocked: bool = False
    told: tuple[Told, ...] = ()


@frozen
class Concluded:
    """What came of the start hooks of one run, and the runner that waits for it.

    `known` is the run as it was when it was begun: if it still is, it need not be read again.
    """

    run: str
    by: Holder
    passed: Passed
    runner: str | None = None
    known: RunRecord | None = None


@frozen(kw_only=True)
class RunFilter:
    """Which runs to list. None and False mean that it does not matter."""

    tenant: str | None = None
    has_hooks: bool = False
    blocked: bool = False
    status: RunStatus | None = None
    agent: str | None = None
    parent: str | None = None
    session: str | None = None
    before: tuple[datetime, str] | None = None
    """Those after this one in the list: when it was created, and its id."""
