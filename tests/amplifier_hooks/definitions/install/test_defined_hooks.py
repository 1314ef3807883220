import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks import HookRegistry, HookResult, Outcome, SessionCoordinator
from amplifier_hooks.definitions import (
    DefinedHooks,
    DefinitionSet,
    DefinitionSettings,
    HookDefinition,
    InvalidDefinitions,
    agent_builder,
    definition_row,
    load_files,
)
from amplifier_hooks.definitions.files.load_files import ReadyMadeEntry
from amplifier_hooks.definitions.install.defined_hooks import check_tenant_hook, is_tenant_allowed
from amplifier_hooks.definitions.kinds.agent import AgentOrder, AgentResult
from amplifier_hooks.definitions.model import NewHook
from amplifier_hooks.errors import HookRefused, TooManyHooks, UnknownEvent

CALL = {"tool_name": "Write", "session_id": "s"}


def hook(name: str, handler: str = "house:say", **said: Any) -> HookDefinition:
    """Make a definition at tool:pre whose id follows from its name."""
    number = sum(ord(letter) << (8 * place) for place, letter in enumerate(name[:5])) + 1
    said = {"hook_id": f"hook_{number:012x}", "event_type": "tool:pre", **said}
    return HookDefinition(name=name, handler_ref=handler, **said)


def install(hooks: DefinedHooks, *definitions: HookDefinition, **settings: Any) -> None:
    """Put these definitions in force."""
    found = DefinitionSet(definitions=definitions, settings=DefinitionSettings(**settings))
    hooks.install(hooks.plan(found))


@pytest.fixture
def hooks(house: ModuleType) -> DefinedHooks:
    """Install into a new registry, from a module where `say` says nothing and `fail` fails."""
    house.say = lambda event, data: None  # type: ignore[attr-defined]  # a module of this test

    def fail(event: str, data: Mapping[str, Any]) -> None:
        raise ValueError("broken")

    house.fail = fail  # type: ignore[attr-defined]  # a module of this test
    return DefinedHooks(HookRegistry(), environment={})


@pytest.mark.rule("DSP-3")
@pytest.mark.parametrize(
    ("said", "settings", "denied"),
    [
        ({"priority": 0}, {}, True),
        ({"priority": 99}, {}, True),
        ({"priority": 100}, {}, False),
        ({"priority": 1000}, {}, False),
        ({"priority": 10, "fail_mode": "open"}, {}, False),
        ({"priority": 500, "fail_mode": "closed"}, {}, True),
        ({"priority": 500}, {"hooks_fail_open_default": False}, True),
        ({"priority": 500, "fail_mode": "open"}, {"hooks_fail_open_default": False}, False),
    ],
)
async def test_what_a_failure_means(
    hooks: DefinedHooks, said: dict[str, Any], settings: dict[str, Any], denied: bool
) -> None:
    """A hook that fails denies where it says closed, or where it says nothing and its band does."""
    install(hooks, hook("a", "house:fail", **said), **settings)
    outcome = await hooks.registry.emit("tool:pre", CALL)
    assert outcome.denied is denied
    assert [answer.status for answer in outcome.answers] == ["error"]


