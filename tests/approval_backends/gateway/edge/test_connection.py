"""The WebSocket protocol itself, against a gateway: a subset of the Autobahn suite, by its numbers."""

from __future__ import annotations

import struct
from typing import Final

import pytest

from tests.gateways import Caller, closed_with, gateway

pytestmark = [pytest.mark.rule("BCK-4"), pytest.mark.fault("F-WS-17")]

CONTINUED, TEXT, CLOSE, PING, PONG = 0x0, 0x1, 0x8, 0x9, 0xA
QUESTION: Final = '{"jsonrpc":"2.0","id":"ü😀","method":"_amplifier-hooks/ping"}'.encode()


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, reserved: int = 0) -> bytes:
    """Return a masked frame; the mask is all zeros, so its payload can be read."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack("!H", size)
    return bytes([opcode | reserved << 4 | (0x80 if fin else 0)]) + length + b"\0\0\0\0" + payload


def closing(code: int, reason: bytes = b"") -> bytes:
    """Return a closing frame."""
    return frame(CLOSE, struct.pack("!H", code) + reason)


BROKEN: Final = {
    "2.5 ping with 126 bytes": (frame(PING, b"x" * 126), 1002),
    **{f"3.{bits} reserved bits": (frame(TEXT, b"{}", reserved=bits), 1002) for bits in range(1, 8)},
    **{f"4.1 opcode {code}": (frame(code, b"x"), 1002) for code in range(3, 8)},
    **{f"4.2 opcode {code}": (frame(code, b"x"), 1002) for code in range(11, 16)},
    "5.1 ping in pieces": (frame(PING, b"x", fin=False) + frame(CONTINUED, b"y"), 1002),
    "5.2 pong in pieces": (frame(PONG, b"x", fin=False) + frame(CONTINUED, b"y"), 1002),
    "5.9 nothing to continue": (frame(CONTINUED, b"x"), 1002),
    "5.10 nothing to continue, not the end": (frame(CONTINUED, b"x", fin=False), 1002),
    "5.18 two beginnings": (frame(TEXT, b"{", fin=False) + frame(TEXT, b"}"), 1002),
    "6.3 no UTF-8": (frame(TEXT, b"\xce\xba\xe1\xbd\xb9\xed\xa0\x80edited"), 1007),
    "6.4 no UTF-8, in pieces": (frame(TEXT, b"\xf4", fin=False) + frame(CONTINUED, b"\x90\x80\x80"), 1007),
    "7.3.2 close with one byte": (frame(CLOSE, b"\x03"), 1002),
    "7.3.6 close with 126 bytes": (frame(CLOSE, b"\x03\xe8" + b"x" * 124), 1002),
    "7.5.1 reason that is no UTF-8": (closing(1000, b"\xed\xa0\x80"), 1007),
    **{f"7.9 code {code}": (closing(code), 1002) for code in (0, 999, 1004, 1005, 1006, 1016, 1100, 2999, 5000)},
}
CLOSED: Final = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999]


@pytest.mark.parametrize(("sent", "code"), BROKEN.values(), ids=BROKEN)
async def test_a_breach_ends_the_connection(sent: bytes, code: int) -> None:
    """A breach of the protocol ends the connection with its code."""
    async with gateway() as one, Caller(one) as caller:
        await caller.attach()
        caller.connection.transport.write(sent)
        assert await closed_with(caller) == code


@pytest.mark.parametrize("code", CLOSED)
async def test_a_close_is_answered_in_kind(code: int) -> None:
    """7.7: the gateway answers a close that has a valid code with that code."""
    async with gateway() as one, Caller(one) as caller:
        await caller.attach()
        caller.connection.transport.write(closing(code, b"bye"))
        assert await closed_with(caller) == code


PIECES: Final = {
    "1.1 whole": frame(TEXT, QUESTION),
    "5.3 two pieces": frame(TEXT, QUESTION[:9], fin=False) + frame(CONTINUED, QUESTION[9:]),
    "5.6 a ping between the pieces": frame(TEXT, QUESTION[:9], fin=False)
    + frame(PING, b"still there?")
    + frame(CONTINUED, QUESTION[9:]),
    "5.19 empty pieces": frame(TEXT, b"", fin=False) + frame(CONTINUED, QUESTION, fin=False) + frame(CONTINUED),
    "6.2 a piece for every byte": frame(TEXT, b"", fin=False)
    + b"".join(frame(CONTINUED, QUESTION[place : place + 1], fin=False) for place in range(len(QUESTION)))
    + frame(CONTINUED),
    "2.7 an unsolicited pong": frame(PONG, b"x") + frame(TEXT, QUESTION),
}


@pytest.mark.parametrize("sent", PIECES.values(), ids=PIECES)
async def test_a_message_may_come_in_pieces(sent: bytes) -> None:
    """A message is understood however it is cut, through the middle of a character and around other frames."""
    async with gateway() as one, Caller(one) as caller:
        await caller.attach()
        caller.connection.transport.write(sent)
        assert "result" in await caller.reply("ü😀")


async def test_a_ping_is_answered() -> None:
    """2.2: a ping is answered with its own payload."""
    async with gateway() as one, Caller(one) as caller:
        await caller.attach()
        answered = await caller.connection.ping(b"\x00\xff\xfe" * 40)
        await answered
