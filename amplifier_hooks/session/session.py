"""One session as its operations see it: its collaborators, and the effects of an outcome.

`emit` and the methods below it are the order of effects, and the only place that has it: record, screen, person,
context, observers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
from msgspec.structs import replace

from amplifier_hooks.act import Act, Call, freeze
from amplifier_hooks.admission.admit import Admission, Permit
from amplifier_hooks.admission.judge import Judge, Judged, Stopped, deny_outcome, frozen_object
from amplifier_hooks.errors import HookAbortError, InputNotFreezable
from amplifier_hooks.events import GOES_ON_WHEN_DENIED, IDENTITY_FIELDS, TOOL_PRE, find
from amplifier_hooks.foreign_code import running_task
from amplifier_hooks.result import ContextInjection, Outcome
from amplifier_hooks.session.display import show, transcript
from amplifier_hooks.text.escape import for_model

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_hooks.admission.approver import Approver
    from amplifier_hooks.dispatch.chain import Chain, Hook
    from amplifier_hooks.dispatch.middleware import HookContext
    from amplifier_hooks.injection.inject import Injector
    from amplifier_hooks.ports import ContextManager, DisplaySystem


END: Final = frozenset({"error", "status"})
"""Fields that tell how an operation ended, also where the model of its last event does not have them."""

OUTPUTS_KEPT: Final = 1_000
"""Outputs of hooks that a session keeps for review."""

T = TypeVar("T")


class Session(Judge, eq=False, kw_only=True):
    """The collaborators of one session, and the effects that an outcome has on them."""

    context: ContextManager
    display: DisplaySystem
    approver: Approver
    injector: Injector
    mark: str = ""
    """The text that ends every heading of this session in the model's context; tool output cannot know it."""
    outputs: list[tuple[str, str]] = msgspec.field(default_factory=list)  # an empty deque takes 0.7 KB
    """The last texts that hooks printed and do not hide, with the hook's name."""

    admission: Admission = cast("Admission", None)  # until the session is complete
    """The path of this session's acts, up to their beginning."""

    def __post_init__(self) -> None:
        self.approver.hears, self.approver.announce = self.hooks.is_heard, self.emit
        self.admission = Admission(self, self.approver)

    def begin_turn(self) -> None:
        """Forget the reason for the last stop, and begin the injection budget anew. A closed session stays closed."""
        if not self.closed:
            self.halted = None
        self.injector.new_turn()

    def stop(self, reason: str) -> None:
        """Withdraw open questions and cancel the hooks that run; nothing more begins in this turn."""
        self.halted = self.last_stop = reason
        self.stops += 1
        self.approver.cancel(reason)
        self.cancel_hooks()

    # -- from event to outcome -----------------------------------------------------------------------------------

    async def emit(
        self, event: str, data: Mapping[str, Any], cwd: str | None = None, *, asks: bool = True, rests: Any = None
    ) -> Outcome:
        """Ask the hooks, carry out their answers, and return the outcome after its effects.

        `cwd` is the folder of the event; None is the session's root. `rests` collects the hook objects that wait for
        the operation. With `asks` False no approver is asked.
        """
        stops = self.hooks.can_be_stopped(event)
        with self.undecided:
            in_force = self.in_force(event) if stops else None
            outcome, _, _ = await self.decide(event, self.payload(data, cwd), rests=rests, stops=stops)
            if outcome.asks and asks and stops and outcome.action != "deny":
                outcome = await self.ask_about(outcome, in_force, rests)
        if outcome.injections or outcome.action == "deny":
            await self.inject(outcome)
        if self.hooks.is_watched(outcome.event):
            await self.notify(outcome)
        return outcome

    async def ask_about(
        self, outcome: Outcome, in_force: tuple[Chain, str] | None = None, rests: Any = None
    ) -> Outcome:
        """Let an approver decide about an event that is no act, and use the answer up.

        Without `in_force` the hooks of this session have not answered, and do not look again.
        """
        name, data = outcome.data.get("tool_name"), outcome.data
        fields = {key: value for key, value in data.items() if key not in IDENTITY_FIELDS}
        try:
            frozen = frozen_object(fields.get("tool_input", {})) if outcome.event == TOOL_PRE else freeze(fields)
        except InputNotFreezable as error:
            return deny_outcome(outcome, type(error).__name__, str(error))
        act, call_id = self.act(outcome.event, name, frozen, data["cwd"]), data.get("tool_call_id")
        copies = {key: value for key, value in act.fields().items() if key in data}  # no hook holds these
        outcome = replace(outcome, data={**data, **copies})
        handles = {key: value for key, value in data.items() if key not in copies}
        call = Call(id=call_id if isinstance(call_id, str) else "", chosen=False, returns=False, rests=rests)
        judged = Judged(act, call, outcome, in_force, handles)
        verdict = await self.admission.admit_event(judged)
        if not isinstance(verdict, Permit):
            return verdict.outcome
        await self.admission.settle(verdict, "done")
        return replace(verdict.outcome, data=approved_data(verdict.outcome))

    # -- the effects ---------------------------------------------------------------------------------------------

    async def show(self, outcome: Outcome) -> None:
        """Show the messages of an outcome, and keep what its hooks printed."""
        if outcome.messages:
            await show(self.display, outcome.messages)
        if outcome.answers:
            self.outputs += transcript(outcome)
            del self.outputs[:-OUTPUTS_KEPT]

    async def inject(self, outcome: Outcome) -> None:
        """Inject the texts that hooks want the model to read, unless the denial of the event quotes them.

        An agent that may not stop goes on, and reads the reason.
        """
        injections = outcome.injections
        if outcome.action == "deny":
            if self.hooks.can_be_stopped(outcome.event):
                return
            if outcome.event in GOES_ON_WHEN_DENIED and outcome.reason:
                why = ContextInjection(
                    content=outcome.reason, role="user", hook_name=outcome.denied_by or "registry", event=outcome.event
                )
                injections = (why, *injections)
        await self.injector.deliver(injections)

    def start_notifying(self, outcome: Outcome, act: Act | None) -> asyncio.Task[None] | None:
        """Show the observers an outcome in a task of its own, so that they never hold up the act."""
        if not self.hooks.is_watched(outcome.event):
            return None
        if act is not None:
            outcome = replace(outcome, data={**outcome.data, **act.fields()})
        return asyncio.create_task(self.notify(outcome))

    # -- around an operation -------------------------------------------------------------------------------------

    def wrap(
        self,
        operation: str,
        context: Callable[[], HookContext],
        call: Callable[[], Awaitable[T]],
        rests: tuple[Hook, ...],
        stops: int,
    ) -> Awaitable[T]:
        """Run `call` inside these rests and the around hooks of this operation; without any, `context` is not used.

        The operation came after so many stops of the session. Raises the errors of `call`, and `HookAbortError` when a
        hook stops it, or when the session is stopped before the operation has begun. From then on stopping the session
        leaves operation and hooks alone.
        """
        if not rests and not self.hooks.wraps(operation):
            if (why := self.stopped_since(stops)) is not None:
                raise HookAbortError(why, "session", "session_cancelled")
            return call()
        return self._wrap(operation, context(), call, rests, stops)

    async def _wrap(
        self, operation: str, around: HookContext, call: Callable[[], Awaitable[T]], rests: tuple[Hook, ...], stops: int
    ) -> T:
        task = running_task()
        inside_a_hook = task in self.deciding

        async def call_unless_stopped() -> T:
            if (why := self.stopped_since(stops)) is not None:
                raise HookAbortError(why, "session", "session_cancelled")
            if task is not None and not inside_a_hook:
                self.deciding.pop(task, None)
            return await call()

        try:
            result: T = await self.deliberate(self.hooks.wrap(operation, around, call_unless_stopped, rests=rests))
        except Stopped:
            raise HookAbortError(self.stopped or "cancelled", "session", "session_cancelled") from None
        return result

    # -- words and facts -----------------------------------------------------------------------------------------

    async def denial_text(self, by: str, reason: str | None, outcome: Outcome | None = None) -> str:
        """Return the text of a denial that the model reads. It quotes the hooks' injections, which go nowhere else."""
        said = for_model(f"Operation denied by {by}: {reason or 'no reason given'}")
        return "\n\n".join([said, *(await self.quote_injections(outcome) if outcome else ())])

    async def quote_injections(self, outcome: Outcome) -> list[str]:
        """Return the injections of an outcome as its denial quotes them."""
        return await self.injector.quote(outcome.injections) if outcome.injections else []