@pytest.mark.rule("DIS-2")
async def test_a_python_hook_hides_its_output(
    hooks: DefinedHooks, house: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """A function or an object that a definition names hides its output; an observer has nothing to hide it with."""

    async def quiet(event: str, data: Mapping[str, Any]) -> HookResult:
        print("noise")  # noqa: T201  # the test's subject
        return HookResult(suppress_output=True)

    class Quiet:
        async def __call__(self, event: str, data: Mapping[str, Any]) -> HookResult:
            return await quiet(event, data)

    house.quiet, house.Quiet = quiet, Quiet  # type: ignore[attr-defined]  # a module of this test
    install(hooks, hook("a", "house:quiet"), hook("b", "house:Quiet"))
    async with SessionCoordinator(hooks.registry) as session:
        await session.emit("tool:pre", CALL)
    assert (capsys.readouterr().out, session.transcript) == ("", ())
    install(hooks, hook("a", "house:quiet", config={"mode": "async"}))
    assert len(hooks.registry.explain("tool:pre").observers) == 1


@pytest.mark.rule("DEF-4", "DEF-2")
@pytest.mark.parametrize(
    ("said", "printed", "comes_to"),
    [
        ({"priority": 10}, "checked", ("deny", ["invalid"])),
        ({"priority": 10}, 'checked\n{"action": "deny"}', ("deny", ["invalid"])),
        ({"fail_mode": "open"}, "checked", ("continue", [])),
        ({"fail_mode": "open"}, 'checked\n{"action": "deny"}', ("continue", ["invalid"])),
    ],
)
@pytest.mark.parametrize("kind", ["command", "agent"])
async def test_what_a_gate_prints_is_its_answer(
    hooks: DefinedHooks, kind: str, said: dict[str, Any], printed: str, comes_to: tuple[str, list[str]]
) -> None:
    """Text is invalid where a definition is a gate; elsewhere only where an answer is hidden in it."""

    async def run(order: AgentOrder) -> AgentResult:
        return AgentResult(run="run_1", status="completed", text=printed)

    hooks.builders = {"agent": agent_builder(SimpleNamespace(run=run))}
    config = {"argv": ["printf", "%s", printed]} if kind == "command" else {"agent": "guard"}
    install(hooks, hook("a", kind, config=config, **said))
    outcome = await hooks.registry.emit("tool:pre", CALL)
    assert (outcome.action, [answer.status for answer in outcome.answers if not answer.success]) == comes_to


@pytest.mark.rule("DSP-4", "DSP-9", "DEF-3")
@pytest.mark.parametrize(
    ("definition", "settings", "timeout", "shared"),
    [
        (hook("a"), {}, 0.2, 0.5),
        (hook("a", timeout_ms=1500), {}, 1.5, 0.5),
        (hook("a"), {"hooks_default_timeout_ms": 50, "hooks_chain_timeout_ms": 300}, 0.05, 0.3),
        (hook("a", "command", config={"argv": ["true"]}), {}, 60.0, None),
        (hook("a", "http", config={"url": "https://example.com/"}), {}, 10.0, None),
        (hook("a", "agent"), {}, 300.0, None),
    ],
)
def test_how_long_a_hook_has(
    hooks: DefinedHooks, definition: HookDefinition, settings: dict[str, Any], timeout: float, shared: float | None
) -> None:
    """A hook's time is its own, or that of its kind; python hooks share the time of their chain besides."""
    hooks.builders = {"agent": lambda definition, around: lambda event, data: None}
    install(hooks, definition, **settings)
    [one] = hooks.registry.hooks()
    assert one.timeout == timeout
    assert (one.budget.definitions if one.budget else None) == shared
    assert definition_row(definition, hooks.in_force or DefinitionSet())["timeout_ms"] == timeout * 1000


@pytest.mark.rule("DEF-1")
def test_a_set_takes_the_place_of_the_last_one(hooks: DefinedHooks) -> None:
    """An installation adds new hooks, removes missing ones and replaces changed ones; the program's own hooks stay."""
    registry = hooks.registry
    registry.on("tool:pre", lambda event, data: None, name="code")
    changes: list[Any] = []
    registry.watch(changes.append)
    install(hooks, hook("a"), hook("b"), hook("c", "house:say", priority=5))
    assert registry.list_handlers("tool:pre")["tool:pre"] == ["code", "c", "a", "b"]
    definitions = map(hooks.definition_of, registry.hooks())
    assert [one.name if one else None for one in definitions] == [None, "a", "b", "c"]
    changes.clear()
    plan = hooks.plan(DefinitionSet(definitions=(hook("d"), hook("b"), hook("a", matcher="Write"))))
    assert not changes
    assert str(hooks.install(plan)) == "1 added, 1 changed, 1 removed"
    assert registry.list_handlers("tool:pre")["tool:pre"] == ["code", "d", "b", "a"]
    assert {(one.what, one.hook) for one in changes} == {
        ("unregistered", "a"), ("unregistered", "c"), ("registered", "d"), ("registered", "a"),
        ("defined", "d"), ("redefined", "a"), ("undefined", "c"),
    }  # fmt: skip
    details = {one.what: one.detail for one in changes if one.what.endswith("defined")}
    assert details["undefined"].endswith(" → nothing")
    assert len(set(details["redefined"].split(" → "))) == 2


names = st.lists(st.sampled_from("abcd"), unique=True, max_size=4)
sets = st.lists(st.tuples(names, st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3))), min_size=1, max_size=5)


@pytest.mark.rule("DEF-1", "REG-2")
@given(sets)
def test_replacing_is_like_starting_anew(history: list[tuple[list[str], dict[str, int]]]) -> None:
    """After any number of sets a registry has the hooks, in the order, of one that only knew the last."""
    module = ModuleType("house")
    module.say = lambda event, data: None  # type: ignore[attr-defined]  # a module of this test
    sys.modules["house"] = module
    worn, fresh = DefinedHooks(HookRegistry()), DefinedHooks(HookRegistry())
    definitions: list[HookDefinition] = []
    for order, priorities in history:
        definitions = [hook(name, priority=priorities.get(name, 1)) for name in order]
        install(worn, *definitions)
    install(fresh, *definitions)
    del sys.modules["house"]
    assert worn.registry.list_handlers() == fresh.registry.list_handlers()
    assert [one.name for one in worn.hooks()] == [one.name for one in definitions]


@pytest.mark.rule("DEF-1")
def test_nothing_is_half_installed(hooks: DefinedHooks) -> None:
    """If one hook of a set is refused, all registrations stay as they were, and no change is reported."""
    registry = hooks.registry = HookRegistry(strict_events=True)
    install(hooks, hook("a"))
    changes: list[Any] = []
    registry.watch(changes.append)
    plan = hooks.plan(DefinitionSet(definitions=(hook("b"),)))
    wrong = DefinitionSet(definitions=(hook("b"), hook("c", event_type="acme:unknown")))
    with pytest.raises(InvalidDefinitions, match="unknown event 'acme:unknown'"):
        hooks.plan(wrong)
    registry.declare("acme:unknown")
    changes.clear()
    later = hooks.plan(wrong)
    registry._vocabulary._declarations.clear()
    with pytest.raises(UnknownEvent):
        hooks.install(later)
    assert not changes
    assert registry.list_handlers() == {"tool:pre": ["a"]}
    hooks.install(plan)
    assert registry.list_handlers() == {"tool:pre": ["b"]}


@pytest.mark.rule("DEF-1")
def test_what_did_not_change_stays_as_it_is(hooks: DefinedHooks) -> None:
    """A hook that is switched off or in quarantine stays so when another hook changes."""
    install(hooks, hook("a"), hook("b"))
    hooks.registry.disable("a")
    before = hooks.registry.hooks()
    install(hooks, hook("b", priority=7), hook("a"))
    after = {one.name: one for one in hooks.registry.hooks()}
    assert after["a"] in before
    assert not after["a"].enabled
    assert after["b"] not in before
    install(hooks, hook("a", priority=7))
    assert [one.enabled for one in hooks.registry.hooks()] == [True]


