"""One model call: its messages, its decision, its answer, and the tool calls in that answer."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from amplifier_hooks.admission.judge import deny_outcome, problem_of
from amplifier_hooks.dispatch.middleware import ModelContext, Rests
from amplifier_hooks.errors import HookAbortError, ModelNotTaken
from amplifier_hooks.events import CONTEXT_ASSEMBLED, DECISION_TOOL_RESOLUTION, ERROR_PROVIDER, LLM_POST, LLM_PRE
from amplifier_hooks.foreign_code import cancellations, was_cancelled_since, without_capture
from amplifier_hooks.session.session import metadata_of, notes_of, without_empty_metadata

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_hooks.result import Outcome
    from amplifier_hooks.session.session import Session


END: Final = object()

CALL_IDS: Final = ("tool_call_id", "call_id", "id")
"""Names under which providers give the id of a tool call. Where a call has both, `id` is the id of its message."""


class ModelOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a model call: a `value`, a denial, or the provider's own `error`.

    Where a hook chose a model that the host's callable does not take, the denial has a `ModelNotTaken` as its `error`.
    A denial after the answer (`answered` is then true) leaves the answer out and keeps its tool calls from running.
    """

    value: Any = None
    denied: bool = False
    reason: str | None = None
    by: str | None = None
    error: BaseException | None = None
    answered: bool = False

    @property
    def ok(self) -> bool:
        """True if the model answered and the answer may be used."""
        return not self.denied and self.error is None


