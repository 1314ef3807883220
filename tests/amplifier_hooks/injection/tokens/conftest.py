"""Each test gets counters of its own; encodings stay loaded."""

from collections.abc import Iterator

import pytest

from amplifier_hooks.injection.tokens import counter


@pytest.fixture(autouse=True)
def _fresh_counters() -> Iterator[None]:
    """Counters that know no tokenizer yet."""
    counter._counter.cache_clear()
    yield
    counter._counter.cache_clear()