@pytest.mark.rule("REG-9", "TEN-1")
def test_too_many_hooks_at_one_event(hooks: DefinedHooks) -> None:
    """The limit counts for each tenant by itself, is a setting, and a set beyond it is refused as a whole."""
    mine = [hook(f"a{number}", "house:say") for number in range(3)]
    theirs = [hook(f"b{number}", "house:say", tenant_id="acme") for number in range(2)]
    hooks.tenant_handlers = {"house:say"}
    install(hooks, *mine[:2], *theirs, hooks_max_per_event=2)
    with pytest.raises(InvalidDefinitions, match=r"hook a2: tool:pre already has 2 hooks from definitions"):
        install(hooks, *mine, hooks_max_per_event=2)
    assert len(hooks.registry.hooks()) == 4
    install(hooks, *mine, hooks_max_per_event=3)
    assert len(hooks.registry.hooks()) == 3


@pytest.mark.rule("REG-9", "DEF-3")
def test_the_limit_is_that_of_the_set_in_force(hooks: DefinedHooks) -> None:
    """A set may bring more hooks than the registry had allowed before; from then on its limit holds for all."""
    many = [hook(f"a{number:02}") for number in range(25)]
    with pytest.raises(InvalidDefinitions, match="already has 20 hooks"):
        install(hooks, *many)
    install(hooks, *many, hooks_max_per_event=25)
    with pytest.raises(TooManyHooks):
        hooks.registry.on("tool:pre", lambda event, data: None, source="definition")


@pytest.mark.rule("DEF-3")
def test_a_setting_changes_the_hooks_it_is_about(hooks: DefinedHooks) -> None:
    """A hook whose time or failure follows from a setting follows it when that changes; others stay as they are."""
    install(hooks, hook("a", "house:fail", priority=500))
    before = hooks.registry.hooks()
    install(hooks, hook("a", "house:fail", priority=500), hooks_max_per_event=3)
    assert hooks.registry.hooks() == before
    install(hooks, hook("a", "house:fail", priority=500), hooks_default_timeout_ms=10, hooks_fail_open_default=False)
    assert [(one.timeout, one.intent) for one in hooks.registry.hooks()] == [(0.01, "gate")]


@pytest.mark.rule("DEF-1")
def test_what_is_switched_off_is_left_out(hooks: DefinedHooks) -> None:
    """A definition that is not enabled is not registered, and not looked at; those after it are."""
    install(hooks, hook("off", "nowhere:x", enabled=False), hook("on"))
    assert [one.name for one in hooks.registry.hooks()] == ["on"]


@pytest.mark.rule("DEF-1")
def test_what_cannot_be_built_has_its_line(hooks: DefinedHooks, tmp_path: Path) -> None:
    """A handler, a config and a ready-made hook's settings that cannot be used are shown where they were written."""
    path = tmp_path / "hooks.yaml"
    library = "version: 1\nlibrary:\n  rate_limit:\n    calls: 1\n"
    path.write_text(
        f"{library}  absent:\nhooks:\n"
        "- name: a\n  event_type: tool:pre\n  handler_ref: house:absent\n"
        "- name: b\n  event_type: tool:pre\n  handler_ref: command\n  config:\n    argv:\n    - sh\n    - 3\n"
    )
    with pytest.raises(InvalidDefinitions) as refused:
        hooks.plan(load_files(path, environment={}))
    assert [(flaw.spot.path, flaw.spot.line) for flaw in refused.value.flaws] == [
        (str(path), 5), (str(path), 9), (str(path), 16),
    ]  # fmt: skip
    path.write_text(
        f"{library}hooks:\n- {{name: c, event_type: tool:pre, handler_ref: command, config: {{argv: [./c]}}}}\n"
    )
    hooks.install(hooks.plan(load_files(path, environment={})))
    path.write_text(f"# moved\n{path.read_text()}")
    plan = hooks.plan(load_files(path, environment={}))
    assert str(hooks.install(plan)) == "0 added, 0 changed, 0 removed"
    assert [(one.name, one.spot.line) for one in plan.prepared] == [("rate_limit", 4), ("c", 7)]
    assert [warning.spot.line for warning in plan.warnings] == [7]


@pytest.mark.rule("DEF-3")
def test_nothing_runs_where_hooks_are_off(hooks: DefinedHooks) -> None:
    """With hooks_enabled false no hook is registered, and what they name is not even imported."""
    install(hooks, hook("a"))
    install(hooks, hook("a"), hook("b", "nowhere.at.all:x"), hooks_enabled=False)
    assert hooks.registry.hooks() == ()


@pytest.mark.rule("DEF-1", "DEF-2")
@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"handler": "house:absent"}, "module 'house' has no 'absent'"),
        ({"handler": "no.where"}, "there is no module 'no'"),
        ({"handler": "command"}, "'argv' is missing; add it"),
        ({"handler": "command", "config": {"argv": []}}, "'argv': list should have"),
        ({"handler": "command", "config": {"argv": ["a"], "pass_env": ["NOPE"]}}, "the variable 'NOPE' is not set"),
        ({"handler": "command", "config": {"argv": ["a"], "shell": True}}, "unknown key 'shell'; known are mode, argv"),
        ({"handler": "http", "config": {"url": "http://example.com/"}}, "its scheme is 'http'"),
        ({"handler": "http", "config": {"url": "https://a.b/", "secret_env": "NOPE"}}, "variable 'NOPE' is not set"),
        ({"handler": "http", "config": {"url": "https://a.b/", "secret": "x"}}, "webhook secret 1"),
        ({"handler": "http", "config": {"url": "https://a.b/", "networks": ["x"]}}, "'x' does not appear to be"),
        ({"handler": "agent"}, "nothing here carries out agent hooks"),
        ({"config": {"mode": "later"}}, "mode 'later': write 'async', or leave it out"),
        ({"config": {"a": 1}}, "is no class, so nothing takes its config"),
        ({"handler": "rate_limit", "event_type": "llm:pre"}, "'rate_limit' is not at llm:pre; it is at tool:pre"),
        ({"tenant_id": "acme"}, "handler_ref 'house:say' is not for tenant 'acme'"),
    ],
)  # fmt: skip
def test_what_cannot_be_built(hooks: DefinedHooks, said: dict[str, Any], problem: str) -> None:
    """A set with a hook that cannot be built is refused, and says which and why; what was in force stays."""
    install(hooks, hook("a"))
    with pytest.raises(InvalidDefinitions) as refused:
        hooks.plan(DefinitionSet(definitions=(hook("a"), hook("b", **said))))
    [flaw] = refused.value.flaws
    assert flaw.spot.path == "hook b"
    assert problem in flaw.said
    assert [one.name for one in hooks.registry.hooks()] == ["a"]


