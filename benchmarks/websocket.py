"""The cost of approving over WebSockets, beside a bare `websockets` server that sends and hears as much.

Both servers run here and take turns; all clients run in a process of their own, in plain `websockets` without
compression. Questions come one at a time, with a pause before each. The bare server sends the same text to everybody
who is to see it, and waits until one client has sent the same answer. Ours asks, keeps, shows, hears, decides, answers,
tells, and wakes the caller, over a store in memory.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import sys
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from importlib.resources import files
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from approval_backends.broker import Broker
from approval_backends.gateway.approvers import Approver
from approval_backends.gateway.client_hub import GatewayLimits
from approval_backends.gateway.gateway import Gateway
from approval_backends.gateway.page_files import TYPES, Asset, Assets
from approval_backends.gateway.wire.messages import Added, notification_text
from approval_backends.gateway.wire.record_messages import row as row_of
from approval_backends.lifecycle import Moment, new_record
from approval_backends.stores.approval_store import OpenRequestLimits
from approval_backends.stores.memory import MemoryStore
from benchmarks.approvals import a_request
from benchmarks.options import parser
from benchmarks.table import VERDICT, Report, number, verdict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from amplifier_hooks.ports import ApprovalRequest

OPEN: Final = (1, 100, 1_000)
REACHED: Final = 100
ROOM: Final = OpenRequestLimits(per_session=100_000, per_tenant=100_000)
ROUND_TRIP: Final = 2.0
REACH: Final = 3.0
NEVER_READS: Final = 2.0
PAGE: Final = 60.0
EVENTS: Final = 10_000
STALLED: Final = 10
PAUSE: Final = 0.003
"""Seconds before each question, in which everybody has done what the one before left to do."""


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    if arguments[:1] == ["--crowd"]:
        asyncio.run(crowd(json.loads(arguments[1])))
        return
    if arguments[:1] == ["--stalled"]:
        print(asyncio.run(never_reads(int(arguments[1]))))
        return
    chosen = parser("websocket", __doc__).parse_args(arguments)
    asyncio.run(report(quick=chosen.quick, write=chosen.write))


async def report(*, quick: bool, write: bool) -> None:
    """Measure everything, in one run."""
    out = Report("websocket", ("websockets",))
    rounds, times = (2, 3) if quick else (15, 20)
    rows = []
    for count in OPEN[:2] if quick else OPEN:
        bare, ours = await pair(count, "all", rounds, times, whole=False)
        rows.append(row(f"{count:,} open", bare, ours, ROUND_TRIP))
    for count in OPEN[1:2] if quick else OPEN[1:]:
        bare, ours = await pair(count, "one", rounds, times, whole=False)
        rows.append(row(f"{count:,} open, one of whom may see it", bare, ours, None))
    out.text("Ask, show, answer, wake the caller: beside sending to those who may see it, and one answer; medians.")
    out.table(["approvers", "bare, µs", "ours, µs", "ratio", *VERDICT], rows)
    bare, ours = await pair(REACHED, "all", rounds, times, whole=True)
    out.text(f"One request reaches all of {REACHED} approvers, beside {REACHED} bare sends; until the last one has it.")
    out.table(["", "bare, µs", "ours, µs", "ratio", *VERDICT], [row("the last one has it", bare, ours, REACH)])
    out.text("The cost of a client that never reads, and the page.")
    held = await in_a_process_of_its_own(500 if quick else EVENTS)
    sizes = [(len(asset.content), len(asset.packed)) for asset in page()]
    whole, weight = (sum(one) / 1_024 for one in zip(*sizes, strict=True))
    out.table(
        ["", "measured", *VERDICT],
        [
            [f"MB for a client that never reads, {EVENTS:,} events", number(held), *verdict(held, NEVER_READS)],
            ["KB of the page, as it is sent to a browser", number(weight), *verdict(weight, PAGE)],
            ["KB of the page, unpacked", number(whole), "", ""],
        ],
    )
    out.finish(write=write)


def row(name: str, bare: list[float], ours: list[float], target: float | None) -> list[str]:
    """One line of the table; the ratio is that of the same round, its median."""
    ratio = median(one / other for one, other in zip(ours, bare, strict=True))
    judged = ("", "") if target is None else verdict(ratio, target)
    return [name, number(median(bare) * 1e6), number(median(ours) * 1e6), number(ratio), *judged]


# -- the two servers ---------------------------------------------------------------------------------------------------


async def pair(count: int, seen: str, rounds: int, times: int, *, whole: bool) -> tuple[list[float], list[float]]:
    """Seconds a round trip takes, bare and ours, in rounds that take turns."""
    prepare: tuple[Callable[[], Any], ...] = (like_ours, a_request)
    async with bare_server(count, seen, whole=whole) as bare, our_server(count, seen, whole=whole) as ours:
        found: tuple[list[float], list[float]] = ([], [])
        for turn in range(rounds + 1):
            for which in (0, 1) if turn % 2 else (1, 0):
                work, spent = (bare, ours)[which], []
                for _ in range(times):
                    prepared = prepare[which]()
                    await asyncio.sleep(PAUSE)
                    start = perf_counter()
                    await work(prepared)
                    spent.append(perf_counter() - start)
                if turn:
                    found[which].append(median(spent))
        return found


@asynccontextmanager
async def bare_server(count: int, seen: str, *, whole: bool) -> AsyncIterator[Callable[[Any], Awaitable[None]]]:
    """Sends a text, and waits for one."""
    there: list[ServerConnection] = []
    heard = asyncio.Event()

    async def handle(connection: ServerConnection) -> None:
        there.append(connection)
        with suppress(ConnectionClosed):
            async for _text in connection:
                heard.set()

    async def work(text: str) -> None:
        heard.clear()
        for connection in there if seen == "all" else there[:1]:
            await connection.send(text)
        await heard.wait()

    async with serve(handle, "127.0.0.1", 0, compression=None) as server:
        port = server.sockets[0].getsockname()[1]
        async with clients(kind="bare", port=port, tokens=["none"] * count, whole=whole):
            yield work


@asynccontextmanager
async def our_server(count: int, seen: str, *, whole: bool) -> AsyncIterator[Callable[[Any], Awaitable[None]]]:
    """A gateway with so many approvers, all of whom or one of whom may see what is asked."""
    sessions = [None if seen == "all" else [f"session-{place + 1}"] for place in range(count)]
    approvers = [Approver(name=f"approver {place}", sessions=some) for place, some in enumerate(sessions)]
    broker = Broker(MemoryStore(ROOM))
    bounds = GatewayLimits(clients=count + 1, rate=1e9, at_once=10**9)
    heard = asyncio.Event()

    async def work(request: ApprovalRequest) -> None:
        if not whole:
            await broker.ask(request)
            return
        heard.clear()
        await broker.submit(request)
        await heard.wait()
        await broker.withdraw(request.id, "enough")

    async with Gateway(broker, approvers, bounds=bounds) as gateway:
        if whole:
            setattr(gateway.methods, "ping", listened(gateway.methods.ping, heard))  # noqa: B010  # its own call, listened to
        tokens = [approver.token for approver in approvers]
        async with clients(kind="ours", port=gateway.port, tokens=tokens, whole=whole):
            yield work


def listened(ping: Callable[..., Awaitable[Any]], heard: asyncio.Event) -> Callable[..., Awaitable[Any]]:
    """The call with which the crowd says that the last one has it."""

    async def heard_it(*arguments: Any) -> Any:
        heard.set()
        return await ping(*arguments)

    return heard_it


# -- their clients, elsewhere ------------------------------------------------------------------------------------------


@asynccontextmanager
async def clients(**crowd: Any) -> AsyncIterator[None]:
    """A process with all clients, connected."""
    command = [sys.executable, "-m", "benchmarks", "websocket", "--crowd", json.dumps(crowd)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    assert process.stdin is not None
    assert await process.stdout.readline() == b"ready\n"
    try:
        yield
    finally:
        process.stdin.close()
        await process.wait()


def like_ours() -> str:
    """The text that a gateway would send."""
    record = new_record(a_request(), Moment(datetime.now(UTC)))
    return notification_text("added", Added(row=row_of(record)), record.created.wall)


async def crowd(how: dict[str, Any]) -> None:
    """Connect so many clients, the one that answers first; stay until the parent process ends them."""
    loop = asyncio.get_running_loop()
    over = loop.run_in_executor(None, sys.stdin.read)
    ready = asyncio.Semaphore(0)
    everybody = Everybody(len(how["tokens"]))
    tasks = []
    for place, token in enumerate(how["tokens"]):
        tasks.append(asyncio.create_task(client(how, token, ready, everybody, answers=place == 0)))
        await ready.acquire()
    print("ready", flush=True)
    await over
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Everybody:
    """The clients that have heard of the newest request; the last one to hear of it makes `all_have_it` true."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._have = 0

    def all_have_it(self) -> bool:
        """Count one more client that has it."""
        self._have += 1
        return self._have % self._count == 0


