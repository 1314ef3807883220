"""Questions of other programs' sessions come in; answers in their dialects go out.

The program runs the tools, but its calls take the path of all calls (see `program_call.py`). The program gets the
verdict before the tool runs, and its report after the run is the tool's result. So this module decides nothing.

A server creates a session with its first question. `DeliveryStore` keeps answers and open calls beside the approvals,
over restarts: a program that delivers a question twice under one id gets the first answer, and a program that tries an
undecided call again reaches the question that is still open. `PendingApprovals` is a backend that asks no approver: the
user at the program's own prompt decides.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from contextlib import AsyncExitStack
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NoReturn, Protocol, Self, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

from attrs import define, evolve, field, frozen

from amplifier_hooks import events
from amplifier_hooks.act import freeze
from amplifier_hooks.clock import SystemClock
from amplifier_hooks.definitions.kinds.event_codec import LARGEST_PAYLOAD, ProgramExit
from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.errors import ApprovalPending, InputNotFreezable, InvalidPayload
from amplifier_hooks.foreign_code import within
from amplifier_hooks.logs import get_logger
from amplifier_hooks.programs.dialects import ABSENT, DIALECTS, Dialect, Spelling, Verdict
from amplifier_hooks.session.coordinator import SessionCoordinator
from amplifier_hooks.session.program_call import OpenCalls, ProgramToolCall, ProgramToolFailed, differs
from amplifier_hooks.storage.database import Migrations, Statement, transaction
from amplifier_hooks.text.strict_parsing import load_json
from approval_backends.in_process import InProcessBackend

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_hooks.ports import ApprovalRequest, Clock
    from amplifier_hooks.registry.registry import HookRegistry
    from amplifier_hooks.result import Level, Role
    from amplifier_hooks.storage.database import Database, Script


Asking = Literal["inbox", "native", "both", "defer"]
"""The approver's screen: the inbox, the program's own prompt, or the prompt after the inbox gave no decision in time.

With "defer" it is the inbox, and without a decision in time a program that can do so ends its run, to resume later.
"""

T = TypeVar("T")

CARE: Final = 5.0
"""Timeout, in seconds, of storing a call for another try."""

log = get_logger(__name__)

EXPIRED: Final = "Not decided yet: no approver answered in time. Another try of this call asks again."
NOT_TAKEN_OUT: Final = "The decided input lacks an argument of this call, and {} would keep it. Call without it."
AGAIN: Final = "Not decided yet: {}. The question stays open. Once it is approved, make the same call again."


class ProgramNews(Protocol):
    """Texts for a program that go with its next answer. Taking them removes them."""

    async def take_texts(self) -> list[str]:
        """Return and remove the texts for the program's model."""
        ...

    async def take_lines(self) -> list[str]:
        """Return and remove the lines for the program's user."""
        ...


