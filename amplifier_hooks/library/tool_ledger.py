"""A ledger of every tool call: its input without secrets and its digest, its output, and its duration.

```python
from amplifier_hooks import HookRegistry, SessionCoordinator
from amplifier_hooks.library import ToolLedger

registry = HookRegistry()
ledger = ToolLedger.from_config({"store": ":memory:"})
async with ledger, SessionCoordinator(registry, session_id="s1") as session:
    ledger.register(registry)
    await session.call_tool("Login", {"user": "ann", "password": "hunter2-hunter2"}, lambda input: "welcome")
    [entry] = await ledger.entries(session="s1")
print(entry.tool, entry.status, entry.output, entry.input["user"], entry.input["password"]["length"])
```

```output
Login ok welcome ann 15
```
"""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import uuid4

from attrs import define, frozen
from pydantic import Field

from amplifier_hooks.act import Act, freeze
from amplifier_hooks.clock import SystemClock, micros_of, moment_of
from amplifier_hooks.errors import InputNotFreezable
from amplifier_hooks.events import PROMPT_COMPLETE, SESSION_END, TOOL_ERROR, TOOL_POST, TOOL_PRE
from amplifier_hooks.library.parts.hook_database import HookDatabase, StoreAddress, database_opener
from amplifier_hooks.library.parts.ready_made import HookSettings, Once, PerSession, Point, ReadyMade, ToolMatch
from amplifier_hooks.record.encode_facts import Redactor, TooMuch, ValueSimplifier, omission
from amplifier_hooks.result import HookResult
from amplifier_hooks.storage.database import Migrations, Script, Statement, StoreUnavailable
from amplifier_hooks.storage.state_folder import StateFolder
from amplifier_hooks.text.escape import for_log
from amplifier_hooks.text.matching import compile_matcher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from amplifier_hooks.dispatch.middleware import ToolContext
    from amplifier_hooks.ports import Clock
    from amplifier_hooks.result import Outcome
    from amplifier_hooks.storage.database import Database, Row


CallStatus = Literal["ok", "failed", "denied", "pending", "begun", "repeated"]
"""The end of a call.

`begun`: the call was under way, and its end was not seen. `repeated`: the call did not run, and was answered with the
result of the equal call before it.
"""


BEFORE: Final = 260
AFTER: Final = 390
INNERMOST: Final = 499
WATCHING: Final = 610

NODES: Final = 20_000
DAY: Final = 86_400_000_000
"""One day in microseconds."""
LONGEST_NAME: Final = 200
ANSWERS_KEPT: Final = 1_000

TABLES: Final = Migrations(
    component="tool_ledger",
    steps=(
        (
            """CREATE TABLE {schema}.tool_call (
                tenant TEXT NOT NULL,
                session TEXT NOT NULL,
                call TEXT NOT NULL,
                tool TEXT NOT NULL,
                digest TEXT NOT NULL,
                input TEXT NOT NULL,
                output TEXT,
                exact BIGINT NOT NULL,
                status TEXT NOT NULL,
                reason TEXT NOT NULL,
                effects TEXT,
                began BIGINT NOT NULL,
                duration BIGINT,
                PRIMARY KEY (tenant, session, call)
            )""",
            "CREATE INDEX tool_call_digest ON {schema}.tool_call (tenant, session, digest)",
            "CREATE INDEX tool_call_began ON {schema}.tool_call (began)",
        ),
    ),
)
COLUMNS: Final = "tenant, session, call, tool, digest, input, output, exact, status, reason, effects, began, duration"
WRITE: Final = (
    f"INSERT INTO {{schema}}.tool_call AS kept ({COLUMNS}) "  # noqa: S608  # of constants
    "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) "
    "ON CONFLICT (tenant, session, call) DO UPDATE SET tool = excluded.tool, digest = excluded.digest, "
    "input = excluded.input, output = excluded.output, exact = excluded.exact, status = excluded.status, "
    "reason = excluded.reason, effects = coalesce(excluded.effects, kept.effects), duration = excluded.duration"
)
PURGE: Final = "DELETE FROM {schema}.tool_call WHERE began < $1"
EARLIER: Final = (
    f"SELECT {COLUMNS} FROM {{schema}}.tool_call WHERE tenant = $1 AND session = $2 AND digest = $3 "  # noqa: S608
    "AND status IN ('ok', 'repeated') ORDER BY began DESC LIMIT 1"
)
LIST: Final = (
    f"SELECT {COLUMNS} FROM {{schema}}.tool_call WHERE tenant = $1 AND ($2 = '' OR session = $2) "  # noqa: S608
    "AND ($3 = '' OR tool = $3) AND ($4 = '' OR status = $4) ORDER BY began DESC, call DESC LIMIT $5"
)


