"""The work of another process on a store: `python worker.py STORE ACTION ...`; it can be told to die at any point.

STORE is the path of a SQLite file, or a DSN and a schema after `#`.
"""

# it says what it did on standard output

# ruff: noqa: T201  # it says what it did on standard output

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from approval_backends.broker import Broker
from approval_backends.lifecycle import Decider, RequestRecord
from approval_backends.stores.approval_store import OpenRequestLimits
from approval_backends.stores.postgres import PostgresStore
from approval_backends.stores.sqlite import SqliteStore
from approval_backends.testing import ALLOW, DENY, a_request

if TYPE_CHECKING:
    from amplifier_hooks.ports import ApprovalRequest, Decision
    from approval_backends.stores.transactions import DatabaseStore

ROOM = OpenRequestLimits(per_session=100_000, per_tenant=100_000)


def store_at(address: str) -> DatabaseStore:
    """Return the store at an address."""
    dsn, schema, name = address.partition("#")
    return PostgresStore(dsn, ROOM, schema=name, connections=2) if schema else SqliteStore(address, ROOM, limit=30)


def request(number: int) -> ApprovalRequest:
    """Return the n-th request, equal in every process."""
    now = datetime.now(UTC)
    return replace(a_request(number, id=f"r{number}"), created=now, expires=now + timedelta(seconds=300))


def die() -> None:
    """Die as by kill -9, or by a power cut for this process."""
    os.kill(os.getpid(), signal.SIGKILL)


async def race(address: str, name: str, rounds: str) -> None:
    """Decide every request as soon as it is there; print which ones this process won."""
    won: list[str] = []
    option = ALLOW if int(name) % 2 else DENY
    async with store_at(address) as store:
        broker, by = Broker(store), Decider(name=name, channel="race")
        print("ready", flush=True)
        with store.watch() as watch:
            for number in range(int(rounds)):
                while (await broker.decide(f"r{number}", request(number).digest, "?", by)).record is None:
                    await watch.wait(0.5)
                if (await broker.decide(f"r{number}", request(number).digest, option.id, by)).accepted:
                    won.append(f"r{number}")
    print(json.dumps(won), flush=True)


async def live(address: str, canary: str, point: str) -> None:  # noqa: C901  # a line for each point
    """Ask, get an answer, claim, run, settle; and die at the point that is named."""
    async with store_at(address) as store:
        broker, one = Broker(store), request(1)
        if point == "asked":
            die()
        if point == "storing the request":
            _die_within(store, "INSERT INTO {schema}.approval_event")
        await broker.submit(one)
        if point == "stored":
            die()
        by = Decider(name="Robin", channel="x")
        if point == "storing the decision":
            _die_within(store, "INSERT INTO {schema}.approval_event")
        await broker.decide(one.id, one.digest, ALLOW.id, by, decision_id="d1")
        if point == "approved":
            die()
        record = await broker.wait(one.id)
        await store.mark_recorded(record.id, version=record.version)
        if point == "recorded":
            die()
        if point == "storing the claim":
            _die_within(store, "INSERT INTO {schema}.approval_event")
        assert isinstance(await broker.claim(one.id, one.digest), RequestRecord)
        if point == "claimed":
            die()
        descriptor = os.open(canary, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, b"ran\n")
        os.close(descriptor)
        if point == "effect done":
            die()
        await broker.settle(one.id, "done")
        if point == "settled":
            die()


def _die_within(store: DatabaseStore, where: str) -> None:
    """Die in the middle of the next transaction, right before this statement."""
    from amplifier_hooks.storage import sqlite

    execute = sqlite._execute

    def fatal(connection: object, sql: str, values: tuple[object, ...]) -> object:
        if sql.startswith(where):
            die()
        return execute(connection, sql, values)  # type: ignore[arg-type]

    sqlite._execute = fatal  # type: ignore[assignment]


async def decide(address: str, point: str) -> None:
    """Decide the pending requests, and die before or after the decision is stored."""
    async with store_at(address) as store:
        broker = Broker(store)
        with broker.watch() as watch:
            while not (pending := await broker.pending(Decider(name="Kim", channel="y"))):
                await watch.wait(1)
        if point == "clicked":
            die()
        one = pending[0]
        await broker.decide(one.id, one.digest, ALLOW.id, Decider(name="Kim", channel="y"), decision_id="d2")
        if point == "stored":
            die()


async def wait(address: str, number: str) -> None:
    """Ask, say so, and wait for the decision; SIGTERM takes the question back before the process ends."""
    from approval_backends.backend import DeferredApprovals

    async with DeferredApprovals(store_at(address)) as approvals:

        async def everything() -> list[Decision]:
            return list(await asyncio.gather(*(approvals.request(request(one)) for one in range(int(number)))))

        task = asyncio.ensure_future(everything())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with approvals.broker.watch() as watch:
            while len(await approvals.broker.pending(Decider(name="x", channel="y"))) < int(number):
                await watch.wait(1)
        print("ready", flush=True)
        await asyncio.wait({task})
        print("cancelled" if task.cancelled() else [one.by for one in task.result()], flush=True)


if __name__ == "__main__":
    actions = {"race": race, "live": live, "decide": decide, "wait": wait}
    asyncio.run(actions[sys.argv[2]](sys.argv[1], *sys.argv[3:]))  # type: ignore[operator]
