"""All sessions of other programs that this server has: one for each, made when its first question comes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from amplifier_hooks.errors import InvalidPayload
from amplifier_hooks.events import APPROVAL_GRANTED
from amplifier_hooks.programs.claude_code import CLAUDE_CODE
from amplifier_hooks.programs.codex import CODEX
from amplifier_hooks.programs.gemini import GEMINI
from amplifier_hooks.programs.own_prompt import AskedElsewhere
from amplifier_hooks.programs.program_session import Asking, Guest, Outbox
from amplifier_hooks.session.coordinator import SessionCoordinator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.definitions.kinds.event_codec import Ended
    from amplifier_hooks.programs.dialect import Dialect
    from amplifier_hooks.programs.question_store import GuestBook
    from amplifier_hooks.registry.registry import HookRegistry


DIALECTS: Final[Mapping[str, Dialect]] = {dialect.name: dialect for dialect in (CLAUDE_CODE, CODEX, GEMINI)}

MOST: Final = 256
"""Sessions that are kept. When another comes, the one that was silent longest is closed."""


@define(eq=False)
class Guests:
    """The sessions. `options` are those of every coordinator: approvals, audit, rules, budget, tenant and so on."""

    hooks: HookRegistry
    asking: Asking = "inbox"
    waits: float = 300.0
    """Seconds a program waits for a person; then the question stays open, or goes to that program's own prompt."""
    options: Mapping[str, Any] = field(factory=dict)
    book: GuestBook | None = None
    """What outlives this process of their questions; nothing does without one."""
    _guests: OrderedDict[tuple[str, str], Guest] = field(factory=OrderedDict, init=False)

    def __attrs_post_init__(self) -> None:
        self.hooks.observe(APPROVAL_GRANTED, self._granted, name="guests")

    async def answer(self, program: str, question: Mapping[str, Any]) -> Ended:
        """What a program is told.

        Raises `InvalidPayload` for a program we do not know, or a question without a session or an event.
        """
        dialect = DIALECTS.get(program)
        if dialect is None:
            raise InvalidPayload(f"there is no program {program!r:.40}; known are {', '.join(DIALECTS)}")
        session = question.get("session_id")
        if not isinstance(session, str) or not session:
            raise InvalidPayload("a question without session_id: it says whose it is")
        guest = await self._guest(dialect, session, question.get("cwd"))
        try:
            return await guest.answer(question)
        finally:
            if guest.closed and self._guests.get((dialect.name, session)) is guest:
                del self._guests[dialect.name, session]

    async def answer_once(self, program: str, question: Mapping[str, Any], body: bytes, delivery: str | None) -> Ended:
        """The same for a question that may be delivered again, under an id of the sender's.

        The second time it is told what it was told the first time. Raises also `StoreUnavailable`.
        """
        if delivery is None or self.book is None:
            return await self.answer(program, question)
        return await self.book.once(f"{program}/{delivery}", body, partial(self.answer, program, question))

    async def close(self) -> None:
        """End every session."""
        guests, self._guests = list(self._guests.values()), OrderedDict()
        await asyncio.gather(*(guest.close() for guest in guests))

    async def _guest(self, dialect: Dialect, session: str, cwd: Any) -> Guest:
        key = (dialect.name, session)
        guest = self._guests.get(key)
        if guest is None:
            outbox = Outbox()
            options = dict(self.options)
            if self.asking == "native":
                options["approvals"] = AskedElsewhere()
            coordinator = SessionCoordinator(
                self.hooks,
                session_id=session,
                context=outbox,
                display=outbox,
                agent=dialect.title,
                cwd=cwd if isinstance(cwd, str) else None,
                approval_wait=0.0 if self.asking == "native" else self.waits,
                **options,
            )
            tries = None if self.book is None else self.book.tries(str(options.get("tenant", "")), *key)
            guest = self._guests[key] = Guest(dialect, coordinator, outbox, self.asking, tries)
        self._guests.move_to_end(key)
        if len(self._guests) > MOST:
            _, oldest = self._guests.popitem(last=False)
            await oldest.close()
        return guest

    async def _granted(self, _event: str, data: Mapping[str, Any], _outcome: object) -> None:
        call = data.get("tool_call_id")
        for (_, session), guest in self._guests.items():
            if session == data.get("session_id") and isinstance(call, str):
                guest.approved.add(call)
