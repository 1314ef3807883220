"""`/healthz` shows the state of the parts that gates need, without a token."""

import asyncio
from typing import Any

import pytest

from amplifier_hooks.server.health import Health
from amplifier_hooks.storage.database import StoreUnavailable
from amplifier_hooks.testing import CollectingAudit
from tests.api import knocking, new_hook, office

SECRET = "postgresql://ada:hunter2@db"


class CheckedAudit(CollectingAudit):
    """A record that can be asked whether it takes anything."""

    async def check(self) -> None:
        """Raises while it does not."""
        if self.error is not None:
            raise self.error


def fails(error: Exception) -> Any:
    """A look at a part that is down."""

    async def look() -> None:
        raise error

    return look


async def fine() -> None:
    """A part that is there."""


@pytest.mark.rule("API-16")
async def test_every_part_is_there() -> None:
    """The health check covers store, approvals, definitions and a record that has a check; it needs no token."""
    async with office(record=CheckedAudit()) as there, knocking(there.api.app) as client:
        answer = await client.get("/healthz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ok",
        "parts": dict.fromkeys(("store", "approvals", "definitions", "record"), "ok"),
        "stopped": False,
    }


@pytest.mark.rule("API-16")
async def test_a_part_that_is_down() -> None:
    """While the record cannot be written it is 503, and says which part it is, and nothing of why."""
    audit = CheckedAudit(OSError(SECRET))
    async with office(record=audit) as there, knocking(there.api.app) as client:
        answer = await client.get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["parts"]["record"] == "down"
    assert answer.json()["parts"]["store"] == "ok"
    assert "hunter2" not in answer.text


@pytest.mark.rule("API-16")
async def test_a_store_that_is_down() -> None:
    """Without the store no caller is admitted, and the health check shows the store as down."""
    async with office() as there, knocking(there.api.app) as client:
        await there.broker.store.close()
        assert (await client.get("/healthz")).json()["parts"]["approvals"] == "down"


@pytest.mark.rule("API-16", "API-12")
async def test_definitions_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the store cannot be read, hooks stay in force and count as outdated; they follow the store again later."""
    monkeypatch.setattr("amplifier_hooks.server.hooks.stored_hooks.RECHECK", 0.01)
    async with office() as there:
        store, standing = there.api.keeper.store, there.api.stored_hooks
        client = await there.client()
        await client.post("/v1/hooks", json=new_hook())
        text = (await store.database.fetch("SELECT definition FROM {schema}.hook_definition"))[0][0]
        change = "UPDATE {schema}.hook_definition SET definition = $1"

        async def is_behind() -> bool:
            try:
                await standing.check()
            except StoreUnavailable:
                return True
            return False

        async def until(*, behind: bool) -> None:
            async with asyncio.timeout(60):
                while await is_behind() is not behind:  # noqa: ASYNC110  # nothing tells of it
                    await asyncio.sleep(0)

        await store.database.fetch(change, "{}")
        await until(behind=True)
        assert len(standing.registry.hooks()) >= 1
        await store.database.fetch(change, text)
        await until(behind=False)


@pytest.mark.rule("API-16")
async def test_asking_often_looks_once() -> None:
    """A result is repeated for a moment, to all concurrent requests; after that, the parts are checked again."""
    looked = 0
    now = 0.0

    async def look() -> None:
        nonlocal looked
        looked += 1

    health = Health({"store": look}, clock=lambda: now)
    await asyncio.gather(*(health.now() for _ in range(20)))
    assert looked == 1
    now = 1.0
    await health.now()
    assert looked == 2


@pytest.mark.rule("API-16")
async def test_a_part_that_hangs() -> None:
    """A part that says nothing is down, and the others are not kept from saying what they are."""
    parts = {"store": asyncio.Event().wait, "record": fine, "other": fails(RuntimeError(SECRET))}
    found = await Health(parts, timeout=0.01).now()
    assert found.status == "down"
    assert found.parts == {"store": "down", "record": "ok", "other": "down"}


@pytest.mark.rule("API-12")
async def test_questions_that_cannot_be_voided() -> None:
    """A change that was made is not reported as one that was not, when only its questions could not be taken back."""
    async with office() as there:
        client = await there.client()
        hook = (await client.post("/v1/hooks", json=new_hook())).json()
        await there.broker.store.close()
        answer = await client.put(f"/v1/hooks/{hook['hook_id']}", json={"priority": 7}, headers={"if-match": '"1"'})
        assert answer.status_code == 200
        assert (await client.get(f"/v1/hooks/{hook['hook_id']}")).json()["priority"] == 7
