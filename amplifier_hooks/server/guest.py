"""A session of another program, as one of ours.

That program runs the tools; the way of a call is ours all the same. Before the tool, `call_tool` decides, asks,
records and claims, and then waits; the program is told the verdict. After it, the program's report is what the tool
came to, and `call_tool` goes on: settled, recorded, hooks after the tool, injections. So nothing here decides anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import uuid4

from attrs import define, evolve, field

from amplifier_hooks.action import freeze
from amplifier_hooks.dialects.dialect import ABSENT, Dialect, Spelling, Verdict
from amplifier_hooks.events import (
    AGENT_STOP,
    PROMPT_SUBMIT,
    SESSION_END,
    SESSION_START,
    TOOL_ERROR,
    TOOL_POST,
    TOOL_PRE,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_hooks.coordinator import SessionCoordinator
    from amplifier_hooks.kinds.codec import Ended
    from amplifier_hooks.result import Level, Role
    from amplifier_hooks.toolcall import ToolOutcome

__all__ = ["Asking", "Guest", "Outbox"]

Asking = Literal["inbox", "native", "both"]
"""Where a person decides: in our inbox, at that program's own prompt, or there when nobody did in the inbox."""

AGAIN: Final = "Nobody has approved this yet; the question stays open. Once it is approved, make the same call again."


@define(eq=False)
class Outbox:
    """What the program is to be told with its next answer: its context, and its screen."""

    texts: list[str] = field(factory=list)
    lines: list[str] = field(factory=list)

    def add_message(self, role: Role, content: str, metadata: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002  # that program knows one kind
        """Keep a text for the model."""
        self.texts.append(content)

    def get_messages(self) -> tuple[()]:
        """None: the context is that program's."""
        return ()

    def show_message(self, message: str, level: Level, source: str) -> None:
        """Keep a line for the person at that program."""
        self.lines.append(f"{level}: {message} ({source})" if level != "info" else f"{message} ({source})")


@define(eq=False)
class Call:
    """One tool call of the program's: admitted or not, and what it came to."""

    id: str
    done: asyncio.Task[ToolOutcome] | None = None
    admitted: asyncio.Future[Any] = field(factory=lambda: asyncio.get_running_loop().create_future())
    result: asyncio.Future[Any] = field(factory=lambda: asyncio.get_running_loop().create_future())

    async def run(self, tool_input: Any) -> Any:
        """What the coordinator takes for the tool: say that it may run, and wait until it has."""
        self.admitted.set_result(tool_input)
        return await self.result


class ToolFailed(Exception):
    """The program reports that its tool failed."""


class Guest:
    """One session of another program. Questions of one session may come at once; each call is its own."""

    def __init__(self, dialect: Dialect, session: SessionCoordinator, outbox: Outbox, asking: Asking) -> None:
        self._dialect = dialect
        self._session = session
        self._outbox = outbox
        self._asking = asking
        self._turn = AsyncExitStack()
        self._calls: dict[str, Call] = {}
        self._named: dict[bytes, deque[str]] = {}
        self._pending: dict[bytes, str] = {}
        self.approved: set[str] = set()
        """Calls that a person or a rule has approved."""
        self._steps: Final[Mapping[str, Callable[[Spelling, dict[str, Any]], Awaitable[Verdict]]]] = {
            SESSION_START: self._start,
            SESSION_END: self._end,
            PROMPT_SUBMIT: self._prompt,
            TOOL_PRE: self._before,
            TOOL_POST: self._after,
            TOOL_ERROR: self._after,
            AGENT_STOP: self._stop,
        }

    async def answer(self, question: Mapping[str, Any]) -> Ended:
        """What the program is told.

        Raises `InvalidPayload` for a question that names no event. Cancelling it, as when the program hangs up, takes
        an open question back.
        """
        spelling, payload = self._dialect.understand(question)
        await self._session.start()
        verdict = await self._steps.get(spelling.ours, self._other)(spelling, payload)
        return self._dialect.write(spelling, self._with_news(spelling, verdict))

    async def close(self) -> None:
        """End the session. What the program has not reported yet is of unknown outcome."""
        for call in self._calls.values():
            if call.done is not None:
                call.done.cancel()
        await asyncio.gather(*(call.done for call in self._calls.values() if call.done), return_exceptions=True)
        self._calls.clear()
        await self._turn.aclose()
        await self._session.close()

    def _with_news(self, spelling: Spelling, verdict: Verdict) -> Verdict:
        """Together with what hooks wanted the model and the person to read; what cannot be told here waits."""
        news: dict[str, Any] = {}
        if spelling.takes_context and self._outbox.texts:
            news["context"] = "\n\n".join(self._outbox.texts)
            self._outbox.texts.clear()
        if self._outbox.lines:
            news["message"] = "\n".join(self._outbox.lines)
            self._outbox.lines.clear()
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
        content = freeze([tool, given])
        named = payload.get("tool_call_id") or f"call_{uuid4().hex}"
        call = Call(self._pending.pop(content, named))
        call.done = asyncio.create_task(self._session.call_tool(tool, given, call.run, call_id=call.id))  # type: ignore[arg-type]  # it says so if it is no mapping
        try:
            await asyncio.wait({call.done, call.admitted}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            call.done.cancel()
            await asyncio.wait({call.done})
            raise
        if not call.admitted.done():
            return self._not_admitted(content, call, await call.done)
        self._calls[named] = call
        self._named.setdefault(content, deque()).append(named)
        final = call.admitted.result()
        changed = final != given
        return Verdict(decision="allow" if call.id in self.approved else "none", update=final if changed else ABSENT)

    def _not_admitted(self, content: bytes, call: Call, outcome: ToolOutcome) -> Verdict:
        if outcome.pending is None:
            return Verdict(decision="deny", reason=outcome.reason or "")
        if self._asking != "inbox":
            return Verdict(decision="ask", reason=outcome.reason or "")
        self._pending[content] = call.id
        return Verdict(decision="deny", reason=f"{outcome.reason or ''} {AGAIN}".strip())

    async def _after(self, spelling: Spelling, payload: dict[str, Any]) -> Verdict:
        call = self._calls.pop(self._name_of(payload), None)
        if call is None or call.done is None:
            return await self._other(spelling, payload)  # it began before we were here, or was approved over there
        if spelling.ours == TOOL_ERROR:
            error = payload.get("error")
            call.result.set_exception(ToolFailed(error.get("message") if isinstance(error, dict) else str(error)))
            await call.done
            return Verdict()
        came_to = payload.get("result")
        call.result.set_result(came_to)
        outcome = await call.done
        replaced = outcome.ok and outcome.value != came_to
        return Verdict(update=outcome.value if replaced else ABSENT)

    def _name_of(self, payload: Mapping[str, Any]) -> str:
        """Which call a report is about: the one it names, or the oldest with this very input."""
        content = freeze([str(payload.get("tool_name", "")), payload.get("tool_input")])
        waiting = self._named.get(content, deque())
        named = payload.get("tool_call_id") or (waiting[0] if waiting else "")
        if named in waiting:
            waiting.remove(named)
        if not waiting:
            self._named.pop(content, None)
        return str(named)
