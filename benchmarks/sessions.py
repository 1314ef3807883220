"""The cost of many sessions over one registry: their events in time, and themselves in memory.

1,000 sessions each emit 100 events past 5 hooks, all at once, with a record in memory; beside the bare loop doing the
same. An idle session is weighed by what tracemalloc finds after it was made and started; making one is timed.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from time import perf_counter
from typing import TYPE_CHECKING, Final

from amplifier_hooks import HookRegistry, SessionCoordinator
from benchmarks.cases import bare, hooks, payload
from benchmarks.coordinator import QUIET, InMemory, doing
from benchmarks.dispatch import OURS
from benchmarks.options import parser
from benchmarks.rounds import QUICK, THOROUGH, Effort, Timed, measure
from benchmarks.table import VERDICT, Report, number, verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

SESSIONS: Final = 1_000
EVENTS: Final = 100
ROUNDS: Final = 7
EVENTS_AT_MOST: Final = 7.0
BYTES_AT_MOST: Final = 6 * 1024
EVENT: Final = "tool:post"
WHY: Final = (
    "more than half of an event's time is the emit (see `dispatch`), an eighth the payload with its time and id, an "
    "eighth the record of its outcome with a time of its own, a twentieth keeping in mind which task waits for hooks, "
    "so that stopping the session stops them and not the task. The rest are the coroutines that keep the effects in "
    "order."
)


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    chosen = parser("sessions", __doc__).parse_args(arguments)
    report = Report("sessions")
    sessions, events, rounds = (20, 5, 2) if chosen.quick else (SESSIONS, EVENTS, ROUNDS)

    samples = asyncio.run(measure(crowds(sessions, events), Effort(rounds, 0), number=1))
    ratio = samples["ours"].ratio(samples["bare"])
    per_event = (number(samples[name].usual / sessions / events) for name in ("bare", "ours"))
    name = f"{sessions:,} sessions, {events} events each"
    heads = ["µs an event, median", "bare loop", "ours", "ratio", *VERDICT]
    report.table(heads, [[name, *per_event, number(ratio), *verdict(ratio, EVENTS_AT_MOST)]])
    report.explain([name] if ratio > EVENTS_AT_MOST else [], {name: WHY})

    making = asyncio.run(measure({"ours": doing(make_session())}, QUICK if chosen.quick else THOROUGH))["ours"]
    weight = asyncio.run(weigh(sessions))
    report.table(
        ["one session", "measured", *VERDICT],
        [
            ["idle, bytes", number(weight), *verdict(weight, BYTES_AT_MOST)],
            ["made, µs", number(making.usual), "", ""],
        ],
    )
    report.finish(write=chosen.write)


def crowds(sessions: int, events: int) -> dict[str, Timed]:
    """Measure one crowd of events, through sessions and through the bare loop."""
    registry, quiet = HookRegistry(), hooks(QUIET, OURS)
    for index, hook in enumerate(quiet):
        registry.on(EVENT, hook, name=f"h{index}")
    loop, data = bare(QUIET, OURS), payload()
    many = [SessionCoordinator(registry, session_id=f"s{index}", audit=InMemory()) for index in range(sessions)]

    async def by_loop(_index: int) -> None:
        for _ in range(events):
            await loop(EVENT, data)

    async def by_session(index: int) -> None:
        for _ in range(events):
            await many[index].emit(EVENT, data)

    return {"bare": together(by_loop, sessions), "ours": together(by_session, sessions)}


def make_session() -> Callable[[], Awaitable[None]]:
    """Return a step that makes a session over a registry that others share."""
    registry, record = HookRegistry(), InMemory()

    async def make() -> None:
        SessionCoordinator(registry, session_id="s", audit=record)

    return make


def together(one: Callable[[int], Awaitable[None]], sessions: int) -> Timed:
    """All sessions at once, each in a task of its own."""

    async def timed(_times: int) -> float:
        start = perf_counter()
        async with asyncio.TaskGroup() as group:
            for index in range(sessions):
                group.create_task(_as_task(one, index))
        return perf_counter() - start

    return timed


async def _as_task(one: Callable[[int], Awaitable[None]], index: int) -> None:
    await one(index)


async def weigh(sessions: int) -> float:
    """Return the bytes that an idle, started session holds."""
    registry, record = HookRegistry(), InMemory()
    warm = SessionCoordinator(registry, session_id="warm", audit=record)
    await warm.start()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = []
    for index in range(sessions):
        session = SessionCoordinator(registry, session_id=f"s{index}", audit=record)
        await session.start()
        kept.append(session)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / len(kept)
