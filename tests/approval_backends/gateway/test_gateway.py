"""A gateway and its clients: the queue, the card, deciding, grants, history, the tail."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any, Final

import pytest

from approval_backends.broker import Broker
from approval_backends.gateway.approvers import Approver
from approval_backends.gateway.gateway import Gateway
from approval_backends.lifecycle import Decider
from approval_backends.stores.memory import MemoryStore
from approval_backends.testing import MovableClock, a_request
from tests.gateways import MARA, WATCHER, Caller, asked, closed_with, gateway, served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping


@pytest.fixture
async def one() -> AsyncIterator[Gateway]:
    """A gateway."""
    async with gateway() as there:
        yield there


def ids(rows: list[dict[str, Any]]) -> list[str]:
    """Return the requests of these rows."""
    return [row["requestId"] for row in rows]


@pytest.mark.rule("BCK-2")
@pytest.mark.rule("WIR-2", "WIR-4", "WIR-6")
async def test_whole_way(one: Gateway) -> None:
    """A client attaches, sees the waiting requests, looks at one, decides, and hears the result, as others do."""
    first, second = asked(1), asked(2)
    await served(one).submit(first)
    async with Caller(one) as mara, Caller(one, WATCHER) as ines:
        queue = await mara.attach()
        assert queue["you"] == {"name": "Mara", "channel": "web", "mayDecide": True}
        assert ids(queue["queue"]) == [first.id]
        assert not (await ines.attach())["you"]["mayDecide"]
        await served(one).submit(second)
        for caller in (mara, ines):
            assert (await caller.note("added"))["row"]["requestId"] == second.id
        card = await mara.call("show", requestId=first.id)
        assert card["row"]["digest"] == first.digest
        waiter = asyncio.ensure_future(served(one).wait(first.id))
        answer = await mara.decide(first, "deny", message="not today")
        assert answer["accepted"]
        assert (answer["ending"]["by"], answer["ending"]["message"]) == ("Mara", "not today")
        for caller in (mara, ines):
            told = await caller.note("resolved")
            assert (told["requestId"], told["ending"]["status"]) == (first.id, "denied")
        record = await waiter
        assert record.decision is not None
        assert (record.decision.by, record.decision.channel, record.decision.message) == ("Mara", "web", "not today")
        assert ids((await mara.call("attach"))["queue"]) == [second.id]


@pytest.mark.rule("BCK-2")
@pytest.mark.rule("WIR-2", "BCK-4")
async def test_token_as_first_message(one: Gateway) -> None:
    """The page connects without a token and sends it; until then it receives nothing."""
    await served(one).submit(asked())
    origin = one.address.rstrip("/")
    async with Caller(one, None, origin=origin) as page:
        assert (await page.ask("_amplifier-hooks/attach"))["error"]["code"] == -32000
        await page.greet()
        for method in ("_amplifier-hooks/attach", "_amplifier-hooks/ping", "session/list", "no/method"):
            assert (await page.ask(method))["error"]["code"] == -32000
        assert not page.heard
        meta = {"amplifier-hooks": {"token": MARA.token}}
        assert (await page.ask("authenticate", methodId="token", _meta=meta))["result"] == {}
        assert len((await page.call("attach"))["queue"]) == 1
        assert (await page.ask("authenticate", methodId="token", _meta=meta))["result"] == {}
        other = {"amplifier-hooks": {"token": WATCHER.token}}
        assert (await page.ask("authenticate", methodId="token", _meta=other))["error"]["code"] == -32600
        assert (await page.ask("initialize", protocolVersion=1))["error"]["code"] == -32600


@pytest.mark.rule("BCK-2")
@pytest.mark.rule("WIR-4")
@pytest.mark.fault("F-WS-10")
async def test_replay(one: Gateway) -> None:
    """However often a client connects, each pending request is listed once, oldest first, and none is missing."""
    requests = [asked(number) for number in range(12)]
    for number, request in enumerate(requests):
        await served(one).submit(request)
        async with Caller(one) as caller:
            assert ids((await caller.attach())["queue"]) == [earlier.id for earlier in requests[: number + 1]]
            await caller.call("ping")
            assert not caller.heard


@pytest.mark.rule("BCK-2")
@pytest.mark.rule("APR-6", "WIR-6")
@pytest.mark.fault("F-WS-11")
async def test_two_decide_at_once(one: Gateway) -> None:
    """Of two approvers who answer together one wins, and the other reads who did and what."""
    for number in range(20):
        request = asked(number)
        await served(one).submit(request)
        async with Caller(one) as mara, Caller(one) as other:
            await asyncio.gather(mara.attach(), other.attach())
            answers = await asyncio.gather(mara.decide(request, "allow"), other.decide(request, "deny"))
        assert sorted(answer["accepted"] for answer in answers) == [False, True]
        winner, loser = sorted(answers, key=lambda answer: not answer["accepted"])
        assert loser["refusal"]["code"] == "already_resolved"
        assert loser["ending"] == winner["ending"]


@pytest.mark.rule("BCK-2")
@pytest.mark.rule("APR-6", "WIR-6")
async def test_same_decision_twice(one: Gateway) -> None:
    """A decision whose confirmation was lost can be sent again."""
    request = asked()
    await served(one).submit(request)
    async with Caller(one) as mara:
        await mara.attach()
        answers = [await mara.decide(request, "allow", decisionId="the-same-one") for _ in range(2)]
        assert [answer["accepted"] for answer in answers] == [True, True]


class Book:
    """A record in memory."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, Mapping[str, Any]]] = []

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Keep one more line."""
        self.lines.append((kind, facts))


@pytest.mark.rule("BCK-2")
@pytest.mark.rule("APR-6", "AUD-1", "BCK-4", "WIR-6")
@pytest.mark.fault("F-WS-12")
async def test_answers_that_do_not_count() -> None:
    """Late, foreign, forged and unoffered answers are refused, told apart, and put on the gateway's own record."""
    book = Book()
    bounded = Approver(name="Kim", tenant="other")
    clock = MovableClock()
    broker = Broker(MemoryStore(clock=clock))
    request, over = a_request(1), a_request(2)
    async with gateway(broker, approvers=[MARA, WATCHER, bounded], audit=book) as one:
        await broker.submit(request)
        await broker.submit(over)
        codes = []
        async with Caller(one) as mara, Caller(one, WATCHER) as ines, Caller(one, bounded) as kim:
            for caller in (mara, ines, kim):
                await caller.attach()
            codes.append((await ines.decide(request, "allow"))["refusal"]["code"])
            codes.append((await kim.decide(request, "allow"))["refusal"]["code"])
            codes.append((await mara.decide(request, "allow", digest="0" * 64))["refusal"]["code"])
            codes.append((await mara.decide(request, "maybe"))["refusal"]["code"])
            codes.append((await mara.decide(request, "allow", requestId="guessed"))["refusal"]["code"])
            assert (await mara.call("show", requestId=request.id))["status"] == "pending"
            assert (await mara.decide(request, "allow"))["accepted"]
            codes.append((await mara.decide(request, "deny"))["refusal"]["code"])
            await clock.advance(61)
            late = await mara.decide(over, "allow")
            codes.append(late["refusal"]["code"])
            assert late["ending"]["status"] == "expired"
            bad = await mara.ask(
                "_amplifier-hooks/decide",
                requestId=over.id,
                digest=over.digest,
                optionId="allow",
                decisionId="12345678",
                arguments="[1]",
            )
            assert bad["error"] == {"code": -32602, "message": "Invalid params: arguments: a JSON object"}
    refusals = ["not_allowed", "unknown_request", "wrong_digest", "not_offered", "unknown_request"]
    assert codes == [*refusals, "already_resolved", "expired"]
    assert [facts["code"] for _, facts in book.lines] == codes
    assert {kind for kind, _ in book.lines[:5]} == {"approval.refused"}
    assert {kind for kind, _ in book.lines[5:]} == {"approval.late_decision"}
    assert [facts["by"] for _, facts in book.lines[:3]] == ["Ines", "Kim", "Mara"]


