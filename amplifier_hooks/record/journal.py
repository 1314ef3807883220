"""The journal: facts of events, hooks and tool calls come in; one indexed table keeps them, and answers questions.

The record proves what happened; the journal beside it is for looking things up, and forgets. The execution log, its
statistics, the ledger of tool calls and the checkpoints of agents are views of the table.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeVar

from amplifier_hooks.act import Act, freeze
from amplifier_hooks.clock import micros_of
from amplifier_hooks.errors import InputNotFreezable
from amplifier_hooks.events import TOOL_PRE
from amplifier_hooks.logs import get_logger
from amplifier_hooks.record.encode_facts import Redactor, TooMuch, ValueSimplifier, digest, omission
from amplifier_hooks.storage.database import Migrations, Script, Statement, StoreUnavailable
from amplifier_hooks.text.escape import clip, for_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Mapping, Sequence
    from datetime import datetime, timedelta

    from amplifier_hooks.ports import Clock
    from amplifier_hooks.storage.database import Row


log = get_logger(__name__)

T = TypeVar("T")
Kind = Literal["event", "hook", "call", "checkpoint"]

LONGEST_NAME: Final = 200
PURGE_SECONDS: Final = 60
"""Seconds between two removals of old facts, at least."""

JOURNAL_TABLES: Final = Migrations(
    component="journal",
    steps=(
        (
            """CREATE TABLE {schema}.fact (
                kind TEXT NOT NULL, id TEXT NOT NULL, tenant TEXT NOT NULL, session TEXT NOT NULL,
                part INTEGER NOT NULL, event TEXT NOT NULL, name TEXT NOT NULL, at BIGINT NOT NULL,
                status TEXT NOT NULL, denied INTEGER NOT NULL, duration DOUBLE PRECISION, digest TEXT NOT NULL,
                note TEXT, body TEXT NOT NULL,
                PRIMARY KEY (kind, id, tenant, session, part)
            )""",
            "CREATE INDEX fact_of ON {schema}.fact (kind, tenant, at)",
            "CREATE INDEX fact_at ON {schema}.fact (kind, at)",
            "CREATE INDEX fact_digest ON {schema}.fact (tenant, session, digest, at) WHERE kind = 'call'",
        ),
    ),
)


class Fact(NamedTuple):
    """One row of the journal. `specs/journal.md` states each column for each kind."""

    kind: Kind
    id: str
    tenant: str
    session: str = ""
    part: int = 0
    event: str = ""
    name: str = ""
    at: int = 0
    status: str = ""
    denied: int = 0
    duration: float | None = None
    digest: str = ""
    note: str | None = None
    body: str = ""


COLUMNS: Final = ", ".join(Fact._fields)
WRITE: Final = (
    f"INSERT INTO {{schema}}.fact AS kept ({COLUMNS}) "  # noqa: S608  # of constants
    f"VALUES ({', '.join(f'${number}' for number in range(1, len(Fact._fields) + 1))}) "
    "ON CONFLICT (kind, id, tenant, session, part) DO UPDATE SET note = coalesce(excluded.note, kept.note), "
    + ", ".join(f"{name} = excluded.{name}" for name in ("name", "status", "denied", "duration", "digest", "body"))
)
STATISTICS: Final = (
    "SELECT name, event, count(*), sum(CASE WHEN status <> 'ok' THEN 1 ELSE 0 END), "
    "sum(CASE WHEN status = 'timeout' THEN 1 ELSE 0 END), sum(denied), avg(duration), "
    "min(CASE WHEN duration IS NOT NULL AND place * 100 >= timed * 95 THEN duration END) "
    "FROM (SELECT name, event, status, denied, duration, "
    "row_number() OVER (PARTITION BY name, event, (duration IS NULL) ORDER BY duration) AS place, "
    "count(duration) OVER (PARTITION BY name, event) AS timed FROM {schema}.fact WHERE (terms)) ranked "
    "GROUP BY name, event ORDER BY name, event"
)
TERMS: Final = {
    "after": "(at, id) < (?, ?)",
    "before": "at < ?",
    "up_to": "at <= ?",
    "hook": "EXISTS (SELECT 1 FROM {schema}.fact AS h WHERE h.kind = 'hook' AND h.id = fact.id AND h.name = ?)",
}
"""Conditions of queries, by name; every other name is a column that has to be equal."""


class Facts(Protocol):
    """A database with the tables of the journal."""

    def run(self, script: Script[T]) -> Awaitable[T]:
        """Drive a script in one transaction."""

    def fetch(self, sql: str, *values: Any) -> Awaitable[list[Row]]:
        """Return the rows of one statement."""


class Journal:
    """Writer and reader of the facts of some kinds. Every method but `write` raises `StoreUnavailable`.

    Args:
        database: A database with `JOURNAL_TABLES`.
        kinds: Kinds of facts that this journal removes when they are old.
        keep: Time for which a fact is kept.
        most: Events of one tenant, at most; None means no limit.
    """

    def __init__(self, database: Facts, *kinds: Kind, keep: timedelta, clock: Clock, most: int | None = None) -> None:
        self.lost = 0
        """Events and ended calls that could not be written."""
        self.problem = ""
        """Reason why the journal cannot be used; empty while it works."""
        self.turns = 0
        """Number of times that the journal stopped working, or worked again."""
        self._database = database
        self._kinds = "kind IN ('{}')".format("', '".join(kinds))
        self._keep = keep
        self._clock = clock
        self._most = most
        self._purged: datetime | None = None
        self._tenants: set[str] = set()

    async def write(self, facts: Sequence[Fact] = ()) -> None:
        """Write facts, all or none of them, and remove old ones if that is due.

        A call that is in the table is written over. Facts that cannot be written are counted in `lost` and logged.
        After a cancellation the facts may or may not be written.
        """
        now, since, problem = self._clock.now(), self._purged, ""
        due = since is None or not 0 <= (now - since).total_seconds() < PURGE_SECONDS
        self._tenants.update(fact.tenant for fact in facts)
        try:
            await self._database.run(self._write(facts, tuple(self._tenants) if due else None, now))
        except StoreUnavailable as error:
            problem = str(error)
            self.lost += sum(not fact.part and fact.status != "begun" for fact in facts)
            log.warning("journal_unavailable", lost=self.lost, error=problem)
        else:
            if due:
                self._purged = now
                self._tenants.clear()
        self.turns += bool(problem) != bool(self.problem)
        self.problem = problem

    async def find(self, kind: Kind, *, limit: int = 100, **terms: Any) -> list[Fact]:
        """Return facts, newest first. A term is the value of a column or of one of `TERMS`; None is no term."""
        where, values = _where(f"kind = '{kind}'", terms)
        text = f"SELECT {COLUMNS} FROM {{schema}}.fact AS fact WHERE {where} ORDER BY at DESC, id DESC"  # noqa: S608
        return [Fact(*row) for row in await self._database.fetch(f"{text} LIMIT ${len(values) + 1}", *values, limit)]

    async def statistics(self, **terms: str | None) -> list[Row]:
        """Return hook, event, runs, failures, timeouts, denials, mean and p95 in ms, of every hook at every event."""
        where, values = _where("kind = 'hook'", terms)
        return await self._database.fetch(STATISTICS.replace("(terms)", where), *values)

    async def forget(self, tenant: str) -> None:
        """Remove all facts of one tenant."""
        await self._database.fetch("DELETE FROM {schema}.fact WHERE tenant = $1", name_in_facts(tenant))

    def _write(self, facts: Sequence[Fact], tenants: Collection[str] | None, now: datetime) -> Script[None]:
        for fact in facts:
            yield Statement(WRITE, fact)
        if tenants is None:
            return
        yield self._remove(before=micros_of(now - self._keep))
        for tenant in tenants if self._most is not None else ():
            rows = yield Statement(
                "SELECT at FROM {schema}.fact WHERE kind = 'event' AND tenant = $1 "
                "ORDER BY at DESC LIMIT 1 OFFSET CAST($2 AS INTEGER)",
                (tenant, self._most),
            )
            if rows:
                yield self._remove(tenant=tenant, up_to=rows[0][0])

    def _remove(self, **terms: Any) -> Statement:
        where, values = _where(self._kinds, terms)
        return Statement(f"DELETE FROM {{schema}}.fact WHERE {where}", tuple(values))  # noqa: S608  # of constants


def _where(first: str, terms: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return a condition and its values. Names are escaped as those of facts."""
    texts, values = [first], list[Any]()
    for name, value in terms.items():
        if value is not None:
            text = TERMS.get(name, f"{name} = ?")
            for one in value if isinstance(value, tuple) else (value,):
                values.append(name_in_facts(one) if isinstance(one, str) else one)
                text = text.replace("?", f"${len(values)}", 1)
            texts.append(text)
    return " AND ".join(texts), values


