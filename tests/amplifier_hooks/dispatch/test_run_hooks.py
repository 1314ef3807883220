"""Chains through the public API: order, data passed between hooks, effects of failures, and kinds of loops."""

import asyncio
import contextlib
import copy
import gc
import inspect
import json
import pickle
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplifier_hooks import HookRegistry, HookResult, Outcome
from tests.hooks import saying, statuses

TOOL_PRE: Final = "tool:pre"
CALL: Final = {"tool_name": "Bash", "tool_input": {"command": "ls"}}
SOON: Final = 30  # seconds; nothing here waits that long unless it is broken
CONTINUE: Final = HookResult.proceed()

colour: ContextVar[Any] = ContextVar("colour", default="none")


def raising(error: BaseException) -> Callable[..., Any]:
    """A hook that fails."""

    async def hook(event: str, data: Mapping[str, Any]) -> None:
        raise error

    return hook


def noting(seen: list[Any], what: str | None = None) -> Callable[..., Any]:
    """A hook that says nothing and notes `what`, or the value of `n` it was shown."""

    async def hook(event: str, data: Mapping[str, Any]) -> None:
        seen.append(what or data.get("n"))

    return hook


# -- order -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-1")
async def test_hooks_run_one_after_another() -> None:
    """A hook begins only after the one before it has ended, however often that one waits."""
    registry, steps = HookRegistry(), []

    def stepping(name: str) -> Callable[..., Any]:
        async def hook(event: str, data: Mapping[str, Any]) -> None:
            for step in range(3):
                steps.append(f"{name}{step}")
                await asyncio.sleep(0)

        return hook

    for name in "abc":
        registry.on(TOOL_PRE, stepping(name), name=name)
    await registry.emit(TOOL_PRE, CALL)
    assert steps == [f"{name}{step}" for name in "abc" for step in range(3)]


@pytest.mark.rule("DSP-1", "RES-4")
@pytest.mark.parametrize("waits", [False, True])
async def test_the_first_deny_stops_the_participants(waits: bool) -> None:
    """After a deny no participant runs, and the outcome names who denied, why, and who was reached."""
    registry = HookRegistry()
    seen: list[str] = []

    async def refuse(event: str, data: Mapping[str, Any]) -> HookResult:
        if waits:
            await asyncio.sleep(0)
        return HookResult.deny("not on my watch")

    registry.on(TOOL_PRE, noting(seen, "first"), name="first")
    registry.on(TOOL_PRE, refuse, name="refuse")
    registry.gate(TOOL_PRE, noting(seen, "later gate"), name="later gate")
    registry.on(TOOL_PRE, saying(HookResult.deny("too late")), name="second deny")
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert seen == ["first"]
    assert (outcome.action, outcome.denied_by, outcome.reason) == ("deny", "refuse", "not on my watch")
    assert outcome.cause == "denied_by_hook"
    assert outcome.ran == ("first", "refuse")


@pytest.mark.rule("DSP-1")
async def test_a_modification_is_passed_on() -> None:
    """The next hook sees the fields merged over the payload; the emitter's own data stays as it was."""
    registry = HookRegistry()
    seen: list[int | None] = []
    registry.on(TOOL_PRE, noting(seen))
    registry.on(TOOL_PRE, saying(HookResult.modify({"n": 1})))
    registry.on(TOOL_PRE, noting(seen))
    registry.register(TOOL_PRE, saying({"action": "modify", "data": {"n": 2}}))
    registry.register(TOOL_PRE, noting(seen))
    emitted = {**CALL, "n": 0}
    outcome = await registry.emit(TOOL_PRE, emitted)
    assert seen == [0, 1, 2]
    assert (outcome.action, outcome.modified, outcome.data) == ("modify", True, {**CALL, "n": 2})
    assert emitted == {**CALL, "n": 0}


@pytest.mark.rule("RES-4")
async def test_unchanged_data_is_the_emitters_own() -> None:
    """Without a modification the outcome's data is the very object that was emitted."""
    registry = HookRegistry()
    registry.gate(TOOL_PRE, saying(HookResult.inject("hint")))
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert outcome.data is CALL
    assert not outcome.modified


@pytest.mark.rule("DSP-1")
async def test_every_kind_of_function_takes_its_turn() -> None:
    """Async functions, plain ones, plain ones that return an awaitable, partials and objects run in one order."""
    registry = HookRegistry()
    seen: list[str] = []

    async def async_hook(event: str, data: Mapping[str, Any], name: str = "async") -> None:
        await asyncio.sleep(0)
        seen.append(name)

    class Callee:
        async def __call__(self, event: str, data: Mapping[str, Any]) -> None:
            seen.append("object")

    registry.on(TOOL_PRE, async_hook)
    registry.on(TOOL_PRE, lambda event, data: seen.append("plain"), name="plain")
    registry.on(TOOL_PRE, lambda event, data: async_hook(event, data, "returned"), name="returned")
    registry.on(TOOL_PRE, partial(async_hook, name="partial"), name="partial")
    registry.on(TOOL_PRE, Callee())
    registry.on(TOOL_PRE, lambda event, data: seen.append("thread"), name="thread", thread=True)
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert seen == ["async", "plain", "returned", "partial", "object", "thread"]
    assert outcome.all_succeeded


# -- the second look ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-2")
async def test_gates_look_again_and_others_do_not() -> None:
    """A gate before a modification runs once more on the final data; later gates, counters and other hooks do not."""
    registry = HookRegistry()
    looks: dict[str, list[int | None]] = {}

    def look(name: str) -> Callable[..., Any]:
        return noting(looks.setdefault(name, []))

    registry.gate(TOOL_PRE, look("early gate"))
    registry.gate(TOOL_PRE, look("counter"), recheck=False)
    registry.on(TOOL_PRE, look("on"))
    registry.register(TOOL_PRE, look("register"))
    registry.on(TOOL_PRE, saying(HookResult.modify({"n": 1})))
    registry.gate(TOOL_PRE, look("between"))
    registry.on(TOOL_PRE, saying(HookResult.modify({"n": 2})))
    registry.gate(TOOL_PRE, look("late gate"))
    outcome = await registry.emit(TOOL_PRE, {**CALL, "n": 0})
    assert looks == {
        "early gate": [0, 2],
        "counter": [0],
        "on": [0],
        "register": [0],
        "between": [1, 2],
        "late gate": [2],
    }
    assert (outcome.action, outcome.data["n"]) == ("modify", 2)


