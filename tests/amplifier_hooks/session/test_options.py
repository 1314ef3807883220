"""Objects with the upstream kernel's four-argument method, as a session's approver."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from amplifier_core.approval import ApprovalTimeoutError  # type: ignore[import-untyped]

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.testing import CollectingAudit


class TheirApprover:
    """Answers with one thing, or raises it; keeps what it was asked, and by which thread."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, ...]] = []
        self.thread = 0

    def answered(self, *arguments: Any) -> Any:
        """The answer."""
        self.asked.append(arguments)
        self.thread = threading.get_ident()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Plain(TheirApprover):
    """Has the method as a plain function."""

    def request_approval(self, prompt: str, options: list[str], timeout: float, default: str) -> Any:
        """Answer."""
        return self.answered(prompt, options, timeout, default)


class Async(TheirApprover):
    """Has the method as a coroutine function."""

    async def request_approval(self, prompt: str, options: list[str], timeout: float, default: str) -> Any:
        """Answer, a little later."""
        await asyncio.sleep(0)
        return self.answered(prompt, options, timeout, default)


class Desk:
    """A session with such an approver, and a gate that asks."""

    def __init__(self, approver: Any, **asks: Any) -> None:
        self.audit, self.ran, registry = CollectingAudit(), list[Any](), HookRegistry()
        given: dict[str, Any] = {"options": ["Allow once", "Allow always", "Deny"], "timeout": 60.0, **asks}
        registry.gate("tool:pre", lambda event, data: HookResult.ask("Really?", **given), name="guard")
        self.session = SessionCoordinator(hooks=registry, approvals=approver, audit=self.audit)

    async def write(self) -> str:
        """Call a tool; return the end of the request."""
        await self.session.call_tool("Write", {"path": "a"}, self.ran.append)
        return str(self.audit.facts("approval.decided")[-1]["status"])


@pytest.mark.rule("APR-3")
@pytest.mark.parametrize("kind", [Plain, Async])
async def test_allowed_and_denied(kind: type[Any]) -> None:
    """The method is called with its four arguments, a plain one in a thread; the label is the answer."""
    for label, status in (("Allow once", "approved"), ("Deny", "denied")):
        theirs = kind(label)
        desk = Desk(theirs)
        assert await desk.write() == status
        assert theirs.asked == [("Really?", ["Allow once", "Allow always", "Deny"], 60.0, "deny")]
        assert (theirs.thread == threading.get_ident()) is (kind is Async)
        assert len(desk.ran) == (status == "approved")


@pytest.mark.rule("APR-3")
async def test_called_by_keyword() -> None:
    """A method that takes the four names gets them by keyword, in whatever order, and also if it takes no others."""
    asked: list[dict[str, Any]] = []

    class Named:
        def request_approval(self, default: str, timeout: float, options: list[str], prompt: str) -> str:
            asked.append({"prompt": prompt, "options": options, "timeout": timeout, "default": default})
            return "Allow once"

    class Anything:
        async def request_approval(self, **given: Any) -> str:
            asked.append(given)
            return "Allow once"

    for theirs in (Named(), Anything()):
        assert await Desk(theirs).write() == "approved"
    given = {"prompt": "Really?", "options": ["Allow once", "Allow always", "Deny"], "timeout": 60.0, "default": "deny"}
    assert asked == [given, given]


@pytest.mark.rule("APR-11")
@pytest.mark.parametrize(
    ("options", "answer", "status"),
    [
        (None, "Allow once", "approved"),
        (None, "Allow", "approved"),
        (None, "allow once", "unavailable"),
        (None, "Allow always", "unavailable"),
        (["Allow", "Deny", "Later"], "Allow once", "unavailable"),
        (["Deny", "Allow"], "Allow once", "unavailable"),
    ],
)
async def test_allow_once_to_the_default_options(options: list[str] | None, answer: str, status: str) -> None:
    """The label "Allow once" answers the default options, and no others that do not offer it."""
    desk = Desk(Plain(answer), options=options)
    assert await desk.write() == status
    assert len(desk.ran) == (status == "approved")


@pytest.mark.rule("APR-3", "APR-5")
async def test_always_is_remembered() -> None:
    """A label for "always" is remembered as a grant: the approver is asked once."""
    theirs = Async("Allow always")
    desk = Desk(theirs)
    assert [await desk.write(), await desk.write()] == ["approved", "approved"]
    assert (len(theirs.asked), len(desk.ran)) == (1, 2)


@pytest.mark.rule("APR-3", "APR-6", "APR-11")
@pytest.mark.parametrize("kind", [Plain, Async])
@pytest.mark.parametrize("answer", ["allow once", "Allow", "", None, True, ["Deny"], TimeoutError("net"), OSError("x")])
async def test_what_is_no_answer(kind: type[Any], answer: Any) -> None:
    """A value that is not exactly one of the labels, and any error, neither permits nor refuses."""
    desk = Desk(kind(answer), default="allow")
    assert await desk.write() == "unavailable"
    assert desk.ran == []


@pytest.mark.rule("APR-4", "APR-11")
@pytest.mark.parametrize("default", ["allow", "deny"])
async def test_their_timeout(default: str) -> None:
    """The upstream timeout error is a timeout, and the default holds."""
    desk = Desk(Plain(ApprovalTimeoutError("too late")), default=default)
    assert await desk.write() == "expired"
    assert len(desk.ran) == (default == "allow")


@pytest.mark.rule("APR-4")
async def test_they_hang() -> None:
    """The session's deadline holds for an approver that hangs, whether it looks at the clock or not."""
    free = threading.Event()

    class Hangs:
        def request_approval(self, **_arguments: Any) -> str:
            free.wait()
            return "Allow once"

    desk = Desk(Hangs(), timeout=0.01)
    assert await desk.write() == "expired"
    free.set()
    assert desk.ran == []
