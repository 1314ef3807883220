"""Questions of one session of another program come in; answers in its dialect go out.

The program runs the tools, but its calls take the path of all calls (see `program_call.py`). The program gets the
verdict before the tool runs, and its report after the run is the tool's result. So this module decides nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from uuid import uuid4

from attrs import evolve

from amplifier_hooks.act import freeze
from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.errors import InputNotFreezable, InvalidPayload
from amplifier_hooks.events import (
    AGENT_STOP,
    PROMPT_SUBMIT,
    SESSION_END,
    SESSION_START,
    TOOL_ERROR,
    TOOL_POST,
    TOOL_PRE,
)
from amplifier_hooks.foreign_code import within
from amplifier_hooks.logs import get_logger
from amplifier_hooks.programs.dialect import ABSENT, Dialect, Spelling, Verdict
from amplifier_hooks.session.program_call import ProgramToolCall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_hooks.programs.session_pool import StoredTries
    from amplifier_hooks.session.coordinator import SessionCoordinator


Asking = Literal["inbox", "native", "both", "defer"]
"""The approver's screen: the inbox, the program's own prompt, or the prompt after the inbox gave no decision in time.

With "defer" it is the inbox, and without a decision in time a program that can do so ends its run, to resume later.
"""

CARE: Final = 5.0
"""Timeout, in seconds, of storing a call for another try."""

log = get_logger(__name__)

EXPIRED: Final = "Not decided yet: no approver answered in time. Another try of this call asks again."
AGAIN: Final = "Not decided yet: {}. The question stays open. Once it is approved, make the same call again."


class ProgramNews(Protocol):
    """Texts for a program that go with its next answer. Taking them removes them."""

    async def take_texts(self) -> list[str]:
        """Return and remove the texts for the program's model."""
        ...

    async def take_lines(self) -> list[str]:
        """Return and remove the lines for the program's user."""
        ...


class ProgramToolFailed(Exception):
    """The program reports that its tool failed."""


