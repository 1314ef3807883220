"""The promises of all backends inside one process."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from amplifier_hooks.act import Act
from amplifier_hooks.ports import ApprovalRequest, Decision, Option, Question
from approval_backends import BackendUnavailable, InProcessBackend

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REQUEST = ApprovalRequest(
    id="r1",
    tenant="",
    session="s1",
    agent="coder",
    event="tool:pre",
    tool="Write",
    arguments={},
    digest=Act("", "s1", "tool:pre", "Write", "", b"{}").digest,
    questions=(Question(hook="guard", prompt="Really?"),),
    options=(Option(id="yes", label="Allow", kind="allow_once"), Option(id="no", label="Deny", kind="reject_once")),
    default="deny",
    created=NOW,
    expires=NOW + timedelta(minutes=1),
)


class Chooses(InProcessBackend):
    """A backend that chooses one option, once it may."""

    def __init__(self, option: str) -> None:
        super().__init__()
        self.option = option
        self.asked = asyncio.Event()
        self.may = asyncio.Event()

    async def ask(self, request: ApprovalRequest) -> Decision:
        """Wait, then choose."""
        self.asked.set()
        await self.may.wait()
        return Decision(option=self.option, by="Robin", channel="test")


@pytest.mark.rule("APR-3")
@pytest.mark.parametrize(("option", "claimed"), [("yes", True), ("no", False), ("maybe", False)])
async def test_claim(option: str, claimed: bool) -> None:
    """Only an approval can be claimed, and only once."""
    backend = Chooses(option)
    backend.may.set()
    assert (await backend.request(REQUEST)).option == option
    assert [await backend.claim("r1", REQUEST.digest), await backend.claim("r1", REQUEST.digest)] == [claimed, False]
    await backend.settle("r1", "done")


@pytest.mark.rule("APR-3")
async def test_other_digest() -> None:
    """A claim for another digest than the one shown fails, and voids the approval."""
    backend = Chooses("yes")
    backend.may.set()
    await backend.request(REQUEST)
    assert not await backend.claim("r1", "xyz")
    assert not await backend.claim("r1", REQUEST.digest)


@pytest.mark.rule("APR-3")
async def test_withdrawn_after_the_answer() -> None:
    """An approval that was withdrawn cannot be claimed; withdrawing what is unknown does nothing."""
    backend = Chooses("yes")
    backend.may.set()
    await backend.request(REQUEST)
    await backend.withdraw("r1", "changed our mind")
    await backend.withdraw("r2", "never heard of it")
    assert not await backend.claim("r1", REQUEST.digest)


@pytest.mark.rule("APR-3")
async def test_withdrawn_before_the_answer() -> None:
    """An answer to a question that was withdrawn meanwhile does not count."""
    backend = Chooses("yes")
    task = asyncio.create_task(backend.request(REQUEST))
    await backend.asked.wait()
    await backend.withdraw("r1", "expired")
    backend.may.set()
    with pytest.raises(BackendUnavailable, match="withdrawn"):
        await task
    assert not await backend.claim("r1", REQUEST.digest)


@pytest.mark.rule("APR-3")
async def test_cancelled() -> None:
    """A question can be cancelled while it waits, and leaves nothing to claim."""
    backend = Chooses("yes")
    task = asyncio.create_task(backend.request(REQUEST))
    await backend.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await backend.claim("r1", REQUEST.digest)
