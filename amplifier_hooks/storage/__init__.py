"""Where facts are kept: in memory, in a SQLite file on one machine, in PostgreSQL on many. The only door to both.

    base        the face they share: `run`, `fetch`, `watch`; what a migration is
    opened      what is opened and closed, as an async context
    place       where this user's state is kept
    errors      why a store cannot be used, and whose turn it is then
    bells       waiting for a change
    memory      gone with the process
    sqlite      one file, one thread
    postgres    a pool, and a connection that listens

A store writes its statements once, as a script that yields them and is given their rows; each kind of database drives
it to the end in one transaction. Messages only wake: whoever is woken reads again.
"""

from amplifier_hooks.storage.base import Database, Migrations, Row, Script, Statement, Wake
from amplifier_hooks.storage.errors import (
    CorruptStore,
    SchemaMismatch,
    StoreBusy,
    StoreClosed,
    StoreUnavailable,
    UnsafeStore,
)

__all__ = [
    "CorruptStore",
    "Database",
    "Migrations",
    "Row",
    "SchemaMismatch",
    "Script",
    "Statement",
    "StoreBusy",
    "StoreClosed",
    "StoreUnavailable",
    "UnsafeStore",
    "Wake",
]
