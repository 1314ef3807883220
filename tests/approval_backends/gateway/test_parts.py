"""The smaller parts of a gateway, each by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from approval_backends.broker import Broker
from approval_backends.gateway.client_session import MessageOutbox
from approval_backends.gateway.edge.message_rate_limit import MessageRateLimit
from approval_backends.gateway.gateway_record import KEPT, SESSIONS, GatewayRecord, Tails, WatchedSink
from approval_backends.gateway.page_files import TYPES, Assets
from approval_backends.gateway.waiting_requests import FOLLOWED, WaitingRequests
from approval_backends.lifecycle import Decider
from approval_backends.stores.memory import MemoryStore
from approval_backends.testing import ROBIN, MovableClock, a_request
from tests.gateways import gateway, http

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@pytest.mark.rule("BCK-4")
def test_pace() -> None:
    """A rate limit allows so many messages at once, then so many a second, and never more at once than that."""
    pace = MessageRateLimit(2.0, 3)
    assert [pace.allows(0.0) for _ in range(4)] == [True, True, True, False]
    assert [pace.allows(at) for at in (0.4, 0.5, 0.6, 1.0)] == [False, True, False, True]
    assert [pace.allows(100.0) for _ in range(4)] == [True, True, True, False]


@pytest.mark.rule("BCK-2")
async def test_outbox() -> None:
    """Messages leave in order; too many or too large together are refused, and messages made later come last."""
    later = ["made"]
    box = MessageOutbox(3, 10, lambda: later.pop() if later else None)
    assert [box.put(text) for text in ("aaaa", "bbbb", "cccc", "dd", "e")] == [True, True, False, True, False]
    assert [await box.take() for _ in range(4)] == ["aaaa", "bbbb", "dd", "made"]
    assert box.put("x" * 1_000)
    assert not box.put("y")
    assert box.take_all() == ["x" * 1_000]
    taking = asyncio.ensure_future(box.take())
    await asyncio.sleep(0)
    later.append("made now")
    box.wake()
    assert await taking == "made now"
    taking = asyncio.ensure_future(box.take())
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.wait({taking})
    assert box.put("kept")
    assert await box.take() == "kept"


@pytest.mark.rule("BCK-3", "WIR-1")
async def test_assets(tmp_path: Path) -> None:
    """Files of known types are served as they are, with a tag; anything else is not found."""
    (tmp_path / "deep").mkdir()
    files = {"index.html": "<p>", "page.js": "1", "deep/a.css": "b{}", "secret.py": "x", "deep/noext": "x"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assets = Assets(tmp_path)
    for path in ("/assets/secret.py", "/assets/deep/noext", "/assets/deep", "/assets/", "/assets/../index.html", "/x"):
        assert assets.find(path) is None
    async with gateway(assets=assets) as one:
        host = f"Host: 127.0.0.1:{one.port}"
        for path, name in {"/": "index.html", "/assets/page.js": "page.js", "/assets/deep/a.css": "deep/a.css"}.items():
            status, headers, body = await http(one.port, f"GET {path} HTTP/1.1\n{host}\n\n")
            assert (status, body.decode()) == (200, files[name])
            assert headers["content-type"] == TYPES[f".{name.rpartition('.')[2]}"]
            asking = f"GET {path} HTTP/1.1\n{host}\nIf-None-Match: {headers['etag']}\n\n"
            status, headers, body = await http(one.port, asking)
            assert (status, body, "content-length" in headers) == (304, b"", False)
        with_query = f"GET /?server=evil.example&t=token HTTP/1.1\n{host}\n\n"
        assert (await http(one.port, with_query))[2] == b"<p>"


@pytest.mark.rule("BCK-3", "WIR-1")
async def test_own_page() -> None:
    """The package brings its page, and the page names no file that is missing or on another server."""
    assets = Assets()
    page = assets.find("/")
    assert page is not None
    text = page.content.decode()
    found = [part.split('"')[0] for part in text.split('src="')[1:] + text.split('href="')[1:]]
    assert found
    assert [name for name in found if not name.startswith(("#", "data:")) and assets.find(name) is None] == []


async def kinds(waiting: WaitingRequests) -> list[tuple[str, str]]:
    """Return the new changes, each with its kind and status."""
    return [(one.kind, one.record.status) for one in await waiting.refresh()]


@pytest.mark.rule("WIR-4")
async def test_waiting() -> None:
    """Changes come once, in order, from any source; a request ends when its time is up, or when it is removed."""
    clock = MovableClock()
    store = MemoryStore(clock=clock)
    broker, waiting = Broker(store), WaitingRequests(store)
    with pytest.raises(RuntimeError, match="nothing was read"):
        _ = waiting.now
    assert waiting.pause == 5.0
    first, second = a_request(1), a_request(2)
    await broker.submit(first)
    assert await kinds(waiting) == [("added", "pending")]
    assert await kinds(waiting) == []
    assert waiting.now >= clock().wall
    await broker.decide(first.id, first.digest, "allow", ROBIN)
    await broker.submit(second)
    assert await kinds(waiting) == [("added", "pending"), ("resolved", "approved")]
    await broker.claim(first.id, first.digest)
    assert await kinds(waiting) == [("changed", "claimed")]
    assert await kinds(waiting) == []
    await broker.settle(first.id, "failed")
    assert await kinds(waiting) == [("changed", "failed")]
    assert waiting.get(second.id) is not None
    assert [record.id for record in waiting.visible_to(ROBIN)] == [second.id]
    assert list(waiting.visible_to(Decider(name="x", channel="y", tenant="other"))) == []
    await clock.advance(61)
    waiting._read -= 10  # as if time had passed here, too
    assert await kinds(waiting) == [("resolved", "expired")]
    third = a_request(3)
    await broker.submit(third)
    await waiting.refresh()
    del store._records[third.id], store._pending[third.id]
    assert await kinds(waiting) == [("resolved", "cancelled")]


@pytest.mark.rule("WIR-4")
async def test_only_the_last_are_followed() -> None:
    """The gateway follows only the last approved requests to their end, so that reading stays short."""
    store = MemoryStore()
    broker, waiting = Broker(store), WaitingRequests(store)
    for number in range(2 * FOLLOWED):
        request = a_request(number)
        await broker.submit(request)
        await waiting.refresh()
        await broker.decide(request.id, request.digest, "allow", ROBIN)
        await waiting.refresh()
    assert len(waiting._followed) == FOLLOWED
    store._records.clear()
    assert await kinds(waiting) == []
    assert not waiting._followed


class Broken:
    """A record that cannot be written."""

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Refuse."""
        raise OSError("disk full")


