"""Questions and stops over HTTP: who sees them, which answers count, and the record of both."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from amplifier_hooks.ports import Assessment, Question
from amplifier_hooks.server.api import cursor_of
from approval_backends.lifecycle import Refusal
from approval_backends.testing import ROBIN, a_request
from tests.api import Office, knocking, office


@pytest.fixture
async def there() -> AsyncIterator[Office]:
    """The API."""
    async with office() as made:
        yield made


async def a_question(there: Office, number: int = 1, **fields: Any) -> dict[str, Any]:
    """A question of tenant acme, as a viewer sees it."""
    request = a_request(number, **fields)
    await there.broker.submit(request)
    viewer = await there.client("approvals:view", tenant=request.tenant)
    question: dict[str, Any] = (await viewer.get(f"/v1/approvals/{request.id}")).json()
    return question


def answer(question: dict[str, Any], kind: str = "allow_once", **fields: Any) -> dict[str, Any]:
    """The body of an answer."""
    option = next(one["id"] for one in question["options"] if one["kind"] == kind)
    return {"digest": question["digest"], "option": option, **fields}


@pytest.mark.rule("API-13", "API-1", "BCK-5")
async def test_a_question_is_listed_and_answered(there: Office) -> None:
    """A question shows exactly what would run; the first answer counts, by the name of the token, and is on record."""
    question = await a_question(there)
    client = await there.client("approvals:decide")
    assert (await client.get("/v1/approvals")).json() == {"approvals": [question], "next": None}
    assert (question["status"], question["tenant"], question["decision"]) == ("pending", "acme", None)
    place = f"/v1/approvals/{question['id']}/decision"
    decided = await client.post(place, json=answer(question, decision_id="mine"))
    assert decided.status_code == 200
    body = decided.json()
    assert (body["status"], body["decision"]["by"], body["decision"]["channel"]) == ("approved", "ada", "api")
    assert (await client.post(place, json=answer(question, decision_id="mine"))).status_code == 200
    late = await client.post(place, json=answer(question))
    assert (late.status_code, late.json()["code"], late.json()["became"]) == (409, "already_resolved", "approved")
    assert (await client.get("/v1/approvals")).json() == {"approvals": [], "next": None}
    ended = (await client.get("/v1/approvals", params={"status": "ended"})).json()["approvals"]
    assert [one["id"] for one in ended] == [question["id"]]
    assert there.audit.facts("approval.answered")[0]["by"] == "ada"


@pytest.mark.rule("API-13", "APR-13", "APR-5")
async def test_why_the_risk_is_high_and_what_always_covers(there: Office) -> None:
    """A question has the risk with every reason for it, and for each hook what an "always" would cover."""
    said = (Assessment(by="egress", risk="high", reason="a new host"), Assessment(by="lint", risk="low", reason="text"))
    asks = (Question(hook="egress", prompt="Send it?"), Question(hook="rule:push", prompt="Push?", scope="action"))
    question = await a_question(there, risk="high", assessments=said, questions=asks)
    assert (question["risk"], question["risk_reasons"]) == ("high", [{"by": "egress", "reason": "a new host"}])
    scopes = [one["scope"] for one in question["questions"]]
    assert scopes == ["prompt:Send it?", f"action:{question['digest']}"]


@pytest.mark.rule("API-13")
async def test_pages_of_questions(there: Office) -> None:
    """A list goes on where its last page ended; a cursor gives another tenant nothing, and names a time that exists."""
    ids = [(await a_question(there, number, id=f"request-{number} é"))["id"] for number in range(3)]
    client, other = await there.client("approvals:view"), await there.client("approvals:view", tenant="b")
    found, cursor = [], None
    while True:
        page = (await client.get("/v1/approvals", params={"limit": 1, **({"cursor": cursor} if cursor else {})})).json()
        found += [one["id"] for one in page["approvals"]]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert sorted(found) == sorted(ids)
    assert (await other.get("/v1/approvals", params={"cursor": cursor})).json()["approvals"] == []
    for wrong in ("nonsense", cursor_of(2**62, "x"), cursor_of(1, ""), cursor_of(1, "\x00")):
        assert (await client.get("/v1/approvals", params={"cursor": wrong})).json()["code"] == "bad_cursor"


@pytest.mark.rule("API-13", "APR-6")
async def test_answers_that_do_not_count(there: Office) -> None:
    """Another digest is 412, an option that was not offered 422, an unknown request 404; the request stays pending."""
    question = await a_question(there)
    client = await there.client("approvals:decide")
    place = f"/v1/approvals/{question['id']}/decision"
    wrong = await client.post(place, json={**answer(question), "digest": "0" * 64})
    assert (wrong.status_code, wrong.json()["code"]) == (412, "wrong_digest")
    assert (await client.post(place, json={**answer(question), "option": "maybe"})).status_code == 422
    assert (await client.post(place, json={"option": "x"})).status_code == 422
    for unknown in ("unknown", "%00", "a" * 5_000, "%ED%A0%80"):
        assert (await client.post(f"/v1/approvals/{unknown}/decision", json=answer(question))).status_code == 404
    assert (await client.get(f"/v1/approvals/{question['id']}")).json() == question
    uncounted = there.audit.facts("approval.uncounted")
    assert [facts["reason"] for facts in uncounted] == ["wrong_digest", "not_offered"]
    assert {facts["bearer"][:4] for facts in uncounted} == {"tok_"}


@pytest.mark.fault("F-API-01")
@pytest.mark.rule("API-13", "TEN-1")
async def test_whose_questions(there: Office) -> None:
    """A tenant's token has the tenant's questions and no others; the system's has all; seeing is not deciding."""
    question = await a_question(there)
    other = await there.client("approvals:decide", tenant="b")
    assert (await other.get("/v1/approvals")).json()["approvals"] == []
    place = f"/v1/approvals/{question['id']}"
    assert (await other.get(place)).status_code == 404
    assert (await other.post(f"{place}/decision", json=answer(question))).status_code == 404
    viewer, system = await there.client("approvals:view"), await there.client("approvals:decide", tenant="")
    assert (await viewer.post(f"{place}/decision", json=answer(question))).status_code == 403
    denied = await system.post(f"{place}/decision", json=answer(question, "reject_once", message="not today"))
    assert (denied.json()["status"], denied.json()["decision"]["message"]) == ("denied", "not today")