@define(eq=False)
class ProgramSession:
    """One session of another program. Its questions may arrive at once, and each call is independent."""

    _dialect: Dialect
    _session: SessionCoordinator
    _news: ProgramNews
    _asking: Asking
    _tries: StoredTries | None = None
    calls: OpenCalls[str] = field(factory=OpenCalls, init=False)
    """The admitted calls without a report, by the program's ids."""
    closed: bool = field(default=False, init=False)
    """True if the session is over. A program that continues under the same id needs another session."""
    _turn: AsyncExitStack = field(factory=AsyncExitStack, init=False)
    _pending: dict[str, str] | None = field(default=None, init=False)

    async def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a question of the program, empty if there is nothing to answer.

        Raises `InvalidPayload` for a question that names no event, or a folder that is no absolute path. A
        cancellation, as when the program hangs up, withdraws an open question.
        """
        check_folder(question.get("cwd"))
        spelling, payload = self._dialect.understand(question)
        await self._session.start()
        step: Callable[..., Awaitable[Verdict]] = self._STEPS.get(spelling.ours, ProgramSession._other)
        verdict = await step(self, spelling, payload)
        return self._dialect.write(spelling, await self._with_news(spelling, verdict))

    def begin(self, tool_use_id: str, tool: str, given: Any) -> ProgramToolCall | None:
        """Return the admitted call with this id if it is exactly this act, and begins for the first time."""
        call = self.calls.get(tool_use_id)
        if call is None or call.begun or not call.permits(tool, given):
            return None
        call.begun = True
        return call

    async def leave(self) -> None:
        """End the turn of a program that is gone. Calls without a report have an unknown outcome."""
        await self.calls.give_up_all()
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
        await self.calls.give_up(named)  # an id that comes again is for another call
        cwd = payload.get("cwd")
        waiting = await self._waiting_calls()
        tried = content_of(tool, given, cwd) if waiting else ""
        earlier = waiting.pop(tried, None)
        call = ProgramToolCall(self._session, tool, given, id=earlier or named, cwd=cwd)
        admitted = await call.admit()
        if admitted:
            await self.calls.put(named, call)
        if earlier is not None and (call.outcome is None or call.outcome.pending is None):
            await self._keep_try(lambda tries: tries.forget(tried))
        if not admitted:
            return await self._not_admitted(call)
        verdict = self._with_input(Verdict(decision="allow" if call.allowed else "none"), call, call.input)
        if verdict.decision == "deny":
            await self.calls.give_up(named)
        return verdict

    def _with_input(self, verdict: Verdict, call: ProgramToolCall, final: Any) -> Verdict:
        """Return the verdict with the input as hooks and approver left it; a denial if the program cannot take it."""
        if call.asks_about(call.tool, final):
            return verdict
        if self._dialect.merges and isinstance(call.arguments, dict) and not call.arguments.keys() <= final.keys():
            return Verdict(decision="deny", reason=NOT_TAKEN_OUT.format(self._dialect.title))
        return evolve(verdict, update=final)

    async def _not_admitted(self, call: ProgramToolCall) -> Verdict:
        outcome, reason = call.outcome, call.denial
        if outcome is None or outcome.pending is None:
            if outcome is not None and outcome.cause == "approval_expired":
                reason = f"{reason}\n{EXPIRED}"
            return Verdict(decision="deny", reason=reason)
        if self._asking == "defer":
            return Verdict(decision="defer", reason=reason)
        if self._asking != "inbox":
            return self._with_input(Verdict(decision="ask", reason=reason), call, call.waiting_input)
        tried = content_of(call.tool, call.arguments, call.cwd)
        (await self._waiting_calls())[tried] = call.id
        await self._keep_try(lambda tries: tries.keep(tried, call.id))
        return Verdict(decision="deny", reason=AGAIN.format(reason))

    async def _waiting_calls(self) -> dict[str, str]:
        """Return the calls that may be tried again, with those of an earlier process."""
        if self._pending is None:
            found = await self._keep_try(lambda tries: tries.load()) or {}
            if self._pending is None:  # no other question was quicker
                self._pending = found
        return self._pending

    async def _keep_try(self, step: Callable[[StoredTries], Awaitable[T]]) -> T | None:
        """Load, store or delete tries that outlive this process. If that fails, a try after a restart asks again."""
        if self._tries is not None:
            try:
                return await within(CARE, step(self._tries))
            except Exception as error:  # noqa: BLE001  # a store may raise anything, and the answer stands
                log.warning("program_retry_not_kept", error=describe(error))
        return None

    async def _after(self, spelling: Spelling, payload: dict[str, Any]) -> Verdict:
        call = self.calls.pop(self._name_of(payload), None)
        if call is None:
            return await self._other(spelling, payload)  # begun before this session, or approved at the program
        tool, given = str(payload.get("tool_name", "")), payload.get("tool_input")
        if not call.permits(tool, given):
            await call.report_mismatch(tool, given)
            return await self._other(spelling, payload)
        if spelling.ours == events.TOOL_ERROR:
            error = payload.get("error")
            await call.report_error(ProgramToolFailed(error.get("message") if isinstance(error, dict) else str(error)))
            return Verdict()
        came_to = payload.get("result")
        outcome = await call.report_result(came_to)
        replaced = outcome.ok and differs(outcome.value, came_to)
        return Verdict(update=outcome.value if replaced else ABSENT)

    def _name_of(self, payload: Mapping[str, Any]) -> str:
        """Return the id of a report's call: the id that it names, or that of the oldest call with its exact input."""
        if named := payload.get("tool_call_id"):
            return str(named)
        about = str(payload.get("tool_name", "")), payload.get("tool_input")
        named = next((name for name, call in self.calls.items() if call.permits(*about)), None)
        return named or next((name for name, call in self.calls.items() if call.asks_about(*about)), "")

    _STEPS: ClassVar[Mapping[str, Callable[[Any, Spelling, dict[str, Any]], Awaitable[Verdict]]]] = {
        events.SESSION_START: _start,
        events.SESSION_END: _end,
        events.PROMPT_SUBMIT: _prompt,
        events.TOOL_PRE: _before,
        events.TOOL_POST: _after,
        events.TOOL_ERROR: _after,
        events.AGENT_STOP: _stop,
    }
    """The steps of a session, by event. At any other event it asks the hooks."""


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


