"""Abandoned work: it is cancelled when its time is over, has a moment to clean up, and is kept alive if it runs on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


GRACE: Final = 0.1
"""Seconds that cancelled work has to clean up before it is abandoned."""

LEFT_BEHIND: Final[dict[int, Any]] = {}
"""Work that did not end, by its `id`: a coroutine stays for good, a task until it is done."""

# A destructor closes a coroutine again, and one that swallows `GeneratorExit` may then run for ever, at the latest when
# the interpreter clears its modules. The collector looks into no constants of code, so it never finds this circle, and
# destroys nothing that hangs on it.
_circle: list[Any] = [LEFT_BEHIND]
_circle.append((lambda: None).__code__.replace(co_consts=(None, _circle)))


def keep_alive(work: object) -> None:
    """Keep work for as long as the process lives. Nothing closes or destroys it."""
    LEFT_BEHIND[id(work)] = work


def keep_until_done(task: asyncio.Future[Any]) -> None:
    """Keep a task that goes on by itself until it is done. Its late error is not reported."""
    keep_alive(task)
    task.add_done_callback(_forget)


async def cancel_all(
    tasks: Iterable[asyncio.Future[Any]], why: str | None = None, *, grace: float = GRACE
) -> set[asyncio.Future[Any]]:
    """Cancel tasks and give them `grace` seconds to clean up. Return those that run on; they are kept until done."""
    tasks = set(tasks)
    running = {task for task in tasks if not task.done()}
    for task in tasks:
        keep_until_done(task)
        task.cancel(why)
    if running:
        _, running = await asyncio.wait(running, timeout=grace)
    return running


def _forget(task: asyncio.Future[Any]) -> None:
    LEFT_BEHIND.pop(id(task), None)
    if not task.cancelled():
        task.exception()  # asyncio reports an exception that was never retrieved
