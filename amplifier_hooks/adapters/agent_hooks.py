"""AGENT-HOOKS, in both directions.

A session's hooks as an interceptor of a host that speaks AGENT-HOOKS, for example Microsoft Agent Framework:

    create_agent_hooks_middleware([SessionInterceptor(session)], timeout=600)

Interceptors of other authors as gates of a session:

    emitter = InterceptionEmitter(resolver=SessionResolver(session)).register(theirs)
    AgentHooksHost(session, emitter)

The contract is AGENT-HOOKS 0.1, in its strict sense: without an interceptor nothing proceeds, and a failure denies.

Extra `agent-hooks`.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from attrs import Factory, define, field, frozen

from amplifier_hooks import events
from amplifier_hooks.adapters.shared import Texts, call_at_end, plain_message
from amplifier_hooks.errors import HookAbortError, MissingExtra
from amplifier_hooks.result import CONTINUE, HookResult
from amplifier_hooks.session import program_call

try:
    from agent_hooks import (
        AgentContextBuilder,
        ApprovalOutcome,
        ApprovalResolution,
        Decision,
        InterceptionPoint,
        Transform,
        Verdict,
    )
except ModuleNotFoundError as error:
    raise MissingExtra.from_import(error, "this adapter") or error from None

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from agent_hooks import AgentContext, ApprovalRequest, InterceptionEmitter, InterceptionRecord

    from amplifier_hooks.session.coordinator import SessionCoordinator

__all__ = ["AgentHooksHost", "SessionInterceptor", "SessionResolver"]


OUTPUT: Final = "agent_hooks:output"
APPROVAL: Final = "agent_hooks:approval"
"""Events of this adapter: an agent is about to answer, and an interceptor wants an approval."""

LAST: Final = 1_000_000
"""Priority of the interceptors' gates. They run last, so that the act runs as they saw it, unless they change it."""

GATE_TIMEOUT: Final = 24 * 3600.0
"""Seconds a gate may take. The emitter limits the time of each interceptor, the approver that of each question."""


# -- a session's hooks as an interceptor of a host -------------------------------------------------------------------


