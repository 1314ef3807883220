"""A database server that is killed at any moment: afterwards it has the acknowledged changes, and nothing else."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import socket
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from attrs import define

from amplifier_hooks.storage.database import StoreUnavailable
from approval_backends.lifecycle import RequestRecord
from approval_backends.stores.postgres import PostgresStore
from approval_backends.testing import a_request, an_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_hooks.ports import ApprovalRequest

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

STEPS: Final = {"pending": ("submitted",), "approved": ("submitted", "approve")}
STEPS_TO_DONE: Final = {
    **STEPS,
    "claimed": (*STEPS["approved"], "claim"),
    "done": (*STEPS["approved"], "claim", "finish"),
}


@define
class Server:
    """A PostgreSQL server of this test's own."""

    programs: Path
    folder: Path
    port: int
    options: dict[str, Any]
    process: asyncio.subprocess.Process | None = None

    @property
    def dsn(self) -> str:
        """The address at which the server answers."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    async def start(self) -> None:
        """Start the server, or start it again; it has recovered when this returns."""
        self.process = await asyncio.create_subprocess_exec(
            self.programs / "postgres", "-D", self.folder, "-p", str(self.port), "-k", self.folder,
            "-c", "listen_addresses=127.0.0.1", stderr=asyncio.subprocess.PIPE, **self.options,
        )  # fmt: skip
        assert self.process.stderr is not None
        said = b""
        while b"ready to accept connections" not in said:
            line = await self.process.stderr.readline()
            assert line, said.decode()
            said += line

    async def kill(self) -> None:
        """Kill the server and all its children, at once."""
        if self.process is None or self.process.returncode is not None:
            return
        own = self.process.pid
        for pid in (own, *children(own)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await self.process.communicate()


def children(pid: int) -> list[int]:
    """Return the children of a process that are still there."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def installed() -> list[Path]:
    """Return the folders with programs of a PostgreSQL server, the newest last."""
    return sorted(one.parent for one in Path("/usr/lib/postgresql").glob("*/bin/initdb"))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A server in a folder of its own, with the settings it comes with."""
    if not (found := installed()):
        pytest.skip("there is no PostgreSQL here to start a second server of")
    options: dict[str, Any] = {}
    folder = Path(tempfile.mkdtemp())
    if os.geteuid() == 0:  # it refuses to run as root
        who = pwd.getpwnam("postgres")
        os.chown(folder, who.pw_uid, who.pw_gid)
        options = {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": [], "cwd": folder}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    making = await asyncio.create_subprocess_exec(
        found[-1] / "initdb",
        "-D",
        folder,
        "-A",
        "trust",
        "-U",
        "postgres",
        stdout=asyncio.subprocess.DEVNULL,
        **options,
    )
    assert await making.wait() == 0
    one = Server(found[-1], folder, port, options)
    try:
        await one.start()
        yield one
    finally:
        await one.kill()
        shutil.rmtree(folder)


async def working(store: PostgresStore, round_: int, begun: dict[str, int], told: dict[str, int]) -> None:
    """Ask, decide, claim and settle one after the other, and note the begun and the acknowledged changes, for ever."""
    number = 0
    while True:
        request = a_request(id=f"r{round_}-{number}", session=f"s{number}")
        for count, step in enumerate(steps(store, request), 1):
            begun[request.id] = count
            assert isinstance(await step, RequestRecord)
            told[request.id] = count
        number += 1


def steps(store: PostgresStore, request: ApprovalRequest) -> Any:
    """Return the life of a request, one change after the other."""
    yield store.submit(request)
    yield store.answer(an_answer(request))
    yield store.move(request.id, "claim", digest=request.digest)
    yield store.move(request.id, "finish")


@asynccontextmanager
async def at_work(
    store: PostgresStore, round_: int, begun: dict[str, int], told: dict[str, int]
) -> AsyncIterator[None]:
    """Let work go on meanwhile, until the store cannot be used; nothing else ends it."""
    task = asyncio.ensure_future(working(store, round_, begun, told))
    yield
    with pytest.raises(StoreUnavailable):
        await task


@pytest.mark.rule("BCK-8")
@pytest.mark.fault("F-ST-02")
async def test_database_killed(server: Server) -> None:
    """A killed server blocks, and after its restart the same store has every acknowledged change, and no other."""
    begun, told = dict[str, int](), dict[str, int]()
    async with PostgresStore(server.dsn, limit=2.0) as store:
        for round_ in range(6):
            async with at_work(store, round_, begun, told):
                while sum(told.values()) < 40 * (round_ + 1) + round_:
                    with store.watch() as watch:
                        await watch.wait(1.0)
                await server.kill()
            with pytest.raises(StoreUnavailable):
                await store.submit(a_request())
            await server.start()
            for name, count in begun.items():
                record = await store.get(name)
                events = tuple(event.kind for event in await store.events(name))
                assert told.get(name, 0) <= len(events) <= count
                assert events == (STEPS_TO_DONE[record.status] if record else ())
    assert len(begun) > 40