# -- values of facts ---------------------------------------------------------------------------------------------------


def name_in_facts(name: object) -> str:
    """Return a name as the journal has it: on one line, and of a long one the beginning and its digest."""
    text = for_log(str(name))
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME // 2]}…{digest(text)}"


class FactValues:
    """Texts and values as facts have them: without secrets, and limited in size.

    Args:
        longest: Characters of a text, at most; a value has four times as many in all.
        most: Parts of a value, at most.
        environment: An environment with more secrets, found by their names; that of the process if None.
    """

    def __init__(self, longest: int = 1_024, most: int = 256, *, environment: Mapping[str, str] | None = None) -> None:
        self._redactor = Redactor(secrets.token_bytes(32), environment=environment)
        self._longest = longest
        self._most = most

    def text(self, text: str | None) -> str | None:
        """Return a text without secrets on one line, cut if it is too long."""
        return None if text is None else clip(for_log(self._hide(text[: 8 * self._longest])), self._longest)

    def name(self, name: object) -> str:
        """Return a name without secrets, as `name_in_facts`."""
        return name_in_facts(self._hide(str(name)))

    def value(self, value: object) -> Any:
        """Return a value as JSON can hold it, without secrets. A text that is too long becomes its digest."""
        try:
            plain = ValueSimplifier(self._redactor, self._longest, 4 * self._longest, self._most).simplify(value)
        except TooMuch:
            return omission(value, "size")
        return plain if len(json.dumps(plain)) <= 4 * self._longest else omission(value, "size")

    def _hide(self, text: str) -> str:
        return self._redactor.redact(text.encode("utf-8", "backslashreplace").decode())


def digest_of_call(data: Mapping[str, Any]) -> str:
    """Return the digest that a session has for the call of a payload; empty if the input cannot be frozen."""
    tenant, session, tool, cwd = (str(data.get(name) or "") for name in ("tenant_id", "session_id", "tool_name", "cwd"))
    try:
        return Act(tenant, session, TOOL_PRE, tool, cwd, freeze(data.get("tool_input"))).digest
    except InputNotFreezable:
        return ""
