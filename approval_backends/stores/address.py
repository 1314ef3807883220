"""Which store is meant: a file, or a database server.

approvals.db                                      a SQLite file
postgresql://user@host/database                   PostgreSQL; its schema is amplifier_hooks
postgresql://user@host/database#other_schema      the same, in another schema
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from approval_backends.errors import UnknownStore

if TYPE_CHECKING:
    from approval_backends.stores.script import DatabaseStore

__all__ = ["default_path", "store_at", "without_secrets"]

SERVER: Final = re.compile(r"postgres(?:ql)?://", re.IGNORECASE)
SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
LOGIN: Final = re.compile(r"(?<=://)[^/@\s]*@|(?<=[?&])password=[^&#]*", re.IGNORECASE)


def default_path() -> Path:
    """The file that is meant where nobody names one: `amplifier-hooks/approvals.db` where this user's state is kept.

    That is `$XDG_STATE_HOME`, or `~/.local/state`; `%LOCALAPPDATA%` on Windows.
    """
    home = Path.home()
    place = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_STATE_HOME", "")
    state = Path(place) if place and Path(place).is_absolute() else home / ".local" / "state"
    return state / "amplifier-hooks" / "approvals.db"


def store_at(address: str | None = None) -> DatabaseStore:
    """The store at an address, not open yet; the default file without one.

    Raises `UnknownStore` for what is neither a path nor a server, and where the extra for the server is missing.
    """
    if address is None or not SCHEME.match(address):
        from approval_backends.stores.sqlite import SqliteStore

        if address is not None and not address.strip():
            raise UnknownStore("the address is empty; name a file, or postgresql://…")
        return SqliteStore(default_path() if address is None else Path(address).expanduser())
    if not SERVER.match(address):
        raise UnknownStore(f"{without_secrets(address)} is neither a file nor postgresql://…; name one of them")
    from importlib.util import find_spec

    from approval_backends.stores.postgres import PostgresStore

    if find_spec("asyncpg") is None:
        raise UnknownStore("PostgreSQL needs the extra 'postgres': pip install 'amplifier-hooks[postgres]'")
    dsn, _, schema = address.partition("#")
    return PostgresStore(dsn, schema=schema) if schema else PostgresStore(dsn)


def without_secrets(address: str) -> str:
    """An address that can be shown: without who logs in, and how."""
    return LOGIN.sub("", address)
