"""Questions of other programs come in; answers go out, from one session for each session of a program.

A server creates a session with its first question. `DeliveryStore` keeps answers and open calls beside the approvals,
over restarts: a program that delivers a question twice under one id gets the first answer, and a program that tries an
undecided call again reaches the question that is still open. `PendingApprovals` is a backend that asks no approver: the
user at the program's own prompt decides.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from attrs import define, field, frozen

from amplifier_hooks.clock import SystemClock
from amplifier_hooks.definitions.kinds.event_codec import LARGEST_PAYLOAD, ProgramExit
from amplifier_hooks.errors import ApprovalPending, InvalidPayload
from amplifier_hooks.ports import Unfinished
from amplifier_hooks.programs.dialects import DIALECTS
from amplifier_hooks.programs.program_session import Asking, ProgramSession, check_folder
from amplifier_hooks.session.coordinator import SessionCoordinator
from amplifier_hooks.storage.database import Migrations, Statement
from amplifier_hooks.text.strict_json import load_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_hooks.ports import ApprovalRequest, Clock, KeptResult
    from amplifier_hooks.programs.dialect import Dialect
    from amplifier_hooks.registry.registry import HookRegistry
    from amplifier_hooks.result import Level, Role
    from amplifier_hooks.storage.database import Database, Script


MOST: Final = 256
"""Most open sessions. One more closes the session that was silent longest."""


@define(eq=False)
class ProgramOutbox:
    """Texts for a program's context and lines for its screen, kept until its next answer."""

    texts: list[str] = field(factory=list)
    lines: list[str] = field(factory=list)

    def add_message(self, role: Role, content: str, metadata: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002  # programs know one kind of text
        """Keep a text for the model."""
        self.texts.append(content)

    def add_ephemeral(self, role: Role, content: str, metadata: Mapping[str, Any] | None = None) -> bool:  # noqa: ARG002  # as above
        """Keep a text for the model, and return True. The program cannot remove a text that its model has read."""
        self.texts.append(content)
        return True

    def take_ephemeral(self) -> tuple[()]:
        """Return nothing, because ephemeral texts go with the others."""
        return ()

    async def take_texts(self) -> list[str]:
        """Return and remove the texts for the model."""
        taken, self.texts = self.texts, []
        return taken

    async def take_lines(self) -> list[str]:
        """Return and remove the lines for the program's user."""
        taken, self.lines = self.lines, []
        return taken

    def get_messages(self) -> tuple[()]:
        """Return nothing, because the program owns its context."""
        return ()

    def show_message(self, message: str, level: Level, source: str) -> None:
        """Keep a line for the program's user."""
        self.lines.append(f"{level}: {message} ({source})" if level != "info" else f"{message} ({source})")


class PendingApprovals:
    """An approval backend that leaves every question open for ever. It approves nothing, so no claim succeeds."""

    durable = True

    async def request(self, request: ApprovalRequest) -> NoReturn:
        """Raise `ApprovalPending`."""
        raise ApprovalPending(request.id)

    async def claim(self, request_id: str, digest: str) -> bool:  # noqa: ARG002  # this backend approves nothing
        """Return False."""
        return False

    async def settle(self, request_id: str, outcome: str, result: KeptResult | None = None) -> None:
        """Do nothing."""

    async def withdraw(self, request_id: str, reason: str) -> None:
        """Do nothing."""

    async def begin_session(self, tenant: str, session: str) -> Unfinished:  # noqa: ARG002  # this backend keeps no questions
        """Return no unfinished questions."""
        return Unfinished()

    async def end_session(self, tenant: str, session: str, reason: str, *, final: bool) -> None:
        """Do nothing."""

    async def mark_recorded(self, request_id: str, number: int = 0) -> None:
        """Do nothing."""

    async def list_unrecorded(self, tenant: str, session: str) -> tuple[Mapping[str, Any], ...]:  # noqa: ARG002  # this backend keeps no questions
        """Return nothing, because this backend keeps no questions."""
        return ()


@define(eq=False)
class ProgramSessions:
    """The sessions of a server. Every coordinator gets `options`: approvals, audit, rules, budget, tenant and so on."""

    hooks: HookRegistry
    asking: Asking = "inbox"
    waits: float = 300.0
    """Seconds a program waits for an approver; then the question stays open, or goes to the program's own prompt."""
    options: Mapping[str, Any] = field(factory=dict)
    deliveries: DeliveryStore | None = None
    """Store of questions over restarts; without one they end with this process."""
    _sessions: OrderedDict[tuple[str, str], ProgramSession] = field(factory=OrderedDict, init=False)

    async def answer(self, program: str, question: Mapping[str, Any]) -> ProgramExit:
        """Return the answer to a program's question.

        Raises `InvalidPayload` for an unknown program, a question without a session or an event, and a folder that is
        no absolute path.
        """
        dialect = DIALECTS.get(program)
        if dialect is None:
            raise InvalidPayload(f"there is no program {program!r:.40}; known are {', '.join(DIALECTS)}")
        session = question.get("session_id")
        if not isinstance(session, str) or not session:
            raise InvalidPayload("a question without session_id: it says whose it is")
        cwd = question.get("cwd")
        check_folder(cwd)
        one = await self._session_of(dialect, session, cwd)
        try:
            answer = await one.answer(question)
            return ProgramExit(code=0, output=json.dumps(answer).encode("ascii") if answer else b"")
        finally:
            if one.closed and self._sessions.get((dialect.name, session)) is one:
                del self._sessions[dialect.name, session]

    async def answer_once(self, program: str, body: bytes, delivery: str | None = None) -> ProgramExit:
        """Return the answer to a program's question that may be delivered again, under the sender's id `delivery`.

        `body` is the program's own JSON. A second delivery gets the first answer. Raises `InvalidPayload` for a body
        that is no question, the errors of `answer`, and `StoreUnavailable`.
        """
        question = parse_question(body)
        if delivery is None or self.deliveries is None:
            return await self.answer(program, question)
        return await self.deliveries.answer_once(f"{program}/{delivery}", body, partial(self.answer, program, question))

    async def close(self) -> None:
        """Close every session."""
        left, self._sessions = list(self._sessions.values()), OrderedDict()
        await asyncio.gather(*(one.close() for one in left))

    async def _session_of(self, dialect: Dialect, session: str, cwd: str | None) -> ProgramSession:
        key = (dialect.name, session)
        found = self._sessions.get(key)
        if found is None:
            outbox = ProgramOutbox()
            options = dict(self.options)
            if self.asking == "native":
                options["approvals"] = PendingApprovals()
            coordinator = SessionCoordinator(
                self.hooks,
                session_id=session,
                context=outbox,
                display=outbox,
                agent=dialect.title,
                cwd=cwd,
                approval_wait=0.0 if self.asking == "native" else self.waits,
                **options,
            )
            tries = None if self.deliveries is None else self.deliveries.tries(str(options.get("tenant", "")), *key)
            found = self._sessions[key] = ProgramSession(dialect, coordinator, outbox, self.asking, tries)
        self._sessions.move_to_end(key)
        if len(self._sessions) > MOST:
            _, oldest = self._sessions.popitem(last=False)
            await oldest.close()
        return found


DELIVERY_TABLES: Final = Migrations(
    component="programs",
    steps=(
        (
            """CREATE TABLE {schema}.program_delivery (
                id TEXT PRIMARY KEY, question TEXT NOT NULL, code INTEGER NOT NULL, output TEXT NOT NULL,
                errors TEXT NOT NULL, at BIGINT NOT NULL
            )""",
            """CREATE TABLE {schema}.program_retry (
                whose TEXT NOT NULL, content TEXT NOT NULL, call TEXT NOT NULL, at BIGINT NOT NULL,
                PRIMARY KEY (whose, content)
            )""",
        ),
    ),
)

DELIVERIES: Final = 24 * 3600
"""Seconds for which an answer is kept for another delivery of its question."""
TRIES: Final = 7 * 24 * 3600
"""Seconds for which a call is kept for another try; no question is open longer than its hook's timeout."""


@define(eq=False)
class DeliveryStore:
    """Answers and open calls in an open database. Every method raises `StoreUnavailable`."""

    database: Database
    clock: Clock = field(factory=SystemClock)
    _answering: dict[str, tuple[str, asyncio.Future[None]]] = field(factory=dict, init=False)

    @classmethod
    async def beside(cls, database: Database, clock: Clock | None = None) -> Self:
        """Return a delivery store in an open database that has other tables, too."""
        await database.migrate(DELIVERY_TABLES)
        return cls(database, clock or SystemClock())

    async def answer_once(
        self, delivery: str, question: bytes, answer: Callable[[], Awaitable[ProgramExit]]
    ) -> ProgramExit:
        """Return the stored answer to this delivery, or call `answer` and store its result first.

        A second delivery waits while the first is being answered. If `answer` raises, the next delivery counts as the
        first. Raises `InvalidPayload` for another question under this id, and the errors of `answer`.
        """
        name, asked = hash_bytes(delivery.encode("utf-8", "surrogatepass")), hash_bytes(question)
        while name in self._answering:
            first, over = self._answering[name]
            check_same_question(first, asked)
            await asyncio.wait({over})
        over = asyncio.get_running_loop().create_future()
        self._answering[name] = (asked, over)
        try:
            return await self._stored_answer(name, asked) or await self._keep(name, asked, await answer())
        finally:
            del self._answering[name]
            over.set_result(None)

    async def _stored_answer(self, name: str, question_hash: str) -> ProgramExit | None:
        rows = await self.database.fetch(
            "SELECT question, code, output, errors FROM {schema}.program_delivery WHERE id = $1", name
        )
        if not rows:
            return None
        question, code, output, errors = rows[0]
        check_same_question(question, question_hash)
        return ProgramExit(code=code, output=bytes.fromhex(output), errors=bytes.fromhex(errors))

    async def _keep(self, name: str, question_hash: str, answer: ProgramExit) -> ProgramExit:
        await self.database.run(
            _insert(
                "INSERT INTO {schema}.program_delivery (id, question, code, output, errors, at) "
                "VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING",
                (name, question_hash, answer.code, answer.output.hex(), answer.errors.hex(), self._now()),
                "DELETE FROM {schema}.program_delivery WHERE at < $1",
                self._now() - DELIVERIES,
            )
        )
        return await self._stored_answer(name, question_hash) or answer  # another server's, if that was first

    def tries(self, *whose: str) -> StoredTries:
        """Return the tries of one session of one program."""
        return StoredTries(self, hash_bytes(repr(whose).encode("utf-8", "surrogatepass")))

    async def calls(self, whose: str) -> Mapping[str, str]:
        """Return the calls that wait for another try, by their content."""
        rows = await self.database.fetch("SELECT content, call FROM {schema}.program_retry WHERE whose = $1", whose)
        return {row[0]: row[1] for row in rows}

    async def keep(self, whose: str, content: str, call: str) -> None:
        """Store a call for another try."""
        await self.database.run(
            _insert(
                "INSERT INTO {schema}.program_retry (whose, content, call, at) VALUES ($1, $2, $3, $4) "
                "ON CONFLICT (whose, content) DO UPDATE SET call = excluded.call, at = excluded.at",
                (whose, content, call, self._now()),
                "DELETE FROM {schema}.program_retry WHERE at < $1",
                self._now() - TRIES,
            )
        )

    async def forget(self, whose: str, content: str) -> None:
        """Delete a call that was tried again and decided."""
        await self.database.fetch(
            "DELETE FROM {schema}.program_retry WHERE whose = $1 AND content = $2", whose, content
        )

    def _now(self) -> int:
        return int(self.clock.now().timestamp())


@frozen
class StoredTries:
    """Undecided calls of one session, by a hash of their content, for as long as the program may try them again."""

    deliveries: DeliveryStore
    whose: str

    async def load(self) -> Mapping[str, str]:
        """Return the calls that an earlier process stored."""
        return await self.deliveries.calls(self.whose)

    async def keep(self, content: str, call: str) -> None:
        """Store a call."""
        await self.deliveries.keep(self.whose, content, call)

    async def forget(self, content: str) -> None:
        """Delete a call."""
        await self.deliveries.forget(self.whose, content)


def parse_question(body: bytes) -> dict[str, Any]:
    """Parse a question. Raises `InvalidPayload` if the body is not one."""
    if len(body) > LARGEST_PAYLOAD:
        raise InvalidPayload(f"a question of more than {LARGEST_PAYLOAD:,} bytes")
    try:
        question = load_json(body)
    except (ValueError, RecursionError) as error:
        raise InvalidPayload(
            f"a question that is not JSON, or that two readers could read differently: {error}"
        ) from None
    if not isinstance(question, dict):
        raise InvalidPayload(f"a question that is a JSON {type(question).__name__}, not an object")
    return question


def hash_bytes(data: bytes) -> str:
    """Return the SHA-256 of untrusted bytes: a key of fixed length that reveals nothing of them."""
    return sha256(data).hexdigest()


def check_same_question(first: str, second: str) -> None:
    """Raise `InvalidPayload` for another question under a used id: an answer belongs to one question."""
    if first != second:
        raise InvalidPayload("this delivery id was used for another question; a new question has a new one")


def _insert(sql: str, values: tuple[object, ...], purge: str, before: int) -> Script[None]:
    yield Statement(purge, (before,))
    yield Statement(sql, values)
