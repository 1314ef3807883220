"""Deadlines: the late hook, its end, and the hooks around it, which pay nothing for it."""

import asyncio
import contextlib
import gc
import logging
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from typing import Any, Final

import pytest

from amplifier_hooks import HookRegistry, HookResult, Outcome
from amplifier_hooks.dispatch.chain import TENANTS_ALLOWED
from amplifier_hooks.dispatch.timeouts import Watchdog
from amplifier_hooks.errors import EmitTooDeep
from tests.hooks import Hands, hang, saying, statuses, swallow
from tests.stores import until

TOOL_PRE: Final = "tool:pre"
TOOL_POST: Final = "tool:post"
CALL: Final = {"tool_name": "Bash"}
LIMIT: Final = 0.05
LONG: Final = 30.0  # a limit that is never reached
SOON: Final = 20.0  # seconds; what hangs here hangs for longer, and machines stall


async def quick(emit: Any) -> Outcome:
    """The outcome, which has to be there soon; and the task is as it was."""
    task = asyncio.current_task()
    assert task is not None
    before, started = task.cancelling(), time.monotonic()
    outcome = await emit
    assert time.monotonic() - started < SOON
    assert task.cancelling() == before
    await asyncio.sleep(0)  # a cancellation that is still under way would be met here
    assert isinstance(outcome, Outcome)
    return outcome


def blocking(seconds: float, answer: object = None) -> Callable[..., Any]:
    """A hook that holds the whole loop and then answers."""

    async def block(event: str, data: Mapping[str, Any]) -> Any:
        time.sleep(seconds)  # noqa: ASYNC251  the fault itself
        return answer

    return block


def leaks(registry: HookRegistry) -> dict[str, int]:
    """The number of abandoned calls of each hook."""
    return {hook.name: hook.leaks for hook in registry.hooks() if hook.leaks}


# -- the limits --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-4")
def test_defaults() -> None:
    """A hook has 5 seconds unless it says otherwise, and `None` is no limit."""
    registry = HookRegistry()
    registry.on(TOOL_PRE, hang, name="default")
    for name, limit in {"own": 0.2, "never": None}.items():
        registry.on(TOOL_PRE, hang, name=name, timeout=limit)
    assert {hook.name: hook.timeout for hook in registry.hooks()} == {"default": 5.0, "own": 0.2, "never": float("inf")}


@pytest.mark.rule("DSP-4", "DSP-5")
@pytest.mark.parametrize("limit", [None, LONG])
async def test_a_hook_within_its_limit_is_left_alone(limit: float | None) -> None:
    """A hook that waits for a while and answers is not disturbed, with a far limit or with none."""
    registry = HookRegistry()

    async def wait(event: str, data: Mapping[str, Any]) -> HookResult:
        for _ in range(20):
            await asyncio.sleep(0)
        return HookResult.deny("looked closely")

    registry.gate(TOOL_PRE, wait, timeout=limit)
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert (outcome.action, outcome.reason) == ("deny", "looked closely")


