"""The fast paths of the store in PostgreSQL, beside the scripts they stand for."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from msgspec.structs import replace

from approval_backends import lifecycle
from approval_backends.lifecycle import Refusal, RequestRecord
from approval_backends.stores.postgres import PostgresStore
from approval_backends.testing import ALLOW, ALWAYS, DENY, a_request, an_answer
from tests.stores import DSN, schema, server

if TYPE_CHECKING:
    from amplifier_hooks.ports import Option
    from approval_backends.lifecycle import Moment
    from approval_backends.stores.transactions import Steps

pytestmark = pytest.mark.postgres


@pytest.mark.rule("BCK-8")
@pytest.mark.parametrize("option", [ALLOW, DENY])
async def test_the_short_way_says_what_is_stored(option: Option) -> None:
    """The record that a fast decision returns is, to the last field, the record that a read finds."""
    await server()
    async with schema() as name, PostgresStore(DSN, schema=name) as store, PostgresStore(DSN, schema=name) as other:
        request = a_request()
        asked = await store.submit(request)
        assert await other.get(request.id) == asked
        decided = await store.answer(an_answer(request, option))
        assert isinstance(decided, RequestRecord)
        assert decided == await other.get(request.id)
        assert [event.kind for event in await other.events(request.id)] == [
            "submitted",
            "approve" if option.allows else "deny",
        ]


class ShortOnly(PostgresStore):
    """A store that counts its transactions of several statements."""

    scripts = 0

    def _hold(self, request_id: str) -> Steps[tuple[RequestRecord | None, Moment]]:
        self.scripts += 1
        return super()._hold(request_id)


@pytest.mark.rule("BCK-8")
async def test_when_the_short_way_is_taken() -> None:
    """A decision with a plain option takes one statement, wherever it is made; any other takes the script."""
    await server()
    async with schema() as name, PostgresStore(DSN, schema=name) as store, ShortOnly(DSN, schema=name) as other:
        ways = []
        for number, option in enumerate([ALLOW, DENY, ALWAYS, DENY]):
            request = a_request(number)
            await store.submit(request)
            first = await other.answer(an_answer(request, option))
            second = await other.answer(an_answer(request, option, id="another"))
            assert (type(first), type(second)) == (RequestRecord, Refusal)
            ways.append(other.scripts)
        assert ways == [1, 2, 4, 5]


@pytest.mark.rule("BCK-8")
async def test_waiting_for_a_row_takes_time() -> None:
    """The time of a change is read once the row is locked, so the time spent waiting for that counts."""
    import asyncpg

    await server()
    async with schema() as name, PostgresStore(DSN, schema=name) as store:
        request = a_request()
        request = replace(request, expires=request.created + timedelta(seconds=0.3))
        await store.submit(request)
        other = await asyncpg.connect(DSN)
        async with other.transaction():
            await other.execute(f'SELECT 1 FROM "{name}".approval_request FOR UPDATE')
            expired = asyncio.ensure_future(store.move(request.id, "expire"))
            await other.execute("SELECT pg_sleep(0.5)")
            assert not expired.done()
        await other.close()
        assert isinstance(await expired, RequestRecord)


@pytest.mark.rule("APR-14")
async def test_waiting_for_a_stop_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim, and a use of a grant, that waited for a stop under way are refused if their time is over by then."""
    import asyncpg

    monkeypatch.setattr(lifecycle, "CLAIM_WITHIN", 0.0)
    await server()
    async with schema() as name, PostgresStore(DSN, schema=name) as store:
        once, always = a_request(1), a_request(2)
        once = replace(once, expires=once.created + timedelta(seconds=3.0))
        await store.submit(once)
        await store.submit(always)
        await store.answer(an_answer(once))
        await store.answer(an_answer(always, ALWAYS, seconds=3.0))
        await store.move(always.id, "claim", digest=always.digest)
        grants = [grant.id for grant in await store.grants_for(always)]
        assert grants
        other = await asyncpg.connect(DSN)
        async with other.transaction():
            await other.execute(f'LOCK TABLE "{name}".approval_stop IN EXCLUSIVE MODE')
            claim = asyncio.ensure_future(store.move(once.id, "claim", digest=once.digest))
            use = asyncio.ensure_future(store.use_grants(always, grants))
            await other.execute("SELECT pg_sleep(3.2)")
            assert not claim.done()
            assert not use.done()
        await other.close()
        refused, uncovered = await claim, await use
        assert isinstance(refused, Refusal)
        assert refused.code == "expired"
        assert uncovered is not None


class Label(str):
    """A text that is marked as safe, as template engines have them."""

    __slots__ = ()


@pytest.mark.rule("BCK-8")
async def test_a_database_of_any_encoding_keeps_any_text() -> None:
    """A database whose encoding lacks a sign keeps requests and answers with it, and texts of any subclass of str."""
    import asyncpg

    await server()
    owner = await asyncpg.connect(DSN)
    name = f"latin_{uuid4().hex}"
    await owner.execute(f"CREATE DATABASE {name} ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    try:
        async with PostgresStore(urlsplit(DSN)._replace(path=f"/{name}").geturl()) as store:
            request = a_request(arguments={"content": "“x” … \U0001f600"}, agent=Label("coder"))
            asked = await store.submit(request)
            assert await store.get(request.id) == asked
            decided = await store.answer(an_answer(request, message="yes – once"))
            assert isinstance(decided, RequestRecord)
            assert decided == await store.get(request.id)
    finally:
        await owner.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await owner.close()
