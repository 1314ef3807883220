"""The centre of runs: it queues them, gives them to runners once their start hooks have passed, and handles their end.

Any number of coordinators may share a store. Each holds the runs whose hooks it runs under a lease; another coordinator
takes up the runs of one that died. The store is the truth: a coordinator keeps nothing that is not there.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from uuid import uuid4

from attrs import evolve
from msgspec.structs import replace

from amplifier_hooks import events as catalogue
from amplifier_hooks.act import thaw
from amplifier_hooks.definitions.kinds.agent import AgentInputRefused, AgentOrder, AgentResult
from amplifier_hooks.errors import HookUnavailable, InvalidResult
from amplifier_hooks.foreign_code import cancel_all
from amplifier_hooks.logs import get_logger
from amplifier_hooks.runs.blueprint import OUTDATED, apply_overrides
from amplifier_hooks.runs.run_hooks import FINISH, RunHooks, child_id, freeze_fitting, freeze_parameters
from amplifier_hooks.runs.run_states import (
    ENDED,
    STOP_REASON,
    Holder,
    ParametersRefused,
    ResultRefused,
    RunEnding,
    RunEvent,
    RunMoved,
    RunRecord,
    RunRefused,
    UnknownRun,
)
from amplifier_hooks.storage.database import Openable, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from amplifier_hooks.runs.blueprint import Agents, Blueprint
    from amplifier_hooks.runs.run_states import Change
    from amplifier_hooks.runs.run_store import RunStore


DEEPEST_RUN: Final = 8
MOST_STARTING: Final = 64
"""Start hooks that one coordinator runs at the same time."""
START_HOOK_TIMEOUT: Final = 0.1
"""Seconds a runner waits for the start hook begun for it, before another start hook is begun."""
LOOK: Final = 5.0
"""Seconds between two looks of a waiting caller, if it is not woken before."""

HOLD: Final[ContextVar[Holder | None]] = ContextVar("amplifier_hooks.run_hold", default=None)
"""The hold under which the current code runs start hooks."""

K = TypeVar("K")

log = get_logger(__name__)


class RunCoordinator(Openable):
    """Runs of the known agents, over an open store.

    Use the coordinator as an async context. Leaving the context cancels the hooks that are running and releases their
    runs, so that another coordinator takes them up. A coordinator belongs to one event loop.

    Args:
        store: Store of the runs, open.
        agents: Agents that may run, with the addresses that their hooks may reach.
        hooks: Hooks of the registry, and the functions and variables that hooks of blueprints need.
        lease: Seconds that this coordinator may hold a run without renewing.
        runner_lease: Seconds that a runner may do so.
    """

    def __init__(
        self,
        store: RunStore,
        agents: Agents,
        hooks: RunHooks | None = None,
        *,
        lease: float = 30.0,
        runner_lease: float = 60.0,
        max_depth: int = DEEPEST_RUN,
    ) -> None:
        self.store = store
        self.agents = agents
        self.name = f"coordinator-{uuid4().hex[:12]}"
        self.lease = lease
        self.runner_lease = runner_lease
        self._max_depth = max_depth
        self.run_hooks = evolve(hooks or RunHooks(), agents=self, reach=agents.reach, note=self._note)
        self._starting: dict[tuple[str, int], asyncio.Task[None]] = {}
        """Tasks that run start hooks, by the run and the number of the hold."""
        self._finishing: dict[str, asyncio.Task[None]] = {}
        self._kept = -inf
        """Time of the loop at which the store last answered."""
        self._back = -inf
        """Time of the loop at which the store answered again after a pause: it was away, or was not asked."""
        self._recovered = True
        """True if abandoned runs have been taken back since that time."""
        self._keeper: asyncio.Task[None] | None = None
        self._closing = False

    async def open(self) -> Self:
        """Take up abandoned runs, and begin to renew holds. Raise `StoreUnavailable`."""
        await self._keep()
        self._keeper = asyncio.get_running_loop().create_task(self._keep_forever())
        return self

    async def close(self) -> None:
        """Cancel the running hooks, and release their runs. A second call does nothing."""
        self._closing = True
        finishing = tuple(self._finishing)
        tasks = *self._starting.values(), *self._finishing.values(), *filter(None, [self._keeper])
        await cancel_all(tasks, grace=self.lease)
        with suppress(StoreUnavailable):  # the leases end by themselves
            await self.store.let_go(self.name)
            for run in finishing:
                await self._owe(run, 0)

    async def _note(self, run: str, told: Sequence[RunEvent], *, settled: bool = False) -> None:
        await self.store.change(run, partial(RunRecord.note, told=told, settled=settled))

    async def _owe(self, run: str, seconds: float) -> None:
        await self.store.change(run, partial(RunRecord.owe, seconds=seconds))

    # -- submitting ----------------------------------------------------------------------------------------------------

    async def submit(
        self,
        agent: str,
        parameters: Mapping[str, Any],
        *,
        tenant: str = "",
        parent: str | None = None,
        session: str | None = None,
    ) -> RunRecord:
        """Queue a run of an agent: as a child of `parent`, in an existing session, or in a new one.

        Args:
            agent: Name of the agent.
            parameters: Parameters of the run.
            tenant: Tenant that the run belongs to.
            parent: Id of the run that starts this one.
            session: Id of the session; None begins a new one.

        Raise `UnknownAgent`, `ParametersRefused`, `UnknownRun` for the parent, `UnknownSession`, `AgentsTooDeep`.
        """
        new = self._new_run(agent, parameters)
        new = replace(new, tenant=tenant, parent=parent, session=session or new.session)
        return await self.store.submit(new, self._max_depth, resumes=session is not None)

    def _new_run(self, agent: str, parameters: Mapping[str, Any]) -> RunRecord:
        blueprint = self.agents.get(agent)
        try:
            plain: Any = thaw(freeze_parameters(blueprint, parameters))
        except InvalidResult as problem:
            raise ParametersRefused(agent, str(problem)) from None
        run, session = f"run_{uuid4().hex}", f"ses_{uuid4().hex[:16]}"
        return RunRecord(id=run, session=session, agent=agent, parameters=plain, hooked=bool(blueprint.entries))

    # -- looking -------------------------------------------------------------------------------------------------------

    async def get(self, run: str, *, tenant: str | None = None) -> RunRecord:
        """Return one run. Raise `UnknownRun`, also for a run of another tenant."""
        return await self.store.get(run, tenant=tenant)

    # -- runners -------------------------------------------------------------------------------------------------------

    async def claim(
        self, runner: str, *, tenant: str | None = None, agents: Iterable[str] | None = None, wait: float = 0.0
    ) -> RunRecord | None:
        """Return a run for this runner alone, or None if there is none within `wait` seconds.

        The runner holds the run for the time of its lease; `renew` extends it. If start hooks have to run first, this
        begins them, and the run goes to a waiting runner once they have passed; meanwhile all other runs can be
        claimed. Cancelling the call takes no run; one that the store was about to hand out is found again after its
        lease.

        Args:
            runner: Name of the runner.
            agents: Names of the agents that the runner serves; None stands for all.
            wait: Seconds to wait for a run; with 0 the call waits only for a start hook that it begins, and briefly.
        """
        loop = asyncio.get_running_loop()
        end, begin = loop.time() + wait, True
        holders, leases = (runner, self.name), (self.runner_lease, self.lease)
        known = {blueprint.name for blueprint in self.agents}
        names = known if agents is None else known.intersection(agents)
        with self.store.watch() as watch:
            while True:
                room = len(self._starting) < MOST_STARTING and not self._closing
                record = await self.store.take(holders, leases, tenant=tenant, agents=names, begin=begin and room)
                left = end - loop.time()
                if record is None:
                    if left <= 0:
                        return None
                    await watch.wait(min(left, LOOK if room else START_HOOK_TIMEOUT))
                elif record.stage == "starting":
                    hold, begin = (record.id, record.attempt), left > 0
                    await asyncio.wait({_begin(self._starting, hold, self._start(record))}, timeout=START_HOOK_TIMEOUT)
                else:
                    return record

    async def _start(self, record: RunRecord) -> None:
        """Run the start hooks of a run, and store their outcome. A run that another holder has is left alone."""
        by, told = Holder(self.name, record.attempt), list[RunEvent]()
        HOLD.set(by)
        with _reported("run_start_not_kept", record.id), suppress(RunMoved):
            blueprint = await self._with_overrides(self.agents.get(record.agent))
            begun = await self.run_hooks.ask_start_hooks(record, blueprint, told)
            after = await self.store.change(record.id, partial(RunRecord.conclude, by=by, begun=begun, told=told))
            if after.stage in ENDED:
                await self.run_hooks.tell_end(after)

    async def _with_overrides(self, blueprint: Blueprint) -> Blueprint:
        """Return a blueprint with the overrides of its hooks."""
        if not blueprint.entries:
            return blueprint
        after, outdated = apply_overrides(blueprint, await self.store.overrides(blueprint.name))
        for point in outdated:
            log.warning("override_outdated", agent=blueprint.name, hook=point, problem=OUTDATED)
        return after

    async def renew(self, run: str, by: Holder, *, tenant: str | None = None) -> RunRecord:
        """Extend the hold of a run. `stopping` of the result is True if the run is to stop.

        Raise `UnknownRun` or `RunMoved`.
        """
        return await self.store.change(run, partial(RunRecord.renew, by=by, seconds=self.runner_lease), tenant)

    async def report(
        self, run: str, by: Holder, *, text: str | None = None, data: Any = None, tenant: str | None = None
    ) -> RunRecord:
        """Store a run's result: a text for an autonomous agent without an output schema, otherwise data.

        Raise `ResultRefused` for the other kind of result or one against the schema, `UnknownRun`, `RunMoved`.
        """

        def keep(record: RunRecord, now: datetime) -> Change:
            self._check_result(record, text, data)
            return record.report(now, by, text, data)

        after = await self.store.change(run, keep, tenant)
        await self.run_hooks.tell(catalogue.RUN_RESULT, after, **after.outcome)
        return after

    def _check_result(self, record: RunRecord, text: str | None, data: Any) -> None:
        blueprint = self.agents.get(record.agent)
        kind, value, other = ("text", text, data) if blueprint.brings_text else ("data", data, text)
        if other is not None or (text is None and blueprint.brings_text):
            raise ResultRefused(f"{record.agent!r} brings a {kind}: give result_{kind}, and leave the other one null")
        try:
            freeze_fitting(value, blueprint.output_schema)
        except InvalidResult as problem:
            raise ResultRefused(f"this is no result of {record.agent!r}: {problem}") from None

    async def complete(
        self, run: str, by: Holder, ending: RunEnding, *, error: str | None = None, tenant: str | None = None
    ) -> RunRecord:
        """End a run. The end is stored and reported first; then the finish hooks run. Ending a run twice is harmless.

        Raise `UnknownRun`. Raise `RunMoved` if the run ended in another way, another runner holds it, or it is to be
        completed without a result.
        """

        def end(record: RunRecord, now: datetime) -> Change:
            if ending == "completed" and not record.reported and record.stage not in ENDED:
                raise RunMoved(run, record.status, "it has no result yet; post that first, or say that it failed")
            return record.end(now, by, ending, error, owes=self._owes(record))

        after = await self.store.change(run, end, tenant)
        if after.owes and not self._closing:
            await self._take_up()
        return after

    def _owes(self, record: RunRecord) -> bool:
        """Return True if hooks have to run after the end of a run."""
        blueprint = self.agents.find(record.agent)
        own = blueprint is not None and not record.bare and FINISH in blueprint.entries
        return own or any(
            self.run_hooks.registry.is_heard(event) for event in (catalogue.RUN_FINISH, catalogue.RUN_ERROR)
        )

    async def _run_finish_hooks(self, record: RunRecord) -> None:
        """Run the hooks that follow the end of a run.

        An `async` hook counts as done when it starts, and is not run again.
        """
        with _reported("run_finish_not_kept", record.id):
            await self.run_hooks.tell_end(record)
            blueprint = None if record.bare else self.agents.find(record.agent)
            if blueprint is not None and FINISH in blueprint.entries:
                blueprint = await self._with_overrides(blueprint)
                if blueprint.entries[FINISH].mode == "async":
                    await self._note(record.id, (), settled=True)
                await self.run_hooks.ask_finish_hook(record, blueprint)
            await self._note(record.id, (), settled=True)

    async def stop(self, run: str, *, reason: str = STOP_REASON, tenant: str | None = None) -> RunRecord:
        """Stop a run: at once if no runner has it, otherwise through its runner. Raise `UnknownRun`.

        The agents that its start hook has started are stopped with it. A run that has ended stays as it is.
        """
        after = await self.store.change(run, partial(RunRecord.stop, reason=reason), tenant)
        if after.stage in ENDED:
            for (started, _), task in self._starting.items():
                if started == run:
                    task.cancel()
            for child in await self.store.children(run):
                if child.urgent and child.stage not in ENDED:
                    await self.stop(child.id, reason=f"the run it was started for was stopped: {reason}")
        return after

    # -- agents of hooks -----------------------------------------------------------------------------------------------

    async def run(self, order: AgentOrder) -> AgentResult:
        """Start an agent for a hook, and wait for its end. Cancelling the call stops that agent's run."""
        record, hold = await self._submit_order(order, urgent=True), HOLD.get()
        try:
            with self.store.watch(record.id) as watch:
                while record.stage not in ENDED:
                    await watch.wait(LOOK)
                    record = await self.store.get(record.id)
        except BaseException:
            with suppress(StoreUnavailable, UnknownRun):
                await asyncio.shield(self._stop_abandoned(record, hold))
            raise
        end: Any = {"run": record.id, "status": record.status, "error": record.error}
        return AgentResult(text=record.result_text, data=record.result_data, **end)

    async def _stop_abandoned(self, child: RunRecord, hold: Holder | None) -> None:
        """Stop an agent whose hook no longer waits for it.

        It goes on if the hook is repeated under another hold, because the hook then finds the agent at work.
        """
        parent = child if child.parent is None else await self.store.get(child.parent)
        repeated = parent.stage == "starting" and Holder(parent.holder or "", parent.attempt) != hold
        if not (self._closing or repeated or (parent is not child and parent.stage == "queued")):
            await self.stop(child.id, reason="the hook it was started for did not wait any longer")

    async def launch(self, order: AgentOrder) -> str:
        """Start an agent for a hook, in a session of its own, and return the id of its run without waiting."""
        return (await self._submit_order(order, urgent=False)).id

    async def _submit_order(self, order: AgentOrder, *, urgent: bool) -> RunRecord:
        try:
            new = self._new_run(order.agent, order.parameters)
            run = child_id(order.parent, order.key) if order.parent and order.key else new.id
            new = replace(new, id=run, tenant=order.owner, parent=order.parent, bare=True, urgent=urgent, hooked=False)
            return await self.store.submit(new, self._max_depth, parent_tenant=order.tenant)
        except ParametersRefused as problem:
            raise AgentInputRefused(order.agent, problem.problem) from None
        except RunRefused as problem:
            raise HookUnavailable(str(problem)) from None

    # -- keeping -------------------------------------------------------------------------------------------------------

    async def _keep_forever(self) -> None:
        """Renew the runs of this coordinator, and take up abandoned ones, until cancelled."""
        while True:
            await asyncio.sleep(self.lease / 3)
            with _reported("runs_not_kept"):
                await self._keep()

    async def _keep(self) -> None:
        """Renew the holds of this coordinator, take back the runs of lost holders, and run finish hooks that are owed.

        A hook whose run was stopped, or has another holder by now, is cancelled.
        """
        for (run, attempt), task in tuple(self._starting.items()):
            try:
                by = Holder(self.name, attempt)
                await self.store.change(run, partial(RunRecord.renew, by=by, seconds=self.lease))
            except RunRefused:
                task.cancel()
        for run in tuple(self._finishing):
            with suppress(UnknownRun):
                await self._owe(run, self.lease)
        now = asyncio.get_running_loop().time()
        if self._recovered and now - self._kept > 2 / 3 * self.lease:
            self._back, self._recovered = now, False
        self._kept = now
        # Holders could not renew while this coordinator slept or the store was away, so live ones get time to renew.
        # They get it only once: a machine that is always slow would otherwise never take back a lost run.
        if now - self._back >= self.runner_lease / 2:
            await self.store.recover()
            self._recovered = True
        await self._take_up()

    async def _take_up(self) -> None:
        """Run the finish hooks of runs that have no coordinator."""
        for record in await self.store.take_owing(self.lease):
            if record.id not in self._finishing:
                _begin(self._finishing, record.id, self._run_finish_hooks(record))


def _begin(tasks: dict[K, asyncio.Task[None]], key: K, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Begin work as a task, which `tasks` holds until it is done."""
    task = tasks[key] = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(lambda _: tasks.pop(key, None))
    return task


@contextmanager
def _reported(event: str, run: str = "") -> Iterator[None]:
    """Log the errors of the block. After one of the store, the lease ends, and a coordinator takes the run up."""
    try:
        yield
    except StoreUnavailable as problem:
        log.warning(event, run=run, error=str(problem))
    except Exception:
        log.exception(event, run=run)
