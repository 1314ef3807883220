"""The HTTP API as a whole: a database, a registry and a broker come in; the application and its parts go out.

async with open_api(registry=registry, broker=broker, record=log) as api:
    async with listening(api.app, loopback_socket(8438)):
        ...
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from attrs import frozen

from amplifier_hooks.clock import SystemClock
from amplifier_hooks.definitions.install.defined_hooks import TENANT_HANDLERS, DefinedHooks
from amplifier_hooks.definitions.model import DefinitionSettings
from amplifier_hooks.definitions.store import DEFINITION_TABLES, DefinitionStore
from amplifier_hooks.library import Metrics
from amplifier_hooks.record.journal import JOURNAL_TABLES, Journal
from amplifier_hooks.server.api import create_api, pages_router
from amplifier_hooks.server.approval_routes import approvals_router, stops_router, void_questions
from amplifier_hooks.server.edge.access_tokens import ACCESS_TABLES, AccessTokens
from amplifier_hooks.server.edge.authentication import CallerCheck
from amplifier_hooks.server.health import Health, MeasuringMiddleware, Meter, metrics_router
from amplifier_hooks.server.hooks.execution_log import MOST_ENTRIES, ExecutionRecorder
from amplifier_hooks.server.hooks.hook_routes import Trials, hooks_router, logs_router
from amplifier_hooks.server.hooks.stored_hooks import HookKeeper, StoredHooks
from amplifier_hooks.storage.sqlite import MemoryDatabase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection

    from fastapi import APIRouter, FastAPI

    from amplifier_hooks.ports import AuditSink, Clock
    from amplifier_hooks.registry.registry import HookRegistry
    from amplifier_hooks.server.edge.host_check import HttpLimits
    from amplifier_hooks.storage.database import Database
    from approval_backends.broker import Broker


API_TABLES: Final = (ACCESS_TABLES, DEFINITION_TABLES, JOURNAL_TABLES)
"""Tables that the database has to have."""


@frozen(eq=False, kw_only=True)
class ManagedApi:
    """The application and its parts."""

    app: FastAPI
    """The application, to be served."""
    tokens: AccessTokens
    """The tokens of the API."""
    caller_check: CallerCheck
    """Finds the caller of a request."""
    keeper: HookKeeper
    """Puts definitions in force."""
    stored_hooks: StoredHooks
    """The definitions in the database."""
    recorder: ExecutionRecorder
    """Keeps the executions of hooks."""
    meter: Meter
    """The measures of the server."""


@asynccontextmanager
async def open_api(
    database: Database | None = None,
    *,
    registry: HookRegistry,
    broker: Broker,
    record: AuditSink,
    settings: DefinitionSettings | None = None,
    routers: Collection[APIRouter] = (),
    bounds: HttpLimits | None = None,
    tenant_handlers: Collection[str] = TENANT_HANDLERS,
    made: Callable[[HookRegistry], DefinedHooks] | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[ManagedApi]:
    """Put the definitions of an open database in force, and make the application, for the duration of the block.

    Without a database, definitions and tokens are in memory and end with the block. `routers` are further routes;
    `made` makes the `DefinedHooks` of a registry, for hosts with further kinds of hooks.
    Raises `StoreUnavailable` when the database cannot be read.

    Args:
        database: Open database with the tables of the API; None keeps everything in memory.
        broker: Broker whose requests the API shows and decides.
        record: Sink of the record.
        settings: Settings of definitions; the environment's if None.
        bounds: Limits of a request, and names of this server; the defaults if None.
    """
    settings, clock = settings or DefinitionSettings(), clock or SystemClock()
    own = database is None
    database = database or MemoryDatabase(*API_TABLES)
    store = DefinitionStore(database)
    standing = StoredHooks(registry, settings, made or partial(DefinedHooks, tenant_handlers=tenant_handlers))
    keeper = HookKeeper(
        store=store,
        in_force=standing,
        record=record,
        clock=clock,
        changed=partial(void_questions, broker),
    )
    retention = timedelta(hours=settings.hooks_execution_log_retention_hours)
    journal = Journal(database, "event", "hook", keep=retention, clock=clock, most=MOST_ENTRIES)
    recorder = ExecutionRecorder(journal, clock)
    tokens = AccessTokens(database, clock, record=record)
    caller_check, meter = CallerCheck(tokens), Meter()
    meter.gauge("execution_log_lost", "Entries of the execution log that were lost.", lambda: float(journal.lost))
    meter.gauge("hooks", "Hooks in the registry.", lambda: float(len(registry.hooks())))
    undo = Metrics(prometheus=meter.registry).register(registry)
    looks: dict[str, Callable[[], Awaitable[object]]] = {
        "store": tokens.check_store,
        "approvals": partial(broker.store.get, ""),
        "definitions": standing.check,
    }
    if check := getattr(record, "check", None):
        looks["record"] = check
    app = create_api(
        caller_check,
        logs_router(journal),
        hooks_router(keeper, Trials(standing.alone, clock)),
        approvals_router(broker, record),
        stops_router(broker, record),
        metrics_router(meter),
        pages_router(),
        *routers,
        bounds=bounds,
        health=Health(looks, stopped=broker.is_stopped),
    )
    app.add_middleware(MeasuringMiddleware, meter=meter)
    async with AsyncExitStack() as stack:
        if own:
            await database.open()
            stack.push_async_callback(database.close)
        stack.callback(undo)
        await stack.enter_async_context(standing.following(store))
        if settings.hooks_execution_log_enabled:
            await stack.enter_async_context(recorder.running(registry))
        yield ManagedApi(
            app=app,
            tokens=tokens,
            caller_check=caller_check,
            keeper=keeper,
            stored_hooks=standing,
            recorder=recorder,
            meter=meter,
        )
