"""A workshop of hooks and runs: the API and its pages on a port, and content to look at."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

from amplifier_hooks.runs.blueprint import HookOverride
from amplifier_hooks.server.edge.listen import listening, loopback_socket
from amplifier_hooks.server.runs.agent_routes import agents_router
from amplifier_hooks.server.runs.run_routes import runs_router
from amplifier_hooks.testing import CollectingAudit
from tests.api import office
from tests.runs import agent, agent_hook, house, python_hook

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx2
    from playwright.async_api import Page, Route

    from tests.api import Office
    from tests.browser.office import Browsers
    from tests.runs import House

__all__ = ["ALL_SCOPES", "HeldAnswer", "Workshop"]

ALL_SCOPES: Final = ("hooks:admin", "hooks:manage", "hooks:read", "runs:read", "runs:write")
SCHEMA: Final = {"type": "object", "required": ["amount"]}


def checked(_event: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Check an invoice, as its start hook: block one that is too large, else put it in order."""
    given = data["parameters"]
    if float(given["amount"]) > 20_000:
        return {"action": "block", "block_reason": f"Amount {given['amount']} is above the limit of 20000."}
    ordered = {**given, "amount": float(given["amount"]), "customer_tier": "gold"}
    return {"action": "continue", "parameters": ordered}


class Workshop:
    """An application over stores in memory, served on a port of this machine."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self.house: House
        self.office: Office
        self.admin: httpx2.AsyncClient
        self.address = ""

    async def __aenter__(self) -> Self:
        invoices = agent(
            "invoice-writer", start=python_hook("checked"), finish=agent_hook("audit-agent"), parameters_schema=SCHEMA
        )
        enter = self._stack.enter_async_context
        self.house = await enter(house(invoices, agent("audit-agent"), agent("plain", type="autonomous")))
        self.house.functions["checked"] = checked
        record, runs = CollectingAudit(), self.house.runs
        self.office = await enter(office(record=record, routers=(runs_router(runs), agents_router(runs, record))))
        self.admin = await enter(await self.office.admin())
        listener = loopback_socket(0)
        self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        await enter(listening(self.office.api.app, listener))
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stack.aclose()

    async def secret(self, *scopes: str, tenant: str = "") -> str:
        """Return a token."""
        return (await self.office.api.tokens.create("mara", scopes=scopes or ALL_SCOPES, tenant=tenant))[1]

    async def hook(self, name: str, does: str = "look", event: str = "tool:pre", **fields: Any) -> str:
        """Put a hook of the system in force. Return its id."""
        body = {"name": name, "event_type": event, "handler_ref": f"tests.browser.workbench:{does}", **fields}
        answer = await self.admin.post("/v1/hooks", json=body)
        assert answer.status_code == 201, answer.text
        made: str = answer.json()["hook_id"]
        return made

    async def write(self, path: str, event: str = "tool:pre") -> None:
        """Report a write of an agent to the hooks."""
        given = {"file_path": path, "content": ""}
        await self.office.registry.emit(
            event, {"tool_name": "Write", "tool_call_id": "1", "tool_input": given, "session_id": "s"}
        )

    async def run(self, name: str, **parameters: Any) -> str:
        """Queue a run. Return its id."""
        return (await self.house.runs.submit(name, parameters)).id

    async def morning(self) -> str:
        """Make hooks of several bands, with answers. Return the id of the one that asks and denies."""
        await self.hook("egress-guard", priority=10, matcher="Bash|WebFetch")
        protect = await self.hook("protect-production", "protect", priority=20, matcher="Write|Edit", tags=["files"])
        await self.hook("ledger", "fail", priority=60, fail_mode="open")
        await self.hook("lint", "change", "tool:post", priority=310, matcher="Write|Edit")
        await self.hook("format-on-write", event="tool:post", priority=320, enabled=False)
        for path in ("docs/changelog.md", "config/production.yaml", "config/keys.yaml"):
            await self.write(path)
        await self.write("docs/changelog.md", "tool:post")
        return protect

    async def done(self) -> str:
        """Make a run that its start hook put in order, and that has ended, its finish hook included. Return its id."""
        run = await self.run("invoice-writer", amount="1200", currency="EUR", customer="C-2071")
        await self.house.work(invoice_writer=lambda record: {"number": 7})
        await self.house.work()
        await self.house.until(run)
        return run

    async def blocked(self) -> str:
        """Make a run that its start hook blocked. Return its id."""
        run = await self.run("invoice-writer", amount="48000", currency="EUR", customer="C-1188")
        assert await self.house.runs.claim("runner", wait=0) is None
        await self.house.until(run)
        return run

    async def override(self, **fields: Any) -> None:
        """Override the start hook of the agent of invoices, as Mara."""
        invoices = self.house.runs.agents.get("invoice-writer")
        given: dict[str, Any] = {"type": "agent", "agent_name": "audit-agent", "on_error": "block"}
        known = {"agent": invoices.name, "point": "on_run_start", "digest": invoices.digest, "timeout_seconds": 60.0}
        made = HookOverride(**{**known, **given, "by": "mara", "at": datetime.now(UTC), **fields})
        store = self.house.runs.store
        before = next((one for one in await store.overrides(invoices.name) if one.point == made.point), None)
        assert await store.replace_override(before, made)

    async def open(self, visit: Browsers, place: str = "hooks", *, secret: str | None = None, **view: Any) -> Page:
        """Open the page at this place, with this token."""
        page = await visit.blank(**view)
        token = secret or await self.secret()
        await page.add_init_script(f"if (origin !== 'null') sessionStorage.token = '{token}'")  # an empty page has none
        await page.goto(f"{self.address}/#{place}")
        await page.locator("#live:visible, #gate:visible").first.wait_for()
        return page


class HeldAnswer:
    """Holds up the answer to a page's first request, as a slow network does; a route of the page."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._again, self._released = asyncio.Event(), asyncio.Event()

    async def __call__(self, route: Route) -> None:
        """Answer the first request once it is released, with the content of now; answer all others at once."""
        if self.asked.is_set():
            self._again.set()
            await route.continue_()
            return
        answer = await route.fetch()
        self.asked.set()
        await self._released.wait()
        await route.fulfill(response=answer)

    async def release(self) -> None:
        """Send the answer, and wait until the page has taken it and asks again."""
        self._again.clear()
        self._released.set()
        await self._again.wait()
