"""DSP-7: no hook holds an object that another hook, an observer or the emitter reads, at any event."""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy
from datetime import date
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from amplifier_hooks import HookRegistry, HookResult
from amplifier_hooks.dispatch import run_hooks
from amplifier_hooks.testing import SpoilingHook, spoil_events

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = [pytest.mark.rule("DSP-7"), pytest.mark.unspoilt]

WAYS: Final = ("register", "on", "gate", "observe")


class Foreign:
    """An object that the dispatcher cannot copy, and whose comparison fails."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")


class Level(IntEnum):
    """A number that equals a plain one."""

    LOW = 1


class Mood(StrEnum):
    """A text that equals a plain one."""

    CALM = "calm"


class Point(msgspec.Struct, frozen=True):
    """A struct."""

    x: int


DAY: Final = date(2026, 1, 1)


def payloads() -> dict[str, dict[str, Any]]:
    """Payloads of every shape, by name."""
    shared = ["a"]
    circle: dict[str, Any] = {"list": [1]}
    circle["self"] = circle
    deep: list[Any] = []
    for _ in range(3_000):
        deep = [deep]
    return {
        "flat": {"prompt": "hello"},
        "object": {"error": {"type": "ValueError"}},
        "nested": {"messages": [{"role": "user", "content": [{"text": "hi"}]}]},
        "other containers": {"tags": {"a"}, "raw": bytearray(b"1"), "pair": ([1], {"b": [2]})},
        "subclass": {"inputs": OrderedDict(a=[1])},
        "foreign": {"inputs": {"agent": Foreign(), "list": [1]}},
        "number": {"result": {"nan": float("nan"), "list": [1]}},
        "twice": {"one": {"x": [shared, shared]}},
        "circle": {"state": circle},
        "deep": {"state": deep},
    }


@pytest.mark.parametrize("name", payloads())
@pytest.mark.parametrize("event", ["session:start", "tool:pre", "own:event"])
async def test_nothing_is_shared(event: str, name: str) -> None:
    """Hooks that spoil all they were given change nothing that a later hook, an observer or the emitter reads."""
    registry, data = HookRegistry(), payloads()[name]
    for priority in (-1, 1):
        SpoilingHook.attach(registry, priority=priority, own_event=True)
    read: list[str] = []
    expected = repr(data).replace("OrderedDict({'a': [1]})", "{'a': [1]}") if name != "deep" else ""

    def look(_event: str, data: Mapping[str, Any], *_outcome: object) -> None:
        read.append(repr(dict(data)) if name != "deep" else "")

    for way in WAYS:
        getattr(registry, way)(event, look, own_event=True)
    outcome = await registry.emit(event, data)
    await registry.emit(event, {"another": "event"})
    assert outcome.data is data
    assert SpoilingHook.MARK not in (repr(data) if name != "deep" else "")
    assert read[: len(WAYS)] == [read[0]] * len(WAYS)
    assert name in ("subclass", "deep") or read[0] == expected
    assert not outcome.denied


async def test_kinds_of_copies() -> None:
    """Containers are copied, also where they stand twice, and a dict's subclass as a plain dict."""
    data = {**payloads()["twice"], **payloads()["subclass"], **payloads()["other containers"]}
    registry, seen = HookRegistry(), list[Any]()
    registry.on("session:start", lambda _event, data: seen.append(data))
    await registry.emit("session:start", data)
    (copy,) = seen
    assert copy == data
    assert all(one is not data["one"]["x"][0] for one in copy["one"]["x"])
    assert type(copy["inputs"]) is dict
    assert all(copy[name] is not data[name] for name in data)


