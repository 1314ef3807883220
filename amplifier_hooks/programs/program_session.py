"""A session of another program, as one of ours.

That program runs the tools; the way of a call is ours all the same (see `session/program_call.py`). Before the tool the
program is told the verdict; after it, its report is what the tool came to. So nothing here decides anything.

An approval backend that asks nobody: the program's own prompt does, and whoever sits there decides.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Protocol
from uuid import uuid4

from attrs import define, evolve, field

from amplifier_hooks.act import freeze
from amplifier_hooks.dispatch.bounded_wait import within
from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.errors import ApprovalPending
from amplifier_hooks.events import (
    AGENT_STOP,
    PROMPT_SUBMIT,
    SESSION_END,
    SESSION_START,
    TOOL_ERROR,
    TOOL_POST,
    TOOL_PRE,
)
from amplifier_hooks.logs import get_logger
from amplifier_hooks.ports import Unfinished
from amplifier_hooks.programs.dialect import ABSENT, Dialect, Spelling, Verdict
from amplifier_hooks.session.program_call import ProgramToolCall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_hooks.definitions.kinds.event_codec import ProgramExit
    from amplifier_hooks.ports import ApprovalRequest
    from amplifier_hooks.result import Level, Role
    from amplifier_hooks.session.coordinator import SessionCoordinator


Asking = Literal["inbox", "native", "both", "defer"]
"""Where a person decides: in our inbox, at that program's own prompt, or there when nobody did in the inbox.

With "defer" it is in our inbox, and a program that can do so ends its run when nobody has decided, to be resumed later.
"""

CARE: Final = 5.0
"""Seconds that keeping something may take."""

log = get_logger(__name__)

EXPIRED: Final = "Not decided yet: no approver answered in time. The same call asks again."
AGAIN: Final = "Not decided yet: {}. The question stays open. Once it is approved, make the same call again."


class ProgramNews(Protocol):
    """What a program is to be told with an answer. What is taken is gone."""

    async def take_texts(self) -> list[str]:
        """Texts for its model."""
        ...

    async def take_lines(self) -> list[str]:
        """Lines for the person at it."""
        ...


class Tries(Protocol):
    """Calls that nobody has decided yet, by a hash of their content, for as long as somebody may try them again.

    Every method may raise; then only this process knows.
    """

    async def load(self) -> Mapping[str, str]:
        """What was kept before this process began."""
        ...

    async def keep(self, content: str, call: str) -> None:
        """Keep the id of a call whose question stays open."""
        ...

    async def forget(self, content: str) -> None:
        """The call was tried again, and decided."""
        ...


@define(eq=False)
class ProgramOutbox:
    """What the program is to be told with its next answer: its context, and its screen."""

    texts: list[str] = field(factory=list)
    lines: list[str] = field(factory=list)

    def add_message(self, role: Role, content: str, metadata: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002  # that program knows one kind
        """Keep a text for the model."""
        self.texts.append(content)

    def add_ephemeral(self, role: Role, content: str, metadata: Mapping[str, Any] | None = None) -> bool:  # noqa: ARG002  # as above
        """Keep a text for the model; what that program has read stays with it."""
        self.texts.append(content)
        return True

    def take_ephemeral(self) -> tuple[()]:
        """None: they go with the others."""
        return ()

    async def take_texts(self) -> list[str]:
        """What was kept for the model."""
        taken, self.texts = self.texts, []
        return taken

    async def take_lines(self) -> list[str]:
        """What was kept for the person."""
        taken, self.lines = self.lines, []
        return taken

    def get_messages(self) -> tuple[()]:
        """None: the context is that program's."""
        return ()

    def show_message(self, message: str, level: Level, source: str) -> None:
        """Keep a line for the person at that program."""
        self.lines.append(f"{level}: {message} ({source})" if level != "info" else f"{message} ({source})")


class ProgramToolFailed(Exception):
    """The program reports that its tool failed."""


