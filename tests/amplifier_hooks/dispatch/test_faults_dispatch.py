"""The faults of specs/faults.md that meet the dispatcher: F-HD."""

import asyncio
import contextlib
import decimal
import gc
import itertools
import locale
import logging
import os
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final

import pytest

from amplifier_hooks import HookRegistry, HookResult, Outcome
from amplifier_hooks.errors import EmitTooDeep
from amplifier_hooks.testing import unchanged_process
from tests.hooks import saying, statuses

TOOL_PRE: Final = "tool:pre"
TOOL_POST: Final = "tool:post"
CALL: Final = {"tool_name": "Bash", "tool_input": {"command": "ls"}}
LIMIT: Final = 0.2
SOON: Final = 20.0  # seconds; what hangs here hangs for longer, and machines stall
CONTINUE: Final = HookResult.proceed()
DENY: Final = HookResult.deny("no")

colour: ContextVar[str] = ContextVar("colour", default="none")


def command(data: Mapping[str, Any]) -> str:
    """The command of a call."""
    found = data["tool_input"]["command"]
    assert isinstance(found, str)
    return found


async def no_rm(event: str, data: Mapping[str, Any]) -> HookResult | None:
    """An operator's deny rule."""
    return HookResult.deny("rm is denied") if command(data).startswith("rm") else None


async def quick(emit: Coroutine[Any, Any, Outcome]) -> Outcome:
    """The outcome, which has to be there soon."""
    started = time.monotonic()
    outcome = await emit
    assert time.monotonic() - started < SOON
    return outcome


# -- who wins ----------------------------------------------------------------------------------------------------------


@pytest.mark.fault("F-HD-01")
@pytest.mark.rule("DSP-1")
@pytest.mark.parametrize("intent", ["on", "gate", "register"])
async def test_a_deny_wins_in_every_order(intent: str) -> None:
    """Of continue, continue, deny, every order of registration and of priorities is denied with the deny's reason."""
    answers = [CONTINUE, None, HookResult.deny("because")]
    for order in itertools.permutations(answers):
        for priorities in itertools.permutations([-5, 0, 5]):
            registry = HookRegistry()
            for answer, priority in zip(order, priorities, strict=True):
                name = "the deny" if answer is answers[2] else None
                getattr(registry, intent)(TOOL_PRE, saying(answer), priority=priority, name=name)
            outcome = await registry.emit(TOOL_PRE, CALL)
            assert (outcome.action, outcome.denied_by, outcome.reason) == ("deny", "the deny", "because")


@pytest.mark.fault("F-HD-02")
@pytest.mark.parametrize(
    "stop",
    [
        {"action": "continue", "stop": True},
        {"action": "continue", "stop_propagation": True},
        {"action": "allow"},
        {"continue": True, "suppressOutput": True},
        {"action": "continue", "suppress_output": True},
        (CONTINUE, "stop"),
        StopIteration(),
    ],
)
async def test_propagation_cannot_be_stopped(stop: object) -> None:
    """Nothing an early hook answers or raises keeps a later one from denying."""
    registry = HookRegistry()

    def early(event: str, data: Mapping[str, Any]) -> Any:
        if isinstance(stop, Exception):
            raise stop
        return stop

    registry.on(TOOL_PRE, early, priority=-100, name="early")
    registry.on(TOOL_PRE, saying(DENY), name="late")
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert (outcome.denied_by, outcome.ran) == ("late", ("early", "late"))


@pytest.mark.fault("F-HD-03")
@pytest.mark.parametrize("answer", [CONTINUE, HookResult.modify({"n": 1}), HookResult.ask("?")])
@pytest.mark.parametrize("priority", [-1, 1])
async def test_an_operators_deny_stands(answer: HookResult, priority: int) -> None:
    """A hook that continues, modifies or asks does not overrule an operator's rule, before or after it."""
    registry = HookRegistry()
    registry.gate(TOOL_PRE, no_rm, name="operator")
    registry.on(TOOL_PRE, saying(answer), priority=priority, name="hook")
    outcome = await registry.emit(TOOL_PRE, {**CALL, "tool_input": {"command": "rm -rf /"}})
    assert (outcome.action, outcome.denied_by, outcome.reason) == ("deny", "operator", "rm is denied")


@pytest.mark.fault("F-HD-04")
@pytest.mark.rule("DSP-2")
async def test_disguising_a_denied_command() -> None:
    """A command an operator's rule denies stays denied although a hook would make it look harmless."""
    registry = HookRegistry()
    ran: list[str] = []

    async def disguise(event: str, data: Mapping[str, Any]) -> HookResult:
        ran.append("disguise")
        return HookResult.modify({"tool_input": {"command": "ls"}})

    registry.gate(TOOL_PRE, no_rm, priority=-100, name="operator")
    registry.on(TOOL_PRE, disguise)
    outcome = await registry.emit(TOOL_PRE, {**CALL, "tool_input": {"command": "rm -rf /"}})
    assert (outcome.denied_by, outcome.modified, ran) == ("operator", False, [])


