"""The approval page inside a FastAPI application: the example, driven as its users drive it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from tests.browser.office import is_off, press, see

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Page

    from tests.browser.office import Browsers

pytestmark = [pytest.mark.rule("BCK-12"), pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session")]

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "mount_in_fastapi.py"


@asynccontextmanager
async def shop() -> AsyncIterator[tuple[str, Any]]:
    """Serve the example's application; yield its address and its module."""
    spec = spec_from_file_location("mount_in_fastapi", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(module.create_app(), log_level="error", timeout_graceful_shutdown=1))
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", module
    finally:
        server.should_exit = True
        await task


async def sign_in(page: Page, address: str, name: str) -> None:
    """Sign in to the application, as its users do."""
    await page.goto(f"{address}/")
    await page.get_by_label("Name").fill(name)
    async with page.expect_navigation():  # to the address where the page is already
        await page.get_by_role("button", name="Sign in").click()


async def test_sign_in_decides_and_signs_out(visit: Browsers) -> None:
    """A visitor sees no page; a signed-in approver decides; once signed out, the page says so and shows nothing."""
    async with shop() as (address, module):
        mara, deployer = await visit.blank(), await visit.blank()
        visit.expect(401, 404)  # the application has no icon
        answer = await mara.goto(f"{address}/approvals/")
        assert answer is not None
        assert answer.status == 401
        await sign_in(mara, address, "Mara")
        await mara.goto(f"{address}/approvals")  # without its last slash
        await see(mara, "#nothing", "Nothing is waiting")
        assert await mara.inner_text("#me") == "Mara · may decide"
        await sign_in(deployer, address, "Jun")
        deploying = asyncio.create_task(deployer.get_by_role("button", name="Deploy").click())
        await see(mara, "#card", "Deploy the shop?")
        await press(mara, "Allow once")
        await see(mara, ".outcome", "You allowed this once.")
        await deploying
        await see(deployer, "body", "deployed")

        module.SIGNED_IN.clear()
        await mara.reload()
        assert "Sign in first" in await mara.inner_text("body")
        assert {one.partition("?")[0] for one in visit.sockets[-1:]} == {f"ws{address[4:]}/approvals/acp"}


async def test_signed_out_while_open(visit: Browsers) -> None:
    """A page whose approver is signed out while it is open says so when it connects again, and takes no token."""
    async with shop() as (address, module):
        page = await visit.blank()
        await sign_in(page, address, "Mara")
        await page.goto(f"{address}/approvals/")
        await see(page, "#nothing", "Nothing is waiting")
        module.SIGNED_IN.clear()
        await page.context.set_offline(True)
        await page.evaluate("dispatchEvent(new Event('offline'))")
        await page.context.set_offline(False)
        await see(page, "#gate", "You are signed out")
        assert not await page.locator("#gate-form").is_visible()


async def test_rights_follow_the_sign_in(visit: Browsers) -> None:
    """A user who may only look has no button that decides."""
    async with shop() as (address, _module):
        jun, deployer = await visit.blank(), await visit.blank()
        await sign_in(jun, address, "Jun")
        await jun.goto(f"{address}/approvals/")
        await see(jun, "#nothing", "Nothing is waiting")
        await sign_in(deployer, address, "Mara")
        deploying = asyncio.create_task(deployer.get_by_role("button", name="Deploy").click())
        await see(jun, "#card", "Deploy the shop?")
        assert await is_off(jun, "Allow once")
        await deployer.close()
        await asyncio.gather(deploying, return_exceptions=True)