@pytest.mark.rule("BCK-2")
@pytest.mark.rule("APR-7", "WIR-6")
async def test_edited_arguments(one: Gateway) -> None:
    """An approver who allows may write other arguments; they are kept exactly."""
    request = asked(arguments={"command": "npm test; npm publish", "n": 1})
    await served(one).submit(request)
    async with Caller(one) as mara:
        await mara.attach()
        raw = (await mara.call("show", requestId=request.id))["views"][-1]["text"]
        edited = raw.replace("; npm publish", "").replace("1", "123456789012345678901234567890")
        answer = await mara.decide(request, "allow", arguments=edited)
    assert answer["ending"]["edited"]
    record = await served(one).wait(request.id)
    assert record.decision is not None
    assert record.decision.arguments == {"command": "npm test", "n": 123456789012345678901234567890}
    assert record.digest != request.digest


@pytest.mark.rule("BCK-2")
@pytest.mark.rule("APR-5", "WIR-8")
async def test_grants_and_history(one: Gateway) -> None:
    """An "always" that is claimed makes a grant that every client hears of and can list, and an approver may end."""
    request = asked()
    await served(one).submit(request)
    async with Caller(one) as mara, Caller(one, WATCHER) as ines:
        await mara.attach()
        await ines.attach()
        covers = (await mara.call("show", requestId=request.id))["always"]["covers"]
        assert (await mara.decide(request, "always"))["accepted"]
        await served(one).claim(request.id, request.digest)
        await ines.note("grants_changed")
        (grant,) = (await ines.call("grants"))["grants"]
        assert ([grant["covers"]], grant["by"], grant["allows"]) == (covers, "Mara", True)
        refusal = await ines.ask("_amplifier-hooks/revoke", grantId=grant["grantId"])
        assert refusal["error"]["code"] == -32001
        assert (await mara.call("revoke", grantId=grant["grantId"]))["revoked"]
        await ines.note("grants_changed")
        assert not (await mara.call("revoke", grantId=grant["grantId"]))["revoked"]
        assert (await ines.call("grants"))["grants"] == []
        (entry,) = (await ines.call("history", limit=10))["entries"]
        assert (entry["row"]["requestId"], entry["ending"]["by"]) == (request.id, "Mara")
        assert (await mara.call("attach"))["recent"] == [entry]