@pytest.mark.rule("DSP-2")
async def test_nothing_is_looked_at_twice_without_a_change_or_after_a_denial() -> None:
    """A second look takes place only after a change and before any denial."""
    registry = HookRegistry()
    seen: list[int | None] = []
    registry.gate(TOOL_PRE, noting(seen))
    await registry.emit(TOOL_PRE, {**CALL, "n": 0})
    registry.on(TOOL_PRE, saying(HookResult.modify({"n": 1})))
    registry.on(TOOL_PRE, saying(HookResult.deny("no")))
    await registry.emit(TOOL_PRE, {**CALL, "n": 0})
    assert seen == [0, 0]


class Look(NamedTuple):
    """A gate's answers at its two looks, and the merged result."""

    first: object
    second: object
    action: str
    asks: int


ASK: Final = HookResult.ask("Sure?")


@pytest.mark.rule("DSP-2")
@pytest.mark.parametrize(
    "look",
    [
        Look(None, HookResult.deny("no"), "deny", 0),
        Look(None, ASK, "ask_user", 1),
        Look(ASK, None, "ask_user", 1),
        Look(ASK, ASK, "ask_user", 1),
        Look(ASK, HookResult.ask("Still sure?"), "ask_user", 2),
        Look(ASK, HookResult.deny("no"), "deny", 1),
        Look(None, HookResult.modify({"n": 9}), "deny", 0),
        Look(None, HookResult.modify({"n": 1}), "modify", 0),
        Look(None, HookResult.inject("second"), "modify", 0),
        Look(None, HookResult.proceed(user_message="second"), "modify", 0),
        Look(None, "no answer at all", "deny", 0),
    ],
)
@pytest.mark.parametrize("waits", [False, True])
async def test_only_objections_count_in_the_second_look(look: Look, waits: bool) -> None:
    """The stricter of a gate's two answers stands; the second injects and sends nothing, and another change denies."""
    registry = HookRegistry()
    answers = iter([look.first, look.second])

    async def twice(event: str, data: Mapping[str, Any]) -> Any:
        if waits:
            await asyncio.sleep(0)
        return next(answers)

    registry.gate(TOOL_PRE, twice, name="gate")
    registry.on(TOOL_PRE, saying(HookResult.modify({"n": 1})))
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert (outcome.action, len(outcome.asks)) == (look.action, look.asks)
    assert outcome.data["n"] == 1
    assert outcome.injections == ()
    assert outcome.messages == ()
    assert outcome.denied_by == ("gate" if look.action == "deny" else None)


@pytest.mark.rule("DSP-2", "REG-3")
async def test_the_second_look_is_at_the_same_event_and_depth() -> None:
    """At its second look a gate is given the event's name again, and what it emits is one level deeper, not none."""
    registry = HookRegistry(max_depth=2)
    seen: list[tuple[str, str]] = []

    async def look(event: str, data: Mapping[str, Any]) -> None:
        inner = await registry.emit("inner:pre", {}) if "n" in data else None
        seen.append((event, inner.action if inner else "first look"))

    async def deeper(event: str, data: Mapping[str, Any]) -> None:
        await registry.emit("innermost:pre", {"n": 1})

    registry.gate(TOOL_PRE, look)
    registry.on(TOOL_PRE, saying(HookResult.modify({"n": 1})))
    registry.gate("inner:pre", deeper, own_event=True)
    registry.on("innermost:pre", saying(None))
    await registry.emit(TOOL_PRE, CALL)
    assert seen == [(TOOL_PRE, "first look"), (TOOL_PRE, "deny")]


@pytest.mark.rule("DSP-2")
async def test_the_second_look_is_on_record_as_such() -> None:
    """A denial at the second look stops the gates behind it and is marked, beside the first answers."""
    registry = HookRegistry()
    seen: list[int | None] = []

    async def picky(event: str, data: Mapping[str, Any]) -> HookResult | None:
        return HookResult.deny("changed") if "n" in data else None

    registry.gate(TOOL_PRE, picky, name="picky")
    registry.gate(TOOL_PRE, noting(seen), name="behind")
    registry.on(TOOL_PRE, saying(HookResult.modify({"n": 1})), name="modifier")
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert [(a.hook_name, a.action, a.recheck) for a in outcome.hook_results] == [
        ("picky", "continue", False),
        ("behind", "continue", False),
        ("modifier", "modify", False),
        ("picky", "deny", True),
    ]
    assert (outcome.denied_by, outcome.reason) == ("picky", "changed")
    assert seen == [None]


@pytest.mark.rule("DSP-2", "DSP-3")
async def test_a_gate_that_fails_at_its_second_look_denies() -> None:
    """A gate that raises when it sees the changed data has failed closed."""
    registry = HookRegistry()

    async def brittle(event: str, data: Mapping[str, Any]) -> None:
        if "n" in data:
            raise ValueError(data["n"])

    registry.gate(TOOL_PRE, brittle, name="brittle")
    registry.on(TOOL_PRE, saying(HookResult.modify({"n": 1})))
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert (outcome.action, outcome.denied_by, outcome.cause) == ("deny", "brittle", "hook_error")