@pytest.mark.rule("TEN-1")
async def test_a_hook_that_cannot_be_built_fails_alone(hooks: DefinedHooks) -> None:
    """In a tolerant plan, a hook that cannot be built fails: a closed one denies, and other hooks are unaffected."""
    hooks.tenant_handlers = {"house:say", "house:absent", "nowhere:x"}
    found = DefinitionSet(
        definitions=(
            hook("closed", "house:absent", priority=1, tenant_id="acme"),
            hook("open", "nowhere:x", tenant_id="other"),
            hook("ours"),
        )
    )
    plan = hooks.plan(found, tolerant=True)
    assert [flaw.spot.path for flaw in plan.broken] == ["hook closed", "hook open"]
    hooks.install(plan)
    said = {}
    for tenant in ("acme", "other", "third"):
        outcome = await hooks.registry.emit("tool:pre", {**CALL, "tenant_id": tenant})
        said[tenant] = (outcome.denied, [answer.status for answer in outcome.answers])
    assert said == {"acme": (True, ["unavailable"]), "other": (False, ["unavailable"]), "third": (False, [])}
    before = hooks.registry.hooks()
    hooks.install(hooks.plan(found, tolerant=True))
    assert hooks.registry.hooks() == before
    outcome = await hooks.registry.emit("tool:pre", {**CALL, "tenant_id": "acme"})
    assert "has no 'absent'" in str(outcome.answers[0].error)
    sys.modules["house"].absent = lambda event, data: None  # type: ignore[attr-defined]  # a module of this test
    assert str(hooks.install(hooks.plan(found, tolerant=True))) == "0 added, 1 changed, 0 removed"
    assert not (await hooks.registry.emit("tool:pre", {**CALL, "tenant_id": "acme"})).denied


@pytest.mark.rule("DEF-2", "DEF-4")
async def test_a_command_from_a_definition(hooks: DefinedHooks, tmp_path: Path) -> None:
    """A command runs in the folder of its set, with the variables it names, and its exit status decides."""
    script = tmp_path / "guard.sh"
    script.write_text('#!/bin/sh\necho "$WHO $HOUSE" >&2\nexit 2\n')
    script.chmod(0o755)
    hooks.environment = {"HOUSE": "ours"}
    config = {"argv": ["./guard.sh"], "env": {"WHO": "guard of"}, "pass_env": ["HOUSE"]}
    found = DefinitionSet(definitions=(hook("a", "command", config=config),), folder=tmp_path)
    plan = hooks.plan(found)
    hooks.install(plan)
    outcome = await hooks.registry.emit("tool:pre", CALL)
    assert (outcome.denied, outcome.reason) == (True, "guard of ours")
    assert plan.warnings == ()
    script.unlink()
    [warning] = hooks.plan(evolve(found, definitions=(hook("b", "command", config=config),))).warnings
    assert "is not there" in warning.said


@pytest.mark.rule("DEF-1", "DEF-4", "APR-13")
async def test_a_risk_from_a_definition(hooks: DefinedHooks, tmp_path: Path) -> None:
    """A definition says how risky its questions are, and a command may say it too: both reasons are there."""
    answer = '{"action": "ask_user", "approval_prompt": "Send?", "risk": "high", "risk_reason": "a new host"}'
    (tmp_path / "hooks.yaml").write_text(
        "version: 1\nhooks:\n"
        f"- {{name: egress, event_type: tool:pre, handler_ref: command, config: {{argv: [echo, '{answer}']}},\n"
        "   risk: high, risk_reason: it leaves this machine}\n"
        "- {name: paths, event_type: tool:pre, handler_ref: protected_paths, risk: low,\n"
        "   config: {paths: ['**/.env'], action: ask}}\n"
    )
    plan = hooks.plan(load_files(tmp_path / "hooks.yaml"))
    assert plan.warnings == ()
    hooks.install(plan)
    asked = await hooks.registry.emit("tool:pre", {**CALL, "tool_name": "Write", "tool_input": {"file_path": ".env"}})
    assert sorted(ask.hook_name for ask in asked.asks) == ["egress", "paths"]
    assert (asked.risk, asked.risk_reason) == ("high", "it leaves this machine\na new host")
    assert ("paths", "low") in {(one.by, one.risk) for one in asked.assessments}
    row = definition_row(plan.found.definitions[0], plan.found)
    assert row["risk"] == "high"


@pytest.mark.rule("DEF-1", "APR-13")
@pytest.mark.parametrize(
    "said",
    [
        {"handler": "house:Pointed", "event_type": "tool:post"},
        {"handler": "house:Wrapper", "event_type": "tool:post"},
        {"handler": "command", "event_type": "tool:pre", "config": {"argv": ["true"], "mode": "async"}},
    ],
    ids=["observer", "layer", "background"],
)
def test_a_risk_where_nothing_is_asked(hooks: DefinedHooks, house: ModuleType, said: dict[str, Any]) -> None:
    """A risk is refused where its hook can ask nothing; a hook that asks at another of its points may have one."""
    house.Pointed, house.Wrapper = Pointed, Wrapper  # type: ignore[attr-defined]
    with pytest.raises(InvalidDefinitions, match="risk is that of a question"):
        install(hooks, hook("a", risk="high", **said))
    install(hooks, hook("a", "house:Pointed", event_type="tool:*", risk="high"))
    assert {(one.intent, one.risk) for one in hooks.registry.hooks()} == {
        ("gate", "high"),
        ("on", "high"),
        ("observe", None),
    }