@pytest.mark.rule("DSP-5")
@pytest.mark.parametrize("intent", ["on", "gate", "register"])
async def test_a_hook_that_hangs_is_cancelled_once(intent: str) -> None:
    """A hook is cancelled once at its deadline, and the chain goes on; a gate that hangs denies."""
    registry = HookRegistry()
    cancelled: list[int] = []
    ran: list[str] = []

    async def clean(event: str, data: Mapping[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            await asyncio.sleep(0.01)  # cleaning up takes a moment, which is what the grace is for
            cancelled.append(2)
            raise

    getattr(registry, intent)(TOOL_PRE, clean, timeout=LIMIT, name="clean")
    registry.on(TOOL_PRE, lambda event, data: ran.append("next"), name="next")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert cancelled == [1, 2]
    assert leaks(registry) == {}
    assert ran == ([] if intent == "gate" else ["next"])
    assert (outcome.denied, outcome.cause) == ((True, "hook_timeout") if intent == "gate" else (False, None))
    (failure,) = outcome.failures
    assert (failure.hook_name, failure.status) == ("clean", "timeout")
    assert 1e3 * LIMIT <= (failure.duration_ms or 0) < 1e3 * SOON


@pytest.mark.rule("DSP-5")
@pytest.mark.parametrize("hook", [hang, swallow])
async def test_the_next_hook_finds_the_task_as_it_was(hook: Any) -> None:
    """A hook that follows one whose time was up sees no trace of that one's cancellation in its task."""
    registry = HookRegistry()
    requests: list[int] = []

    async def look(event: str, data: Mapping[str, Any]) -> None:
        task = asyncio.current_task()
        assert task is not None
        requests.append(task.cancelling())
        await asyncio.sleep(0)
        requests.append(task.cancelling())

    for name in ("first", "second"):
        registry.on(TOOL_PRE, hook, timeout=LIMIT, name=name)
        registry.on(TOOL_PRE, look)
    await quick(registry.emit(TOOL_PRE, CALL))
    assert requests == [0] * 4


@pytest.mark.rule("DSP-5")
@pytest.mark.parametrize("end", ["continue", "deny", "modify", "error", "exit", "cancelled", "closed"])
@pytest.mark.parametrize("intent", ["on", "gate"])
async def test_what_comes_after_the_deadline_is_thrown_away(end: str, intent: str) -> None:
    """However a hook ends once it was cancelled, it counts as timed out and its answer as not given."""
    registry = HookRegistry()
    ran: list[Any] = []

    async def late(event: str, data: Mapping[str, Any]) -> HookResult:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            errors = {"error": ValueError(), "exit": SystemExit(), "closed": GeneratorExit()}
            if end in errors:
                raise errors[end] from None
            if end == "cancelled":
                raise
        return HookResult(action=end, data={"n": 1}, reason="late")  # type: ignore[arg-type]

    getattr(registry, intent)(TOOL_PRE, late, timeout=LIMIT, name="late", on_error="continue")
    registry.on(TOOL_PRE, lambda event, data: ran.append(dict(data)), name="next")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert (outcome.action, statuses(outcome)) == ("continue", {"late": "timeout", "next": "ok"})
    assert [(answer.hook_name, answer.status) for answer in outcome.failures] == [("late", "timeout")]
    assert ran == [CALL]
    assert leaks(registry) == {}


@pytest.mark.rule("DSP-5")
async def test_every_hook_has_its_own_time(clock: Hands) -> None:
    """One hook's deadline neither shortens nor lengthens the next one's."""
    registry = HookRegistry()

    async def wait(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.sleep(0.12)

    registry.on(TOOL_PRE, hang, timeout=LIMIT, name="first")
    registry.gate(TOOL_PRE, wait, timeout=0.6, name="second")
    registry.on(TOOL_PRE, wait, timeout=0.6, name="third")
    registry.on(TOOL_PRE, hang, timeout=LIMIT, name="fourth")
    registry.on(TOOL_PRE, wait, timeout=0.6, name="fifth")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert statuses(outcome) == {"first": "timeout", "second": "ok", "third": "ok", "fourth": "timeout", "fifth": "ok"}


@pytest.mark.rule("DSP-5")
async def test_the_time_of_each_hook_begins_anew_after_gates_that_wait(hands: Hands) -> None:
    """A hook behind gates that wait has its whole time, and the answer of each hook is recorded."""
    registry = HookRegistry()

    async def wait(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)

    for name in ("first", "second"):
        registry.gate(TOOL_PRE, wait, timeout=1.0, name=name)
    for name in ("third", "fourth"):
        registry.on(TOOL_PRE, hands.taking(0.6), timeout=1.0, name=name)
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert [(one.hook_name, one.status) for one in outcome.answers] == [
        ("first", "ok"), ("second", "ok"), ("third", "ok"), ("fourth", "ok"),
    ]  # fmt: skip


@pytest.mark.rule("DSP-5")
async def test_a_deadline_that_was_kept_does_not_fire_later() -> None:
    """The timer of a hook that is through does not strike the hook, or the caller, that waits afterwards."""
    registry = HookRegistry()

    async def wait(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)

    async def wait_longer(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.sleep(0.3)

    registry.on(TOOL_PRE, wait, timeout=0.15, name="short")
    registry.on(TOOL_PRE, wait_longer, timeout=LONG, name="long")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert outcome.all_succeeded
    registry.unregister("long")
    await quick(registry.emit(TOOL_PRE, CALL))
    watchdog = Watchdog.of(asyncio.get_running_loop())
    await until(lambda: watchdog.timer is None)  # past the deadline of the hook that kept it


@pytest.mark.rule("DSP-2", "DSP-5")
async def test_the_second_look_has_a_deadline_too() -> None:
    """A gate that hangs when it sees the changed data is interrupted and denies."""
    registry = HookRegistry()

    async def hang_on_change(event: str, data: Mapping[str, Any]) -> None:
        if "n" in data:
            await asyncio.Event().wait()

    registry.gate(TOOL_PRE, hang_on_change, timeout=LIMIT, name="gate")
    registry.on(TOOL_PRE, saying(HookResult.modify({"n": 1})))
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert (outcome.denied_by, outcome.cause) == ("gate", "hook_timeout")


# -- left behind -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-5")
@pytest.mark.parametrize("intent", ["on", "gate", "register"])
async def test_left_behind_counted_and_quarantined(intent: str, caplog: pytest.LogCaptureFixture) -> None:
    """A hook that cannot be ended is abandoned and logged; after three times it is not called until it is enabled."""
    registry = HookRegistry()
    ran: list[int] = []

    def stubborn(event: str, data: Mapping[str, Any]) -> Any:
        ran.append(1)
        return swallow(event, data)

    getattr(registry, intent)(TOOL_PRE, stubborn, timeout=LIMIT, name="stubborn", on_error="continue")
    registry.on(TOOL_PRE, saying(HookResult.inject("still here")), name="next")
    for times in (1, 2, 3):
        outcome = await quick(registry.emit(TOOL_PRE, CALL))
        assert statuses(outcome) == {"stubborn": "timeout", "next": "ok"}
        assert leaks(registry) == {"stubborn": times}
    left = [vars(record) for record in caplog.records if record.msg == "hook_left_behind"]
    assert [(fields["hook"], fields["times"]) for fields in left] == [("stubborn", 1), ("stubborn", 2), ("stubborn", 3)]
    assert {fields["event_"] for fields in left} == {TOOL_PRE}

    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert statuses(outcome) == {"stubborn": "unavailable", "next": "ok"}
    assert len(ran) == 3
    assert registry.enable("stubborn") == 1
    assert leaks(registry) == {}
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert statuses(outcome) == {"stubborn": "timeout", "next": "ok"}
    assert len(ran) == 4


class Awaited:
    """An awaitable that is no coroutine, and waits on when it is cancelled."""

    def __await__(self) -> Generator[Any, Any, None]:
        for _ in range(6):
            with contextlib.suppress(asyncio.CancelledError):
                yield from asyncio.sleep(1.5).__await__()


@pytest.mark.rule("DSP-5")
async def test_what_is_no_coroutine_is_left_behind_too() -> None:
    """A hook may return anything that can be awaited, and its deadline holds as any other."""
    registry = HookRegistry()
    registry.gate(TOOL_PRE, lambda event, data: Awaited(), timeout=LIMIT, name="gate")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert outcome.cause == "hook_timeout"
    assert leaks(registry) == {"gate": 1}


@pytest.mark.rule("DSP-5")
async def test_a_deadline_in_a_task_that_outlives_its_hook() -> None:
    """An emit of a hook's own task keeps its deadlines after the emit around it has ended."""
    registry = HookRegistry()
    tasks: list[asyncio.Task[Outcome]] = []

    async def leave_running(event: str, data: Mapping[str, Any]) -> None:
        tasks.append(asyncio.create_task(registry.emit(TOOL_POST, CALL)))

    registry.on(TOOL_PRE, leave_running)
    registry.on(TOOL_POST, hang, timeout=LIMIT, name="hangs")
    await quick(registry.emit(TOOL_PRE, CALL))
    assert statuses(await quick(tasks[0])) == {"hangs": "timeout"}


@pytest.mark.rule("DSP-5")
async def test_the_watchdog_goes_to_sleep() -> None:
    """A watchdog whose timer comes when no chain waits neither fails nor looks again."""
    registry = HookRegistry()
    troubles: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: troubles.append(context))

    async def wait(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)

    registry.on(TOOL_PRE, wait)
    await quick(registry.emit(TOOL_PRE, CALL))
    watchdog = Watchdog.of(loop)
    await until(lambda: watchdog.timer is None)
    assert (watchdog.live, troubles) == (set(), [])


@pytest.mark.rule("DSP-5", "TEN-1")
@pytest.mark.parametrize("intent", ["on", "gate", "register"])
async def test_quarantine_is_for_the_tenant_that_a_hook_hung_for(intent: str) -> None:
    """A system hook that one tenant's payloads make hang is in quarantine for that tenant, and asked for the others."""
    registry = HookRegistry()

    def picky(event: str, data: Mapping[str, Any]) -> Any:
        return swallow(event, data) if data["tenant_id"] == "acme" else asyncio.sleep(0)

    getattr(registry, intent)(TOOL_PRE, picky, timeout=LIMIT, name="picky", on_error="continue")
    for status in ("timeout", "timeout", "timeout", "unavailable"):
        assert statuses(await quick(registry.emit(TOOL_PRE, {**CALL, "tenant_id": "acme"}))) == {"picky": status}
        assert set(statuses(await quick(registry.emit(TOOL_PRE, {**CALL, "tenant_id": "globex"}))).values()) <= {"ok"}
    assert "in quarantine" in str(registry.explain(TOOL_PRE, {**CALL, "tenant_id": "acme"}))
    assert "in quarantine" not in str(registry.explain(TOOL_PRE, {**CALL, "tenant_id": "globex"}))
    registry.enable("picky")
    outcome = await quick(registry.emit(TOOL_PRE, {**CALL, "tenant_id": "acme"}))
    assert statuses(outcome) == {"picky": "timeout"}


@pytest.mark.rule("DSP-5", "TEN-1")
async def test_a_hook_that_hangs_for_many_tenants_is_in_quarantine_for_all() -> None:
    """A hook that hung for sixteen tenants is in quarantine for all of them, and delays no further emit."""
    registry = HookRegistry()
    registry.on(TOOL_PRE, swallow, timeout=0.01, name="stubborn")
    for number in range(TENANTS_ALLOWED):
        outcome = await registry.emit(TOOL_PRE, {**CALL, "tenant_id": f"tenant{number}"})
        assert statuses(outcome) == {"stubborn": "timeout"}
    assert statuses(await registry.emit(TOOL_PRE, {**CALL, "tenant_id": "new"})) == {"stubborn": "unavailable"}


@pytest.mark.rule("DSP-5")
async def test_a_gate_in_quarantine_denies() -> None:
    """While a gate is in quarantine the event is denied as unavailable, without waiting for it."""
    registry = HookRegistry()
    registry.gate(TOOL_PRE, swallow, timeout=LIMIT, name="gate")
    outcomes = [await quick(registry.emit(TOOL_PRE, CALL)) for _ in range(4)]
    assert [outcome.cause for outcome in outcomes] == ["hook_timeout"] * 3 + ["hook_unavailable"]
    assert outcomes[-1].reason == "in quarantine: it had to be left behind 3 times"


@pytest.mark.rule("DSP-5")
async def test_hanging_politely_is_not_being_left_behind() -> None:
    """A hook that ends when it is cancelled is never quarantined, however often its time is up."""
    registry = HookRegistry()
    registry.on(TOOL_PRE, hang, timeout=0.01, name="hang")
    for _ in range(5):
        assert statuses(await quick(registry.emit(TOOL_PRE, CALL))) == {"hang": "timeout"}
    assert leaks(registry) == {}


@pytest.mark.rule("DSP-5")
@pytest.mark.parametrize("by", ["deadline", "caller"])
async def test_a_hook_that_refuses_to_be_closed(by: str) -> None:
    """A hook that continues even when closed delays no emit, and the interpreter does not complain about it."""
    registry = HookRegistry()
    ran: list[str] = []

    async def undying(event: str, data: Mapping[str, Any]) -> None:
        for _ in range(6):  # an end, or a broken dispatcher would hang the tests
            with contextlib.suppress(BaseException):
                await asyncio.sleep(1.5)

    registry.on(TOOL_PRE, undying, timeout=LIMIT if by == "deadline" else LONG, name="undying")
    registry.on(TOOL_PRE, lambda event, data: ran.append("next"), name="next")
    if by == "deadline":
        assert statuses(await quick(registry.emit(TOOL_PRE, CALL))) == {"undying": "timeout", "next": "ok"}
    else:
        emit = asyncio.create_task(registry.emit(TOOL_PRE, CALL))
        await asyncio.sleep(0)
        emit.cancel()
        assert await asyncio.wait({emit}, timeout=SOON) == ({emit}, set())
        assert emit.cancelled()
    assert ran == (["next"] if by == "deadline" else [])
    assert leaks(registry) == {"undying": 1}
    gc.collect()  # a complaint would come here


@pytest.mark.rule("DSP-5", "REG-5")
async def test_observers_have_deadlines() -> None:
    """Observers that hang or cannot be ended are given up and counted like any hook; the outcome is there soon."""
    registry = HookRegistry()
    told: list[str] = []

    async def swallowing(event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        await swallow(event, data)

    for beside in (False, True):
        registry.observe(TOOL_PRE, swallowing, timeout=LIMIT, concurrent=beside, name=f"swallow {beside}")
    registry.observe(TOOL_PRE, lambda event, data, outcome: told.append("last"), name="last")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert (outcome.action, told) == ("continue", ["last"])
    assert leaks(registry) == {"swallow False": 1, "swallow True": 1}


@pytest.mark.rule("DSP-5", "REG-8")
async def test_gathering_counts_what_it_leaves_behind() -> None:
    """A hook left behind while contributions are gathered is counted and quarantined as in an emit."""
    registry = HookRegistry()
    registry.on(TOOL_PRE, swallow, name="swallow")
    registry.on(TOOL_PRE, saying({"data": {"n": 1}}), name="gives")
    for times in (1, 2, 3):
        assert await registry.emit_and_collect(TOOL_PRE, CALL, timeout=LIMIT) == [{"n": 1}]
        assert leaks(registry) == {"swallow": times}
    assert statuses(await quick(registry.emit(TOOL_PRE, CALL))) == {"swallow": "unavailable", "gives": "ok"}


# -- hooks that block the loop -----------------------------------------------------------------------------------------


@pytest.mark.unspoilt
@pytest.mark.rule("DSP-5")
@pytest.mark.parametrize("intent", ["on", "gate", "register"])
@pytest.mark.parametrize("plain", [False, True])
async def test_a_late_answer_of_a_blocking_hook_alone(
    intent: str, plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A hook that held the loop past its limit has timed out whatever it answers then, and the log names it."""
    registry = HookRegistry()

    def block(event: str, data: Mapping[str, Any]) -> HookResult:
        time.sleep(0.1)
        return HookResult.ask("?")

    hook = block if plain else blocking(0.1, HookResult.ask("?"))
    getattr(registry, intent)(TOOL_PRE, hook, timeout=LIMIT, name="block")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert statuses(outcome) == {"block": "timeout"}
    assert outcome.asks == ()
    assert outcome.denied is (intent == "gate")
    assert "block" in str([vars(record) for record in caplog.records if record.levelno == logging.WARNING])


@pytest.mark.rule("DSP-5")
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_blocking_gate_among_others(place: int) -> None:
    """A gate that blocks is found out in any place, and the hooks around it are not blamed."""
    registry = HookRegistry()
    ran: list[str] = []
    for number in range(2):
        registry.on(
            TOOL_PRE, lambda event, data: ran.append("on"), name=f"on {number}", timeout=LIMIT, priority=number * 2
        )
    registry.gate(TOOL_PRE, blocking(0.1), timeout=LIMIT, name="block", on_error="continue", priority=place * 2 - 1)
    registry.gate(TOOL_PRE, saying(HookResult.deny("last")), timeout=LIMIT, name="last", priority=9)
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert statuses(outcome) == {"block": "timeout", "on 0": "ok", "on 1": "ok", "last": "ok"}
    assert (outcome.denied_by, ran) == ("last", ["on", "on"])


@pytest.mark.rule("DSP-5")
async def test_a_blocking_hook_among_others_is_found_out_the_next_time(caplog: pytest.LogCaptureFixture) -> None:
    """Of hooks that do not gate any may have been slow at first, and all are named; from then on it is known which."""
    registry = HookRegistry()
    for name, hook in {"a": saying(None), "b": blocking(0.1, HookResult.deny("late")), "c": saying(None)}.items():
        registry.on(TOOL_PRE, hook, timeout=LIMIT, name=name)
    registry.on(TOOL_PRE, saying(HookResult.inject("x")), timeout=LONG, name="patient")
    await quick(registry.emit(TOOL_PRE, CALL))
    (record,) = [record for record in caplog.records if record.msg == "hooks_blocked_the_loop"]
    assert vars(record)["hooks"] == ["a", "b", "c"]
    assert vars(record)["event_"] == TOOL_PRE
    assert 0.1 <= vars(record)["seconds"] < SOON
    for _ in range(2):
        outcome = await quick(registry.emit(TOOL_PRE, CALL))
        assert statuses(outcome) == {"a": "ok", "b": "timeout", "c": "ok", "patient": "ok"}
        assert outcome.action == "inject_context"


@pytest.mark.rule("DSP-5")
async def test_waiting_is_not_blocking(caplog: pytest.LogCaptureFixture, clock: Hands) -> None:
    """A hook that waits within its own limit brings no other hook under suspicion, however short that one's limit."""
    registry = HookRegistry()

    async def wait(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.sleep(0.1)

    registry.on(TOOL_PRE, saying(None), timeout=LIMIT, name="before")
    registry.on(TOOL_PRE, wait, timeout=LONG, name="waits")
    registry.on(TOOL_PRE, saying(None), timeout=LIMIT, name="after")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert outcome.all_succeeded
    assert [record.msg for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.unspoilt
@pytest.mark.rule("DSP-5", "DSP-2")
async def test_a_second_look_is_not_the_time_of_those_who_looked_once(
    caplog: pytest.LogCaptureFixture, clock: Hands
) -> None:
    """A gate that takes its time at its second look brings no hook of the first round under suspicion."""
    registry = HookRegistry()

    async def look(event: str, data: Mapping[str, Any]) -> None:
        if "n" in data:
            await asyncio.sleep(2 * LIMIT)

    registry.gate(TOOL_PRE, look, name="gate")
    registry.on(TOOL_PRE, saying(HookResult.modify({"n": 1})), timeout=LIMIT, name="modifies")
    assert (await quick(registry.emit(TOOL_PRE, CALL))).all_succeeded
    assert [record.msg for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.rule("DSP-5")
async def test_the_hook_after_a_blocking_one_is_innocent() -> None:
    """An answer in time counts although the hook before held the loop longer than this one's limit."""
    registry = HookRegistry()
    registry.on(TOOL_PRE, blocking(0.1), timeout=LONG, name="slow but allowed")
    registry.on(TOOL_PRE, saying(HookResult.deny("in time")), timeout=LIMIT, name="quick")
    for _ in range(3):
        outcome = await quick(registry.emit(TOOL_PRE, CALL))
        assert (outcome.denied_by, statuses(outcome)) == ("quick", {"slow but allowed": "ok", "quick": "ok"})


@pytest.mark.rule("DSP-5")
@pytest.mark.parametrize("waits_first", [False, True])
async def test_the_hook_after_a_blocking_one_has_its_whole_time(waits_first: bool, clock: Hands) -> None:
    """A hook that waits begins with its whole limit, however long the hooks before it held the loop."""
    registry = HookRegistry()

    async def wait(event: str, data: Mapping[str, Any]) -> HookResult:
        await asyncio.sleep(0.06)
        return HookResult.inject("in time")

    if waits_first:
        registry.on(TOOL_PRE, lambda event, data: asyncio.sleep(0), timeout=LONG, name="waits first")
    registry.on(TOOL_PRE, clock.taking(0.5), timeout=LONG, name="slow but allowed")
    registry.on(TOOL_PRE, wait, timeout=0.4, name="waits")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert (outcome.context_injection, outcome.all_succeeded) == ("in time", True)


@pytest.mark.rule("DSP-5")
async def test_blocking_after_waiting() -> None:
    """A hook that waits first and then holds the loop past its deadline is late as well."""
    registry = HookRegistry()

    async def wait_and_block(event: str, data: Mapping[str, Any]) -> HookResult:
        await asyncio.sleep(0)
        time.sleep(0.1)  # noqa: ASYNC251  the fault itself
        return HookResult.deny("late")

    registry.on(TOOL_PRE, wait_and_block, timeout=LIMIT, name="first")
    registry.on(TOOL_PRE, saying(HookResult.inject("x")), timeout=LIMIT, name="second")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert (outcome.action, statuses(outcome)) == ("inject_context", {"first": "timeout", "second": "ok"})


@pytest.mark.rule("DSP-5")
async def test_blocking_before_waiting() -> None:
    """A gate that held the loop past its deadline and then waits is not waited for."""
    registry = HookRegistry()

    async def block_and_wait(event: str, data: Mapping[str, Any]) -> None:
        time.sleep(0.1)  # noqa: ASYNC251  the fault itself
        await asyncio.Event().wait()

    registry.gate(TOOL_PRE, block_and_wait, timeout=LIMIT, name="gate")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert (outcome.cause, statuses(outcome)) == ("hook_timeout", {"gate": "timeout"})


# -- chains inside hooks -----------------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-5", "REG-3")
@pytest.mark.parametrize("inner", [hang, swallow])
@pytest.mark.parametrize("outer_waits_first", [False, True])
async def test_an_inner_deadline_is_not_the_outer_hooks_business(inner: Any, outer_waits_first: bool) -> None:
    """When a hook of an inner emit runs out of time, the emitting hook gets that outcome and goes on."""
    registry = HookRegistry()
    inside: list[Outcome] = []

    async def emitting(event: str, data: Mapping[str, Any]) -> HookResult:
        if outer_waits_first:
            await asyncio.sleep(0)
        inside.append(await registry.emit(TOOL_POST, CALL))
        await asyncio.sleep(0)
        return HookResult.inject("went on")

    registry.on(TOOL_POST, inner, timeout=LIMIT, name="inner")
    registry.on(TOOL_POST, saying(HookResult.inject("also inside")), name="inner next")
    registry.gate(TOOL_PRE, emitting, timeout=LONG, name="outer")
    registry.on(TOOL_PRE, saying(HookResult.inject("also outside")), name="outer next")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert statuses(inside[0]) == {"inner": "timeout", "inner next": "ok"}
    assert statuses(outcome) == {"outer": "ok", "outer next": "ok"}
    assert [item.content for item in outcome.injections] == ["went on", "also outside"]


@pytest.mark.rule("DSP-5", "REG-3")
@pytest.mark.parametrize("inner", [hang, swallow])
@pytest.mark.parametrize("outer_waits_first", [False, True])
async def test_an_outer_deadline_ends_the_inner_emit(inner: Any, outer_waits_first: bool) -> None:
    """When the emitting hook runs out of time, what it started ends with it and its own chain goes on."""
    registry = HookRegistry()
    ran: list[str] = []

    async def emitting(event: str, data: Mapping[str, Any]) -> None:
        if outer_waits_first:
            await asyncio.sleep(0)
        await registry.emit(TOOL_POST, CALL)
        ran.append("went on")

    registry.on(TOOL_POST, inner, timeout=LONG, name="inner")
    registry.on(TOOL_POST, lambda event, data: ran.append("inner next"), name="inner next")
    registry.on(TOOL_PRE, emitting, timeout=LIMIT, name="outer")
    registry.on(TOOL_PRE, lambda event, data: ran.append("outer next"), name="outer next")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert statuses(outcome) == {"outer": "timeout", "outer next": "ok"}
    assert ran == ["outer next"]


@pytest.mark.rule("DSP-5", "REG-3")
@pytest.mark.parametrize("difference", [-0.02, 0.0, 0.02])
async def test_inner_and_outer_deadline_close_together(difference: float) -> None:
    """Whichever deadline passes first, the outer chain goes on, and no cancellation counts as the caller's."""
    registry = HookRegistry()
    ran: list[str] = []

    async def emitting(event: str, data: Mapping[str, Any]) -> None:
        await registry.emit(TOOL_POST, CALL)

    registry.on(TOOL_POST, swallow, timeout=LIMIT + difference, name="inner")
    registry.on(TOOL_PRE, emitting, timeout=LIMIT, name="outer")
    registry.on(TOOL_PRE, lambda event, data: ran.append("outer next"), name="outer next")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert statuses(outcome) == {"outer": "timeout", "outer next": "ok"}
    assert ran == ["outer next"]


@pytest.mark.rule("DSP-5", "DSP-2")
async def test_the_deadline_of_an_inner_second_look() -> None:
    """A gate that hangs at its second look inside a hook's own emit is cancelled, and the outer hook is not."""
    registry = HookRegistry()
    inner: list[Outcome] = []

    async def look(event: str, data: Mapping[str, Any]) -> None:
        if "n" in data:
            await asyncio.Event().wait()

    async def outer(event: str, data: Mapping[str, Any]) -> HookResult:
        await asyncio.sleep(0)
        inner.append(await registry.emit(TOOL_PRE, CALL))
        await asyncio.sleep(0)
        return HookResult.inject("went on")

    registry.gate(TOOL_PRE, look, timeout=LIMIT)
    registry.on(TOOL_PRE, saying(HookResult.modify({"n": 1})))
    registry.on(TOOL_POST, outer)
    outcome = await quick(registry.emit(TOOL_POST, CALL))
    assert (inner[0].cause, outcome.context_injection) == ("hook_timeout", "went on")


@pytest.mark.rule("DSP-5")
async def test_three_chains_deep() -> None:
    """The deadline in the middle ends what is inside it and nothing around it."""
    registry = HookRegistry()
    seen: list[Outcome] = []

    def emitting(inner: str) -> Callable[..., Any]:
        async def hook(event: str, data: Mapping[str, Any]) -> None:
            seen.append(await registry.emit(inner, CALL))

        return hook

    registry.on("agent:pre", hang, timeout=LONG, name="innermost")
    registry.on(TOOL_POST, emitting("agent:pre"), timeout=LIMIT, name="middle")
    registry.on(TOOL_PRE, emitting(TOOL_POST), timeout=LONG, name="outermost")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert [statuses(inner) for inner in seen] == [{"middle": "timeout"}]
    assert statuses(outcome) == {"outermost": "ok"}


# -- a hook's own time limits and tasks --------------------------------------------------------------------------------


@pytest.mark.rule("DSP-6")
@pytest.mark.parametrize("inside", ["nothing", "an emit"])
async def test_a_hook_may_use_asyncio_timeout(inside: str) -> None:
    """A hook's own timeout cancels the awaited future, and counts as no other cancellation."""
    registry = HookRegistry()
    ran: list[str] = []

    async def limited(event: str, data: Mapping[str, Any]) -> HookResult:
        try:
            async with asyncio.timeout(0.02):
                await (registry.emit(TOOL_POST, CALL) if inside == "an emit" else hang(event, data))
        except TimeoutError:
            await asyncio.sleep(0)
            return HookResult.inject("too slow")
        raise AssertionError

    registry.on(TOOL_POST, hang, timeout=LONG)
    registry.on(TOOL_PRE, limited, timeout=LONG, name="limited")
    registry.on(TOOL_PRE, lambda event, data: ran.append("next"), name="next")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert (outcome.context_injection, statuses(outcome)) == ("too slow", {"limited": "ok", "next": "ok"})
    assert ran == ["next"]


@pytest.mark.rule("DSP-6")
async def test_a_hook_may_use_a_task_group() -> None:
    """A failing child cancels the hook's other children and the hook's wait, and no other task."""
    registry = HookRegistry()
    ran: list[str] = []

    async def fail() -> None:
        raise ValueError("child")

    async def grouped(event: str, data: Mapping[str, Any]) -> HookResult:
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                group.create_task(asyncio.Event().wait())
                await asyncio.Event().wait()
        return HookResult.inject("one failed")

    async def ungrouped(event: str, data: Mapping[str, Any]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await asyncio.Event().wait()

    registry.on(TOOL_PRE, grouped, name="grouped")
    registry.on(TOOL_PRE, ungrouped, name="ungrouped")
    registry.on(TOOL_PRE, lambda event, data: ran.append("next"), name="next")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert statuses(outcome) == {"grouped": "ok", "ungrouped": "error", "next": "ok"}
    assert "ValueError: child" in str(outcome.failures[0].error)
    assert (outcome.context_injection, ran) == ("one failed", ["next"])


@pytest.mark.rule("DSP-6")
async def test_a_task_group_whose_child_fails_while_it_is_left() -> None:
    """A group cancels its hook's wait for a child that fails, and where Python never takes that back, nothing runs."""
    registry = HookRegistry()
    ran: list[str] = []

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("child")

    async def grouped(event: str, data: Mapping[str, Any]) -> HookResult:
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        await asyncio.sleep(0)
        return HookResult.inject("one failed")

    registry.on(TOOL_PRE, grouped, name="grouped")
    registry.on(TOOL_PRE, lambda event, data: ran.append("next"), name="next")
    emitting = asyncio.create_task(registry.emit(TOOL_PRE, CALL))
    await asyncio.wait([emitting])
    if sys.version_info >= (3, 13):
        assert (statuses(emitting.result()), ran) == ({"grouped": "ok", "next": "ok"}, ["next"])
    else:
        assert (emitting.cancelled(), ran) == (True, [])


@pytest.mark.rule("DSP-5", "DSP-6")
@pytest.mark.parametrize("own", [0.02, LIMIT, 0.09])
async def test_a_hooks_own_limit_and_its_deadline(own: float) -> None:
    """A hook whose own limit and deadline lie close together is over at its deadline, whichever came first."""
    registry = HookRegistry()
    ran: list[str] = []

    async def limited(event: str, data: Mapping[str, Any]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(own):
                await asyncio.Event().wait()
        await asyncio.Event().wait()

    registry.on(TOOL_PRE, limited, timeout=LIMIT, name="limited")
    registry.on(TOOL_PRE, lambda event, data: ran.append("next"), name="next")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert (statuses(outcome), ran) == ({"limited": "timeout", "next": "ok"}, ["next"])


@pytest.mark.rule("DSP-5")
async def test_tasks_of_a_hook_end_with_its_group() -> None:
    """At the deadline a hook's task group is cancelled with the hook, so no task is left over."""
    registry = HookRegistry()
    before = asyncio.all_tasks()

    async def grouped(event: str, data: Mapping[str, Any]) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(hang(event, data))

    registry.gate(TOOL_PRE, grouped, timeout=LIMIT, name="grouped")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert outcome.cause == "hook_timeout"
    assert asyncio.all_tasks() == before


# -- a budget for the chain --------------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-9", "DSP-4")
@pytest.mark.parametrize("waits", [False, True])
async def test_hooks_the_budget_does_not_reach_have_timed_out(waits: bool, clock: Hands) -> None:
    """When the chain's time is used up, a hook that has not run yet counts as timed out, under its own `on_error`."""
    ran: list[str] = []

    async def slow(event: str, data: Mapping[str, Any]) -> None:
        if waits:
            await asyncio.sleep(0.35)
        else:
            clock.now += 0.35

    def chain() -> HookRegistry:
        registry = HookRegistry(chain_timeout=0.3)
        registry.on(TOOL_PRE, lambda event, data: asyncio.sleep(0.01), name="a")
        registry.on(TOOL_PRE, slow, name="b")
        registry.on(TOOL_PRE, lambda event, data: ran.append("c"), name="c")
        registry.register(TOOL_PRE, lambda event, data: ran.append("d"), name="d")
        return registry

    outcome = await quick(chain().emit(TOOL_PRE, CALL))
    assert (outcome.denied, outcome.all_succeeded) == (False, False)
    assert {name: statuses(outcome)[name] for name in "acd"} == {"a": "ok", "c": "timeout", "d": "timeout"}
    gated = chain()
    gated.gate(TOOL_PRE, lambda event, data: ran.append("e"), name="e")
    outcome = await quick(gated.emit(TOOL_PRE, CALL))
    assert (outcome.denied_by, outcome.cause) == ("e", "hook_timeout")
    assert outcome.reason == "the hooks before it used up the 0.3 s they share"
    assert ran == []


@pytest.mark.rule("DSP-4", "DSP-9")
@pytest.mark.parametrize("hook", [hang, blocking(2 * LIMIT)])
async def test_a_definitions_own_limit(hook: Any) -> None:
    """A hook that shares time has its own limit besides."""
    registry = HookRegistry()
    registry.on(TOOL_PRE, hook, name="slow", source="definition", timeout=LIMIT, budget=LONG)
    assert statuses(await quick(registry.emit(TOOL_PRE, CALL))) == {"slow": "timeout"}


@pytest.mark.rule("DSP-9", "DSP-4")
@pytest.mark.parametrize("waits", [False, True])
async def test_code_does_not_use_up_the_time_of_definitions(waits: bool, clock: Hands) -> None:
    """Only definitions use the time that definitions share, also if the chain as a whole has a limit."""

    async def slow(event: str, data: Mapping[str, Any]) -> None:
        if waits:
            await asyncio.sleep(0.03)
        else:
            clock.now += 0.03

    registry = HookRegistry(chain_timeout=LONG)
    registry.gate(TOOL_PRE, slow, name="code")
    registry.gate(TOOL_PRE, slow, name="first", source="definition", budget=0.02)
    registry.gate(TOOL_PRE, slow, name="second", source="definition", budget=0.02)
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert statuses(outcome) == {"code": "ok", "first": "timeout"}
    assert outcome.reason == "no answer within 0.02 s"


@pytest.mark.rule("DSP-9")
async def test_a_budget_is_for_one_emit(clock: Hands) -> None:
    """Every emit begins with the whole budget, and a chain that keeps to it notices nothing."""
    registry = HookRegistry(chain_timeout=0.8)

    async def wait(event: str, data: Mapping[str, Any]) -> HookResult:
        await asyncio.sleep(0.3)
        return HookResult.inject("x")

    registry.gate(TOOL_PRE, wait)
    for _ in range(3):
        assert (await quick(registry.emit(TOOL_PRE, CALL))).all_succeeded


@pytest.mark.rule("DSP-4")
@pytest.mark.parametrize("hook", [hang, swallow])
async def test_the_budget_ends_the_hook_that_is_running(hook: Any) -> None:
    """The hooks of one emit take no longer together than the budget allows, also when one of them does not end."""
    registry = HookRegistry(chain_timeout=0.1)
    registry.on(TOOL_PRE, hook, name="slow", timeout=LONG)
    registry.gate(TOOL_PRE, saying(None), name="gate")
    async with asyncio.timeout(60):
        outcome = await registry.emit(TOOL_PRE, CALL)
    assert statuses(outcome) == {"slow": "timeout", "gate": "timeout"}
    assert (outcome.denied_by, outcome.cause) == ("gate", "hook_timeout")


@pytest.mark.rule("DSP-5")
async def test_a_tiny_limit_does_not_keep_the_loop_busy(timers: list[float]) -> None:
    """While another hook of the chain waits, a limit of a microsecond wakes the loop no more than every millisecond."""
    registry = HookRegistry()

    async def wait(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.sleep(0.1)

    registry.on(TOOL_PRE, wait, timeout=None)
    registry.on(TOOL_PRE, saying(None), timeout=1e-6)
    await quick(registry.emit(TOOL_PRE, CALL))
    assert 1 < len(timers) < 150


# -- many at once ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-5")
async def test_two_hundred_deadlines_at_once() -> None:
    """Emits that wait side by side each end at their own hook's limit, with that hook named."""
    registry = HookRegistry()
    limits = {f"tool{number}": 0.3 - number * 0.001 for number in range(200)}
    for tool, limit in limits.items():
        registry.gate(TOOL_PRE, hang, match=tool, timeout=limit, name=f"gate of {tool}")

    async def one(tool: str) -> float:
        started = time.monotonic()
        outcome = await registry.emit(TOOL_PRE, {"tool_name": tool})
        assert (outcome.denied_by, outcome.cause) == (f"gate of {tool}", "hook_timeout")
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        return time.monotonic() - started

    took = dict(zip(limits, await asyncio.gather(*map(one, limits)), strict=True))
    for tool, limit in limits.items():
        assert limit <= took[tool] < limit + SOON


@pytest.mark.rule("DSP-5")
async def test_hooks_of_every_kind_at_once(clock: Hands) -> None:
    """Emits whose hooks answer, hang, block or cannot be ended run side by side, each with its own outcome."""
    registry = HookRegistry()

    async def answer(event: str, data: Mapping[str, Any]) -> HookResult:
        await asyncio.sleep(0.03)
        return HookResult.deny("answered")

    hooks = {"answer": answer, "hang": hang, "swallow": swallow, "quick": saying(None)}
    for name, hook in hooks.items():
        registry.gate(TOOL_PRE, hook, match=name, name=name, timeout=0.5 if name == "answer" else LIMIT)
    registry.gate(TOOL_PRE, clock.taking(0.1), match="block", name="block", timeout=LIMIT)
    tools = [*hooks, "block"] * 2
    outcomes = await asyncio.gather(*(registry.emit(TOOL_PRE, {"tool_name": tool}) for tool in tools))
    assert [(tool, outcome.cause) for tool, outcome in zip(tools, outcomes, strict=True)] == [
        ("answer", "denied_by_hook"),
        ("hang", "hook_timeout"),
        ("swallow", "hook_timeout"),
        ("quick", None),
        ("block", "hook_timeout"),
    ] * 2


# -- to the digit, with a clock that hooks move ------------------------------------------------------------------------


@pytest.mark.rule("DSP-8", "RES-8")
async def test_durations(hands: Hands) -> None:
    """A hook's time and that of its chain are in milliseconds, each from its beginning to its end."""
    registry = HookRegistry()
    registry.on(TOOL_PRE, hands.taking(0.5, HookResult.proceed(user_message="m")), name="first")
    registry.on(TOOL_PRE, hands.taking(0.25, HookResult.proceed(user_message="m")), name="second")
    registry.on(TOOL_PRE, hands.taking(1.25), name="silent")
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert [(one.hook_name, one.duration_ms) for one in outcome.answers] == [("first", 500), ("second", 250)]
    assert outcome.total_duration_ms == 2_000
    assert all(one.denies is False for one in outcome.answers)


@pytest.mark.rule("DSP-5")
@pytest.mark.parametrize(("seconds", "late"), [(0.99, False), (1.0, True), (1.01, True)])
async def test_the_last_moment(seconds: float, late: bool, hands: Hands) -> None:
    """A hook that uses exactly its timeout has timed out."""
    registry = HookRegistry()
    registry.gate(TOOL_PRE, hands.taking(seconds), timeout=1.0)
    assert (await registry.emit(TOOL_PRE, CALL)).denied is late


@pytest.mark.rule("DSP-5")
@pytest.mark.parametrize(("seconds", "late"), [(0.99, False), (1.0, True)])
@pytest.mark.parametrize(
    "before",
    [
        "silent gate", "speaking gate", "spoiling gate", "spoiling, setting gate", "silent hook", "speaking hook",
        "silent function", "silent upstream hook",
    ],
)  # fmt: skip
async def test_a_gate_has_its_own_time_only(before: str, seconds: float, late: bool, hands: Hands) -> None:
    """A gate is held to its own time, whatever ran before it and however long that took."""
    registry = HookRegistry()
    answer = HookResult.proceed(user_message="m") if "speaking" in before else None
    variable: ContextVar[int] = ContextVar("variable", default=0)

    async def first(event: str, data: Mapping[str, Any]) -> HookResult | None:
        hands.now += 0.9
        if "spoiling" in before:
            data["tool_input"]["path"] = "y"
        if "setting" in before:
            variable.set(1)
        return answer

    def function(event: str, data: Mapping[str, Any]) -> None:
        hands.now += 0.9

    trial = registry.scope("trial", built_in=True, report_only="spoiling" in before)
    if "upstream" in before:
        registry.register(TOOL_PRE, function, name="first")
    else:
        register = trial.gate if "gate" in before else trial.on
        register(TOOL_PRE, function if "function" in before else first, name="first", timeout=1.0)
    registry.gate(TOOL_PRE, hands.taking(seconds), name="second", timeout=1.0)
    outcome = await registry.emit(TOOL_PRE, {"tool_input": {"path": "x"}}, exact=("tool_input",))
    assert statuses(outcome).get("second") == ("timeout" if late else "ok")
    assert outcome.denied is late


@pytest.mark.rule("DSP-5", "DIS-2")
@pytest.mark.parametrize(("seconds", "late"), [(0.99, False), (1.0, True)])
async def test_a_gate_that_prints_has_its_own_time(seconds: float, late: bool, hands: Hands) -> None:
    """A gate whose output is kept is held to its own time, also among other gates."""
    registry, silent = HookRegistry(), hands.taking(seconds)

    async def print_and_take(event: str, data: Mapping[str, Any]) -> None:
        sys.stdout.write("text")
        await silent(event, data)

    registry.gate(TOOL_PRE, hands.taking(0.9), name="first", timeout=1.0)
    registry.gate(TOOL_PRE, print_and_take, name="second", timeout=1.0, capture=True)
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert statuses(outcome) == {"first": "ok", "second": "timeout" if late else "ok"}
    assert [one.output for one in outcome.answers] == ["text"]


@pytest.mark.rule("DSP-5")
@pytest.mark.fault("F-HD-10")
@pytest.mark.parametrize("followed", [True, False])
@pytest.mark.parametrize(("seconds", "named"), [(0.99, []), (1.0, ["a"]), (2.0, ["a", "b"])])
async def test_who_may_have_been_late(
    seconds: float, named: list[str], followed: bool, hands: Hands, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names exactly those unclocked hooks whose timeout is not longer than the chain's time."""
    registry = HookRegistry()
    registry.on(TOOL_PRE, hands.taking(seconds), name="a", timeout=1.0)
    registry.on(TOOL_PRE, hands.taking(0), name="b", timeout=2.0)
    registry.on(TOOL_PRE, hands.taking(0), name="c", timeout=50.0)
    if followed:
        registry.gate(TOOL_PRE, hands.taking(0), name="gate", timeout=0.5)
    await registry.emit(TOOL_PRE, CALL)
    told = [vars(record) for record in caplog.records if record.msg == "hooks_blocked_the_loop"]
    assert [record["hooks"] for record in told] == ([named] if named else [])
    assert {hook.name for hook in registry.hooks() if hook.timed} == {*named, *(["gate"] if followed else [])}


@pytest.mark.rule("DSP-9")
async def test_what_hooks_share_adds_up(hands: Hands) -> None:
    """Time that one hook used is gone for the hooks that share it; a hook without time left is not run."""
    registry, ran = HookRegistry(), []

    def taking(seconds: float) -> Callable[..., Any]:
        inner = hands.taking(seconds)

        async def hook(event: str, data: Mapping[str, Any]) -> Any:
            ran.append(seconds)
            return await inner(event, data)

        return hook

    for number, seconds in enumerate([0.125, 0.125, 0.125, 0.125, 0.0625]):
        registry.on(TOOL_PRE, taking(seconds), name=f"h{number}", source="definition")
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert ran == [0.125] * 4
    failed = {one.hook_name: one.error for one in outcome.failures}
    assert failed == {
        "h3": "no answer within 0.125 s",
        "h4": "the hooks before it used up the 0.5 s they share",
    }


@pytest.mark.rule("DSP-9", "DSP-11")
async def test_a_report_only_hook_uses_no_shared_time(hands: Hands) -> None:
    """The time of a report-only definition is not taken from the time that definitions share."""
    registry = HookRegistry()
    for name, reports in (("reports", True), ("decides", False)):
        registry.on(TOOL_PRE, hands.taking(0.4), name=name, source="definition", report_only=reports)
    assert (await registry.emit(TOOL_PRE, CALL)).all_succeeded


@pytest.mark.rule("DSP-9")
async def test_what_is_left_of_it(hands: Hands) -> None:
    """The third of three hooks has what the first two have left."""
    registry = HookRegistry()
    for number in range(3):
        registry.on(TOOL_PRE, hands.taking(0.2), name=f"h{number}", source="definition")
    (failed,) = (await registry.emit(TOOL_PRE, CALL)).failures
    assert (failed.hook_name, failed.error) == ("h2", "no answer within 0.1 s")


@pytest.mark.rule("DSP-9")
async def test_a_hook_that_fails_has_used_its_time(hands: Hands) -> None:
    """The time of a definition that raised is taken from the shared time."""
    registry = HookRegistry()

    async def fail(event: str, data: Mapping[str, Any]) -> None:
        hands.now += 0.0625
        raise ValueError("broken")

    for name in ("first", "second", "third"):
        registry.on(TOOL_PRE, fail, name=name, source="definition", budget=0.125)
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert statuses(outcome) == {"first": "error", "second": "error", "third": "timeout"}


@pytest.mark.rule("DSP-9", "DSP-2")
@pytest.mark.parametrize("limit", ["definitions", "chain"])
async def test_a_second_look_has_what_is_left_of_the_time(limit: str, hands: Hands) -> None:
    """Time used in the first round is not available for the second look."""
    registry = HookRegistry(chain_timeout=0.1 if limit == "chain" else None)
    options: dict[str, Any] = {"source": "definition", "budget": 0.1} if limit == "definitions" else {}
    registry.gate(TOOL_PRE, hands.taking(0.0625), name="gate", **options)
    registry.on(TOOL_PRE, saying(HookResult.modify({"n": 1})))
    outcome = await registry.emit(TOOL_PRE, CALL)
    assert (outcome.denied_by, outcome.cause) == ("gate", "hook_timeout")
    assert [answer.recheck for answer in outcome.failures] == [True]


@pytest.mark.rule("DSP-4")
async def test_how_a_limit_is_told(hands: Hands) -> None:
    """A timeout is reported in seconds, to the millisecond."""
    registry = HookRegistry()
    registry.gate(TOOL_PRE, hands.taking(1), timeout=0.123456)
    assert (await registry.emit(TOOL_PRE, CALL)).reason == "no answer within 0.123 s"


# -- a gate's second look, somewhere inside ----------------------------------------------------------------------------


@pytest.mark.rule("DSP-2", "DSP-5")
@pytest.mark.parametrize("stays", [hang, swallow])
async def test_second_look_inside_another_chain(stays: Callable[..., Any]) -> None:
    """A gate whose second look hangs is given up, and the chain around it, which waits for it, notices nothing."""
    registry, looks, reached = HookRegistry(), list[str](), list[str]()

    async def looks_twice(event: str, data: Mapping[str, Any]) -> None:
        looks.append(event)
        if len(looks) > 1:
            await stays(event, data)

    registry.gate(TOOL_POST, looks_twice, name="gate", timeout=LIMIT)
    registry.on(TOOL_POST, saying(HookResult.modify({"result": 2})), name="changes")

    async def outer(event: str, data: Mapping[str, Any]) -> HookResult:
        await asyncio.sleep(0)
        inner = await registry.emit(TOOL_POST, {"result": 1})
        return HookResult.proceed(user_message=str(inner.cause))

    registry.on(TOOL_PRE, outer, name="outer")
    registry.on(TOOL_PRE, lambda event, data: reached.append("after"), name="after")
    outcome = await quick(registry.emit(TOOL_PRE, CALL))
    assert [message.text for message in outcome.messages] == ["hook_timeout"]
    assert reached == ["after"]
    assert looks == [TOOL_POST] * 2


@pytest.mark.rule("DSP-2", "REG-3")
@pytest.mark.fault("F-HD-16")
async def test_second_look_is_as_deep_as_the_first() -> None:
    """An emit of a gate at its second look is as deep as one at its first."""
    registry, deep = HookRegistry(max_depth=2), list[str]()

    async def emits(event: str, data: Mapping[str, Any]) -> None:
        try:
            await registry.emit("third", {})
        except EmitTooDeep:
            deep.append(event)

    registry.gate("second", emits, own_event=True)
    registry.on("second", saying(HookResult.modify({"custom": 1})))
    registry.on("third", saying(None))

    async def first(event: str, data: Mapping[str, Any]) -> None:
        await registry.emit("second", {})

    registry.on("first", first)
    await quick(registry.emit("first", {}))
    assert deep == ["second"] * 2