def notes_of(outcome: Outcome, last: str) -> dict[str, Any]:
    """Return the custom fields that hooks set at the first event of an operation, for the payload of its last event.

    A field of either event's own is none, so that no hook writes what the operation is to report.
    """
    if not outcome.modified:
        return {}
    rows = [row for row in (find(outcome.event), find(last)) if row is not None]
    own = {name for row in rows for name in (*row.keeps, row.replaces, *row.also_replaces)} | END
    return {name: value for name, value in outcome.data.items() if name not in own}


def metadata_of(notes: dict[str, Any]) -> dict[str, Any]:
    """Return the notes' `metadata`, a dict that the layers of the operation share, and that its last event has."""
    given = notes.get("metadata")
    notes["metadata"] = shared = dict(given) if type(given) is dict else {}
    return shared


def without_empty_metadata(notes: dict[str, Any]) -> dict[str, Any]:
    """Return the notes for the payload of a last event; `metadata` in which no hook wrote is left out."""
    given = notes.get("metadata")
    if type(given) is dict and not given:
        del notes["metadata"]
    return notes


def approved_data(outcome: Outcome) -> Mapping[str, Any]:
    """Return the data of an approved event, without the fields of a tool call that the approval does not cover."""
    row = find(outcome.event)
    if outcome.event != TOOL_PRE or row is None:
        return outcome.data
    return {name: value for name, value in outcome.data.items() if name in row.keeps or name == row.replaces}
