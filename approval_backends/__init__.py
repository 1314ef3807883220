"""Where people decide, and where decisions live.

Asking, each of them what a session takes as `approvals`:

    terminal        TerminalApprovals: a person at the terminal
    websocket       WebSocketApprovals: everybody at the page, and every client of the Agent Client Protocol
    deferred        DeferredApprovals: other programs, now or after a restart, over a store
    race            RacingApprovals: several of these at once; the first valid answer wins
    base            InProcessBackend: what backends that decide inside this process share

Deciding:

    rules           Rules: allow, ask or deny, from a file; what a session takes as `rules`
    broker          Broker: submit, wait, decide, take back, over a store; who decides is a Decider
    stores          SqliteStore, PostgresStore, MemoryStore

    errors          BackendUnavailable: nobody can be asked here

Heavy parts load on first use: importing this package brings no terminal, no network and no database library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from approval_backends.base import InProcessBackend
from approval_backends.errors import BackendUnavailable

if TYPE_CHECKING:
    from approval_backends.broker import Broker
    from approval_backends.deferred import DeferredApprovals
    from approval_backends.lifecycle import Decider
    from approval_backends.race import RacingApprovals
    from approval_backends.rules import Rules
    from approval_backends.stores.memory import MemoryStore
    from approval_backends.stores.postgres import PostgresStore
    from approval_backends.stores.sqlite import SqliteStore
    from approval_backends.terminal import TerminalApprovals
    from approval_backends.websocket import WebSocketApprovals

__all__ = [
    "BackendUnavailable",
    "Broker",
    "Decider",
    "DeferredApprovals",
    "InProcessBackend",
    "MemoryStore",
    "PostgresStore",
    "RacingApprovals",
    "Rules",
    "SqliteStore",
    "TerminalApprovals",
    "WebSocketApprovals",
]

HOMES: Final = {
    "Broker": "broker",
    "Decider": "lifecycle",
    "DeferredApprovals": "deferred",
    "MemoryStore": "stores.memory",
    "PostgresStore": "stores.postgres",
    "RacingApprovals": "race",
    "Rules": "rules",
    "SqliteStore": "stores.sqlite",
    "TerminalApprovals": "terminal",
    "WebSocketApprovals": "websocket",
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"approval_backends.{HOMES[name]}"), name)
