"""A client that knows the Agent Client Protocol and none of our additions, spoken by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from approval_backends.gateway import client_session
from approval_backends.lifecycle import Decider
from tests.gateways import MARA, WATCHER, Caller, asked, gateway, served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from approval_backends.gateway.gateway import Gateway

pytestmark = pytest.mark.rule("BCK-2", "WIR-7")

JUN = Decider(name="Jun", channel="cli")


@pytest.fixture
async def one() -> AsyncIterator[Gateway]:
    """A gateway."""
    async with gateway() as there:
        yield there


async def question(caller: Caller) -> dict[str, Any]:
    """Return the next question that is put."""
    return await caller.note("session/request_permission")


def selected(option: str, **ours: Any) -> dict[str, Any]:
    """Return an answer."""
    extra = {"_meta": {"amplifier-hooks": ours}} if ours else {}
    return {"outcome": {"outcome": "selected", "optionId": option}, **extra}


async def test_answering(one: Gateway) -> None:
    """Waiting requests are put once, then the new ones; each has its own id, and an answer counts for its question."""
    first, second = asked(1), asked(2)
    await served(one).submit(first)
    async with Caller(one) as mara:
        await mara.greet(queue=False)
        put = await question(mara)
        assert put["toolCall"]["rawInput"] == first.arguments
        await served(one).submit(second)
        later = await question(mara)
        assert put["id"] != later["id"]
        assert put["id"].rpartition("-")[0] == later["id"].rpartition("-")[0]
        await mara.say(id=later["id"], result=selected("deny", message="not today"))
        record = await served(one).wait(second.id)
        assert record.decision is not None
        assert (record.status, record.decision.message, record.decision.by) == ("denied", "not today", "Mara")
        await mara.say(id=put["id"], result=selected("allow", arguments='{"file_path": "b"}'))
        record = await served(one).wait(first.id)
        assert record.decision is not None
        assert record.decision.arguments == {"file_path": "b"}
        async with Caller(one) as again:
            await again.greet(queue=False)
            await served(one).submit(asked(3))
            assert (await question(again))["id"].rpartition("-")[0] != put["id"].rpartition("-")[0]


@pytest.mark.rule("APR-6")
@pytest.mark.parametrize(
    "answer",
    [
        {"result": {"outcome": {"outcome": "cancelled"}}},
        {"result": {"outcome": {"outcome": "approved", "optionId": "allow"}}},
        {"result": {"outcome": "selected", "optionId": "allow"}},
        {"result": True},
        {"result": None},
        {"error": {"code": -32601, "message": "Method not found"}},
    ],
)
async def test_what_decides_nothing(one: Gateway, answer: dict[str, Any]) -> None:
    """A cancelled, unknown or failed outcome is no answer, least of all a permit."""
    request = asked()
    await served(one).submit(request)
    async with Caller(one) as mara:
        await mara.greet(queue=False)
        await mara.say(id=(await question(mara))["id"], **answer)
        await mara.ask("session/list")
        assert (await served(one).wait(request.id, 0)).status == "pending"
        await mara.ask("session/load", sessionId=request.session)
        await mara.say(id=(await question(mara))["id"], result=selected("allow"))
        assert (await served(one).wait(request.id)).status == "approved"


async def test_put_again(one: Gateway) -> None:
    """Loading a session takes its open questions back and puts them under new ids; other sessions are left alone."""
    mine, other = asked(1, session="mine"), asked(2, session="other")
    await served(one).submit(mine)
    await served(one).submit(other)
    async with Caller(one) as mara:
        await mara.greet(queue=False)
        before, theirs = await question(mara), await question(mara)
        found = (await mara.ask("session/list"))["result"]["sessions"]
        assert [session["sessionId"] for session in found] == ["mine", "other"]
        assert (await mara.ask("session/resume", sessionId="mine"))["result"] == {}
        assert (await mara.note("$/cancel_request"))["requestId"] == before["id"]
        after = await question(mara)
        assert (after["toolCall"]["toolCallId"], after["id"] != before["id"]) == (mine.id, True)
        assert (await mara.ask("session/close", sessionId="mine"))["result"] == {}
        assert (await mara.ask("session/load", sessionId="nothing"))["error"]["code"] == -32002
        assert "approval gateway" in (await mara.ask("session/new", cwd="/"))["error"]["message"]
        await mara.say(id=before["id"], result=selected("deny"))
        assert (await served(one).wait(mine.id)).status == "denied"
        await mara.say(id=theirs["id"], result=selected("allow"))
        assert (await served(one).wait(other.id)).status == "approved"
        await mara.ask("session/list")
        assert not [message for message in mara.heard if message.get("method") == "session/request_permission"]


@pytest.mark.rule("APR-4", "APR-6")
async def test_decided_elsewhere(one: Gateway) -> None:
    """A question decided elsewhere is withdrawn by its id, with its end; a late answer is refused with a reason."""
    request = asked()
    await served(one).submit(request)
    async with Caller(one) as mara:
        await mara.greet(queue=False)
        put = await question(mara)
        await served(one).decide(request.id, request.digest, "deny", JUN)
        assert (await mara.note("$/cancel_request"))["requestId"] == put["id"]
        assert (await mara.note("resolved"))["ending"]["by"] == "Jun"
        await mara.say(id=put["id"], result=selected("allow"))
        refused = await mara.note("refused")
        assert (refused["accepted"], refused["refusal"]["code"]) == (False, "already_resolved")
        bad = asked(2)
        await served(one).submit(bad)
        await mara.say(id=(await question(mara))["id"], result=selected("maybe"))
        assert (await mara.note("refused"))["refusal"]["code"] == "not_offered"


@pytest.mark.rule("BCK-4")
async def test_only_what_may_be_seen_and_decided() -> None:
    """An approver who may only look is asked as well, and the answer is refused."""
    async with gateway() as one, Caller(one, WATCHER) as ines:
        await ines.greet(queue=False)
        request = asked()
        await served(one).submit(request)
        await ines.say(id=(await question(ines))["id"], result=selected("allow"))
        assert (await ines.note("refused"))["refusal"]["code"] == "not_allowed"
        assert (await served(one).wait(request.id, 0)).status == "pending"


async def test_only_the_last_questions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of questions long over are forgotten, and an answer to one is ignored."""
    assert client_session.MOST_SENT == 1_024
    monkeypatch.setattr(client_session, "MOST_SENT", 20)
    async with gateway() as one, Caller(one, MARA) as mara:
        await mara.greet(queue=False)
        visitor = next(iter(one._clients))
        first = None
        for number in range(22):
            request = asked(number)
            await served(one).submit(request)
            put = await question(mara)
            first = first or put["id"]
            await served(one).withdraw(request.id, "enough")
            await mara.note("resolved")
        assert len(visitor._sent) == 20
        await mara.say(id=first, result=selected("allow"))
        await mara.ask("session/list")
        assert not mara.heard