# -- what a failure means ----------------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-3")
@pytest.mark.parametrize(
    ("intent", "strict", "event", "on_error", "denied"),
    [
        ("register", False, TOOL_PRE, None, False),
        ("register", True, TOOL_PRE, None, True),
        ("register", True, "tool:error", None, False),
        ("register", True, "agent:stop", None, False),
        ("register", True, TOOL_PRE, "continue", False),
        ("register", False, TOOL_PRE, "deny", True),
        ("on", False, TOOL_PRE, None, False),
        ("on", True, TOOL_PRE, None, False),
        ("on", False, TOOL_PRE, "deny", True),
        ("gate", False, TOOL_PRE, None, True),
        ("gate", False, TOOL_PRE, "continue", False),
        ("gate", False, "tool:error", None, True),
    ],
)
async def test_what_a_failure_means(intent: str, strict: bool, event: str, on_error: str | None, denied: bool) -> None:
    """Each way to register has a default effect of a failure, `on_error` overrules it, and the failure is on record."""
    registry = HookRegistry(register_on_error="deny" if strict else "continue")
    seen: list[str] = []
    getattr(registry, intent)(event, raising(ValueError("broken")), name="broken", on_error=on_error)
    registry.on(event, noting(seen, "next"), name="next")
    outcome = await registry.emit(event, {})
    assert outcome.denied is denied
    assert seen == ([] if denied else ["next"])
    assert outcome.cause == ("hook_error" if denied else None)
    (failure,) = outcome.failures
    assert (failure.hook_name, failure.status, failure.error) == ("broken", "error", "ValueError: broken")


@pytest.mark.rule("DSP-3", "RES-6")
@pytest.mark.parametrize("event", ["agent:stop", "subagent:stop"])
async def test_a_gate_for_many_events_that_fails_in_front_of_a_stop(event: str) -> None:
    """A gate under a pattern that fails is skipped there, or it would set the agent going again, and again."""
    registry = HookRegistry()
    registry.gate("*", raising(ValueError("broken")), name="all")
    registry.gate(f"{event.partition(':')[0]}:*", raising(ValueError("broken")), name="domain")
    outcome = await registry.emit(event, {"agent_name": "a"})
    assert (outcome.denied, statuses(outcome)) == (False, {"all": "error", "domain": "error"})
    assert [hook.on_failure for hook in registry.explain(event).hooks] == ["it is skipped"] * 2
    assert (await registry.emit("agent:pre", {"agent_name": "a"})).denied