@pytest.mark.rule("AUD-1")
async def test_record_that_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    """A gateway's own record holds nothing back: a failed write is logged."""
    waiting = WaitingRequests(MemoryStore())
    await waiting.refresh()
    await GatewayRecord(Broken(), lambda: waiting.now).record_revocation(ROBIN, "grant-1")
    await GatewayRecord(None, lambda: waiting.now).record_revocation(ROBIN, "grant-1")
    assert "audit_unavailable kind=grant.revoked error=OSError" in caplog.text


@pytest.mark.rule("WIR-9")
async def test_tails_are_bounded() -> None:
    """A tail keeps so many lines of so many sessions, none too long; a line that was not written is not shown."""
    tails = Tails()
    before = tails.kept
    with pytest.raises(OSError, match="disk full"):
        await WatchedSink(Broken(), tails).write("x", {"session": "s-0"})
    assert (before, tails.kept) == (False, True)
    assert tails.last(ROBIN, "s-0") == []
    for number in range(SESSIONS + 1):
        tails.add("kind", {"session": f"s-{number}", "tenant": "acme", "reason": "x" * 1_000, "time": "yesterday"})
    for _ in range(KEPT + 10):
        tails.add("kind", {"session": "s-5", "tenant": "acme", "hooks": ["a", "b"]})
    tails.add("kind", {"tool": "of no session"})
    assert tails.last(ROBIN, "s-0") == []
    assert len(tails.last(ROBIN, "s-5")) == KEPT
    assert len(tails.last(ROBIN, "s-6")[0].text.encode()) <= 300
    assert tails.last(Decider(name="x", channel="y", tenant="other"), "s-5") == []
    assert tails.last(Decider(name="x", channel="y", sessions=frozenset({"s-6"})), "s-5") == []
