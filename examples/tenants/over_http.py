"""Two tenants and the operator, over the HTTP API: their hooks run in order, and failures stay with their tenant.

Lower priorities run first, and at equal priority the system before tenants. Acme has a hook that fails and one that
takes a minute; Globex neither sees them nor waits for them.

Run it, with the extra server: python examples/tenants/over_http.py

Prints:
    acme     house, acme    broken: error, slow: timeout
    globex   house, globex
    globex waited for no other tenant: True
    acme reads a key: denied by no secrets
    globex reads a key: denied by no secrets
    acme's hooks: acme rule, broken, slow
    globex's hooks: globex rule
    globex asks for a hook of acme's: 404
    the operator's: no secrets, house rule, acme rule, broken, slow, globex rule
    acme may not run commands: 403
"""

import asyncio
from time import perf_counter
from typing import Any

import httpx2

from amplifier_hooks import HookRegistry, NoRecord
from amplifier_hooks.server import ManagedApi, open_api
from approval_backends import Broker, MemoryStore

AT_ONCE = 0.1
"""Seconds; the hooks of acme's take longer."""
ALLOWED = {f"tenant_hooks:{name}" for name in ("tenants_rule", "broken", "slow")}


def hook(name: str, handler: str, priority: int) -> dict[str, Any]:
    """The body of a hook in this process."""
    return {"name": name, "event_type": "tool:pre", "handler_ref": f"tenant_hooks:{handler}", "priority": priority}


async def bearer(api: ManagedApi, name: str, tenant: str, *scopes: str) -> httpx2.AsyncClient:
    """A client with a token, as `amplifier-hooks token create` makes one."""
    _, secret = await api.tokens.create(name, scopes=scopes, tenant=tenant)
    headers = {"authorization": f"Bearer {secret}"}
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(api.app), base_url="http://127.0.0.1", headers=headers)


async def names(client: httpx2.AsyncClient) -> str:
    """Return the names of the hooks that a client can see."""
    return ", ".join(one["name"] for one in (await client.get("/v1/hooks")).json()["hooks"])


async def story(api: ManagedApi, registry: HookRegistry) -> None:
    """Make hooks, and let both tenants use a tool."""
    operator = await bearer(api, "ops", "", "hooks:admin")
    acme = await bearer(api, "acme's admin", "acme", "hooks:manage")
    globex = await bearer(api, "globex's admin", "globex", "hooks:manage")
    await operator.post("/v1/hooks", json=hook("no secrets", "no_secrets", 10))
    await operator.post("/v1/hooks", json=hook("house rule", "house_rule", 200))
    await acme.post("/v1/hooks", json=hook("acme rule", "tenants_rule", 200))
    await acme.post("/v1/hooks", json=hook("broken", "broken", 300))
    made = await acme.post("/v1/hooks", json=hook("slow", "slow", 301))
    await globex.post("/v1/hooks", json=hook("globex rule", "tenants_rule", 200))

    call = {"session_id": "s", "tool_name": "Read", "tool_input": {"file_path": "notes.txt"}}
    beside = asyncio.create_task(registry.emit("tool:pre", {**call, "tenant_id": "acme"}))
    await asyncio.sleep(0)
    began = perf_counter()
    quick = await registry.emit("tool:pre", {**call, "tenant_id": "globex"})
    spent = perf_counter() - began
    for tenant, outcome in (("acme", await beside), ("globex", quick)):
        failed = ", ".join(f"{one.hook_name}: {one.status}" for one in outcome.failures)
        print(f"{tenant:<8} {', '.join(outcome.data['marks']):<14} {failed}".rstrip())
    print(f"globex waited for no other tenant: {spent < AT_ONCE}")

    for tenant in ("acme", "globex"):
        outcome = await registry.emit("tool:pre", {**call, "tenant_id": tenant, "tool_input": {"file_path": "a.pem"}})
        print(f"{tenant} reads a key: denied by {outcome.denied_by}")
    print(f"acme's hooks: {await names(acme)}")
    print(f"globex's hooks: {await names(globex)}")
    theirs = await globex.get(f"/v1/hooks/{made.json()['hook_id']}")
    print(f"globex asks for a hook of acme's: {theirs.status_code}")
    print(f"the operator's: {await names(operator)}")
    command = {**hook("shell", "slow", 100), "handler_ref": "command", "config": {"argv": ["/bin/sh"]}}
    print(f"acme may not run commands: {(await acme.post('/v1/hooks', json=command)).status_code}")


async def main() -> None:
    """The API in this process, with all of it in memory; `amplifier-hooks serve --api` serves it at a port."""
    registry, broker = HookRegistry(), Broker(MemoryStore())
    async with open_api(registry=registry, broker=broker, record=NoRecord(), tenant_handlers=ALLOWED) as api:
        await story(api, registry)


if __name__ == "__main__":
    asyncio.run(main())