async def client(
    how: dict[str, Any], token: str, ready: asyncio.Semaphore, everybody: Everybody, *, answers: bool
) -> None:
    """One client: hears of requests; the one that answers does so as soon as it hears, or when everybody has."""
    headers = {"Authorization": f"Bearer {token}"}
    address = f"ws://127.0.0.1:{how['port']}/acp"
    async with connect(address, compression=None, additional_headers=headers, proxy=None, max_queue=None) as mine:
        if how["kind"] == "ours":
            ours = {"_meta": {"amplifier-hooks": {"queue": True}}}
            await mine.send(call("initialize", protocolVersion=1, clientCapabilities=ours))
            await mine.recv()
            await mine.send(call("_amplifier-hooks/attach"))
            await mine.recv()
        if answers:
            ANSWERING.append(mine)
        ready.release()
        async for text in mine:
            if '"_amplifier-hooks/added"' not in str(text):
                continue
            if how["whole"]:
                if everybody.all_have_it():
                    await ANSWERING[0].send(call("_amplifier-hooks/ping"))
            elif answers:
                await mine.send(decision(json.loads(text)))


ANSWERING: Final[list[Any]] = []


def call(method: str, /, **params: Any) -> str:
    """Return a call as text."""
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


def decision(added: dict[str, Any]) -> str:
    """The answer to a request that was just heard of."""
    row = added["params"]["row"]
    wanted = {"requestId": row["requestId"], "digest": row["digest"], "optionId": "2", "decisionId": uuid4().hex}
    return call("_amplifier-hooks/decide", **wanted)