@pytest.mark.rule("DSP-4")
async def test_four_kinds_of_failure_are_told_apart() -> None:
    """Timeout, error, invalid answer and unavailable have different statuses, and none is a person's rejection."""

    async def hang(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.Event().wait()

    async def missing(event: str, data: Mapping[str, Any]) -> None:
        from amplifier_hooks.errors import HookUnavailable

        raise HookUnavailable("no such program")

    kinds = {
        "error": (raising(TimeoutError("its own")), "hook_error"),
        "invalid": (saying("yes"), "hook_invalid_output"),
        "timeout": (hang, "hook_timeout"),
        "unavailable": (missing, "hook_unavailable"),
    }
    together = HookRegistry()
    for status, (hook, cause) in kinds.items():
        alone, timeout = HookRegistry(), 0.05 if hook is hang else 60.0
        alone.gate(TOOL_PRE, hook, name=status, timeout=timeout)
        together.on(TOOL_PRE, hook, name=status, timeout=timeout)
        outcome = await alone.emit(TOOL_PRE, CALL)
        assert (outcome.action, outcome.cause, statuses(outcome)) == ("deny", cause, {status: status})
    outcome = await together.emit(TOOL_PRE, CALL)
    assert statuses(outcome) == {status: status for status in kinds}
    assert not outcome.denied


class Unreadable(Mapping[str, Any]):
    """A mapping that cannot be read."""

    def __iter__(self) -> Iterator[str]:
        raise ValueError("unreadable")

    def __len__(self) -> int:
        return 1

    def __getitem__(self, key: str) -> Any:
        raise ValueError("unreadable")


class OneKey(Mapping[Any, Any]):
    """A mapping of one key to one value, both whatever they are."""

    def __init__(self, key: Any, value: Any) -> None:
        self.key, self.value = key, value

    def __iter__(self) -> Iterator[Any]:
        yield self.key

    def __len__(self) -> int:
        return 1

    def __getitem__(self, key: Any) -> Any:
        return self.value


class Incomparable:
    """Equal to nothing, and says so loudly, as arrays do."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")


@pytest.mark.rule("DSP-3")
@pytest.mark.parametrize(
    "changes",
    [Unreadable(), OneKey([], 1), OneKey("tool_name", Incomparable())],
    ids=["unreadable", "key without hash", "value without equality"],
)
async def test_a_modification_that_cannot_be_read_is_invalid(changes: Mapping[str, Any]) -> None:
    """Changes that raise while they are merged are the hook's failure, and leave the data as it was."""
    registry = HookRegistry()
    seen: list[str] = []

    async def odd(event: str, data: Mapping[str, Any]) -> HookResult:
        return HookResult.modify(changes)

    registry.on(TOOL_PRE, odd, name="odd")
    registry.on(TOOL_PRE, noting(seen, "next"), name="next")
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert statuses(outcome) == {"odd": "invalid", "next": "ok"}
    assert outcome.data == CALL
    assert seen == ["next"]


@pytest.mark.rule("DSP-3")
@pytest.mark.parametrize("field", ["tool_name", "session_id", "tenant_id", "tool_call_id"])
@pytest.mark.parametrize("intent", ["on", "gate"])
async def test_identity_cannot_be_changed(field: str, intent: str) -> None:
    """A modification of an identity field is an invalid answer as a whole; repeating the value is valid."""
    registry = HookRegistry()
    getattr(registry, intent)(TOOL_PRE, saying(HookResult.modify({field: "other", "n": 1})), name="forger")
    data = {"tool_name": "Bash", "session_id": "s1"}
    outcome = await registry.emit(TOOL_PRE, data)
    assert statuses(outcome) == {"forger": "invalid"}
    assert outcome.data == data
    assert outcome.cause == ("hook_invalid_output" if intent == "gate" else None)
    assert field in str(outcome.failures[0].error)

    harmless = HookRegistry()
    harmless.on(TOOL_PRE, saying(HookResult.modify({"tool_name": "Bash", "n": 1})))
    assert (await harmless.emit(TOOL_PRE, data)).data["n"] == 1


class Forged(str):
    """A name that says it is the same as any other."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


@pytest.mark.rule("EVT-8")
async def test_what_calls_itself_equal_does_not_replace_identity() -> None:
    """An identity field keeps the emitted value, whatever a hook's own object says of itself."""
    registry = HookRegistry()
    registry.on(TOOL_PRE, saying(HookResult.modify({"tool_name": Forged("Delete"), "n": 1})))
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert (outcome.data["n"], type(outcome.data["tool_name"]), outcome.data["tool_name"]) == (1, str, "Bash")


@pytest.mark.rule("EVT-8")
@pytest.mark.parametrize(
    ("event", "data", "field"),
    [
        ("artifact:write", {"path": "/etc/passwd"}, "path"),
        ("approval:required", {"prompt": "Delete all?", "risk": "high", "digest": "d"}, "prompt"),
        ("request:pre", {"method": "DELETE", "path": "/users"}, "method"),
    ],
)
async def test_what_nobody_can_replace_is_not_disguised(event: str, data: dict[str, Any], field: str) -> None:
    """Where nothing is replaced, a modification of what the payload describes is invalid: gates see what is."""
    registry = HookRegistry()
    seen: list[Any] = []
    registry.on(event, saying(HookResult.modify({field: "harmless"})), name="disguise")
    registry.on(event, saying(HookResult.modify({"note": "a custom field"})), name="note")
    registry.gate(event, lambda event, data: seen.append((data[field], data["note"])), name="gate")
    outcome = await registry.emit(event, data)
    assert seen == [(data[field], "a custom field")]
    assert statuses(outcome)["disguise"] == "invalid"


@pytest.mark.rule("DSP-3")
@pytest.mark.parametrize("kind", ["itself", "another loop", "no future"])
async def test_awaiting_what_cannot_be_awaited(kind: str) -> None:
    """A hook that awaits its own task, another loop's future, or something the loop does not know, has failed."""

    class Odd:
        def __await__(self) -> Iterator[Any]:
            yield 42

    other_loop = asyncio.new_event_loop()
    registry = HookRegistry()
    seen: list[str] = []

    async def confused(event: str, data: Mapping[str, Any]) -> None:
        task = asyncio.current_task()
        assert task is not None
        things: dict[str, Any] = {"itself": task, "another loop": other_loop.create_future(), "no future": Odd()}
        await things[kind]

    registry.on(TOOL_PRE, confused, name="confused")
    registry.on(TOOL_PRE, noting(seen, "next"), name="next")
    try:
        outcome = await registry.emit(TOOL_PRE, CALL)
    finally:
        other_loop.close()
    assert statuses(outcome) == {"confused": "error", "next": "ok"}
    assert seen == ["next"]


# -- what a hook is given ----------------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-7")
@pytest.mark.parametrize("intent", ["on", "gate"])
async def test_participants_read_but_do_not_write(intent: str) -> None:
    """The data reads like any dict, can be copied and spread, and refuses every way of writing to it."""
    registry = HookRegistry()
    copies: list[dict[str, Any]] = []

    async def read(event: str, data: dict[str, Any]) -> None:
        assert isinstance(data, dict)
        assert json.loads(json.dumps(data)) == CALL
        made = [
            data.copy(),
            copy.copy(data),
            copy.deepcopy(data),
            dict(data),
            {**data},
            pickle.loads(pickle.dumps(data)),
        ]
        for one in made:
            one["free"] = True
        copies.extend(made)
        for write in (
            lambda: data.__setitem__("n", 1),
            lambda: data.__delitem__("tool_name"),
            lambda: data.update(n=1),
            lambda: data.setdefault("n", 1),
            lambda: data.pop("tool_name"),
            data.popitem,
            data.clear,
            lambda: data.__ior__({"n": 1}),
        ):
            with pytest.raises(TypeError, match="read-only"):
                write()

    getattr(registry, intent)(TOOL_PRE, read)
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert outcome.all_succeeded
    assert outcome.data == CALL
    assert len(copies) == 6
    assert all(type(one) is dict and one["free"] for one in copies)


@pytest.mark.rule("DSP-7")
async def test_upstream_handlers_get_a_copy_each() -> None:
    """Writes of a `register` handler to its data reach neither the next hook nor the emitter."""
    registry = HookRegistry()
    kinds: list[type] = []

    def scribble(event: str, data: dict[str, Any]) -> None:
        kinds.append(type(data))
        assert "scribbled" not in data
        data["scribbled"] = True

    registry.register(TOOL_PRE, scribble)
    registry.register(TOOL_PRE, scribble)
    registry.on(TOOL_PRE, lambda event, data: scribble(event, dict(data)), name="on")
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert outcome.all_succeeded
    assert kinds == [dict] * 3
    assert outcome.data == CALL


@pytest.mark.rule("DSP-7")
@pytest.mark.parametrize("left", ["text", 7, None, ["b"], {"b": [1]}, {"b": 1}])
@pytest.mark.parametrize("given", ["text", ["a"], {"a": [1]}, {"a": 1}])
async def test_next_hook_sees_the_changed_field(given: object, left: object) -> None:
    """After a change of a field, each hook gets a copy of its own of the new value, of whatever kind both are."""
    registry, seen = HookRegistry(), list[Any]()
    registry.on("tool:pre", saying(HookResult.modify({"n": left})))
    registry.on("tool:pre", noting(seen))
    registry.on("tool:pre", noting(seen))
    outcome = await registry.emit("tool:pre", {"tool_name": "Write", "tool_input": {"kept": [1]}, "n": given})
    values = [*seen, outcome.data["n"]]
    assert values == [left] * 3
    assert len(set(map(id, values))) == (3 if isinstance(left, list | dict) else 1)


@pytest.mark.rule("DSP-7", "REG-5")
async def test_observers_cannot_write_either() -> None:
    """An observer that writes to the data fails alone, and the outcome stays as the participants left it."""
    registry = HookRegistry()
    seen: list[Any] = []
    registry.on(TOOL_PRE, saying(HookResult.modify({"n": 1})))

    @registry.observe(TOOL_PRE)
    def scribble(event: str, data: dict[str, Any], outcome: Outcome) -> None:
        data["n"] = 2

    @registry.observe(TOOL_PRE)
    def look(event: str, data: dict[str, Any], outcome: Outcome) -> None:
        seen.append((data["n"], outcome.action))

    outcome = await registry.emit(TOOL_PRE, CALL)
    assert outcome.data["n"] == 1
    assert seen == [(1, "modify")]


@pytest.mark.rule("REG-5")
@pytest.mark.parametrize("answer", [None, HookResult.modify({"tool_input": {"command": "ls -l"}})])
async def test_observers_cannot_write_to_the_outcome(answer: HookResult | None) -> None:
    """An observer that writes to the data of the outcome changes nothing of what the caller goes on with."""
    registry = HookRegistry()
    registry.on(TOOL_PRE, saying(answer))

    @registry.observe(TOOL_PRE)
    def scribble(event: str, data: dict[str, Any], outcome: Any) -> None:
        outcome.data["tool_input"] = {"command": "rm -rf /"}

    data = dict(CALL)
    outcome = await registry.emit(TOOL_PRE, data)
    assert data == CALL
    assert outcome.data == {**CALL, **(answer.data or {} if answer else {})}


@pytest.mark.rule("DSP-7")
@pytest.mark.parametrize(
    "when", ["at once", "after waiting", "before waiting", "before failing", "before its deadline"]
)
@pytest.mark.parametrize("intent", ["on", "gate", "register"])
async def test_context_variables_stay_with_the_hook(when: str, intent: str) -> None:
    """A context variable that a hook sets is seen neither by the next hook nor by the caller, at any time."""
    registry = HookRegistry()
    seen: list[str] = []

    async def paint(event: str, data: Mapping[str, Any]) -> None:
        if when == "after waiting":
            await asyncio.sleep(0)
        colour.set("red")
        if when == "before waiting":
            await asyncio.sleep(0)
            assert colour.get() == "red"
        if when == "before failing":
            raise ValueError
        if when == "before its deadline":
            await asyncio.Event().wait()

    async def look(event: str, data: Mapping[str, Any]) -> None:
        seen.append(colour.get())
        await asyncio.sleep(0)
        seen.append(colour.get())

    colour.set("white")
    timeout = 0.05 if when == "before its deadline" else 60.0
    getattr(registry, intent)(TOOL_PRE, paint, timeout=timeout, on_error="continue")
    for _ in range(3):
        getattr(registry, intent)(TOOL_PRE, look)
    registry.observe(TOOL_PRE, lambda event, data, outcome: seen.append(colour.get()))
    await registry.emit(TOOL_PRE, CALL)
    assert seen == ["white"] * 7
    assert colour.get() == "white"


@pytest.mark.rule("DSP-7")
async def test_context_variables_that_cannot_be_compared() -> None:
    """A value that cannot be compared with the old one is as foreign to the next hook as any other."""
    registry = HookRegistry()
    seen: list[object] = []
    colour.set(True)

    async def paint(event: str, data: Mapping[str, Any]) -> None:
        colour.set(Incomparable())

    registry.on(TOOL_PRE, paint)
    registry.on(TOOL_PRE, lambda event, data: seen.append(colour.get()), name="look")
    await registry.emit(TOOL_PRE, CALL)
    assert seen[0] is True
    assert colour.get() is True


class Exiting:
    """A value whose comparison ends the program, or means to."""

    def __eq__(self, other: object) -> bool:
        raise SystemExit(3)

    __hash__ = object.__hash__


@pytest.mark.rule("DSP-6", "DSP-7")
@pytest.mark.parametrize("answer", [None, HookResult.inject("x")])
async def test_comparing_context_variables_raises_nothing(answer: HookResult | None) -> None:
    """Whatever a value raises when it is compared stays with the hook that set it."""
    registry = HookRegistry()
    seen: list[Any] = []
    colour.set(before := Exiting())

    async def paint(event: str, data: Mapping[str, Any]) -> HookResult | None:
        colour.set(Exiting())
        return answer

    registry.on(TOOL_PRE, paint)
    registry.on(TOOL_PRE, lambda event, data: seen.append(colour.get()))
    assert (await registry.emit(TOOL_PRE, CALL)).all_succeeded
    assert len(seen) == 1
    assert seen[0] is before


@pytest.mark.rule("DSP-7")
async def test_hooks_see_the_callers_context_variables() -> None:
    """A hook, its threads and its tasks read what the caller has set."""
    registry = HookRegistry()
    seen: list[str] = []

    async def look() -> None:
        seen.append(colour.get())

    registry.on(TOOL_PRE, lambda event, data: look(), name="plain")
    registry.on(TOOL_PRE, lambda event, data: seen.append(colour.get()), thread=True, name="thread")
    registry.on(TOOL_PRE, lambda event, data: asyncio.create_task(look()), name="task")
    colour.set("white")
    await registry.emit(TOOL_PRE, CALL)
    assert seen == ["white"] * 3


# -- durations and the record ------------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-8")
@pytest.mark.parametrize("timing", [False, True])
async def test_durations_are_kept_where_they_mean_something(timing: bool) -> None:
    """A hook that waited, failed or answered has a duration; a silent one only under `timing`."""
    registry = HookRegistry(timing=timing)

    async def wait(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.sleep(0.01)

    registry.on(TOOL_PRE, saying(None), name="silent")
    registry.on(TOOL_PRE, lambda event, data: None, name="silent plain")
    registry.on(TOOL_PRE, wait, name="waited")
    registry.on(TOOL_PRE, raising(ValueError()), name="failed")
    registry.on(TOOL_PRE, saying("?"), name="invalid")
    registry.on(TOOL_PRE, saying(HookResult.inject("x")), name="answered")
    outcome = await registry.emit(TOOL_PRE, CALL)
    took = {answer.hook_name: answer.duration_ms for answer in outcome.hook_results}
    measured = {name for name, duration in took.items() if duration is not None}
    silent = {"silent", "silent plain"}
    assert measured == took.keys() - (set() if timing else silent)
    assert sum(duration for duration in took.values() if duration) <= outcome.total_duration_ms
    assert 9 < (took["waited"] or 0) < 1000


@pytest.mark.rule("DSP-8", "RES-8")
@pytest.mark.parametrize("answer", [None, HookResult.inject("x")])
async def test_the_time_of_the_chain(answer: HookResult | None) -> None:
    """An outcome says how long its hooks took together, whether or not one of them had something to say."""
    registry = HookRegistry()

    def slow(event: str, data: Mapping[str, Any]) -> HookResult | None:
        time.sleep(0.01)
        return answer

    registry.on(TOOL_PRE, slow)
    assert 9 < (await registry.emit(TOOL_PRE, CALL)).total_duration_ms < 1000


@pytest.mark.rule("DSP-8", "REG-3")
async def test_what_is_on_record() -> None:
    """A silent gate that waits has an answer on record, one that does not wait has none; a disabled hook is noted."""
    registry = HookRegistry()

    async def wait(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.sleep(0.01)

    async def answer(event: str, data: Mapping[str, Any]) -> HookResult:
        await asyncio.sleep(0.01)
        registry.disable("off")
        return HookResult.modify({"n": 1})

    registry.gate(TOOL_PRE, saying(None), name="silent")
    registry.gate(TOOL_PRE, wait, name="waits")
    registry.on(TOOL_PRE, answer, name="answers")
    registry.gate(TOOL_PRE, saying(None), name="off")
    answers = (await registry.emit(TOOL_PRE, CALL)).answers
    assert [(one.hook_name, one.status, one.recheck) for one in answers] == [
        ("waits", "ok", False),
        ("answers", "ok", False),
        ("off", "disabled", False),
        ("waits", "ok", True),
    ]
    assert [9 < (one.duration_ms or 0) < 1000 for one in answers] == [True, True, False, True]
    assert [one.result.action for one in answers] == ["continue", "modify", "continue", "continue"]
    assert not any(one.denies for one in answers)


@pytest.mark.rule("RES-4")
@pytest.mark.parametrize("waits", [False, True])
async def test_a_reason_without_an_action_is_kept_whoever_came_first(waits: bool) -> None:
    """The reason of a hook that continues is reported, whether or not a silent hook before it had to wait."""
    registry = HookRegistry()

    async def silent(event: str, data: Mapping[str, Any]) -> None:
        if waits:
            await asyncio.sleep(0)

    registry.on(TOOL_PRE, silent)
    registry.on(TOOL_PRE, saying(HookResult(reason="looked closely")))
    assert (await registry.emit(TOOL_PRE, CALL)).reason == "looked closely"


@pytest.mark.rule("RES-4")
async def test_nothing_a_hook_said_is_lost() -> None:
    """Injections, questions, messages and failures of all hooks are kept with who said them, also in a denial."""
    registry = HookRegistry()
    registry.on(TOOL_PRE, saying(HookResult.inject("a", user_message="from a")), name="a")
    registry.on(TOOL_PRE, saying(HookResult.ask("b?")), name="b")
    registry.on(TOOL_PRE, raising(ValueError("c")), name="c")
    registry.on(TOOL_PRE, saying(HookResult.modify({"n": 1})), name="d")
    registry.on(TOOL_PRE, saying(HookResult.deny("e", context_injection="why")), name="e")
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert outcome.action == "deny"
    assert [(item.hook_name, item.content, item.event) for item in outcome.injections] == [
        ("a", "a", TOOL_PRE),
        ("e", "why", TOOL_PRE),
    ]
    assert [(ask.hook_name, ask.prompt) for ask in outcome.asks] == [("b", "b?")]
    assert [(message.hook_name, message.text) for message in outcome.messages] == [("a", "from a")]
    assert statuses(outcome) == {"a": "ok", "b": "ok", "c": "error", "d": "ok", "e": "ok"}
    assert outcome.data["n"] == 1


# -- observers ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REG-5", "DSP-3")
async def test_observers_are_told_whatever_happens() -> None:
    """Observers hear last, also of a denial, and one that fails, hangs or exits changes nothing for the others."""
    registry = HookRegistry()
    told: list[tuple[str, str | None]] = []

    async def hang(event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        await asyncio.Event().wait()

    async def leave(event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        raise SystemExit(1)

    registry.observe(TOOL_PRE, hang, timeout=0.05, priority=-2)
    registry.observe(TOOL_PRE, leave, priority=-1)
    registry.observe(TOOL_PRE, hang, timeout=0.05, concurrent=True, name="beside")
    registry.observe("*", lambda event, data, outcome: told.append((event, outcome.denied_by)), name="metrics")
    registry.gate(TOOL_PRE, saying(HookResult.deny("no")), name="gate", priority=99)
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert told == [(TOOL_PRE, "gate")]
    assert outcome.ran == ("gate",)
    assert outcome.reason == "no"


@pytest.mark.rule("REG-5")
async def test_deciding_does_not_wait_for_observers() -> None:
    """`decide` runs the participants only; `notify` shows the observers the outcome they are given."""
    registry = HookRegistry()
    order: list[str] = []
    registry.observe(TOOL_PRE, lambda event, data, outcome: order.append(f"told {outcome.action}"), priority=-5)
    registry.on(TOOL_PRE, noting(order, "took part"), priority=5)
    outcome = await registry.decide(TOOL_PRE, CALL)
    order.append("decided")
    await registry.notify(outcome)
    assert order == ["took part", "decided", "told continue"]


# -- tenants -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TEN-1")
async def test_tenants_do_not_meet() -> None:
    """A tenant's hooks run for that tenant only and after the system's; the system's run for every tenant."""
    registry = HookRegistry()
    seen: list[str] = []
    for tenant in ("acme", "globex"):
        registry.on(TOOL_PRE, noting(seen, tenant), tenant=tenant, name=tenant)
    registry.on(TOOL_PRE, noting(seen, "system"), name="system")
    ran = {}
    for tenant in ("acme", "globex", ""):
        outcome = await registry.emit(TOOL_PRE, {**CALL, "tenant_id": tenant})
        ran[tenant] = outcome.ran
    assert ran == {"acme": ("system", "acme"), "globex": ("system", "globex"), "": ("system",)}
    assert seen == ["system", "acme", "system", "globex", "system"]


@pytest.mark.rule("TEN-1")
async def test_a_tenants_hook_cannot_slow_or_fail_another() -> None:
    """While one tenant's hooks hang and are left behind, another tenant's emit is through before them."""
    registry = HookRegistry()
    hanging = asyncio.Event()

    async def hang(event: str, data: Mapping[str, Any]) -> None:
        hanging.set()
        for _ in range(6):  # an end, or a broken dispatcher would hang the tests
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1.5)

    registry.gate(TOOL_PRE, hang, tenant="acme", timeout=0.05, name="hang")
    registry.gate(TOOL_PRE, saying(CONTINUE), tenant="globex", name="fine")
    for _ in range(4):
        hanging.clear()
        bad = asyncio.ensure_future(registry.emit(TOOL_PRE, {**CALL, "tenant_id": "acme"}))
        await asyncio.sleep(0)
        good = await registry.emit(TOOL_PRE, {**CALL, "tenant_id": "globex"})
        assert not bad.done() or statuses(bad.result()) == {"hang": "unavailable"}
        assert (good.action, good.ran) == ("continue", ("fine",))
        assert (await bad).denied


# -- event loops -------------------------------------------------------------------------------------------------------


def mixed() -> tuple[HookRegistry, list[str]]:
    """A registry with a bit of everything, and what its hooks note."""
    registry = HookRegistry()
    notes: list[str] = []

    async def hang(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.Event().wait()

    async def wait(event: str, data: Mapping[str, Any]) -> HookResult:
        await asyncio.sleep(0)
        notes.append("waited")
        return HookResult.modify({"n": 1})

    async def limit_itself(event: str, data: Mapping[str, Any]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        notes.append("timed itself")

    async def fail(event: str, data: Mapping[str, Any]) -> None:
        # A new error each time: the traceback of a kept one keeps the frames of all callers, and so the loop.
        raise ValueError("x")

    registry.gate(TOOL_PRE, noting(notes), name="gate")
    registry.on(TOOL_PRE, hang, timeout=0.02, name="hang")
    registry.on(TOOL_PRE, wait, name="wait")
    registry.on(TOOL_PRE, limit_itself, name="limit itself")
    registry.on(TOOL_PRE, fail, name="raise")
    registry.on(TOOL_PRE, lambda event, data: notes.append("thread"), thread=True, name="thread")
    return registry, notes


def check_mixed(outcome: Outcome, notes: list[Any]) -> None:
    """Check the outcome of `mixed`."""
    expected = {"gate": "ok", "hang": "timeout", "wait": "ok", "limit itself": "ok", "raise": "error", "thread": "ok"}
    assert statuses(outcome) == expected
    assert (outcome.action, outcome.data["n"]) == ("modify", 1)
    assert notes == [None, "waited", "timed itself", "thread", 1]


class Promise:
    """Something to await that is no coroutine, and nothing to iterate over."""

    def __await__(self) -> Generator[Any, None, HookResult]:
        yield from asyncio.sleep(0).__await__()
        return HookResult.deny("kept")


@pytest.mark.rule("RES-3")
@pytest.mark.parametrize("intent", ["on", "gate", "register"])
@pytest.mark.parametrize("marked", [True, False])
async def test_what_is_awaited_need_not_be_a_coroutine(intent: str, marked: bool) -> None:
    """A hook may return anything that can be awaited, also when it says that it is a coroutine function."""
    registry = HookRegistry()

    def promises(event: str, data: Mapping[str, Any]) -> Promise:
        return Promise()

    if marked:
        mark = getattr(inspect, "markcoroutinefunction", None)
        if mark is None:
            pytest.skip("this Python has no marks for coroutine functions")
        mark(promises)
    getattr(registry, intent)(TOOL_PRE, promises)
    assert (await registry.emit(TOOL_PRE, CALL)).reason == "kept"


@pytest.mark.rule("DSP-1", "DSP-5")
@pytest.mark.fault("F-LC-07")
@pytest.mark.parametrize("kind", ["standard", "debug", "eager tasks", "uvloop"])
def test_the_kind_of_loop_does_not_matter(kind: str) -> None:
    """Equal hooks give equal outcomes on the standard loop, in debug mode, with eager tasks and on uvloop."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if kind == "uvloop":
        factory = pytest.importorskip("uvloop", reason="uvloop is not installed").new_event_loop
    eager: Any = getattr(asyncio, "eager_task_factory", None)
    if kind == "eager tasks" and eager is None:
        pytest.skip("this Python has no eager tasks")
    registry, notes = mixed()

    async def run() -> Outcome:
        if kind == "eager tasks":
            asyncio.get_running_loop().set_task_factory(eager)
        return await asyncio.create_task(registry.emit(TOOL_PRE, CALL))

    with asyncio.Runner(debug=kind == "debug", loop_factory=factory) as runner:
        check_mixed(runner.run(run()), notes)


@pytest.mark.rule("DSP-1", "DSP-5")
def test_one_registry_serves_loop_after_loop() -> None:
    """Loops that come and go share a registry; deadlines hold in each, and no loop is kept alive."""
    registry, notes = mixed()
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []
    for _ in range(3):
        notes.clear()
        with asyncio.Runner() as runner:
            loops.append(weakref.ref(runner.get_loop()))
            check_mixed(runner.run(registry.emit(TOOL_PRE, CALL)), notes)
            notes.clear()
            check_mixed(runner.run(registry.emit(TOOL_PRE, CALL)), notes)
        del runner
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3


@pytest.mark.rule("DSP-1")
def test_hooks_that_never_wait_need_no_loop() -> None:
    """A chain of hooks that never suspend is through without an event loop."""
    registry = HookRegistry()
    registry.on(TOOL_PRE, saying(HookResult.inject("x")))
    registry.observe("*", lambda event, data, outcome: None)
    with pytest.raises(StopIteration) as done:
        registry.emit(TOOL_PRE, CALL).send(None)
    assert done.value.value.injections[0].content == "x"


@pytest.mark.rule("DSP-1")
async def test_emits_do_not_mix() -> None:
    """Many emits of one event at once each carry their own data through hooks that wait."""
    registry = HookRegistry()

    async def add(event: str, data: Mapping[str, Any]) -> HookResult:
        await asyncio.sleep(0)
        return HookResult.modify({"n": data["n"] + 1000})

    for _ in range(3):
        registry.on(TOOL_PRE, add)
    outcomes = await asyncio.gather(*(registry.emit(TOOL_PRE, {"n": n}) for n in range(100)))
    assert [outcome.data["n"] for outcome in outcomes] == [3000 + n for n in range(100)]


# -- any chain at all --------------------------------------------------------------------------------------------------

QUICK: Final = (
    "silent",
    "continue",
    "deny",
    "modify",
    "inject",
    "ask",
    "suspend",
    "late deny",
    "picky",
    "raise",
    "set",
)
SLOW: Final = ("hang", "swallow")
FAILS: Final = {"raise": "error", "hang": "timeout", "swallow": "timeout"}
SAYS: Final = {"modify": "modify", "inject": "inject_context", "ask": "ask_user"}
STRICTNESS: Final = ("continue", "modify", "inject_context", "ask_user", "deny")


class Link(NamedTuple):
    """One hook of a made-up chain."""

    intent: str
    does: str
    priority: int


def behave(number: int, does: str, ran: list[int]) -> Callable[..., Any]:
    """Return a hook that behaves in this way."""

    async def hook(event: str, data: Mapping[str, Any]) -> HookResult | None:
        ran.append(number)
        assert colour.get() == "white"
        if does in ("suspend", "late deny"):
            await asyncio.sleep(0)
        if does == "set":
            colour.set("red")
        if does == "raise":
            raise ValueError(number)
        if does in SLOW:
            for _ in range(6 if does == "swallow" else 1):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(1.5)
        denies = does in ("deny", "late deny") or (does == "picky" and "n" in data)
        answers = {
            "continue": CONTINUE,
            "modify": HookResult.modify({"n": number}),
            "inject": HookResult.inject("x"),
            "ask": HookResult.ask("?"),
        }
        return HookResult.deny(str(number)) if denies else answers.get(does)

    return hook


class Expected(NamedTuple):
    """The expected result of a chain."""

    action: str
    ran: list[int]
    by: str | None
    n: int | None
    failed: list[tuple[str, str]]


def foretell(links: Sequence[Link]) -> Expected:
    """Apply the rules to the chain once more, as a loop."""
    ran: list[int] = []
    failed: list[tuple[str, str]] = []
    looked: list[tuple[int, Link]] = []
    again: list[tuple[int, Link]] = []
    action, n = "continue", None
    for number, link in sorted(enumerate(links), key=lambda pair: (pair[1].priority, pair[0])):
        ran.append(number)
        if link.does in FAILS:
            failed.append((str(number), FAILS[link.does]))
        broken = link.does in FAILS and link.intent == "gate"
        if broken or link.does in ("deny", "late deny") or (link.does == "picky" and n is not None):
            return Expected("deny", ran, str(number), n, failed)
        action = max(action, SAYS.get(link.does, "continue"), key=STRICTNESS.index)
        if link.does == "modify":
            n, again = number, list(looked)
        if link.intent == "gate":
            looked.append((number, link))
    for number, link in again:
        ran.append(number)
        if link.does == "modify":  # it wants its own change again, which a later hook has undone
            failed.append((str(number), "conflict"))
        if link.does in ("picky", "modify"):
            return Expected("deny", ran, str(number), n, failed)
    return Expected(action, ran, None, n, failed)


async def observed(links: Sequence[Link]) -> Expected:
    """Run the chain, and return its result."""
    registry = HookRegistry()
    ran: list[int] = []
    for number, (intent, does, priority) in enumerate(links):
        hook = behave(number, does, ran)
        limit = 0.02 if does in SLOW else 30
        getattr(registry, intent)(TOOL_PRE, hook, priority=priority, name=str(number), timeout=limit)
    colour.set("white")
    task = asyncio.current_task()
    assert task is not None
    async with asyncio.timeout(SOON):
        outcome = await registry.emit(TOOL_PRE, CALL)
    assert task.cancelling() == 0
    assert colour.get() == "white"
    failed: list[tuple[str, str]] = [(answer.hook_name, answer.status) for answer in outcome.failures]
    return Expected(outcome.action, ran, outcome.denied_by, outcome.data.get("n"), failed)


def chains(*does: str, most: int) -> st.SearchStrategy[list[Link]]:
    """Chains of hooks that behave in these ways."""
    link = st.builds(
        Link, st.sampled_from(["on", "gate", "register"]), st.sampled_from(does), st.integers(min_value=-1, max_value=1)
    )
    return st.lists(link, max_size=most)


@pytest.mark.rule("DSP-1", "DSP-2", "DSP-3", "DSP-7")
@given(chains(*QUICK, most=8))
def test_any_chain(links: list[Link]) -> None:
    """With any hooks, the hooks that ran, the denial, the reports and the data follow the rules."""
    assert asyncio.run(observed(links)) == foretell(links)


@pytest.mark.rule("DSP-5")
@given(st.tuples(chains(*QUICK, most=3), chains(*SLOW, most=2), chains(*QUICK, most=3)))
@settings(max_examples=25)
def test_any_chain_with_hooks_that_do_not_end(parts: tuple[list[Link], list[Link], list[Link]]) -> None:
    """The rules also hold when hooks hang, or swallow their cancellation until they are closed."""
    links = [link for part in parts for link in part]
    assert asyncio.run(observed(links)) == foretell(links)


@pytest.mark.rule("RES-5")
async def test_a_question_may_come_with_a_change() -> None:
    """A hook that asks and answers with data changes the payload, and the person is asked about what it has become."""
    registry = HookRegistry()
    registry.on("tool:pre")(lambda event, data: HookResult.ask("Like this?", data={"tool_input": {"path": "b"}}))
    outcome = await registry.emit("tool:pre", {"session_id": "s", "tool_name": "Write", "tool_input": {"path": "a"}})
    assert (outcome.action, outcome.modified, outcome.data["tool_input"]) == ("ask_user", True, {"path": "b"})


@pytest.mark.rule("RES-5")
async def test_a_question_may_not_change_what_is_not_for_hooks() -> None:
    """A question whose data changes an identity field is no answer."""
    registry = HookRegistry()
    registry.gate("tool:pre")(lambda event, data: HookResult.ask("Like this?", data={"tool_name": "Bash"}))
    outcome = await registry.emit("tool:pre", {"session_id": "s", "tool_name": "Write", "tool_input": {}})
    assert (outcome.action, outcome.cause) == ("deny", "hook_invalid_output")