class ToolLedgerSettings(HookSettings):
    """The calls that are kept, and the effect of a repeated call."""

    match: ToolMatch = Field(default="*", description="the tools whose calls are kept")
    effects: ToolMatch = Field(
        default="Write|Edit|MultiEdit|NotebookEdit|create_*|delete_*|send_*|post_*|deploy*",
        description="the tools whose calls change something; so do calls for which a hook noted `side_effects`",
    )
    repeats: Literal["ignore", "note", "answer"] = Field(
        default="note",
        description="what happens when such a call comes again: nothing, a note, or the result from before",
    )
    longest: int = Field(
        default=16_384,
        ge=256,
        le=1_000_000,
        description="characters of a text that is kept; of longer ones the digest is",
    )
    days: int = Field(default=30, ge=1, le=36_500, description="how long calls are kept")
    store: StoreAddress = Field(
        default="", description="where the ledger is: a file, `:memory:`, `postgresql://…`; left out, a file of yours"
    )


@frozen(kw_only=True)
class LedgerEntry:
    """One call. Input and output are without their secrets, and a part that was too long is a digest."""

    tenant: str
    session: str
    call: str
    tool: str
    digest: str
    """Digest of the action, as in the record and in approvals; empty if the input could not be frozen."""
    input: Any
    output: Any
    exact: bool
    """True if the output is kept unchanged."""
    status: CallStatus
    reason: str
    effects: Any
    """Side effects that another hook noted before the call ran."""
    began: datetime
    duration_ms: float | None


@define
class _Trouble:
    """The reason and the number of a store failure, and the number of calls that the ledger misses."""

    number: int = 0
    error: str = ""
    count: int = 0