@define(eq=False)
class SessionInterceptor:
    """An interceptor that asks one session's hooks.

    The host runs tools and models itself: one run of one agent at a time.

    A question is asked inline, so the host has to give interceptors as much time as a person may take. A call without a
    decision is denied; if the host makes the call again with the same id, the call finds the decision. Close the
    session when the host is done.
    """

    session: SessionCoordinator
    _texts: Texts[dict[str, Any]] = field(
        default=Factory(lambda self: Texts(self.session, plain_message), takes_self=True), init=False
    )
    _turn: AsyncExitStack = field(factory=AsyncExitStack, init=False)
    _calls: program_call.OpenCalls[str] = field(factory=program_call.OpenCalls, init=False)
    _model: program_call.ProgramModelCall | None = field(default=None, init=False)
    _answer: Any = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        call_at_end(self.session, "agent-hooks", self._end_turn)

    def intercept(self, context: AgentContext, /) -> Any:
        """Return a coroutine with the hooks' verdict on one interception. The host takes an exception for a denial."""
        return STEPS[InterceptionPoint(context["interception_point"])](self, context)

    async def startup(self, _context: AgentContext) -> Verdict:
        """Start the session, because the agent starts."""
        await self.session.start()
        return Verdict.allow()

    async def prompt(self, context: AgentContext) -> Verdict:
        """Begin a turn of the session."""
        await self._end_turn()
        content = context["input"]["content"]
        prompt = content if isinstance(content, str) else json.dumps(content)
        turn = await self._turn.enter_async_context(self.session.turn(prompt))
        if turn.denied:
            return denial_verdict(turn.outcome.denied_by, turn.reason)
        if turn.prompt != prompt:
            return change_verdict("$target.content", turn.prompt)
        return Verdict.allow()

    async def before_model(self, context: AgentContext) -> Verdict:
        """Ask the hooks about a model call, and add the injected texts to its messages."""
        await self._forget_calls()
        messages = context["messages"]
        given = await self._texts.merge_into(messages, skip_present=True)
        self._model = program_call.ProgramModelCall(self.session, given, context["model"]["id"])
        if not await self._model.admit():
            refused = self._model.outcome
            return denial_verdict(refused.by if refused else None, refused.reason if refused else None)
        ready = await self._texts.ready(self._model.input, messages)
        return change_verdict("$target", ready) if program_call.differs(ready, messages) else Verdict.allow()

    async def after_model(self, context: AgentContext) -> Verdict:
        """Show the model's response to the hooks."""
        call, self._model = self._model, None
        if call is None:
            return Verdict.deny(reason="not_admitted", message="this call was made without a decision")
        response = context["response"]
        outcome = await call.report_result(response)
        if outcome.denied:
            return denial_verdict(outcome.by, outcome.reason)
        return (
            change_verdict("$target", outcome.value)
            if program_call.differs(outcome.value, response)
            else Verdict.allow()
        )

    async def before_tool(self, context: AgentContext) -> Verdict:
        """Ask the hooks about a tool call.

        The verdict of an admitted call holds the input that was decided about, changed or not: the host may change its
        own object while the hooks look.
        """
        about = context["tool_call"]
        call = program_call.ProgramToolCall(self.session, about["name"], about["args"], about["id"])
        if not await call.admit():
            return denial_verdict(call.outcome.by if call.outcome else None, call.denial)
        await self._calls.put(call.id, call)
        return change_verdict("$target", call.input)

    async def after_tool(self, context: AgentContext) -> Verdict:
        """Show the result of a tool to the hooks."""
        about = context["tool_call"]
        call = self._calls.pop(about["id"], None)
        if call is None:
            return Verdict.deny(reason="not_admitted", message="this call ran without a decision")
        result = context["tool_result"]
        if not call.permits(about["name"], about["args"]):
            await call.report_mismatch(about["name"], about["args"])
            return Verdict.deny(reason="not_admitted", message="this is not the call that was decided about")
        if result["is_error"]:
            await call.report_error(program_call.ProgramToolFailed(str(result["value"])))
            return Verdict.allow()
        outcome = await call.report_result(result["value"])
        replaced = outcome.ok and program_call.differs(outcome.value, result["value"])
        return change_verdict("$target", outcome.value) if replaced else Verdict.allow()

    async def end(self, _context: AgentContext) -> Verdict:
        """End the turn, because the agent has answered or is done. The owner of the session closes it."""
        await self._end_turn()
        return Verdict.allow()

    async def _end_turn(self) -> None:
        await self._forget_calls()
        await self._turn.aclose()

    async def _forget_calls(self) -> None:
        """Give up the open calls. Another interceptor may have denied them, and the host does not report that."""
        await self._calls.give_up_all()
        if self._model is not None:
            await self._model.give_up()
            self._model = None


STEPS: Final[Mapping[InterceptionPoint, Callable[[SessionInterceptor, AgentContext], Awaitable[Verdict]]]] = {
    InterceptionPoint.AGENT_STARTUP: SessionInterceptor.startup,
    InterceptionPoint.INPUT: SessionInterceptor.prompt,
    InterceptionPoint.PRE_MODEL_CALL: SessionInterceptor.before_model,
    InterceptionPoint.POST_MODEL_CALL: SessionInterceptor.after_model,
    InterceptionPoint.PRE_TOOL_CALL: SessionInterceptor.before_tool,
    InterceptionPoint.POST_TOOL_CALL: SessionInterceptor.after_tool,
    InterceptionPoint.OUTPUT: SessionInterceptor.end,
    InterceptionPoint.AGENT_SHUTDOWN: SessionInterceptor.end,
}


def denial_verdict(by: str | None, reason: str | None) -> Verdict:
    """Return a denial. Its reason names the hook in one word, its message tells the model why."""
    return Verdict.deny(reason=f"denied:{by or 'registry'}", message=reason or "no reason given")


def change_verdict(path: str, value: Any) -> Verdict:
    """Return a verdict that changes the value at `path`."""
    return Verdict(Decision.TRANSFORM, transform=Transform(path, value))


# -- interceptors of other authors as gates of a session -------------------------------------------------------------


