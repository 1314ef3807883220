"""Approval backends: a request comes in; a decision by a rule or a person goes out.

A session takes one of these as `approvals`:

    terminal        TerminalApprovals: a person at the terminal
    gateway         WebSocketApprovals: the page, and every client of the Agent Client Protocol;
                    MountedApprovals: the page inside an ASGI application of yours, behind its sign-in
    backend         DeferredApprovals: other programs, now or after a restart, over a store;
                    RacingApprovals: several of these at once; the first valid answer wins
    in_process      InProcessBackend: the base of backends that decide inside this process

A session takes `Rules` as `rules`: allow, ask or deny, from a file. A `Broker` submits, waits, decides and takes back
over a store: `SqliteStore`, `PostgresStore`, `MemoryStore`, or the one that `store_at` opens at an address. A `Decider`
is the person who decides. An `ApprovalsClient` decides over the network, as an `Approver` whom the gateway knows. A
backend without an approver raises `BackendUnavailable`.

Heavy parts load on first use: importing this package brings no terminal, no network and no database library.
"""

from typing import TYPE_CHECKING

from amplifier_hooks import load_on_use

if TYPE_CHECKING:
    from approval_backends.backend import DeferredApprovals, RacingApprovals
    from approval_backends.broker import Broker
    from approval_backends.client import ApprovalsClient
    from approval_backends.errors import BackendUnavailable
    from approval_backends.gateway.approvers import Approver
    from approval_backends.gateway.websocket_approvals import MountedApprovals, WebSocketApprovals
    from approval_backends.in_process import InProcessBackend
    from approval_backends.lifecycle import Decider
    from approval_backends.rules.policy import Rules
    from approval_backends.stores.address import store_at
    from approval_backends.stores.approval_store import RequestFilter
    from approval_backends.stores.memory import MemoryStore
    from approval_backends.stores.postgres import PostgresStore
    from approval_backends.stores.sqlite import SqliteStore
    from approval_backends.terminal.prompt import TerminalApprovals

__all__ = [
    "ApprovalsClient",
    "Approver",
    "BackendUnavailable",
    "Broker",
    "Decider",
    "DeferredApprovals",
    "InProcessBackend",
    "MemoryStore",
    "MountedApprovals",
    "PostgresStore",
    "RacingApprovals",
    "RequestFilter",
    "Rules",
    "SqliteStore",
    "TerminalApprovals",
    "WebSocketApprovals",
    "store_at",
]

__getattr__ = load_on_use(
    __name__,
    {
        "backend": ("DeferredApprovals", "RacingApprovals"),
        "broker": ("Broker",),
        "client": ("ApprovalsClient",),
        "errors": ("BackendUnavailable",),
        "gateway.approvers": ("Approver",),
        "gateway.websocket_approvals": ("MountedApprovals", "WebSocketApprovals"),
        "in_process": ("InProcessBackend",),
        "lifecycle": ("Decider",),
        "rules.policy": ("Rules",),
        "stores.address": ("store_at",),
        "stores.approval_store": ("RequestFilter",),
        "stores.memory": ("MemoryStore",),
        "stores.postgres": ("PostgresStore",),
        "stores.sqlite": ("SqliteStore",),
        "terminal.prompt": ("TerminalApprovals",),
    },
)
