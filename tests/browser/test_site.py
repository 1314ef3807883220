"""The documents as a site: links lead somewhere, nothing is fetched from elsewhere, and axe objects to nothing."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import pytest
import zensical  # noqa: F401  # the build needs its group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.async_api import Browser

ROOT: Final = Path(__file__).parents[2]
SCRIPT: Final = ROOT / "scripts" / "site.py"
PAGES: Final = ("index.html", "docs/guide.html", "docs/guard.html", "docs/reference/amplifier_hooks.html")
LOOKS: Final[dict[str, dict[str, Any]]] = {
    "light": {"viewport": {"width": 1280, "height": 900}},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}},
}

pytestmark = [pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session")]


class Silent(SimpleHTTPRequestHandler):
    """A server of files that logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name that the base gives it
        """Log nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on loopback, and yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(folder)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of the site, built with every link checked."""
    folder = tmp_path_factory.mktemp("site") / "built"
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "--into", str(folder)], check=False, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "none of them dead" in run.stdout
    with served(folder / "html") as address:
        yield address


@pytest.mark.parametrize("look", LOOKS)
async def test_accessible(browser: Browser, site: str, look: str) -> None:
    """The start page, a guide, a page with a wide table and the reference have nothing that axe objects to."""
    from axe_playwright_python.async_playwright import Axe

    context = await browser.new_context(**LOOKS[look])
    page = await context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    found: dict[str, Any] = {}
    for name in PAGES:
        await page.goto(site + name)
        await page.wait_for_load_state("networkidle")
        results = await Axe().run(page)
        found |= {
            f"{name}: {each['id']}": [node["html"] for node in each["nodes"]] for each in results.response["violations"]
        }
        wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{name} is wider than the window by {wide} pixels"
    await context.close()
    assert found == {}
    assert [url for url in asked if not url.startswith(site)] == []


async def test_search(browser: Browser, site: str) -> None:
    """A reader finds the entry of a public name by its name, without a network."""
    page = await browser.new_page()
    await page.goto(site)
    await page.wait_for_load_state("networkidle")
    await page.keyboard.press("Control+k")
    await page.locator("input:focus").wait_for()
    await page.keyboard.type("RacingApprovals")
    await page.locator("a[href$='#racingapprovals']:visible").first.wait_for()
    await page.close()