@pytest.mark.fault("F-HD-05")
@pytest.mark.rule("DSP-2")
@pytest.mark.parametrize("priority", [-100, 100])
@pytest.mark.parametrize("waits", [False, True])
async def test_changing_a_harmless_command_into_a_denied_one(priority: int, waits: bool) -> None:
    """A change into what an operator's rule denies is denied, whether the rule stands before or after the change."""
    registry = HookRegistry()

    async def worsen(event: str, data: Mapping[str, Any]) -> HookResult:
        if waits:
            await asyncio.sleep(0)
        return HookResult.modify({"tool_input": {"command": "rm -rf /"}})

    registry.gate(TOOL_PRE, no_rm, priority=priority, name="operator")
    registry.on(TOOL_PRE, worsen)
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert (outcome.action, outcome.denied_by, outcome.reason) == ("deny", "operator", "rm is denied")


@pytest.mark.fault("F-HD-06")
@pytest.mark.rule("DSP-1", "RES-4")
async def test_two_hooks_modify() -> None:
    """Priority and then registration order decide who changes last; both changes are on record, field by field."""
    for priorities, last in (((0, 0), "b"), ((1, 0), "a"), ((0, 1), "b")):
        registry = HookRegistry()
        for name, priority in zip("ab", priorities, strict=True):
            registry.on(TOOL_PRE, saying(HookResult.modify({"same": name, name: True})), priority=priority, name=name)
        outcome = await registry.emit(TOOL_PRE, CALL)
        order = "ab" if last == "b" else "ba"
        assert outcome.data == {**CALL, "same": last, "a": True, "b": True}
        assert [(answer.hook_name, answer.data) for answer in outcome.answers] == [
            (name, {"same": name, name: True}) for name in order
        ]


# -- hooks that do not end ---------------------------------------------------------------------------------------------


@pytest.mark.fault("F-HD-08")
@pytest.mark.rule("DSP-5", "DSP-4")
@pytest.mark.parametrize("event", [TOOL_PRE, TOOL_POST])
async def test_a_hook_that_never_returns(event: str) -> None:
    """At a gate a hook that never returns blocks in time as hook_timeout; at an observation point it is recorded."""
    registry = HookRegistry()
    after: list[str] = []

    async def hang(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.Event().wait()

    if event == TOOL_PRE:
        registry.gate(event, hang, timeout=LIMIT, name="hang")
    else:
        registry.on(event, hang, timeout=LIMIT, name="hang")
    registry.on(event, lambda event, data: after.append("ran"), name="next")
    outcome = await quick(registry.emit(event, CALL))
    if event == TOOL_PRE:
        assert (outcome.action, outcome.denied_by, outcome.cause, after) == ("deny", "hang", "hook_timeout", [])
        assert outcome.reason == "no answer within 0.2 s"
    else:
        assert (outcome.action, after) == ("continue", ["ran"])
    assert [(failure.hook_name, failure.status) for failure in outcome.failures] == [("hang", "timeout")]


@pytest.mark.fault("F-HD-09")
@pytest.mark.rule("DSP-5")
async def test_a_hook_that_swallows_its_cancellation() -> None:
    """A hook that swallows its cancellation blocks in time and counts once; no task stays, the next emit works."""
    registry = HookRegistry()
    tasks = asyncio.all_tasks()

    async def swallow(event: str, data: Mapping[str, Any]) -> None:
        for _ in range(6):  # an end, or a broken dispatcher would hang the tests
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1.5)

    registry.gate(TOOL_PRE, swallow, timeout=LIMIT, name="swallow", match="Bash")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert (outcome.action, outcome.cause) == ("deny", "hook_timeout")
    assert [hook.leaks for hook in registry.hooks()] == [1]
    assert asyncio.all_tasks() == tasks
    registry.gate(TOOL_PRE, saying(HookResult.inject("works")), match="Read")
    assert (await quick(registry.emit(TOOL_PRE, {**CALL, "tool_name": "Read"}))).context_injection == "works"


