"""Hypothesis profiles, and one way to skip a test that needs a missing program or package."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from amplifier_hooks.errors import EXTRAS, HookUnavailable, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

# A slow machine is not a wrong program. In CI the examples are the same on every run, and many more.
settings.register_profile("slow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", settings.get_profile("slow"), max_examples=25)
settings.register_profile("ci", settings.get_profile("slow"), max_examples=300, derandomize=True, database=None)
THOROUGH: Final = bool(os.environ.get("CI"))
"""True in CI, where tests over many cases take all of them, and every day a part."""
settings.load_profile("ci" if THOROUGH else "dev")

PARTS: Final = frozenset({"agents", "chromium", "containers", "postgres"})
GROUPS: Final = {
    "acp": "agents",
    "agent_framework": "agents",
    "axe_playwright_python": "browser",
    "dbos": "engines",
    "playwright": "browser",
    "zensical": "docs",
    "procrastinate": "engines",
}
"""Modules that come with a dependency group only, each with its group."""
NEEDS: Final = {"agents": "agents", "browser": "chromium", "claude-agent-sdk": "agents", "postgres": "postgres"}
"""The part that a group or an extra belongs to; other extras belong to every part."""
MISSING: Final = {module: origin for module, origin in {**EXTRAS, **GROUPS}.items() if find_spec(module) is None}
"""Modules that are not installed, each with its extra or group. Looked up before any test hides a module."""
MESSAGE: Final = re.compile(r"No module named '(\w+)|needs the extra '([\w-]+)'")
"""The module that a failed import names, or the extra that our own error names."""


def required() -> frozenset[str]:
    """Read the parts that must be there, as in `AMPLIFIER_REQUIRE=postgres,chromium`."""
    return frozenset(filter(None, os.environ.get("AMPLIFIER_REQUIRE", "").split(",")))


def require(part: str, reason: str) -> NoReturn:
    """Skip because `part` is missing here, or fail where AMPLIFIER_REQUIRE says that it must be there.

    Works inside a test, a fixture, and at the top of a test file.
    """
    assert part in PARTS, f"unknown part {part!r}"
    _skip(reason, part in required())


def require_installed(text: str) -> None:
    """Skip or fail as `require` does if `text` says that something is not installed, and an extra or group brings it.

    `text` is an error, or the output of a program. Where AMPLIFIER_REQUIRE names any part, every extra must be there.
    """
    message = MESSAGE.search(text)
    origin = message and (MISSING.get(message[1]) or message[2])
    if origin in MISSING.values() or (message and message[2] in EXTRAS.values()):
        kind = "group" if origin in GROUPS.values() else "extra"
        needed = {NEEDS[origin]} if origin in NEEDS else PARTS
        _skip(f"{origin} is not installed: uv sync --{kind} {origin}", not needed.isdisjoint(required()))


def _skip(reason: str, must: bool) -> NoReturn:
    if must:
        pytest.fail(f"AMPLIFIER_REQUIRE is {os.environ['AMPLIFIER_REQUIRE']}, but {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


class TestFile(pytest.Module):
    """A test file that is skipped, and breaks no collection, where it imports what is not installed."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Import the file and find its tests."""
        try:
            return super().collect()
        except (self.CollectError, MissingExtra) as error:
            require_installed(str(error))
            raise


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    """Collect test files as `TestFile`."""
    return TestFile.from_parent(parent, path=module_path)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs tests without hooks which spoil every object they are given."""
    parser.addoption("--no-spoil", action="store_true", help="run tests without spoiling hooks")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, which is to leave the tests and their modules alone afterwards as well.

    It runs seldom from then on: hundreds of megabytes of modules make each of its full passes dear.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(10_000, 20, 50)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with tests of the whole project: at the end, several workers would take them, and each parse all files."""
    items.sort(key=lambda item: item.path.parent != Path(__file__).parent)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run every test under spoiling hooks, except those marked `unspoilt`; leave its process without a mark.

    A bridge that a test starts marks the test's process as guarded.
    """
    from amplifier_hooks.programs.guarded_processes import marks_folder
    from amplifier_hooks.testing import spoil_events

    plain = item.config.getoption("--no-spoil") or item.get_closest_marker("unspoilt")
    try:
        with nullcontext() if plain else spoil_events():
            return (yield)
    finally:
        (marks_folder() / str(os.getpid())).unlink(missing_ok=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
    """Skip a test whose fixtures import what is not installed."""
    yield from _skip_failed_imports()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Skip a test that imports what is not installed."""
    yield from _skip_failed_imports()


def _skip_failed_imports() -> Generator[None]:
    try:
        yield
    except (ModuleNotFoundError, HookUnavailable) as error:
        require_installed(str(error))
        raise


MEMORY: Final = Path("/dev/shm")
"""A folder in memory, where a sync costs nothing. The tests simulate power cuts, so it serves them all."""


def prefer_memory() -> None:
    """Put the tests' folders into memory, where the system has a gigabyte to spare that may hold programs, too."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
        system = os.statvfs(MEMORY)
        if system.f_bavail * system.f_frsize > 2**30 and not system.f_flag & os.ST_NOEXEC:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_configure() -> None:
    """Refuse a misspelt part, which would otherwise be skipped in silence; restore what an environment took away."""
    if unknown := required() - PARTS:
        message = f"AMPLIFIER_REQUIRE names {', '.join(sorted(unknown))}; known are {', '.join(sorted(PARTS))}"
        raise pytest.UsageError(message)
    # Many containers forbid bytecode: every worker, and every program that a test starts, would compile all libraries.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    prefer_memory()
    # A shell that starts the tests in the background ignores some signals, and child processes would inherit that.
    for name in ("SIGHUP", "SIGINT"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)