@define(eq=False)
class AgentHooksHost:
    """The interceptors of an emitter, in front of one session: a gate at each point, behind all other gates.

    Create it before the session starts, with an emitter of its own. An interceptor may deny or change an act. A denial
    of the start denies every prompt; a denial after a tool call takes the place of the result. The end of the session
    removes the gates.

    `read` turns a model's response into a mapping of `content`, `tool_calls` and `finish_reason`; `write` turns such a
    mapping back into a response.
    """

    session: SessionCoordinator
    emitter: InterceptionEmitter
    """Emitter of interceptions that no other session uses."""
    tools: tuple[str, ...] = ()
    """Names of the tools that the agent has, for the interceptors to read at the start."""
    read: Callable[[Any], Mapping[str, Any]] = field(default=lambda response: response)
    """Function that turns a model's response into a mapping."""
    write: Callable[[Any, Mapping[str, Any]], Any] = field(default=lambda _response, changed: dict(changed))
    """Function that turns such a mapping back into a response."""
    agent: str = "agent"
    """Name of the agent, as the interceptors read it."""
    _contexts: AgentContextBuilder = field(init=False)
    _undo: list[Callable[[], Any]] = field(factory=list, init=False)
    _started: InterceptionRecord | None = field(default=None, init=False)
    _blocked: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        hooks = self.session.hooks
        self._contexts = AgentContextBuilder(
            agent_id=self.agent, framework="amplifier-hooks", session_id=self.session.session_id
        )
        gates = {
            events.PROMPT_SUBMIT: self._prompt,
            events.LLM_PRE: self._before_model,
            events.LLM_POST: self._after_model,
            events.TOOL_PRE: self._before_tool,
            events.TOOL_POST: self._after_tool,
            OUTPUT: self._output,
        }
        listeners = {
            events.SESSION_START: self._start,
            events.TOOL_ERROR: self._after_tool,
            events.SESSION_END: self._end,
        }
        for event, step in (gates | listeners).items():
            add = hooks.gate if event in gates else hooks.on
            gate, name = self._session_gate(step), f"agent-hooks:{event}"
            # Interceptors ask the approver themselves, so the gates look at an act once.
            undo = add(event, gate, priority=LAST, name=name, timeout=GATE_TIMEOUT, own_event=True, recheck=False)
            self._undo.append(undo)

    async def output(self, content: Any) -> Any:
        """Return the answer that the agent may give instead of `content`.

        Args:
            content: Answer of the agent.

        Raise `HookAbortError` if the answer is denied.
        """
        outcome = await self.session.emit(OUTPUT, {"content": content})
        if outcome.denied:
            self._blocked = True
            raise HookAbortError(outcome.reason or "denied", outcome.denied_by or "")
        return outcome.data["content"]

    def _session_gate(self, step: Callable[[Mapping[str, Any]], Awaitable[HookResult]]) -> Any:
        """Return a gate that runs `step` for this session only."""

        async def gate(_event: str, data: Mapping[str, Any]) -> HookResult:
            if data.get("session_id") != self.session.session_id:
                return CONTINUE
            return await step(data)

        return gate

    # -- the points, in the order of a run ---------------------------------------------------------------------------

    async def _start(self, _data: Mapping[str, Any]) -> HookResult:
        self._started = await self.emitter.emit_unchecked(
            self._contexts.agent_startup(tools_registered=sorted(self.tools))
        )
        return CONTINUE

    async def _ask(self, context: AgentContext, name: str, before: Any, *path: str, stops: bool = False) -> HookResult:
        """Return the interceptors' denial, or their change of the value at `path` as the field `name`.

        With `stops`, a denial blocks the turn.
        """
        record = await self.emitter.emit_unchecked(context)
        if not record.proceeds:
            self._blocked = self._blocked or stops
            return HookResult.deny(denial_reason(record))
        after: Any = context
        for part in path:
            after = after[part]
        return change_result(name, before, after)

    async def _prompt(self, data: Mapping[str, Any]) -> HookResult:
        if self._started is None or not self._started.proceeds:
            self._blocked = True
            return HookResult.deny(denial_reason(self._started))
        context = self._contexts.input(content=data["prompt"], role="user")
        return await self._ask(context, "prompt", data["prompt"], "input", "content", stops=True)

    async def _before_model(self, data: Mapping[str, Any]) -> HookResult:
        context = self._contexts.pre_model_call(model_id=data["model"], messages=list(data["messages"]))
        return await self._ask(context, "messages", data["messages"], "messages", stops=True)

    async def _after_model(self, data: Mapping[str, Any]) -> HookResult:
        answer = self.read(data["response"])
        parts = {name: answer[name] for name in ("content", "finish_reason")}
        context = self._contexts.post_model_call(model_id=data["model"], tool_calls=list(answer["tool_calls"]), **parts)
        before = context["response"].copy()
        result = await self._ask(context, "response", before, "response", stops=True)
        if result.action != "modify":
            return result
        return HookResult.modify({"response": self.write(data["response"], context["response"])})

    async def _before_tool(self, data: Mapping[str, Any]) -> HookResult:
        given = data["tool_input"]
        context = self._contexts.pre_tool_call(call_id=data["tool_call_id"], name=data["tool_name"], args=given)
        return await self._ask(context, "tool_input", given, "tool_call", "args")

    async def _after_tool(self, data: Mapping[str, Any]) -> HookResult:
        """Let the interceptors replace or withhold a tool's result or its error."""
        part = "error" if "error" in data else "result"
        context = self._contexts.post_tool_call(
            call_id=data["tool_call_id"],
            name=data["tool_name"],
            args=data["tool_input"],
            value=data[part],
            is_error=part == "error",
        )
        record = await self.emitter.emit_unchecked(context)
        if not record.proceeds:
            return HookResult.modify({part: f"The {part} was withheld: {denial_reason(record)}"})
        return change_result(part, data[part], context["tool_result"]["value"])

    async def _output(self, data: Mapping[str, Any]) -> HookResult:
        context = self._contexts.output(content=data["content"])
        return await self._ask(context, "content", data["content"], "output", "content")

    async def _end(self, _data: Mapping[str, Any]) -> HookResult:
        await self.emitter.emit_unchecked(
            self._contexts.agent_shutdown(reason="error" if self._blocked else "completed")
        )
        for undo in self._undo:
            undo()
        return CONTINUE


