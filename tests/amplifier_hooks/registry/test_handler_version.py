"""Versions of handlers."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial, wraps
from pathlib import Path
from types import CellType, FunctionType, SimpleNamespace
from typing import Any, Final

import pytest
from attrs import define, field

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.approvals import SessionGrants
from amplifier_hooks.registry.handler_version import fingerprint
from amplifier_hooks.testing import ManualClock, ScriptedApprover

SOURCE = """
def guard(event, data):
    return {text!r} if data in {{"a", "b", "c"}} else [one for one in data]
"""


def made(text: str) -> Any:
    """A handler with this constant in it."""
    names: dict[str, Any] = {}
    exec(SOURCE.format(text=text), names)  # our own text
    return names["guard"]


class Guard:
    """A handler that is an object."""

    def __call__(self, event: str, data: Any) -> None:
        """Do nothing."""

    def check(self, event: str, data: Any) -> None:
        """Do nothing."""


@pytest.mark.rule("APR-5")
def test_same_code_same_version() -> None:
    """Equal code has one version at every location; a changed constant makes another version."""
    assert fingerprint(made("no")) == fingerprint(made("no")) != fingerprint(made("yes"))
    assert fingerprint(Guard()) == fingerprint(Guard()) != fingerprint(Guard().check)
    assert fingerprint(len) == fingerprint(len)


@pytest.mark.rule("APR-5")
def test_same_in_every_process() -> None:
    """The version does not depend on the process, nor on the order of a set in it."""
    program = (
        "import sys; from amplifier_hooks.registry.handler_version import fingerprint; names = {}; "
        "exec(sys.argv[1], names); print(fingerprint(names['guard']))"
    )
    command = [sys.executable, "-W", "error", "-c", program, SOURCE.format(text="no")]
    said = {
        subprocess.run(command, check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": seed}).stdout.strip()
        for seed in ("1", "2")
    }
    assert said == {fingerprint(made("no"))}


@pytest.mark.rule("APR-5")
def test_what_is_wrapped() -> None:
    """A wrapper counts together with the handler that it wraps."""

    def wrap(handler: Any) -> Any:
        @wraps(handler)
        def wrapped(event: str, data: Any) -> Any:
            return handler(event, data)

        return wrapped

    assert fingerprint(wrap(made("no"))) == fingerprint(wrap(made("no")))
    assert len({fingerprint(one) for one in (made("no"), wrap(made("no")), wrap(made("yes")))}) == 3


@define
class Settings:
    """A record of settings, with a field that is not shown."""

    limit: int
    secret: str = field(default="", repr=False)


class Limit:
    """A handler with settings, and with state."""

    def __init__(self, limit: Any) -> None:
        self._limit = limit
        self.calls = 0
        self.lock = threading.Lock()

    def __call__(self, event: str, data: Any) -> HookResult:
        """Count the call."""
        return self.check(event, data)

    def check(self, event: str, data: Any) -> HookResult:
        """Count the call, and ask."""
        self.calls += 1
        return HookResult.ask(f"Go on after {self.calls}?")


def by_default(value: Any) -> Any:
    """A handler with the value as a default."""
    return lambda event, data, limit=value: limit


def by_keyword(value: Any) -> Any:
    """A handler with the value as the default of a keyword."""
    return lambda event, data, *, limit=value: limit


def by_closure(value: Any) -> Any:
    """A handler that closes over the value."""
    return lambda event, data: value


def by_argument(value: Any) -> Any:
    """A handler with the value filled in."""
    return partial(lambda limit, event, data: limit, value)


WAYS: Final = (by_default, by_keyword, by_closure, by_argument, Limit, lambda value: Limit(value).check)
VALUES: Final = (
    1, True, 1.0, "1", b"1", None, (1,), [1], {1}, {1: 2}, frozenset({"a", "b"}), Path("/prod"), re.compile("a"),
    re.compile("a", re.IGNORECASE), datetime(2026, 1, 1, tzinfo=UTC), Settings(1), Settings(2), len, by_closure(1),
    by_closure(2), int, (1, (2, (3,))), "x" * 2_000_000, "x" * 2_000_001, 10**5_000, list(range(30_000)),
    SimpleNamespace(limit=1), SimpleNamespace(limit=2), Limit, re, Fraction(1, 2), Fraction(1, 3),
)  # fmt: skip


@pytest.mark.rule("APR-5")
@pytest.mark.parametrize("way", WAYS)
def test_values(way: Any) -> None:
    """Handlers with equal values have one version, however the values come in; other values make other versions."""
    assert len({fingerprint(way(value)) for value in VALUES}) == len(VALUES)
    assert [fingerprint(way(value)) for value in VALUES] == [fingerprint(way(value)) for value in VALUES]
    assert fingerprint(way({"a": 1, "b": 2})) == fingerprint(way({"b": 2, "a": 1}))
    assert fingerprint(way(Settings(1, "one"))) == fingerprint(way(Settings(1, "other")))


@pytest.mark.rule("APR-5")
def test_hostile_values() -> None:
    """A value that contains itself, raises or ends the program, or never ends, makes a version all the same."""

    class Evil:
        def __getattribute__(self, name: str) -> Any:
            raise SystemExit

    class Endless(dict[Any, Any]):
        def items(self) -> Any:
            raise KeyboardInterrupt

    circle: list[Any] = []
    circle.append(circle)
    deep: Any = ()
    for _ in range(100_000):
        deep = (deep,)

    for value in (Evil(), Endless(a=1), circle, deep, [list(range(15_000))] * 1_000, "\ud800"):
        assert fingerprint(by_closure(value)) == fingerprint(by_closure(value))
    assert fingerprint(Evil())
    assert fingerprint(FunctionType(by_closure(1).__code__, {}, closure=(CellType(),)))


@pytest.mark.rule("APR-5")
async def test_state() -> None:
    """A handler that counts its calls has the version of its registration; a new one with other settings another."""
    registry, guard = HookRegistry(), Limit(5)
    registry.gate("tool:pre", guard.check, name="guard")
    before = registry.version_of("guard")
    await registry.emit("tool:pre", {"tool_name": "Bash"})
    assert guard.calls
    assert registry.version_of("guard") == before == fingerprint(Limit(5).check) != fingerprint(Limit(6).check)
    assert fingerprint(guard.check) != before


@pytest.mark.rule("APR-5")
async def test_always_of_another_setting() -> None:
    """An "always" that a guard got with one default does not answer for the guard with another."""
    grants, asked = SessionGrants(ManualClock()), []
    for limit in (5, 5, 6):

        def guard(event: str, data: Any, limit: int = limit) -> HookResult:
            return HookResult.ask("Go on?", options=("Allow always", "Deny"))

        registry, approver = HookRegistry(), ScriptedApprover("Allow always")
        registry.gate("tool:pre", guard, name="guard")
        session = SessionCoordinator(registry, session_id="s", approvals=approver, grants=grants)
        assert (await session.call_tool("Bash", {}, lambda given: "ran")).ok
        asked.append(len(approver.requests))
    assert asked == [1, 0, 1]


@pytest.mark.rule("APR-5")
def test_what_it_says_itself() -> None:
    """A handler made from data sets its own version."""

    def handler(event: str, data: Any) -> HookResult:
        return HookResult.proceed()

    handler.hook_version = "2026-11-18"  # type: ignore[attr-defined]
    registry = HookRegistry()
    registry.gate("tool:pre", handler, name="guard")
    assert registry.version_of("guard") == "2026-11-18"
    assert registry.version_of("unknown") == ""
    handler.hook_version = "2026-11-19"  # type: ignore[attr-defined]
    assert registry.version_of("guard") == "2026-11-19"


@pytest.mark.rule("APR-5")
def test_the_object_says_it() -> None:
    """A method has the version that its object states."""

    class Versioned(Limit):
        hook_version = "3"

    assert fingerprint(Versioned(1).check) == fingerprint(Versioned(2)) == "3"


@define
class Leaf:
    """A record at the end of a chain of records."""

    value: Any


class Holder:
    """An object that holds others."""

    def __init__(self, **parts: Any) -> None:
        vars(self).update(parts)

    def __call__(self, event: str, data: Any) -> None:
        """Do nothing."""


@pytest.mark.rule("APR-5")
@pytest.mark.parametrize(
    "make",
    [
        lambda value: Holder(names={value, "z"}),
        lambda value: Holder(first=Holder(a=1), second=Holder(b=value)),
        lambda value: Holder(rules=Leaf([Leaf([Leaf(Leaf(value))])])),
        lambda value: Holder(many=["a"] * 20_001 + ["b"] * (value == "changed")),
    ],
    ids=["a set", "the second of two objects", "records within records", "the length of a long list"],
)
def test_every_value_counts(make: Any) -> None:
    """A changed value makes another version, wherever it stands in the handler."""
    assert fingerprint(make("same")) == fingerprint(make("same")) != fingerprint(make("changed"))


@pytest.mark.rule("APR-5")
def test_a_circle_hides_no_value() -> None:
    """A handler that refers to itself has a version of all its values."""

    def make(value: str) -> Holder:
        holder = Holder(value=value)
        vars(holder)["again"] = holder
        return holder

    assert fingerprint(make("same")) == fingerprint(make("same")) != fingerprint(make("changed"))
