"""A session's public class: it carries out the hooks' answers, for turns, model calls and tool calls.

An orchestrator holds a `SessionCoordinator`. `session.py` turns one event into effects, `tool_call.py` carries out a
tool call, `model_call.py` a model call, and `operations.py` everything else.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from os import fspath, urandom
from os.path import realpath
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, Unpack

import msgspec
from msgspec.structs import replace

from amplifier_hooks import events
from amplifier_hooks.admission.approval_request import Origin
from amplifier_hooks.admission.approver import Approver, Lease
from amplifier_hooks.admission.judge import Inventory, deny_outcome, problem_of
from amplifier_hooks.admission.rules import FailClosedRules
from amplifier_hooks.approvals import SessionGrants, grant_store_of
from amplifier_hooks.dispatch.chain import as_payload
from amplifier_hooks.dispatch.merge import merge
from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.errors import HookAbortError, UnknownTool
from amplifier_hooks.events import TOOL_PRE
from amplifier_hooks.foreign_code import DaemonPool, TooLate, finish_despite_cancel, within
from amplifier_hooks.injection.budget import Budget
from amplifier_hooks.injection.inject import Injector
from amplifier_hooks.injection.tokens.counter import counter_for, guard_counter
from amplifier_hooks.logs import get_logger
from amplifier_hooks.record.recorder import Recorder
from amplifier_hooks.result import Answer, HookResult, Outcome, as_result
from amplifier_hooks.session.display import show
from amplifier_hooks.session.model_call import ModelCall, ModelOutcome, ModelStream, takes_model
from amplifier_hooks.session.operations import OperationCall, StepOutcome, snapshot
from amplifier_hooks.session.options import SessionOptions, Settings, as_backend
from amplifier_hooks.session.session import Session
from amplifier_hooks.session.tool_call import ToolCall, ToolOutcome

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
    from os import PathLike
    from types import TracebackType

    from amplifier_hooks.dispatch.chain import PayloadData
    from amplifier_hooks.injection.inject import Injection
    from amplifier_hooks.ports import Grant
    from amplifier_hooks.registry.registry import HookRegistry
    from amplifier_hooks.result import UserMessage
    from amplifier_hooks.session.tool_call import Returned


T = TypeVar("T")

log = get_logger(__name__)

CLOSING: Final = 5.0
"""Seconds that each step of closing a session may take."""


class Turn(msgspec.Struct, eq=False):
    """A turn under way. If the prompt was denied, nothing in the turn runs."""

    prompt: str
    """The prompt as the hooks left it."""
    outcome: Outcome
    response: Any = None
    """The result of the turn; the hooks receive it when the turn ends."""
    status: Literal["success", "denied", "cancelled", "error"] = "success"

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
        injection_budget_per_turn: Tokens of all injections of one turn, in place of a `budget`.
        injection_size_limit: Bytes of one injection, in place of a `budget`.
        model: The model's name; it determines how tokens are counted.
        counter: A token counter of the host's own.
        tenant: The tenant of the session; system hooks and this tenant's hooks take part.
        agent: The name of the agent that acts.
        parent: The session above; `child` names it.
        tools: Functions for `execute_tool`, by name.
        tool_schemas: The JSON schemas of tools' inputs, by name. An input that hooks changed has to fit, or the call is
            denied as `hook_invalid_output`; an input as the agent sent it is not checked.
        run_id: The run to which the session belongs.
        clock: The source of time; a test may pass one that it moves itself.
        rules: The rules that decide without a person, at every event that can be stopped.
        cwd: The directory in which the agent works; this program's working directory, unless it is given.
        risk: A function that assesses the risk of a tool call, by name and arguments; a failure counts as "high". The
            highest assessment of the host, hooks and rules counts. Without it, a question without a risk has "medium".
        approval_wait: Seconds to wait for a person inline. Then a durable backend keeps the question open, and the
            outcome of the call is pending; with any other backend the question expires.
        grants: The store of grants; by default the backend if it is one, or memory.
        audit_required: True if an act that cannot be recorded is denied. If False, the failure is only logged.
        self_protection: Denies tool calls that could take the session's guard away; without it, none is denied for
            that.

    Raises `InvalidCollaborator` for `hooks` that are no registry, and for two names of one thing at once.
    """

    def __init__(
        self,
        hooks: HookRegistry | None = None,
        *,
        agent: str = "agent",
        parent: SessionCoordinator | None = None,
        **options: Unpack[SessionOptions],
    ) -> None:
        self._parent = parent
        self._children: list[SessionCoordinator] = []
        self._closing: asyncio.Task[None] | None = None
        self._started = self._final = False
        above = None if parent is None else parent._settings
        self._settings: Settings = Settings.of(options, above, hooks=hooks, agent=agent)
        self._session: Session = make_session(self._settings, None if parent is None else parent._session)
        if parent is not None:
            parent._children.append(self)
            if parent._session.closed:
                self._stop(parent._session.stopped or "", closed=True)

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
    def mark(self) -> str:
        """The mark that ends every heading of this session in the model's context, for the host's system prompt."""
        return self._session.mark

    @property
    def transcript(self) -> tuple[tuple[str, str], ...]:
        """The texts that captured hooks printed and did not hide, with the hook's name: the last 1,000, in order.

        A program that shows a text escapes it. The record has size and digest of every output, hidden or not.
        """
        return tuple(self._session.outputs)

    @property
    def injection_budget_per_turn(self) -> int | None:
        """Tokens that all injections of one turn may have; None is no limit."""
        return self._settings.budget.per_turn

    @property
    def injection_size_limit(self) -> int:
        """Bytes of UTF-8 that one injection may have."""
        return self._settings.budget.injection_size

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
            await self._record_protection()
            goes_on = await self._begin_lease()
            begins = events.SESSION_START if self._parent is None else events.SESSION_FORK
            about = {} if self._parent is None else {"parent": self._parent.session_id}
            await self._session.emit(events.SESSION_RESUME if goes_on else begins, about)

    async def _record_protection(self) -> None:
        """Record that the self-protection is off, where an operator or the session above would have it on."""
        own = self._settings.self_protection
        above = None if self._parent is None else self._parent._settings.self_protection
        reason = own.off if own is not None else "" if above is None else "its parent left it out"
        if reason:
            await self._session.recorder.note("self_protection.off", {"reason": reason}, durable=True)

    async def _begin_lease(self) -> bool:
        """Begin the session in a durable backend. Return True if the session existed before.

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
        await finish_despite_cancel(self._closing)

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
                await self._run_closing_step(self._session.emit(events.SESSION_END, {}))
            await self._run_closing_step(self._session.approver.end("the session ended", final=self._final))
            if self._session.inventory is not None:
                await self._run_closing_step(self._session.inventory.close())
        finally:  # also when the event loop itself is being shut down
            if self._parent is not None and self in self._parent._children:
                self._parent._children.remove(self)

    async def _run_closing_step(self, step: Coroutine[Any, Any, Any]) -> None:
        """Carry out one step of closing. A step that fails or hangs does not keep the next ones from running."""
        try:
            await within(CLOSING, step)
        except TooLate:
            log.warning("session_closing_late", session_id=self.session_id)
        except Exception as error:  # noqa: BLE001  # a hook or a backend may raise anything
            log.warning("session_closing_failed", session_id=self.session_id, error=describe(error))

    def child(
        self, agent: str, *, hooks: HookRegistry | None = None, **options: Unpack[SessionOptions]
    ) -> SessionCoordinator:
        """Return a sub-agent's session: linked to this one, in its record, with grants and a budget of its own.

        Options are those of a session; hooks, approver, screen, record, limits, tenant, tools and their schemas are the
        parent's unless an option replaces them, also by None. The child is closed with its parent.
        """
        path = f"{self._session.agent} › {agent}"  # noqa: RUF001  # no name has this character by accident
        return SessionCoordinator(self.hooks if hooks is None else hooks, agent=path, parent=self, **options)

    async def cancel(self, reason: str = "cancelled") -> None:
        """Stop the work under way: withdraw open questions, cancel running hooks, and deny every act that waits.

        Questions that wait in a durable backend are withdrawn, too. A tool that runs goes on; cancel its task to end
        it. A new turn begins afresh.

        Args:
            reason: Reason that the record and the withdrawn questions carry.
        """
        self._stop(reason)
        for one in self._tree():
            await one._session.approver.withdraw_waiting(reason)
        await self._tell_cancelled(reason)

    async def _tell_cancelled(self, reason: str) -> None:
        await self._session.emit(events.CANCEL_REQUESTED, {"reason": reason})
        for child in tuple(self._children):
            await child._tell_cancelled(reason)
        await self._session.emit(events.CANCEL_COMPLETED, {"reason": reason})

    def _stop(self, reason: str, *, closed: bool = False) -> None:
        for one in self._tree():
            one._session.closed = one._session.closed or closed
            one._session.stop(reason)

    def _tree(self) -> list[SessionCoordinator]:
        """Return this session and those below it, each before its children."""
        return [self, *(one for child in self._children for one in child._tree())]

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
    async def turn(
        self, prompt: str, *, orchestrator: str = "", cwd: str | PathLike[str] | None = None
    ) -> AsyncIterator[Turn]:
        """Open a turn: the prompt passes its hooks, and the injection budget begins anew.

        `cwd` is the folder of the prompt; it is the session's folder unless it is given.

        When a hook denies the prompt, model and tool calls in this turn are denied with its reason. At the end, also
        after an error, the hooks are notified that the orchestrator is done and then that the turn is complete; before
        the latter, the user is notified of an error or a denial. Raises the errors of the body.

        Args:
            prompt: Text of the user.
            orchestrator: Name of the loop that works on the prompt, for hooks to read.
            cwd: Folder of the prompt; the session's folder if None.
        """
        session = self._session
        session.turn += 1
        session.begin_turn()
        began = perf_counter()
        turn = await self._begin_turn(prompt, real_folder(cwd))
        try:
            yield turn
        except Exception as error:
            turn.status = "error"
            await session.emit(events.ERROR_ORCHESTRATOR, {"error": problem_of(error)})
            raise
        except BaseException:
            turn.status = "cancelled"
            raise
        finally:
            await self._end_turn(turn, orchestrator or session.agent, (perf_counter() - began) * 1e3)

    async def _begin_turn(self, prompt: str, cwd: str | None) -> Turn:
        outcome = await self._session.emit(events.PROMPT_SUBMIT, {"prompt": prompt}, cwd)
        left = outcome.data.get("prompt")
        if not isinstance(left, str):
            problem = f"a hook replaced the prompt by something of type {type(left).__name__}"
            left, outcome = prompt, deny_outcome(outcome, "session", problem, "hook_invalid_output")
        if not outcome.denied:
            return Turn(left, outcome)
        if not self._session.closed:
            why = f": {outcome.reason}" if outcome.reason else ""
            self._session.halted = f"the prompt was denied by {outcome.denied_by or 'registry'}{why}"
        return Turn(left, outcome, status="denied")

    async def _end_turn(self, turn: Turn, orchestrator: str, spent: float) -> None:
        session = self._session
        if turn.status == "success" and session.stopped is not None:
            turn.status = "cancelled"
        facts = {
            "orchestrator": orchestrator,
            "turn_count": session.turn,
            "duration_ms": spent,
            "status": turn.status,
        }
        await session.emit(events.ORCHESTRATOR_COMPLETE, facts)
        if turn.status in ("denied", "error"):
            why = f"The turn ended: {turn.status}" + (f" ({turn.reason})" if turn.reason else "")
            await session.emit(events.USER_NOTIFICATION, {"message": why, "level": "warning"})
        await session.emit(events.PROMPT_COMPLETE, {"prompt": turn.prompt, "response": turn.response})

    def reset_turn(self) -> None:
        """Begin a turn, in a host that does not use `turn`: renew the injection budget, and clear a cancellation."""
        self._session.begin_turn()

    # -- events --------------------------------------------------------------------------------------------------

    def emit(
        self, event: str, data: PayloadData, *, cwd: str | PathLike[str] | None = None
    ) -> Coroutine[Any, Any, Outcome]:
        """Ask the hooks, carry their answers out, and return the outcome after its effects.

        `cwd` is the folder of the event; it is the session's folder unless it is given.

        If the event can be stopped, the outcome is denied when an approver does not allow it and when the record cannot
        be written. Injections of a denied event stay in the outcome, for the denial to quote.

        Args:
            cwd: Folder of the event; the session's folder if None.

        Raises `InvalidPayload` for data that is neither a mapping nor a model of a payload.
        """
        return self._session.emit(event, as_payload(event, data), real_folder(cwd))

    execute_with_hooks = emit

    async def process_hook_result(self, result: HookResult, event: str, hook_name: str = "unknown") -> HookResult:
        """Carry out a result that the caller obtained itself, and return the part that is left to the caller.

        A modification comes back as it is; a question comes back as `continue` or `deny`, once it is answered; a denial
        keeps its injections, for its reader to find there. Observers are not notified.

        Raises `InvalidResult` for an invalid result, and `InjectionTooLarge`, before anything is injected.
        """
        session = self._session
        answer = Answer(hook_name, as_result(result))
        outcome = merge(events.canonical(event), session.payload({}), [answer])
        session.injector.check(outcome.injections)
        with session.undecided:
            outcome = await session.record_outcome(outcome, stops=session.hooks.can_be_stopped(outcome.event))
            if outcome.asks and not outcome.denied:
                outcome = await session.ask_about(outcome)
        if outcome.denied:
            return HookResult.deny(outcome.reason, context_injections=outcome.injections)
        await session.inject(outcome)
        return HookResult.modify(answer.data) if answer.action == "modify" and answer.data else HookResult.proceed()

    async def handle_context_injection(self, result: HookResult, hook_name: str, event: str) -> None:
        """Inject the texts of a result that the caller obtained itself, and do nothing else with it.

        Raises `InvalidResult` for an invalid result, and `InjectionTooLarge`, before anything is injected.
        """
        texts = as_result(result).injections
        await self.process_hook_result(HookResult(context_injections=texts), event, hook_name)

    async def handle_approval_request(self, result: HookResult, hook_name: str, event: str = TOOL_PRE) -> HookResult:
        """Ask an approver the question of a result that the caller obtained itself, and do nothing else with it.

        Return `continue` or `deny`; a result without a question is `continue`. Raises `InvalidResult`.

        Args:
            event: Event at which the hook answered.
        """
        question = as_result(result)
        if question.action != "ask_user":
            return HookResult.proceed()
        alone = replace(question, context_injection=None, context_injections=(), user_message=None)
        return await self.process_hook_result(alone, event, hook_name)

    # -- operations ----------------------------------------------------------------------------------------------

    def call_tool(
        self,
        name: str,
        tool_input: Mapping[str, Any],
        call: Callable[[Any], Returned[T]],
        *,
        call_id: str | None = None,
        cwd: str | PathLike[str] | None = None,
    ) -> Coroutine[Any, Any, ToolOutcome[T]]:
        """Run one tool call past the hooks: decide, ask, record, run, notify.

        Args:
            name: The tool's name, as the model knows it.
            tool_input: The input from the model: values of JSON.
            call: The function that does the work, plain or async. It gets the input as the hooks left it.
            call_id: The model's id of the call. A pending call that is made again with its id goes on where it was.
            cwd: The folder in which this call happens: its paths are resolved there, and it is part of what is
                approved. It is the session's folder unless it is given.

        A denial comes back as a `ToolOutcome` the model can read, and so does the tool's own exception (`SystemExit`,
        too, and a `CancelledError` if the caller did not cancel this call). Nothing runs that was not recorded first,
        and the call runs with exactly the input that was approved. `call` gets a fresh copy of it.

        Cancelling takes back an open question, or cancels the tool; the record tells the two apart. The method
        `cancel` leaves a running tool alone.
        """
        return self._tool_call(name, tool_input, call, call_id=call_id, cwd=cwd).carry_out()

    def _tool_call(
        self,
        name: str,
        tool_input: Mapping[str, Any] | bytes,
        call: Callable[[Any], Any],
        *,
        call_id: str | None,
        cwd: str | PathLike[str] | None,
    ) -> ToolCall:
        """Return a tool call that has not begun. Bytes are the sender's own JSON."""
        return ToolCall(
            self._session,
            name,
            call_id or self._session.new_id(),
            tool_input,
            call,
            cwd=real_folder(cwd),
            chosen=call_id is not None,
        )

    async def execute_tool(
        self, name: str, tool_input: Mapping[str, Any], *, call_id: str | None = None
    ) -> ToolOutcome[Any]:
        """Run one of the session's own tools as `call_tool` does.

        Args:
            name: Name of a tool that the session has, by its option `tools`.
            tool_input: Input from the model: values of JSON.
            call_id: Id of the call, as the model gave it; a new one if None.

        Raises `UnknownTool`.
        """
        tools = self._settings.tools
        if name not in tools:
            raise UnknownTool(name, tuple(tools))
        return await self.call_tool(name, tool_input, tools[name], call_id=call_id)

    async def call_model(
        self,
        call: Callable[..., Awaitable[Any] | Any],
        messages: Sequence[Any] | None = None,
        *,
        model: str = "",
        tool_calls: Callable[[Any], Sequence[Any]] | None = None,
    ) -> ModelOutcome:
        """Call the model past the hooks, with these messages or the context's.

        Args:
            call: The function that calls the provider, plain or async: `call(messages)`.
            messages: The messages in place of the context's.
            model: The model of this call, in place of the session's.
            tool_calls: A function that returns the tool calls in a response, for the hooks that read them.

        A denial comes back as a
        `ModelOutcome`, and so does the provider's own exception. Texts for this call only are among the messages.

        `call(messages)` also gets `model=`, the name as the hooks left it, if it has a parameter of that name and the
        name is known. A hook's choice that `call` does not take is a denial with the error `ModelNotTaken`.
        """
        name = model or self._settings.model or ""
        return await ModelCall(self._session, messages, name, tool_calls, takes_model(call)).carry_out(call)

    def stream_model(
        self,
        call: Callable[..., Awaitable[AsyncIterable[Any]] | AsyncIterable[Any]],
        messages: Sequence[Any] | None = None,
        *,
        join: Callable[[list[Any]], Any] = list,
        model: str = "",
        tool_calls: Callable[[Any], Sequence[Any]] | None = None,
    ) -> ModelStream:
        """Call the model as `call_model` does. Return a stream of its answer's pieces, which then has the `outcome`.

        Args:
            call: Function that calls the provider and returns a stream: `call(messages)`.
            messages: Messages in place of the context's.
            join: Function that makes the response out of the pieces; a list of them by default.
            model: Model of this call, in place of the session's.
            tool_calls: Function that returns the tool calls in a response, for the hooks that read them.
        """
        name = model or self._settings.model or ""
        one = ModelCall(self._session, messages, name, tool_calls, takes_model(call))
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

        Args:
            name: The agent's name.
            inputs: The agent's inputs; hooks may change them.
            call: The function that runs the agent, plain or async.
            definition: The host's own description of the agent, for hooks to read.
            system_prompt: The agent's system prompt; hooks may change it.
            model: The agent's model, for hooks to read.

        Raises the errors of `call`, and `HookAbortError` when a hook denies or stops it.
        """
        data = {
            "agent_name": name,
            "inputs": dict(inputs),
            "system_prompt": system_prompt,
            "agent_definition": definition,
            "model": model,
        }
        agent = OperationCall(self._session, "agent", data)
        return await agent.carry_out(lambda data: call(dict(data["inputs"]), data["system_prompt"]))

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

        Args:
            workflow: Name of the workflow.
            step_id: Id of the step within its workflow.
            inputs: Inputs of the step; hooks may change them.
            call: Function that runs the step, plain or async. It gets the inputs as the hooks left them.
            action: Name of the step's work, for hooks to read.
            state: State of the workflow, for hooks to read.
        """
        data = {
            "workflow_name": workflow,
            "step_id": step_id,
            "step_action": action,
            "inputs": dict(inputs),
            "state": snapshot(state or {}),
        }
        step = OperationCall(self._session, "workflow", data)
        try:
            result = await step.carry_out(lambda data: call(dict(data["inputs"])))
        except HookAbortError as abort:
            return StepOutcome(status="failed", error=f"Hook aborted: {abort.reason}")
        return StepOutcome(status="completed", result=result)

    async def operation(
        self, kind: str, data: Mapping[str, Any], call: Callable[[Mapping[str, Any]], Awaitable[Any] | Any]
    ) -> Any:
        """Run any other operation with around hooks, such as storing something in memory.

        Raises the errors of `call`, `HookAbortError` when a hook denies or stops it, and `InvalidRegistration` for a
        kind of operation that has no around hooks.

        Args:
            kind: Kind of the operation, such as `memory`.
            data: Payload of the operation's first event.
            call: Function that does the work, plain or async. It gets the payload as the hooks left it.
        """
        return await OperationCall.of_kind(self._session, kind, data).carry_out(call)


