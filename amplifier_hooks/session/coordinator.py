"""A session's public class: it carries out the hooks' answers, for turns, model calls and tool calls.

An orchestrator holds a `SessionCoordinator`. `session.py` turns one event into effects, `tool_call.py` carries out a
tool call, `model_call.py` a model call, and `operations.py` everything else.
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
"""Seconds that each step of closing a session may take."""


@define(eq=False)
class Turn:
    """A turn under way. If the prompt was denied, nothing in the turn runs."""

    prompt: str
    """The prompt as the hooks left it."""
    outcome: Outcome
    response: Any = None
    """The result of the turn; the hooks receive it when the turn ends."""
    status: Literal["completed", "denied", "cancelled", "error"] = "completed"

    @property
    def denied(self) -> bool:
        """True if the prompt may not be worked on."""
        return self.outcome.denied

    @property
    def reason(self) -> str | None:
        """The reason for a denial."""
        return self.outcome.reason


class SessionCoordinator:
    """One session: its hooks, its context, its screen, its approver and its record.

    Every collaborator has a working default, so `SessionCoordinator()` alone runs. Use it as an async context
    manager: it notifies the hooks when the session starts and ends, and closes in order.

    Args:
        hooks: A registry, which many sessions may share.
        session_id: The session's id; a new one is drawn when it is not given.
        context: The store of the model's messages.
        approvals: The approver of questions that hooks ask; also any object with the upstream method
            `request_approval(prompt, options, timeout, default)`. Without an approver, every question is denied.
        approval_system: Another name of `approvals`.
        display: The screen of the user.
        display_system: Another name of `display`.
        audit: The record, which many sessions may share. An act that cannot be recorded is denied.
        budget: The limits of injections.
        model: The model's name; it determines how tokens are counted.
        counter: A token counter of the host's own.
        tenant: The tenant of the session; system hooks and this tenant's hooks take part.
        agent: The name of the agent that acts.
        tools: Functions for `execute_tool`, by name.
        tool_schemas: The JSON schemas of tools' inputs, by name. An input that hooks changed has to fit, or the call is
            denied as `hook_invalid_output`; an input as the agent sent it is not checked.
        run_id: The run to which the session belongs.
        rules: The rules that decide without a person, at every tool call.
        cwd: The directory in which the agent works; this program's working directory, unless it is given.
        risk: A function that assesses the risk of a tool call, by name and arguments; a failure counts as "high". The
            highest assessment of the host, hooks and rules counts. Without it, a question without a risk has "medium".
        approval_wait: Seconds to wait for a person inline. Then a durable backend keeps the question open, and the
            outcome of the call is pending; with any other backend the question expires.
        grants: The store of grants; by default the backend if it is one, or memory.
        audit_required: True if an act that cannot be recorded is denied. If False, the failure is only logged.
        arguments: A store for the arguments of tool calls, beside the record; none unless it is given.
        audit_runs: True if the record has the start and the end of every run of hooks, and not only their answers.

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
        # Compared with None, because a context with a length is false while it is empty.
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
            approver=None,  # type: ignore[arg-type]  # set below, like the injector: both show messages through the session
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

    # -- identity ------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The session's id in every payload and record."""
        return self._session.id

    @property
    def hooks(self) -> HookRegistry:
        """The session's registry."""
        return self._session.hooks

    @property
    def context(self) -> Any:
        """The session's context, as it was given; an `InMemoryContext` by default."""
        return self._session.context

    @property
    def injections(self) -> tuple[Injection, ...]:
        """The injections so far, for review."""
        return self._session.injector.injections

    @property
    def transcript(self) -> tuple[tuple[str, str], ...]:
        """The texts that captured hooks printed and did not hide, with the hook's name: the last 1,000, in order.

        A program that shows a text escapes it. The record has size and digest of every output, hidden or not.
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
        """Notify the hooks that the session begins, or resumes where an earlier program left it.

        In a durable approval backend this program becomes the session's owner. An action that another program began
        there, and whose end is unknown, is shown on the screen and never run again. Open questions and unused answers
        wait for their calls to be made again. A second call is harmless.

        Raises `UnknownEvent`, and notifies no hook, if a gate of its registry is at an unknown event.
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
        """Become the session's owner in a durable backend. Return True if the session existed before.

        If the backend fails now, the session tries again before its first question. Unfinished actions are shown only
        once, and a session that asks nothing needs no backend.
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
        grants in force, for a program that comes back to them. `end` ends such a session, too.

        Each step has a deadline, so closing ends even if a step hangs. A tool that runs is left alone, and nothing new
        begins. A second call is harmless. Cancelling does not stop closing: the cancellation is raised when closing has
        ended.
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
        """Close the session for good: take back its pending questions in a durable backend, and end its grants."""
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
        """Carry out one step of closing. A step that fails or hangs does not keep the next ones from running."""
        try:
            await within(CLOSING, step)
        except TooLate:
            log.warning("session_closing_late", session_id=self.session_id)
        except Exception as error:  # noqa: BLE001  # a hook or a backend may raise anything
            log.warning("session_closing_failed", session_id=self.session_id, error=describe(error))

    def child(self, agent: str, **options: Any) -> SessionCoordinator:
        """Return a sub-agent's session: linked to this one, in its record, with grants and a budget of its own.

        Options are those of a session; hooks, approver, screen, record, limits, tenant, tools and their schemas are the
        parent's unless an option replaces them. The child is closed with its parent.
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
        """Stop the work under way: withdraw open questions, cancel running hooks, and deny every act that waits.

        Questions that wait in a durable backend are withdrawn, too. A tool that runs goes on; cancel its task to end
        it. A new turn begins afresh.
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

    # -- grants --------------------------------------------------------------------------------------------------

    async def grants(self) -> Sequence[Grant]:
        """Return the grants in force in this session, oldest first.

        Raises the errors of the store of grants.
        """
        return await self._session.approver.grants.list_grants(self._session.tenant, self.session_id)

    async def revoke(self, grant_id: str) -> bool:
        """End a grant; return True if there was one. The next time, a person is asked again.

        Raises the errors of the store of grants.
        """
        session = self._session
        revoked = await session.approver.grants.revoke_grant(grant_id, session.tenant, session.id)
        await session.recorder.note("approval.revoked", {"grant": grant_id, "revoked": revoked}, durable=True)
        return revoked

    # -- turns ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def turn(self, prompt: str, *, orchestrator: str = "") -> AsyncIterator[Turn]:
        """Open a turn: the prompt passes its hooks, and the injection budget begins anew.

        When a hook denies the prompt, model and tool calls in this turn are denied with its reason. At the end, also
        after an error, the hooks are notified that the orchestrator is done and then that the turn is complete; before
        the latter, the user is notified of an error or a denial. Raises the errors of the body.
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
        """Begin a turn, in a host that does not use `turn`: renew the injection budget, and clear a cancellation."""
        self._session.begin_turn()

    # -- events --------------------------------------------------------------------------------------------------

    def emit(self, event: str, data: Mapping[str, Any]) -> Coroutine[Any, Any, Outcome]:
        """Ask the hooks, carry their answers out, and return the outcome after its effects.

        If the event can be stopped, the outcome is denied when an approver does not allow it and when the record cannot
        be written. Injections of a denied event stay in the outcome, for the denial to quote.
        """
        return self._session.emit(event, data)

    execute_with_hooks = emit

    async def process_hook_result(self, result: HookResult, event: str, hook_name: str = "unknown") -> HookResult:
        """Carry out a result that the caller obtained itself, and return the part that is left to the caller.

        A modification comes back as it is; a question comes back as `continue` or `deny`, once it is answered; a denial
        keeps its injections, for its reader to find there. Observers are not notified.

        Raises `InvalidResult` for an invalid result, and `InjectionTooLarge`, before anything is injected.
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
        """Run one tool call past the hooks: decide, ask, record, run, notify.

        A denial comes back as a `ToolOutcome` the model can read, and so does the tool's own exception (`SystemExit`,
        too, and a `CancelledError` if the caller did not cancel this call). Nothing runs that was not recorded first,
        and the call runs with exactly the input that was approved. `call` gets a fresh copy of it.

        Cancelling takes back an open question, or cancels the tool; the record tells the two apart. The method
        `cancel` leaves a running tool alone.
        """
        return await ToolCall(self._session, name, call_id or self._session.new_id(), tool_input, call).carry_out()

    async def execute_tool(
        self, name: str, tool_input: Mapping[str, Any], *, call_id: str | None = None
    ) -> ToolOutcome:
        """Run one of the session's own tools as `call_tool` does.

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

        `tool_calls` returns the tool calls in a response, for the hooks that read them. A denial comes back as a
        `ModelOutcome`, and so does the provider's own exception. Texts for this call only are among the messages.
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
        """Call the model as `call_model` does. Return a stream of its answer's pieces, which then has the `outcome`."""
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
        """Invoke an agent past the hooks: `call(inputs, system_prompt)` gets both as the hooks left them.

        Raises the errors of `call`, and `HookAbortError` when a hook denies or stops it.
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

        A step that a hook denies or stops has failed, with the error "Hook aborted: …". Raises the errors of `call`.
        """
        return await operations.run_step(self._session, workflow, step_id, inputs, call, action=action, state=state)

    async def operation(
        self, kind: str, data: Mapping[str, Any], call: Callable[[Mapping[str, Any]], Awaitable[Any] | Any]
    ) -> Any:
        """Run any other operation with around hooks, such as storing something in memory.

        Raises the errors of `call`, `HookAbortError` when a hook denies or stops it, and `InvalidRegistration` for a
        kind of operation that has no around hooks.
        """
        return await operations.operate(self._session, kind, data, call)


