"""The fast paths of the store in PostgreSQL, beside the scripts they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from approval_backends.lifecycle import Refusal, RequestRecord
from approval_backends.stores.postgres import PostgresStore
from approval_backends.testing import ALLOW, ALWAYS, DENY, a_request, an_answer
from tests.stores import DSN, schema, server

if TYPE_CHECKING:
    from amplifier_hooks.ports import Option
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

    def _hold(self, request_id: str) -> Steps[RequestRecord | None]:
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