@pytest.mark.rule("BCK-2")
@pytest.mark.rule("APR-4", "WIR-4")
async def test_expiry() -> None:
    """The gateway expires an unanswered request, though its program is gone, and every client hears of it."""
    async with gateway() as one, Caller(one) as mara:
        await mara.attach()
        request = asked(lifetime=0.05)
        await served(one).submit(request)
        told = await mara.note("resolved")
        assert (told["requestId"], told["ending"]["status"], told["ending"]["allowed"]) == (
            request.id,
            "expired",
            False,
        )
        assert "by" not in told["ending"]


@pytest.mark.rule("BCK-2")
@pytest.mark.rule("WIR-4")
async def test_what_becomes_of_it(one: Gateway) -> None:
    """After an approval, the start and the end of the run are announced as well."""
    request = asked()
    await served(one).submit(request)
    async with Caller(one) as mara:
        await mara.attach()
        await mara.decide(request, "allow")
        await mara.note("resolved")
        await served(one).claim(request.id, request.digest)
        assert (await mara.note("changed"))["status"] == "claimed"
        await served(one).settle(request.id, "done")
        assert (await mara.note("changed"))["status"] == "done"


@pytest.mark.rule("BCK-2")
@pytest.mark.rule("TEN-1", "BCK-4")
async def test_what_may_not_be_seen() -> None:
    """An approver bound to a tenant or to sessions sees nothing else, and cannot tell that there is more."""
    bound = [Approver(name="T", tenant="acme"), Approver(name="S", sessions=["mine"])]
    here, there = asked(1, tenant="acme", session="mine"), asked(2, tenant="other", session="theirs")
    async with gateway(approvers=bound) as one:
        await served(one).submit(there)
        for approver in bound:
            async with Caller(one, approver) as caller:
                assert (await caller.attach())["queue"] == []
                await served(one).submit(asked(4, tenant="other", session="theirs"))
                await caller.call("ping")
                await served(one).submit(here)
                assert (await caller.note("added"))["row"]["requestId"] == here.id
                unseen, nothing = [
                    await caller.ask("_amplifier-hooks/show", requestId=name) for name in (there.id, "nothing")
                ]
                assert unseen["error"] == nothing["error"]
                refused = await caller.decide(there, "allow")
                assert (refused["refusal"]["code"], "ending" in refused) == ("unknown_request", False)
                await served(one).withdraw(here.id, "enough")
                assert (await caller.note("resolved"))["requestId"] == here.id
                seen = ids([entry["row"] for entry in (await caller.call("history"))["entries"]])
                assert here.id in seen
                assert there.id not in seen
                here = asked(3, tenant="acme", session="mine")


