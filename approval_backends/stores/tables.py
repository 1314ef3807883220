"""The tables of approvals, one text for every kind of database. Numbers are as wide as a time in microseconds needs."""

from typing import Final

APPROVAL_TABLES: Final = (
    """CREATE TABLE {schema}.approval_request (
        id TEXT PRIMARY KEY, tenant TEXT NOT NULL, session TEXT NOT NULL, call TEXT NOT NULL, expires BIGINT NOT NULL,
        request TEXT NOT NULL, created BIGINT NOT NULL, age BIGINT NOT NULL, lifetime BIGINT NOT NULL,
        digest TEXT NOT NULL, status TEXT NOT NULL, version BIGINT NOT NULL,
        decision TEXT, decided BIGINT, decided_age BIGINT, reason TEXT NOT NULL, ended BIGINT, result TEXT
    )""",
    "CREATE INDEX approval_open ON {schema}.approval_request (tenant, session) WHERE ended IS NULL",
    "CREATE INDEX approval_call ON {schema}.approval_request (tenant, session, call) WHERE call <> ''",
    """CREATE TABLE {schema}.approval_event (
        request TEXT NOT NULL, number BIGINT NOT NULL, kind TEXT NOT NULL, at BIGINT NOT NULL, version BIGINT NOT NULL,
        by_whom TEXT NOT NULL, channel TEXT NOT NULL, note TEXT NOT NULL, recorded BIGINT NOT NULL DEFAULT 0,
        PRIMARY KEY (request, number)
    )""",
    "CREATE INDEX approval_event_unrecorded ON {schema}.approval_event (at) WHERE recorded = 0",
    """CREATE TABLE {schema}.approval_grant (
        id TEXT PRIMARY KEY, tenant TEXT NOT NULL, session TEXT NOT NULL,
        agent TEXT NOT NULL, hook TEXT NOT NULL, version TEXT NOT NULL,
        tool TEXT NOT NULL, cwd TEXT NOT NULL, scope TEXT NOT NULL,
        allows BIGINT NOT NULL, ceiling TEXT NOT NULL, by_whom TEXT NOT NULL, channel TEXT NOT NULL,
        request TEXT NOT NULL, created BIGINT NOT NULL, expires BIGINT, ends BIGINT, impacts TEXT NOT NULL,
        times BIGINT, used BIGINT NOT NULL, revoked BIGINT
    )""",
    """CREATE TABLE {schema}.approval_use (
        grant_id TEXT NOT NULL, number BIGINT NOT NULL, at BIGINT NOT NULL, session TEXT NOT NULL, tool TEXT NOT NULL,
        action TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (grant_id, number)
    )""",
    "CREATE INDEX approval_grant_session ON {schema}.approval_grant (tenant, session) WHERE revoked IS NULL",
    """CREATE TABLE {schema}.approval_clock (
        id BIGINT PRIMARY KEY, boot TEXT NOT NULL, uptime BIGINT NOT NULL, wall BIGINT NOT NULL,
        store_age BIGINT NOT NULL
    )""",
    "INSERT INTO {schema}.approval_clock VALUES (1, '', 0, 0, 0)",
    """CREATE TABLE {schema}.approval_stop (
        id TEXT PRIMARY KEY, tenant TEXT NOT NULL, session TEXT NOT NULL, why TEXT NOT NULL, by_whom TEXT NOT NULL,
        at BIGINT NOT NULL, ended BIGINT, ended_by TEXT NOT NULL DEFAULT ''
    )""",
    "CREATE UNIQUE INDEX approval_stop_in_force ON {schema}.approval_stop (tenant, session) WHERE ended IS NULL",
)
"""`expires` of a request and `ends` of a grant are ages of the store: the time is over then."""
