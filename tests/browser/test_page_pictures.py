"""The pictures of the pages of hooks, runs and agents in the documents, taken of the pages as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.browser.office import see
from tests.browser.pictures import keep

if TYPE_CHECKING:
    from tests.browser.office import Browsers
    from tests.browser.workshop import Workshop

pytestmark = [pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session")]

SAME: Final = """() => {
  const fixed = [
    [/\\brun_[0-9a-f]{32}/g, "run_8842c0de88420000000000000000beef"], [/\\brun_[0-9a-f]{8}…/g, "run_8842c0de…"],
    [/ses_[0-9a-f]{16}/g, "ses_51c051c051c051c0"], [/\\d\\d:\\d\\d:\\d\\d(\\.\\d+)?/g, "14:21:03$1"],
    [/\\b[\\d.]+ (ms|s)\\b/g, "2.0 ms"]];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    for (const [pattern, same] of fixed) node.data = node.data.replace(pattern, same);
  }
}"""
"""Patterns of times, durations and ids, which differ from run to run, and their fixed texts in a picture."""

PICTURES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "hooks-light": ("hooks", {"height": 900}),
    "runs-dark": ("done", {"dark": True, "height": 900}),
    "runs-blocked": ("blocked", {}),
    "agents-light": ("agents", {"height": 700}),
    "runs-phone": ("done", {"width": 360, "height": 740}),
}


@pytest.mark.rule("API-14", "RUN-13")
@pytest.mark.parametrize("name", PICTURES)
async def test_pictures(workshop: Workshop, visit: Browsers, name: str) -> None:
    """Each picture shows the page of this version; a new one is kept when it shows something else."""
    kind, view = PICTURES[name]
    if kind == "hooks":
        place = f"hooks/{await workshop.morning()}"
    elif kind == "agents":
        await workshop.override()
        place = "agents/invoice-writer:on_run_start"
    else:
        place = f"runs/{await (workshop.done() if kind == 'done' else workshop.blocked())}"
    page = await workshop.open(visit, place, **view)
    if kind == "hooks":
        await see(page, "#hook .log", "Denied")
        await page.click("text=Try it")
        await see(page, "#tried", "Would ask")
    elif kind == "agents":
        await see(page, "#agent-hook", "Back to the file")
    else:
        await see(page, "#run", "Parameters")
    await page.evaluate(SAME)
    await keep(page, name, within=0.02)
