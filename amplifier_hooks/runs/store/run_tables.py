"""The tables of runs. One text for every kind of database; a number is as wide as a time in microseconds needs."""

from __future__ import annotations

from typing import Final

from amplifier_hooks.storage.database import Migrations

RUN: Final = """CREATE TABLE {schema}.run (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    session TEXT NOT NULL,
    agent TEXT NOT NULL,
    parent TEXT,
    parent_session TEXT,
    depth BIGINT NOT NULL,
    bare BIGINT NOT NULL,
    urgent BIGINT NOT NULL,
    created BIGINT NOT NULL,
    parameters TEXT NOT NULL,
    hooked BIGINT NOT NULL,
    blocked BIGINT NOT NULL,
    stage TEXT NOT NULL,
    version BIGINT NOT NULL,
    events BIGINT NOT NULL,
    failures BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    handed BIGINT NOT NULL,
    holder TEXT,
    held_until BIGINT,
    stopping BIGINT NOT NULL,
    ran_with TEXT,
    reported BIGINT NOT NULL,
    result_text TEXT,
    result_data TEXT,
    error TEXT,
    started BIGINT,
    ended BIGINT,
    owes BIGINT NOT NULL
)"""
EVENT: Final = """CREATE TABLE {schema}.run_event (
    run TEXT NOT NULL,
    number BIGINT NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run, number)
)"""
RUN_TABLES: Final = Migrations(
    component="runs",
    steps=(
        (
            RUN,
            EVENT,
            "CREATE INDEX run_waiting ON {schema}.run (urgent DESC, created, id) WHERE stage IN ('queued', 'ready')",
            "CREATE INDEX run_held ON {schema}.run (held_until) WHERE held_until IS NOT NULL",
            "CREATE INDEX run_listed ON {schema}.run (tenant, created DESC, id)",
            "CREATE INDEX run_session ON {schema}.run (session)",
            "CREATE INDEX run_children ON {schema}.run (parent, created) WHERE parent IS NOT NULL",
            "CREATE INDEX run_owing ON {schema}.run (id) WHERE owes = 1",
        ),
    ),
)
