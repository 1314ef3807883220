"""An HTTP API to test with: in this process, over a database in memory, and callers with tokens."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
from attrs import define

from amplifier_hooks import HookRegistry
from amplifier_hooks.definitions.model import DefinitionSettings
from amplifier_hooks.server import ManagedApi, open_api
from amplifier_hooks.server.edge.authentication import RateLimiter
from amplifier_hooks.testing import CollectingAudit
from approval_backends.broker import Broker
from approval_backends.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import FastAPI

    from amplifier_hooks.storage.database import Database


def knocking(app: FastAPI, secret: str = "", address: str = "http://127.0.0.1", **headers: str) -> httpx2.AsyncClient:
    """Return a client of this application at this address, with this token."""
    said = {"authorization": f"Bearer {secret}"} if secret else {}
    transport = httpx2.ASGITransport(app)
    return httpx2.AsyncClient(transport=transport, base_url=address, headers={**said, **headers})


@define
class Office:
    """An API that runs in this process, with everything behind it at hand."""

    api: ManagedApi
    registry: HookRegistry
    audit: CollectingAudit
    broker: Broker

    async def client(self, *scopes: str, tenant: str = "acme", name: str = "ada") -> httpx2.AsyncClient:
        """Return a client with a new token."""
        _, secret = await self.api.tokens.create(name, scopes=scopes or ("hooks:manage", "hooks:read"), tenant=tenant)
        return knocking(self.api.app, secret)

    async def admin(self) -> httpx2.AsyncClient:
        """Return a client with a token of the system."""
        return await self.client("hooks:admin", tenant="", name="root")


@asynccontextmanager
async def office(database: Database | None = None, **options: Any) -> AsyncIterator[Office]:
    """An API with no hooks yet. It has no rate limit, and hooks time to share, unless a test sets one."""
    options.setdefault("settings", DefinitionSettings(hooks_chain_timeout_ms=60_000))
    registry, broker = HookRegistry(), Broker(MemoryStore())
    audit: CollectingAudit = options.pop("record", None) or CollectingAudit()
    async with open_api(database, registry=registry, broker=broker, record=audit, **options) as api:
        api.caller_check.reads = api.caller_check.writes = RateLimiter(1e9, 10**9)
        yield Office(api, registry, audit, broker)


def new_hook(name: str = "guard", **fields: Any) -> dict[str, Any]:
    """Return the body of a hook that a tenant may have."""
    config = {"url": "https://hooks.example/guard", "secret": SECRET}
    return {"name": name, "event_type": "tool:pre", "handler_ref": "http", "config": config, **fields}


SECRET = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"
