"""The approvers' office: a gateway over a store whose clock is moved by hand, and the browsers in front of it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from amplifier_hooks.act import Act, freeze
from amplifier_hooks.ports import ApprovalRequest, Option, Question
from approval_backends.broker import Broker
from approval_backends.gateway.approvers import Approver
from approval_backends.gateway.gateway import Gateway
from approval_backends.gateway.rpc_methods import Tails
from approval_backends.lifecycle import Decider
from approval_backends.stores.approval_store import OpenRequestLimits
from approval_backends.stores.memory import MemoryStore
from approval_backends.testing import MovableClock

if TYPE_CHECKING:
    from contextlib import AsyncExitStack
    from datetime import datetime

    from playwright.async_api import Browser, Locator, Page, Request, WebSocket

    from approval_backends.lifecycle import RequestRecord

__all__ = [
    "ALLOW",
    "ALWAYS",
    "DENY",
    "SOON",
    "Browsers",
    "Office",
    "button",
    "go",
    "go_on",
    "is_off",
    "press",
    "see",
    "spot",
    "still",
    "titled",
]

ALLOW: Final = Option(id="once", label="Allow once", kind="allow_once")
ALWAYS: Final = Option(id="always", label="Allow always", kind="allow_always")
DENY: Final = Option(id="no", label="Deny", kind="reject_once")

SOON: Final = 60_000
"""Milliseconds. Only a broken page takes that long."""

HOLD: Final = """(() => {
  const later = setTimeout;
  window.endings = [];
  window.setTimeout = (work, wait, ...rest) => (wait === 1500 ? endings.push(work) : later(work, wait, ...rest));
})()"""
"""Holds up the next request until `go_on`: on a slow machine, the end of a request would be gone before it was read."""


class Office:
    """A gateway and the store behind it. Mara and Jun may decide, Ines may look."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.store = MemoryStore(OpenRequestLimits(per_session=1_000, per_tenant=1_000), clock=self.clock)
        self.broker = Broker(self.store)
        self.people = {
            "Mara": Approver(name="Mara"),
            "Jun": Approver(name="Jun"),
            "Ines": Approver(name="Ines", may_decide=False),
        }
        self.tails = Tails()
        self.gateway = self._gateway(0)

    async def __aenter__(self) -> Self:
        await self.broker.__aenter__()
        await self.gateway.open()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.gateway.close()
        await self.store.close()

    def _gateway(self, port: int) -> Gateway:
        return Gateway(self.broker, self.people.values(), port=port, tails=self.tails)

    @property
    def address(self) -> str:
        """The address of the page, without its last slash."""
        return self.gateway.address.rstrip("/")

    async def stop(self) -> None:
        """Stop the gateway; every client is disconnected."""
        await self.gateway.close()

    async def restart(self) -> None:
        """Start a new gateway at the address of the old one."""
        await self.gateway.close()
        self.gateway = self._gateway(self.gateway.port)
        await self.gateway.open()

    async def submit(self, name: str = "r1", /, **changes: Any) -> RequestRecord:
        """Submit a request, as an agent's session would; the next request comes a little later."""
        record = await self.broker.submit(self.request(name, **changes))
        await self.clock.advance(0.001)
        return record

    def request(self, name: str, /, **changes: Any) -> ApprovalRequest:
        """Return a request to run a command; `changes` are its fields, and `seconds` how long it waits."""
        created = self.clock().wall
        fields: dict[str, Any] = {
            "tenant": "",
            "session": "release",
            "agent": "coder",
            "event": "tool:pre",
            "tool": "Bash",
            "arguments": {"command": f"make {name}"},
            "questions": (Question(hook="guard", prompt="Go on?", version="2"),),
            "options": (ALLOW, ALWAYS, DENY),
            "default": "deny",
            "cwd": "~/shop",
        } | changes
        lifetime = timedelta(seconds=fields.pop("seconds", 300))
        frozen = freeze(dict(fields["arguments"]))
        act = Act(fields["tenant"], fields["session"], fields["event"], fields["tool"], fields["cwd"], frozen)
        return ApprovalRequest(id=name, digest=act.digest, created=created, expires=created + lifetime, **fields)

    async def record(self, name: str = "r1") -> RequestRecord:
        """Return the store's record of a request."""
        record = await self.store.get(name)
        assert record is not None
        return record

    async def decide(self, name: str, option: Option, by: str = "Jun", **said: Any) -> None:
        """Answer a request, as an approver in the terminal does."""
        record = await self.record(name)
        decider = Decider(name=by, channel="terminal")
        assert (await self.broker.decide(name, record.request.digest, option.id, decider, **said)).accepted