@frozen
class SessionResolver:
    """A resolver that asks the session's approver. The approval is bound to the context that the interceptor saw.

    The resolver waits inline: the emitter's timeout has to leave the time a person may take, and no question outlives
    the process.
    """

    session: SessionCoordinator

    def resolve(self, request: ApprovalRequest, /) -> Any:
        """Return a coroutine with the approver's answer.

        The answer carries the identity that the request asked about.
        """
        return self._ask_approver(request)

    async def _ask_approver(self, request: ApprovalRequest) -> ApprovalResolution:
        point, verdict = request.interception_point.value, request.verdict
        prompt = verdict.message or verdict.reason or f"An interceptor wants an approval at {point}"
        facts = {"identity": request.context_identity, "point": point, "target": request.context.get("target")}

        async def ask(_event: str, data: Mapping[str, Any]) -> HookResult:
            mine = data.get("session_id") == self.session.session_id and data.get("identity") == facts["identity"]
            return HookResult.ask(prompt) if mine else CONTINUE

        undo = self.session.hooks.gate(APPROVAL, ask, name="agent-hooks", timeout=GATE_TIMEOUT, own_event=True)
        try:
            outcome = await self.session.emit(APPROVAL, facts)
        finally:
            undo()
        if outcome.denied:
            refusal = Verdict.deny(reason="approval:denied", message=outcome.reason)
            return ApprovalResolution(ApprovalOutcome.REJECT, request.context_identity, refusal)
        return ApprovalResolution(ApprovalOutcome.APPROVE, request.context_identity, Verdict.allow())


def denial_reason(record: InterceptionRecord | None) -> str:
    """Return the reason of a denial in words."""
    if record is None:
        return "the session has not started"
    parts = record.verdict.reason, record.verdict.message
    return ": ".join(part for part in parts if part) or "no reason given"


def change_result(name: str, before: Any, after: Any) -> HookResult:
    """Return a change as a `HookResult`, or `CONTINUE` if nothing changed."""
    return HookResult.modify({name: after}) if program_call.differs(after, before) else CONTINUE