class ProgramSession:
    """One session of another program. Its questions may arrive at once, and each call is independent."""

    def __init__(
        self,
        dialect: Dialect,
        session: SessionCoordinator,
        news: ProgramNews,
        asking: Asking,
        tries: StoredTries | None = None,
    ) -> None:
        self._dialect = dialect
        self._session = session
        self._news = news
        self._asking = asking
        self._turn = AsyncExitStack()
        self._calls: dict[str, ProgramToolCall] = {}
        self._tries = tries
        self._pending: dict[str, str] | None = None
        self.closed = False
        """True if the session is over. A program that continues under the same id needs another session."""
        self._steps: Final[Mapping[str, Callable[[Spelling, dict[str, Any]], Awaitable[Verdict]]]] = {
            SESSION_START: self._start,
            SESSION_END: self._end,
            PROMPT_SUBMIT: self._prompt,
            TOOL_PRE: self._before,
            TOOL_POST: self._after,
            TOOL_ERROR: self._after,
            AGENT_STOP: self._stop,
        }

    async def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a question of the program, empty if there is nothing to answer.

        Raises `InvalidPayload` for a question that names no event, or a folder that is no absolute path. A
        cancellation, as when the program hangs up, withdraws an open question.
        """
        check_folder(question.get("cwd"))
        spelling, payload = self._dialect.understand(question)
        await self._session.start()
        verdict = await self._steps.get(spelling.ours, self._other)(spelling, payload)
        return self._dialect.write(spelling, await self._with_news(spelling, verdict))

    def begin(self, tool_use_id: str, tool: str, given: Any) -> ProgramToolCall | None:
        """Return the admitted call with this id if it is exactly this act, and begins for the first time."""
        call = self._calls.get(tool_use_id)
        if call is None or call.begun or not call.permits(tool, given):
            return None
        call.begun = True
        return call

    async def give_up(self, tool_use_id: str) -> None:
        """Give up an admitted call that the program will not carry out. Does nothing without such a call."""
        call = self._calls.pop(tool_use_id, None)
        if call is not None:
            await call.give_up()

    async def leave(self) -> None:
        """End the turn of a program that is gone. Calls without a report have an unknown outcome."""
        left, self._calls = list(self._calls.values()), {}
        await asyncio.gather(*(call.give_up() for call in left))
        await self._turn.aclose()

    async def close(self) -> None:
        """End the session of a program that is gone."""
        try:
            await self.leave()
            await self._session.close()
        finally:
            self.closed = True

    async def _with_news(self, spelling: Spelling, verdict: Verdict) -> Verdict:
        """Return the verdict with the hooks' texts for the model and lines for the user.

        Texts that the program cannot read at this event wait for the next answer.
        """
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
        turn = await self._turn.enter_async_context(self._session.turn(prompt, cwd=payload.get("cwd")))
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
        outcome = await self._session.emit(spelling.ours, payload, cwd=payload.get("cwd"))
        if outcome.denied:
            return Verdict(decision="deny", reason=outcome.reason or "")
        left = outcome.data.get(spelling.changes, ABSENT)
        return Verdict(update=ABSENT if left == payload.get(spelling.changes) else left)

    async def _before(self, _spelling: Spelling, payload: dict[str, Any]) -> Verdict:
        tool, given = str(payload.get("tool_name", "")), payload.get("tool_input")
        named = str(payload.get("tool_call_id") or f"call_{uuid4().hex}")
        await self.give_up(named)  # an id that comes again is for another call
        cwd = payload.get("cwd")
        waiting = await self._waiting_calls()
        tried = content_of(tool, given, cwd) if waiting else ""
        earlier = waiting.pop(tried, None)
        call = ProgramToolCall(self._session, tool, given, id=earlier or named, cwd=cwd)
        admitted = await call.admit()
        if admitted:
            replaced, self._calls[named] = self._calls.get(named), call
            if replaced is not None:  # two calls were asked about under one id at once
                await replaced.give_up()
        if earlier is not None and (call.outcome is None or call.outcome.pending is None):
            await self._keep_try(lambda tries: tries.forget(tried))
        if not admitted:
            return await self._not_admitted(call)
        return Verdict(
            decision="allow" if call.allowed else "none",
            update=ABSENT if call.asks_about(tool, call.input) else call.input,
        )

    async def _not_admitted(self, call: ProgramToolCall) -> Verdict:
        outcome, reason = call.outcome, call.denial
        if outcome is None or outcome.pending is None:
            if outcome is not None and outcome.cause == "approval_expired":
                reason = f"{reason}\n{EXPIRED}"
            return Verdict(decision="deny", reason=reason)
        if self._asking == "defer":
            return Verdict(decision="defer", reason=reason)
        if self._asking != "inbox":
            return Verdict(decision="ask", reason=reason)
        tried = content_of(call.tool, call.arguments, call.cwd)
        (await self._waiting_calls())[tried] = call.id
        await self._keep_try(lambda tries: tries.keep(tried, call.id))
        return Verdict(decision="deny", reason=AGAIN.format(reason))

    async def _waiting_calls(self) -> dict[str, str]:
        """Return the calls that may be tried again, with those of an earlier process."""
        if self._pending is None:
            found: dict[str, str] = {}

            async def load(tries: StoredTries) -> None:
                found.update(await tries.load())

            await self._keep_try(load)
            if self._pending is None:  # no other question was quicker
                self._pending = found
        return self._pending

    async def _keep_try(self, step: Callable[[StoredTries], Awaitable[None]]) -> None:
        """Store or delete a try that must outlive this process. If that fails, a try after a restart asks again."""
        if self._tries is not None:
            try:
                await within(CARE, step(self._tries))
            except Exception as error:  # noqa: BLE001  # a store may raise anything, and the answer stands
                log.warning("program_retry_not_kept", error=describe(error))

    async def _after(self, spelling: Spelling, payload: dict[str, Any]) -> Verdict:
        call = self._calls.pop(self._name_of(payload), None)
        if call is None:
            return await self._other(spelling, payload)  # begun before this session, or approved at the program
        tool, given = str(payload.get("tool_name", "")), payload.get("tool_input")
        if not call.permits(tool, given):
            await call.report_mismatch(tool, given)
            return await self._other(spelling, payload)
        if spelling.ours == TOOL_ERROR:
            error = payload.get("error")
            await call.report_error(ProgramToolFailed(error.get("message") if isinstance(error, dict) else str(error)))
            return Verdict()
        came_to = payload.get("result")
        outcome = await call.report_result(came_to)
        replaced = outcome.ok and outcome.value != came_to
        return Verdict(update=outcome.value if replaced else ABSENT)

    def _name_of(self, payload: Mapping[str, Any]) -> str:
        """Return the id of a report's call: the id that it names, or that of the oldest call with its exact input."""
        if named := payload.get("tool_call_id"):
            return str(named)
        about = str(payload.get("tool_name", "")), payload.get("tool_input")
        named = next((name for name, call in self._calls.items() if call.permits(*about)), None)
        return named or next((name for name, call in self._calls.items() if call.asks_about(*about)), "")


def content_of(tool: str, arguments: Any, cwd: str | None) -> str:
    """Return the hash of a call's content, which all tries of the call share; an empty text if it has none."""
    try:
        return sha256(freeze([tool, arguments, cwd])).hexdigest()
    except InputNotFreezable:  # the call is refused for this reason
        return ""


def check_folder(cwd: object) -> None:
    """Raise `InvalidPayload` for the folder of a question that is no absolute path."""
    if cwd is not None and not (isinstance(cwd, str) and Path(cwd).is_absolute() and "\0" not in cwd):
        raise InvalidPayload(f"a question with the cwd {cwd!r:.80}: it is the absolute path of a folder")