class ModelCall(msgspec.Struct, eq=False):
    """One call under way. `carry_out` is the sequence; the steps stand below it in the order they are taken."""

    session: Session
    messages: Sequence[Any] | None
    model: str
    tool_calls: Callable[[Any], Sequence[Any]] | None
    takes_model: bool = False
    """True if the host's callable takes the model by its name."""
    notes: dict[str, Any] = {}
    """The custom fields that hooks set before the call, for the event after it."""
    rests: Rests = msgspec.field(default_factory=lambda: Rests(LLM_PRE))
    """The hook objects that wait for the model."""
    ran: bool = False
    answer: Any = None
    """The model's own answer: the host may have read its tool calls already."""
    denials: int = 0
    """Number of the session's denied answers before this call."""
    stops: int = 0
    """Number of the session's stops before this call."""
    failure: BaseException | None = None
    """The exception that the provider itself raised."""
    ephemeral: list[dict[str, Any]] = []
    """Texts for this call alone, until the model has answered them."""

    async def carry_out(self, call: Callable[..., Awaitable[Any] | Any]) -> ModelOutcome:
        """Assemble the messages, decide, call the model, decide on the answer. Cancelling cancels the call.

        Texts for one call only wait for another call if the model did not answer this one.
        """
        try:
            return await self._carry_out(call)
        finally:
            self.session.injector.give_back(self.ephemeral)
            await self.rests.end()

    async def _carry_out(self, call: Callable[..., Awaitable[Any] | Any]) -> ModelOutcome:
        session = self.session
        self.denials, self.stops = session.denied_answers.count, session.stops
        if session.stopped is not None:
            return await self._refuse("session", session.stopped)
        messages, outcome = await self._assemble()
        if outcome.denied:
            return await self._refuse(outcome.denied_by or "registry", outcome.reason, outcome)
        chosen = outcome.data["model"]
        if not isinstance(chosen, str) or (chosen != self.model and not (chosen and self.takes_model)):
            return await self._refuse_choice(chosen, outcome)
        self.model = chosen
        began, before = perf_counter(), cancellations()
        try:
            response = await self._call_model(messages, call)
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and was_cancelled_since(before):
                raise
            return await self._fail(error)
        return await self._decide_answer(response, (perf_counter() - began) * 1e3)

    # -- before it is called -------------------------------------------------------------------------------------

    async def _assemble(self) -> tuple[list[Any], Outcome]:
        """Return the messages that the model will read, as the hooks left them, and the last outcome."""
        session = self.session
        messages = await self._context_messages() if self.messages is None else list(self.messages)
        seen = len(messages)
        messages += self._take_ephemeral()
        outcome = await session.emit(CONTEXT_ASSEMBLED, {"messages": list(messages)})
        injected = bool(outcome.injections)
        if not outcome.denied:
            messages, outcome = self._apply_changes(messages, outcome)
        if not outcome.denied:
            data = {"messages": list(messages), "model": self.model}
            outcome = await session.emit(LLM_PRE, data, rests=self.rests)
            self.notes = notes_of(outcome, LLM_POST)
            injected = injected or bool(outcome.injections)
            messages, outcome = self._apply_changes(messages, outcome)
        if injected and not outcome.denied:  # an injection of this call belongs to this call, not to the next
            if self.messages is None:
                messages += (await self._context_messages())[seen:]
            messages += self._take_ephemeral()
        return messages, outcome

    def _take_ephemeral(self) -> list[dict[str, Any]]:
        """Take the texts that wait for a model call."""
        taken = self.session.injector.take_ephemeral()
        self.ephemeral += taken
        return taken

    def _apply_changes(self, messages: list[Any], outcome: Outcome) -> tuple[list[Any], Outcome]:
        """Return the messages as the hooks replaced them. Changes that hooks made in place do not count."""
        if outcome.denied or not outcome.modified:
            return messages, outcome
        replaced = outcome.data["messages"]
        if not isinstance(replaced, Sequence) or isinstance(replaced, str | bytes):
            problem = f"a hook replaced the messages by something of type {type(replaced).__name__}"
            return messages, deny_outcome(outcome, "session", problem, "hook_invalid_output")
        return list(replaced), outcome

    async def _context_messages(self) -> list[Any]:
        messages = self.session.context.get_messages()
        return list(await messages if inspect.isawaitable(messages) else messages)

    # -- calling it ----------------------------------------------------------------------------------------------

    async def _call_model(self, messages: list[Any], call: Callable[..., Awaitable[Any] | Any]) -> Any:
        """Call the model inside its around hooks, with the messages as they leave them."""
        tenant = self.session.tenant
        around = ModelContext(
            event_type=LLM_PRE,
            tenant_id=tenant,
            messages=messages,
            model=self.model,
            metadata=metadata_of(self.notes),
        )
        named = {"model": self.model} if self.takes_model and self.model else {}

        async def operate() -> Any:
            self.ran = True
            try:
                with without_capture():  # as in a tool call
                    value = call(around.messages, **named)
                    answer = await value if inspect.isawaitable(value) else value
            except BaseException as error:
                self.failure = error
                raise
            self.ephemeral = []
            self.answer = answer
            return answer

        return await self.session.wrap("model", lambda: around, operate, self.rests.layers, self.stops)

    async def _decide_answer(self, response: Any, duration: float) -> ModelOutcome:
        """Let the hooks decide on the model's answer, and return the outcome."""
        session = self.session
        told = {
            **without_empty_metadata(self.notes),
            "response": response,
            "model": self.model,
            "duration_ms": duration,
        }
        usage = response.get("usage") if isinstance(response, Mapping) else getattr(response, "usage", None)
        if isinstance(usage, Mapping):
            told["usage"] = usage
        outcome = await session.emit(LLM_POST, told)
        if outcome.denied:
            return await self._withhold(outcome.denied_by or "registry", outcome.reason, outcome)
        response = outcome.data["response"]
        calls = list(self.tool_calls(response)) if self.tool_calls is not None else []
        session.denied_answers.allow(self.denials, ids_of(calls))
        if calls:
            await session.emit(DECISION_TOOL_RESOLUTION, {"tool_calls": calls})
        return ModelOutcome(value=response, answered=True)

    # -- ends without an answer ----------------------------------------------------------------------------------

    async def _fail(self, error: BaseException) -> ModelOutcome:
        """Return the outcome of a call in which the provider raised, or an around hook stopped it."""
        session = self.session
        if isinstance(error, HookAbortError) and error is not self.failure:
            stopped = self._withhold if self.ran else self._refuse
            return await stopped(error.hook or "around hook", error.reason)
        problem = problem_of(error)
        await session.recorder.note("model.failed", {"model": self.model, "error": problem})
        await session.emit(ERROR_PROVIDER, {"error": problem, "model": self.model})
        return ModelOutcome(error=error)

    async def _withhold(self, by: str, reason: str | None, outcome: Outcome | None = None) -> ModelOutcome:
        """Withhold the answer that the model gave, and deny its tool calls."""
        calls: list[Any] = []
        if self.tool_calls is not None:
            with suppress(Exception):  # without their ids, no call runs
                calls = list(self.tool_calls(self.answer))
        why = f"the model's response was denied by {by}" + (f": {reason}" if reason else "")
        self.session.denied_answers.deny(why, ids_of(calls))
        return replace(await self._refuse(by, reason, outcome), answered=True)

    async def _refuse_choice(self, chosen: object, outcome: Outcome) -> ModelOutcome:
        """Refuse a call for which a hook chose no name, or a model that the host's callable does not take."""
        by = outcome.changed_by(("model",)) or "session"
        if not isinstance(chosen, str) or not chosen:
            return await self._refuse(by, f"a hook replaced the model {self.model!r} by no name", outcome)
        error = ModelNotTaken(chosen, self.model)
        return replace(await self._refuse(by, str(error), outcome), error=error)

    async def _refuse(self, by: str, reason: str | None, outcome: Outcome | None = None) -> ModelOutcome:
        """Record a denial, and return it as an outcome the host can read."""
        facts = {"model": self.model, "by": by, "reason": reason}
        await self.session.recorder.note("model.denied", facts, durable=True)
        self.rests.why = said = await self.session.denial_text(by, reason, outcome)
        return ModelOutcome(denied=True, by=by, reason=said)


