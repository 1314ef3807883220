"""Cancelling the caller, the hook, or something the hook waits for; the dispatcher never mixes them up."""

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import pytest

from amplifier_hooks import HookRegistry, HookResult, Outcome
from amplifier_hooks.foreign_code import GRACE
from tests.hooks import Hands, hang, statuses, swallow
from tests.stores import turns

TOOL_PRE: Final = "tool:pre"
TOOL_POST: Final = "tool:post"
CALL: Final = {"tool_name": "Bash"}
LONG: Final = 30.0  # a limit that is never reached
SOON: Final = 20.0  # seconds; what hangs here hangs for longer, and machines stall
INTENTS: Final = ("on", "gate", "register")


class Chain:
    """A registry whose first hook is the one in question, and notes of who ran."""

    def __init__(self, hook: Callable[..., Any], intent: str = "gate", limit: float = LONG) -> None:
        self.registry = HookRegistry()
        self.notes: list[str] = []
        self.waits = asyncio.Event()
        getattr(self.registry, intent)(TOOL_PRE, hook, timeout=limit, name="hook")
        for later in ("on", "gate"):
            getattr(self.registry, later)(TOOL_PRE, self.note(later), name=f"later {later}")
        self.registry.observe(TOOL_PRE, lambda event, data, outcome: self.notes.append("told"), name="observer")

    def note(self, what: str) -> Callable[..., Any]:
        """A hook that notes that it ran."""

        async def hook(event: str, data: Mapping[str, Any]) -> None:
            self.notes.append(what)

        return hook

    def emit(self) -> Coroutine[Any, Any, Outcome]:
        """Emit the event."""
        return self.registry.emit(TOOL_PRE, CALL)

    @property
    def leaks(self) -> list[int]:
        """Number of abandoned calls of each hook."""
        return [hook.leaks for hook in self.registry.hooks()]


def me() -> asyncio.Task[Any]:
    """The running task."""
    task = asyncio.current_task()
    assert task is not None
    return task


