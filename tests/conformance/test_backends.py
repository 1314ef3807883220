"""One suite over all backends that answer in this process or through a store."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from amplifier_hooks.ports import ApprovalRequest, Decision, Option
from approval_backends.backend import DeferredApprovals, RacingApprovals
from approval_backends.broker import Broker
from approval_backends.client import ApprovalsClient
from approval_backends.gateway.websocket_approvals import WebSocketApprovals
from approval_backends.in_process import InProcessBackend
from approval_backends.stores.memory import MemoryStore
from approval_backends.stores.sqlite import SqliteStore
from approval_backends.testing import BACKEND_CHECKS, ROBIN, BackendCheck, BackendSubject, name_of
from tests.gateways import MARA
from tests.stores import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class Script(InProcessBackend):
    """A backend that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[str, asyncio.Future[Decision]] = {}

    def slot(self, request: ApprovalRequest) -> asyncio.Future[Decision]:
        """Return the future for the answer to this request."""
        return self.answers.setdefault(request.id, asyncio.get_running_loop().create_future())

    async def ask(self, request: ApprovalRequest) -> Decision:
        """Wait for the answer."""
        return await self.slot(request)

    async def answer(self, request: ApprovalRequest, option: Option) -> None:
        """Set the answer."""
        self.slot(request).set_result(Decision(option=option.id, by="Robin", channel="script"))


@asynccontextmanager
async def subject(kind: str, folder: Path) -> AsyncIterator[BackendSubject]:
    """Yield a backend of this kind."""
    script = Script()
    if kind == "in process":
        yield BackendSubject(script, script.answer)
    elif kind == "websocket":
        async with (
            WebSocketApprovals(approvers=[MARA]) as web,
            ApprovalsClient(web.gateway.address, MARA.token) as mara,
        ):

            async def at_the_page(request: ApprovalRequest, option: Option) -> None:
                await until(lambda: any(row.request_id == request.id for row in mara.queue))
                row = next(row for row in mara.queue if row.request_id == request.id)
                await mara.decide(row, option.id)

            yield BackendSubject(web, at_the_page)
    elif kind == "race":
        yield BackendSubject(RacingApprovals(Script(), script), script.answer)
    else:
        store = MemoryStore() if kind == "deferred, memory" else SqliteStore(folder / "approvals.db")
        async with DeferredApprovals(store) as approvals:

            async def answer(request: ApprovalRequest, option: Option) -> None:
                broker = Broker(approvals.broker.store)
                with broker.watch() as watch:
                    while not (await broker.decide(request.id, request.digest, option.id, ROBIN)).accepted:
                        await watch.wait(1)

            yield BackendSubject(approvals, answer)


@pytest.mark.rule("APR-3", "APR-6")
@pytest.mark.parametrize("check", BACKEND_CHECKS, ids=name_of)
@pytest.mark.parametrize("kind", ["in process", "race", "deferred, memory", "deferred, file", "websocket"])
async def test_backend(kind: str, check: BackendCheck, tmp_path: Path) -> None:
    """Every backend keeps every promise of `ApprovalBackend`."""
    async with subject(kind, tmp_path) as one:
        await check(one)
