import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks import HookRegistry, Outcome
from amplifier_hooks.errors import UnknownEvent

CALL = {"tool_name": "Write", "tenant_id": "acme"}


def forbidden(*_said: Any) -> None:
    """A hook that must not be called."""
    raise AssertionError("explaining runs nothing")


async def forbidden_layer(context: Any, call_next: Any) -> None:
    """A layer that must not be called."""
    raise AssertionError("explaining runs nothing")


@pytest.mark.rule("REG-16")
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "intent": st.sampled_from(["register", "on", "gate", "observe"]),
                "event": st.sampled_from(["tool:pre", "PreToolUse", "tool:*", "*", "tool:post", "hook:*"]),
                "priority": st.integers(-1, 1),
                "tenant": st.sampled_from(["", "acme", "other"]),
                "match": st.sampled_from([None, "*", "Write", "Write|Edit", "W*", "Read", "re:W.+"]),
                "enabled": st.booleans(),
            }
        ),
        max_size=10,
    ),
    st.sampled_from([None, "Write", "Read", 7]),
    st.sampled_from([None, "acme", "other"]),
)
def test_explaining_agrees_with_what_happens(hooks: list[dict[str, Any]], tool: Any, tenant: Any) -> None:
    """An explanation names exactly the hooks that run, in their order; every other hook has a reason."""
    registry = HookRegistry()
    called: list[str] = []

    def handler(name: str) -> Callable[..., None]:
        def hook(event: str, data: Mapping[str, Any], outcome: Outcome | None = None) -> None:
            if event == "tool:pre":  # what becomes of the hooks is told besides
                called.append(name)

        return hook

    for number, options in enumerate(hooks):
        said = {key: value for key, value in options.items() if key not in ("intent", "event", "enabled")}
        name = f"h{number}"
        getattr(registry, options["intent"])(options["event"], handler(name), name=name, **said)
        if not options["enabled"]:
            registry.disable(name)

    data = {"tool_name": tool, "tenant_id": tenant}
    explanation = registry.explain("on_tool_call", data)
    assert called == []
    outcome = asyncio.run(registry.emit("tool:pre", data))
    assert outcome.ran == tuple(hook.name for hook in explanation.hooks)
    assert called == [hook.name for hook in (*explanation.hooks, *explanation.observers)]
    everybody = [*explanation.hooks, *explanation.observers, *explanation.others]
    assert sorted(hook.name for hook in everybody) == sorted(f"h{number}" for number in range(len(hooks)))
    assert all(hook.why and hook.on_failure for hook in everybody)


@pytest.mark.rule("REG-16")
def test_reasons() -> None:
    """Each hook that would not run has a reason, and each that would has the effect of its failure."""
    registry = HookRegistry()
    plugin = registry.scope("plugin")
    registry.gate("tool:pre", forbidden, name="guard", match="Write|Edit")
    registry.on("*", forbidden, name="all")
    registry.observe("tool:pre", forbidden, name="watcher")
    registry.on("tool:pre", forbidden, name="off")
    registry.disable("off")
    registry.on("tool:pre", forbidden, name="foreign", tenant="other")
    registry.on("tool:pre", forbidden, name="reads", match="Read")
    registry.on("tool:post", forbidden, name="later")
    registry.around("tool", forbidden_layer, name="layer")
    plugin.observe("*", forbidden, name="plugin")
    explanation = registry.explain("tool:pre", CALL)
    assert {hook.name: hook.why for hook in explanation.others} == {
        "off": "it is disabled",
        "foreign": "it is for tenant 'other'",
        "reads": "'Read' does not match 'Write'",
        "later": "it is for tool:post",
        "layer": "it is around tool, and told of no event",
    }
    assert {hook.name: hook.on_failure for hook in (*explanation.hooks, *explanation.observers)} == {
        "guard": "the event is denied",
        "all": "it is skipped",
        "watcher": "that is logged",
        "plugin": "that is logged",
    }
    text = str(explanation)
    assert "asked: guard (gate, priority 0, looks twice): it is for tool:pre, and 'Write|Edit' matches 'Write'" in text
    assert "left out: off (on, priority 0): it is disabled" in text

    others = {hook.name: hook.why for hook in registry.explain("llm:post", {}).others}
    assert others["plugin"] == "llm:post is privileged, and a pattern of a plugin or a tenant leaves that out"
    nameless = registry.explain("tool:pre", {})
    assert {hook.name: hook.why for hook in nameless.others}[
        "reads"
    ] == "the payload names no tool, and it is for 'Read'"
    assert nameless.hooks[0].why == "the payload names no tool, and a gate for 'Write|Edit' is not opened by that"


@pytest.mark.rule("REG-16")
def test_what_is_refused_anyway() -> None:
    """A required gate that is missing, and an emergency stop, are part of the explanation."""
    registry = HookRegistry()
    assert registry.explain("tool:pre").refusal is None
    registry.require("tool:pre")
    assert registry.explain("tool:pre", CALL).refusal == "no_policy"
    lift = registry.emergency_stop("stop")
    assert registry.explain("tool:pre", CALL).refusal == "emergency_stop"
    assert "denied in any case (emergency_stop)" in str(registry.explain("tool:pre", CALL))
    assert registry.explain("tool:post", CALL).refusal is None
    lift()
    registry.gate("tool:pre", forbidden)
    assert registry.explain("tool:pre", CALL).refusal is None


@pytest.mark.rule("REG-16")
async def test_hooks_that_count_as_failed_are_said_to() -> None:
    """A hook in quarantine, and one whose matcher takes too long, have their turn and fail."""
    registry = HookRegistry()

    async def stubborn(event: str, data: Mapping[str, Any]) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    registry.on("tool:pre", stubborn, timeout=0.01)
    registry.gate("tool:pre", lambda event, data: None, name="slow", match="re:(a|aa)+(a|aa)+b")
    for _ in range(3):
        await registry.emit("tool:pre", {"tool_name": "Write"})
    bad = {"tool_name": "a" * 400}
    whys = {hook.name: hook.why for hook in registry.explain("tool:pre", bad).hooks}
    assert "in quarantine" in whys["stubborn"]
    assert whys["slow"] == "its matcher gave no answer in time, which counts as its failure"
    outcome = await registry.emit("tool:pre", bad)
    assert {answer.hook_name: answer.status for answer in outcome.failures} == {
        "stubborn": "unavailable",
        "slow": "timeout",
    }


@pytest.mark.rule("REG-16", "REG-8")
def test_default_fields_are_taken_into_account() -> None:
    """The tenant may come from the default fields."""
    registry = HookRegistry(strict_events=True)
    registry.on("tool:pre", forbidden, name="theirs", tenant="acme")
    registry.set_default_fields(tenant_id="acme")
    assert [hook.name for hook in registry.explain("tool:pre").hooks] == ["theirs"]
    with pytest.raises(UnknownEvent):
        registry.explain("deploy:before")