class Browsers:
    """Opens pages, each in a profile of its own, and keeps their complaints and the addresses they call."""

    def __init__(self, browser: Browser, stack: AsyncExitStack) -> None:
        self._browser = browser
        self._stack = stack
        self._expected: set[int] = set()
        self.complaints: list[str] = []
        self.requests: list[tuple[str, str]] = []
        self.sockets: list[str] = []

    async def __call__(
        self,
        office: Office,
        who: str = "Mara",
        *,
        width: int = 1280,
        height: int = 800,
        dark: bool = False,
        query: str = "",
        token: str | None = None,
        clock: bool = False,
        now: datetime | None = None,
        script: str = "",
    ) -> Page:
        """Return the page of one person, once it is connected and shows its content."""
        page = await self.blank(width=width, height=height, dark=dark)
        if clock:
            await page.clock.install()
        await page.add_init_script(HOLD)
        if now is not None:
            await page.clock.set_fixed_time(now)
        if script:
            await page.add_init_script(script)
        secret = office.people[who].token if token is None else token
        await page.goto(f"{office.address}/{query}#t={secret}")
        await page.locator("#live:visible, #gate:visible").wait_for()
        await page.locator("#nothing:visible, .seg button:visible, #gate:visible").first.wait_for()
        return page

    async def blank(self, *, width: int = 1280, height: int = 800, dark: bool = False) -> Page:
        """Return an empty page."""
        context = await self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            timezone_id="UTC",
            reduced_motion="reduce",
        )
        self._stack.push_async_callback(context.close)
        context.set_default_timeout(SOON)
        page = await context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda message: self._note_console(message.type, message.text))
        page.on("request", self._asked)
        page.on("websocket", self._opened)
        return page

    def expect(self, *statuses: int) -> None:
        """Expect error responses, each of which a browser reports: a page that looks again and again gets many."""
        self._expected.update(statuses)

    def _note_console(self, kind: str, text: str) -> None:
        # A connection that fails while the gateway is stopped is no fault of the page's.
        if kind not in ("error", "warning") or re.search(r"WebSocket connection .* failed", text):
            return
        status = re.search(r"responded with a status of (\d+)", text)
        if status is None or int(status[1]) not in self._expected:
            self.complaints.append(text)

    def _asked(self, request: Request) -> None:
        self.requests.append((request.url, request.headers.get("referer", "")))

    def _opened(self, socket: WebSocket) -> None:
        self.sockets.append(socket.url)


async def see(page: Page, selector: str, text: str) -> None:
    """Wait until this text can be seen."""
    from playwright.async_api import expect

    await expect(page.locator(selector).locator("visible=true").first).to_contain_text(text, timeout=SOON)


async def titled(page: Page, text: str) -> None:
    """Wait until the page has this title, which says how many requests wait."""
    from playwright.async_api import expect

    await expect(page).to_have_title(text, timeout=SOON)


async def go(page: Page, place: str) -> None:
    """Go to a place by its two keys, of which the second counts within a second."""
    spot = page.locator(f"#{place}")
    for _ in range(10):
        await page.keyboard.press("g")
        await page.keyboard.press(place[0])
        if await spot.is_visible():
            break
    await spot.wait_for()


async def go_on(page: Page) -> None:
    """Let the time pass for which the page shows the end of a request before the next one comes."""
    await page.evaluate("() => { for (const work of endings.splice(0)) work(); }")


async def still(page: Page) -> None:
    """Wait until the card has been on screen long enough to be answered."""
    await page.locator("#card .seg button").first.wait_for(state="attached")  # it comes with the half second
    await page.locator("#card .decide.arming").wait_for(state="detached")


def button(page: Page, name: str) -> Locator:
    """Return a button that can be pressed."""
    return page.get_by_role("button", name=name, exact=True).locator("visible=true").first


async def is_off(page: Page, name: str) -> bool:
    """Return True if this button would do nothing."""
    return bool(await button(page, name).is_disabled())


async def spot(page: Page, name: str) -> tuple[float, float]:
    """Return the position of this button, once a press would count."""
    from playwright.async_api import expect

    await expect(button(page, name)).to_be_enabled(timeout=SOON)
    await still(page)
    box = await button(page, name).bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


async def press(page: Page, name: str) -> None:
    """Press a button, as a person would: once the card has been still."""
    from playwright.async_api import expect

    await expect(button(page, name)).to_be_enabled(timeout=SOON)
    await still(page)
    await button(page, name).click()
