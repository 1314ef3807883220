"""The page of hooks: list, health, switches and dry runs. The API has the last word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.office import see
from tests.browser.workshop import HeldAnswer

if TYPE_CHECKING:
    from tests.browser.office import Browsers
    from tests.browser.workshop import Workshop

pytestmark = [pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.rule("API-14", "API-4", "DEF-1")
async def test_the_list(workshop: Workshop, visit: Browsers) -> None:
    """Hooks stand in their bands in the order they run, with event, tools, health, and the meaning of a failure."""
    await workshop.morning()
    page = await workshop.open(visit)
    for text in ("Security", "0–49 · a failure stops the action", "egress-guard", "Not asked yet"):
        await see(page, "#bands", text)
    names = await page.locator(".hk button.name").all_inner_texts()
    assert names == ["egress-guard", "protect-production", "ledger", "lint", "format-on-write"]
    await see(page, ".hk:has-text('protect-production')", "20 · tool:pre · Write|Edit")
    await see(page, ".hk:has-text('protect-production')", "Healthy · 3 answers")
    await see(page, ".hk:has-text('ledger')", "Failed 2 of 2")
    await see(page, ".hk:has-text('ledger')", "a failure is only reported")
    await see(page, ".hk:has-text('format-on-write')", "Off since")
    await page.click("text=Failing 1")
    assert await page.locator(".hk button.name").all_inner_texts() == ["ledger"]
    await page.click("text=Off 1")
    assert await page.locator(".hk button.name").all_inner_texts() == ["format-on-write"]


@pytest.mark.rule("API-14", "API-3", "API-4")
async def test_one_hook(workshop: Workshop, visit: Browsers) -> None:
    """A hook shows its definition and its last answers, and a dry run shows its answer to an example."""
    protect = await workshop.morning()
    page = await workshop.open(visit)
    await page.click("text=protect-production")
    for text in (
        "tool:pre, priority 20",
        "Write|Edit",
        "python tests.browser.workbench:protect",
        "files",
        "all, as a hook of the system",
    ):
        await see(page, "#hook .facts-list", text)
    for text in ("Denied", "config/keys.yaml holds keys", "Asked", "Change config/production.yaml?", "Let pass"):
        await see(page, "#hook .log", text)
    await page.click("text=Try it")
    await see(page, "#tried", "Would ask")
    await page.fill("textarea", '{"tool_name": "Write", "tool_input": {"file_path": "keys"}}')
    await page.click("text=Try it")
    await see(page, "#tried", "Would deny")
    await see(page, "#tried", "keys holds keys")
    await page.fill("textarea", "{")
    await page.click("text=Try it")
    await see(page, "#hook .wrong", "This is not JSON")
    assert await page.input_value("textarea") == "{"
    assert (await workshop.admin.get("/v1/hooks/stats", params={"hook_name": "protect-production"})).json()[
        "statistics"
    ][0]["runs"] == 3
    assert page.url.endswith(protect)


@pytest.mark.rule("API-14", "API-3", "DSP-11")
async def test_a_report_only_hook(workshop: Workshop, visit: Browsers) -> None:
    """The page says of a report-only hook that it stops nothing, and shows the answers it would have given."""
    await workshop.hook("protect", "protect", priority=20, report_only=True)
    await workshop.hook("broken", "fail", priority=30, report_only=True)
    await workshop.write("config/keys.yaml")
    page = await workshop.open(visit)
    await see(page, ".hk:has-text('protect')", "report-only: it stops nothing")
    await page.click("text=protect")
    await see(page, "#hook .facts-list", "report-only: it stops nothing")
    await see(page, "#hook .log", "Would have denied")
    await see(page, "#hook .log", "config/keys.yaml holds keys")
    await page.click("text=broken")
    await see(page, "#hook .log", "Would have denied")
    assert "so the action was stopped" not in await page.inner_text("#hook")


@pytest.mark.rule("API-14", "TEN-1")
async def test_switching(workshop: Workshop, visit: Browsers) -> None:
    """A switch turns a hook off at once for every client, and on again; a hook that changed meanwhile says so."""
    protect = await workshop.morning()
    page = await workshop.open(visit)
    switch = page.get_by_role("switch", name="protect-production")
    await switch.click()
    await see(page, "#polite", "protect-production is off.")
    assert (await kept(workshop, protect))["enabled"] is False
    outcome = await workshop.office.registry.emit(
        "tool:pre", {"tool_name": "Write", "tool_input": {"file_path": "keys"}, "session_id": "s"}
    )
    assert outcome.action == "continue"
    await switch.click()
    await see(page, "#polite", "protect-production is on.")
    assert (await kept(workshop, protect))["enabled"] is True


@pytest.mark.rule("API-14")
async def test_a_switch_stays(workshop: Workshop, visit: Browsers) -> None:
    """A list that the page asked for before a switch, and gets after it, does not turn the switch back."""
    await workshop.hook("look")
    page = await workshop.open(visit)
    switch = page.get_by_role("switch", name="look")
    await switch.wait_for()
    held = HeldAnswer()
    await page.route("**/v1/hooks?*", held)
    await held.asked.wait()
    await switch.click()
    await see(page, "#polite", "look is off.")
    await held.release()
    assert await switch.get_attribute("aria-checked") == "false"


@pytest.mark.rule("API-6", "API-9", "TEN-1")
async def test_tenants_and_tokens(workshop: Workshop, visit: Browsers) -> None:
    """A tenant's page shows that tenant's hooks only; a link opens it, and the token leaves the address."""
    await workshop.morning()
    secret = await workshop.secret("hooks:manage", tenant="acme")
    page = await visit.blank()
    visit.expect(403)  # this token may not read logs
    await page.goto(f"{workshop.address}/?token=x#t={secret}")
    await see(page, "#bands", "There are no hooks yet.")
    assert page.url == f"{workshop.address}/#hooks"
    assert all(secret not in url and secret not in referer for url, referer in visit.requests)
    assert {url.split("/")[2] for url, _ in visit.requests} == {workshop.address.removeprefix("http://")}


@pytest.mark.rule("API-14")
@pytest.mark.parametrize("look", ["light", "dark", "phone"])
async def test_accessible(workshop: Workshop, visit: Browsers, look: str) -> None:
    """Nothing on the pages of hooks, runs and agents has anything that axe objects to."""
    from axe_playwright_python.async_playwright import Axe

    protect = await workshop.morning()
    run, blocked = await workshop.done(), await workshop.blocked()
    await workshop.override(digest="another")
    found: dict[str, Any] = {}
    view: dict[str, Any] = {"dark": look == "dark", "width": 360 if look == "phone" else 1280}
    page = await workshop.open(visit, **view)
    for place, shown in (
        ("hooks", ".hk"),
        (f"hooks/{protect}", "#hook textarea"),
        ("runs", "#run-list .qi"),
        (f"runs/{run}", "#run .tl"),
        (f"runs/{blocked}", "#run .block-reason"),
        ("agents", "#agent-list .bp"),
        ("agents/invoice-writer:on_run_start", "#agent-hook .block-reason"),
    ):
        await page.goto(f"{workshop.address}/#{place}")
        await page.locator(shown).first.wait_for()
        results = await Axe().run(page)
        found |= {
            f"{place}: {each['id']}": [node["html"] for node in each["nodes"]]
            for each in results.response["violations"]
        }
    assert found == {}


async def kept(workshop: Workshop, hook: str) -> dict[str, Any]:
    """Return the hook as the API has it."""
    answer: dict[str, Any] = (await workshop.admin.get(f"/v1/hooks/{hook}")).json()
    return answer
