"""A real browser in front of a real gateway."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import pytest_asyncio

from tests.browser.office import Browsers, Office
from tests.conftest import require

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser

    from tests.browser.workshop import Workshop

FLAGS: Final = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Yield Chromium as the system has it; skip, or fail if it is required."""
    chromium = shutil.which("chromium")
    if chromium is None:
        require("chromium", "there is no chromium on PATH")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        await started.close()


@pytest_asyncio.fixture(loop_scope="session")
async def office() -> AsyncIterator[Office]:
    """A gateway with an empty store."""
    async with Office() as office:
        yield office


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser) -> AsyncIterator[Browsers]:
    """Open pages. Any complaint of a page fails the test."""
    async with AsyncExitStack() as stack:
        browsers = Browsers(browser, stack)
        yield browsers
    assert browsers.complaints == []


@pytest_asyncio.fixture(loop_scope="session")
async def workshop() -> AsyncIterator[Workshop]:
    """Yield hooks and runs to look at, with no content yet."""
    from tests.browser.workshop import Workshop

    async with Workshop() as workshop:
        yield workshop
