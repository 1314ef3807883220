import asyncio
import copy
import json
import pickle
import re
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks import HookRegistry, HookResult
from amplifier_hooks.dispatch.chain import SELECTIONS_KEPT, DataView


@pytest.mark.rule("REG-4", "REG-10")
async def test_invented_tool_names_do_not_fill_the_memory() -> None:
    """The cache by tool name is bounded, and a selection that was dropped is computed again with an equal result."""
    registry = HookRegistry()
    registry.gate("tool:pre", lambda event, data: HookResult.deny("no"), name="guard", match="Bash")
    for number in range(2 * SELECTIONS_KEPT + 10):
        assert not (await registry.emit("tool:pre", {"tool_name": f"Tool{number}"})).denied
    assert (await registry.emit("tool:pre", {"tool_name": "Bash"})).denied
    chain = registry._chains["tool:pre"]
    assert len(chain._selections) <= SELECTIONS_KEPT


@pytest.mark.rule("REG-10")
async def test_invented_event_names_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of chains by event name is bounded."""
    monkeypatch.setattr("amplifier_hooks.registry.registry.NAMES_KEPT", 64)
    registry = HookRegistry()
    for number in range(64 + 10):
        await registry.emit(f"made:up{number}x{number}", {})
    assert 10 <= len(registry._chains) <= 64 + 1


@pytest.mark.rule("REG-4")
@pytest.mark.parametrize(("intent", "denied"), [("gate", True), ("on", False)])
async def test_a_matcher_out_of_time_is_a_failure_of_its_hook(intent: str, denied: bool) -> None:
    """A hook whose matcher times out is not called, its on_error decides, and it is on record as a timeout."""
    registry = HookRegistry()
    called: list[str] = []
    getattr(registry, intent)(
        "tool:pre", lambda event, data: called.append(event), name="slow", match=re.compile("(a|aa)+(a|aa)+b")
    )
    outcome = await registry.emit("tool:pre", {"tool_name": "a" * 400})
    assert (outcome.denied, called) == (denied, [])
    assert [(answer.hook_name, answer.status) for answer in outcome.failures] == [("slow", "timeout")]


@pytest.mark.rule("REG-4")
@pytest.mark.parametrize(
    ("intent", "on_error", "reached"),
    [
        ("gate", None, True),
        ("on", "deny", True),
        ("on", None, False),
        ("register", None, False),
        ("observe", None, False),
    ],
)
@pytest.mark.parametrize("data", [{}, {"tool_name": None}, {"tool_name": 7}, {"tool_name": ["Bash"]}])
async def test_a_payload_without_a_tool(
    intent: str, on_error: str | None, reached: bool, data: Mapping[str, Any]
) -> None:
    """Hooks that fail closed see a payload without a tool, since it might be the guarded one; others do not."""
    registry = HookRegistry()
    called: list[str] = []

    def hook(event: str, data: Mapping[str, Any], outcome: Any = None) -> None:
        called.append(event)

    options = {"on_error": on_error} if on_error else {}
    getattr(registry, intent)("tool:pre", hook, match="Bash", **options)
    await asyncio.wait_for(registry.emit("tool:pre", data), 60)
    assert bool(called) is reached


# -- the view of the data that a hook gets -----------------------------------------------------------------------------


payloads = st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.lists(st.text(max_size=3), max_size=3))


def assign(view: Any) -> None:
    """Write a field."""
    view["a"] = 2


def delete(view: Any) -> None:
    """Delete a field."""
    del view["a"]


def merge_in(view: Any) -> None:
    """Write fields with the operator."""
    view |= {"a": 2}


def assign_attribute(view: Any) -> None:
    """Put something beside the fields."""
    view.note = 2


@pytest.mark.rule("DSP-7")
@given(payloads)
def test_reads_like_a_dict(payload: dict[str, Any]) -> None:
    """A reader cannot tell the view from the dict that it was made of."""
    view = DataView(payload)
    assert isinstance(view, dict)
    assert view == payload
    assert list(view) == list(payload)
    assert len(view) == len(payload)
    assert json.dumps(view) == json.dumps(payload)
    assert repr(view) == repr(payload)
    assert dict(**view) == payload
    assert all(view[name] is value and view.get(name) is value and name in view for name, value in payload.items())


@pytest.mark.rule("DSP-7")
def test_matches_patterns() -> None:
    """Pattern matching works on the view."""
    match DataView({"tool_name": "Write", "tool_input": {"path": "a"}}):
        case {"tool_name": "Write", "tool_input": {"path": path}, **rest}:
            assert path == "a"
            assert rest == {}
        case _:
            pytest.fail("no match")


@given(payloads)
@pytest.mark.parametrize(
    "copied",
    [
        lambda view: view.copy(),
        copy.copy,
        copy.deepcopy,
        lambda view: pickle.loads(pickle.dumps(view)),
        lambda view: view | {},
        lambda view: {} | view,
        lambda view: {**view},
        dict,
    ],
    ids=["copy()", "copy", "deepcopy", "pickle", "|", "| on the right", "**", "dict"],
)
@pytest.mark.rule("DSP-7")
def test_copies_are_plain_dicts(copied: Callable[[Any], dict[str, Any]], payload: dict[str, Any]) -> None:
    """Every copy is a plain dict with the same items, free to be changed."""
    plain = copied(DataView(payload))
    assert type(plain) is dict
    assert plain == payload
    plain["more"] = 1


@pytest.mark.rule("DSP-7")
def test_deep_and_shallow() -> None:
    """A deep copy shares nothing, a shallow one shares what is inside."""
    view = DataView({"a": [1]})
    assert copy.deepcopy(view)["a"] is not view["a"]
    assert copy.copy(view)["a"] is view["a"]


@pytest.mark.parametrize(
    "write",
    [
        assign,
        delete,
        merge_in,
        lambda view: view.update({"a": 2}),
        lambda view: view.update(a=2),
        lambda view: view.setdefault("b", 2),
        lambda view: view.setdefault("a"),
        lambda view: view.pop("a"),
        lambda view: view.pop("b", None),
        lambda view: view.popitem(),
        lambda view: view.clear(),
    ],
    ids=count(),
)
@pytest.mark.rule("DSP-7")
def test_refuses_to_be_written(write: Callable[[Any], object]) -> None:
    """Every way to write names a modification as the right answer, and changes nothing."""
    view = DataView({"a": 1})
    with pytest.raises(TypeError, match=r"read-only; return HookResult\.modify\(\{\.\.\.\}\)"):
        write(view)
    assert view == {"a": 1}


@pytest.mark.rule("DSP-7")
def test_holds_nothing_but_fields() -> None:
    """No attribute can be set on the view, where the next hook would find it."""
    with pytest.raises(AttributeError):
        assign_attribute(DataView())


@pytest.mark.rule("DSP-7")
def test_no_way_to_write_is_forgotten() -> None:
    """The view refuses every method by which a dict changes, whatever a new Python adds to dict."""
    reading = {"copy", "fromkeys", "get", "items", "keys", "values"}
    writing = {name for name in vars(dict) if not name.startswith("_")} - reading
    writing |= {"__setitem__", "__delitem__", "__ior__"}
    assert {name for name in writing if getattr(DataView, name) is not DataView._refuse} == set()