async def begun(coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task that has come to its first wait."""
    task = asyncio.create_task(coro)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def ends_cancelled(task: asyncio.Task[Any], requests: int = 1) -> None:
    """Wait for the task to end, cancelled, and check that only the test's cancellations count."""
    done, _ = await asyncio.wait({task}, timeout=SOON)
    assert done == {task}
    assert task.cancelled()
    assert task.cancelling() == requests


# -- the caller is cancelled -------------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-6")
@pytest.mark.parametrize("intent", INTENTS)
async def test_cancelling_the_caller_cancels_the_hook(intent: str) -> None:
    """The running hook is cancelled and may clean up, no other hook runs, and the caller gets CancelledError."""
    cleaned: list[str] = []

    async def clean(event: str, data: Mapping[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    chain = Chain(clean, intent)
    task = await begun(chain.emit())
    task.cancel()
    await ends_cancelled(task)
    assert (cleaned, chain.notes, sum(chain.leaks)) == (["up"], [], 0)


@pytest.mark.rule("DSP-6")
@pytest.mark.parametrize("end", ["continue", "deny", "error", "exit", "another wait", "own limit"])
@pytest.mark.parametrize("intent", INTENTS)
async def test_a_hook_cannot_keep_the_caller_from_being_cancelled(intent: str, end: str) -> None:
    """Whatever a hook makes of its cancellation, the caller is cancelled and nothing follows."""

    async def stubborn(event: str, data: Mapping[str, Any]) -> HookResult:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if end == "error":
                raise ValueError from None
            if end == "exit":
                raise SystemExit from None
            if end == "another wait":
                await asyncio.sleep(0)
            if end == "own limit":
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await asyncio.Event().wait()
        return HookResult.deny("no") if end == "deny" else HookResult.proceed()

    chain = Chain(stubborn, intent)
    task = await begun(chain.emit())
    task.cancel()
    await ends_cancelled(task)
    assert (chain.notes, sum(chain.leaks)) == ([], 0)


@pytest.mark.rule("DSP-6")
@pytest.mark.parametrize("intent", INTENTS)
async def test_a_chain_that_has_waited_ends_with_the_caller(intent: str) -> None:
    """No hook follows one that swallows its caller's cancellation, also if the chain has waited before."""
    waits = asyncio.Event()

    async def wait_once(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)

    async def stubborn(event: str, data: Mapping[str, Any]) -> None:
        waits.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    chain = Chain(stubborn, intent)
    chain.registry.gate(TOOL_PRE, wait_once, priority=-1, name="first")
    task = asyncio.create_task(chain.emit())
    await asyncio.wait_for(waits.wait(), SOON)
    task.cancel()
    await ends_cancelled(task)
    assert (chain.notes, sum(chain.leaks)) == ([], 0)


@pytest.mark.rule("DSP-6", "DSP-5")
async def test_a_hook_that_swallows_the_callers_cancellation() -> None:
    """A hook that waits on although its caller is cancelled is left behind after its grace."""
    chain = Chain(swallow)
    task = await begun(chain.emit())
    task.cancel()
    await ends_cancelled(task)
    assert (chain.notes, sum(chain.leaks)) == ([], 1)


@pytest.mark.rule("DSP-6", "DSP-5")
async def test_the_grace_after_the_callers_cancellation(monkeypatch: pytest.MonkeyPatch, clock: Hands) -> None:
    """A hook whose caller is cancelled has its whole grace to clean up, however short its own limit."""
    assert GRACE == 0.1
    monkeypatch.setattr("amplifier_hooks.dispatch.timeouts.GRACE", 0.5)
    cleaned: list[str] = []

    async def clean(event: str, data: Mapping[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.06)  # several looks of the watchdog
            cleaned.append("up")

    registry = HookRegistry()
    registry.on(TOOL_PRE, clean, timeout=0.5)
    registry.on(TOOL_PRE, lambda event, data: None, timeout=0.02, name="makes the watchdog look often")
    task = await begun(registry.emit(TOOL_PRE, CALL))
    task.cancel()
    await ends_cancelled(task)
    assert cleaned == ["up"]


@pytest.mark.rule("DSP-6", "DSP-5")
async def test_cancelling_again_and_again_does_not_renew_the_grace() -> None:
    """A caller that is cancelled every few milliseconds is free after one grace, not after the last of them."""
    registry = HookRegistry()
    registry.on(TOOL_PRE, swallow)
    task = await begun(registry.emit(TOOL_PRE, CALL))
    began = asyncio.get_running_loop().time()
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=0.02)
        assert asyncio.get_running_loop().time() - began < SOON
    assert task.cancelled()


@pytest.mark.rule("DSP-6")
async def test_a_second_cancellation_changes_nothing() -> None:
    """Cancelling again while the hook cleans up still gives one CancelledError, and nothing follows."""
    chain = Chain(swallow)
    task = await begun(chain.emit())
    for _ in range(3):
        task.cancel()
        await turns(3)
    await ends_cancelled(task, requests=3)
    assert chain.notes == []


@pytest.mark.rule("DSP-6")
@pytest.mark.parametrize("first", ["result", "cancellation"])
@pytest.mark.parametrize("intent", INTENTS)
async def test_cancelled_in_the_tick_of_the_result(intent: str, first: str) -> None:
    """A result that arrives in the same turn of the loop as the cancellation does not undo it, whichever was first."""
    answered: asyncio.Future[HookResult] = asyncio.get_running_loop().create_future()

    async def wait(event: str, data: Mapping[str, Any]) -> HookResult:
        return await asyncio.shield(answered)

    chain = Chain(wait, intent)
    task = await begun(chain.emit())
    if first == "result":
        answered.set_result(HookResult.proceed())
    task.cancel()
    if first == "cancellation":
        answered.set_result(HookResult.proceed())
    await ends_cancelled(task)
    assert chain.notes == []


@pytest.mark.rule("DSP-6")
@pytest.mark.parametrize("turns", range(6))
async def test_cancelled_at_any_turn_of_the_loop(turns: int) -> None:
    """A cancellation while hooks change over is not lost: the caller is cancelled, or was through before."""

    async def step(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)

    chain = Chain(step)
    chain.registry.gate(TOOL_PRE, step, name="last")
    after: list[str] = []

    async def caller() -> None:
        await chain.emit()
        after.append("emitted")
        await asyncio.Event().wait()

    task = asyncio.create_task(caller())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await ends_cancelled(task)
    assert ("told" in chain.notes) == bool(after)
    assert chain.notes == ["on", "gate", "told"][: len(chain.notes)]


@pytest.mark.rule("DSP-6", "DSP-5")
@pytest.mark.parametrize("hook", [hang, swallow])
async def test_cancelled_around_the_deadline(hook: Any) -> None:
    """A caller cancelled while a hook whose time is up has its grace is cancelled, and the hooks after it never run."""
    chain = Chain(hook, "on", limit=0.03)

    async def slow_to_end(event: str, data: Mapping[str, Any]) -> None:
        try:
            await hook(event, data)
        finally:
            await asyncio.sleep(0.06)

    slow = Chain(slow_to_end, "on", limit=0.03)
    task = await begun(slow.emit())
    await asyncio.sleep(0.06)
    task.cancel()
    await ends_cancelled(task)
    assert slow.notes == []
    for pause in (0.025, 0.03, 0.035):
        chain.notes.clear()
        chain.registry.enable("hook")
        task = await begun(chain.emit())
        await asyncio.sleep(pause)
        cancelled = task.cancel()
        done, _ = await asyncio.wait({task}, timeout=SOON)
        assert done
        if cancelled:
            assert (task.cancelled(), task.cancelling(), chain.notes) == (True, 1, [])


@pytest.mark.rule("DSP-6", "REG-5")
@pytest.mark.parametrize("beside", [False, True])
async def test_cancelled_while_observers_are_told(beside: bool) -> None:
    """The caller can be cancelled while observers run, in turn or side by side; they are cancelled with it."""
    registry = HookRegistry()
    notes: list[str] = []

    async def watch(event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            notes.append("cancelled")

    for _ in range(2):
        registry.observe(TOOL_PRE, watch, timeout=LONG, concurrent=beside)
    task = asyncio.create_task(registry.emit(TOOL_PRE, CALL))
    for _ in range(4):
        await asyncio.sleep(0)
    task.cancel()
    await ends_cancelled(task)
    assert notes == ["cancelled"] * (2 if beside else 1)


@pytest.mark.rule("DSP-6", "DSP-2")
async def test_cancelled_in_the_second_look() -> None:
    """A caller cancelled while a gate looks at changed data is cancelled, and no observer gets an outcome."""
    chain = Chain(lambda event, data: hang(event, data) if "n" in data else None)
    chain.registry.on(TOOL_PRE, lambda event, data: HookResult.modify({"n": 1}), name="modifier")
    task = await begun(chain.emit())
    task.cancel()
    await ends_cancelled(task)
    assert chain.notes == ["on", "gate"]


@pytest.mark.rule("DSP-6", "REG-3")
@pytest.mark.parametrize("inner", [hang, swallow])
@pytest.mark.parametrize("keeps_quiet", [False, True])
async def test_cancelled_through_nested_emits(inner: Any, keeps_quiet: bool) -> None:
    """Cancelling the caller reaches the hook of an inner emit, and the hook between cannot hide it."""
    registry = HookRegistry()
    notes: list[str] = []

    async def emitting(event: str, data: Mapping[str, Any]) -> None:
        try:
            await registry.emit(TOOL_POST, CALL)
        except asyncio.CancelledError:
            notes.append("between")
            if not keeps_quiet:
                raise

    registry.on(TOOL_POST, inner, timeout=LONG)
    registry.on(TOOL_POST, lambda event, data: notes.append("inner next"), name="inner next")
    registry.on(TOOL_PRE, emitting, timeout=LONG)
    registry.on(TOOL_PRE, lambda event, data: notes.append("outer next"), name="outer next")
    task = await begun(registry.emit(TOOL_PRE, CALL))
    task.cancel()
    await ends_cancelled(task)
    assert set(notes) <= {"between"}


@pytest.mark.rule("DSP-6")
@pytest.mark.parametrize("hook", [hang, swallow])
async def test_a_time_limit_around_the_emit(hook: Any) -> None:
    """`asyncio.timeout` around an emit gives TimeoutError, as around anything, and leaves the task as it was."""
    chain = Chain(hook)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.03):
            await chain.emit()
    assert me().cancelling() == 0
    await asyncio.sleep(0)
    assert chain.notes == []


@pytest.mark.rule("DSP-5", "DSP-6")
@pytest.mark.parametrize("hook", [hang, swallow])
@pytest.mark.parametrize("limit", [0.028, 0.029, 0.03, 0.031, 0.032])
async def test_a_time_limit_and_a_deadline_at_once(hook: Any, limit: float) -> None:
    """When the caller's limit and the hook's deadline meet, it is one or the other, and the task is as it was."""
    chain = Chain(hook, "on", limit)
    try:
        async with asyncio.timeout(0.03):
            outcome = await chain.emit()
    except TimeoutError:
        assert chain.notes in ([], ["on", "gate"], ["on", "gate", "told"])
    else:
        assert statuses(outcome)["hook"] == "timeout"
    assert me().cancelling() == 0
    await asyncio.sleep(0)


@pytest.mark.rule("DSP-6")
async def test_a_task_group_around_emits() -> None:
    """When one child of a group fails, the emits of the others are cancelled like any child."""
    chain = Chain(hang)

    async def fail() -> None:
        await turns(3)
        raise ValueError

    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012  a group cannot be left outside of it
        async with asyncio.TaskGroup() as group:
            children = [group.create_task(chain.emit()) for _ in range(3)]
            group.create_task(fail())
    assert [type(error) for error in caught.value.exceptions] == [ValueError]
    assert all(child.cancelled() for child in children)
    assert chain.notes == []


# -- cancelled before --------------------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-6")
@pytest.mark.parametrize("hook", ["waits", "does not wait"])
@pytest.mark.parametrize("intent", INTENTS)
async def test_pending_at_entry(intent: str, hook: str) -> None:
    """A cancellation requested before the emit and not met yet is met in it; the caller gets no outcome."""

    async def answer(event: str, data: Mapping[str, Any]) -> None:
        if hook == "waits":
            await asyncio.sleep(0)

    chain = Chain(answer, intent)
    after: list[str] = []

    async def caller() -> None:
        me().cancel()
        await chain.emit()
        after.append("outcome")

    await ends_cancelled(asyncio.create_task(caller()))
    assert after == []
    assert "told" not in chain.notes


@pytest.mark.rule("DSP-6", "DSP-5")
async def test_delivered_before_entry() -> None:
    """In a `finally` of a cancelled task hooks run as usual, wait, run out of time, and leave the count as it was."""
    registry = HookRegistry()
    outcomes: list[Outcome] = []

    async def wait(event: str, data: Mapping[str, Any]) -> HookResult:
        await asyncio.sleep(0)
        return HookResult.inject("waited")

    async def limited(event: str, data: Mapping[str, Any]) -> HookResult:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return HookResult.inject("timed itself")
        raise AssertionError

    registry.on(TOOL_PRE, hang, timeout=0.03, name="hang")
    registry.on(TOOL_PRE, wait, timeout=LONG, name="wait")
    registry.on(TOOL_PRE, swallow, timeout=0.03, name="swallow")
    registry.gate(TOOL_PRE, limited, timeout=LONG, name="limited")

    async def caller() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(2):
                outcomes.append(await registry.emit(TOOL_PRE, CALL))
                assert me().cancelling() == 1

    task = await begun(caller())
    task.cancel()
    await ends_cancelled(task)
    expected = {"hang": "timeout", "wait": "ok", "swallow": "timeout", "limited": "ok"}
    assert [statuses(outcome) for outcome in outcomes] == [expected] * 2
    assert [item.content for item in outcomes[0].injections] == ["waited", "timed itself"]


@pytest.mark.rule("DSP-6")
async def test_cancelled_again_in_a_finally() -> None:
    """In a `finally` of a cancelled task a second cancellation ends the emit like a first one."""
    chain = Chain(hang)

    async def caller() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await chain.emit()

    task = await begun(caller())
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await ends_cancelled(task, requests=2)
    assert chain.notes == []


# -- a hook cancels ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-6")
@pytest.mark.parametrize("first", ["at once", "after waiting"])
@pytest.mark.parametrize("then", ["returns", "waits", "denies", "raises"])
@pytest.mark.parametrize("intent", INTENTS)
async def test_a_hook_that_cancels_its_own_task(intent: str, first: str, then: str) -> None:
    """A hook that cancels the task it runs in has cancelled the caller: there is no outcome, and no observer runs."""

    async def cancel(event: str, data: Mapping[str, Any]) -> HookResult | None:
        if first == "after waiting":
            await asyncio.sleep(0)
        me().cancel()
        if then == "waits":
            await asyncio.sleep(0)
        if then == "raises":
            raise ValueError
        return HookResult.deny("no") if then == "denies" else None

    chain = Chain(cancel, intent)
    after: list[str] = []

    async def caller() -> None:
        await chain.emit()
        after.append("outcome")

    await ends_cancelled(asyncio.create_task(caller()))
    assert after == []
    assert "told" not in chain.notes


@pytest.mark.rule("DSP-6")
@pytest.mark.parametrize("intent", ["on", "register"])
async def test_a_hook_that_cancels_its_own_task_with_nobody_else_there(intent: str) -> None:
    """Without a gate or an observer beside it, such a hook has cancelled the caller as well."""
    registry = HookRegistry()
    getattr(registry, intent)(TOOL_PRE, lambda event, data: me().cancel() and None, name="cancel")
    ran: list[str] = []

    async def caller() -> None:
        await registry.emit(TOOL_PRE, CALL)
        ran.append("the tool")

    await ends_cancelled(asyncio.create_task(caller()))
    assert ran == []


@pytest.mark.rule("DSP-6")
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("kind", [asyncio.CancelledError, SystemExit, GeneratorExit, BaseException, StopAsyncIteration])
@pytest.mark.parametrize("intent", ["on", "gate"])
async def test_exceptions_that_are_not_errors(intent: str, kind: type[BaseException], waits: bool) -> None:
    """A hook that raises what usually ends a task, a generator or the program has failed like any other hook."""

    async def leave(event: str, data: Mapping[str, Any]) -> None:
        if waits:
            await asyncio.sleep(0)
        raise kind

    chain = Chain(leave, intent)
    outcome = await chain.emit()
    assert statuses(outcome)["hook"] == "error"
    assert (outcome.cause, chain.notes) == (
        ("hook_error", ["told"]) if intent == "gate" else (None, ["on", "gate", "told"])
    )
    assert me().cancelling() == 0
    await asyncio.sleep(0)


@pytest.mark.rule("DSP-6")
@pytest.mark.parametrize("what", ["future", "task", "own child"])
async def test_something_the_hook_waits_for_is_cancelled(what: str) -> None:
    """A hook fails if other code cancels its future or task; the caller is not cancelled, and the chain goes on."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    task = loop.create_task(asyncio.sleep(LONG))

    async def wait(event: str, data: Mapping[str, Any]) -> None:
        if what == "own child":
            child = asyncio.create_task(asyncio.sleep(LONG))
            loop.call_soon(child.cancel)
            await child
        await (future if what == "future" else task)

    chain = Chain(wait, "on")
    loop.call_later(0.01, future.cancel)
    loop.call_later(0.01, task.cancel)
    outcome = await chain.emit()
    assert (statuses(outcome)["hook"], chain.notes) == ("error", ["on", "gate", "told"])
    assert "CancelledError" in str(outcome.failures[0].error)
    assert me().cancelling() == 0
    await asyncio.wait({task}, timeout=SOON)


@pytest.mark.rule("DSP-6")
async def test_a_hook_may_cancel_its_own_children() -> None:
    """A hook that cancels a task of its own and deals with it has not failed."""

    async def tidy(event: str, data: Mapping[str, Any]) -> HookResult:
        child = asyncio.create_task(asyncio.sleep(LONG))
        await asyncio.sleep(0)
        child.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await child
        return HookResult.inject("tidy")

    outcome = await Chain(tidy).emit()
    assert (outcome.context_injection, outcome.all_succeeded) == ("tidy", True)


@pytest.mark.rule("DSP-6")
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("intent", INTENTS)
async def test_keyboard_interrupt_propagates(intent: str, waits: bool) -> None:
    """KeyboardInterrupt alone comes through: no hook follows, no observer runs, and the next emit works."""

    async def interrupt(event: str, data: Mapping[str, Any]) -> None:
        if waits:
            await asyncio.sleep(0)
        raise KeyboardInterrupt

    chain = Chain(interrupt, intent)
    with pytest.raises(KeyboardInterrupt):
        await chain.emit()
    assert chain.notes == []
    assert me().cancelling() == 0
    chain.registry.unregister("hook")
    assert (await chain.emit()).action == "continue"
    assert chain.notes == ["on", "gate", "told"]


# -- closed from outside -----------------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-6")
async def test_closing_the_emit() -> None:
    """Closing the coroutine of an emit ends its hook's as well, at once, and nothing follows."""
    notes: list[str] = []

    async def clean(event: str, data: Mapping[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            notes.append("cleaned up")

    chain = Chain(clean)
    coro = chain.emit()
    coro.send(None)
    coro.close()
    assert (notes, chain.notes) == (["cleaned up"], [])
    chain.registry.unregister("hook")
    assert (await chain.emit()).action == "continue"


@pytest.mark.rule("DSP-5", "DSP-6")
async def test_closing_the_emit_is_not_the_hooks_fault() -> None:
    """A hook that ends when the emit around it is closed is neither left behind nor ever quarantined for it."""
    chain = Chain(hang)
    for _ in range(4):
        coro = chain.emit()
        coro.send(None)
        coro.close()
    assert sum(chain.leaks) == 0
    assert not chain.registry.hooks()[0].quarantined


@pytest.mark.rule("DSP-6")
async def test_closing_the_emit_of_a_hook_that_will_not_end() -> None:
    """Closing works also when the hook goes on as if nothing had happened; it is left behind."""

    async def undying(event: str, data: Mapping[str, Any]) -> None:
        for _ in range(6):  # an end, or a broken dispatcher would hang the tests
            with contextlib.suppress(BaseException):
                await asyncio.sleep(1.5)

    chain = Chain(undying)
    coro = chain.emit()
    coro.send(None)
    coro.close()
    assert (sum(chain.leaks), chain.notes) == (1, [])
    gc.collect()  # a complaint of the interpreter would come here


@pytest.mark.rule("DSP-6")
def test_a_loop_that_ends_in_the_middle() -> None:
    """Leaving the loop while hooks wait cancels them and harms neither the next loop nor the registry."""
    registry = HookRegistry()
    cleaned: list[str] = []

    async def clean(event: str, data: Mapping[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("up")

    registry.on(TOOL_PRE, clean, timeout=LONG, name="clean")

    async def leave() -> list[asyncio.Task[Outcome]]:
        tasks = [asyncio.create_task(registry.emit(TOOL_PRE, CALL)) for _ in range(3)]
        await asyncio.sleep(0)
        return tasks

    for times in (3, 6):
        assert all(task.cancelled() for task in asyncio.run(leave()))
        assert cleaned == ["up"] * times
    registry.unregister("clean")
    assert asyncio.run(registry.emit(TOOL_PRE, CALL)).action == "continue"
