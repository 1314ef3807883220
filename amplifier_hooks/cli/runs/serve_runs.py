"""The commands over blueprints: `check`, and the two that run until a signal, a coordinator and a runner."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer
from attrs import field, frozen

from amplifier_hooks.cli.common.terminal_io import count_text, print_error, print_removed, start_problem, stop
from amplifier_hooks.cli.project.read_project import NamedHooks, find_in, follow_hooks
from amplifier_hooks.definitions.kinds.webhook import AllowedUrls
from amplifier_hooks.errors import HookError
from amplifier_hooks.registry.registry import HookRegistry
from amplifier_hooks.runs.blueprint import BlueprintError, load_agents

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from amplifier_hooks.definitions.reload import PinnedModules
    from amplifier_hooks.runs.blueprint import Agents
    from approval_backends.backend import DeferredApprovals


TRIES: Final = 50
BETWEEN_TRIES: Final = 0.1
"""Attempts to write a record while other servers write, and the seconds between two of them."""

Allowed = tuple["list[str] | None", "list[int] | None", "list[str] | None"]
"""Networks, ports and hosts of plain http that options allow."""


def check_blueprints(folder: Path, allowed: Allowed) -> None:
    """Print all that would fail at run time in the blueprints of a folder; end with exit code 1 if there is any."""
    agents = load_or_stop(folder, allowed)
    problems = problems_of(agents)
    for problem in problems:
        print_error(problem)
    names = [agent.name for agent in agents]
    typer.echo(": ".join(filter(None, [count_text(len(names), "agent"), ", ".join(names)])))
    if problems:
        raise typer.Exit(1)


def problems_of(agents: Agents) -> list[str]:
    """Return why hooks of these agents would fail. Nothing is imported: functions are looked up in files."""
    from amplifier_hooks.definitions.kinds.python import check_name
    from amplifier_hooks.runs.run_hooks import RunHooks

    here = Path.cwd()
    hooks = RunHooks(reach=agents.reach, variables=dict(os.environ), find=lambda name: check_name(name, here))
    return hooks.problems(agents)


def load_or_stop(folder: Path, allowed: Allowed) -> Agents:
    """Return the agents of a folder, with the URLs of options; if they cannot be loaded, end the command.

    Raise `BadParameter` for a network that is none.
    """
    networks, ports, http = (given or [] for given in allowed)
    try:
        agents = load_agents(folder)
        reach = agents.reach
        agents.reach = AllowedUrls(
            networks=[*map(str, reach.networks), *networks],
            ports={*reach.ports, *ports},
            http_hosts={*reach.http_hosts, *http},
        )
    except BlueprintError as problem:
        for line in problem.problems:
            where = "" if folder.is_dir() else f"{folder}: "
            print_error(f"{where}{line}")
        raise typer.Exit(1) from None
    except ValueError as problem:
        raise typer.BadParameter(f"--allow-network: {problem}; write it like 10.0.0.0/8") from None
    return agents


def serve_runs(
    folder: Path,
    *,
    store: str | None,
    hooks: str | None,
    port: int,
    leases: tuple[float, float],
    allowed: Allowed,
    as_json: bool,
) -> None:
    """Serve the queue until a signal ends it."""
    from amplifier_hooks.cli.project.read_project import functions_of, hooks_named
    from amplifier_hooks.runs.run_store import RUN_TABLES
    from amplifier_hooks.server.edge.access_tokens import ACCESS_TABLES
    from approval_backends.backend import DeferredApprovals
    from approval_backends.broker import Broker
    from approval_backends.errors import UnknownStore
    from approval_backends.stores.address import database_at, store_at

    agents = load_or_stop(folder, allowed)
    try:
        database = database_at(store, ACCESS_TABLES, RUN_TABLES)
        named = None if hooks is None else hooks_named(hooks)
        functions = functions_of(agents, folder)
        approvals = DeferredApprovals(Broker(store_at(store)))
    except (UnknownStore, HookError) as problem:
        raise typer.BadParameter(str(problem)) from None
    for line in problems_of(agents):
        print_error(line)
    serving = serve_until_cancelled(
        database,
        agents,
        hooks=named,
        functions=functions,
        approvals=approvals,
        port=port,
        leases=leases,
        as_json=as_json,
    )
    run_until_signal(serving, port)


@frozen
class RecordOnDemand:
    """A record that is open during each write only, so that several servers of this machine share it."""

    path: Path
    _turn: asyncio.Lock = field(factory=asyncio.Lock, init=False, eq=False)

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append one record, once no other server writes. Raise `LogUnavailable`."""
        from amplifier_hooks.record.log import AuditLog
        from amplifier_hooks.record.record_errors import LogInUse

        async with self._turn:
            for left in reversed(range(TRIES)):
                try:
                    async with AuditLog.open(self.path) as log:
                        await log.write(kind, facts, durable=durable)
                except LogInUse:
                    if not left:
                        raise
                    await asyncio.sleep(BETWEEN_TRIES)
                else:
                    return