@pytest.mark.rule("DEF-2")
def test_a_service_from_a_definition(hooks: DefinedHooks) -> None:
    """A web service is asked with the secrets and headers that variables hold, within what the operator allows."""
    hooks.environment = {"ONE": "whsec_b25l", "KEY": "k"}
    config = {
        "url": "http://127.0.0.1:8080/hook",
        "secret": ["whsec_dHdv"],
        "secret_env": "ONE",
        "headers_env": {"X-Key": "KEY"},
        "networks": ["127.0.0.0/8"],
        "ports": [8080],
        "plain_http": True,
    }
    install(hooks, hook("a", "http", config=config, timeout_ms=3000))
    [one] = hooks.registry.hooks()
    service = one.handler.func  # type: ignore[attr-defined]  # what is called there is a service
    assert service.secrets == ("whsec_dHdv", "whsec_b25l")
    assert (service.headers, service.retry_within) == ({"X-Key": "k"}, 3.0)
    assert one.trust_level == "external"


class Runs:
    """Starts agents that deny, and notes which."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.launched = asyncio.Event()

    async def run(self, order: AgentOrder) -> AgentResult:
        """Run one to its end."""
        self.started.append(f"run {order.agent} of {order.owner!r} for {order.tenant}")
        return AgentResult(run="r", status="completed", data={"action": "deny", "reason": "the agent says no"})

    async def launch(self, order: AgentOrder) -> str:
        """Only start one."""
        self.started.append(f"launch {order.agent}")
        self.launched.set()
        return "r"


@pytest.mark.rule("DEF-2")
async def test_an_agent_from_a_definition(hooks: DefinedHooks) -> None:
    """The host's runs start an agent, whose answer counts; an agent that only observes is started without waiting."""
    runs = Runs()
    hooks.builders = {"agent": agent_builder(runs)}
    install(
        hooks,
        hook("guard", "agent", config={"agent": "auditor"}),
        hook("watch", "agent", config={"agent": "scribe", "mode": "async"}),
    )
    outcome = await hooks.registry.emit("tool:pre", {**CALL, "tenant_id": "acme"})
    assert (outcome.denied, outcome.reason) == (True, "the agent says no")
    await asyncio.wait_for(runs.launched.wait(), 60)
    assert runs.started == ["run auditor of '' for acme", "launch scribe"]
    with pytest.raises(InvalidDefinitions, match="'agent' is missing"):
        install(hooks, hook("guard", "agent"))


@pytest.mark.rule("DEF-2")
async def test_an_observer_that_nobody_waits_for(hooks: DefinedHooks, house: ModuleType) -> None:
    """With `mode: async` the event goes on at once, a failure changes nothing, and closing ends what still runs."""
    begun, ended = asyncio.Event(), []

    async def slow(event: str, data: Mapping[str, Any]) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(data["tool_name"])

    house.slow = slow  # type: ignore[attr-defined]  # a module of this test
    install(
        hooks,
        hook("slow", "house:slow", config={"mode": "async"}, timeout_ms=5000),
        hook("fails", "house:fail", config={"mode": "async"}, priority=0),
    )
    assert {one.intent for one in hooks.registry.hooks()} == {"observe"}
    outcome = await hooks.registry.emit("tool:pre", CALL)
    assert not outcome.denied
    await asyncio.wait_for(begun.wait(), 60)
    assert ended == []
    await hooks.close()
    assert ended == ["Write"]
    assert hooks.registry.hooks() == ()
    await hooks.close()


