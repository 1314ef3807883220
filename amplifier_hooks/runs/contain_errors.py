"""What other people's code may not do to the event loop it runs on."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from amplifier_hooks.errors import HookFailed

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def contain_errors() -> Iterator[None]:
    """Turn `SystemExit` and its like into `HookFailed`: in a task they would end the loop, and everybody with it.

    Exceptions and cancellation pass.
    """
    try:
        yield
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as problem:
        raise HookFailed(f"it ended with {type(problem).__name__}") from problem


def describe_error(problem: BaseException) -> str:
    """An error of somebody's, for whoever looks; it may not be able to say what it is."""
    try:
        return f"{type(problem).__name__}: {problem}"
    except Exception:  # noqa: BLE001  # nothing is known of it but its kind
        return type(problem).__name__
