"""The rests of hook objects: their code after `call_next`, which runs around an operation once it is admitted.

A hook object at the first event of an operation runs in a task of its own. It answers when it calls on, or ends; its
arguments at that moment are its change. The task then waits. If the operation runs, the rest is the outermost layer
around it; if not, `call_next` raises `OperationNotRun`.

```
with rests:     while the act is decided, keeps the hook objects that have answered
rests.layers    are layers around the operation
rests.end()     tells the rests that still wait that the operation did not run
```
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Final

from attrs import define, evolve, field

from amplifier_hooks.dispatch.middleware import HookContext, run_layer, run_middleware
from amplifier_hooks.dispatch.run_hooks import CURRENT
from amplifier_hooks.errors import HookAbortError, OperationNotRun, OperationRanTwice
from amplifier_hooks.foreign_code import finish_despite_cancel, keep_until_done

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_hooks.dispatch.chain import Hook
    from amplifier_hooks.dispatch.run_hooks import Run

    CallNext = Callable[[], Awaitable[Any]]


ELSEWHERE: Final = "nothing here runs the operation"
REPORT_ONLY: Final = "a report-only hook does not stand around it"

REPLACEABLE: Final = ("result", "status_code", "response_headers")
"""Fields of a context that an operation sets, and that a rest may replace."""


@define(eq=False)
class Rest:
    """One hook object under way at the first event of an operation."""

    name: str
    context: HookContext
    execute: Callable[[HookContext, CallNext], Awaitable[Any]]
    run: Run = field(init=False)
    hook: Hook = field(init=False)
    layer: Hook = field(init=False)
    """The rest as a layer of middleware."""
    called_on: bool = field(default=False, init=False)
    """True if the hook has called `call_next`."""
    over: bool = field(default=False, init=False)
    """True if the hook cannot call on any more: it has ended, or was cancelled."""
    value: Any = field(default=None, init=False)
    error: BaseException | None = field(default=None, init=False)
    """The exception that the hook raised."""
    failure: BaseException | None = field(default=None, init=False)
    """The exception of the operation."""
    _calling: asyncio.Future[None] = field(init=False)
    _resumed: asyncio.Future[None] = field(init=False)
    _task: asyncio.Task[None] = field(init=False)

    async def begin(self) -> None:
        """Run the hook until it calls on, or ends. Raises what the hook raises before that."""
        run = CURRENT.get()
        assert run is not None  # noqa: S101  # a hook runs in a run
        loop = asyncio.get_running_loop()
        self._calling, self._resumed = loop.create_future(), loop.create_future()
        self._task = asyncio.Task(self._execute(), loop=loop)  # a factory of eager tasks would run it here
        await self._wait(self._calling)
        self.run, self.hook = run, run.hook  # a run knows its hook once the hook waits
        self.layer = evolve(self.hook, intent="around", call=run_layer, handler=self.carry_on)
        if not self.called_on and self.error is not None:
            raise self.error

    async def wait_for_operation(self) -> bool:
        """Keep the rest for the operation whose act is being decided. Without one, end it, and return False.

        The rest of a report-only hook never waits, because it could replace the result.
        """
        act = COLLECTING.get()
        if act is not None and act.takes(self) and not self.hook.report_only:
            act.waiting.append(self)
            return True
        why = REPORT_ONLY if self.hook.report_only else ELSEWHERE
        await Rests(self.run.event, waiting=[self], why=why).end()
        return False

    @property
    def waits(self) -> bool:
        """True if the hook waits for its operation."""
        return not self._task.done()

    async def carry_on(self, around: HookContext, call_next: CallNext) -> Any:  # the hook may return anything
        """Run the operation, then the rest; or skip the operation, if the hook did not call on."""
        own = self.context
        if not self.called_on:
            return None if self.value is own else self.value
        try:
            await call_next()
        except (Exception, asyncio.CancelledError, SystemExit) as error:  # noqa: BLE001  # the hook meets it
            self.failure = error
        shared = around.metadata
        shared.update({name: value for name, value in own.metadata.items() if name not in shared})
        own.metadata = shared
        for name in ("results", "duration_ms", *self._replaceable):
            setattr(own, name, getattr(around, name))
        if not self._resumed.done():
            self._resumed.set_result(None)
        await self._wait()
        if self.error is not None:
            raise self.error
        for name in self._replaceable:
            setattr(around, name, getattr(own, name))
        if own.abort:
            around.abort, around.abort_reason = True, own.abort_reason
        return None if self.value is own else self.value

    @property
    def _replaceable(self) -> tuple[str, ...]:
        return tuple(name for name in REPLACEABLE if hasattr(self.context, name))

    async def _execute(self) -> None:
        try:
            self.value = await self.execute(self.context, self._call_next)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # a task that raises SystemExit ends its loop
            self.error = error
        finally:
            self.over = True

    async def _call_next(self, _context: HookContext | None = None) -> Any:  # the operation may return anything
        """Answer, wait for the operation, and return its result.

        Raises what the operation raises, `OperationNotRun` if it does not run, `OperationRanTwice` for a second call
        and for a call after the hook has ended, `HookAbortError` if `abort` is set, and `CancelledError` for a hook
        that was cancelled.
        """
        if self.called_on or self._task.done():
            raise OperationRanTwice(self.name)
        if self.over:
            raise asyncio.CancelledError
        if self.context.abort:
            raise HookAbortError(self.context.abort_reason or f"stopped by {self.name}", self.name)
        self.called_on = True
        if not self._calling.done():
            self._calling.set_result(None)
        await self._resumed
        if self.failure is not None:
            raise self.failure
        return self.context.result

    async def _wait(self, until: asyncio.Future[None] | None = None) -> None:
        """Wait until the hook has ended, or has called on. A cancellation goes to the hook, which may clean up."""
        task, over = self._task, {self._task} if until is None else {self._task, until}
        try:
            await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.over = True
            task.cancel()
            await asyncio.wait({task})
            raise
        finally:
            if not any(one.done() for one in over):  # the hook swallows cancellations
                keep_until_done(task)
                task.cancel()


COLLECTING: ContextVar[Rests | None] = ContextVar("amplifier_hooks.rests", default=None)
"""The act that is decided by the current code."""


@define(eq=False)
class Rests:
    """The hook objects that wait for one act, whose event is `event`: those that answer within the `with` block."""

    event: str
    outer: Run | None = field(factory=CURRENT.get)
    """The run around the whole act. A hook object that answers an event of a hook does not wait for this act."""
    waiting: list[Rest] = field(factory=list)
    why: str = "it was cancelled"
    """The reason why the operation does not run, unless it runs."""
    _token: Token[Rests | None] = field(init=False)

    def __enter__(self) -> None:
        self._token = COLLECTING.set(self)

    def __exit__(self, *_error: object) -> None:
        COLLECTING.reset(self._token)

    def takes(self, rest: Rest) -> bool:
        """Return True if the hook object has answered the event of this act, and not one inside of it."""
        return rest.run.event == self.event and rest.run.outer is self.outer

    @property
    def layers(self) -> tuple[Hook, ...]:
        """The rests as layers, in the order the hooks have answered. Of two answers of one hook the last counts."""
        if not self.waiting:
            return ()
        return tuple(rest.layer for rest in {rest.hook.number: rest for rest in self.waiting}.values())

    async def end(self) -> None:
        """End the act: raise `OperationNotRun` in the rests that still wait, because the operation did not run.

        Cancelling does not interrupt this; the hooks' timeouts bound it.
        """
        if not self.waiting:
            return
        if any(rest.waits for rest in self.waiting):
            await finish_despite_cancel(self._end(OperationNotRun(self.event, self.why)))
        for rest in self.waiting:
            if rest.layer.leaks > rest.hook.leaks:
                rest.hook.count_leak(rest.run.tenant)

    async def _end(self, error: OperationNotRun) -> None:
        async def refuse() -> None:
            raise error

        for rest in reversed(self.waiting):
            if rest.waits:
                with suppress(HookAbortError, OperationNotRun):
                    await run_middleware((rest.layer,), self.event, rest.context, refuse)
