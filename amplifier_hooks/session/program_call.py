"""Calls that their program carries out itself: a tool it runs, a model it asks.

`call_tool` and `call_model` decide, ask, record and claim as for any call, and then wait. Once the call is admitted,
the program carries it out with `input`, and reports its result; `call_tool` and `call_model` go on from there. This
module decides nothing.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import uuid4

from attrs import define, field

from amplifier_hooks.session.model_call import ModelOutcome
from amplifier_hooks.session.tool_call import ToolOutcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from amplifier_hooks.session.coordinator import SessionCoordinator


Became = TypeVar("Became", ToolOutcome, ModelOutcome)


@define(eq=False)
class ProgramCall(ABC, Generic[Became]):
    """A call bound to one event loop. Await `admit()`, then exactly one of the report methods or `give_up()`."""

    session: SessionCoordinator
    input: Any = field(default=None, init=False)
    """The input with which the program carries the call out, as it was decided about; set when the call is admitted."""
    outcome: Became | None = field(default=None, init=False)
    """The outcome of the call, once it is over."""
    _decided: asyncio.Future[None] = field(factory=lambda: asyncio.get_running_loop().create_future(), init=False)
    _result: asyncio.Future[Any] = field(factory=lambda: asyncio.get_running_loop().create_future(), init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    async def admit(self) -> bool:
        """Return True if the call may be carried out; if not, `outcome` has the reason. Calling it again is harmless.

        Raises the errors of `call_tool` and `call_model`. Cancelling takes an open question back.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._carry_out())
        if not self._decided.done():
            try:
                await self._decided
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
            await asyncio.wait({self._task})

    @abstractmethod
    def _operation(self, run: Callable[[Any], Awaitable[Any]]) -> Awaitable[Became]:
        """Carry the call out, with `run` in the place of the tool or the model."""

    async def _carry_out(self) -> None:
        try:
            self.outcome = await self._operation(self._run)
        finally:
            self._mark_decided()

    def _mark_decided(self) -> None:
        if not self._decided.done():
            self._decided.set_result(None)

    async def _run(self, given: Any) -> Any:
        """Mark the call as admitted, and wait for its result."""
        self.input = given
        self._mark_decided()
        return await self._result

    async def _await_outcome(self) -> Became:
        if self._task is None:
            raise RuntimeError("await admit() first; nothing may happen before this call is admitted")
        await self._task  # cancelling this await cancels the call, and waits until that is on record
        assert self.outcome is not None  # noqa: S101  # the task has ended, and did not raise
        return self.outcome


@define(eq=False)
class ProgramToolCall(ProgramCall[ToolOutcome]):
    """A tool call. With an id that was used before it goes on from there."""

    tool: str
    given: Any
    id: str = field(factory=lambda: f"call_{uuid4().hex}")

    def _operation(self, run: Callable[[Any], Awaitable[Any]]) -> Awaitable[ToolOutcome]:
        return self.session.call_tool(self.tool, self.given, run, call_id=self.id)


@define(eq=False)
class ProgramModelCall(ProgramCall[ModelOutcome]):
    """A model call, with these messages."""

    messages: Sequence[Any]
    model: str = ""

    def _operation(self, run: Callable[[Any], Awaitable[Any]]) -> Awaitable[ModelOutcome]:
        return self.session.call_model(run, self.messages, model=self.model)