@pytest.mark.rule("BCK-2")
@pytest.mark.rule("APR-14", "WIR-4", "TEN-1")
async def test_stops() -> None:
    """A client hears of the stops that reach a session of its approver, each time one of them begins or ends."""
    bound = [Approver(name="T", tenant="acme"), Approver(name="S", sessions=["mine"]), MARA]
    kim, acme = Decider(name="Kim", channel="x"), Decider(name="Kim", channel="x", tenant="acme")
    async with (
        gateway(approvers=bound) as one,
        Caller(one, bound[0]) as t,
        Caller(one, bound[1]) as s,
        Caller(one) as m,
    ):
        for caller in (t, s, m):
            assert (await caller.attach())["stops"] == []
        for by, session, told in ((kim, "theirs", (t, m)), (acme, "mine", (t, s, m)), (kim, "", (t, s, m))):
            await served(one).stop("look first", by, session)
            seen = [(await caller.note("stops"))["stops"][-1] for caller in told]
            assert {(row["by"], row["why"], row.get("session")) for row in seen} == {
                ("Kim", "look first", session or None)
            }
        assert [len((await caller.call("attach"))["stops"]) for caller in (t, s, m)] == [3, 2, 3]
        await served(one).end_stop(acme, "mine")
        assert [len((await caller.note("stops"))["stops"]) for caller in (t, s, m)] == [2, 1, 2]


@pytest.mark.rule("BCK-2")
@pytest.mark.rule("WIR-5")
async def test_long_view_in_parts(one: Gateway) -> None:
    """A view that is longer than a message continues where it ended."""
    request = asked(arguments={"command": "x" * 70_000})
    await served(one).submit(request)
    async with Caller(one) as mara:
        await mara.attach()
        view = (await mara.call("show", requestId=request.id))["views"][0]
        text = view["text"]
        while "next" in view:
            view = await mara.call("more", requestId=request.id, view="Command", start=view["next"])
            text += view["text"]
        assert text == "x" * 70_000
        wrong = await mara.ask("_amplifier-hooks/more", requestId=request.id, view="Nothing", start=0)
        assert wrong["error"]["code"] == -32002


