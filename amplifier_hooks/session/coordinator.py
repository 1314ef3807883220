"""Carries what the hooks said to its effects, for one session: its turns, its model calls, its tool calls.

This is what an orchestrator holds. How one event becomes effects is in `session.py`, the way of one tool call in
`tool_call.py`, of one model call in `model_call.py`, of everything else in `operations.py`.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from os import fspath, getcwd
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal, Self
from uuid import uuid4

from attrs import define

from amplifier_hooks.admission.apply_rules import FailClosedRules
from amplifier_hooks.admission.ask_approver import Approver, Lease
from amplifier_hooks.admission.build_request import Origin
from amplifier_hooks.admission.upstream_backend import as_backend
from amplifier_hooks.clock import SystemClock
from amplifier_hooks.dispatch.bounded_wait import TooLate, within
from amplifier_hooks.dispatch.merge import merge
from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.errors import InvalidCollaborator, InvalidLimit, InvalidRegistration, UnknownTool
from amplifier_hooks.events import (
    CANCEL_COMPLETED,
    CANCEL_REQUESTED,
    ERROR_ORCHESTRATOR,
    ORCHESTRATOR_COMPLETE,
    PROMPT_COMPLETE,
    PROMPT_SUBMIT,
    SESSION_END,
    SESSION_FORK,
    SESSION_RESUME,
    SESSION_START,
    USER_NOTIFICATION,
    canonical,
)
from amplifier_hooks.injection.budget import Budget, InjectionLimits
from amplifier_hooks.injection.inject import Injector
from amplifier_hooks.injection.memory_context import InMemoryContext
from amplifier_hooks.injection.tokens import choose_counter
from amplifier_hooks.logs import get_logger
from amplifier_hooks.record.write.recorder import NoRecord, PunctualSink, Recorder
from amplifier_hooks.registry.registry import HookRegistry
from amplifier_hooks.result import Answer, HookResult, Outcome, as_result
from amplifier_hooks.session import operations
from amplifier_hooks.session.display import LogDisplay
from amplifier_hooks.session.hook_inventory import Inventory
from amplifier_hooks.session.model_call import ModelCall, ModelOutcome, ModelStream
from amplifier_hooks.session.session import Session, denial_line, deny_outcome, problem_of
from amplifier_hooks.session.tool_call import ToolCall, ToolOutcome
from amplifier_hooks.threads import DaemonPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
    from os import PathLike
    from types import TracebackType, UnionType

    from amplifier_hooks.injection.inject import Injection
    from amplifier_hooks.ports import (
        ApprovalBackend,
        ArgumentStore,
        AuditSink,
        Clock,
        ContextManager,
        DisplaySystem,
        Grant,
        GrantStore,
        Risk,
        RulePolicy,
        TokenCounter,
        UpstreamMethod,
    )
    from amplifier_hooks.session.operations import StepOutcome
    from amplifier_hooks.text.json_schema import Schema


log = get_logger(__name__)

EXAMPLE: Final = "SessionCoordinator(registry, session_id='s1')"

CLOSING: Final = 5.0
"""Seconds each step of closing a session may take."""


@define(eq=False)
class Turn:
    """One turn under way. When the prompt was denied, nothing in it runs."""

    prompt: str
    """As the hooks left it."""
    outcome: Outcome
    response: Any = None
    """What the turn came to; told to the hooks when it ends."""
    status: Literal["completed", "denied", "cancelled", "error"] = "completed"

    @property
    def denied(self) -> bool:
        """Whether the prompt may not be worked on."""
        return self.outcome.denied

    @property
    def reason(self) -> str | None:
        """Why not."""
        return self.outcome.reason


class SessionCoordinator:
    """One session: its hooks, its context, its screen, its approver and its record.

    Every collaborator has a working default, so `SessionCoordinator()` alone runs. Use it as an async context
    manager: it tells the hooks when the session starts and ends, and closes in order.

    Args:
        hooks: A registry, which many sessions may share.
        session_id: Made up when it is not given.
        context: Where the model's messages are.
        approvals: Who decides when a hook asks; also any object with the upstream method
            `request_approval(prompt, options, timeout, default)`. Without one, what is asked is denied.
        approval_system: Another name of `approvals`.
        display: The screen of the person at it.
        display_system: Another name of `display`.
        audit: The record, which many sessions may share. What cannot be recorded is denied.
        budget: What hooks may inject.
        model: The model's name; decides how tokens are counted.
        counter: A token counter of the host's own.
        tenant: Whose session it is; system hooks and this tenant's take part.
        agent: Which agent acts.
        tools: Functions for `execute_tool`, by name.
        tool_schemas: The JSON schemas of tools' inputs, by name. What hooks make of an input has to fit, or the call is
            denied as `hook_invalid_output`; what the agent itself sends is not looked at.
        run_id: The run it belongs to.
        rules: What is decided without a person, at every tool call.
        cwd: The directory the agent works in; where this program does, unless it is given.
        risk: How much is at stake in a tool call, by name and arguments; "high" where it fails. The highest word of the
            host, hooks and rules counts. Without it, a question that comes without a risk has "medium".
        approval_wait: Seconds to wait for a person inline. Then a durable backend keeps the question open, and the
            outcome of the call is pending; with any other the question expires.
        grants: Where standing answers are kept; in the backend if it can, or in memory.
        audit_required: Whether what cannot be recorded is denied. Without it, that is only logged.
        arguments: Where the arguments of tool calls are kept beside the record; nowhere unless it is given.
        audit_runs: Whether every run of hooks is put on record, with its start and its end; else only what they say.

    Raises `InvalidCollaborator` for `hooks` that are no registry, and for two names of one thing at once.
    """

    def __init__(
        self,
        hooks: HookRegistry | None = None,
        *,
        session_id: str | None = None,
        context: ContextManager | None = None,
        approvals: ApprovalBackend | UpstreamMethod | None = None,
        approval_system: ApprovalBackend | UpstreamMethod | None = None,
        display: DisplaySystem | None = None,
        display_system: DisplaySystem | None = None,
        audit: AuditSink | None = None,
        budget: InjectionLimits | None = None,
        model: str | None = None,
        counter: TokenCounter | None = None,
        tenant: str = "",
        agent: str = "agent",
        tools: Mapping[str, Callable[[Any], Awaitable[Any] | Any]] | None = None,
        run_id: str | None = None,
        clock: Clock | None = None,
        parent: SessionCoordinator | None = None,
        rules: RulePolicy | None = None,
        cwd: str | PathLike[str] | None = None,
        risk: Callable[[str, Mapping[str, Any]], Risk] | None = None,
        approval_wait: float | None = None,
        grants: GrantStore | None = None,
        audit_required: bool = True,
        audit_runs: bool = False,
        arguments: ArgumentStore | None = None,
        tool_schemas: Mapping[str, Any] | None = None,
    ) -> None:
        # Compared with None, not asked whether they are true: a context with a length is false while it is empty.
        hooks = HookRegistry() if hooks is None else hooks
        check_place("hooks", hooks, HookRegistry)
        check_place("session_id", session_id, str | None)
        check_once(approvals=approvals, approval_system=approval_system)
        check_once(display=display, display_system=display_system)
        approvals = approval_system if approvals is None else approvals
        display = display_system if display is None else display
        session_id = session_id or uuid4().hex
        clock = SystemClock() if clock is None else clock
        backend = as_backend(approvals)
        self._approvals, self._limits, self._model, self._counter = approvals, budget, model, counter
        self._audit: AuditSink = NoRecord() if audit is None else audit
        self._rules, self._approval_wait, self._grants = rules, check_wait(approval_wait), grants
        origin = Origin(
            agent=agent,
            cwd=working_directory() if cwd is None else fspath(cwd),
            wait=approval_wait,
            assess=risk,
            version=partial(hooks.version_of, tenant=tenant),
            ours=hooks.may_instruct,
        )
        self._parent = parent
        self._children: list[SessionCoordinator] = []
        self._tools = dict(tools or {})
        self._closing: asyncio.Task[None] | None = None
        self._started = self._final = False
        self._audited = {"audit_required": audit_required, "audit_runs": audit_runs, "arguments": arguments}
        recorder = Recorder(
            PunctualSink(self._audit), clock, session_id, tenant, required=audit_required, arguments=arguments
        )
        self._session: Session = Session(
            id=session_id,
            tenant=tenant,
            agent=agent,
            hooks=hooks,
            context=InMemoryContext() if context is None else context,
            display=LogDisplay() if display is None else display,
            clock=clock,
            recorder=recorder,
            approver=None,  # type: ignore[arg-type]  # set below, like the injector: they tell through the session
            injector=None,  # type: ignore[arg-type]
            rules=None if rules is None else FailClosedRules(rules),
            origin=origin,
            inventory=None if audit is None else Inventory(hooks, recorder, tenant, audit_runs),
            schemas=compile_schemas(tool_schemas or {}),
            parent=parent._session if parent is not None else None,  # noqa: SLF001  # its own kind
            run=run_id,
        )
        self._session.approver = Approver(
            backend,
            recorder,
            clock,
            origin,
            lease=Lease(backend, recorder, tenant, session_id, self._session.show_message),
            emit=self._session.announce,
        )
        if grants is not None:
            self._session.approver.grants = grants
        self._session.injector = Injector(
            self._session.context,
            recorder,
            clock,
            tenant,
            Budget(limits=budget or InjectionLimits()),
            choose_counter.counter_for(model)
            if counter is None
            else choose_counter.guard_counter(counter, run=DaemonPool(1, "counter").run),
            hooks.source_trust,
            self._session.show_message,
        )

    # -- who it is -----------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """Its name in every payload and record."""
        return self._session.id

    @property
    def hooks(self) -> HookRegistry:
        """Its registry."""
        return self._session.hooks

    @property
    def context(self) -> Any:
        """Its context, as it was given; an `InMemoryContext` by default."""
        return self._session.context

    @property
    def injections(self) -> tuple[Injection, ...]:
        """What was injected so far, for review."""
        return self._session.injector.injections

    @property
    def transcript(self) -> tuple[tuple[str, str], ...]:
        """What captured hooks printed and did not hide: name and text, the last 1,000 in order. Escape it to show it.

        Of every output, hidden or not, the record has size and digest.
        """
        return tuple(self._session.printed)

    @property
    def tokens_this_turn(self) -> int:
        """Tokens that injections have used in this turn."""
        return self._session.injector.tokens_this_turn

    # -- from beginning to end -----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Tell the hooks that the session begins, or goes on where an earlier program left it. Twice is harmless.

        In a durable approval backend this program becomes its owner. What another one began there, without saying how
        it ended, is shown on the screen and never run again. Questions that are still open, and answers nobody has
        used, wait for their calls to be made again.

        Raises `UnknownEvent`, and tells no hook anything, where a gate of its registry is at an unknown event.
        """
        if not self._started:
            self._session.hooks.check_gates()
            self._started = True
            if self._session.inventory is not None:
                await self._session.inventory.open()
            goes_on = await self._begin_lease()
            event = SESSION_RESUME if goes_on else SESSION_START if self._parent is None else SESSION_FORK
            about = {} if self._parent is None else {"parent": self._parent.session_id}
            await self._session.emit(event, about)

    async def _begin_lease(self) -> bool:
        """Whether the session was there before. If that cannot be found out now, it has to be before anybody is asked.

        Nobody is told twice, and a session that asks nothing needs no backend.
        """
        lease = self._session.approver.lease
        if not lease.durable:
            return False
        try:
            found = await lease.begin()
        except Exception as error:  # noqa: BLE001  # a backend may raise anything
            log.warning("session_not_taken_over", session_id=self.session_id, error=describe(error))
            return False
        return bool(found.pending or found.approved or found.unknown)

    async def close(self) -> None:
        """End the session, in order: open questions and running hooks, its children, session:end, grants.

        The record stays open for other sessions; the program that opened it closes it.

        A session with calls that are pending in a durable backend is not over: their questions stay open there, and its
        grants in force, for whoever comes back to them. `end` ends it all the same.

        Each step has a deadline, so closing ends whatever hangs; a tool that runs is left alone, and nothing begins any
        more. Twice is harmless. Cancelling it does not stop it: the cancellation is raised when it has ended.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        cancelled: asyncio.CancelledError | None = None
        while not self._closing.done():
            try:
                await asyncio.wait({self._closing})
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def end(self) -> None:
        """Close the session for good: what is pending in a durable backend is taken back, and its grants end."""
        self._final = True
        await self.close()

    async def _close(self) -> None:
        self._stop("the session is closed", closed=True)
        try:
            await asyncio.gather(*(child.close() for child in tuple(self._children)))
            await self._run_closing_step(self._session.undecided.wait_until_none())
            if self._started:
                await self._run_closing_step(self._session.emit(SESSION_END, {}))
            await self._run_closing_step(self._session.approver.end("the session ended", final=self._final))
            if self._session.inventory is not None:
                await self._run_closing_step(self._session.inventory.close())
        finally:  # also when the event loop itself is being shut down
            if self._parent is not None and self in self._parent._children:  # noqa: SLF001  # its own kind
                self._parent._children.remove(self)  # noqa: SLF001

    async def _run_closing_step(self, step: Coroutine[Any, Any, Any]) -> None:
        """One step of closing. That it fails or hangs keeps nothing after it from happening."""
        try:
            await within(CLOSING, step)
        except TooLate:
            log.warning("session_closing_late", session_id=self.session_id)
        except Exception as error:  # noqa: BLE001  # a hook or a backend may raise anything
            log.warning("session_closing_failed", session_id=self.session_id, error=describe(error))

    def child(self, agent: str, **options: Any) -> SessionCoordinator:
        """A sub-agent's session: linked to this one and in the same record, with grants and a budget of its own.

        Options are those of a session; hooks, approver, screen, record, limits, tenant, tools and their schemas are
        this one's unless they say otherwise. It is closed with this one.
        """
        session = self._session
        defaults: dict[str, Any] = {
            "hooks": session.hooks,
            "approvals": self._approvals,
            "display": session.display,
            "audit": self._audit,
            **self._audited,
            "budget": self._limits,
            "model": self._model,
            "counter": self._counter,
            "tenant": session.tenant,
            "tools": self._tools,
            "tool_schemas": self._session.schemas,
            "run_id": session.run,
            "clock": session.clock,
            "rules": self._rules,
            "cwd": session.origin.cwd,
            "risk": session.origin.assess,
            "approval_wait": self._approval_wait,
            "grants": self._grants,
        }
        path = f"{session.agent} › {agent}"  # noqa: RUF001  # no name has this character by accident
        for name, other in (("approvals", "approval_system"), ("display", "display_system")):
            if options.get(other) is not None:
                del defaults[name]
        child = SessionCoordinator(agent=path, parent=self, **(defaults | options))
        self._children.append(child)
        if session.closed:
            child._stop(session.stopped or "", closed=True)
        return child

    async def cancel(self, reason: str = "cancelled") -> None:
        """Stop what is under way: open questions are withdrawn, running hooks cancelled, and what waits is denied.

        Questions that wait in a durable backend are withdrawn, too. A tool that runs goes on; cancel its task for that.
        A new turn begins afresh.
        """
        self._stop(reason)
        await self._withdraw_waiting(reason)
        await self._tell_cancelled(reason)

    async def _withdraw_waiting(self, reason: str) -> None:
        await self._session.approver.withdraw_waiting(reason)
        for child in tuple(self._children):
            await child._withdraw_waiting(reason)  # noqa: SLF001  # its own kind

    async def _tell_cancelled(self, reason: str) -> None:
        await self._session.emit(CANCEL_REQUESTED, {"reason": reason})
        for child in tuple(self._children):
            await child._tell_cancelled(reason)  # noqa: SLF001  # its own kind
        await self._session.emit(CANCEL_COMPLETED, {"reason": reason})

    def _stop(self, reason: str, *, closed: bool = False) -> None:
        self._session.closed = self._session.closed or closed
        self._session.stop(reason)
        for child in self._children:
            child._stop(reason, closed=closed)  # noqa: SLF001  # its own kind

    # -- standing answers ----------------------------------------------------------------------------------------

    async def grants(self) -> Sequence[Grant]:
        """What somebody has allowed or denied for good in this session, oldest first.

        Raises what a store of grants raises.
        """
        return await self._session.approver.grants.list_grants(self._session.tenant, self.session_id)

    async def revoke(self, grant_id: str) -> bool:
        """End one of them; whether there was one. The next time, a person is asked again.

        Raises what a store of grants raises.
        """
        session = self._session
        revoked = await session.approver.grants.revoke_grant(grant_id, session.tenant, session.id)
        await session.recorder.note("approval.revoked", {"grant": grant_id, "revoked": revoked}, durable=True)
        return revoked

    # -- turns ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def turn(self, prompt: str, *, orchestrator: str = "") -> AsyncIterator[Turn]:
        """One turn: the prompt passes its hooks, and the injection budget begins anew.

        When a hook denies the prompt, model and tool calls in this turn are denied with its reason. At the end, also
        after an error, the hooks are told that the orchestrator is done and then that the turn is complete; before
        that, the user is notified of an error or a denial. Raises what the body raises.
        """
        session = self._session
        session.turn += 1
        session.begin_turn()
        began = perf_counter()
        turn = await self._begin_turn(prompt)
        try:
            yield turn
        except Exception as error:
            turn.status = "error"
            await session.emit(ERROR_ORCHESTRATOR, {"error": problem_of(error)})
            raise
        except BaseException:
            turn.status = "cancelled"
            raise
        finally:
            await self._end_turn(turn, orchestrator or session.agent, (perf_counter() - began) * 1e3)

    async def _begin_turn(self, prompt: str) -> Turn:
        outcome = await self._session.emit(PROMPT_SUBMIT, {"prompt": prompt})
        left = outcome.data.get("prompt")
        if not isinstance(left, str):
            problem = f"a hook replaced the prompt by something of type {type(left).__name__}"
            left, outcome = prompt, deny_outcome(outcome, "session", problem, "hook_invalid_output")
        if not outcome.denied:
            return Turn(left, outcome)
        if not self._session.closed:
            self._session.halted = denial_line("the prompt", outcome)
        return Turn(left, outcome, status="denied")

    async def _end_turn(self, turn: Turn, orchestrator: str, spent: float) -> None:
        session = self._session
        if turn.status == "completed" and session.stopped is not None:
            turn.status = "cancelled"
        facts = {
            "orchestrator": orchestrator,
            "turn_count": session.turn,
            "duration_ms": spent,
            "status": turn.status,
        }
        await session.emit(ORCHESTRATOR_COMPLETE, facts)
        if turn.status in ("denied", "error"):
            why = f"The turn ended: {turn.status}" + (f" ({turn.reason})" if turn.reason else "")
            await session.emit(USER_NOTIFICATION, {"message": why, "level": "warning"})
        await session.emit(PROMPT_COMPLETE, {"prompt": turn.prompt, "response": turn.response})

    def reset_turn(self) -> None:
        """Begin anew, for hosts that do not use `turn`: the injection budget, and what a cancelled session denied."""
        self._session.begin_turn()

    # -- events --------------------------------------------------------------------------------------------------

    def emit(self, event: str, data: Mapping[str, Any]) -> Coroutine[Any, Any, Outcome]:
        """Tell the hooks, carry their answers out, and return the outcome after its effects.

        Where the event can be stopped, the outcome is denied when an asked person does not allow it and when the
        record cannot be written. Injections of what was denied stay in the outcome, for the denial to quote.
        """
        return self._session.emit(event, data)

    execute_with_hooks = emit

    async def process_hook_result(self, result: HookResult, event: str, hook_name: str = "unknown") -> HookResult:
        """Carry out a result that was obtained elsewhere, and return what is left of it.

        A modification comes back as it is; a question comes back as `continue` or `deny`, once it is answered; a denial
        keeps its injections, for its reader to find there. Observers are not told.

        Raises `InvalidResult` for what is no result, and `InjectionTooLarge`, before anything is injected.
        """
        session = self._session
        answer = Answer(hook_name, as_result(result))
        outcome = merge(canonical(event), session.payload({}), [answer])
        session.injector.check(outcome.injections)
        with session.undecided:
            outcome = await session.record_outcome(outcome)
            if outcome.asks and not outcome.denied:
                outcome = await session.ask_about(outcome)
        if outcome.denied:
            return HookResult.deny(outcome.reason, context_injections=outcome.injections)
        await session.inject(outcome)
        return HookResult.modify(answer.data) if answer.action == "modify" and answer.data else HookResult.proceed()

    # -- operations ----------------------------------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        tool_input: Mapping[str, Any],
        call: Callable[[Any], Awaitable[Any] | Any],
        *,
        call_id: str | None = None,
    ) -> ToolOutcome:
        """Run one tool call past the hooks: decide, ask, record, run, tell.

        A denial comes back as a `ToolOutcome` the model can read, and so does the tool's own exception (`SystemExit`
        is one, and so is a `CancelledError` when nobody cancelled this call). Nothing runs that was not recorded first,
        and what runs is exactly what was approved. `call` gets a fresh copy of it.

        Cancelling it takes back an open question, or cancels the tool; the record says which. `cancel` instead leaves
        a tool alone that runs.
        """
        return await ToolCall(self._session, name, call_id or self._session.new_id(), tool_input, call).carry_out()

    async def execute_tool(
        self, name: str, tool_input: Mapping[str, Any], *, call_id: str | None = None
    ) -> ToolOutcome:
        """The same for one of the session's own tools.

        Raises `UnknownTool`.
        """
        if name not in self._tools:
            raise UnknownTool(name, tuple(self._tools))
        return await self.call_tool(name, tool_input, self._tools[name], call_id=call_id)

    async def call_model(
        self,
        call: Callable[[list[Any]], Awaitable[Any] | Any],
        messages: Sequence[Any] | None = None,
        *,
        model: str = "",
        tool_calls: Callable[[Any], Sequence[Any]] | None = None,
    ) -> ModelOutcome:
        """Call the model past the hooks, with these messages or the context's.

        `tool_calls` finds the tool calls in a response, for the hooks that want to know of them. A denial comes back
        as a `ModelOutcome`, and so does the provider's own exception. Texts for this call only are among the messages.
        """
        return await ModelCall(self._session, messages, model or self._model or "", tool_calls).carry_out(call)

    def stream_model(
        self,
        call: Callable[[list[Any]], Awaitable[AsyncIterable[Any]] | AsyncIterable[Any]],
        messages: Sequence[Any] | None = None,
        *,
        join: Callable[[list[Any]], Any] = list,
        model: str = "",
        tool_calls: Callable[[Any], Sequence[Any]] | None = None,
    ) -> ModelStream:
        """The same for an answer that comes in pieces: iterate over the stream, then look at its `outcome`."""
        one = ModelCall(self._session, messages, model or self._model or "", tool_calls)
        return ModelStream(one, call, join)

    async def invoke_agent(
        self,
        name: str,
        inputs: Mapping[str, Any],
        call: Callable[[dict[str, Any], str | None], Awaitable[Any] | Any],
        *,
        definition: Any = None,
        system_prompt: str | None = None,
        model: str | None = None,
    ) -> Any:
        """Invoke an agent past the hooks: `call(inputs, system_prompt)` gets them as the hooks left them.

        Raises what `call` raises, and `HookAbortError` when a hook denies or stops it.
        """
        return await operations.invoke_agent(
            self._session, name, inputs, call, definition=definition, system_prompt=system_prompt, model=model
        )

    async def run_step(
        self,
        workflow: str,
        step_id: str,
        inputs: Mapping[str, Any],
        call: Callable[[dict[str, Any]], Awaitable[Any] | Any],
        *,
        action: str | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> StepOutcome:
        """Run a workflow step past the hooks, once for all its retries.

        A step that a hook denies or stops has failed, with the error "Hook aborted: …". Raises what `call` raises.
        """
        return await operations.run_step(self._session, workflow, step_id, inputs, call, action=action, state=state)

    async def operation(
        self, kind: str, data: Mapping[str, Any], call: Callable[[Mapping[str, Any]], Awaitable[Any] | Any]
    ) -> Any:
        """Any other operation with around hooks, such as storing something in memory.

        Raises what `call` raises, `HookAbortError` when a hook denies or stops it, and `InvalidRegistration` for a
        kind that nothing runs around.
        """
        return await operations.operate(self._session, kind, data, call)


def check_place(name: str, value: object, wanted: type | UnionType) -> None:
    """Refuse an argument in another one's place. Raises `InvalidCollaborator`."""
    if not isinstance(value, wanted):
        problem = f"{name} is of type {type(value).__name__}"
        raise InvalidCollaborator(f"{problem}; pass the HookRegistry first, and everything else by its name: {EXAMPLE}")


def check_once(**names: object) -> None:
    """Refuse one thing under two names. Raises `InvalidCollaborator`."""
    if None not in names.values():
        raise InvalidCollaborator(f"{' and '.join(names)} are two names of one thing; pass one of them")


def working_directory() -> str:
    """Where this program works; empty when that is gone."""
    try:
        return getcwd()  # noqa: PTH109  # pathlib would be a tenth of what the front door loads
    except OSError:
        return ""


def check_wait(seconds: float | None) -> float | None:
    """How long to wait inline, checked."""
    if seconds is not None and not 0 <= seconds < inf:
        raise InvalidLimit("approval_wait", seconds, "a number of seconds, or None to wait until the question expires")
    return seconds


def compile_schemas(given: Mapping[str, Any]) -> dict[str, Schema]:
    """The schemas of tools, each read once. Raises `InvalidRegistration` for one that is broken or could do harm."""
    if not given:
        return {}
    from amplifier_hooks.text.json_schema import Schema, SchemaError

    schemas = {}
    for tool, document in given.items():
        try:
            schemas[tool] = document if isinstance(document, Schema) else Schema(document)
        except SchemaError as problem:
            raise InvalidRegistration(f"tool_schemas[{tool!r}]: {problem}") from None
    return schemas