def takes_model(call: Callable[..., Any]) -> bool:
    """Return True if a callable has a parameter `model` that can be given by name."""
    if type(call) is FunctionType and not hasattr(call, "__wrapped__"):  # the usual case, in a tenth of the time
        code = call.__code__
        return "model" in code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    try:
        parameter = inspect.signature(call).parameters.get("model")
    except (TypeError, ValueError):  # some callables written in C have no signature
        return False
    return parameter is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def ids_of(calls: Sequence[Any]) -> list[str]:
    """Return the ids of tool calls, or none if one of the calls has no id."""
    found = [id_of(call) for call in calls]
    return found if all(found) else []


def id_of(call: object) -> str:
    """Return the id of a tool call in the format of any provider, or an empty text."""
    get = call.get if isinstance(call, Mapping) else partial(getattr, call)
    return next((value for name in CALL_IDS if isinstance(value := get(name, None), str) and value), "")


class ModelStream(msgspec.Struct, eq=False):
    """A model call whose answer comes in pieces: iterate over it, once, then read its `outcome`.

    A denied call streams nothing. The hooks at llm:post see the whole answer, put together by `join`, after the last
    piece: the pieces before it were shown already, and a denial then keeps the tool calls from running. The provider is
    asked for the next piece when the host is.

    Leaving the loop early, or cancelling it, ends the provider's stream; no answer is then decided on, and `outcome` is
    None.
    """

    _one: ModelCall
    _call: Callable[..., Awaitable[AsyncIterable[Any]] | AsyncIterable[Any]]
    _join: Callable[[list[Any]], Any]
    outcome: ModelOutcome | None = None
    """The end of the call, once the answer is whole."""
    _begun: bool = False

    async def __aiter__(self) -> AsyncIterator[Any]:
        if self._begun:
            raise RuntimeError("a model call happens once; make another stream for another call")
        self._begun = True
        pieces: asyncio.Queue[Any] = asyncio.Queue()
        calling = asyncio.create_task(self._carry_out(pieces))  # the whole call, with its around hooks, in one task
        try:
            while (piece := await pieces.get()) is not END:
                yield piece
                pieces.task_done()
            self.outcome = await calling
        finally:
            calling.cancel()
            await asyncio.wait({calling})

    async def _carry_out(self, pieces: asyncio.Queue[Any]) -> ModelOutcome:
        try:
            return await self._one.carry_out(partial(self._pass_on, pieces))
        finally:
            pieces.put_nowait(END)

    async def _pass_on(self, pieces: asyncio.Queue[Any], messages: list[Any], **named: str) -> Any:
        """Hand each piece to the host, and return the whole answer once the host has had every piece."""
        given = self._call(messages, **named)
        stream = aiter(await given if inspect.isawaitable(given) else given)
        whole: list[Any] = []
        try:
            async for piece in stream:
                whole.append(piece)
                pieces.put_nowait(piece)
                await pieces.join()
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        return self._join(whole)
