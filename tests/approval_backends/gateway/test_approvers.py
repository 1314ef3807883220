"""Admission of connections: by the gate itself, and by a gateway that receives headers as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from approval_backends.broker import Broker
from approval_backends.gateway.approvers import Approver, Gate, TurnedAway, new_token
from approval_backends.gateway.gateway import Gateway
from approval_backends.stores.memory import MemoryStore
from tests.gateways import MARA, gateway, http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HERE = "127.0.0.1:8000"


@pytest.fixture
async def one() -> AsyncIterator[Gateway]:
    """A gateway."""
    async with gateway() as there:
        yield there


def upgrade(*lines: str) -> str:
    """Return a WebSocket handshake with these headers."""
    head = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    return "\n".join(["GET /acp HTTP/1.1", *head, "Sec-WebSocket-Version: 13", *lines, "", ""])


@pytest.mark.rule("BCK-4", "WIR-1")
@pytest.mark.fault("F-WS-01")
async def test_origin(one: Gateway) -> None:
    """Other sites and no site at all are refused, programs need a token, and the page itself may come without."""
    host, bearer = f"Host: 127.0.0.1:{one.port}", f"Authorization: Bearer {MARA.token}"
    answers = {
        "Origin: https://evil.example": 403,
        "Origin: null": 403,
        f"Origin: http://127.0.0.1:{one.port + 1}": 403,
        f"Origin: https://evil.example\nOrigin: http://127.0.0.1:{one.port}": 403,
        f"Origin: http://127.0.0.1:{one.port}\nOrigin: https://evil.example": 403,
        "": 401,
        "Authorization: Bearer wrong": 401,
        f"Authorization: Basic {MARA.token}": 401,
        f"{bearer}\n{bearer}": 401,
        f"Origin: https://evil.example\n{bearer}": 403,
        bearer: 101,
        f"Origin: http://127.0.0.1:{one.port}": 101,
        f"Origin: http://localhost:{one.port}\n{bearer}": 101,
    }
    for headers, status in answers.items():
        found, sent, _body = await http(one.port, upgrade(host, *headers.split("\n") if headers else ()))
        assert (headers, found) == (headers, status)
        assert "access-control-allow-origin" not in sent


@pytest.mark.rule("BCK-4", "WIR-1")
@pytest.mark.fault("F-WS-02")
async def test_host(one: Gateway) -> None:
    """A foreign, missing or second name is refused before anything else is looked at, token or not."""
    bearer, here = f"Authorization: Bearer {MARA.token}", f"Host: 127.0.0.1:{one.port}"
    rebound = f"rebound.example:{one.port}"
    for headers in (
        [f"Host: {rebound}", f"Origin: http://{rebound}"],
        [],
        [here, here],
        [here, f"Host: {rebound}"],
        ["Host: 127.0.0.1"],
        [f"Host: 127.0.0.1:{one.port}.evil.example"],
        ["Host: "],
    ):
        assert (await http(one.port, upgrade(bearer, *headers)))[0] == 421
        assert (await http(one.port, "\n".join(["GET / HTTP/1.1", *headers, "", ""])))[0] == 421
    assert (await http(one.port, upgrade(bearer, f"Host: LOCALHOST:{one.port}")))[0] == 101


@pytest.mark.rule("BCK-4", "WIR-1")
@pytest.mark.fault("F-WS-03", "F-WS-14", "F-WS-15")
async def test_plain_http(one: Gateway) -> None:
    """One gate also stands before the page, nothing but GET is served, and no GET changes anything."""
    host = f"Host: 127.0.0.1:{one.port}"
    answers = {
        ("GET /", "Origin: https://evil.example"): 403,
        ("GET /assets/page.js", "Origin: null"): 403,
        ("GET /acp", f"Authorization: Bearer {MARA.token}"): 426,
        ("GET /acp", ""): 401,
        ("GET /_amplifier-hooks/decide?optionId=allow", ""): 404,
        (f"GET /acp?token={MARA.token}", ""): 401,
        ("GET /assets/../gateway.py", ""): 404,
        ("GET /assets/%2e%2e/gateway.py", ""): 404,
        ("GET /assets//etc/passwd", ""): 404,
        ("GET /assets/.hidden", ""): 404,
        ("GET //evil.example/", ""): 404,
    }
    for (line, header), status in answers.items():
        text = "\n".join([f"{line} HTTP/1.1", host, *([header] if header else []), "", ""])
        found, sent, body = await http(one.port, text)
        assert (line, found) == (line, status)
        if status != 426:  # that response is the library's
            assert sent["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")
            assert "frame-ancestors 'none'" in sent["content-security-policy"]
            assert sent["x-content-type-options"] == "nosniff"
            assert sent["referrer-policy"] == "no-referrer"
        assert MARA.token.encode() not in body
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        text = f"{method} / HTTP/1.1\n{host}\nContent-Type: text/plain\nContent-Length: 2\n\n{{}}"
        assert (await http(one.port, text))[0] in (0, 400, 405)  # before websockets 17 there is not even an answer


@pytest.mark.rule("BCK-4")
def test_gate() -> None:
    """Names are compared whatever their case, and those of a proxy in front count with either scheme."""
    gate = Gate([MARA], ["approvals.example.com", HERE])
    assert gate.admit("/", ["Approvals.Example.com"], ["https://approvals.example.com"], [], 0) is None
    assert gate.admit("/acp", [HERE], [], [f"bearer {MARA.token}"], 0) == MARA.decider
    assert isinstance(gate.admit("/acp", [HERE], [], [], 0), TurnedAway)


@pytest.mark.rule("BCK-4", "WIR-1")
@pytest.mark.fault("F-WS-05")
def test_wrong_tokens_are_bounded() -> None:
    """Of ten thousand wrong tokens nearly all are told to wait, and a right one still counts at once."""
    gate = Gate([MARA], [HERE])
    told = [gate.admit("/acp", [HERE], [], [f"Bearer {number}"], number / 1_000) for number in range(10_000)]
    statuses = [one.status for one in told if isinstance(one, TurnedAway)]
    assert (statuses.count(401), statuses.count(429)) == (23, 9_977)
    assert gate.admit("/acp", [HERE], [], [f"Bearer {MARA.token}"], 10) == MARA.decider
    assert isinstance(gate.admit("/acp", [HERE], [], ["Bearer x"], 100), TurnedAway)


@pytest.mark.rule("BCK-4")
def test_tokens() -> None:
    """A token is long, random, belongs to one approver, and cannot be seen."""
    assert len({new_token() for _ in range(100)}) == 100
    assert len(new_token()) >= 43
    kim = Approver(name="Kim")
    assert Gate([MARA, kim], []).decider_of(kim.token) == kim.decider
    assert Gate([MARA, kim], []).decider_of(kim.token[:-1]) is None
    assert Gate([MARA], []).decider_of("\ud800") is None
    assert kim.token not in repr(kim)
    with pytest.raises(ValueError, match="shorter than 32"):
        Approver(name="Kim", token="hunter2")


@pytest.mark.rule("BCK-4")
async def test_loopback_only() -> None:
    """The gateway refuses an address that others can reach unless it gets names; the default is loopback."""
    for host in ("0.0.0.0", "192.0.2.1", "::", "example.com"):
        with pytest.raises(ValueError, match="others can reach"):
            Gateway(Broker(MemoryStore()), host=host)
    assert Gateway(Broker(MemoryStore()), host="0.0.0.0", names=["approvals.example.com"]).approvers
    async with gateway() as one:
        assert one.address.startswith("http://127.0.0.1:")
        assert one.link() == f"{one.address}#t={MARA.token}"
