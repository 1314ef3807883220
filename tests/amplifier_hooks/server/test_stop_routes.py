"""Stops over HTTP: who may stop what, and the record of it."""

from collections.abc import AsyncIterator

import pytest

from approval_backends.lifecycle import Refusal
from approval_backends.testing import ROBIN, a_request
from tests.api import Office, knocking, office


@pytest.fixture
async def there() -> AsyncIterator[Office]:
    """The API."""
    async with office() as made:
        yield made


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
