"""The page of agents: hooks of blueprints, and the form that overrides one of them. The API has the last word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.office import see
from tests.browser.workshop import HeldAnswer

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.browser.office import Browsers
    from tests.browser.workshop import Workshop

pytestmark = [pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session")]

START = "agents/invoice-writer:on_run_start"


async def stored_override(workshop: Workshop) -> Any:
    """Return the override of the start hook of the agent of invoices, or None."""
    overrides = await workshop.house.runs.store.overrides("invoice-writer")
    return next((one for one in overrides if one.point == "on_run_start"), None)


async def values(page: Page) -> list[str]:
    """Return the values of the form."""
    return [await field.input_value() for field in await page.locator("#agent-hook .field").all()]


@pytest.mark.rule("API-14", "RUN-24")
@pytest.mark.parametrize("width", [1280, 360])
async def test_a_hook_is_overridden_and_given_back(workshop: Workshop, visit: Browsers, width: int) -> None:
    """A user changes type, agent, failure and time limit of a hook, sees mistakes, and goes back to the file."""
    visit.expect(422)
    page = await workshop.open(visit, "agents", width=width)
    await see(page, "#agent-list", "plain")
    await see(page, "#agent-list", "no hooks")
    await see(
        page, ".bp:has-text('Start hook')", "Python function tests:checked · block the run if it fails · 300 seconds"
    )
    await see(page, ".bp:has-text('Start hook')", "As in the file")
    await page.get_by_role("button", name="Start hook").click()
    await see(page, "#agent-hook h1", "Start hook of invoice-writer")
    assert await values(page) == ["python", "block", "300"]
    await page.get_by_label("Type").select_option("Agent")
    await page.get_by_label("Time limit in seconds").fill("-1")
    await page.get_by_role("button", name="Save").click()
    await see(page, "#agent-hook .wrong", "agent_name: is no name")
    await page.get_by_label("Agent", exact=True).select_option("audit-agent")
    await page.get_by_role("button", name="Save").click()
    await see(page, "#agent-hook .wrong", "timeout_seconds: Input should be greater than 0")
    assert await values(page) == ["agent", "audit-agent", "block", "-1"]
    assert await stored_override(workshop) is None
    await page.get_by_label("Time limit in seconds").fill("60")
    await page.get_by_label("If it fails").select_option("Let the run go on")
    await page.get_by_role("button", name="Save").click()
    await see(page, ".bp:has-text('Start hook')", "Agent audit-agent · let the run go on if it fails · 60 seconds")
    await see(page, "#agent-hook", "Overridden")
    await see(page, "#agent-hook .facts-list", "mara")
    made = await stored_override(workshop)
    assert (made.agent_name, made.on_error, made.timeout_seconds, made.by) == ("audit-agent", "continue", 60.0, "mara")
    await page.get_by_role("button", name="Back to the file").click()
    await see(page, ".bp:has-text('Start hook')", "Python function tests:checked")
    await see(page, "#agent-hook", "As in the file")
    assert await values(page) == ["python", "block", "300"]
    assert await stored_override(workshop) is None
    kinds = [kind for kind in workshop.office.audit.kinds if kind.startswith("run_hook")]
    assert kinds == ["run_hook.overridden", "run_hook.restored"]
    assert await page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.rule("API-14", "RUN-24")
async def test_a_web_service(workshop: Workshop, visit: Browsers) -> None:
    """The address of a web service is checked as those of the file; an allowed one is saved."""
    visit.expect(422)
    page = await workshop.open(visit, START)
    await page.get_by_label("Type").select_option("Web service")
    await page.get_by_label("URL").fill("http://10.0.0.1/check")
    await page.get_by_role("button", name="Save").click()
    await see(page, "#agent-hook .wrong", "its scheme is 'http'; use https")
    await page.get_by_label("URL").fill("https://checks.example/invoice")
    await page.get_by_role("button", name="Save").click()
    await see(page, "#agent-list", "Web service https://checks.example/invoice")
    assert (await stored_override(workshop)).url == "https://checks.example/invoice"


@pytest.mark.rule("API-14", "RUN-24")
async def test_a_change_by_another_user(workshop: Workshop, visit: Browsers) -> None:
    """A user who has typed keeps the text when another user changes the hook, and saves over it only knowingly."""
    visit.expect(412)
    page = await workshop.open(visit, START)
    await page.get_by_label("Time limit in seconds").fill("10")
    await workshop.override(by="jun")
    await see(page, "#agent-hook .facts-list", "jun")
    assert await values(page) == ["python", "block", "10"]
    await page.get_by_role("button", name="Save").click()
    await see(page, "#agent-hook .wrong", "the hook has changed since you read it")
    assert (await stored_override(workshop)).by == "jun"
    await page.get_by_role("button", name="Save").click()
    await see(page, "#agent-hook .facts-list", "mara")
    assert ((await stored_override(workshop)).type, (await stored_override(workshop)).timeout_seconds) == (
        "python",
        10.0,
    )


@pytest.mark.rule("API-14", "RUN-24")
async def test_a_change_stays(workshop: Workshop, visit: Browsers) -> None:
    """A list that the page asked for before a change, and gets after it, does not take the change back."""
    page = await workshop.open(visit, START)
    await page.get_by_label("Type").select_option("Agent")
    await page.get_by_label("Agent", exact=True).select_option("audit-agent")
    held = HeldAnswer()
    await page.route("**/agents", held)
    await held.asked.wait()
    await page.get_by_role("button", name="Save").click()
    await see(page, "#agent-hook", "Overridden")
    await held.release()
    assert await page.locator("#agent-hook .level").inner_text() == "Overridden"
    assert await values(page) == ["agent", "audit-agent", "block", "300"]


@pytest.mark.rule("API-14", "RUN-24")
async def test_a_change_for_another_file(workshop: Workshop, visit: Browsers) -> None:
    """An override that was made for another content of the file says what it holds up, and is saved again."""
    await workshop.override(digest="another")
    page = await workshop.open(visit, START)
    await see(page, "#agent-list", "The file has changed")
    await see(page, "#agent-hook .block-reason", "No run of this agent starts until you save the change again")
    await page.get_by_role("button", name="Save").click()
    await see(page, "#agent-list", "Overridden")
    assert (await stored_override(workshop)).digest == workshop.house.runs.agents.get("invoice-writer").digest


@pytest.mark.rule("API-6", "RUN-24")
async def test_without_the_scope(workshop: Workshop, visit: Browsers) -> None:
    """A token without the scope shows no agents, and says which scope it needs."""
    visit.expect(403)
    page = await workshop.open(visit, START, secret=await workshop.secret("runs:read"))
    await see(page, "#agent-list", "this token does not have the scope runs:write")
    assert await page.locator("#agent-hook form").count() == 0
