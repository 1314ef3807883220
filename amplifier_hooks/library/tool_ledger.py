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
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import uuid4

from attrs import frozen
from pydantic import Field

from amplifier_hooks.clock import SystemClock, micros_of, moment_of
from amplifier_hooks.events import PROMPT_COMPLETE, TOOL_ERROR, TOOL_POST, TOOL_PRE
from amplifier_hooks.impact.tool_matcher import compile_tool_matcher
from amplifier_hooks.library.parts.hook_database import HookDatabase, StoreAddress, database_opener
from amplifier_hooks.library.parts.ready_made import HookSettings, Once, Point, ReadyMade, ToolMatch, duration_of
from amplifier_hooks.record.journal import JOURNAL_TABLES, Fact, FactValues, Journal, digest_of_call, name_in_facts
from amplifier_hooks.result import HookResult
from amplifier_hooks.storage.database import StoreUnavailable
from amplifier_hooks.storage.state_folder import StateFolder

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from amplifier_hooks.ports import Clock
    from amplifier_hooks.result import Outcome
    from amplifier_hooks.storage.database import Database, Migrations


CallStatus = Literal["ok", "failed", "denied", "pending", "begun"]
"""The end of a call. `begun`: the call was under way, and its end was not seen."""

BEFORE: Final = 260
WATCHING: Final = 610

PARTS: Final = 20_000
"""Most parts of a value that is kept."""
LONGEST: Final = 16_384
"""Characters of a text that is kept; of a longer one the digest is."""