@pytest.mark.fault("F-API-12")
@pytest.mark.rule("API-12", "API-13")
async def test_an_answer_is_on_record_first(there: Office) -> None:
    """While the record cannot be written, no decision is taken."""
    question = await a_question(there)
    client = await there.client("approvals:decide")
    there.audit.error = OSError("full")
    refused = await client.post(f"/v1/approvals/{question['id']}/decision", json=answer(question))
    assert (refused.status_code, refused.json()["code"]) == (503, "audit_unavailable")
    there.audit.error = None
    assert (await client.get(f"/v1/approvals/{question['id']}")).json() == question


@pytest.mark.rule("API-6", "API-13")
@pytest.mark.parametrize("when", ["record", "store"])
async def test_a_token_revoked_while_an_answer_is_under_way(
    when: str, there: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that is revoked while its answer goes on record, or into the store, decides nothing."""
    question = await a_question(there)
    client = await there.client("approvals:decide")
    owner, name = (there.audit, "write") if when == "record" else (there.broker.store, "answer")
    step = getattr(owner, name)

    async def slow(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(owner, name, step)
        for token in await there.api.tokens.tokens("acme"):
            await there.api.tokens.revoke(token.id)
        return await step(*args, **options)

    monkeypatch.setattr(owner, name, slow)
    refused = await client.post(f"/v1/approvals/{question['id']}/decision", json=answer(question))
    assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
    record = await there.broker.store.get(question["id"])
    assert record is not None
    assert record.status == "pending"
    assert there.audit.facts("approval.uncounted")[0]["reason"] == "Problem"


@pytest.mark.rule("API-13")
async def test_of_answers_at_once_one_counts(there: Office) -> None:
    """Of ten answers at the same time one is the decision, and the others are told so."""
    question = await a_question(there)
    client = await there.client("approvals:decide")
    place = f"/v1/approvals/{question['id']}/decision"
    answers = await asyncio.gather(*(client.post(place, json=answer(question)) for _ in range(10)))
    assert sorted(one.status_code for one in answers) == [200] + [409] * 9


# -- stops -------------------------------------------------------------------------------------------------------------


async def claim(there: Office, number: int = 1) -> bool:
    """Approve a new request of tenant acme, and claim it."""
    request = a_request(number)
    await there.broker.submit(request)
    await there.broker.decide(request.id, request.digest, "allow", ROBIN)
    return not isinstance(await there.broker.claim(request.id, request.digest), Refusal)


@pytest.mark.rule("API-13", "APR-14")
async def test_a_stop_begins_and_ends(there: Office) -> None:
    """A stop holds claims back until it is ended, is listed and seen by the health check, and is on record."""
    client = await there.client("approvals:decide")
    begun = await client.post("/v1/stops", json={"why": "it loops"})
    assert begun.status_code == 200
    body = begun.json()
    assert (body["tenant"], body["session"], body["why"], body["by"]) == ("acme", "", "it loops", "ada")
    assert not await claim(there)
    assert (await client.get("/v1/stops")).json() == {"stops": [body]}
    async with knocking(there.api.app) as anyone:
        health = (await anyone.get("/healthz")).json()
    assert (health["status"], health["stopped"]) == ("ok", True)
    ended = await client.delete("/v1/stops")
    assert (ended.status_code, ended.json()["ended_by"]) == (200, "ada")
    assert await claim(there, 2)
    assert (await client.delete("/v1/stops")).status_code == 404
    (first,), (last,) = there.audit.facts("stop.begun"), there.audit.facts("stop.ended")
    assert (first["by"], first["why"], first["stop"]) == ("ada", "it loops", body["id"])
    assert (last["by"], last["covers"]) == ("ada", {"tenant": "acme", "session": ""})


@pytest.mark.rule("API-13", "APR-14")
async def test_a_tenant_stops_its_own_sessions(there: Office) -> None:
    """A tenant's token stops and ends nothing of others; a system token names a tenant, or stops all."""
    mine, theirs = await there.client("approvals:decide"), await there.client("approvals:decide", tenant="other")
    system = await there.client("approvals:decide", tenant="", name="root")
    viewer = await there.client("approvals:view")
    assert (await viewer.post("/v1/stops", json={"why": "no"})).status_code == 403
    assert (await mine.post("/v1/stops", json={"why": "no", "tenant": "other"})).status_code == 403
    assert (await mine.delete("/v1/stops", params={"tenant": "other"})).status_code == 403
    assert (await theirs.post("/v1/stops", json={"why": "ours"})).status_code == 200
    assert await claim(there)
    for reach in ({"tenant": "acme"}, {"tenant": "acme", "session": "session-1"}, {}):
        assert (await system.post("/v1/stops", json={"why": "all", **reach})).status_code == 200
        assert not await claim(there)
        assert [one["by"] for one in (await viewer.get("/v1/stops")).json()["stops"]] == ["root"]
        assert (await system.delete("/v1/stops", params=reach)).status_code == 200
    await system.post("/v1/stops", json={"why": "all"})
    assert (await mine.delete("/v1/stops")).status_code == 404
    assert not await claim(there)


@pytest.mark.rule("API-13", "APR-14")
async def test_a_stop_does_not_wait_for_the_record(there: Office) -> None:
    """While the record cannot be written, a stop begins all the same, and does not end."""
    client = await there.client("approvals:decide")
    there.audit.error = OSError("full")
    assert (await client.post("/v1/stops", json={"why": "it loops"})).status_code == 200
    assert (await client.delete("/v1/stops")).status_code == 503
    assert not await claim(there)