def check_place(name: str, value: object, wanted: type | UnionType) -> None:
    """Refuse an argument that stands in the place of another one. Raises `InvalidCollaborator`."""
    if not isinstance(value, wanted):
        problem = f"{name} is of type {type(value).__name__}"
        raise InvalidCollaborator(f"{problem}; pass the HookRegistry first, and everything else by its name: {EXAMPLE}")


def check_once(**names: object) -> None:
    """Refuse one thing under two names. Raises `InvalidCollaborator`."""
    if None not in names.values():
        raise InvalidCollaborator(f"{' and '.join(names)} are two names of one thing; pass one of them")


def working_directory() -> str:
    """Return the working directory of this program; empty if it is gone."""
    try:
        return getcwd()  # noqa: PTH109  # pathlib would be a tenth of what the front door loads
    except OSError:
        return ""


def check_wait(seconds: float | None) -> float | None:
    """Return the seconds to wait inline, once they are checked. Raises `InvalidLimit`."""
    if seconds is not None and not 0 <= seconds < inf:
        raise InvalidLimit("approval_wait", seconds, "a number of seconds, or None to wait until the question expires")
    return seconds


def compile_schemas(given: Mapping[str, Any]) -> dict[str, Schema]:
    """Read the schemas of tools, each once. Raises `InvalidRegistration` for one that is broken or could do harm."""
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