class ToolLedgerSettings(HookSettings):
    """The calls that are kept, and the effect of a repeated call."""

    match: ToolMatch = Field(default="*", description="the tools whose calls are kept")
    effects: ToolMatch = Field(
        default="Write|Edit|MultiEdit|NotebookEdit|create_*|delete_*|send_*|post_*|deploy*",
        description="the tools whose calls change something and, when they come again, get a note; so do calls for "
        "which a hook noted `side_effects`",
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
    status: str
    effects: Any
    """Side effects that another hook noted before the call ran."""
    began: datetime
    duration_ms: float | None
    reason: str
    input: Any
    output: Any


class ToolLedger(ReadyMade[ToolLedgerSettings]):
    """Keeps every tool call in a database, and notices when one that changes something comes again.

    A call repeats another one of its session if tool and input are exactly equal, and the earlier one succeeded.

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
        self._database = HookDatabase(self.name, JOURNAL_TABLES, database)
        self._journal = Journal(self._database, "call", keep=timedelta(days=self.settings.days), clock=self._clock)
        self._values = FactValues(LONGEST, PARTS)
        self._effects = compile_tool_matcher(self.settings.effects)
        self._once = Once()

    def points(self) -> tuple[Point, ...]:
        """Return a hook before tools, observers before and after them, and a hook that reports trouble."""
        match = self.settings.match
        return (
            Point(event=TOOL_PRE, call=self.before, intent="on", priority=BEFORE, match=match),
            Point(event=TOOL_PRE, call=self.watch, intent="observe", priority=WATCHING, match=match),
            Point(event=TOOL_POST, call=self.watch, intent="observe", priority=WATCHING, match=match),
            Point(event=TOOL_ERROR, call=self.watch, intent="observe", priority=WATCHING, match=match),
            Point(event=PROMPT_COMPLETE, call=self.on_prompt_end, intent="on", priority=WATCHING),
        )

    async def entries(
        self,
        *,
        tenant: str = "",
        session: str = "",
        tool: str = "",
        status: CallStatus | Literal[""] = "",
        digest: str = "",
        limit: int = 100,
    ) -> list[LedgerEntry]:
        """Return calls of a tenant, latest first; of one session, tool, status or digest if that is given.

        Args:
            tool: Name of the tool; the empty name stands for all.
            status: End of the calls; the empty one stands for all.
            session: Id of the session; the empty id stands for all.
            digest: Digest of the input; the empty one stands for all.

        Raise `StoreUnavailable`.
        """
        given = {"session": session, "name": tool, "status": status, "digest": digest}
        terms = {name: value or None for name, value in given.items()}
        return [_entry(fact) for fact in await self._journal.find("call", limit=limit, tenant=tenant, **terms)]

    async def close(self) -> None:
        """Close the store."""
        await self._database.close()

    async def before(self, event: str, data: Mapping[str, Any]) -> HookResult | None:
        """Keep a call that changes something, note an earlier equal call, and tell the user of trouble."""
        note = None
        if self._is_change(data):
            earlier = await self._earlier(data)
            # The earlier result is not repeated here: in the name of a hook it would weigh more than a tool's result.
            if earlier is not None:
                note = (
                    f"An equal call of {earlier.tool} succeeded in this session at {earlier.began:%H:%M:%S}. "
                    "Repeat it only if that is meant."
                )
            await self._keep(data, "begun")  # observers run beside the tool
        return self._answer(data, note)

    async def watch(self, event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        """Keep a call that returned, failed, was denied or waits, and update one that the hooks changed."""
        if event == TOOL_POST:
            await self._keep(data, "ok", output=data.get("result"))
        elif event == TOOL_ERROR:
            error = data.get("error")
            facts: Mapping[str, Any] = error if isinstance(error, Mapping) else {"message": error}
            await self._keep(data, "failed", reason=f"{facts.get('type') or 'error'}: {facts.get('message')}")
        elif outcome.denied:
            await self._keep(data, "denied", reason=f"{outcome.denied_by}: {outcome.reason}")
        elif outcome.action == "ask_user":
            await self._keep(data, "pending", reason=outcome.approval_prompt or "")
        elif outcome.modified and self._is_change(data):
            await self._keep(data, "begun")

    async def on_prompt_end(self, event: str, data: Mapping[str, Any]) -> HookResult | None:
        """Tell the user of trouble, if no further call did."""
        return self._answer(data)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _is_change(self, data: Mapping[str, Any]) -> bool:
        """Return True if the call changes something, by the settings or by the note of a hook."""
        return bool(data.get("side_effects")) or self._effects.matches(str(data.get("tool_name")))

    async def _earlier(self, data: Mapping[str, Any]) -> LedgerEntry | None:
        """Return the last success of an equal call in its session; None also if the store or the digest is missing."""
        tenant, session = (str(data.get(name) or "") for name in ("tenant_id", "session_id"))
        terms = {"tenant": tenant, "session": session, "digest": digest_of_call(data), "status": "ok"}
        try:
            facts = await self._journal.find("call", limit=1, **terms) if terms["digest"] else []
        except StoreUnavailable:
            return None
        return _entry(facts[0]) if facts else None

    async def _keep(
        self, data: Mapping[str, Any], status: CallStatus, *, output: object = None, reason: str = ""
    ) -> None:
        """Write one call, as it is now."""
        took, effects, value = duration_of(data), data.get("side_effects"), self._values.value
        given, kept = value(data.get("tool_input")), value(output)
        fact = Fact(
            "call",
            self._values.name(data.get("tool_call_id") or uuid4().hex),
            name_in_facts(data.get("tenant_id") or ""),
            name_in_facts(data.get("session_id") or ""),
            name=self._values.name(data.get("tool_name")),
            at=micros_of(self._clock.now()) - round((took or 0) * 1e3),
            status=status,
            denied=int(status == "denied"),
            duration=took,
            digest=digest_of_call(data),
            note=json.dumps(value(effects)) if effects else None,
            body=json.dumps({"input": given, "output": kept, "reason": self._values.text(reason)}),
        )
        await self._journal.write((fact,))

    def _answer(self, data: Mapping[str, Any], note: str | None = None) -> HookResult | None:
        """Return an answer with a note for the model, and news about the store that its user has not seen."""
        journal, news = self._journal, None
        if journal.turns and self._once.is_first(data, journal.turns):
            news = (
                f"The ledger of tool calls cannot be used, and the session goes on without it: {journal.problem}"
                if journal.problem
                else f"The ledger of tool calls works again; {journal.lost} calls are missing from it."
            )
        if note is not None:
            return HookResult.inject(note, ephemeral=True, user_message=news, user_message_level="warning")
        return HookResult.proceed(user_message=news, user_message_level="warning") if news else None


def _entry(fact: Fact) -> LedgerEntry:
    return LedgerEntry(
        tenant=fact.tenant,
        session=fact.session,
        call=fact.id,
        tool=fact.name,
        digest=fact.digest,
        status=fact.status,
        effects=fact.note and json.loads(fact.note),
        began=moment_of(fact.at),
        duration_ms=fact.duration,
        **json.loads(fact.body),
    )
