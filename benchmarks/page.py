"""The weight of the approval page, and the time to its first paint with an empty queue and with a long one.

In Chromium, each time in a fresh profile. *First paint* is the browser's own figure, *queue shown* the moment at which
the frame with the queue is on screen. Without Chromium or Playwright only the weight is measured.
"""

from __future__ import annotations

import asyncio
import gzip
import shutil
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.act import Act, freeze
from amplifier_hooks.ports import ApprovalRequest, Option, Question
from approval_backends.broker import Broker
from approval_backends.gateway.gateway import Gateway
from approval_backends.stores.approval_store import OpenRequestLimits
from approval_backends.stores.memory import MemoryStore
from benchmarks.options import parser
from benchmarks.rounds import Effort, Samples, Timed, measure
from benchmarks.table import VERDICT, Report, number, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playwright.async_api import Browser

MANY: Final = 500
AT_MOST: Final = 2.0
HEAVIEST: Final = 60.0
KILOBYTE: Final = 1024
FLAGS: Final = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
SENT: Final = (".html", ".css", ".js")

PAINTED: Final = """() => new Promise((done) => {
  const look = () => {
    const [shown] = performance.getEntriesByName("shown");
    const [first] = performance.getEntriesByName("first-contentful-paint");
    if (shown && first) done([first.startTime, shown.startTime]);
    else requestAnimationFrame(look);
  };
  look();
})"""


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    chosen = parser("page", __doc__).parse_args(arguments)
    report = Report("page", ("websockets",))
    report.table(["", "KB", "target", "verdict"], list(weights()))
    samples = asyncio.run(paints(Effort(rounds=2 if chosen.quick else 21, seconds=0)))
    if samples is None:
        report.text("Neither Chromium nor Playwright: painting was not measured.")
    else:
        rows = []
        for what in ("first paint", "queue shown"):
            none, many = samples[what, 0], samples[what, MANY]
            figures = [number(each.usual / 1e3) for each in (none, many)]
            rows.append([what, *figures, number(many.ratio(none)), *verdict(many.ratio(none), AT_MOST)])
        report.table(["ms, median", "none waits", f"{MANY} wait", "ratio", *VERDICT], rows)
    report.finish(write=chosen.write)


def weights() -> list[list[str]]:
    """All files of the page, as they are and as they are sent."""
    found = [file.read_bytes() for file in files("approval_backends.web").iterdir() if file.name.endswith(SENT)]
    sent = sum(len(gzip.compress(body)) for body in found) / KILOBYTE
    plain = sum(map(len, found)) / KILOBYTE
    return [["as sent, gzip", number(sent), *verdict(sent, HEAVIEST)], ["as written", number(plain), "", ""]]


async def paints(effort: Effort) -> dict[tuple[str, int], Samples] | None:
    """Both moments for both queues; None without a browser."""
    chromium = shutil.which("chromium")
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        return None
    if chromium is None:
        return None
    shown: dict[int, Samples] = {0: Samples(), MANY: Samples()}
    async with AsyncExitStack() as stack:
        playwright = await stack.enter_async_context(async_playwright())
        browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        stack.push_async_callback(browser.close)
        subjects = {}
        for count, samples in shown.items():
            gateway = await stack.enter_async_context(await waiting(count))
            subjects[str(count)] = opening(browser, gateway, samples)
        first = await measure(subjects, effort, number=1)
    for samples in shown.values():
        del samples.seconds[0]  # the round that is thrown away
    return {("first paint", count): first[str(count)] for count in shown} | {
        ("queue shown", count): samples for count, samples in shown.items()
    }


async def waiting(count: int) -> Gateway:
    """A gateway, not started yet, behind which so many requests wait."""
    broker = Broker(MemoryStore(OpenRequestLimits(per_session=count, per_tenant=count)))
    for one in range(count):
        await broker.submit(a_request(one))
    return Gateway(broker)


def a_request(one: int) -> ApprovalRequest:
    """A request to run a command."""
    now = datetime.now(UTC)
    arguments = {"command": f"make target-{one}"}
    act = Act("", "release", "tool:pre", "Bash", "~/shop", freeze(arguments))
    return ApprovalRequest(
        id=f"request-{one}",
        tenant="",
        session="release",
        agent=f"coder › helper-{one % 7}",  # noqa: RUF001  # what a sub-agent's path is written with
        event="tool:pre",
        tool="Bash",
        arguments=arguments,
        digest=act.digest,
        questions=(Question(hook="guard", prompt="Go on?"),),
        options=(
            Option(id="yes", label="Allow once", kind="allow_once"),
            Option(id="no", label="Deny", kind="reject_once"),
        ),
        default="deny",
        created=now,
        expires=now + timedelta(hours=1),
        cwd="~/shop",
    )


def opening(browser: Browser, gateway: Gateway, shown: Samples) -> Timed:
    """Opens the page in a new profile; returns when it was first painted, and notes when the queue was."""

    async def timed(_number: int) -> float:
        context = await browser.new_context(viewport={"width": 1280, "height": 800})
        page = await context.new_page()
        await page.goto(gateway.link())
        moments: list[Any] = await page.evaluate(PAINTED)
        await context.close()
        shown.seconds.append(moments[1] / 1e3)
        return float(moments[0]) / 1e3

    return timed
