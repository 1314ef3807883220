"""What the kernel's tests share: hooks that refused to end are ended after each test, so that the run exits quietly."""

import contextlib
from collections.abc import Iterator

import pytest

from amplifier_hooks.waiting import LEFT_BEHIND


@pytest.fixture(autouse=True)
def _end_what_was_left_behind() -> Iterator[None]:
    yield
    while LEFT_BEHIND:
        coroutine = LEFT_BEHIND.pop()
        with contextlib.suppress(BaseException):
            while True:  # each of them gives in after some throws
                coroutine.throw(RuntimeError)
