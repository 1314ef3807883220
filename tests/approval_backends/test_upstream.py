"""Our backends as the approver of the upstream kernel."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest
from amplifier_core import HookResult, ModuleCoordinator  # type: ignore[import-untyped]
from amplifier_core.approval import ApprovalTimeoutError  # type: ignore[import-untyped]

from amplifier_hooks.errors import ApprovalTimeout
from amplifier_hooks.ports import ApprovalRequest, Decision
from approval_backends import InProcessBackend
from approval_backends.backend import DeferredApprovals, RacingApprovals
from approval_backends.stores.sqlite import SqliteStore
from approval_backends.testing import ROBIN

if TYPE_CHECKING:
    from pathlib import Path


class Chooses(InProcessBackend):
    """A backend that chooses the option with this label, or never."""

    def __init__(self, label: str | None) -> None:
        super().__init__()
        self.label = label
        self.asked: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> Decision:
        """Choose the option."""
        self.asked.append(request)
        if self.label is None:
            await asyncio.Event().wait()
        option = next((option.id for option in request.options if option.label == self.label), "none")
        return Decision(option=option, by="Robin", channel="test")


class TheirSession:
    """The part of a session that the upstream coordinator needs."""

    def __init__(self) -> None:
        self.session_id, self.parent_id, self.config = "s1", None, {"session": dict[str, Any]()}


async def through_their_kernel(backend: Any, **fields: Any) -> Any:
    """Return the upstream coordinator's result for a question, with our backend as its approver."""
    coordinator = ModuleCoordinator(TheirSession(), approval_system=backend, display_system=None)
    asks = HookResult(action="ask_user", approval_prompt="Really?", **fields)
    return await coordinator.process_hook_result(asks, "tool:pre", "guard")


@pytest.mark.rule("APR-3")
@pytest.mark.parametrize(("label", "action"), [("Allow", "continue"), ("Deny", "deny"), ("Maybe", "deny")])
@pytest.mark.parametrize("race", [False, True])
async def test_in_their_kernel(label: str, action: str, race: bool) -> None:
    """The upstream kernel asks our backend, and follows the choice; an answer that was not offered allows nothing."""
    chooses = Chooses(label)
    backend = RacingApprovals(chooses) if race else chooses
    if race and label == "Maybe":
        backend = chooses
    assert (await through_their_kernel(backend)).action == action
    (request,) = chooses.asked
    assert (request.prompt, [option.label for option in request.options]) == ("Really?", ["Allow", "Deny"])


@pytest.mark.rule("APR-3", "APR-4")
@pytest.mark.parametrize("default", ["allow", "deny"])
async def test_time_is_up_in_their_kernel(default: str) -> None:
    """When no answer comes in time the upstream kernel gets its own timeout error, and its default holds."""
    result = await through_their_kernel(Chooses(None), approval_timeout=0.01, approval_default=default)
    assert result.action == ("continue" if default == "allow" else "deny")
    assert default == "allow" or "imeout" in result.reason


@pytest.mark.rule("APR-3", "APR-11")
async def test_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeout is ours, and the upstream one as well if its package is loaded."""
    with pytest.raises(ApprovalTimeout) as both:
        await Chooses(None).request_approval("Really?", ["Allow", "Deny"], 0.01, "deny")
    assert isinstance(both.value, ApprovalTimeoutError)
    monkeypatch.delitem(sys.modules, "amplifier_core.approval")
    with pytest.raises(ApprovalTimeout) as ours:
        await Chooses(None).request_approval("Really?", ["Allow", "Deny"], 0.01, "deny")
    assert not isinstance(ours.value, ApprovalTimeoutError)


@pytest.mark.rule("APR-3", "APR-6")
async def test_a_refusal_is_always_offered() -> None:
    """If the upstream options have no refusal, one is added; an answer that allows nothing becomes that refusal."""
    assert await Chooses("Maybe").request_approval("Really?", ["Allow"], 1.0, "deny") == "Deny"


@pytest.mark.rule("APR-3", "BCK-5")
async def test_decided_elsewhere(tmp_path: Path) -> None:
    """A question of the upstream kernel waits in a store like any other, and is over when it was answered."""
    async with DeferredApprovals(SqliteStore(tmp_path / "a.db")) as approvals:
        asking = asyncio.ensure_future(approvals.request_approval("Really?", ["Allow", "Deny"], 30.0, "deny"))
        with approvals.broker.watch() as watch:
            while not (waiting := await approvals.broker.pending(ROBIN)):
                await watch.wait(1)
        (record,) = waiting
        assert (await approvals.broker.decide(record.id, record.digest, "option-1", ROBIN)).accepted
        assert await asking == "Allow"
        settled = await approvals.broker.store.get(record.id)
        assert settled is not None
        assert settled.status == "done"


@pytest.mark.rule("APR-3")
async def test_cancelled() -> None:
    """Cancelling the question cancels the backend's."""
    backend = Chooses(None)
    asking = asyncio.ensure_future(backend.request_approval("Really?", ["Allow", "Deny"], 30.0, "deny"))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
