"""Errors of code that others wrote: contained, so that they do not end the event loop, and described in one line."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from amplifier_hooks.errors import HookFailed

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def contain_errors() -> Iterator[None]:
    """Turn `SystemExit` and similar errors into `HookFailed`. In a task they would end the loop and every other task.

    Exceptions and cancellation pass.
    """
    try:
        yield
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as problem:
        raise HookFailed(f"it ended with {type(problem).__name__}") from problem


def describe_error(problem: BaseException) -> str:
    """Return the type and the message of an error, or only its type if its message cannot be had."""
    try:
        return f"{type(problem).__name__}: {problem}"
    except Exception:  # noqa: BLE001  # only the type of the error is known
        return type(problem).__name__