@pytest.mark.parametrize(
    "value",
    [Level.LOW, Mood.CALM, Point(1), {"a"}, frozenset("a"), b"1", bytearray(b"1"), (1,), 1.5, True, DAY],
    ids=lambda value: type(value).__name__,
)
async def test_values_in_copies_keep_their_types(value: object) -> None:
    """A value within a list arrives as it is, also one that JSON would write as a text or an object."""
    registry, seen = HookRegistry(), list[Any]()
    for intent in ("on", "register"):
        getattr(registry, intent)("session:start", lambda _event, data: seen.append(data["list"][0]))
    await registry.emit("session:start", {"list": [value, {"more": []}]})
    assert [(type(one), one) for one in seen] == [(type(value), value)] * 2


async def test_foreign_objects_are_passed_on() -> None:
    """An object that is no container is the emitter's own, at any depth."""
    agent, registry, seen = Foreign(), HookRegistry(), list[Any]()
    registry.on("agent:pre", lambda _event, data: seen.append(data["inputs"]["list"][0] is agent))
    await registry.emit("agent:pre", {"agent_name": "a", "inputs": {"list": [agent]}})
    assert seen == [True]


async def test_change_is_frozen_when_it_is_given() -> None:
    """A hook that changes the data of its own answer later changes neither the next hook's data nor the outcome."""
    registry, seen, given = HookRegistry(), list[Any](), {"messages": ["hello"]}
    registry.on("context:assembled", lambda *_: HookResult.modify(given), priority=1)
    registry.on("context:assembled", lambda *_: given["messages"].append("more"), priority=2)
    registry.on("context:assembled", lambda _event, data: seen.append(deepcopy(data["messages"])), priority=3)
    outcome = await registry.emit("context:assembled", {"messages": []})
    assert (seen, outcome.data["messages"]) == ([["hello"]], ["hello"])


async def test_observers_share_no_answer() -> None:
    """An observer that spoils the answers in its outcome changes neither those of the next one nor the emitter's."""
    registry, seen = HookRegistry(), list[Any]()
    registry.on("context:assembled", lambda *_: HookResult.modify({"messages": ["hello"]}))
    spoiling = SpoilingHook()
    registry.observe("context:assembled", spoiling, priority=1)
    registry.observe("context:assembled", lambda *_: spoiling.spoil(), priority=2)
    registry.observe("context:assembled", lambda *all_of: seen.append(all_of[2].answers[0].data), priority=3)
    outcome = await registry.emit("context:assembled", {"messages": []})
    assert seen == [outcome.answers[0].data] == [{"messages": ["hello"]}]


async def test_spoil_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing shows the spoiling hooks but an emitter that shares objects: hooks, and their emitter, read the mark."""

    async def emit() -> tuple[list[Any], Any, dict[str, Any]]:
        registry, seen = HookRegistry(), list[Any]()
        registry.on("session:start", lambda _event, data: seen.append(data["list"][0]), name="reads")
        registry.observe("session:start", lambda _event, data, outcome: seen.append(outcome.ran), name="watches")
        data = {"list": [1]}
        outcome = await registry.emit("session:start", data)
        await registry.emit("session:end", {})
        assert [hook.name for hook in registry.hooks()] == ["reads", "watches"]
        return seen, outcome, data

    plain, plain_outcome, _ = await emit()
    with spoil_events():
        seen, outcome, data = await emit()
    assert (seen, data) == (plain, {"list": [1]}) == ([1, ("reads",)], {"list": [1]})
    assert (outcome.ran, outcome.answers) == (plain_outcome.ran, plain_outcome.answers)
    monkeypatch.setattr(run_hooks, "copiers_of", lambda _data: ())
    with spoil_events():
        seen, _, data = await emit()
    assert (seen[0], data["list"][0]) == (SpoilingHook.MARK, SpoilingHook.MARK)


def test_the_fast_copy_is_only_for_plain_data() -> None:
    """An object that only has bytes, such as a memoryview, is passed on and not replaced by its bytes."""
    view = memoryview(bytearray(b"1"))
    ((_, copy),) = run_hooks.copiers_of({"raw": [view, 1.5]})
    assert copy()[0] is view
    assert copy() is not copy()