@pytest.mark.fault("F-HD-10")
@pytest.mark.rule("DSP-5")
async def test_a_hook_that_blocks_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    """The late answer of a blocking hook is dropped, and the log names the hook and the duration."""
    registry = HookRegistry()

    async def block(event: str, data: Mapping[str, Any]) -> HookResult:
        time.sleep(0.3)  # noqa: ASYNC251  the fault itself
        return CONTINUE

    registry.on(TOOL_PRE, saying(None), timeout=LIMIT, name="before")
    registry.gate(TOOL_PRE, block, timeout=LIMIT, name="block")
    registry.gate(TOOL_PRE, saying(None), timeout=LIMIT, name="after")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert (outcome.action, outcome.denied_by, outcome.cause) == ("deny", "block", "hook_timeout")
    (failure,) = outcome.failures
    assert 300 <= (failure.duration_ms or 0) < 1000 * SOON
    logged = [vars(record) for record in caplog.records if record.levelno >= logging.WARNING]
    assert {name for fields in logged for name in fields.get("hooks", [fields.get("hook")])} == {"block"}


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Event that hung threads wait for; set at the end, whatever happened."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.fault("F-HD-11")
@pytest.mark.rule("DSP-5", "REG-1")
async def test_threads_that_hang(released: threading.Event) -> None:
    """With more hung calls than a hook has threads, each emit is blocked at its limit and no other code is delayed."""
    registry = HookRegistry()

    def hang(event: str, data: Mapping[str, Any]) -> None:
        released.wait(60)

    registry.gate(TOOL_PRE, hang, thread=True, timeout=LIMIT, name="hang", match="Bash")
    registry.gate(TOOL_PRE, lambda event, data: None, thread=True, name="other thread", match="Read")
    outcomes = await quick(asyncio.gather(*(registry.emit(TOOL_PRE, CALL) for _ in range(6))))  # type: ignore[arg-type]
    assert [outcome.cause for outcome in outcomes] == ["hook_timeout"] * 6  # type: ignore[attr-defined]
    assert [hook.leaks for hook in registry.hooks()] == [0, 0]
    async with asyncio.timeout(SOON):
        assert await asyncio.to_thread(str, "recorded") == "recorded"
        await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80)
        other = await registry.emit(TOOL_PRE, {**CALL, "tool_name": "Read"})
    assert (other.action, other.ran) == ("continue", ("other thread",))


# -- what hooks raise and return ---------------------------------------------------------------------------------------


class Mute(Exception):
    """An error that cannot even be described."""

    def __str__(self) -> str:
        raise SystemExit(1)

    __repr__ = __str__


def endless() -> None:
    """Recurse until Python has enough."""
    endless()


RAISED: Final = {
    "Exception": Exception("x"),
    "SystemExit": SystemExit(3),
    "GeneratorExit": GeneratorExit(),
    "CancelledError": asyncio.CancelledError("own"),
    "MemoryError": MemoryError(),
    "StopIteration": StopIteration(CONTINUE),
    "ExceptionGroup": ExceptionGroup("several", [ValueError("a"), ExceptionGroup("b", [KeyError("c")])]),
    "BaseExceptionGroup": BaseExceptionGroup("several", [ValueError("a"), SystemExit(1), asyncio.CancelledError()]),
    "EmitTooDeep": EmitTooDeep("x", 1),
    "Mute": Mute(),
    "a group of mutes": ExceptionGroup("mute", [Mute()] * 3),
    "long": ValueError("x" * 10_000_000),
}