class ProgramSession:
    """One session of another program. Questions of one session may come at once; each call is its own."""

    def __init__(
        self,
        dialect: Dialect,
        session: SessionCoordinator,
        news: ProgramNews,
        asking: Asking,
        tries: Tries | None = None,
    ) -> None:
        self._dialect = dialect
        self._session = session
        self._news = news
        self._asking = asking
        self._turn = AsyncExitStack()
        self._calls: dict[str, ProgramToolCall] = {}
        self._tries = tries
        self._pending: dict[str, str] | None = None
        self.approved: set[str] = set()
        """Calls that a person or a rule has approved."""
        self.closed = False
        """The session is over. When the program goes on under the same id, it needs another one."""
        self._steps: Final[Mapping[str, Callable[[Spelling, dict[str, Any]], Awaitable[Verdict]]]] = {
            SESSION_START: self._start,
            SESSION_END: self._end,
            PROMPT_SUBMIT: self._prompt,
            TOOL_PRE: self._before,
            TOOL_POST: self._after,
            TOOL_ERROR: self._after,
            AGENT_STOP: self._stop,
        }

    async def answer(self, question: Mapping[str, Any]) -> ProgramExit:
        """What the program is told.

        Raises `InvalidPayload` for a question that names no event. Cancelling it, as when the program hangs up, takes
        an open question back.
        """
        spelling, payload = self._dialect.understand(question)
        await self._session.start()
        verdict = await self._steps.get(spelling.ours, self._other)(spelling, payload)
        return self._dialect.write(spelling, await self._with_news(spelling, verdict))

    def call(self, tool_use_id: str) -> ProgramToolCall | None:
        """The call of this name that was admitted and has not been reported yet."""
        return self._calls.get(tool_use_id)

    async def give_up(self, tool_use_id: str) -> None:
        """The call of this name was admitted and is not carried out after all; without such a call, nothing."""
        call = self._calls.pop(tool_use_id, None)
        if call is not None:
            await call.give_up()

    async def leave(self) -> None:
        """The program is gone: its turn ends, and what it has not reported yet is of unknown outcome."""
        left, self._calls = list(self._calls.values()), {}
        await asyncio.gather(*(call.give_up() for call in left))
        await self._turn.aclose()

    async def close(self) -> None:
        """The program is gone, and the session ends."""
        try:
            await self.leave()
            await self._session.close()
        finally:
            self.closed = True

    async def _with_news(self, spelling: Spelling, verdict: Verdict) -> Verdict:
        """Together with what hooks wanted the model and the person to read; what cannot be told here waits."""
        news: dict[str, Any] = {}
        if spelling.takes_context and (texts := await self._news.take_texts()):
            news["context"] = "\n\n".join(texts)
        if lines := await self._news.take_lines():
            news["message"] = "\n".join(lines)
        return evolve(verdict, **news) if news else verdict

    # -- the steps -----------------------------------------------------------------------------------------------

    async def _start(self, _spelling: Spelling, _payload: dict[str, Any]) -> Verdict:
        return Verdict()

    async def _end(self, _spelling: Spelling, _payload: dict[str, Any]) -> Verdict:
        await self.close()
        return Verdict()

    async def _prompt(self, _spelling: Spelling, payload: dict[str, Any]) -> Verdict:
        await self._turn.aclose()
        prompt = str(payload.get("prompt", ""))
        turn = await self._turn.enter_async_context(self._session.turn(prompt))
        if turn.denied:
            return Verdict(decision="deny", reason=turn.reason or "")
        if turn.prompt != prompt:
            return Verdict(
                decision="deny", reason="a hook changed the prompt, and this program cannot be given another"
            )
        return Verdict()

    async def _stop(self, spelling: Spelling, payload: dict[str, Any]) -> Verdict:
        verdict = await self._other(spelling, payload)
        if verdict.decision != "deny":
            await self._turn.aclose()
        return verdict

    async def _other(self, spelling: Spelling, payload: dict[str, Any]) -> Verdict:
        outcome = await self._session.emit(spelling.ours, payload)
        return Verdict(decision="deny" if outcome.denied else "none", reason=outcome.reason or "")

    async def _before(self, _spelling: Spelling, payload: dict[str, Any]) -> Verdict:
        tool, given = str(payload.get("tool_name", "")), payload.get("tool_input")
        named = payload.get("tool_call_id") or f"call_{uuid4().hex}"
        waiting = await self._waiting_calls()
        tried = content_of(tool, given) if waiting else ""
        earlier = waiting.pop(tried, None)
        call = ProgramToolCall(self._session, tool, given, id=earlier or named)
        admitted = await call.admit()
        if admitted:
            self._calls[named] = call
        if earlier is not None and (call.outcome is None or call.outcome.pending is None):
            await self._keep_try(lambda tries: tries.forget(tried))
        if not admitted:
            return await self._not_admitted(call)
        changed = freeze(call.input) != freeze(given)  # True is not 1 there
        return Verdict(
            decision="allow" if call.id in self.approved else "none", update=call.input if changed else ABSENT
        )

    async def _not_admitted(self, call: ProgramToolCall) -> Verdict:
        outcome = call.outcome
        reason = (outcome and outcome.reason) or ""
        if outcome is None or outcome.pending is None:
            if outcome is not None and outcome.cause == "approval_expired":
                reason = f"{reason}\n{EXPIRED}"
            return Verdict(decision="deny", reason=reason)
        if self._asking == "defer":
            return Verdict(decision="defer", reason=reason)
        if self._asking != "inbox":
            return Verdict(decision="ask", reason=reason)
        tried = content_of(call.tool, call.given)
        (await self._waiting_calls())[tried] = call.id
        await self._keep_try(lambda tries: tries.keep(tried, call.id))
        return Verdict(decision="deny", reason=AGAIN.format(reason))

    async def _waiting_calls(self) -> dict[str, str]:
        """Calls that may be tried again, with those of an earlier process."""
        if self._pending is None:
            found: dict[str, str] = {}

            async def load(tries: Tries) -> None:
                found.update(await tries.load())

            await self._keep_try(load)
            if self._pending is None:  # nobody was quicker
                self._pending = found
        return self._pending

    async def _keep_try(self, step: Callable[[Tries], Awaitable[None]]) -> None:
        """What has to outlive this process. If it does not, a second try after a restart asks anew."""
        if self._tries is not None:
            try:
                await within(CARE, step(self._tries))
            except Exception as error:  # noqa: BLE001  # a store may raise anything, and the answer stands
                log.warning("guest_try_not_kept", error=describe(error))

    async def _after(self, spelling: Spelling, payload: dict[str, Any]) -> Verdict:
        call = self._calls.pop(self._name_of(payload), None)
        if call is None:
            return await self._other(spelling, payload)  # it began before we were here, or was approved over there
        if spelling.ours == TOOL_ERROR:
            error = payload.get("error")
            await call.report_error(ProgramToolFailed(error.get("message") if isinstance(error, dict) else str(error)))
            return Verdict()
        came_to = payload.get("result")
        outcome = await call.report_result(came_to)
        replaced = outcome.ok and outcome.value != came_to
        return Verdict(update=outcome.value if replaced else ABSENT)

    def _name_of(self, payload: Mapping[str, Any]) -> str:
        """Which call a report is about: the one it names, or the oldest with this very input."""
        if named := payload.get("tool_call_id"):
            return str(named)
        content = freeze([str(payload.get("tool_name", "")), payload.get("tool_input")])
        return next((name for name, call in self._calls.items() if freeze([call.tool, call.given]) == content), "")


def content_of(tool: str, given: Any) -> str:
    """What two tries of one call have in common."""
    return sha256(freeze([tool, given])).hexdigest()


class PendingApprovals:
    """Every question stays open here, for good. Nothing is approved, so there is never anything to claim."""

    durable = True

    async def request(self, request: ApprovalRequest) -> NoReturn:
        """Raises `ApprovalPending`."""
        raise ApprovalPending(request.id)

    async def claim(self, request_id: str, digest: str) -> bool:  # noqa: ARG002  # nobody approved it here
        """False."""
        return False

    async def settle(self, request_id: str, outcome: str) -> None:
        """Nothing."""

    async def withdraw(self, request_id: str, reason: str) -> None:
        """Nothing."""

    async def begin_session(self, tenant: str, session: str) -> Unfinished:  # noqa: ARG002  # it keeps none
        """Nothing was left behind."""
        return Unfinished()

    async def end_session(self, tenant: str, session: str, reason: str) -> None:
        """Nothing."""

    async def mark_recorded(self, request_id: str, number: int = 0) -> None:
        """Nothing."""

    async def list_unrecorded(self, tenant: str, session: str) -> tuple[Mapping[str, Any], ...]:  # noqa: ARG002  # as above
        """Nothing."""
        return ()
