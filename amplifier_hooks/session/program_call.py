"""Calls that their program carries out itself: a tool it runs, a model it asks.

`call_tool` and `call_model` decide, ask, record and claim as for any call, and then wait. Once the call is admitted,
the program carries it out with `input`, and reports its result; `call_tool` and `call_model` go on from there. This
module decides nothing.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from uuid import uuid4

from attrs import define, field

from amplifier_hooks.act import freeze
from amplifier_hooks.admission.judge import frozen_or_none
from amplifier_hooks.errors import InputNotFreezable
from amplifier_hooks.foreign_code import finish_despite_cancel
from amplifier_hooks.session.model_call import ModelOutcome
from amplifier_hooks.session.tool_call import ToolOutcome
from amplifier_hooks.text.escape import for_model

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from amplifier_hooks.admission.admit import Permit
    from amplifier_hooks.session.coordinator import SessionCoordinator
    from amplifier_hooks.session.tool_call import ToolCall


REPEATED: Final = "This call has run already, and is not run again. Its result was:\n"

Became = TypeVar("Became", ToolOutcome[Any], ModelOutcome)
K = TypeVar("K")


class ProgramToolFailed(Exception):
    """The program reports that its tool failed."""


def differs(one: object, other: object) -> bool:
    """Return True if two values differ, also if Python calls them equal: 1, 1.0 and True are three values of JSON."""
    try:
        return freeze(one) != freeze(other)
    except InputNotFreezable:
        return one != other


@define(eq=False)
class ProgramCall(ABC, Generic[Became]):
    """A call bound to one event loop. Await `admit()`, then exactly one of the report methods or `give_up()`."""

    session: SessionCoordinator
    input: Any = field(default=None, init=False)
    """The input with which the program carries the call out, as it was decided about; set when the call is admitted."""
    outcome: Became | None = field(default=None, init=False)
    """The outcome of the call, once it is over."""
    _decided: asyncio.Event = field(factory=asyncio.Event, init=False)
    _result: asyncio.Future[Any] = field(factory=lambda: asyncio.get_running_loop().create_future(), init=False)
    _task: asyncio.Task[Became] | None = field(default=None, init=False)

    async def admit(self) -> bool:
        """Return True if the call may be carried out; if not, `outcome` has the reason. Calling it again is harmless.

        Raises the errors of `call_tool` and `call_model`. Cancelling takes an open question back.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._carry_out())
        try:
            await self._decided.wait()
        except asyncio.CancelledError:
            await self.give_up()
            raise
        if self.outcome is None and self._task.done():
            self._task.result()
        return self.outcome is None

    async def report_result(self, value: Any) -> Became:
        """Report the result, and return the outcome, with the value as the hooks left it."""
        if not self._result.done():
            self._result.set_result(value)
        return await self._await_outcome()

    async def report_error(self, error: BaseException) -> Became:
        """Report a failure, and return the outcome."""
        if not self._result.done():
            self._result.set_exception(error)
        return await self._await_outcome()

    async def give_up(self) -> None:
        """End the call without a result; an admitted call is on record as cancelled. A second call is harmless."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await finish_despite_cancel(asyncio.wait({self._task}))

    @abstractmethod
    def _operation(self, run: Callable[[Any], Awaitable[Any]]) -> Awaitable[Became]:
        """Carry the call out, with `run` in the place of the tool or the model."""

    async def _carry_out(self) -> Became:
        try:
            self.outcome = outcome = await self._operation(self._run)
            return outcome
        finally:
            self._decided.set()

    async def _run(self, final_input: Any) -> Any:
        """Mark the call as admitted, and wait for its result."""
        self.input = final_input
        self._decided.set()
        return await self._result

    async def _await_outcome(self) -> Became:
        if self._task is None:
            raise RuntimeError("await admit() first; nothing may happen before this call is admitted")
        return await self._task  # cancelling this await cancels the call, and waits until that is on record


@define(eq=False)
class ProgramToolCall(ProgramCall[ToolOutcome[Any]]):
    """A tool call. With an id that was used before it goes on from there.

    The id only selects: a question, a permission and a report are about this call if they have its tool and input.
    """

    tool: str
    arguments: Any
    """The program's input; bytes are its own JSON."""
    id: str = field(factory=lambda: f"call_{uuid4().hex}")
    cwd: str | None = None
    """The folder of this call; None is the session's root."""
    begun: bool = field(default=False, init=False)
    """True if the program said that the call begins; it begins once."""
    _call: ToolCall | None = field(default=None, init=False)

    @property
    def allowed(self) -> bool:
        """True if a person, a rule or a grant allowed the call; False if no part of the path denied it."""
        permit = self._permit
        return permit is not None and permit.allowed

    @property
    def waiting_input(self) -> Any:
        """The input about which a question stays open, as hooks left it; None without such a question."""
        waiting = None if self._call is None else self._call.waiting
        return None if waiting is None else waiting.arguments()

    def asks_about(self, tool: str, arguments: Any) -> bool:
        """Return True if the program asked about exactly this call."""
        frozen = frozen_or_none(arguments)
        return tool == self.tool and frozen is not None and frozen == frozen_or_none(self.arguments)

    def permits(self, tool: str, given: Any) -> bool:
        """Return True if the permit is for exactly this act, as hooks and approver left it."""
        permit = self._permit
        return permit is not None and (permit.act.name, permit.act.input) == (tool, frozen_or_none(given))

    @property
    def denial(self) -> str:
        """Text for the model where the program cannot be given a result in place of the call.

        It is the reason of a denial, or the result that an earlier attempt at this call left.
        """
        outcome = self.outcome
        if outcome is None or not outcome.ok:
            return (outcome and outcome.reason) or "denied"
        value = outcome.value
        return REPEATED + for_model(value if isinstance(value, str) else json.dumps(value))

    async def report_mismatch(self, tool: str, given: Any) -> None:
        """Report that the program ran another act. The record has it, the user reads a warning, the call is over."""
        permit = self._permit
        if self._call is not None and permit is not None:
            await self._call.end_in_mismatch(permit, tool, given)
        await self.give_up()

    @property
    def _permit(self) -> Permit | None:
        return None if self._call is None else self._call.permit

    def _operation(self, run: Callable[[Any], Awaitable[Any]]) -> Awaitable[ToolOutcome[Any]]:
        self._call = self.session._tool_call(self.tool, self.arguments, run, call_id=self.id, cwd=self.cwd)  # noqa: SLF001
        return self._call.carry_out()


class OpenCalls(dict[K, ProgramToolCall]):
    """The tool calls of a program that have no report yet, by the program's own name of each."""

    async def put(self, name: K, call: ProgramToolCall) -> None:
        """Keep a call. Give up an earlier one of this name, because the program reports nothing more about it."""
        earlier, self[name] = self.get(name), call
        if earlier is not None:
            await earlier.give_up()

    async def give_up(self, name: K) -> None:
        """Give up a call that the program will not carry out. Does nothing without such a call."""
        call = self.pop(name, None)
        if call is not None:
            await call.give_up()

    async def give_up_all(self) -> None:
        """Give up every call."""
        left = list(self.values())
        self.clear()
        await asyncio.gather(*(call.give_up() for call in left))


@define(eq=False)
class ProgramModelCall(ProgramCall[ModelOutcome]):
    """A model call, with these messages."""

    messages: Sequence[Any]
    model: str = ""

    def _operation(self, run: Callable[[Any], Awaitable[Any]]) -> Awaitable[ModelOutcome]:
        return self.session.call_model(run, self.messages, model=self.model)