@pytest.mark.fault("F-HD-12")
@pytest.mark.rule("DSP-3", "DSP-6")
@pytest.mark.parametrize("kind", [*RAISED, "RecursionError"])
@pytest.mark.parametrize("how", ["at once", "after waiting", "plain", "in a thread"])
@pytest.mark.parametrize("intent", ["on", "gate"])
async def test_whatever_a_hook_raises(kind: str, how: str, intent: str) -> None:
    """An error denies at a gate and is skipped at other hooks; the loop lives, and all other answers are kept."""
    registry = HookRegistry()

    def plain(event: str, data: Mapping[str, Any]) -> None:
        if kind == "RecursionError":
            endless()
        raise RAISED[kind]

    async def hook(event: str, data: Mapping[str, Any]) -> None:
        if how == "after waiting":
            await asyncio.sleep(0)
        plain(event, data)

    registry.on(TOOL_PRE, saying(HookResult.inject("before")), name="before")
    bad = plain if how in ("plain", "in a thread") else hook
    getattr(registry, intent)(TOOL_PRE, bad, name="bad", thread=how == "in a thread")
    registry.on(TOOL_PRE, saying(HookResult.inject("after")), name="after")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    (failure,) = outcome.failures
    assert (failure.hook_name, failure.status) == ("bad", "error")
    assert 0 < len(str(failure.error)) <= 500
    if intent == "gate":
        assert (outcome.action, outcome.denied_by, outcome.cause) == ("deny", "bad", "hook_error")
        assert [item.content for item in outcome.injections] == ["before"]
    else:
        assert [item.content for item in outcome.injections] == ["before", "after"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


@pytest.mark.fault("F-HD-12")
async def test_the_members_of_a_group_are_named() -> None:
    """The record of a group of errors names its members."""
    registry = HookRegistry()

    async def fail(event: str, data: Mapping[str, Any]) -> None:
        raise RAISED["BaseExceptionGroup"]

    registry.on(TOOL_PRE, fail)
    (failure,) = (await registry.emit(TOOL_PRE, CALL)).failures
    assert failure.error == "BaseExceptionGroup of 3: ValueError: a, SystemExit: 1, CancelledError"


class Unspeakable(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("and this is another one")


@pytest.mark.rule("AUD-7")
@pytest.mark.fault("F-HD-12")
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Unspeakable(), "Unspeakable"),
        (ValueError(), "ValueError"),
        (ValueError("x" * 488), "ValueError: " + "x" * 488),
        (ValueError("x" * 489), "ValueError: " + "x" * 487 + "…"),
        (
            ExceptionGroup("many", [ValueError(n) for n in range(7)]),
            "ExceptionGroup of 7: " + ", ".join(f"ValueError: {n}" for n in range(5)),
        ),
    ],
    ids=["no text", "empty text", "long", "too long", "many"],
)
async def test_how_errors_are_described(error: Exception, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """An error without a usable text is described by its class, in 500 characters; a group names five members."""
    registry = HookRegistry()

    async def fail(event: str, data: Mapping[str, Any]) -> None:
        raise error

    registry.on(TOOL_PRE, fail)
    (failure,) = (await quick(registry.emit(TOOL_PRE, CALL))).failures
    assert (failure.error, failure.result) == (text, CONTINUE)
    (logged,) = [vars(record) for record in caplog.records if record.msg == "hook_failed"]
    assert [logged[name] for name in ("hook", "event_", "status", "error")] == ["fail", TOOL_PRE, "error", text]


@pytest.mark.fault("F-HD-12")
async def test_groups_that_hold_each_other_many_times() -> None:
    """Describing a group takes no longer for what its members hold, be it a million errors."""
    registry = HookRegistry()
    error: Exception = ValueError("a")
    for _ in range(12):
        error = ExceptionGroup("many", [error] * 5)

    async def fail(event: str, data: Mapping[str, Any]) -> None:
        raise error

    registry.on(TOOL_PRE, fail)
    (failure,) = (await quick(registry.emit(TOOL_PRE, CALL))).failures
    assert failure.error == "ExceptionGroup of 5: " + ", ".join(["ExceptionGroup of 5"] * 5)


class Interrupting(Mapping[str, Any]):
    """An answer during whose reading a user presses Ctrl-C."""

    def __getitem__(self, key: str) -> Any:
        raise KeyboardInterrupt

    def __iter__(self) -> Iterator[str]:
        raise KeyboardInterrupt

    def __len__(self) -> int:
        return 1


@pytest.mark.fault("F-HD-12")
@pytest.mark.rule("DSP-6")
@pytest.mark.parametrize("waits", [False, True])
def test_keyboard_interrupt_while_an_answer_is_read(waits: bool) -> None:
    """Ctrl-C ends the program while an answer is read, too, and is not taken for an invalid answer."""
    registry = HookRegistry()

    async def answer(event: str, data: Mapping[str, Any]) -> Any:
        if waits:
            await asyncio.sleep(0)
        return Interrupting()

    registry.on(TOOL_PRE, answer)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(registry.emit(TOOL_PRE, CALL))


@pytest.mark.fault("F-HD-12")
@pytest.mark.rule("DSP-6")
@pytest.mark.parametrize("waits", [False, True])
def test_keyboard_interrupt_ends_the_program(waits: bool) -> None:
    """KeyboardInterrupt alone reaches the code that runs the loop, and no hook runs after it."""
    registry = HookRegistry()
    ran: list[str] = []

    async def interrupt(event: str, data: Mapping[str, Any]) -> None:
        if waits:
            await asyncio.sleep(0)
        raise KeyboardInterrupt

    registry.gate(TOOL_PRE, interrupt)
    registry.gate(TOOL_PRE, lambda event, data: ran.append("next"), name="next")
    registry.observe(TOOL_PRE, lambda event, data, outcome: ran.append("told"), name="observer")

    async def call_tool() -> None:
        await registry.emit(TOOL_PRE, CALL)
        ran.append("tool")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(call_tool())
    assert ran == []


class Pretender:
    """Reads like an answer, and says it is one, but is none."""

    action = "continue"
    data = reason = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return HookResult


class Properties:
    """An object that reads like an answer."""

    action = "continue"
    data = None
    reason = None


class Unchecked(HookResult, frozen=True):
    """An answer that leaves out the checks."""

    def __post_init__(self) -> None:
        pass


INVALID: Final = {
    "True": True,
    "0": 0,
    "text": "continue",
    "empty mapping": {},
    "unknown action": {"action": "allow"},
    "action in capitals": {"action": "DENY"},
    "no action at all": {"reason": "x"} | {"approved": True},
    "extra key": {"action": "continue", "approved": True},
    "wrong type": {"action": "deny", "reason": 7},
    "modify without data": {"action": "modify"},
    "list": [CONTINUE],
    "tuple": ("continue",),
    "bytes": b"continue",
    "10 MiB": "x" * 10 * 2**20,
    "object with properties": Properties(),
    "the class itself": HookResult,
    "pretender": Pretender(),
    "unchecked": Unchecked(action="allow"),  # type: ignore[arg-type]
    "generator": (answer for answer in [CONTINUE]),
    "exception": ValueError("returned"),
}


@pytest.mark.fault("F-HD-13")
@pytest.mark.rule("DSP-3")
@pytest.mark.parametrize("kind", list(INVALID))
async def test_answers_that_are_none(kind: str) -> None:
    """Everything but the documented forms is invalid: it blocks at a gate, and says what it was in a few words."""
    registry = HookRegistry()
    ran: list[str] = []
    registry.on(TOOL_PRE, saying(INVALID[kind]), name="skipped")
    registry.on(TOOL_PRE, lambda event, data: ran.append("next"), name="next")
    registry.gate(TOOL_PRE, saying(INVALID[kind]), name="odd")
    registry.on(TOOL_PRE, lambda event, data: ran.append("never"), name="never")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert (outcome.action, outcome.denied_by, outcome.cause) == ("deny", "odd", "hook_invalid_output")
    assert statuses(outcome) == {"skipped": "invalid", "next": "ok", "odd": "invalid"}
    assert ran == ["next"]
    assert all(0 < len(str(failure.error)) <= 500 for failure in outcome.failures)


@pytest.mark.fault("F-HD-13")
@pytest.mark.parametrize(
    ("answer", "action"),
    [
        (None, "continue"),
        (CONTINUE, "continue"),
        ({"action": "continue"}, "continue"),
        ({"action": "deny", "reason": "no"}, "deny"),
        ({"action": "modify", "data": {"n": 1}}, "modify"),
        ({"context_injection": "x"}, "inject_context"),
        ({"action": "ask_user", "approval_prompt": "?"}, "ask_user"),
    ],
)
@pytest.mark.parametrize("plain", [False, True])
async def test_answers_that_count(answer: Any, action: str, plain: bool) -> None:
    """None, a HookResult and a mapping of its fields are answers, from async and plain functions alike."""
    registry = HookRegistry()
    hook = (lambda event, data: answer) if plain else saying(answer)
    registry.gate(TOOL_PRE, hook, name="hook")
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert (outcome.action, outcome.all_succeeded) == (action, True)


# -- the registry changes meanwhile ------------------------------------------------------------------------------------


@pytest.mark.fault("F-HD-14")
@pytest.mark.rule("REG-3")
@pytest.mark.parametrize("waits", [False, True])
async def test_registered_twice(waits: bool) -> None:
    """One function registered twice runs twice, under two names, and goes with both registrations."""
    registry = HookRegistry()
    ran: list[int] = []

    async def twice(event: str, data: Mapping[str, Any]) -> None:
        if waits:
            await asyncio.sleep(0)
        ran.append(1)

    registry.on(TOOL_PRE, twice)
    undo = registry.on(TOOL_PRE, twice, 0)
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert (len(ran), len(set(outcome.ran))) == (2, 2)
    undo()
    undo()
    await registry.emit(TOOL_PRE, CALL)
    assert len(ran) == 3
    assert registry.unregister("twice") == 1
    assert (await registry.emit(TOOL_PRE, CALL)).ran == ()


@pytest.mark.fault("F-HD-14")
@pytest.mark.rule("REG-3")
@pytest.mark.parametrize("whom", ["itself", "an earlier one", "a later one", "all"])
@pytest.mark.parametrize("waits", [False, True])
async def test_unregistering_during_an_emit(whom: str, waits: bool) -> None:
    """An emit keeps the hooks it began with, so no deny is skipped; the next one runs without the removed hook."""
    registry = HookRegistry()
    names = {"itself": ["remover"], "an earlier one": ["early"], "a later one": ["denies"]}
    names["all"] = ["early", "remover", "denies"]
    ran: list[str] = []

    async def remove(event: str, data: Mapping[str, Any]) -> None:
        for name in names[whom]:
            registry.unregister(name)
        if waits:
            await asyncio.sleep(0)
        ran.append("remover")

    registry.on(TOOL_PRE, lambda event, data: ran.append("early"), name="early")
    registry.on(TOOL_PRE, remove, name="remover")
    registry.gate(TOOL_PRE, saying(DENY), name="denies")
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert (outcome.denied_by, outcome.ran, ran) == ("denies", ("early", "remover", "denies"), ["early", "remover"])
    left = tuple(name for name in ("early", "remover", "denies") if name not in names[whom])
    assert (await registry.emit(TOOL_PRE, CALL)).ran == left


@pytest.mark.fault("F-HD-14")
@pytest.mark.rule("REG-3")
@pytest.mark.parametrize("waits", [False, True])
async def test_registering_during_an_emit(waits: bool) -> None:
    """A hook registered during an emit takes part from the next one on, observers included."""
    registry = HookRegistry()
    undone: list[Callable[[], None]] = []
    told: list[str] = []

    async def add(event: str, data: Mapping[str, Any]) -> None:
        if not undone:
            undone.append(registry.gate(TOOL_PRE, saying(DENY), priority=5, name="new"))
            registry.observe(TOOL_PRE, lambda event, data, outcome: told.append("new"), name="new observer")
        if waits:
            await asyncio.sleep(0)

    registry.on(TOOL_PRE, add, name="adder")
    registry.observe(TOOL_PRE, lambda event, data, outcome: told.append("old"), name="old observer")
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert (outcome.ran, outcome.denied, told) == (("adder",), False, ["old"])
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert (outcome.ran, outcome.denied_by, told) == (("adder", "new"), "new", ["old", "old", "new"])
    undone[0]()
    assert not (await registry.emit(TOOL_PRE, CALL)).denied


@pytest.mark.fault("F-HD-15")
@pytest.mark.rule("REG-3")
@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("by", ["an earlier hook", "an operator"])
@pytest.mark.parametrize("intent", ["on", "gate", "register"])
async def test_disabling_during_an_emit(intent: str, by: str, required: bool) -> None:
    """A hook disabled before its turn is not started any more, and is on record; a required gate's absence blocks."""
    registry = HookRegistry()
    if required:
        registry.require(TOOL_PRE)
    disabled = asyncio.Event()

    async def wait(event: str, data: Mapping[str, Any]) -> None:
        if by == "an earlier hook":
            registry.disable("victim")
        else:
            await disabled.wait()

    ran: list[str] = []
    registry.on(TOOL_PRE, wait, name="waits")
    getattr(registry, intent)(TOOL_PRE, lambda event, data: ran.append("victim"), name="victim")
    registry.on(TOOL_PRE, lambda event, data: ran.append("next"), name="next")
    emit = asyncio.create_task(registry.emit(TOOL_PRE, CALL))
    await asyncio.sleep(0)
    registry.disable("victim")
    disabled.set()
    outcome = await quick(emit)  # type: ignore[arg-type]
    assert (statuses(outcome)["victim"], ran) == ("disabled", ["next"])
    assert outcome.cause == ("no_policy" if required else None)
    registry.enable("victim")
    registry.unregister("waits")
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert "victim" in ran
    assert outcome.denied is (required and intent != "gate")


@pytest.mark.fault("F-HD-15")
@pytest.mark.rule("REG-3", "DSP-2")
async def test_disabling_between_two_looks() -> None:
    """A gate disabled after its first look has no second one, and one that is running is not interrupted."""
    registry = HookRegistry()
    looks: list[Any] = []

    async def change(event: str, data: Mapping[str, Any]) -> HookResult:
        registry.disable("gate")
        registry.disable("change")
        await asyncio.sleep(0)
        return HookResult.modify({"n": 1})

    registry.gate(TOOL_PRE, lambda event, data: looks.append(data.get("n")), name="gate")
    registry.on(TOOL_PRE, change, name="change")
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert (looks, outcome.data["n"], outcome.denied) == ([None], 1, False)


# -- hooks that emit ---------------------------------------------------------------------------------------------------


async def through_task(coro: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Go on in a task."""
    return await asyncio.create_task(coro)


async def through_thread(coro: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Go on in a thread, with a loop of its own."""
    return await asyncio.to_thread(asyncio.run, coro)


async def through_callback(coro: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Go on in a callback of the loop."""
    loop = asyncio.get_running_loop()
    started: asyncio.Future[asyncio.Task[Outcome]] = loop.create_future()
    loop.call_soon(lambda: started.set_result(loop.create_task(coro)))
    return await (await started)


async def through_nothing(coro: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Go on right here."""
    return await coro


class Recursion:
    """Hooks that emit what they listen to, and pass on a denial."""

    def __init__(self, through: Any, via: str = TOOL_PRE, depth: int = 4) -> None:
        self.registry = HookRegistry(max_depth=depth)
        self.through = through
        self.depths: list[int] = []
        self.errors: list[EmitTooDeep] = []
        self.registry.gate(TOOL_PRE, self.emitting(via), name="first")
        if via != TOOL_PRE:
            self.registry.gate(via, self.emitting(TOOL_PRE), name="second")

    def emitting(self, event: str) -> Callable[..., Any]:
        """A gate that emits this event, without end."""

        async def gate(_event: str, data: Mapping[str, Any]) -> HookResult | None:
            self.depths.append(data["depth"])
            try:
                inner = await self.through(self.registry.emit(event, {**CALL, "depth": data["depth"] + 1}))
            except EmitTooDeep as error:
                self.errors.append(error)
                raise
            return HookResult.deny(inner.reason) if inner.denied else None

        return gate

    async def run(self) -> Outcome:
        """Begin."""
        return await self.registry.emit(TOOL_PRE, {**CALL, "depth": 1})


@pytest.mark.fault("F-HD-16")
@pytest.mark.rule("REG-3")
@pytest.mark.parametrize("via", [TOOL_PRE, "agent:pre"])
@pytest.mark.parametrize("depth", [1, 4, 9])
async def test_endless_recursion(via: str, depth: int) -> None:
    """Hooks that emit in circles end at the depth limit with a typed error, and the gate there blocks."""
    recursion = Recursion(through_nothing, via, depth)
    outcome = await quick(recursion.run())
    assert recursion.depths == list(range(1, depth + 1))
    (error,) = recursion.errors
    assert isinstance(error, RecursionError)
    assert (error.limit, str(depth) in str(error)) == (depth, True)
    assert outcome.denied
    assert "emits deep" in str(outcome.reason)
    recursion.depths.clear()
    assert (await quick(recursion.run())).denied  # as before: no depth was left over
    assert len(recursion.depths) == depth


@pytest.mark.fault("F-HD-16")
async def test_recursion_that_nobody_stops() -> None:
    """Hooks that ignore the denial inside end as well; what is refused is the emit that would be too deep."""
    registry = HookRegistry()
    calls: list[str] = []

    async def again(event: str, data: Mapping[str, Any], *_: object) -> None:
        calls.append(event)
        await registry.emit(event, data)

    registry.on(TOOL_POST, again, name="on")
    registry.observe("*", again, name="observer")
    outcome = await quick(registry.emit(TOOL_POST, CALL))
    assert not outcome.denied
    assert len(calls) == 2 + 4 + 8 + 16


@pytest.mark.fault("F-HD-17")
@pytest.mark.rule("REG-3")
@pytest.mark.parametrize("through", [through_task, through_thread, through_callback])
async def test_recursion_by_detours(through: Any) -> None:
    """The depth is kept through tasks, threads and callbacks."""
    recursion = Recursion(through)
    outcome = await quick(recursion.run())
    assert recursion.depths == [1, 2, 3, 4]
    assert len(recursion.errors) == 1
    assert outcome.denied


@pytest.mark.fault("F-HD-17")
async def test_recursion_in_tasks_nobody_waits_for() -> None:
    """Tasks that outlive the hook that started them carry its depth on, so the circle ends."""
    registry = HookRegistry()
    tasks: set[asyncio.Task[Outcome]] = set()
    calls: list[int] = []

    async def spawn(event: str, data: Mapping[str, Any]) -> None:
        calls.append(1)
        tasks.add(asyncio.create_task(registry.emit(TOOL_POST, CALL)))

    registry.on(TOOL_POST, spawn)
    await registry.emit(TOOL_POST, CALL)
    for _ in range(20):
        await asyncio.gather(*tasks, return_exceptions=True)
    assert len(calls) == 4
    assert [type(task.exception()) for task in tasks if task.exception()] == [EmitTooDeep]


@pytest.mark.fault("F-HD-17")
async def test_recursion_through_a_thread_hook() -> None:
    """A plain function in the hook's own threads emits at its depth, too."""
    registry = HookRegistry()
    calls: list[int] = []

    def again(event: str, data: Mapping[str, Any]) -> None:
        calls.append(1)
        asyncio.run(registry.emit(TOOL_PRE, CALL))

    registry.gate(TOOL_PRE, again, thread=True)
    await quick(registry.emit(TOOL_PRE, CALL))
    assert len(calls) == 4


@pytest.mark.rule("REG-3")
async def test_emits_side_by_side_do_not_count_as_deep() -> None:
    """Depth is how far emits lie inside each other, not how many a hook makes."""
    registry = HookRegistry(max_depth=2)
    outcomes: list[Outcome] = []

    async def many(event: str, data: Mapping[str, Any]) -> None:
        outcomes.extend([await registry.emit(TOOL_POST, CALL) for _ in range(5)])
        outcomes.extend(await asyncio.gather(*(registry.emit(TOOL_POST, CALL) for _ in range(5))))

    registry.on(TOOL_POST, saying(HookResult.inject("x")))
    registry.gate(TOOL_PRE, many)
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert outcome.all_succeeded
    assert [inner.context_injection for inner in outcomes] == ["x"] * 10


# -- the rest ----------------------------------------------------------------------------------------------------------


@pytest.mark.fault("F-HD-18")
@pytest.mark.rule("DSP-7")
@pytest.mark.parametrize("waits", [False, True])
async def test_context_variables_do_not_travel(waits: bool) -> None:
    """A context variable one hook sets is invisible to every other hook of the event, and to the caller."""
    registry = HookRegistry()
    seen: dict[str, str] = {}

    def painting(name: str) -> Callable[..., Any]:
        async def paint(event: str, data: Mapping[str, Any], *_: object) -> None:
            if waits:
                await asyncio.sleep(0)
            seen[name] = colour.get()
            colour.set(name)
            if waits:
                await asyncio.sleep(0)

        return paint

    registry.on(TOOL_PRE, painting("on"))
    registry.gate(TOOL_PRE, painting("gate"))
    registry.register(TOOL_PRE, painting("register"))
    registry.observe(TOOL_PRE, painting("observe"))
    registry.observe(TOOL_PRE, painting("beside"), concurrent=True)
    await registry.emit(TOOL_PRE, CALL)
    assert seen == dict.fromkeys(["on", "gate", "register", "observe", "beside"], "none")
    assert colour.get() == "none"


class Incomparable:
    """A value that will not be compared."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("no")

    __hash__ = None  # type: ignore[assignment]  # nor looked up


@pytest.mark.rule("DSP-7")
@pytest.mark.parametrize("fails", [True, False])
async def test_a_variable_that_cannot_be_compared(fails: bool) -> None:
    """A context variable set to what cannot be compared has changed, and no other hook sees it."""
    shade: ContextVar[Any] = ContextVar("shade", default="none")
    shade.set(Incomparable())  # else nothing is compared: it was not set before
    before, seen = shade.get(), list[Any]()
    registry = HookRegistry()

    async def paints(event: str, data: Mapping[str, Any]) -> None:
        shade.set(Incomparable())
        if fails:
            raise ValueError

    registry.on(TOOL_PRE, paints)
    registry.on(TOOL_PRE, lambda event, data: seen.append(shade.get() is before))
    await registry.emit(TOOL_PRE, CALL)
    assert seen == [True]


@pytest.mark.rule("DSP-7", "REG-10")
def test_a_changed_context_makes_nobody_wait() -> None:
    """Hooks after one that changed a context variable run in the same step, without a loop."""
    shade: ContextVar[str] = ContextVar("shade", default="none")
    registry, seen = HookRegistry(), list[str]()

    async def paints(event: str, data: Mapping[str, Any]) -> None:
        seen.append(shade.get())
        shade.set("red")

    registry.on(TOOL_POST, paints)
    registry.on(TOOL_POST, paints)
    with pytest.raises(StopIteration) as ended:
        registry.emit(TOOL_POST, CALL).send(None)
    assert ended.value.value.answers == ()
    assert seen == ["none", "none"]


def to_another_directory() -> None:
    """Change where relative paths begin."""
    os.chdir("/")


def in_another_language() -> None:
    """Change how numbers and dates are written."""
    locale.setlocale(locale.LC_ALL, "C.UTF-8")


CHANGES: Final[dict[str, Callable[[], Any]]] = {
    "the working directory": to_another_directory,
    "the environment: COLOUR": lambda: os.environ.update(COLOUR="red"),
    "the locale": in_another_language,
    "the decimal context": lambda: setattr(decimal.getcontext(), "prec", 3),
    "the recursion limit": lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
}


@pytest.mark.fault("F-HD-18")
@pytest.mark.parametrize("what", CHANGES)
async def test_changes_to_the_process_are_found(what: str) -> None:
    """A change that a hook makes to the whole process is named in test mode, and undone."""
    registry = HookRegistry()
    registry.on(TOOL_PRE, lambda event, data: CHANGES[what](), name="careless")
    arithmetic = decimal.getcontext()  # a thread's first use makes it
    before = repr(arithmetic)
    for _ in range(2):
        with pytest.raises(AssertionError, match=f"hooks changed {what}"), unchanged_process():
            await registry.emit(TOOL_PRE, CALL)
        assert repr(arithmetic) == before
    registry.unregister("careless")
    with unchanged_process():
        await registry.emit(TOOL_PRE, CALL)


@pytest.mark.fault("F-HD-19")
@pytest.mark.parametrize("others", [False, True])
async def test_a_required_gate_is_missing(others: bool) -> None:
    """Where a gate must look and none does, the event is blocked as no_policy, whatever other hooks say."""
    registry = HookRegistry()
    undo = registry.require(TOOL_PRE)
    told: list[str | None] = []
    if others:
        registry.on(TOOL_PRE, saying(CONTINUE), name="on")
        registry.gate(TOOL_PRE, saying(CONTINUE), match="Read", name="for another tool")
        registry.observe(TOOL_PRE, lambda event, data, outcome: told.append(outcome.cause), name="observer")
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert (outcome.action, outcome.cause) == ("deny", "no_policy")
    assert told == (["no_policy"] if others else [])
    registry.gate(TOOL_PRE, saying(CONTINUE), name="policy")
    assert not (await registry.emit(TOOL_PRE, CALL)).denied
    registry.disable("policy")
    assert (await registry.emit(TOOL_PRE, CALL)).cause == "no_policy"
    undo()
    assert not (await registry.emit(TOOL_PRE, CALL)).denied


@pytest.mark.fault("F-HD-21")
@pytest.mark.slow
async def test_a_thousand_hooks() -> None:
    """With 1,000 hooks the order is stable, ten times the hooks take about ten times as long, and memory is flat."""

    def chain(length: int) -> HookRegistry:
        registry = HookRegistry()
        for number in range(length):
            registry.on(TOOL_PRE, saying(None), priority=-(number % 10), name=f"{number}")
        registry.on(TOOL_PRE, saying(HookResult.inject("x")), priority=99, name="last")
        return registry

    async def best(registry: HookRegistry, emits: int) -> float:
        times = []
        for _ in range(5):
            started = time.process_time()
            for _ in range(emits):
                await registry.emit(TOOL_PRE, CALL)
            times.append((time.process_time() - started) / emits)
        return min(times)

    hundred, thousand = chain(100), chain(1000)
    expected = sorted(range(1000), key=lambda number: -(number % 10))
    orders = {(await thousand.emit(TOOL_PRE, CALL)).ran for _ in range(3)}
    assert orders == {(*map(str, expected), "last")}
    assert await best(thousand, 20) < 40 * await best(hundred, 200)

    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(50):
            await thousand.emit(TOOL_PRE, CALL)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(10_000 if os.environ.get("CI") else 500):
            await thousand.emit(TOOL_PRE, CALL)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 64 * 1024
