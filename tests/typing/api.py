"""A user's program, for type checkers alone: they accept each call, and refuse each that has an `ignore` behind it.

An `ignore` that hides no error is an error itself, in both checkers.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, assert_type

from amplifier_hooks import (
    AuditLog,
    HookMatcher,
    HookRegistry,
    HookResult,
    InMemoryContext,
    Outcome,
    SessionCoordinator,
    TerminalDisplay,
    ToolContext,
    ToolOutcome,
)
from amplifier_hooks.library import RateLimit
from approval_backends import TerminalApprovals

CallNext = Callable[[], Awaitable[Any]]

registry = HookRegistry()
reasons: list[str | None] = []


# -- handlers of every shape -------------------------------------------------------------------------------------------


@registry.gate("tool:pre", match="Write", risk="high", priority=-10)
async def ask(event: str, data: Mapping[str, Any]) -> HookResult:
    """Return a question."""
    return HookResult.ask("Write?", risk="low", options=["Allow", "Deny"])


@registry.on("tool:post", match=["Read", "Write"], timeout=None)
def plain(event: str, data: dict[str, Any]) -> HookResult | None:
    """Return an answer or none, from a plain function."""
    return None


@registry.on("prompt:submit", name="mapping")
async def mapping(event: str, data: Mapping[str, object]) -> dict[str, Any] | None:
    """Return the fields of an answer."""
    return {"action": "deny", "reason": event}


@registry.observe("*", concurrent=True)
async def watch(event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
    """Watch every event."""


@registry.around("tool", tenant="acme")
async def layer(context: ToolContext, call_next: CallNext) -> object:
    """Call on."""
    return await call_next()


class Hook:
    """A handler as an object."""

    async def __call__(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Return an answer without objection."""
        return HookResult.proceed()

    def method(self, event: str, data: Mapping[str, Any]) -> None:
        """Return no answer."""


undo = registry.register(HookRegistry.TOOL_PRE, Hook(), 10, "upstream", on_error="deny")
registry.on("tool:pre", Hook().method, priority=3)
registry.gate("tool:pre", lambda event, data: HookResult.deny(event), own_event=True)
registry.observe("tool:post", lambda event, data, outcome: reasons.append(outcome.reason))
registry.around("model", lambda context, call_next: call_next())
registry.register_loop_hook("onIntake", lambda context, data: data + context.agent_id)
registry.register_matchers({"PreToolUse": [HookMatcher("Write", [ask, plain], timeout=3)]})
registry.scope("plugin").observe("tool:post", watch)
RateLimit().register(registry, tenant="acme")
options: dict[str, Any] = {"priority": 1}
registry.on("tool:pre", ask, **options)
undo()


# -- mistakes in handlers and options ----------------------------------------------------------------------------------


@registry.gate("tool:pre")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator]
async def wrong_gate(event: int) -> str:
    """Take no data, and return text in place of an answer."""
    return "no"


@registry.on("tool:pre")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator]
async def wrong_answer(event: str, data: Mapping[str, Any]) -> str:
    """Return text in place of an answer."""
    return "no"


@registry.observe("tool:pre")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator]
async def wrong_observer(event: str, data: Mapping[str, Any]) -> None:
    """Take no outcome."""


@registry.around("tool")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator]
def wrong_layer(context: ToolContext, call_next: CallNext) -> None:
    """Await nothing."""


registry.register("tool:pre", ask, prioritty=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
registry.register("tool:pre", watch)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
registry.on("tool:pre", ask, prioritty=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
registry.gate("tool:pre", ask, on_error="dney")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
registry.gate("tool:pre", timeout="3 s")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
registry.observe("tool:pre", watch, tennant="acme")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
registry.around("tool", layer, risk="huge")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
RateLimit().register(registry, tennant="acme")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
HookResult.ask("Write?", risk=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
HookResult.deny("no", resaon="no")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# -- sessions ----------------------------------------------------------------------------------------------------------


async def write(tool_input: dict[str, Any]) -> int:
    """Return the number of written characters."""
    return len(tool_input["content"])


async def use_session(audit: AuditLog) -> None:
    """Use a session with all kinds of tools, and a child."""
    async with SessionCoordinator(
        registry,
        session_id="s1",
        approvals=TerminalApprovals(),
        display_system=TerminalDisplay(),
        audit=audit,
        tools={"Write": write, "Read": lambda _: "text"},
        risk=lambda tool, arguments: "low",
    ) as session:
        plain = await session.call_tool("Read", {"path": "a"}, lambda _: "text")
        assert_type(plain, ToolOutcome[str])
        assert_type(plain.value, str | None)
        awaited = await session.call_tool("Write", {"content": "a"}, write, call_id="c1")
        assert_type(awaited, ToolOutcome[int])
        wider: ToolOutcome[object] = awaited
        assert_type(await session.execute_tool("Write", {"content": "b"}), ToolOutcome[Any])
        child = session.child("reviewer", context=InMemoryContext(), approval_system=None, tenant="acme")
        assert_type(child, SessionCoordinator)
        awaited.value.upper()  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess, reportUnknownMemberType]
        wider.raeson = 1  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        session.child("x", bogus=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        session.child("x", audit_required="no")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    SessionCoordinator(registry, sesion_id="s2")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    SessionCoordinator("s2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
