"""The requests of a store come in, each on the card of the terminal; answers go back to the store.

Other approvers may answer at the same time. The first of an answer here, an answer of another approver, or the timeout
ends a card. Leaving decides nothing; the request that was on screen waits on for another approver.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.cli.approvals.open_store import Trouble
from amplifier_hooks.cli.approvals.print_requests import end_text
from amplifier_hooks.cli.common.terminal_io import print_error
from amplifier_hooks.errors import ApprovalMismatch, ApprovalTimeout
from approval_backends.errors import RequestSkipped, RequestWithdrawn
from approval_backends.lifecycle import seconds_left
from approval_backends.terminal.form import WaitingQuestion

if TYPE_CHECKING:
    from amplifier_hooks.cli.approvals.open_store import OpenStore, StoreView
    from amplifier_hooks.ports import ApprovalRequest
    from approval_backends.lifecycle import Moment, RequestRecord
    from approval_backends.terminal.form import Chosen
    from approval_backends.terminal.prompt import TerminalPrompt


RECHECK: Final = 5.0
"""Seconds after which the watcher reads the store again, woken or not."""


async def watch_until_stopped(view: StoreView) -> None:
    """Watch until Ctrl-C. Raises `Trouble` without a terminal, and the errors of the store."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Trouble("There is no terminal to show requests on; use 'approvals list' and 'approvals allow'.")
    from approval_backends.terminal.prompt import TerminalPrompt

    async with view.open_store(create=True) as desk:
        print_error(
            f"Waiting for requests in {view.name}. Ctrl-C ends this; on a card it denies, and l leaves it open."
        )
        await Watcher(desk, TerminalPrompt()).run()


class Watcher:
    """One terminal over one store. It shows waiting requests one after the other, and submits the answers."""

    def __init__(self, desk: OpenStore, prompt: TerminalPrompt) -> None:
        self._desk = desk
        self._prompt = prompt
        self._waiting: list[RequestRecord] = []
        self._ends: dict[str, datetime] = {}
        self._answered: set[str] = set()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Show waiting requests, oldest first, for ever. Cancelling takes the card away and decides nothing."""
        following = asyncio.ensure_future(self._follow())
        following.add_done_callback(lambda _: self._changed.set())
        try:
            while True:
                while not self._waiting:
                    self._changed.clear()
                    if following.done():
                        following.result()
                    await self._changed.wait()
                await self._put(self._waiting[0])
        finally:
            following.cancel()
            await asyncio.wait({following})

    async def _follow(self) -> None:
        """Keep the list of waiting requests up to date, until cancelled."""
        with self._desk.broker.watch() as watch:
            while True:
                found, now = await self._desk.waiting(), await self._desk.broker.store.now()
                self._ends = {record.id: _end_of(record, now) for record in found}
                self._waiting = [record for record in found if record.id not in self._answered]
                self._changed.set()
                await watch.wait(RECHECK)

    async def _put(self, record: RequestRecord) -> None:
        """Show one request and submit the answer, unless another approver or the timeout is quicker."""
        broker = self._desk.broker
        until = _end_of(record, await broker.store.now())
        asking = asyncio.ensure_future(
            self._prompt.ask(
                record.request,
                until=until,
                others=lambda: [WaitingQuestion(one.request, self._ends[one.id]) for one in self._others(record)],
                may_wait=True,
                earlier=await broker.session_requests(record.request),
            )
        )
        settled = asyncio.ensure_future(broker.wait(record.id))
        both: set[asyncio.Future[Any]] = {asking, settled}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done() and settled.exception() is None:
                self._prompt.dismiss(record.id, end_text(settled.result()))
            choice = await asking
            for request in (record.request, *choice.together):
                await self._submit_answer(request, choice)
                self._answered.add(request.id)
        except (ApprovalTimeout, RequestSkipped, RequestWithdrawn):
            pass  # the line about it is on the screen already
        except ApprovalMismatch as problem:
            print_error(f"Not shown: {problem}.")
        finally:
            asking.cancel()
            settled.cancel()
            await asyncio.wait(both)
            self._answered.add(record.id)  # not shown again, however it ended
            self._waiting = [one for one in self._waiting if one.id not in self._answered]

    async def _submit_answer(self, request: ApprovalRequest, choice: Chosen) -> None:
        """Submit the answer to the store; print its refusal if the answer does not count."""
        resolution = await self._desk.broker.decide(
            request.id,
            request.digest,
            choice.option.id,
            self._desk.viewer,
            message=choice.message,
            arguments=choice.arguments,
        )
        if resolution.refusal is not None:
            print_error(f"That answer did not count: {resolution.refusal.reason}.")

    def _others(self, record: RequestRecord) -> list[RequestRecord]:
        return [one for one in self._waiting if one.id != record.id]


def _end_of(record: RequestRecord, now: Moment) -> datetime:
    """Return the end of a request, by the clock of this screen."""
    return datetime.now(UTC) + timedelta(seconds=seconds_left(record.created, record.lifetime, now))
