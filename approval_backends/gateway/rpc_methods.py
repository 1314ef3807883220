"""The gateway's own methods, answered for one approver over the broker. This module knows no socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from approval_backends.card.count_files import find_card_facts
from approval_backends.card.edit_arguments import BadArguments
from approval_backends.gateway.wire.frames import Malformed, parse_json
from approval_backends.gateway.wire.messages import (
    Attached,
    CardView,
    Decide,
    Decided,
    Features,
    Grants,
    History,
    HistoryWanted,
    More,
    Nothing,
    Pong,
    Preview,
    Previewed,
    Revoke,
    Revoked,
    Show,
    Tail,
    Tailed,
    ViewPart,
)
from approval_backends.gateway.wire.record_messages import (
    card_view,
    ending,
    grant_row,
    history_row,
    part,
    preview_message,
    refusal_message,
    rights,
    row,
    stop_rows,
)
from approval_backends.lifecycle import RequestRecord, sees

if TYPE_CHECKING:
    from collections.abc import Mapping

    from approval_backends.broker import Broker, Resolution
    from approval_backends.gateway.gateway_record import GatewayRecord, Tails
    from approval_backends.gateway.waiting_requests import WaitingRequests
    from approval_backends.lifecycle import Decider


RECENT: Final = 10
"""Ended requests that come with the queue."""


class RpcMethods:
    """Answers calls. The session that calls names the approver; the message never does.

    Raises `Malformed` for a call that cannot be answered, and `StoreUnavailable`.
    """

    def __init__(self, broker: Broker, waiting: WaitingRequests, witness: GatewayRecord, tails: Tails) -> None:
        self._broker = broker
        self._waiting = waiting
        self._witness = witness
        self._tails = tails

    async def attach(self, by: Decider, _params: Nothing) -> Attached:
        """Return all pending requests, and the approver's rights: the gateway's state at one instant."""
        recent = await self._broker.history(by, RECENT)
        return Attached(
            you=rights(by),
            queue=[row(record) for record in self._waiting.visible_to(by)],
            recent=[history_row(record) for record in recent],
            stops=stop_rows(by, self._waiting.stops),
            features=Features(tail=self._tails.enabled),
            server_time=self._waiting.now,
        )

    async def show(self, by: Decider, params: Show) -> CardView:
        """Return one request as a card."""
        record = await self._record(by, params.request_id)
        facts = await find_card_facts(record.request, await self._broker.session_requests(record.request))
        return card_view(record, self._waiting.now, facts)

    async def more(self, by: Decider, params: More) -> ViewPart:
        """Return the next part of a view."""
        found = part(await self._record(by, params.request_id), params.view, params.start)
        if found is None:
            raise Malformed(-32002, "no such view")
        return found

    async def preview(self, by: Decider, params: Preview) -> Previewed:
        """Return the action that other arguments would make of a request."""
        record = await self._record(by, params.request_id)
        if params.digest != record.request.digest:
            raise Malformed(-32602, "digest: this is another action")
        try:
            return preview_message(record, params.arguments, self._waiting.now)
        except BadArguments as problem:
            raise Malformed(-32602, str(problem)) from None

    async def decide(self, by: Decider, params: Decide) -> Decided:
        """Put an answer to the store, and return the result."""
        return await self.answer(
            by,
            params.request_id,
            params.digest,
            params.option_id,
            decision_id=params.decision_id,
            message=params.message,
            arguments=params.arguments,
            seconds=params.seconds,
            times=params.times,
        )

    async def answer(
        self,
        by: Decider,
        request_id: str,
        digest: str,
        option: str,
        *,
        decision_id: str,
        message: str | None = None,
        arguments: str | None = None,
        seconds: float | None = None,
        times: int | None = None,
    ) -> Decided:
        """Put an answer, given in parts, to the store, and return the result.

        An answer that does not count goes on record.
        """
        resolution = await self._broker.decide(
            request_id,
            digest,
            option,
            by,
            message=message,
            arguments=None if arguments is None else _parse_arguments(arguments),
            decision_id=decision_id,
            seconds=seconds,
            times=times,
        )
        if resolution.accepted:
            await asyncio.sleep(0)  # the task that waits for this decision goes first
        if resolution.refusal is not None:
            await self._witness.record_refusal(by, request_id, option, resolution.refusal)
        return self._decision_result(request_id, resolution)

    async def history(self, by: Decider, params: HistoryWanted) -> History:
        """Return the finished requests, newest first."""
        found = await self._broker.history(by, params.limit)
        return History(entries=[history_row(record) for record in found], server_time=self._waiting.now)

    async def grants(self, by: Decider, _params: Nothing) -> Grants:
        """Return the grants in force, oldest first."""
        found = await self._broker.grants(by)
        uses = [await self._broker.store.grant_uses(grant.id) if grant.used else () for grant in found]
        return Grants(grants=list(map(grant_row, found, uses)), server_time=self._waiting.now)

    async def revoke(self, by: Decider, params: Revoke) -> Revoked:
        """End a grant."""
        if not by.may_decide:
            raise Malformed(-32001, f"{by.name} may look, but not decide")
        revoked = await self._broker.revoke(params.grant_id, by)
        if revoked:
            await self._witness.record_revocation(by, params.grant_id)
        return Revoked(revoked=revoked, server_time=self._waiting.now)

    async def tail(self, by: Decider, params: Tail) -> Tailed:
        """Return the last lines of a session."""
        return Tailed(lines=self._tails.last(by, params.session_id) if params.on else [], server_time=self._waiting.now)

    async def ping(self, _by: Decider, _params: Nothing) -> Pong:
        """Return the store's time."""
        return Pong(server_time=self._waiting.now)

    async def _record(self, by: Decider, request_id: str) -> RequestRecord:
        record = self._waiting.get(request_id) or await self._broker.store.get(request_id)
        if record is None or not sees(by, record.request):
            raise Malformed(-32002, "there is no such request")
        return record

    def _decision_result(self, request_id: str, resolution: Resolution) -> Decided:
        record, refusal = resolution.record, resolution.refusal
        over = record is not None and record.status != "pending"
        return Decided(
            request_id=request_id,
            accepted=resolution.accepted,
            ending=ending(record) if record is not None and over else None,
            refusal=None if refusal is None else refusal_message(refusal),
            server_time=self._waiting.now,
        )


def _parse_arguments(text: str) -> Mapping[str, Any]:
    """Return the arguments that the approver wrote instead of those shown."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise Malformed(-32602, "arguments: a JSON object")
    return value
