"""The address of a store: a file, or a database server.

approvals.db                                      a SQLite file
postgresql://user@host/database                   PostgreSQL; its schema is amplifier_hooks
postgresql://user@host/database#other_schema      the same, in another schema
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.storage.state_folder import StateFolder
from approval_backends.errors import UnknownStore

if TYPE_CHECKING:
    from amplifier_hooks.storage.database import Database, Migrations
    from approval_backends.stores.transactions import DatabaseStore


SERVER: Final = re.compile(r"postgres(?:ql)?://", re.IGNORECASE)
SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
LOGIN: Final = re.compile(r"(?<=://)[^/@\s]*@|(?<=[?&])password=[^&#]*", re.IGNORECASE)


def store_at(address: str | None = None) -> DatabaseStore:
    """Return the store at an address, not open yet; without an address, the store in the default file.

    Args:
        address: A file of SQLite, or `postgresql://…#schema`; the user's own file if None.

    Raises `UnknownStore` for an address that is neither a path nor a server.
    """
    target = _parse_address(address)
    if isinstance(target, tuple):
        from approval_backends.stores.postgres import PostgresStore

        dsn, options = target
        return PostgresStore(dsn, **options)
    from approval_backends.stores.sqlite import SqliteStore

    return SqliteStore(target or StateFolder().approvals)


def database_at(address: str | None, *migrations: Migrations) -> Database:
    """Return a database with these tables at an address, not open yet.

    Without an address, it is the server's file in the state folder, which is made. Raises `UnknownStore`, as
    `store_at` does.
    """
    target = _parse_address(address)
    if isinstance(target, tuple):
        from amplifier_hooks.storage.postgres import PostgresDatabase

        dsn, options = target
        return PostgresDatabase(dsn, *migrations, **options)
    from amplifier_hooks.storage.sqlite import SqliteDatabase

    return SqliteDatabase(target or StateFolder().make().server, *migrations)


def _parse_address(address: str | None) -> Path | tuple[str, dict[str, Any]] | None:
    """Return a file, or a server's DSN and options; None without an address. Raises `UnknownStore`."""
    if address is None:
        return None
    if not address.strip():
        raise UnknownStore("the address is empty; name a file, or postgresql://…")
    if not SCHEME.match(address):
        return Path(address).expanduser()
    if not SERVER.match(address):
        raise UnknownStore(f"{without_secrets(address)} is neither a file nor postgresql://…; name one of them")
    dsn, _, schema = address.partition("#")
    return dsn, {"schema": schema} if schema else {}


def without_secrets(address: str) -> str:
    """Return an address that can be shown: without user name and password."""
    return LOGIN.sub("", address)