@pytest.mark.rule("DEF-2", "DSP-4")
async def test_what_nobody_waits_for_has_its_time(
    hooks: DefinedHooks, house: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    """Also in the background a hook has no more than its time, and what becomes of it is in the log."""
    ended = asyncio.Event()

    async def slow(event: str, data: Mapping[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    house.slow = slow  # type: ignore[attr-defined]  # a module of this test
    install(hooks, hook("slow", "house:slow", config={"mode": "async"}, timeout_ms=10))
    await hooks.registry.emit("tool:pre", CALL)
    await asyncio.wait_for(ended.wait(), 60)
    await hooks.close()
    assert "hook_failed" in caplog.text


@pytest.mark.rule("DEF-2", "TEN-1")
async def test_what_nobody_waits_for_is_bounded(hooks: DefinedHooks, house: ModuleType) -> None:
    """So many of one tenant run at once in the background; one more is dropped, and others notice nothing."""
    started = []

    async def slow(event: str, data: Mapping[str, Any]) -> None:
        started.append(event)
        await asyncio.Event().wait()

    house.slow = slow  # type: ignore[attr-defined]  # a module of this test
    hooks.background.at_once = 2
    hooks.tenant_handlers = {"house:slow"}
    mode = {"mode": "async"}
    install(
        hooks,
        hook("theirs", "house:slow", config=mode, timeout_ms=5000, tenant_id="acme"),
        hook("others", "house:slow", config=mode, timeout_ms=5000, tenant_id="other"),
    )
    for tenant in ("acme", "acme", "acme", "other"):
        await hooks.registry.emit("tool:pre", {**CALL, "tenant_id": tenant})
    await asyncio.sleep(0)
    assert (len(started), len(hooks.background), hooks.background.dropped) == (3, 3, 1)
    await hooks.close()


class Wrapper:
    """A hook object."""

    name, event_type, priority, enabled = "own", "other:event", 0, True

    async def execute(self, context: Any, call_next: Any) -> Any:
        """Change the payload."""
        context.data["tool_input"] = {"path": "changed"}


@pytest.mark.rule("REG-11", "DEF-2")
async def test_a_hook_object_from_a_definition(hooks: DefinedHooks, house: ModuleType) -> None:
    """An object with `execute` stands at the event, under the name and with the priority of its definition."""
    house.Wrapper = Wrapper  # type: ignore[attr-defined]  # a module of this test
    install(hooks, hook("a", "house:Wrapper", event_type="prompt:submit", priority=3))
    [one] = hooks.registry.hooks()
    assert (one.name, one.event, one.priority, one.intent) == ("a", "prompt:submit", 3, "gate")
    install(hooks, hook("a", "house:Wrapper", event_type="tool:pre"))
    [one] = hooks.registry.hooks()
    assert (one.intent, one.event) == ("on", "tool:pre")
    install(hooks, hook("a", "house:Wrapper", event_type="tool:post"))
    [one] = hooks.registry.hooks()
    assert (one.intent, one.event) == ("around", "tool:post")


@pytest.mark.rule("DEF-1", "LIB-6")
async def test_a_ready_made_hook(hooks: DefinedHooks) -> None:
    """A ready-made hook is switched on by name with its settings, at all its points, and replaced when they change."""

    def found(**config: Any) -> DefinitionSet:
        return DefinitionSet(library=(ReadyMadeEntry(name="rate_limit", config=config),))

    hooks.install(hooks.plan(found(calls=1)))
    before = hooks.registry.hooks()
    assert {(one.name, one.tier) for one in before} == {("rate_limit", "built-in")}
    assert {hooks.definition_of(one) for one in before} == {None}
    assert str(hooks.install(hooks.plan(found(calls=1)))) == "0 added, 0 changed, 0 removed"
    assert hooks.registry.hooks() == before
    version = hooks.registry.version_of("rate_limit")
    assert str(hooks.install(hooks.plan(found(calls=2)))) == "0 added, 1 changed, 0 removed"
    assert hooks.registry.version_of("rate_limit") != version
    with pytest.raises(InvalidDefinitions, match="unknown key 'cals'; did you mean 'calls'"):
        hooks.plan(found(cals=1))
    with pytest.raises(InvalidDefinitions, match="no installed package has a hook called 'absent'"):
        hooks.plan(DefinitionSet(library=(ReadyMadeEntry(name="absent", config={}),)))


@pytest.mark.rule("DEF-1", "LIB-2")
async def test_a_ready_made_hook_is_closed(hooks: DefinedHooks, tmp_path: Path) -> None:
    """A hook that does not stand any more lets go of what it holds open: one that was replaced, and all at the end."""

    def install_ledger(name: str) -> None:
        config = {"store": str(tmp_path / name)}
        hooks.install(hooks.plan(DefinitionSet(library=(ReadyMadeEntry(name="tool_ledger", config=config),))))

    async def written() -> None:
        call = {"session_id": "s", "tool_name": "Write", "tool_call_id": "c", "tool_input": {}}
        await hooks.registry.emit("tool:pre", call)

    def opened() -> set[str]:
        links = (os.path.realpath(link) for link in Path("/proc/self/fd").iterdir())
        return {Path(link).name for link in links if link.startswith(os.path.realpath(tmp_path))}

    install_ledger("one.db")
    await written()
    assert opened() == {"one.db"}
    install_ledger("one.db")
    await written()
    install_ledger("two.db")
    await written()
    async with asyncio.timeout(60):
        while opened() != {"two.db"}:  # noqa: ASYNC110  # the system sets no event
            await asyncio.sleep(0)
    await hooks.close()
    await hooks.close()
    assert opened() == set()


@pytest.mark.rule("DEF-1")
def test_a_ready_made_hook_at_one_of_its_points(hooks: DefinedHooks) -> None:
    """A definition that names a ready-made hook takes the points at its event; a gate stays one unless it says open."""
    install(hooks, hook("a", "rate_limit", config={"calls": 1}, event_type="tool:pre"))
    assert {(one.name, one.event, one.intent) for one in hooks.registry.hooks()} == {("a", "tool:pre", "gate")}
    install(hooks, hook("a", "rate_limit", config={"calls": 1}, event_type="tool:pre", fail_mode="open"))
    assert {one.intent for one in hooks.registry.hooks()} == {"on"}


@pytest.mark.fault("F-API-09")
def test_a_changed_definition_is_another_version(hooks: DefinedHooks) -> None:
    """An approval for one version of a definition does not hold for the next version."""
    install(hooks, hook("a"))
    before = hooks.registry.version_of("a")
    install(hooks, hook("a"))
    assert hooks.registry.version_of("a") == before
    install(hooks, hook("a", matcher="Write"))
    assert hooks.registry.version_of("a") != before


@pytest.mark.fault("F-API-10")
@pytest.mark.rule("REG-3")
@pytest.mark.parametrize(("gone", "denied"), [("deleted", True), ("switched off", False)])
async def test_a_set_that_changes_during_an_emit(
    hooks: DefinedHooks, house: ModuleType, gone: str, denied: bool
) -> None:
    """A hook that is deleted has its say in the emit that runs, one that is switched off has not; then neither has."""
    guard = hook("guard", "house:guard", priority=50)

    async def meanwhile(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        later = () if gone == "deleted" else (guard.model_copy(update={"enabled": False}),)
        install(hooks, *later)

    house.meanwhile = meanwhile  # type: ignore[attr-defined]  # a module of this test
    house.guard = lambda event, data: HookResult.deny("no")  # type: ignore[attr-defined]  # a module of this test
    install(hooks, hook("first", "house:meanwhile", priority=40), guard)
    assert (await hooks.registry.emit("tool:pre", CALL)).denied is denied
    assert not (await hooks.registry.emit("tool:pre", CALL)).denied


@pytest.mark.rule("TEN-1")
async def test_two_tenants_and_the_system(hooks: DefinedHooks, house: ModuleType) -> None:
    """System hooks come first at equal priority, and a tenant's failing and slow hooks are its own affair."""
    seen: list[str] = []

    class Note:
        def __init__(self, text: str) -> None:
            self.text = text

        def __call__(self, event: str, data: Mapping[str, Any]) -> None:
            seen.append(self.text)

    async def hang(event: str, data: Mapping[str, Any]) -> None:
        await asyncio.Event().wait()

    house.Note, house.hang = Note, hang  # type: ignore[attr-defined]
    hooks.tenant_handlers = {"house:Note", "house:fail", "house:hang"}
    install(
        hooks,
        hook("theirs", "house:Note", config={"text": "acme"}, tenant_id="acme"),
        hook("system", "house:Note", config={"text": "system"}),
        hook("fails", "house:fail", tenant_id="acme", priority=0),
        hook("hangs", "house:hang", tenant_id="acme", priority=600, timeout_ms=10),
        hook("others", "house:Note", config={"text": "other"}, tenant_id="other", priority=101),
    )
    outcomes: dict[str, Outcome] = {}
    for tenant in ("acme", "other"):
        seen.append(f"{tenant}:")
        outcomes[tenant] = await hooks.registry.emit("tool:pre", {**CALL, "tenant_id": tenant})
    assert outcomes["acme"].denied_by == "fails"
    assert not outcomes["other"].denied
    assert seen == ["acme:", "other:", "system", "other"]
    assert [answer.status for answer in outcomes["other"].answers] == []
    install(hooks, *(one for one in (hooks.in_force or DefinitionSet()).definitions if one.name != "fails"))
    seen.clear()
    outcome = await hooks.registry.emit("tool:pre", {**CALL, "tenant_id": "acme"})
    assert seen == ["system", "acme"]
    assert [(answer.hook_name, answer.status) for answer in outcome.answers] == [("hangs", "timeout")]


@pytest.mark.rule("DEF-1")
def test_a_row_for_a_list(hooks: DefinedHooks) -> None:
    """A row of a list shows the band of a definition, and the defaults of all fields that it leaves out."""
    row = definition_row(hook("a", priority=60, matcher="Write"), DefinitionSet())
    assert {key: row[key] for key in ("name", "band", "fail_mode", "timeout_ms", "kind", "matcher", "where")} == {
        "name": "a", "band": "governance", "fail_mode": "closed", "timeout_ms": 200, "kind": "python",
        "matcher": "Write", "where": "hook a",
    }  # fmt: skip


@pytest.mark.rule("EVT-5", "DEF-1")
@pytest.mark.parametrize("priority", [10, 500])
def test_an_unknown_event(hooks: DefinedHooks, priority: int) -> None:
    """A definition at an unknown event is refused, gate or not, and one at an event the host declared is not."""
    wrong = DefinitionSet(
        definitions=(
            hook("a", event_type="tool:pree", priority=priority),
            hook("b", event_type="acme:go", priority=priority),
        )
    )
    with pytest.raises(InvalidDefinitions) as refused:
        hooks.plan(wrong)
    remedy = "name it under 'events' in a file of hooks, or declare it where the registry is made"
    assert [flaw.said for flaw in refused.value.flaws] == [
        f"unknown event 'tool:pree', so the hook 'a' would never run: did you mean 'tool:pre'? If not, {remedy}",
        f"unknown event 'acme:go', so the hook 'b' would never run: {remedy}",
    ]
    hooks.registry.declare("acme:go")
    install(hooks, hook("b", event_type="acme:go", priority=priority))


@pytest.mark.rule("EVT-5", "DEF-1")
async def test_events_that_a_set_names(hooks: DefinedHooks) -> None:
    """An event that a set names as the program's own is known as long as a set in force names it, also to its gates."""
    registry = hooks.registry = HookRegistry(strict_events=True)
    other = DefinedHooks(registry, environment={})
    found = DefinitionSet(
        definitions=(hook("a", "house:fail", event_type="acme:go", priority=10),), events=("acme:go",)
    )
    hooks.plan(found)
    with pytest.raises(UnknownEvent):
        await registry.emit("acme:go", {})
    hooks.install(hooks.plan(found))
    other.install(other.plan(DefinitionSet(events=("acme:go",))))
    assert (await registry.emit("acme:go", {})).denied
    hooks.install(hooks.plan(DefinitionSet()))
    registry.gate("acme:go", lambda event, data: HookResult.deny("no"), name="code")
    assert (await registry.emit("acme:go", {})).reason == "no"
    registry.unregister("code")
    await other.close()
    await hooks.close()
    with pytest.raises(UnknownEvent):
        registry.gate("acme:go", lambda event, data: None)


CALLED: list[str] = []


class Pointed:
    """A hook at three points: it watches, guards and wraps."""

    def points(self) -> tuple[SimpleNamespace, ...]:
        """Where it is."""

        async def call(*arguments: Any) -> None:
            CALLED.append(arguments[0])

        shared = {"call": call, "priority": 1, "match": "Read", "timeout": 3.0}
        return (
            SimpleNamespace(event="PreToolUse", intent="gate", recheck=False, **shared),
            SimpleNamespace(event="tool:post", intent="observe", **shared),
            SimpleNamespace(event="tool:pre", intent="on", **shared),
        )


@pytest.mark.rule("DEF-2", "DSP-3")
@pytest.mark.parametrize(
    ("said", "registered"),
    [
        ({"event_type": "tool:pre"}, [("tool:pre", "gate", "Read"), ("tool:pre", "on", "Read")]),
        ({"event_type": "tool:pre", "matcher": "Write"}, [("tool:pre", "gate", "Write"), ("tool:pre", "on", "Write")]),
        ({"event_type": "tool:pre", "priority": 5}, [("tool:pre", "gate", "Read"), ("tool:pre", "gate", "Read")]),
        ({"event_type": "tool:pre", "fail_mode": "open"}, [("tool:pre", "on", "Read"), ("tool:pre", "on", "Read")]),
        ({"event_type": "tool:post"}, [("tool:post", "observe", "Read")]),
        (
            {"event_type": "tool:*"},
            [("tool:pre", "gate", "Read"), ("tool:post", "observe", "Read"), ("tool:pre", "on", "Read")],
        ),
    ],
)
async def test_points_of_a_hook(
    hooks: DefinedHooks, house: ModuleType, said: dict[str, Any], registered: list[tuple[str, str, str]]
) -> None:
    """Of a hook with points those at the definition's event count, with its priority, its time and its matcher."""
    house.Pointed = Pointed  # type: ignore[attr-defined]  # a module of this test
    install(hooks, hook("a", "house:Pointed", **said))
    found = hooks.registry.hooks()
    assert [(one.event, one.intent, one.match.spec if one.match else "") for one in found] == registered
    assert {(one.given_name, one.priority, one.timeout) for one in found} == {("a", said.get("priority", 100), 0.2)}
    assert not (found[0].intent == "gate" and found[0].recheck)
    CALLED.clear()
    await hooks.registry.emit(found[0].event, {**CALL, "tool_name": said.get("matcher", "Read")})
    assert [event for event, _, _ in registered if event == found[0].event] == CALLED


@pytest.mark.rule("DEF-2")
@pytest.mark.parametrize("event", ["tool:post", "tool:pre"])
def test_who_is_told_anyway_is_no_background_hook(hooks: DefinedHooks, house: ModuleType, event: str) -> None:
    """An observer, and a hook object that waits for an operation, cannot run in the background as well."""
    house.Pointed, house.Wrapper = Pointed, Wrapper  # type: ignore[attr-defined]
    name = "house:Pointed" if event == "tool:post" else "house:Wrapper"
    with pytest.raises(InvalidDefinitions, match="mode async: "):
        install(hooks, hook("a", name, event_type=event, config={"mode": "async"}))


class Broken(Wrapper):
    """A hook object that fails before it calls on."""

    async def execute(self, context: Any, call_next: Any) -> Any:
        """Fail."""
        raise ValueError("broken")


@pytest.mark.rule("DSP-3", "REG-11")
@pytest.mark.parametrize(("priority", "denied"), [(10, True), (200, False)])
async def test_an_object_that_fails(hooks: DefinedHooks, house: ModuleType, priority: int, denied: bool) -> None:
    """A hook object that fails before an operation denies it where its band fails closed, and is skipped where not."""
    house.Broken = Broken  # type: ignore[attr-defined]  # a module of this test
    install(hooks, hook("a", "house:Broken", priority=priority))
    session = SessionCoordinator(hooks=hooks.registry)
    assert (await session.call_tool("Read", {}, lambda _: "read")).denied is denied


@pytest.mark.rule("REG-11")
async def test_a_hook_object_may_be_off(hooks: DefinedHooks, house: ModuleType) -> None:
    """A hook object that says it is not enabled is passed by, also as part of a definition."""

    class Off(Broken):
        enabled = False

    house.Off = Off  # type: ignore[attr-defined]  # a module of this test
    install(hooks, hook("a", "house:Off", event_type="prompt:submit", priority=0))
    assert not (await hooks.registry.emit("prompt:submit", {"session_id": "s", "prompt": "p"})).denied


def new_hook(**said: Any) -> NewHook:
    """Make a web service's hook, of which some is said."""
    return NewHook(**{"name": "a", "event_type": "tool:pre", "handler_ref": "http", **said})


@pytest.mark.rule("TEN-1", "TRU-1")
@pytest.mark.fault("F-API-03", "F-API-04", "F-API-05")
@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"event_type": "llm:post"}, "privileged_hooks"),
        ({"event_type": "onModelResponse"}, "privileged_hooks"),
        ({"event_type": "context:*"}, "privileged_hooks"),
        ({"event_type": "llm:pre"}, "privileged_hooks"),
        ({"event_type": "model"}, "privileged_hooks"),
        ({"event_type": "*"}, "privileged_hooks"),
        ({"handler_ref": "command", "config": {"argv": ["true"]}}, "handler_ref"),
        ({"handler_ref": "os:system"}, "handler_ref"),
        ({"handler_ref": "agent"}, "handler_ref"),
        ({"matcher": "re:(a+)+$"}, "matcher"),
        ({"config": {"url": "https://a.example", "networks": ["10.0.0.0/8"]}}, "config.networks"),
        ({"config": {"secret_env": "DATABASE_URL"}}, "config.secret_env"),
    ],
)
def test_what_a_tenant_may_not_have(said: dict[str, Any], named: str) -> None:
    """A tenant has no hook at a privileged point, none that runs code here, and no regular expression."""
    new = new_hook(**said)
    with pytest.raises(HookRefused, match=re.escape(named)):
        check_tenant_hook(new, "acme")
    check_tenant_hook(new, "")


@pytest.mark.rule("TEN-1")
def test_what_a_tenant_may_have() -> None:
    """A web service at an open point is allowed, and an entry point the operator named; a command never is."""
    check_tenant_hook(new_hook(event_type="tool:*", matcher="Write|mcp__*"), "acme")
    check_tenant_hook(new_hook(handler_ref="redact"), "acme", handlers={"redact", "command"})
    with pytest.raises(HookRefused, match="allowed: redact"):
        check_tenant_hook(new_hook(handler_ref="command"), "acme", handlers={"redact", "command"})
    assert is_tenant_allowed("acme:deploy")