class PendingApprovals(InProcessBackend):
    """An approval backend that leaves every question open for ever. It approves nothing, so no claim succeeds."""

    durable = True

    async def ask(self, request: ApprovalRequest) -> NoReturn:
        """Raise `ApprovalPending`."""
        raise ApprovalPending(request.id)


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
        named = repr((self.options.get("tenant", ""), program, delivery))
        return await self.deliveries.answer_once(named, body, partial(self.answer, program, question))

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
            """CREATE TABLE {schema}.program_kept (
                owner TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, until BIGINT NOT NULL,
                PRIMARY KEY (owner, name)
            )""",
        ),
    ),
)
SELECT: Final = "SELECT name, value FROM {schema}.program_kept WHERE owner = $1"

DELIVERIES: Final = "deliveries"
"""Owner of the answers; the calls that may be tried again belong to their sessions."""
DELIVERY: Final = 24 * 3600
"""Seconds for which an answer is kept for another delivery of its question."""
TRY: Final = 7 * 24 * 3600
"""Seconds for which a call is kept for another try; no question is open longer than its hook's timeout."""


@define(eq=False)
class DeliveryStore:
    """Answers and open calls in an open database. Every method raises `StoreUnavailable`."""

    database: Database
    clock: Clock = field(factory=SystemClock)
    _answering: WeakValueDictionary[str, asyncio.Lock] = field(factory=WeakValueDictionary, init=False)
    """A lock for each delivery that is being answered."""

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
        async with self._answering.setdefault(name, asyncio.Lock()):
            if (stored := await self._stored_answer(name, asked)) is not None:
                return stored
            given = await answer()
            parts = [asked, given.code, given.output.hex(), given.errors.hex()]
            await self.keep(DELIVERIES, name, json.dumps(parts), DELIVERY)
            return await self._stored_answer(name, asked) or given  # another server's, if that was first

    async def _stored_answer(self, name: str, question_hash: str) -> ProgramExit | None:
        rows = await self.database.fetch(f"{SELECT} AND name = $2", DELIVERIES, name)
        if not rows:
            return None
        question, code, output, errors = json.loads(rows[0][1])
        check_same_question(question, question_hash)
        return ProgramExit(code=code, output=bytes.fromhex(output), errors=bytes.fromhex(errors))

    @transaction
    def keep(self, owner: str, name: str, value: str, seconds: int) -> Script[None]:
        """Store a value for so long, unless its owner has one of this name; delete values whose time is over."""
        now = int(self.clock.now().timestamp())
        yield Statement("DELETE FROM {schema}.program_kept WHERE until < $1", (now,))
        insert = "INSERT INTO {schema}.program_kept VALUES ($1, $2, $3, $4) ON CONFLICT (owner, name) DO NOTHING"
        yield Statement(insert, (owner, name, value, now + seconds))

    def tries(self, *whose: str) -> StoredTries:
        """Return the tries of one session of one program."""
        return StoredTries(self, hash_bytes(repr(whose).encode("utf-8", "surrogatepass")))


@frozen
class StoredTries:
    """Undecided calls of one session, by a hash of their content, for as long as the program may try them again."""

    deliveries: DeliveryStore
    whose: str

    async def load(self) -> dict[str, str]:
        """Return the calls that an earlier process stored."""
        return {row[0]: row[1] for row in await self.deliveries.database.fetch(SELECT, self.whose)}

    async def keep(self, content: str, call: str) -> None:
        """Store a call in place of an earlier try."""
        await self.forget(content)
        await self.deliveries.keep(self.whose, content, call, TRY)

    async def forget(self, content: str) -> None:
        """Delete a call that was tried again and decided."""
        delete = "DELETE FROM {schema}.program_kept WHERE owner = $1 AND name = $2"
        await self.deliveries.database.fetch(delete, self.whose, content)


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
