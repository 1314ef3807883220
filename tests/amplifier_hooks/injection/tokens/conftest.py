"""Each test gets counters of its own; encodings stay loaded."""

from collections.abc import Iterator

import pytest

from amplifier_hooks.injection import tokens


@pytest.fixture(autouse=True)
def _fresh_counters() -> Iterator[None]:
    """Counters that know no tokenizer yet."""
    tokens._counter.cache_clear()
    yield
    tokens._counter.cache_clear()
