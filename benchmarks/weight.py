"""The memory of a thing: bytes allocated through Python and still held once the thing is made and used.

`tracemalloc` sees what Python allocates, and no more: memory that an extension takes from the system itself is not in
it. Caches that are filled once for the process are filled before anything is weighed.
"""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["weights"]

COPIES: Final = 20
MANY: Final = 100


async def weights(make: Callable[[int], Awaitable[object]]) -> dict[str, float]:
    """Bytes of one without anything in it, and of each thing more, from one with `MANY`."""
    empty, full = await _weight(make, 0), await _weight(make, MANY)
    return {"empty": empty, "per hook": (full - empty) / MANY}


async def _weight(make: Callable[[int], Awaitable[object]], count: int) -> float:
    for _ in range(COPIES):
        await make(count)
    gc.collect()
    tracemalloc.start()
    try:
        before, _peak = tracemalloc.get_traced_memory()
        kept = [await make(count) for _ in range(COPIES)]
        gc.collect()
        after, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / len(kept)
