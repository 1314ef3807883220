"""What all tests share: Hypothesis profiles, and what happens where a part of the world is missing."""

import os
import signal
from typing import NoReturn

import pytest
from hypothesis import settings

# No deadline: a slow machine is not a wrong program. In CI the examples are the same on every run, and more.
settings.register_profile("dev", deadline=None, max_examples=50)
settings.register_profile("ci", deadline=None, max_examples=300, derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

PARTS = frozenset({"agents", "chromium", "postgres"})


def required() -> frozenset[str]:
    """Read the parts that must be there, as in `AMPLIFIER_REQUIRE=postgres,chromium`."""
    return frozenset(filter(None, os.environ.get("AMPLIFIER_REQUIRE", "").split(",")))


def require(part: str, reason: str) -> NoReturn:
    """Skip because `part` is missing here, or fail where AMPLIFIER_REQUIRE says that it must be there.

    Works inside a test, a fixture, and at the top of a test file.
    """
    assert part in PARTS, f"unknown part {part!r}"
    if part in required():
        pytest.fail(f"AMPLIFIER_REQUIRE names {part}, but {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def pytest_configure() -> None:
    """Refuse a misspelt part, which would otherwise be skipped in silence; let signals mean what they mean."""
    if unknown := required() - PARTS:
        message = f"AMPLIFIER_REQUIRE names {', '.join(sorted(unknown))}; known are {', '.join(sorted(PARTS))}"
        raise pytest.UsageError(message)
    # Who starts the tests in the background has some signals ignored, and what the tests start would inherit that.
    for name in ("SIGHUP", "SIGINT"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)
