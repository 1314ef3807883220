"""Laws of report-only hooks, for all sets of hooks: no outcome differs from that of the other hooks alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest
from attrs import frozen
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from amplifier_hooks import HookRegistry, HookResult, Outcome, SessionCoordinator
from amplifier_hooks.errors import HookUnavailable
from amplifier_hooks.ports import RuleVerdict
from amplifier_hooks.result import CONTINUE
from amplifier_hooks.testing import CollectingAudit, RecordingContext, ScriptedApprover
from tests.conftest import THOROUGH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amplifier_hooks.ports import ActionFacts

pytestmark = pytest.mark.rule("DSP-11")

BRIEF: Final = 0.02
LONG: Final = 60.0
Way = Literal["gate", "on", "register"]


def change(data: dict[str, Any]) -> HookResult:
    """Add a word to the command."""
    given = data["tool_input"]
    return HookResult.modify({"tool_input": {**given, "command": f"{given['command']}+"}})


def spoil(data: dict[str, Any]) -> None:
    """Change the input in place."""
    data["tool_input"]["command"] = "spoilt"


def fail(_data: dict[str, Any]) -> None:
    """Raise an error."""
    raise ValueError("broken")


def vanish(_data: dict[str, Any]) -> None:
    """Be unavailable."""
    raise HookUnavailable("gone")


async def hang(_data: dict[str, Any]) -> None:
    """Wait past every deadline."""
    await asyncio.Event().wait()


async def raise_cancelled(_data: dict[str, Any]) -> None:
    """Raise a cancellation that no caller asked for."""
    raise asyncio.CancelledError


async def object_at_last(data: dict[str, Any]) -> HookResult | None:
    """Deny changed data only."""
    await asyncio.sleep(0)
    return HookResult.deny("changed") if "+" in data["tool_input"]["command"] else None


BEHAVIOURS: Final[Mapping[str, Callable[[dict[str, Any]], Any]]] = {
    "deny": lambda _: HookResult.deny("no", risk="high"),
    "ask": lambda _: HookResult.ask("Really?", risk="high"),
    "ask always": lambda _: HookResult.ask("Really?", approval_key="k"),
    "change": change,
    "no JSON": lambda _: HookResult.modify({"tool_input": object()}),
    "inject": lambda _: HookResult.inject("a text"),
    "message": lambda _: HookResult(user_message="look", suppress_output=True),
    "reason": lambda _: HookResult(reason="because"),
    "nonsense": lambda _: 42,
    "nothing": lambda _: None,
    "spoil": spoil,
    "fail": fail,
    "vanish": vanish,
    "hang": hang,
    "cancelled": raise_cancelled,
    "object at last": object_at_last,
}


@frozen
class Hook:
    """One hook of a set."""

    behaviour: str
    way: Way
    priority: int
    on_error: Literal["deny"] | None
    match: str | None
    definition: bool
    report_only: bool

    def enter(self, registry: HookRegistry, number: int) -> None:
        """Register the hook."""
        act = BEHAVIOURS[self.behaviour]

        def plain(_event: str, data: dict[str, Any]) -> Any:
            return act(data)

        async def waiting(_event: str, data: dict[str, Any]) -> Any:
            return await act(data)

        options: dict[str, Any] = {"name": f"hook {number}", "priority": self.priority, "match": self.match}
        if self.on_error is not None:
            options["on_error"] = self.on_error
        if self.definition:
            options |= {"source": "definition", "budget": LONG}
        if self.report_only:
            options["report_only"] = True
        handler = waiting if asyncio.iscoroutinefunction(act) else plain
        timeout = BRIEF if self.behaviour == "hang" else LONG  # a machine pauses for longer than is brief
        getattr(registry, self.way)("tool:pre", handler, timeout=timeout, **options)


hooks = st.builds(
    Hook,
    behaviour=st.sampled_from(list(BEHAVIOURS)),
    way=st.sampled_from(["gate", "on", "register"]),
    priority=st.integers(0, 3),
    on_error=st.sampled_from([None, "deny"]),
    match=st.sampled_from([None, "Bash", "Write"]),
    definition=st.booleans(),
    report_only=st.booleans(),
)


def registry_of(chosen: list[Hook], *, reporting: bool, required: bool) -> HookRegistry:
    """Return a registry with these hooks, the report-only ones only where they are wanted."""
    registry = HookRegistry()
    for number, one in enumerate(chosen):
        if reporting or not one.report_only:
            one.enter(registry, number)
    if required:
        registry.require("tool:pre")
    return registry


def essence(outcome: Outcome, reporting: set[str]) -> Outcome:
    """Return an outcome without the report-only hooks' answers, and without times.

    An answer that says nothing is there only for its time, in a chain that has waited.
    """
    said = [one for one in outcome.answers if one.result is not CONTINUE or one.status != "ok"]
    kept = [replace(one, duration_ms=None) for one in said if one.hook_name not in reporting]
    ran = tuple(name for name in outcome.ran if name not in reporting)
    data = {name: value for name, value in outcome.data.items() if name not in ("timestamp", "event_id")}
    return replace(outcome, answers=tuple(kept), ran=ran, total_duration_ms=0.0, data=data)


def names_of(chosen: list[Hook]) -> set[str]:
    """Return the names of the report-only hooks."""
    return {f"hook {number}" for number, one in enumerate(chosen) if one.report_only}


@settings(max_examples=150 if THOROUGH else 40, deadline=None)
@given(st.lists(hooks, max_size=5), st.booleans())
@example(
    [Hook("hang", "gate", 0, None, None, False, True), Hook("nothing", "gate", 0, None, None, False, False)], False
)
def test_no_outcome_differs(chosen: list[Hook], required: bool) -> None:
    """An outcome with report-only hooks is the one without them, whatever they answer and however they fail."""

    async def outcome(*, reporting: bool) -> Outcome:
        registry = registry_of(chosen, reporting=reporting, required=required)
        data = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "session_id": "s"}
        return essence(await registry.emit("tool:pre", data, exact=("tool_input",)), names_of(chosen))

    assert asyncio.run(outcome(reporting=True)) == asyncio.run(outcome(reporting=False))


class Denying:
    """Rules that deny everything, or fail, and only report."""

    report_only = True

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails

    def judge(self, facts: ActionFacts) -> RuleVerdict:
        """Deny, or fail."""
        if self.fails:
            raise ValueError("the rules are broken")
        return RuleVerdict(action="deny", rule="everything", risk="high")


@settings(max_examples=60 if THOROUGH else 20, deadline=None)
@given(st.lists(hooks, max_size=4), st.booleans())
def test_no_call_differs(chosen: list[Hook], fails: bool) -> None:
    """A call through a session comes to the same end, asks the same questions and runs the same input."""

    async def end(*, reporting: bool) -> tuple[object, ...]:
        approver = ScriptedApprover(*["Allow", "Allow", "Deny"] * 3)
        ran: list[object] = []
        registry = registry_of(chosen, reporting=reporting, required=False)
        rules = Denying(fails=fails) if reporting else None
        session = SessionCoordinator(
            registry,
            session_id="s",
            approvals=approver,
            rules=rules,
            audit=CollectingAudit(),
            context=RecordingContext(),
        )
        async with session:
            outcome = await session.call_tool("Bash", {"command": "ls"}, ran.append)
        asked = [(request.prompt, request.risk, request.arguments) for request in approver.requests]
        return outcome.denied, outcome.reason, outcome.cause, ran, asked

    assert asyncio.run(end(reporting=True)) == asyncio.run(end(reporting=False))
