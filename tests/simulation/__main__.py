"""Run the path of an act under many seeded schedules; a violation prints the seed that replays it.

python -m tests.simulation --schedules 2000
python -m tests.simulation --seed 173          replay one schedule
python -m tests.simulation --planted           an await between read and write of the store has to be found
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from time import perf_counter
from typing import Any

import simloom
import structlog

from approval_backends.lifecycle import Refusal, move_request
from approval_backends.stores.memory import MemoryStore
from tests.simulation import path


def plant() -> None:
    """Let the store yield between reading and writing a claim."""
    whole = MemoryStore.move

    async def move(self: Any, request_id: str, wanted: Any, **options: Any) -> Any:
        before = self._find(request_id)
        if wanted != "claim" or before is None:
            return await whole(self, request_id, wanted, **options)
        after = move_request(before, wanted, self._now(), **options)
        await asyncio.sleep(path.drawn("planted", path.DELAYS[:3]))  # the planted fault
        if not isinstance(after, Refusal):
            self._put(after)
        return after

    store: Any = MemoryStore
    store.move = move
    faulty: Any = path.FaultyStore
    faulty.move = path.yields_and_fails("move")


def main() -> int:
    """Run the schedules. Return 1 if an invariant was broken, or if a planted fault was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=2_000)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--planted", action="store_true")
    chosen = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if chosen.planted:
        plant()
    if chosen.seed is not None:
        simloom.run(path.scenario, seed=chosen.seed, virtual_time=True, seed_randomness=True)
        return 0
    began = perf_counter()
    found = simloom.explore(
        path.scenario, runs=chosen.schedules, stop_on_failure=False, virtual_time=True, seed_randomness=True
    )
    sys.stdout.write(f"{found.runs} schedules in {perf_counter() - began:.1f} s, {len(found.failures)} failures\n")
    sys.stdout.write(f"ends of calls: {dict(sorted(path.coverage.items()))}\n")
    for failure in found.failures[:5]:
        sys.stdout.write(f"--seed {failure.seed}: {failure.error}: {failure.message}\n")
    return int(bool(found.failures) is not chosen.planted)


if __name__ == "__main__":
    sys.exit(main())
