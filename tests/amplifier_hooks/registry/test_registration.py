import asyncio
import math
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from msgspec.structs import astuple

from amplifier_hooks import (
    AgentContext,
    HookAbortError,
    HookMatcher,
    HookRegistry,
    HookResult,
    Outcome,
    RequestContext,
    SessionCoordinator,
    ToolContext,
    WorkflowContext,
)
from amplifier_hooks.errors import InvalidLimit, InvalidRegistration, PrivilegeRequired, TooManyHooks
from amplifier_hooks.registry.handler_shapes import EventContext, LoopContext
from amplifier_hooks.text.matching import ANY, Matcher, compile_matcher

CALL = {"tool_name": "Write", "tool_input": {"n": 1}, "session_id": "s"}
CallNext = Callable[..., Awaitable[Any]]


def quiet(event: str, data: Mapping[str, Any]) -> None:
    """Give no answer."""


async def waits(event: str, data: Mapping[str, Any]) -> None:
    """Give no answer, asynchronously."""


class Callable2:
    """An object that is called."""

    async def __call__(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Deny."""
        return HookResult.deny("object")


async def watched_from_a_generator(event: str, data: Mapping[str, Any], outcome: Outcome) -> AsyncIterator[None]:
    """Do nothing: a generator runs only when a caller iterates over it."""
    yield


class CallableGenerator:
    """A generator as an object."""

    def __call__(self, event: str, data: Mapping[str, Any]) -> Iterator[None]:
        """Deny, at the first `next`."""
        yield HookResult.deny()  # type: ignore[misc]  # the mistake itself


# -- what cannot work ------------------------------------------------------------------------------------------------


@pytest.mark.rule("REG-1")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"priority": 1.5}, "priority 1.5 is not an integer"),
        ({"priority": True}, "priority True is not an integer"),
        ({"priority": "high"}, "priority 'high' is not an integer"),
        ({"timeout": 0}, "timeout 0 is not a positive number"),
        ({"timeout": -1}, "timeout -1"),
        ({"timeout": math.nan}, "timeout nan"),
        ({"timeout": True}, "timeout True"),
        ({"timeout": "5"}, "timeout '5'"),
        ({"on_error": "ignore"}, "on_error 'ignore' is neither"),
        ({"tenant": None}, "tenant None is not a str"),
        ({"match": "a, b"}, "separate names by"),
        ({"source": "file"}, "source 'file' is neither"),
        ({"budget": 0}, "budget 0"),
        ({"timeout": 10**400}, "timeout 1000"),
        ({"name": 5}, "name 5 is not a str"),
        ({"concurrent": True}, "only observers run side by side"),
    ],
)
def test_options_that_cannot_work(options: dict[str, Any], sentence: str) -> None:
    """Each invalid option is refused with a sentence that names the mistake, and leaves nothing behind."""
    registry = HookRegistry()
    with pytest.raises(InvalidRegistration, match=re.escape(sentence)):
        registry.on("tool:pre", quiet, **options)
    assert registry.count() == 0


@pytest.mark.rule("REG-1")
@pytest.mark.parametrize(
    ("intent", "handler", "sentence"),
    [
        ("on", "handler", "is not callable"),
        ("on", lambda event: None, "cannot be called with (event, data)"),
        ("observe", lambda event, data: None, "cannot be called with (event, data, outcome)"),
        ("around", lambda context, call_next: None, "it is an async function"),
        ("gate", lambda event, data: (yield), "runs nothing of it"),
        ("observe", watched_from_a_generator, "runs nothing of it"),
        ("observe", partial(watched_from_a_generator), "runs nothing of it"),
        ("register", CallableGenerator(), "runs nothing of it"),
    ],
)
def test_handlers_that_cannot_work(intent: str, handler: Any, sentence: str) -> None:
    """A handler that could not be called is refused when it is registered, not when it is needed."""
    with pytest.raises(InvalidRegistration, match=re.escape(sentence)):
        getattr(HookRegistry(), intent)("tool" if intent == "around" else "tool:pre", handler)


@pytest.mark.rule("REG-1")
@pytest.mark.parametrize("intent", ["on", "gate", "observe", "around"])
def test_a_decorator_without_its_event(intent: str) -> None:
    """`@registry.gate` without parentheses is refused: it would swallow the gate and guard nothing."""
    with pytest.raises(InvalidRegistration, match=f"@registry.{intent}\\('tool:pre'\\)"):
        getattr(HookRegistry(), intent)(quiet)


@pytest.mark.rule("REG-3", "REG-9")
@pytest.mark.parametrize("name", ["max_depth", "max_per_event"])
@pytest.mark.parametrize("limit", [0, -1, 1.5, None, "4", True])
def test_limits_that_cannot_work(name: str, limit: Any) -> None:
    """A limit of a registry is an integer from 1, and refused where it is set."""
    with pytest.raises(InvalidLimit, match=f"{name} is .*; pass an integer from 1"):
        HookRegistry(**{name: limit})


@pytest.mark.rule("TRU-3", "TEN-1")
@pytest.mark.parametrize("said", [{"plugin": ""}, {"plugin": None}, {"plugin": "p", "tenant": None}])
def test_scopes_that_cannot_work(said: dict[str, Any]) -> None:
    """A scope is for a plugin with a name."""
    with pytest.raises(InvalidRegistration, match="is no name"):
        HookRegistry().scope(**said)


@pytest.mark.rule("REG-1")
def test_combinations_that_cannot_work() -> None:
    """An observer cannot deny, and a thread is for plain functions."""
    registry = HookRegistry()
    with pytest.raises(InvalidRegistration, match="use gate"):
        registry.observe("tool:pre", lambda event, data, outcome: None, on_error="deny")
    with pytest.raises(InvalidRegistration, match="plain functions"):
        registry.on("tool:pre", waits, thread=True)


@pytest.mark.rule("REG-1", "RES-3")
async def test_every_kind_of_callable() -> None:
    """Functions, partial functions, methods and objects are called as they are, and named after what they are."""
    registry = HookRegistry()

    class Policy:
        async def check(self, event: str, data: Mapping[str, Any]) -> None:
            return None

    registry.on("tool:pre", partial(quiet))
    registry.on("tool:pre", Policy().check)
    registry.on("tool:pre", partial(partial(waits)))
    registry.on("tool:pre", Callable2())
    outcome = await registry.emit("tool:pre", CALL)
    assert outcome.ran == ("quiet", "check", "waits", "Callable2")
    assert outcome.denied_by == "Callable2"


@pytest.mark.rule("REG-1")
@pytest.mark.parametrize("intent", ["on", "gate", "observe", "register"])
async def test_threads(intent: str) -> None:
    """With thread=True a plain function runs in a thread of its own pool, and its answer counts."""
    registry = HookRegistry()
    where: list[int] = []

    def work(event: str, data: Mapping[str, Any], outcome: Any = None) -> HookResult:
        where.append(threading.get_ident())
        return HookResult.deny("from a thread")

    getattr(registry, intent)("tool:pre", work, thread=True)
    outcome = await registry.emit("tool:pre", CALL)
    assert where != [threading.get_ident()]
    assert outcome.reason == (None if intent == "observe" else "from a thread")


@pytest.mark.rule("REG-4")
async def test_a_ready_matcher() -> None:
    """A matcher with rules of its own is taken as it is."""
    registry = HookRegistry()
    registry.on("tool:pre", quiet, match=Matcher("ends in e", lambda name: name.endswith("e")))
    registry.on("tool:pre", waits, match=compile_matcher("Read"))
    registry.on("tool:pre", Callable2(), match=re.compile("B.*"))
    assert (await registry.emit("tool:pre", CALL)).ran == ("quiet",)


# -- hooks that come from definitions --------------------------------------------------------------------------------


@pytest.mark.rule("REG-9")
def test_the_limit_of_definitions() -> None:
    """The 21st definition at an event is refused with the event and the limit; hooks in code are not counted."""
    registry = HookRegistry()
    for _ in range(20):
        registry.on("tool:pre", quiet, source="definition")
    with pytest.raises(TooManyHooks, match="tool:pre already has 20 hooks from definitions"):
        registry.on("PreToolUse", quiet, source="definition")
    registry.on("tool:pre", quiet)
    registry.on("tool:post", quiet, source="definition")
    assert registry.count() == 22


@pytest.mark.rule("REG-9")
def test_patterns_count_at_every_event() -> None:
    """A definition for several events takes a place at each of them."""
    registry = HookRegistry(max_per_event=2)
    registry.on("tool:*", quiet, source="definition")
    registry.on("tool:pre", quiet, source="definition")
    for event in ("tool:pre", "*", "tool:*"):
        with pytest.raises(TooManyHooks, match="tool:pre already has 2"):
            registry.on(event, quiet, source="definition")
    undo = registry.on("tool:post", quiet, source="definition")
    with pytest.raises(TooManyHooks, match="tool:post already"):
        registry.on("tool:post", quiet, source="definition")
    undo()
    registry.on("tool:post", quiet, source="definition")


@pytest.mark.rule("REG-1")
@pytest.mark.parametrize("priority", [-1, 1001])
def test_priorities_of_definitions(priority: int) -> None:
    """Priorities of definitions lie within 0 and 1000; those of code do not have to."""
    registry = HookRegistry()
    with pytest.raises(InvalidRegistration, match="not within 0 to 1000"):
        registry.on("tool:pre", quiet, priority=priority, source="definition")
    for allowed in (0, 1000):
        registry.on("tool:pre", quiet, priority=allowed, source="definition")
    registry.on("tool:pre", quiet, priority=priority)


@pytest.mark.rule("DSP-9")
def test_the_budget_of_definitions() -> None:
    """Half a second unless said otherwise, none for code, and for all of them what the chain as a whole may take."""

    def budgets(**registry: Any) -> list[tuple[float, ...] | None]:
        made = HookRegistry(**registry)
        made.on("tool:pre", quiet)
        made.on("tool:pre", quiet, source="definition")
        made.on("tool:pre", quiet, source="definition", budget=None)
        made.on("tool:pre", quiet, source="definition", budget=2)
        return [None if hook.budget is None else astuple(hook.budget) for hook in made.hooks()]

    assert budgets() == [None, (0.5, math.inf), None, (2, math.inf)]
    assert budgets(chain_timeout=1) == [(math.inf, 1), (0.5, 1), (math.inf, 1), (2, 1)]


# -- hook objects ----------------------------------------------------------------------------------------------------


class Recorder:
    """A hook object that notes what it saw and calls on."""

    def __init__(self, event_type: str, priority: int = 0, name: str = "recorder") -> None:
        self.name = name
        self.event_type = event_type
        self.priority = priority
        self.enabled = True
        self.seen: list[tuple[str, Any]] = []

    async def execute(self, context: Any, call_next: CallNext) -> Any:
        """Note, call on, note."""
        self.seen.append(("before", context.result))
        await call_next(context)
        self.seen.append(("after", context.result))
        return context


async def written() -> str:
    """An operation."""
    return "written"


@pytest.mark.rule("REG-11")
@pytest.mark.parametrize("event", ["tool.execute.pre", "tool:pre", "PreToolUse", "on_tool_call"])
async def test_an_object_waits_for_the_operation(event: str) -> None:
    """A hook object at an operation's first event, in any spelling, takes part there and goes on afterwards."""
    registry = HookRegistry()
    hook = Recorder(event)
    undo = registry.add(hook)
    assert registry.list_handlers("tool:pre") == {"tool:pre": ["recorder"]}
    session = SessionCoordinator(registry)
    assert (await session.call_tool("Write", {}, lambda _: "written")).value == "written"
    assert hook.seen == [("before", None), ("after", "written")]
    undo()
    await session.call_tool("Write", {}, lambda _: "written")
    assert len(hook.seen) == 2


@pytest.mark.rule("REG-11")
@pytest.mark.parametrize("event", ["tool.execute.post", "tool:post", "PostToolUse", "onToolResult"])
async def test_an_object_runs_after(event: str) -> None:
    """A hook object at an operation's last event runs after the operation, with the result in the context."""
    registry = HookRegistry()
    hook = Recorder(event)
    registry.add(hook)
    assert await registry.wrap("tool", ToolContext(tool_name="Write"), written) == "written"
    assert hook.seen == [("before", "written"), ("after", "written")]


@pytest.mark.rule("REG-11", "REG-2")
async def test_objects_run_in_their_order() -> None:
    """Lower priority first, before the operation and after it alike."""
    registry = HookRegistry()
    order: list[str] = []

    class Ordered(Recorder):
        async def execute(self, context: Any, call_next: CallNext) -> Any:
            order.append(self.name)
            return await call_next()

    for priority in (2, 1):
        registry.add(Ordered("tool.execute.post", priority, f"post {priority}"))
        registry.add(Ordered("tool.execute.pre", priority, f"pre {priority}"))
    assert (await SessionCoordinator(registry).call_tool("Write", {}, lambda _: "written")).value == "written"
    assert order == ["pre 1", "pre 2", "post 1", "post 2"]


@pytest.mark.rule("REG-11")
async def test_objects_abort_skip_and_are_switched() -> None:
    """An object stops the operation by exception or flag; while its own switch is off it does nothing."""
    registry = HookRegistry()

    class Stop(Recorder):
        async def execute(self, context: Any, call_next: CallNext) -> Any:
            raise HookAbortError("closed")

    session = SessionCoordinator(registry)
    stop = Stop("tool.execute.pre", name="stop")
    registry.add(stop)
    stopped = await session.call_tool("Write", {}, lambda _: "written")
    assert (stopped.denied, stopped.by, stopped.reason) == (True, "stop", "Operation denied by stop: closed")
    stop.enabled = False
    assert (await session.call_tool("Write", {}, lambda _: "written")).ok
    stop.enabled = True
    registry.disable("stop")
    assert (await session.call_tool("Write", {}, lambda _: "written")).ok
    after = Recorder("tool.execute.post", name="after")
    after.enabled = False
    registry.add(after)
    await registry.wrap("tool", ToolContext(tool_name="Write"), written)
    assert after.seen == []


@pytest.mark.rule("REG-11")
async def test_what_an_object_changes_afterwards() -> None:
    """A hook object changes a result only at an event where the result may be replaced."""
    registry = HookRegistry()

    class Meddler(Recorder):
        async def execute(self, context: Any, call_next: CallNext) -> Any:
            assert await call_next() == "written"
            if self.name == "aborts":
                raise HookAbortError("too late")
            context.result = "meddled"
            context.abort = self.name == "flags"
            return None

    registry.add(Meddler("tool.execute.post"))
    registry.add(Meddler("agent.invoke.post"))
    registry.add(Meddler("workflow.step.post", name="aborts"))
    registry.add(Meddler("workflow.step.post", name="flags"))
    assert await registry.wrap("tool", ToolContext(tool_name="Write"), written) == "meddled"
    assert await registry.wrap("agent", AgentContext(agent_name="a"), written) == "written"
    step = WorkflowContext(workflow_name="w", step_id="1")
    assert await registry.wrap("workflow", step, written) == "written"
    assert ["too late" in (answer.error or "") for answer in step.results] == [True, False]

    class Teapot(Recorder):
        async def execute(self, context: RequestContext, call_next: CallNext) -> None:
            context.status_code = 418

    registry.add(Teapot("request.post"))
    request = RequestContext(method="GET", path="/")
    await registry.wrap("request", request, written)
    assert request.status_code == 418


@pytest.mark.rule("REG-11", "REG-13")
async def test_an_object_afterwards_hears_nothing_of_a_failed_operation() -> None:
    """A hook object at the last event does not run after a failed operation; the exception passes it by."""
    registry = HookRegistry()
    hook = Recorder("tool.execute.post")
    registry.add(hook)

    async def broken() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await registry.wrap("tool", ToolContext(tool_name="Write"), broken)
    assert hook.seen == []


@pytest.mark.rule("REG-11")
async def test_an_object_at_any_other_event() -> None:
    """A hook object at another event takes part, with a copy of the payload that it may change, and may abort."""
    registry = HookRegistry()

    class Intake(Recorder):
        async def execute(self, context: EventContext, call_next: CallNext) -> None:
            assert await call_next(context) is None
            context.data["prompt"] = context.data["prompt"].strip()
            if not context.data["prompt"]:
                raise HookAbortError("nothing asked")
            context.abort = context.data["prompt"] == "stop"

    hook = Intake("onIntake", name="intake")
    registry.add(hook)
    given = {"prompt": "  hi "}
    outcome = await registry.emit("prompt:submit", given)
    assert (outcome.action, outcome.data, given) == ("modify", {"prompt": "hi"}, {"prompt": "  hi "})
    assert (await registry.emit("prompt:submit", {"prompt": "hi"})).action == "continue"
    assert (await registry.emit("prompt:submit", {"prompt": " "})).reason == "nothing asked"
    assert (await registry.emit("prompt:submit", {"prompt": "stop"})).denied
    hook.enabled = False
    assert not (await registry.emit("prompt:submit", {"prompt": " "})).denied


@pytest.mark.rule("REG-11")
def test_what_is_no_hook_object() -> None:
    """Adding an invalid hook object raises an error that names the mistake."""
    registry = HookRegistry()

    class Plain(Recorder):
        def execute(self, context: Any, call_next: CallNext) -> Any:
            return None

    class Short(Recorder):
        async def execute(self, context: Any) -> Any:  # type: ignore[override]
            return None

    for thing, sentence in [
        (object(), "it has no name, event_type, priority, enabled, execute"),
        (Plain("tool:pre"), "it is an async function"),
        (Short("tool:pre"), "cannot be called with (context, call_next)"),
        (Recorder("tool:pre", priority="high"), "priority 'high' is not an integer"),  # type: ignore[arg-type]
    ]:
        with pytest.raises(InvalidRegistration, match=re.escape(sentence)):
            registry.add(thing)  # type: ignore[arg-type]
    with pytest.raises(InvalidRegistration, match="Recorder"):
        registry.add(Recorder)  # type: ignore[arg-type]
    assert registry.count() == 0


@pytest.mark.rule("REG-11", "TRU-3")
def test_a_plugins_object() -> None:
    """A plugin's hook object has the plugin's permissions, and is removed with the plugin."""
    registry = HookRegistry()
    scope = registry.scope("plugin")
    scope.add(Recorder("tool.execute.pre"), match="Write", timeout=1)
    with pytest.raises(PrivilegeRequired, match="llm:pre"):
        scope.add(Recorder("llm.call.pre"))
    assert scope.close() == 1
    assert registry.count() == 0


# -- loop hooks ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REG-14", "EVT-7")
@pytest.mark.parametrize(
    ("point", "event", "field"),
    [
        ("onIntake", "prompt:submit", "prompt"),
        ("onContextAssembled", "context:assembled", "messages"),
        ("onModelResponse", "llm:post", "response"),
        ("onToolResult", "tool:post", "result"),
    ],
)
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_loop_hooks(point: str, event: str, field: str, kind: str) -> None:
    """Loop hooks get the replaceable field and the agent's IDs; a returned value replaces the field."""
    registry = HookRegistry()
    contexts: list[LoopContext] = []

    def double(context: LoopContext, data: Any) -> Any:
        contexts.append(context)
        return data * 2

    async def double_later(context: LoopContext, data: Any) -> Any:
        return double(context, data)

    registry.register_loop_hook(point, double if kind == "plain" else double_later)
    outcome = await registry.emit(event, {field: "ab", "session_id": "s", "agent": "a", "run_id": "r", "other": 1})
    assert outcome.data[field] == "abab"
    assert outcome.data["other"] == 1
    (context,) = contexts
    assert (context.agent_id, context.session_id, context.run_id) == ("a", "s", "r")
    assert context == {"agent_id": "a", "session_id": "s", "run_id": "r"}


@pytest.mark.rule("REG-14")
async def test_loop_hooks_that_change_nothing() -> None:
    """None, and a failure, leave the data as it was; a HookResult counts as an answer."""
    registry = HookRegistry()
    seen: list[Any] = []

    def broken(context: LoopContext, data: Any) -> Any:
        raise ValueError("broken")

    registry.register_loop_hook("onIntake", broken)
    undo = registry.register_loop_hook("onIntake", lambda context, data: seen.append(data), name="quiet", priority=-1)
    outcome = await registry.emit("onIntake", {"prompt": "hi"})
    assert (outcome.action, outcome.data, seen) == ("continue", {"prompt": "hi"}, ["hi"])
    assert outcome.ran == ("quiet", "broken")
    undo()
    registry.register_loop_hook("onIntake", lambda context, data: HookResult.deny("no"), name="guard")
    assert (await registry.emit("prompt:submit", {"prompt": "hi"})).denied_by == "guard"


@pytest.mark.rule("REG-14", "EVT-7")
async def test_the_end_of_a_turn_is_for_effects() -> None:
    """A loop hook at the end of a turn gets the payload, and its return value is dropped."""
    registry = HookRegistry()
    seen: list[Any] = []

    def store(context: LoopContext, data: Any) -> str:
        seen.append(data["response"])
        return "ignored"

    registry.register_loop_hook("onTurnComplete", store)
    outcome = await registry.emit("prompt:complete", {"prompt": "hi", "response": "hello"})
    assert (seen, outcome.action) == (["hello"], "continue")


@pytest.mark.rule("REG-14", "TRU-1")
def test_loop_hooks_are_held_to_the_rules() -> None:
    """A handler that cannot be called, and a plugin at a privileged point, are refused."""
    registry = HookRegistry()
    with pytest.raises(InvalidRegistration, match=re.escape("cannot be called with (context, data)")):
        registry.register_loop_hook("onIntake", lambda data: None)  # type: ignore[arg-type, misc]
    with pytest.raises(InvalidRegistration, match="not callable"):
        registry.register_loop_hook("onIntake", "handler")  # type: ignore[arg-type]
    with pytest.raises(PrivilegeRequired):
        registry.scope("p").register_loop_hook("onModelResponse", lambda context, data: None)


# -- tables of matchers ----------------------------------------------------------------------------------------------


@pytest.mark.rule("REG-15")
async def test_matchers() -> None:
    """Every hook of a table is registered for its event and its tools; no matcher means all; one undo takes it back."""
    registry = HookRegistry()
    undo = registry.register_matchers(
        {
            "PreToolUse": [
                HookMatcher(matcher="*", hooks=[quiet]),
                HookMatcher(matcher="Write|Edit", hooks=[waits, Callable2()], timeout=7),
                HookMatcher(hooks=[quiet]),
                HookMatcher(matcher="", hooks=[quiet]),
            ],
            "Stop": [HookMatcher(hooks=[waits])],
        }
    )
    assert [hook.timeout for hook in registry.hooks()] == [5.0, 7.0, 7.0, 5.0, 5.0, 5.0]
    assert (await registry.emit("tool:pre", {**CALL, "tool_name": "Read"})).ran == ("quiet", "quiet#2", "quiet#3")
    assert (await registry.emit("tool:pre", CALL)).denied_by == "Callable2"
    assert (await registry.emit("agent:stop", {})).ran == ("waits",)
    undo()
    undo()
    assert registry.count() == 0


@pytest.mark.rule("REG-15")
def test_a_table_is_registered_as_a_whole() -> None:
    """A table with an invalid entry registers nothing."""
    registry = HookRegistry()
    with pytest.raises(InvalidRegistration):
        registry.register_matchers({"PreToolUse": [HookMatcher(hooks=[quiet]), HookMatcher("a,b", [quiet])]})
    assert registry.count() == 0


@pytest.mark.rule("REG-15", "REG-4")
async def test_a_star_is_for_payloads_without_a_tool_too() -> None:
    """A matcher of `*` selects every call, also at an event that is not about a tool."""
    registry = HookRegistry()
    registry.register_matchers({"UserPromptSubmit": [HookMatcher(matcher="*", hooks=[quiet])]})
    registry.on("prompt:submit", quiet, match="*")
    registry.on("prompt:submit", quiet, match=ANY)
    assert (await registry.emit("prompt:submit", {"prompt": "hi"})).ran == ("quiet", "quiet#2", "quiet#3")


class ForeignMatcher:
    """A matcher of another package: equal fields, another class, and no timeout."""

    matcher = "Write"
    hooks = (quiet,)


@pytest.mark.rule("REG-15")
async def test_a_matcher_of_another_package() -> None:
    """An object with the fields of a matcher is a matcher."""
    registry = HookRegistry()
    registry.register_matchers({"PreToolUse": [ForeignMatcher()]})  # type: ignore[list-item]  # the point
    assert (await registry.emit("tool:pre", CALL)).ran == ("quiet",)


@pytest.mark.rule("REG-15")
@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ([HookMatcher("*", [quiet])], "pass a mapping of event"),
        ({"PreToolUse": HookMatcher("*", [quiet])}, "is no list"),
        ({"PreToolUse": "Write"}, "is no list"),
        ({"PreToolUse": [{"matcher": "*", "hooks": [quiet]}]}, "write HookMatcher"),
        ({"PreToolUse": [quiet]}, "write HookMatcher"),
        ({"PreToolUse": [HookMatcher("*", quiet)]}, "is no list"),  # type: ignore[arg-type]
    ],
)
def test_tables_that_cannot_work(table: Any, sentence: str) -> None:
    """A table of another shape is refused with the shape it should have, and leaves nothing behind."""
    registry = HookRegistry()
    with pytest.raises(InvalidRegistration, match=sentence):
        registry.register_matchers(table)
    assert registry.count() == 0


@pytest.mark.rule("REG-15", "DSP-3")
async def test_hooks_of_a_table_are_those_of_register() -> None:
    """Hooks of a table get a copy of the data, and fail closed if the registry's `register_on_error` says so."""
    registry = HookRegistry(register_on_error="deny")

    def writes(event: str, data: dict[str, Any]) -> None:
        data["n"] = 1
        raise ValueError("broken")

    registry.register_matchers({"PreToolUse": [HookMatcher(hooks=[writes])]})
    outcome = await asyncio.wait_for(registry.emit("tool:pre", CALL), 60)
    assert (outcome.cause, "n" in outcome.data) == ("hook_error", False)


# -- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REG-1", "PKG-4")
def test_an_option_that_there_is_not() -> None:
    """A misspelt option is refused in the name of the call that has it, with the option that was meant."""
    misspelt: dict[str, Any] = {"prioritty": 1}
    with pytest.raises(TypeError, match=r"gate\(\) takes no option 'prioritty'; did you mean 'priority'\?"):
        HookRegistry().gate("tool:pre", lambda event, data: None, **misspelt)
