import asyncio
import contextlib
import threading
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import amplifier_core as upstream  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks import HookMatcher, HookRegistry, HookResult, Outcome, SessionCoordinator, events
from amplifier_hooks.errors import EventNameWarning, InvalidPayload, InvalidRegistration, MisspeltEvent, UnknownEvent
from amplifier_hooks.events import ALL_EVENTS, CATALOGUE
from amplifier_hooks.payloads import HookCompletePayload, HookFailedPayload, Payload
from amplifier_hooks.registry.hook_table import RegistryChange
from amplifier_hooks.testing import CollectingAudit
from tests.cases import each
from tests.hooks import Hands
from tests.stores import until

CALL = {"tool_name": "Write", "tool_call_id": "1", "tool_input": {}, "session_id": "s"}
Told = tuple[str, Mapping[str, Any]]


def noting(seen: list[str], what: str = "", answer: HookResult | None = None) -> Callable[..., Any]:
    """A hook that notes its event, or `what`, and answers."""

    def hook(event: str, data: Mapping[str, Any], outcome: Outcome | None = None) -> HookResult | None:
        seen.append(what or event)
        return answer

    return hook


# -- registering, and taking it back ---------------------------------------------------------------------------------


@pytest.mark.rule("REG-1")
async def test_undo() -> None:
    """The undo takes out that very hook, whatever its name, and does nothing the second time."""
    registry = HookRegistry()
    seen: list[str] = []
    undo = registry.register("tool:pre", noting(seen, "first"), name="same")
    registry.register("tool:pre", noting(seen, "second"), name="same")
    undo()
    undo()
    await registry.emit("tool:pre", CALL)
    assert seen == ["second"]
    assert registry.count() == 1