def real_folder(cwd: str | PathLike[str] | None) -> str | None:
    """Return a folder as it is hashed: its real path; None stands for the session's root."""
    return None if cwd is None else realpath(fspath(cwd))


def make_session(settings: Settings, parent: Session | None) -> Session:
    """Return a session with its collaborators, each made from the settings."""
    hooks, clock, tenant, session_id = settings.hooks, settings.clock, settings.tenant, settings.session_id
    recorder = Recorder(settings.audit, clock, session_id, tenant, required=settings.audit_required)
    origin = Origin(
        agent=settings.agent,
        cwd=settings.cwd,
        wait=settings.approval_wait,
        assess=settings.risk,
        version=partial(hooks.version_of, tenant=tenant),
        ours=hooks.may_instruct,
    )
    backend = as_backend(settings.approvals)

    async def tell(message: UserMessage) -> None:
        await show(settings.display, [message])

    lease = Lease(backend, recorder, tenant, session_id, tell)
    grants = settings.grants
    if grants is None:
        grants = grant_store_of(backend) or SessionGrants(clock)
    approver = Approver(backend, recorder, clock, origin, lease=lease, grants=grants)
    counter = (
        counter_for(settings.model)
        if settings.counter is None
        else guard_counter(settings.counter, run=DaemonPool(1, "counter").run)
    )
    budget = Budget(limits=settings.budget)
    protection = settings.self_protection
    policies = [one for one in (None if protection is None or protection.off else protection, settings.rules) if one]
    mark = getattr(settings.context, "mark", None)
    mark = mark if isinstance(mark, str) and mark else urandom(4).hex()  # `secrets` loads slowly
    return Session(
        id=session_id,
        tenant=tenant,
        agent=settings.agent,
        hooks=hooks,
        context=settings.context,
        display=settings.display,
        clock=clock,
        recorder=recorder,
        approver=approver,
        injector=Injector(settings.context, recorder, clock, tenant, budget, counter, hooks.source_trust, tell, mark),
        mark=mark,
        rules=FailClosedRules(*policies) if policies else None,
        origin=origin,
        inventory=None if settings.audit is None else Inventory(hooks, recorder, tenant),
        schemas=settings.tool_schemas,
        parent=parent,
        run=settings.run_id,
    )
