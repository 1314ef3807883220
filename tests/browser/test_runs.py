"""The page of runs, looked at in a browser while a coordinator works."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.office import SOON, see
from tests.browser.workshop import HeldAnswer

if TYPE_CHECKING:
    from tests.browser.office import Browsers
    from tests.browser.workshop import Workshop

pytestmark = [pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.rule("RUN-6", "RUN-13")
async def test_a_run_from_the_queue_to_its_end(workshop: Workshop, visit: Browsers) -> None:
    """The list shows a run as it moves; the run shows its timeline, both parameters, its result and its child."""
    run = await workshop.run("invoice-writer", amount="1200", currency="EUR")
    page = await workshop.open(visit, "runs")
    await see(page, "#run-list", "invoice-writer")
    await see(page, "#run-list", "queued")
    await workshop.house.work(invoice_writer=lambda record: {"number": 7})
    await workshop.house.work()
    await workshop.house.until(run)
    await see(page, "#run-list", "2 parameters changed by a hook")
    await page.click(f'a[data-focus="{run}"]')
    for text in (
        *("Completed", "from queue to end", "Start hook done", "python tests:checked", "continue", "Ran"),
        *("Finish hook done", "agent audit-agent", "1 changed · 1 added", '"amount": "1200"', '"amount": 1200'),
        *('"customer_tier": "gold"', '"number": 7', "Started from here"),
    ):
        await see(page, "#run", text)
    await page.click("#run ol.sheet a")
    await see(page, "#run", "Started by")
    await see(page, "#run h1", "audit-agent")


@pytest.mark.rule("RUN-6", "RUN-9", "RUN-13")
async def test_a_blocked_run(workshop: Workshop, visit: Browsers) -> None:
    """A blocked run says why first, by which hook, that no runner had it, and that nothing was changed."""
    run = await workshop.run("invoice-writer", amount="48000")
    await workshop.run("plain")
    assert await workshop.house.work(plain=lambda record: "done") is not None
    await workshop.house.until(run)
    page = await workshop.open(visit, f"runs/{run}")
    for text in (
        *("Blocked before it ran", "no runner was used", "Amount 48000 is above the limit of 20000."),
        *("Said by start hook tests:checked. The agent was never given to a runner.", "Start hook blocked"),
        "as sent; nothing was changed",
    ):
        await see(page, "#run", text)
    await see(page, "#run-list", "plain")
    await page.click("text=Blocked >> nth=0")
    await page.locator("#run-list li:has-text('plain')").wait_for(state="detached")
    await see(page, "#run-list", "Blocked before it ran")


@pytest.mark.rule("RUN-13")
async def test_a_list_that_comes_late(workshop: Workshop, visit: Browsers) -> None:
    """The page says that there are no runs once it knows, and a list of all runs does not replace a chosen one."""
    page = await workshop.open(visit)
    first, later = HeldAnswer(), HeldAnswer()
    await page.route("**/runs?*", first)
    await page.goto(f"{workshop.address}/#runs")
    await first.asked.wait()
    assert "No runs." not in await page.inner_text("#runs")
    await first.release()
    await see(page, "#run-list", "No runs.")
    await workshop.run("plain")
    await see(page, "#run-list", "plain")
    await page.route("**/runs?*", later)
    await later.asked.wait()
    await page.click("text=Blocked")
    await see(page, "#run-list", "No runs.")
    await later.release()
    assert "plain" not in await page.inner_text("#run-list")


@pytest.mark.rule("API-14")
async def test_hostile_words(workshop: Workshop, visit: Browsers) -> None:
    """Texts of an agent or a caller stay text: no markup, and nothing invisible."""
    run = await workshop.run("plain", note="<img src=x onerror=alert(1)>\u202egnp.exe\u0007")
    await workshop.house.work(plain=lambda record: "done\u202e <b>bold</b>")
    page = await workshop.open(visit, f"runs/{run}")
    await see(page, "#run", "<img src=x onerror=alert(1)>")
    await see(page, "#run", "\\u{202E}")
    assert await page.locator("#run img, #run b:text('bold')").count() == 0


@pytest.mark.rule("RUN-13", "API-6")
async def test_without_a_token_nothing_is_shown(workshop: Workshop, visit: Browsers) -> None:
    """An unknown token opens nothing, and one without the scope says so; another tenant's runs are not there."""
    from playwright.async_api import expect

    run = await workshop.run("plain")
    visit.expect(401, 403, 404)
    page = await workshop.open(visit, "runs", secret="ahk_nobody")
    await see(page, "#gate", "The server does not know this token.")
    page = await workshop.open(visit, "runs", secret=await workshop.secret("hooks:read"))
    await see(page, "#run-list", "this token does not have the scope runs:read")
    page = await workshop.open(visit, f"runs/{run}", secret=await workshop.secret("runs:read", tenant="acme"))
    await expect(page).to_have_url(f"{workshop.address}/#runs", timeout=SOON)  # there is no such run
    await see(page, "#run-list", "No runs.")