# -- memory and the page -----------------------------------------------------------------------------------------------


async def in_a_process_of_its_own(events: int) -> float:
    """`never_reads`, where no memory lies about that was used before."""
    command = [sys.executable, "-m", "benchmarks", "websocket", "--stalled", str(events)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _nothing = await process.communicate()
    return float(said)


async def never_reads(events: int) -> float:
    """MB that a client costs which attaches and then reads nothing, at the worst moment of so many events."""
    broker = Broker(MemoryStore(ROOM))
    approver = Approver(name="approver")
    async with Gateway(broker, [approver], bounds=GatewayLimits(clients=STALLED)) as gateway:
        stalled = [await stall(gateway, approver) for _ in range(STALLED)]
        await broker.store.purge(0, unrecorded=True)
        before, worst = rss(), 0.0
        for number_ in range(events // 2):
            request = a_request()
            await broker.submit(request)
            await asyncio.sleep(0.0001)
            await broker.withdraw(request.id, "enough")
            await asyncio.sleep(0.0001)
            await broker.store.purge(0, unrecorded=True)
            if number_ % 50 == 0:
                worst = max(worst, rss() - before)
        if gateway._clients:  # noqa: SLF001  # then it was not told enough
            print("some clients were not let go", file=sys.stderr)
        for sock in stalled:
            sock.close()
    return worst / STALLED


async def stall(gateway: Gateway, approver: Approver) -> socket.socket:
    """A socket past attaching, from which the client never reads."""
    sock = socket.create_connection(("127.0.0.1", gateway.port))
    sock.setblocking(False)  # noqa: FBT003  # its only argument
    loop = asyncio.get_running_loop()
    lines = [
        "GET /acp HTTP/1.1",
        f"Host: 127.0.0.1:{gateway.port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Authorization: Bearer {approver.token}",
    ]
    await loop.sock_sendall(sock, "\r\n".join([*lines, "", ""]).encode())
    await loop.sock_recv(sock, 4_096)
    ours = {"_meta": {"amplifier-hooks": {"queue": True}}}
    for text in (
        call("initialize", protocolVersion=1, clientCapabilities=ours),
        call("_amplifier-hooks/attach"),
    ):
        data = text.encode()
        head = bytes([0x81, 0x80 | len(data)]) if len(data) < 126 else bytes([0x81, 0xFE]) + len(data).to_bytes(2)  # noqa: PLR2004
        await loop.sock_sendall(sock, head + b"\0\0\0\0" + data)
        await loop.sock_recv(sock, 4_096)
    return sock


def rss() -> float:
    """MB this process has in memory now, or at its most where it cannot be asked."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  # nothing that waits
            return int(file.read().split()[1]) * resource.getpagesize() / 2**20
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024


def page() -> list[Asset]:
    """Return the files that a browser loads."""
    assets, folder = Assets(), files("approval_backends").joinpath("web")
    names = [file.name for file in folder.iterdir() if any(file.name.endswith(suffix) for suffix in TYPES)]
    found = [assets.find("/" if name == "index.html" else f"/assets/{name}") for name in names]
    return [asset for asset in found if asset is not None]