@pytest.mark.rule("BCK-2")
@pytest.mark.rule("WIR-9")
async def test_tail() -> None:
    """A client that follows a session gets the lines of that session's record, and no other client gets them."""
    async with gateway() as one, Caller(one) as mara, Caller(one) as other:
        assert not (await mara.attach())["features"]["tail"]
        book = Book()
        record = one.watched_sink(book)
        assert (await mara.call("attach"))["features"]["tail"]
        await other.attach()
        facts = {
            "tenant": "",
            "session": "s",
            "time": "2026-01-01T12:00:00+00:00",
            "tool": "Ba\u202esh",
            "arguments": 1,
        }
        await record.write("tool.running", facts)
        await record.write("tool.running", {**facts, "session": "t"})
        (line,) = (await mara.call("tail", sessionId="s"))["lines"]
        assert (line["kind"], line["text"], line["at"]) == ("tool.running", "Ba\\u{202E}sh", facts["time"])
        await record.write("tool.ran", {**facts, "session": "t"})
        await record.write("tool.ran", {**facts, "hooks": ["a", "b"]})
        told = await mara.note("line")
        assert (told["sessionId"], told["line"]["text"]) == ("s", "a, b · Ba\\u{202E}sh")
        assert (await mara.call("tail", sessionId="s", on=False))["lines"] == []
        await record.write("tool.ran", facts)
        await mara.call("ping")
        await other.call("ping")
        assert not mara.heard
        assert not other.heard
        assert len(book.lines) == 5


@pytest.mark.rule("BCK-2")
@pytest.mark.rule("WIR-10")
async def test_stopping() -> None:
    """A gateway that stops says so to every client, and ends in time, though a client does not let go."""
    async with gateway() as one:
        async with Caller(one) as mara, Caller(one, ping_interval=None) as stubborn:
            await mara.attach()
            stubborn.connection.transport.pause_reading()
            begun = asyncio.get_running_loop().time()
            await asyncio.gather(one.close(), one.close())
            assert asyncio.get_running_loop().time() - begun < 2 * one.bounds.stop_within
            with pytest.raises(Exception, match="1012"):
                await mara.read()
            stubborn.connection.transport.resume_reading()
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection("127.0.0.1", one.port)


@pytest.mark.rule("BCK-2")
@pytest.mark.rule("WIR-10")
async def test_starting_twice_and_on_a_taken_address() -> None:
    """Starting twice is one start; an address that is taken is an error, and nothing is left running."""
    async with gateway() as one:
        assert await one.open() is one
        other = Gateway(Broker(MemoryStore()), port=one.port)
        with pytest.raises(OSError, match="in use"):
            await other.open()
        await other.close()


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


@pytest.mark.rule("BCK-4")
@pytest.mark.fault("F-WS-17")
@pytest.mark.parametrize(("sent", "code"), BROKEN.values(), ids=BROKEN)
async def test_a_breach_ends_the_connection(sent: bytes, code: int) -> None:
    """A breach of the protocol ends the connection with its code."""
    async with gateway() as one, Caller(one) as caller:
        await caller.attach()
        caller.connection.transport.write(sent)
        assert await closed_with(caller) == code


@pytest.mark.rule("BCK-4")
@pytest.mark.fault("F-WS-17")
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


@pytest.mark.rule("BCK-4")
@pytest.mark.fault("F-WS-17")
@pytest.mark.parametrize("sent", PIECES.values(), ids=PIECES)
async def test_a_message_may_come_in_pieces(sent: bytes) -> None:
    """A message is understood however it is cut, through the middle of a character and around other frames."""
    async with gateway() as one, Caller(one) as caller:
        await caller.attach()
        caller.connection.transport.write(sent)
        assert "result" in await caller.reply("ü😀")


@pytest.mark.rule("BCK-4")
@pytest.mark.fault("F-WS-17")
async def test_a_ping_is_answered() -> None:
    """2.2: a ping is answered with its own payload."""
    async with gateway() as one, Caller(one) as caller:
        await caller.attach()
        answered = await caller.connection.ping(b"\x00\xff\xfe" * 40)
        await answered