class ToolLedger(ReadyMade[ToolLedgerSettings]):
    """Keeps every tool call in a database, and notices when one that changes something comes again.

    A call repeats another one of its session if tool and input are exactly equal, and the earlier one succeeded. With
    `answer`, the call does not run again if the earlier result was kept unchanged; in a loop without middleware around
    tools, the model gets a note instead.

    If the store is locked, full or gone, the session goes on without the ledger. The user is told once, and once more
    when the store works again, with the number of missing calls.
    """

    name = "tool_ledger"
    Settings = ToolLedgerSettings

    def __init__(
        self,
        settings: ToolLedgerSettings | None = None,
        *,
        database: Callable[[Migrations], Database] | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(settings)
        self._clock = clock or SystemClock()
        database = database or database_opener(self.settings.store, StateFolder().ledger)
        self._database = HookDatabase(self.name, TABLES, database)
        self._redactor = Redactor(secrets.token_bytes(32))
        self._effects = compile_matcher(self.settings.effects)
        self._answer_times: PerSession[OrderedDict[str, datetime]] = PerSession(OrderedDict)
        self._once = Once()
        self._trouble = _Trouble()
        self._last_purge: int | None = None

    def points(self) -> tuple[Point, ...]:
        """Return hooks and observers before and after tools, middleware around them, and hooks that report trouble."""
        match = self.settings.match
        points = [
            Point(event=TOOL_PRE, call=self.before, intent="on", priority=BEFORE, match=match),
            Point(event=TOOL_PRE, call=self.on_decision, intent="observe", priority=WATCHING, match=match),
            Point(event=TOOL_POST, call=self.on_return, intent="observe", priority=WATCHING, match=match),
            Point(event=TOOL_ERROR, call=self.on_failure, intent="observe", priority=WATCHING, match=match),
            Point(event=PROMPT_COMPLETE, call=self.on_prompt_end, intent="on", priority=WATCHING),
            Point(event=SESSION_END, call=self.on_session_end, intent="observe", priority=WATCHING),
        ]
        if self.settings.repeats == "answer":
            points += [
                Point(
                    event="tool",
                    call=self.answer_repeat,
                    intent="around",
                    priority=INNERMOST,
                    match=match,
                    timeout=None,
                ),
                Point(event=TOOL_POST, call=self.explain_denial, intent="on", priority=AFTER, match=match),
            ]
        return tuple(points)

    async def entries(
        self,
        *,
        tenant: str = "",
        session: str = "",
        tool: str = "",
        status: CallStatus | Literal[""] = "",
        limit: int = 100,
    ) -> list[LedgerEntry]:
        """Return calls of a tenant, latest first; of one session, tool or status if that is given.

        Raise `StoreUnavailable`.
        """
        names = (for_log(tenant), for_log(session), for_log(tool), status)
        return [_entry(row) for row in await self._database.fetch(LIST, *names, limit)]

    async def close(self) -> None:
        """Close the store."""
        await self._database.close()

    # -- when a call comes again -----------------------------------------------------------------------------------

    async def before(self, event: str, data: Mapping[str, Any]) -> HookResult | None:
        """Keep a call that changes something, note an earlier equal call, and tell the user of trouble."""
        note = ""
        if self._is_change(data):
            note = await self._repeat_note(data) if self.settings.repeats == "note" else ""
            await self._keep(data, "begun", effects=data.get("side_effects"))  # observers run beside the tool
        message = self._trouble_text(data)
        if note:
            return HookResult.inject(note, ephemeral=True, user_message=message, user_message_level="warning")
        return HookResult.proceed(user_message=message, user_message_level="warning") if message else None

    async def answer_repeat(self, context: ToolContext, call_next: Callable[[], Awaitable[Any]]) -> Any:
        """Answer with the result of the equal earlier call, if it was kept unchanged."""
        whose = context.tool_context if isinstance(context.tool_context, Mapping) else {}
        call = whose.get("tool_call_id")
        if call is None or not self._effects.matches(context.tool_name):
            return await call_next()
        data = {"tenant_id": context.tenant_id, "session_id": whose.get("session_id"), "cwd": whose.get("cwd")}
        earlier = await self._earlier({**data, "tool_name": context.tool_name, "tool_input": context.arguments})
        if earlier is None or not earlier.exact:
            return await call_next()
        answered = self._answer_times.of(data)
        answered[str(call)] = earlier.began
        if len(answered) > ANSWERS_KEPT:
            answered.popitem(last=False)
        return earlier.output

    async def explain_denial(self, event: str, data: Mapping[str, Any]) -> HookResult | None:
        """Tell the model that a call did not run."""
        began = self._answer_times.of(data).get(str(data.get("tool_call_id")))
        if began is None:
            return None
        return HookResult.inject(
            f"This call did not run again: the same one succeeded at {began:%H:%M:%S}, and its result is given. "
            "To run it all the same, change its input.",
            ephemeral=True,
        )

    # -- keeping it ------------------------------------------------------------------------------------------------

    async def on_decision(self, event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        """Keep a call that was denied or waits, and update one that the hooks changed."""
        effects = data.get("side_effects")
        if outcome.denied:
            await self._keep(data, "denied", reason=f"{outcome.denied_by}: {outcome.reason}", effects=effects)
        elif outcome.action == "ask_user":
            await self._keep(data, "pending", reason=outcome.approval_prompt or "", effects=effects)
        elif outcome.modified and self._is_change(data):
            await self._keep(data, "begun", effects=effects)

    async def on_return(self, event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        """Keep a call that returned."""
        answered = self._answer_times.of(data).pop(str(data.get("tool_call_id")), None)
        await self._keep(data, "ok" if answered is None else "repeated", output=data.get("result"), over=True)

    async def on_failure(self, event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        """Keep a call that raised."""
        error = data.get("error")
        facts: Mapping[str, Any] = error if isinstance(error, Mapping) else {"message": error}
        reason = f"{facts.get('type') or 'error'}: {facts.get('message')}"
        await self._keep(data, "failed", reason=reason, over=True)

    async def on_prompt_end(self, event: str, data: Mapping[str, Any]) -> HookResult | None:
        """Tell the user of trouble, if no further call did."""
        message = self._trouble_text(data)
        return HookResult.proceed(user_message=message, user_message_level="warning") if message else None

    async def on_session_end(self, event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        """Forget the session; its calls stay."""
        self._answer_times.forget(data)
        self._once.forget(data)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _is_change(self, data: Mapping[str, Any]) -> bool:
        """Return True if the call changes something, by the settings or by the note of a hook."""
        return bool(data.get("side_effects")) or self._effects.matches(str(data.get("tool_name")))

    async def _repeat_note(self, data: Mapping[str, Any]) -> str:
        earlier = await self._earlier(data)
        if earlier is None:
            return ""
        # The earlier result is not repeated here: in the name of a hook it would have more weight than a tool's result.
        return (
            f"An equal call of {earlier.tool} succeeded in this session at {earlier.began:%H:%M:%S}. "
            "Repeat it only if that is meant."
        )

    async def _earlier(self, data: Mapping[str, Any]) -> LedgerEntry | None:
        """Return the last success of an equal call in its session; None also if the store or the digest is missing."""
        digest = _digest(data)
        if not digest:
            return None
        try:
            rows = await self._database.fetch(EARLIER, *_whose(data), digest)
        except StoreUnavailable as error:
            self._count_missed(error, calls=0)
            return None
        return _entry(rows[0]) if rows else None

    async def _keep(
        self,
        data: Mapping[str, Any],
        status: CallStatus,
        *,
        output: object = None,
        reason: str = "",
        effects: object = None,
        over: bool = False,
    ) -> None:
        """Write one call, as it is now."""
        spent = data.get("duration_ms")
        micros = round(spent * 1e3) if isinstance(spent, int | float) and 0 <= spent < NODES * 1e6 else None
        now = micros_of(self._clock.now())
        text, exact = self._limit_value(output) if over and status != "failed" else (None, False)
        values = (
            *_whose(data),
            for_log(str(data.get("tool_call_id") or uuid4().hex))[:LONGEST_NAME],
            for_log(str(data.get("tool_name")))[:LONGEST_NAME],
            _digest(data),
            self._limit_value(data.get("tool_input"))[0],
            text,
            int(exact),
            status,
            self._redactor.redact(for_log(reason)[: self.settings.longest]),
            self._limit_value(effects)[0] if effects else None,
            now - (micros or 0),
            micros,
        )
        try:
            await self._database.run(lambda: self._write_call(values, now))
        except StoreUnavailable as error:
            self._count_missed(error, calls=int(status != "begun"))
            return
        if self._is_due(now):
            self._last_purge = now
        if self._trouble.error:
            self._trouble = _Trouble(self._trouble.number + 1, "", self._trouble.count)

    def _write_call(self, values: tuple[Any, ...], now: int) -> Script[None]:
        yield Statement(WRITE, values)
        if self._is_due(now):
            yield Statement(PURGE, (now - self.settings.days * DAY,))

    def _is_due(self, now: int) -> bool:
        """Return True if old calls have to be removed, which happens once a day."""
        return self._last_purge is None or now - self._last_purge >= DAY

    def _limit_value(self, value: object) -> tuple[str, bool]:
        """Return a value as the ledger keeps it, as JSON, and True if that is exactly the value."""
        longest = self.settings.longest
        try:
            tamed = ValueSimplifier(self._redactor, longest, 4 * longest, NODES).simplify(value)
        except TooMuch:
            return json.dumps(omission(value, "size")), False
        try:
            exact = freeze(tamed) == freeze(value)
        except InputNotFreezable:
            exact = False
        return json.dumps(tamed), exact

    def _count_missed(self, error: StoreUnavailable, *, calls: int) -> None:
        trouble = self._trouble
        if not trouble.error:
            self._trouble = trouble = _Trouble(trouble.number + 1, str(error))
        trouble.count += calls

    def _trouble_text(self, data: Mapping[str, Any]) -> str | None:
        """Return a message about the store that the user has not seen in this session, or None."""
        trouble = self._trouble
        if not trouble.number or not self._once.is_first(data, trouble.number):
            return None
        if trouble.error:
            return f"The ledger of tool calls cannot be used, and the session goes on without it: {trouble.error}"
        return f"The ledger of tool calls works again; {trouble.count} calls are missing from it."


def _whose(data: Mapping[str, Any]) -> tuple[str, str]:
    tenant, session = (for_log(str(data.get(name) or ""))[:LONGEST_NAME] for name in ("tenant_id", "session_id"))
    return tenant, session


def _digest(data: Mapping[str, Any]) -> str:
    """Return the digest of a call, as in the record, or an empty text if its input cannot be frozen."""
    tenant, session, tool, cwd = (str(data.get(name) or "") for name in ("tenant_id", "session_id", "tool_name", "cwd"))
    try:
        return Act(tenant, session, TOOL_PRE, tool, cwd, freeze(data.get("tool_input"))).digest
    except InputNotFreezable:
        return ""


def _entry(row: Row) -> LedgerEntry:
    tenant, session, call, tool, digest, given, output, exact, status, reason, effects, began, duration = row
    return LedgerEntry(
        tenant=tenant,
        session=session,
        call=call,
        tool=tool,
        digest=digest,
        input=json.loads(given),
        output=None if output is None else json.loads(output),
        exact=bool(exact),
        status=status,
        reason=reason,
        effects=None if effects is None else json.loads(effects),
        began=moment_of(began),
        duration_ms=None if duration is None else duration / 1e3,
    )