async def serve_until_cancelled(
    database: Any,
    agents: Agents,
    *,
    hooks: NamedHooks | None = None,
    functions: PinnedModules | None = None,
    approvals: DeferredApprovals | None = None,
    port: int,
    leases: tuple[float, float],
    as_json: bool,
) -> None:
    """Serve the API of the runs until cancelled. With `approvals`, approvers decide about changes of trusted hooks."""
    from amplifier_hooks.runs.blueprint import OUTDATED, apply_overrides
    from amplifier_hooks.runs.run_coordinator import RunCoordinator
    from amplifier_hooks.runs.run_hooks import RunHooks
    from amplifier_hooks.runs.run_store import RunStore
    from amplifier_hooks.server.api import create_api, pages_router
    from amplifier_hooks.server.edge.access_tokens import AccessTokens
    from amplifier_hooks.server.edge.authentication import CallerCheck
    from amplifier_hooks.server.edge.listen import listening, loopback_socket
    from amplifier_hooks.server.runs.agent_routes import agents_router
    from amplifier_hooks.server.runs.run_routes import runs_router
    from amplifier_hooks.storage.state_folder import StateFolder

    for_runner, for_coordinator = leases
    record = RecordOnDemand(StateFolder().make().run_record)
    named = NamedHooks(HookRegistry()) if hooks is None else hooks
    kit = RunHooks(registry=named.registry, variables=dict(os.environ), find=find_in(functions))
    listener = loopback_socket(port)
    async with AsyncExitStack() as stack:
        if approvals is not None:
            await stack.enter_async_context(approvals)
        stack.push_async_callback(named.close)
        await stack.enter_async_context(follow_hooks(named, approvals, record, functions))
        store = await stack.enter_async_context(RunStore(database))
        coordinator = RunCoordinator(store, agents, kit, lease=for_coordinator, runner_lease=for_runner)
        runs = await stack.enter_async_context(coordinator)
        routers = (pages_router(), runs_router(runs), agents_router(runs, record))
        api = create_api(CallerCheck(AccessTokens(database)), *routers)
        await stack.enter_async_context(listening(api, listener))
        for blueprint in agents:
            _, outdated = apply_overrides(blueprint, await store.overrides(blueprint.name))
            for point in outdated:
                print_error(f"{blueprint.name}: hooks.{point}: {OUTDATED}")
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        names = [agent.name for agent in agents]
        facts, count = json.dumps({"url": url, "agents": names}), count_text(len(names), "agent")
        typer.echo(
            facts if as_json else f"Runs of {count} at {url}, with a page at {url}/#runs; Ctrl-C ends it.",
            err=not as_json,
        )
        sys.stdout.flush()
        await asyncio.Event().wait()


def purge_runs(seconds: float, *, store: str | None, as_json: bool) -> None:
    """Remove the runs of a store that ended so many seconds ago, and print their number."""
    from amplifier_hooks.cli.approvals.open_store import run_or_stop
    from amplifier_hooks.runs.run_store import RUN_TABLES, RunStore
    from approval_backends.errors import UnknownStore
    from approval_backends.stores.address import database_at

    try:
        database = database_at(store, RUN_TABLES)
    except UnknownStore as problem:
        raise typer.BadParameter(str(problem)) from None

    async def remove() -> int:
        async with RunStore(database) as runs:
            return await runs.purge(seconds)

    print_removed(run_or_stop(remove()), "run", as_json=as_json)


def work_runs(agents: str, *, name: str | None, url: str, token: str) -> None:
    """Carry out queued runs until a signal ends it."""
    from amplifier_hooks.cli.project.read_project import import_here
    from amplifier_hooks.runs.runner import Runner

    try:
        functions = dict(import_here(agents, "AGENTS"))
    except Exception as problem:  # noqa: BLE001  # a foreign module may raise anything
        raise typer.BadParameter(
            f"{agents!r}: {problem}; write MODULE:NAME of a mapping of agent and function"
        ) from None

    async def working() -> None:
        async with Runner(url, token, functions, name=name) as runner:
            typer.echo(f"{runner.name} runs {', '.join(functions)}; Ctrl-C ends it.", err=True)
            await runner.serve()

    run_until_signal(working())


def run_until_signal(task: Coroutine[Any, Any, None], port: int | None = None) -> None:
    """Run a task until it or a signal ends it; print an error that ends it, and end with exit code 1."""
    from amplifier_hooks.storage.database import StoreUnavailable

    async def wait_for_signal() -> None:
        going = asyncio.ensure_future(task)
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):
                asyncio.get_running_loop().add_signal_handler(number, going.cancel)
        with suppress(asyncio.CancelledError):
            await going

    try:
        asyncio.run(wait_for_signal())
    except (OSError, StoreUnavailable, HookError) as problem:
        stop(f"It cannot go on: {start_problem(problem, port=port)}")