@pytest.mark.rule("REG-1")
async def test_the_ways_in() -> None:
    """Each method registers a function and returns it as a decorator; called with a function, it returns the undo."""
    registry = HookRegistry()
    seen: list[str] = []

    @registry.on("tool:pre", name="taking part")
    def on(event: str, data: Mapping[str, Any]) -> None:
        seen.append("on")

    @registry.gate("tool:pre")
    async def gate(event: str, data: Mapping[str, Any]) -> None:
        seen.append("gate")

    @registry.observe("tool:pre")
    async def watch(event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        seen.append("observe")

    undo = [registry.on("tool:pre", on, name="again"), registry.gate("tool:pre", gate, priority=-1, name="first")]
    await registry.emit("tool:pre", CALL)
    assert seen == ["gate", "on", "gate", "on", "observe"]
    assert registry.list_handlers() == {"tool:pre": ["first", "taking part", "gate", "watch", "again"]}
    for take_back in undo:
        take_back()
    assert registry.list_handlers("PreToolUse") == {"tool:pre": ["taking part", "gate", "watch"]}


@pytest.mark.rule("REG-1")
async def test_by_name() -> None:
    """Unregistering, disabling and enabling reach every hook of a name, and return the number of hooks."""
    registry = HookRegistry()
    seen: list[str] = []
    registry.on("tool:pre", noting(seen), name="twice")
    registry.on("tool:post", noting(seen), name="twice")
    assert registry.disable("twice") == 2
    await registry.emit("tool:pre", CALL)
    assert seen == []
    assert registry.enable("twice") == 2
    await registry.emit("tool:pre", CALL)
    assert registry.unregister("twice") == 2
    await registry.emit("tool:post", CALL)
    assert seen == ["tool:pre"]
    assert [registry.disable("none"), registry.enable("none"), registry.unregister("none")] == [0, 0, 0]


@pytest.mark.rule("REG-1", "DSP-5")
async def test_enabling_ends_quarantine() -> None:
    """A hook in quarantine runs again after an operator enables it."""
    registry = HookRegistry()
    behave: list[bool] = []

    async def stubborn(event: str, data: Mapping[str, Any]) -> None:
        while not behave:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    registry.on("tool:pre", stubborn, timeout=0.01)
    for _ in range(3):
        await registry.emit("tool:pre", CALL)
    behave.append(True)
    assert [answer.status for answer in (await registry.emit("tool:pre", CALL)).answers] == ["unavailable"]
    registry.enable("stubborn")
    assert (await registry.emit("tool:pre", CALL)).all_succeeded


@pytest.mark.rule("REG-1", "RES-4")
async def test_names_are_unique_in_a_chain() -> None:
    """Hooks that can meet in one chain have different names, so that every answer can be told to its hook."""
    registry = HookRegistry()
    for event in ("tool:pre", "tool:pre", "*", "tool:post", "tool:*"):
        registry.on(event, lambda event, data: HookResult.proceed(user_message="hi"), name="same")
    registry.on("tool:pre", lambda event, data: None, name="same#2")
    for event in ("tool:pre", "tool:post", "llm:pre"):
        outcome = await registry.emit(event, CALL)
        assert len(set(outcome.ran)) == len(outcome.ran)
    assert registry.list_handlers("llm:pre") == {"llm:pre": ["same#3"]}
    assert registry.list_handlers("tool:post") == {"tool:post": ["same#3", "same", "same#4"]}
    assert registry.unregister("same#2") == 2


@pytest.mark.rule("REG-11")
def test_count() -> None:
    """The count is that of all hooks, or of one event's hooks, patterns included."""
    registry = HookRegistry()
    for event in ("tool:pre", "tool:*", "*", "llm:pre"):
        registry.on(event, lambda event, data: None)
    assert (registry.count(), registry.count("PreToolUse"), registry.count("session:start")) == (4, 3, 1)


# -- order -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REG-2", "REG-5")
@given(
    st.lists(
        st.tuples(
            st.integers(-2, 2),
            st.sampled_from(["", "acme"]),
            st.sampled_from(["register", "on", "gate", "observe"]),
            st.sampled_from(["tool:pre", "tool:*", "*"]),
        ),
        max_size=8,
    )
)
def test_order(hooks: list[tuple[int, str, str, str]]) -> None:
    """Lower priority first, then system before tenant, then as registered; observers after all others."""
    registry = HookRegistry()
    seen: list[str] = []
    for number, (priority, tenant, intent, event) in enumerate(hooks):
        getattr(registry, intent)(event, noting(seen, str(number)), priority=priority, tenant=tenant)
    asyncio.run(registry.emit("tool:pre", {**CALL, "tenant_id": "acme"}))
    expected = sorted(range(len(hooks)), key=lambda n: (hooks[n][2] == "observe", hooks[n][0], hooks[n][1] != "", n))
    assert seen == [str(number) for number in expected]


# -- changes while an event runs -------------------------------------------------------------------------------------


@pytest.mark.rule("REG-3")
@pytest.mark.fault("F-HD-14")
@pytest.mark.parametrize("waits", [False, True])
async def test_an_emit_keeps_its_snapshot(waits: bool) -> None:
    """During an emit a removed hook still runs, a new hook does not, and the deny of a removed gate counts."""
    registry = HookRegistry()
    seen: list[str] = []

    async def change(event: str, data: Mapping[str, Any]) -> None:
        if waits:
            await asyncio.sleep(0)
        for name in ("change", "guard", "twice"):
            registry.unregister(name)
        registry.on("tool:pre", noting(seen, "new"))

    registry.on("tool:pre", change)
    registry.on("tool:pre", noting(seen, "twice"), name="twice")
    registry.on("tool:pre", noting(seen, "twice"), name="twice")
    registry.gate("tool:pre", noting(seen, "guard", HookResult.deny("no")), name="guard")
    outcome = await registry.emit("tool:pre", CALL)
    assert (outcome.action, outcome.denied_by, seen) == ("deny", "guard", ["twice", "twice", "guard"])
    seen.clear()
    await registry.emit("tool:pre", CALL)
    assert seen == ["new"]


@pytest.mark.rule("REG-3")
@pytest.mark.parametrize("meanwhile", ["added", "removed"])
async def test_a_change_while_a_chain_is_made(meanwhile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate that another thread adds or removes while a chain is being made takes effect with the next emit."""
    registry = HookRegistry()
    undo = registry.gate("tool:pre", noting([], answer=HookResult.deny())) if meanwhile == "removed" else None
    told = registry._roster.hooks_for

    def told_slowly(row: events.Event) -> Any:
        """Stand in for a switch of threads at the worst moment, which no test can wait for."""
        hooks = told(row)
        monkeypatch.undo()
        if undo is not None:
            undo()
        else:
            registry.gate("tool:pre", noting([], answer=HookResult.deny()))
        return hooks

    monkeypatch.setattr(registry._roster, "hooks_for", told_slowly)
    await registry.emit("tool:pre", CALL)
    assert (await registry.emit("tool:pre", CALL)).denied is (meanwhile == "added")


@pytest.mark.rule("REG-3")
async def test_changes_in_one_thread_and_emits_in_another() -> None:
    """Hooks that come and go in one thread never make an emit in another thread fail or pass its gate."""
    registry = HookRegistry()
    outcomes: list[bool] = []
    over = threading.Event()

    def emit() -> None:
        async def until_it_is_over() -> None:
            while not over.is_set():
                outcomes.append((await registry.emit("tool:pre", CALL)).denied)

        asyncio.run(until_it_is_over())

    passing = [registry.on("tool:pre", noting([]), name=f"h{number}") for number in range(50)]
    registry.gate("tool:pre", noting([], answer=HookResult.deny()), priority=1)
    thread = threading.Thread(target=emit)
    thread.start()
    try:
        for undo in passing:
            undo()
            registry.on("tool:pre", noting([]))
            emitted = len(outcomes)
            await until(lambda: len(outcomes) > emitted)  # noqa: B023  # awaited at once
    finally:
        over.set()
        thread.join()
    assert outcomes
    assert all(outcomes)


@pytest.mark.rule("REG-3")
@pytest.mark.parametrize("waits", [False, True])
async def test_disabling_takes_effect_at_once(waits: bool) -> None:
    """A hook that is disabled while an emit runs is not started any more, and is on record as disabled."""
    registry = HookRegistry()
    seen: list[str] = []

    async def operator(event: str, data: Mapping[str, Any]) -> None:
        if waits:
            await asyncio.sleep(0)
        registry.disable("suspect")

    registry.on("tool:pre", operator)
    registry.gate("tool:pre", noting(seen, answer=HookResult.deny()), name="suspect")
    outcome = await registry.emit("tool:pre", CALL)
    assert (seen, outcome.denied) == ([], False)
    assert [answer.status for answer in outcome.answers if answer.hook_name == "suspect"] == ["disabled"]


@pytest.mark.rule("REG-16")
@pytest.mark.fault("F-HD-15")
async def test_disabling_a_required_gate_blocks() -> None:
    """Where a gate is required, an operator who disables the only one in the middle of an emit blocks the event."""
    registry = HookRegistry()
    registry.require("tool:pre")
    registry.on("tool:pre", lambda event, data: {"data": {"disabled": registry.disable("suspect")}}, name="operator")
    registry.gate("tool:pre", lambda event, data: None, name="suspect")
    outcome = await registry.emit("tool:pre", CALL)
    assert (outcome.action, outcome.cause) == ("deny", "no_policy")


# -- events and their names ------------------------------------------------------------------------------------------


@pytest.mark.rule("EVT-9")
def test_constants() -> None:
    """Every event has a constant, and the registry has the constants of the upstream kernel's registry."""
    for event in ALL_EVENTS:
        assert getattr(events, event.upper().replace(":", "_")) == event
    theirs = [name for name in vars(upstream.HookRegistry) if name.isupper()]
    assert "TOOL_POST" in theirs
    for name in theirs:
        assert getattr(HookRegistry, name) == getattr(upstream.HookRegistry, name)


@pytest.mark.rule("EVT-3")
@given(st.sampled_from(CATALOGUE), st.data())
def test_every_spelling_reaches_every_other(row: events.Event, data: st.DataObject) -> None:
    """Registered under one spelling and emitted under another, a hook hears the canonical name and the same data."""
    registry = HookRegistry()
    seen: list[Told] = []
    registry.on(data.draw(st.sampled_from(row.spellings)), lambda event, data: seen.append((event, dict(data))))
    outcome = asyncio.run(registry.emit(data.draw(st.sampled_from(row.spellings)), CALL))
    assert seen == [(row.name, CALL)]
    assert outcome.event == row.name


@pytest.mark.rule("EVT-5")
@pytest.mark.parametrize("name", ["tool:pree", "PreToolUsed", "tol:pre", "tol:*"])
async def test_a_misspelt_name_is_warned_about_where_it_stands(name: str) -> None:
    """The warning names what was probably meant and points at the line of the caller, by any way in."""
    registry = HookRegistry()
    ways: list[Callable[[], Any]] = [
        lambda: registry.on(name, lambda event, data: None),
        lambda: registry.register(name, lambda event, data: None),
        lambda: registry.scope("p").observe(name, lambda event, data, outcome: None),
    ]
    for way in ways:
        with pytest.warns(EventNameWarning, match="did you mean '(tool:|PreTool)") as caught:
            way()
        assert Path(caught[0].filename) == Path(__file__)
    if "*" not in name:
        with pytest.warns(EventNameWarning) as caught:
            await HookRegistry().emit(name, {})
        assert Path(caught[0].filename) == Path(__file__)


GUARDS: dict[str, Callable[[HookRegistry, str], Any]] = {
    "gate": lambda registry, name: registry.gate(name, lambda event, data: None, name="stop"),
    "decorator": lambda registry, name: registry.gate(name, name="stop")(lambda event, data: None),
    "on": lambda registry, name: registry.on(name, lambda event, data: None, name="stop", on_error="deny"),
    "matchers": lambda registry, name: registry.register_matchers(
        {name: [HookMatcher(hooks=[lambda event, data: None])]}, on_error="deny", name="stop"
    ),
}


@pytest.mark.rule("EVT-5")
@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
@pytest.mark.parametrize("name", ["tool:per", "tool.execute.pe", "PreToolUsed", "tol:*"])
def test_a_gate_at_a_misspelt_event_is_refused(guard: Callable[[HookRegistry, str], Any], name: str) -> None:
    """A gate whose event is a typo away from a known one is refused at once, with what was meant, and is not there."""
    registry = HookRegistry()
    with pytest.raises(
        UnknownEvent, match=r"unknown event .* the hook 'stop' would never run: did you mean '(tool|Pre)"
    ):
        guard(registry, name)
    assert registry.count() == 0


@pytest.mark.rule("EVT-5")
@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
async def test_a_gate_at_no_event_lets_no_session_start(guard: Callable[[HookRegistry, str], Any]) -> None:
    """With a gate at an unknown event no session starts, no tool runs, and nothing is emitted until it is gone."""
    registry = HookRegistry()
    guard(registry, "tool:before")
    meant = "'tool:before', so the hook 'stop' would never run: did you mean 'tool:pre'"
    audit = CollectingAudit()
    with pytest.raises(UnknownEvent, match=meant):
        async with SessionCoordinator(registry, audit=audit):
            pytest.fail("it started")
    assert audit.records == []
    with pytest.raises(UnknownEvent, match=meant):
        await SessionCoordinator(registry).call_tool("Bash", {}, lambda given: pytest.fail("it ran"))
    with pytest.raises(UnknownEvent, match=meant):
        await registry.emit("prompt:submit", {})
    registry.unregister("stop")
    async with SessionCoordinator(registry) as session:
        assert (await session.call_tool("Bash", {}, lambda given: 1)).ok


@pytest.mark.rule("EVT-5")
async def test_an_event_may_be_declared_until_the_first_session_starts() -> None:
    """A gate may come before the declaration of its event while no session has started, and after it from then on."""
    registry = HookRegistry()
    registry.gate("deploy:before", lambda event, data: HookResult.deny("freeze"))
    registry.gate("build:*", lambda event, data: HookResult.deny("freeze"))
    registry.require("ship:it")
    for name in ("deploy:before", "build:begin", "ship:it"):
        with pytest.raises(UnknownEvent, match=name.partition(":")[0]):
            registry.check_gates()
        registry.declare(name, gate=True)
    async with SessionCoordinator(registry) as session:
        for name in ("deploy:before", "build:begin", "ship:it"):
            assert (await session.emit(name, {})).denied
        for guard in GUARDS.values():
            with pytest.raises(UnknownEvent, match="the hook 'stop' would never run: declare it"):
                guard(registry, "acme:go")
        with pytest.raises(UnknownEvent, match="'acme:go': declare it"):
            registry.require("acme:go")
        registry.declare("acme:go", gate=True)
        registry.gate("acme:go", lambda event, data: HookResult.deny("no"))
        assert (await session.emit("acme:go", {})).denied


@pytest.mark.rule("EVT-5", "REG-16")
@pytest.mark.parametrize("name", ["tools:pre", "acme:go"])
async def test_an_event_that_is_said_to_be_ones_own(name: str) -> None:
    """`own_event` makes the event of a gate known, also one that looks misspelt, and says nothing else about it."""
    registry = HookRegistry()
    registry.require(name, own_event=True)
    assert (await registry.emit(name, {})).cause == "no_policy"
    registry.gate(name, lambda event, data: HookResult.deny("no"))
    registry.gate(f"{name.partition(':')[0]}:*", lambda event, data: None)
    assert (await registry.emit(name, {})).reason == "no"
    registry.declare(name, gate=True)
    registry.gate("other:*", lambda event, data: None, own_event=True)
    with pytest.raises(UnknownEvent):
        registry.gate("other:event", lambda event, data: None)
    with pytest.raises(UnknownEvent, match="declare"):
        HookRegistry(strict_events=True).gate(name, lambda event, data: None, own_event=True)


@pytest.mark.rule("EVT-5", "TRU-1")
def test_a_plugins_gate_needs_a_known_event() -> None:
    """A plugin's gate at an unknown event is refused whenever it comes: no plugin keeps sessions from starting."""
    registry = HookRegistry()
    with pytest.raises(UnknownEvent, match="'acme:go', so the hook 'guard' would never run"):
        registry.scope("acme").gate("acme:go", lambda event, data: None, name="guard")
    registry.check_gates()
    registry.declare("acme:go", gate=True)
    registry.scope("acme").gate("acme:go", lambda event, data: None, name="guard")
    assert registry.list_handlers() == {"acme:go": ["guard"]}


WAYS: dict[str, Callable[[HookRegistry, str], Any]] = {
    **GUARDS,
    "require": lambda registry, name: registry.require(name),
    "own": lambda registry, name: registry.gate(name, lambda event, data: None, own_event=True),
    "register": lambda registry, name: registry.register(name, lambda event, data: None),
    "observe": lambda registry, name: registry.observe(name, lambda event, data, outcome: None),
    "loop hook": lambda registry, name: registry.register_loop_hook(name, lambda context, data: None),
    "plugin": lambda registry, name: registry.scope("p").on(name, lambda event, data: None),
    "built-in": lambda registry, name: registry.scope("p", built_in=True).on(name, lambda event, data: None),
    "declare": lambda registry, name: registry.declare(name),
    "emit": lambda registry, name: asyncio.run(registry.emit(name, {})),
    "explain": lambda registry, name: registry.explain(name),
}


@pytest.mark.rule("EVT-5")
@each("way", WAYS.values())
@each("name", ["LLM:POST", "Llm:Post", "llm-post", "llm:post ", "ｌｌｍ:post", "ONMODELRESPONSE"])
def test_a_name_that_reads_like_another_is_refused(way: Callable[[HookRegistry, str], Any], name: str) -> None:
    """No way in takes a name that differs from a known one in its case, separators or characters' form alone."""
    registry = HookRegistry()
    with pytest.raises(MisspeltEvent, match=r"write it '(llm:post|onModelResponse)'$"):
        way(registry, name)
    assert registry.count() == 0


@pytest.mark.rule("EVT-5")
def test_a_pattern_that_reads_like_another_is_refused() -> None:
    """A pattern for a domain that is a known one but for its case is refused, and so is one for a declared event's."""
    registry = HookRegistry()
    registry.declare("deploy:go")
    for name, known in {"LLM:*": "llm:*", "Deploy:*": "deploy:*", "Deploy:Go": "deploy:go"}.items():
        with pytest.raises(MisspeltEvent, match=f"write it '{known.replace('*', '[*]')}'"):
            registry.observe(name, lambda event, data, outcome: None)


@pytest.mark.rule("EVT-5")
async def test_events_of_ones_own() -> None:
    """A name that resembles no other is used without a word; under strict_events it has to be declared."""
    registry = HookRegistry()
    seen: list[str] = []
    registry.on("deploy:started", noting(seen))
    await registry.emit("deploy:started", {})
    assert seen == ["deploy:started"]

    strict = HookRegistry(strict_events=True)
    for name in ("deploy:started", "deploy:*"):
        with pytest.raises(UnknownEvent, match="declare"):
            strict.on(name, noting(seen))
    with pytest.raises(UnknownEvent):
        await strict.emit("deploy:started", {})
    strict.declare("deploy:started")
    strict.on("deploy:started", noting(seen))
    strict.on("deploy:*", noting(seen))
    await strict.emit("deploy:started", {})
    assert len(seen) == 3


@pytest.mark.rule("EVT-5")
async def test_declaring() -> None:
    """A declared event has its payload and its gate flag, and typos of it are noticed."""

    class DeployPayload(Payload):
        """The payload of a deployment."""

        target: str

    registry = HookRegistry()
    registry.declare("deploy:before", gate=True, replaces="target", payload=DeployPayload)
    registry.declare("deploy:before", gate=True, replaces="target", payload=DeployPayload)
    assert registry.payload_model("deploy:before") is DeployPayload
    assert registry.payload_model("PreToolUse") is events.payload_model("tool:pre")
    registry.emergency_stop("stop")
    assert (await registry.emit("deploy:before", {})).denied
    with pytest.warns(EventNameWarning, match="deploy:before"):
        registry.on("deploy:befor", lambda event, data: None)
    with pytest.raises(InvalidRegistration, match="differently"):
        registry.declare("deploy:before", gate=False)
    for name in ("", "tool:pre", "PreToolUse", "deploy:*"):
        with pytest.raises(InvalidRegistration, match="cannot be declared"):
            registry.declare(name)


@pytest.mark.rule("EVT-5")
@pytest.mark.parametrize("name", ["tool:p*", "*:pre", "tool*", ":*", "", None, 7])
async def test_names_that_could_never_be_heard(name: Any) -> None:
    """A pattern that no event matches, and a value that is no name, are refused: such a gate would guard nothing."""
    registry = HookRegistry()
    with pytest.raises(InvalidRegistration):
        registry.gate(name, lambda event, data: None)
    with pytest.raises(InvalidRegistration):
        await registry.emit(name, {})


async def test_patterns_are_not_emitted() -> None:
    """An emit is of one event."""
    for pattern in ("*", "tool:*"):
        with pytest.raises(InvalidRegistration, match="stands for several"):
            await HookRegistry().emit(pattern, {})


@pytest.mark.rule("EVT-8")
@pytest.mark.parametrize("by", ["registry", "session"])
async def test_a_model_of_a_payload_is_emitted(by: str) -> None:
    """A payload may be given as a model; hooks receive its fields, those of their own included."""
    registry, heard = HookRegistry(), list[Any]()
    registry.on("tool:pre", lambda event, data: heard.append(dict(data)))
    now = "2026-01-31T12:00:00+00:00"
    fields: dict[str, Any] = {"tool_name": "Write", "tool_call_id": "c1", "tool_input": {"path": "a"}, "mine": 2}
    model = registry.payload_model("tool:pre")(session_id="s", timestamp=now, **fields)
    emitter = registry if by == "registry" else SessionCoordinator(registry, session_id="s")
    await emitter.emit("tool:pre", model)
    assert {name: heard[0][name] for name in fields} == fields
    assert heard[0]["session_id"] == "s"
    with pytest.raises(InvalidPayload, match="of type ModelMetaclass"):
        await emitter.emit("tool:pre", type(model))  # type: ignore[arg-type]  # the class, not an instance


@pytest.mark.parametrize("heard", [True, False])
async def test_data_is_a_mapping(heard: bool) -> None:
    """Data that is no mapping is refused with a sentence, with and without hooks."""
    registry = HookRegistry()
    if heard:
        registry.on("tool:pre", lambda event, data: None)
    with pytest.raises(InvalidPayload, match="tool:pre: data of type list"):
        await registry.emit("tool:pre", [])  # type: ignore[arg-type]
    with pytest.raises(InvalidPayload):
        await registry.emit_and_collect("tool:pre", [])  # type: ignore[arg-type]
    with pytest.raises(InvalidPayload):
        registry.explain("tool:pre", [])  # type: ignore[arg-type]


@pytest.mark.fault("F-HD-20")
@pytest.mark.parametrize("tool", ["BashOutput", "bash", "Bash\n", "mcp__x__Bash", "Ba-sh"])
async def test_tool_names_match_exactly(tool: str) -> None:
    """A gate for "Bash" is for that name and no other; one that could never match is refused."""
    registry = HookRegistry()
    registry.gate("tool:pre", lambda event, data: HookResult.deny(), name="bash", match="Bash")
    assert not (await registry.emit("tool:pre", {**CALL, "tool_name": tool})).denied
    assert (await registry.emit("tool:pre", {**CALL, "tool_name": "Bash"})).denied
    for nobody in (None, 7, ["Bash"]):
        assert (await registry.emit("tool:pre", {**CALL, "tool_name": nobody})).denied
    with pytest.raises(InvalidRegistration, match="separate names by"):
        registry.gate("tool:pre", lambda event, data: None, match="a,b")


# -- deciding and telling --------------------------------------------------------------------------------------------


@pytest.mark.fault("F-HD-02")
@pytest.mark.parametrize("answer", [{"action": "continue"}, {"action": "continue", "reason": "stop here"}, None])
async def test_nothing_keeps_a_later_hook_from_denying(answer: Any) -> None:
    """A hook that answers continue, with whatever words, does not end the round; asking for that is no answer."""
    registry = HookRegistry()
    registry.gate("tool:pre", lambda event, data: answer, priority=0, name="early")
    registry.gate("tool:pre", lambda event, data: HookResult.deny("late"), priority=1, name="late")
    assert (await registry.emit("tool:pre", CALL)).denied_by == "late"
    registry.on("tool:pre", lambda event, data: {"stop_propagation": True}, priority=-1, name="bossy")
    outcome = await registry.emit("tool:pre", CALL)
    assert outcome.denied_by == "late"
    assert [answer.hook_name for answer in outcome.failures] == ["bossy"]


@pytest.mark.rule("REG-5")
async def test_observers_of_everything() -> None:
    """An observer of "*" is told of every event, denied ones and unknown ones included, and of no hook:* event."""
    registry = HookRegistry()
    seen: list[str] = []
    registry.observe("*", noting(seen))
    registry.gate("*", lambda event, data: HookResult.deny(), name="no")
    for event in (*ALL_EVENTS, "deploy:started"):
        await registry.emit(event, {})
    assert seen == [*(event for event in ALL_EVENTS if not event.startswith("hook:")), "deploy:started"]


@pytest.mark.rule("REG-5")
async def test_notify_shows_the_outcome_it_is_given() -> None:
    """After effects that change the outcome, observers see the changed one, and what they return changes nothing."""
    registry = HookRegistry()
    seen: list[str | None] = []

    @registry.observe("tool:pre")
    def watch(event: str, data: Mapping[str, Any], outcome: Outcome) -> HookResult:
        seen.append(outcome.reason)
        return HookResult.deny("not my business")

    outcome = await registry.decide("tool:pre", CALL)
    assert seen == []
    await registry.notify(Outcome(outcome.event, outcome.data, action="deny", reason="a person denied it"))
    assert seen == ["a person denied it"]
    assert not outcome.denied


@pytest.mark.rule("REG-7", "REG-5")
async def test_concurrent_observers_run_side_by_side() -> None:
    """Concurrent observers wait together; the other observers wait their turn."""
    registry = HookRegistry()
    together = asyncio.Barrier(2)
    seen: list[str] = []

    async def meet(event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        await together.wait()
        seen.append("met")

    registry.observe("tool:pre", meet, concurrent=True)
    registry.observe("tool:pre", meet, concurrent=True)
    assert not (await registry.emit("tool:pre", CALL)).denied
    assert seen == ["met", "met"]

    alone = HookRegistry()
    busy = 0

    async def queue(event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        nonlocal busy
        busy += 1
        await asyncio.sleep(0)
        assert busy == 1
        busy -= 1
        seen.append("in turn")

    alone.observe("tool:pre", queue)
    alone.observe("tool:pre", queue)
    await alone.emit("tool:pre", CALL)
    assert seen[2:] == ["in turn", "in turn"]


@pytest.mark.rule("REG-7")
async def test_a_failing_concurrent_observer_harms_nobody() -> None:
    """The other observers run, and the caller sees no error."""
    registry = HookRegistry()
    seen: list[str] = []

    async def broken(event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        raise ValueError("broken")

    registry.observe("tool:pre", broken, concurrent=True)
    registry.observe("tool:pre", noting(seen), concurrent=True)
    registry.observe("tool:pre", noting(seen))
    outcome = await registry.emit("tool:pre", CALL)
    assert (seen, outcome.action) == (["tool:pre", "tool:pre"], "continue")


# -- gathering -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REG-8")
async def test_collecting(clock: Hands) -> None:
    """Every hook's data comes back in order: none sees another's, a denial stops no hook, failures are left out."""
    registry = HookRegistry()

    async def slow(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.Event().wait()

    registry.on("tools:list", lambda event, data: {"data": {"n": data["n"]}}, priority=3, name="third")
    registry.on("tools:list", lambda event, data: HookResult.modify({"n": 2, "tools": ["a"]}), priority=1)
    registry.gate("tools:list", lambda event, data: HookResult.deny(data={"tools": ["b"]}), priority=2, own_event=True)
    registry.on("tools:list", slow, timeout=None)
    registry.on("tools:list", lambda event, data: {"n": 1 / 0}, name="broken")
    registry.on("tools:list", lambda event, data: None, name="nothing")
    collected = await registry.emit_and_collect("tools:list", {"n": 1}, timeout=0.02)
    assert collected == [{"n": 2, "tools": ["a"]}, {"tools": ["b"]}, {"n": 1}]
    assert await registry.emit_and_collect("tools:other", {}) == []
    with pytest.raises(InvalidRegistration, match="timeout -1"):
        await registry.emit_and_collect("tools:list", {}, timeout=-1)


@pytest.mark.rule("REG-8", "DSP-5")
async def test_collecting_counts_who_was_left_behind() -> None:
    """A hook that has to be left behind again and again is quarantined, whichever way it was called."""
    registry = HookRegistry()
    calls: list[int] = []

    async def stubborn(event: str, data: Mapping[str, Any]) -> None:
        calls.append(1)
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    registry.on("tools:list", stubborn, timeout=0.01)
    for _ in range(5):
        assert await registry.emit_and_collect("tools:list", {}) == []
    assert len(calls) == 3
    assert (await registry.emit("tools:list", {})).failures[0].status == "unavailable"


@pytest.mark.rule("REG-8")
async def test_default_fields() -> None:
    """Default fields are in every payload, give way to the event's own, select the tenant, and replace the last set."""
    registry = HookRegistry()
    seen: list[Mapping[str, Any]] = []
    registry.on("tool:pre", lambda event, data: seen.append(dict(data)), tenant="acme")
    registry.observe("tool:pre", lambda event, data, outcome: seen.append(dict(data)), tenant="acme")
    registry.set_default_fields(session_id="s", tenant_id="acme")
    outcome = await registry.emit("tool:pre", {"n": 1})
    assert seen == [{"session_id": "s", "tenant_id": "acme", "n": 1}] * 2
    assert outcome.data == seen[0]
    seen.clear()
    await registry.emit("tool:pre", {"tenant_id": "other"})
    assert seen == []
    await registry.emit_and_collect("tool:pre", {})
    assert seen == [{"session_id": "s", "tenant_id": "acme"}]
    registry.set_default_fields(run_id="r")
    assert (await registry.emit("tool:post", {})).data == {"run_id": "r"}  # also without hooks


@pytest.mark.rule("REG-8", "DSP-9")
async def test_gathering_shares_the_time_of_a_chain(hands: Hands) -> None:
    """Definitions that contribute share their half second with each other, and a chain's limit holds for all."""

    def slow(event: str, data: Mapping[str, Any]) -> HookResult:
        hands.now += 0.03
        return HookResult(data={"n": 1})

    definitions, chain = HookRegistry(), HookRegistry(chain_timeout=0.05)
    for _ in range(4):
        definitions.on("tools:list", slow, source="definition", budget=0.05, own_event=True)
        chain.on("tools:list", slow)
    assert len(await definitions.emit_and_collect("tools:list", {})) == 1
    assert len(await chain.emit_and_collect("tools:list", {})) == 1


# -- cost ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REG-10")
async def test_an_emit_without_hooks_costs_next_to_nothing() -> None:
    """An emit without hooks keeps nothing and returns the data object as it was, also for unknown names."""
    registry = HookRegistry()
    data = {"n": 1}
    outcome = await registry.emit("tool:pre", data)
    assert outcome.data is data
    for number in range(1000):
        await registry.emit(f"made:up{number}", data)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(2_000):
            await registry.emit("tool:pre", data)
            if number % 10 == 0:
                await registry.emit(f"made:more{number}", data)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 400_000


@pytest.mark.fault("F-HD-21")
@pytest.mark.rule("REG-2")
async def test_a_thousand_hooks() -> None:
    """Registering and emitting take time in proportion, and the order is that of registration."""

    async def seconds(hooks: int) -> float:
        registry = HookRegistry()
        seen: list[str] = []
        began = time.process_time()
        for number in range(hooks):
            registry.on("tool:pre", noting(seen, str(number)), name=f"h{number}")
        for _ in range(10):
            seen.clear()
            await registry.emit("tool:pre", CALL)
        spent = time.process_time() - began
        assert seen == [str(number) for number in range(hooks)]
        return spent

    few = min([await seconds(100) for _ in range(3)])
    many = min([await seconds(1000) for _ in range(3)])
    assert many < 50 * few


# -- in charge -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REG-16")
@pytest.mark.fault("F-HD-19")
async def test_a_required_gate() -> None:
    """Without a gate for the payload the event is denied as no_policy, until one is there or the undo is called."""
    registry = HookRegistry()
    relax = registry.require("PreToolUse")
    registry.on("tool:pre", lambda event, data: None, name="no gate")
    outcome = await registry.emit("tool:pre", CALL)
    assert (outcome.action, outcome.cause, outcome.denied_by) == ("deny", "no_policy", "registry")
    registry.gate("tool:pre", lambda event, data: None, name="reads", match="Read")
    assert (await registry.emit("tool:pre", CALL)).cause == "no_policy"
    assert not (await registry.emit("tool:pre", {**CALL, "tool_name": "Read"})).denied
    again = registry.require("tool:pre")
    relax()
    relax()
    assert (await registry.emit("tool:pre", CALL)).denied
    again()
    assert not (await registry.emit("tool:pre", CALL)).denied
    assert not (await registry.emit("tool:post", CALL)).denied


@pytest.mark.rule("REG-16", "EVT-5")
@pytest.mark.parametrize("guard", ["a gate", "a gate for many", "a required one"])
async def test_an_emergency_stop_of_an_event_nobody_described(guard: str) -> None:
    """An event of one's own is stopped as soon as it is guarded, declared or not."""
    registry = HookRegistry()
    if guard == "a required one":
        registry.require("deploy:production", own_event=True)
    event = "deploy:*" if guard == "a gate for many" else "deploy:production"
    registry.gate(event, lambda event, data: None, own_event=True)
    assert not (await registry.emit("deploy:production", {})).denied
    registry.emergency_stop("freeze")
    assert (await registry.emit("deploy:production", {})).cause == "emergency_stop"
    assert registry.explain("deploy:production").refusal == "emergency_stop"


@pytest.mark.rule("REG-16")
@pytest.mark.parametrize("event", ["tool:post", "agent:stop", "subagent:stop", "tool:*", "*"])
def test_what_cannot_be_required(event: str) -> None:
    """A gate can be required where denying keeps something from happening, at one event at a time."""
    with pytest.raises(InvalidRegistration):
        HookRegistry().require(event)


@pytest.mark.rule("REG-16")
async def test_emergency_stop() -> None:
    """Every gate denies at once, with hooks and without, also in an emit under way; stops of agents are let through."""
    registry = HookRegistry()
    changes: list[RegistryChange] = []
    registry.watch(changes.append)
    lifts: list[Callable[[], None]] = []
    registry.on("tool:pre", lambda event, data: lifts.append(registry.emergency_stop("pulled inside")), name="operator")
    outcome = await registry.emit("tool:pre", CALL)
    assert (outcome.denied, outcome.cause, outcome.reason) == (True, "emergency_stop", "emergency stop: pulled inside")
    registry.unregister("operator")
    lifts.append(registry.emergency_stop("pulled again"))
    for row in CATALOGUE:
        stopped = row.gate and row.name not in events.GOES_ON_WHEN_DENIED
        assert (await registry.emit(row.name, {})).denied is stopped
        assert (await registry.decide(row.name, {})).denied is stopped
    lifts[0]()
    lifts[0]()
    assert (await registry.emit("tool:pre", CALL)).reason == "emergency stop: pulled again"
    lifts[1]()
    assert not (await registry.emit("tool:pre", CALL)).denied
    told = [(change.what, change.detail) for change in changes if change.what in {"stopped", "resumed"}]
    assert told == [
        ("stopped", "pulled inside"), ("stopped", "pulled again"), ("resumed", "pulled inside"),
        ("resumed", "pulled again"),
    ]  # fmt: skip


@pytest.mark.rule("DSP-3")
@pytest.mark.parametrize("event", ["agent:stop", "subagent:stop"])
@pytest.mark.parametrize("intent", ["gate", "register"])
async def test_a_failure_in_front_of_a_stop_does_not_set_the_agent_going(event: str, intent: str) -> None:
    """A failing hook in front of a stop denies only with an explicit `on_error`; otherwise it is skipped."""
    registry = HookRegistry(register_on_error="deny")
    getattr(registry, intent)(event, lambda event, data: {"n": 1 / 0}, name="broken")
    assert not (await registry.emit(event, {})).denied
    getattr(registry, intent)(event, lambda event, data: {"n": 1 / 0}, name="meant", on_error="deny")
    assert (await registry.emit(event, {})).denied_by == "meant"


@pytest.mark.rule("DSP-3")
@pytest.mark.parametrize(("event", "denied"), [("tool:pre", True), ("*", True), ("tool:*", True), ("tool:post", False)])
async def test_plain_registrations_can_be_told_to_fail_closed(event: str, denied: bool) -> None:
    """Under register_on_error="deny" plain registrations fail closed wherever a gate is among their events."""
    registry = HookRegistry(register_on_error="deny")
    registry.register(event, lambda event, data: {"n": 1 / 0}, name="broken")
    assert (await registry.emit("tool:post" if event == "tool:post" else "tool:pre", CALL)).denied is denied
    with pytest.raises(InvalidRegistration, match="register_on_error"):
        HookRegistry(register_on_error="maybe")  # type: ignore[arg-type]


# -- what is told about the registry and its hooks -------------------------------------------------------------------


@pytest.mark.rule("TRU-1")
def test_every_change_is_told() -> None:
    """Listeners get every change with names, and none after their undo; a failing listener changes nothing."""
    registry = HookRegistry()
    changes: list[RegistryChange] = []

    def broken(change: RegistryChange) -> None:
        raise OSError("disk full")

    registry.watch(broken)
    stop = registry.watch(changes.append)
    undo = registry.on("tool:pre", lambda event, data: None, name="h", tenant="acme")
    registry.disable("h")
    registry.enable("h")
    undo()
    registry.declare("deploy:before")
    registry.require("tool:pre")()
    stop()
    stop()
    registry.on("tool:pre", lambda event, data: None)
    assert [change.what for change in changes] == [
        "registered", "disabled", "enabled", "unregistered", "declared", "required", "relaxed",
    ]  # fmt: skip
    assert {(change.hook, change.event, change.tenant) for change in changes[:4]} == {("h", "tool:pre", "acme")}


async def failing(event: str, data: Mapping[str, Any]) -> None:
    """Raise an error."""
    raise ValueError("broken")


async def hanging(event: str, data: Mapping[str, Any]) -> None:
    """Never answer."""
    await asyncio.Event().wait()


def observed(registry: HookRegistry, *names: str) -> list[Told]:
    """Record every `hook:*` event from now on."""
    told: list[Told] = []
    for name in names or ("hook:*",):
        registry.observe(name, lambda event, data, outcome: told.append((event, dict(data))), name="teller")
    return told


@pytest.mark.rule("DSP-8")
async def test_hook_events() -> None:
    """Each called hook gives two events, for its start and its end, with its time and its event."""
    registry = HookRegistry()
    told = observed(registry)
    registry.on("tool:pre", lambda event, data: None, name="quiet")
    registry.on("tool:pre", lambda event, data: HookResult.inject("hi"), name="talks")
    registry.on("tool:pre", failing)
    registry.gate("tool:pre", hanging, timeout=0.01)
    registry.on("tool:pre", lambda event, data: None, name="never reached")
    registry.on("tool:pre", lambda event, data: None, name="off")
    registry.disable("off")
    await registry.emit("tool:pre", {**CALL, "event_id": "e7", "tenant_id": "acme", "custom": 1})
    ends = [(event, data["hook_name"], data.get("action")) for event, data in told if event != "hook:start"]
    assert ends == [
        ("hook:complete", "quiet", "continue"),
        ("hook:complete", "talks", "inject_context"),
        ("hook:failed", "failing", None),
        ("hook:timeout", "hanging", None),
    ]
    starts = [data["hook_name"] for event, data in told if event == "hook:start"]
    assert starts == ["quiet", "talks", "failing", "hanging"]
    for event, data in told:
        assert data["event"] == "tool:pre"
        assert data["event_type"] == event.replace(":", "_")
        assert {key: data[key] for key in ("session_id", "tenant_id", "parent_id", "tool_name")} == {
            "session_id": "s", "tenant_id": "acme", "parent_id": "e7", "tool_name": "Write",
        }  # fmt: skip
        assert "custom" not in data
        assert (event == "hook:start") == ("duration_ms" not in data)
    by_name = {data["hook_name"]: data for event, data in told if event != "hook:start"}
    assert by_name["failing"]["on_error_behavior"] == "continue"
    assert by_name["hanging"]["on_error_behavior"] == "deny"
    assert by_name["hanging"]["duration_ms"] >= 10
    HookFailedPayload(timestamp="2026-01-01T00:00:00+00:00", **by_name["failing"])
    HookCompletePayload(timestamp="2026-01-01T00:00:00+00:00", **by_name["quiet"])


@pytest.mark.rule("DSP-8")
async def test_a_hook_that_blocks_is_told_of_with_its_reason() -> None:
    """An observer of hook:blocked sees that event and no other."""
    registry = HookRegistry()
    told = observed(registry, "hook:blocked")
    registry.gate("tool:pre", lambda event, data: HookResult.deny("production"), name="guard")
    await registry.emit("tool:pre", CALL)
    assert [(event, data["hook_name"], data["block_reason"]) for event, data in told] == [
        ("hook:blocked", "guard", "production")
    ]


@pytest.mark.rule("DSP-8")
async def test_hooks_are_told_of_to_observers_only_and_without_end() -> None:
    """Participants get no hook events, and the work, failures and emits of observers of hooks give none."""
    registry = HookRegistry()
    seen: list[str] = []
    told: list[str] = []
    registry.on("hook:*", noting(seen))
    registry.on("tool:pre", lambda event, data: None, name="quiet")
    registry.on("deploy:noted", noting(seen))

    @registry.observe("hook:*")
    async def teller(event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        told.append(event)
        await registry.emit("deploy:noted", {})
        raise ValueError("broken")

    await registry.emit("tool:pre", CALL)
    assert told == ["hook:start", "hook:complete"]
    assert seen == ["deploy:noted", "deploy:noted"]


@pytest.mark.rule("DSP-8")
async def test_hook_events_of_others() -> None:
    """A hook event that a program emits, as runs do, reaches its observers once, and reports nothing further."""
    registry = HookRegistry()
    told = observed(registry)
    await registry.emit("hook_start", {"hook_name": "on_run_start"})
    assert told == [("hook:start", {"hook_name": "on_run_start"})]


@pytest.mark.rule("DSP-8", "REG-5")
async def test_failing_observers_and_layers_are_told_of() -> None:
    """An observer that fails, and a layer around an operation, are hooks like any other."""
    registry = HookRegistry()
    told = observed(registry, "hook:failed")

    async def broken_observer(event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        raise ValueError("broken")

    async def broken_layer(context: Any, call_next: Any) -> None:
        raise ValueError("broken")

    registry.observe("tool:pre", broken_observer)
    registry.observe("tool:pre", broken_observer, concurrent=True, name="beside")
    registry.around("tool", broken_layer)
    await registry.emit("tool:pre", CALL)

    async def operation() -> None:
        return None

    from amplifier_hooks import ToolContext

    await registry.wrap("tool", ToolContext(tool_name="Write", tenant_id="acme"), operation)
    assert [(data["hook_name"], data["event"]) for _, data in told] == [
        ("broken_observer", "tool:pre"), ("beside", "tool:pre"), ("broken_layer", "tool"),
    ]  # fmt: skip


@pytest.mark.rule("DSP-8", "REG-5")
async def test_telling_of_hooks_does_not_delay_the_decision() -> None:
    """`decide` returns before any observer of hooks runs; `notify` runs them."""
    registry = HookRegistry()
    told = observed(registry)
    registry.on("tool:pre", lambda event, data: None, name="quiet")
    outcome = await registry.decide("tool:pre", CALL)
    assert told == []
    await registry.notify(outcome)
    assert [event for event, _ in told] == ["hook:start", "hook:complete"]


@pytest.mark.rule("REG-3", "DEF-1")
async def test_changed_at_once() -> None:
    """Changes made together are seen together, or not at all: not by an emit in the middle, not after a failure."""
    registry = HookRegistry()
    registry.gate("tool:pre", lambda event, data: HookResult.deny("no"), name="guard")
    changes: list[str] = []
    registry.watch(lambda change: changes.append(f"{change.what} {change.hook}"))
    for keep, failing in ((False, False), (True, True), (True, False)):
        with contextlib.suppress(KeyError), registry.at_once(keep=keep):
            registry.unregister("guard")
            registry.on("tool:post", lambda event, data: None, name="other")
            with contextlib.suppress(KeyError), registry.at_once():
                registry.on("tool:post", lambda event, data: None, name="inner")
                raise KeyError
            outcome = await registry.emit("tool:pre", {"session_id": "s"})  # as another thread might
            assert outcome.denied_by == "guard"
            assert registry.source_trust("guard", "tool:pre").may_inject
            if failing:
                raise KeyError
        done = keep and not failing
        assert (await registry.emit("tool:pre", {"session_id": "s"})).denied is not done
        assert changes == (["unregistered guard", "registered other"] if done else [])
    assert registry.list_handlers() == {"tool:post": ["other"]}
