"""The scene of an attack: a session with an approver, a record, rules and a clock, and one entry point of acts.

An attack strikes at a point between the question and the effect. A scene that is not armed strikes nowhere, and is the
attack's control.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from amplifier_hooks import HookRegistry, HookResult, SelfProtection, SessionCoordinator
from amplifier_hooks.act import freeze
from amplifier_hooks.clock import SystemClock
from amplifier_hooks.errors import HookError
from amplifier_hooks.ports import ActionFacts, ApprovalRequest, Decision, RuleVerdict
from amplifier_hooks.testing import CollectingAudit, ManualClock, ScriptedApprover
from approval_backends.backend import DeferredApprovals
from approval_backends.lifecycle import Decider
from approval_backends.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from tests.conformance.entries import Entry

__all__ = ["POINTS", "ROBIN", "Scene", "opened"]

POINTS: Final = ("requested", "thinking", "decided", "granted", "second look", "running", "claim")
"""The points at which a scene can be struck, in the order in which an approved act passes them."""
RECORDS: Final = {"approval.requested": "requested", "approval.decided": "decided"}
ROBIN: Final = Decider(name="Robin", channel="test")


class Policy:
    """Rules in code that allow everything to be asked, until they are reloaded to deny."""

    def __init__(self) -> None:
        self.digest = "as it was"

    def reload(self) -> None:
        """Deny from now on."""
        self.digest = "reloaded"

    def judge(self, facts: ActionFacts) -> RuleVerdict | None:  # a policy's
        """Return the denial, once reloaded."""
        return None if self.digest == "as it was" else RuleVerdict(action="deny", rule="late", reason="reloaded")


class Record(CollectingAudit):
    """A record whose writes are points of the scene."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = scene

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append one record, then strike."""
        await super().write(kind, facts, durable=durable)
        await self.scene.strike("running" if kind.endswith(".running") else RECORDS.get(kind, ""))


class Approver(ScriptedApprover):
    """An approver who thinks in the scene, and whose claims are a point of it."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(*[scene.think] * 9)
        self.scene = scene

    async def claim(self, request_id: str, digest: str) -> bool:
        """Strike, then give out the approval."""
        await self.scene.strike("claim")
        return await super().claim(request_id, digest)


@define(eq=False)
class Scene:
    """One entry point, and everything around it."""

    entry: Entry
    folder: Path
    armed: bool
    durable: bool = False
    hooks: HookRegistry = field(factory=HookRegistry)
    policy: Policy = field(factory=Policy)
    clock: ManualClock = field(factory=ManualClock)
    audit: Record = field(init=False)
    approver: Any = field(init=False)
    session: SessionCoordinator = field(init=False)
    ran: list[Any] = field(factory=list)
    """Arguments with which the effect happened, in order."""
    allowed: list[Any] = field(factory=list)
    """Arguments that the approver was shown and allowed, in order, as they were shown."""
    strikes: dict[str, Callable[[], Awaitable[object] | object]] = field(factory=dict)
    struck: bool = False
    answers: int = 1
    """Number of questions that the approver answers."""
    label: str = "Allow"
    edit: Mapping[str, Any] | None = None
    """Arguments that the approver writes in place of those shown."""
    scope: Any = "prompt"
    questions: int = 0

    def __attrs_post_init__(self) -> None:
        self.audit = Record(self)
        self.approver = DeferredApprovals(SqliteStore(self.folder / "approvals.db")) if self.durable else Approver(self)

    @property
    def tools(self) -> dict[str, Any]:
        """Tools of a session of this scene."""
        return {"write": self.run, "other": self.run}

    @property
    def options(self) -> dict[str, Any]:
        """Options of a session of this scene."""
        return {
            "approvals": self.approver,
            "audit": self.audit,
            "rules": self.policy,
            "self_protection": SelfProtection(paths=(self.folder / "guard",)),
            "clock": SystemClock() if self.durable else self.clock,
        }

    @property
    def given(self) -> dict[str, Any]:
        """Fresh arguments of the act."""
        return {"path": "notes", "text": "hello"}

    @property
    def other(self) -> dict[str, Any]:
        """Fresh arguments of another act."""
        return {"path": "secrets", "text": "hello"}

    @property
    def causes(self) -> list[str]:
        """Causes of the denials on record."""
        return [one.facts.get("cause", "") for one in self.audit.records if one.kind.endswith(".denied")]

    # -- the parts ---------------------------------------------------------------------------------------------------

    def add_gate(self) -> None:
        """Register the gate that asks. Its second look at an act is a point of the scene."""

        async def asker(event: str, data: Any) -> HookResult:
            self.questions += 1
            if self.questions == 2:
                await self.strike("second look")
            return HookResult.ask("Really?", options=["Allow", "Allow always", "Deny"], scope=self.scope)

        asker.hook_version = "1"  # type: ignore[attr-defined]  # its counter is no part of it
        self.hooks.gate(self.entry.event, asker, name="asker")

        async def granted(event: str, data: Any) -> None:
            await self.strike("granted")

        self.hooks.on("approval:granted", granted, name="granted")

    async def think(self, request: ApprovalRequest) -> Decision:
        """Answer as the approver."""
        if self.answers == 0:
            raise HookError("the approver has gone home")
        self.answers -= 1
        self.note_allowed(request)
        await self.strike("thinking")
        option = next(one.id for one in request.options if one.label == self.label)
        return Decision(option=option, by="Robin", channel="test", arguments=self.edit if self.armed else None)

    def note_allowed(self, request: ApprovalRequest) -> None:
        """Keep the arguments that a request shows."""
        self.allowed.append(self.entry.arguments_of(json.loads(freeze(dict(request.arguments)))))

    async def strike(self, point: str) -> None:
        """Carry out the strike at this point, once, if the scene is armed."""
        action = self.strikes.pop(point, None) if self.armed else None
        if action is not None:
            self.struck = True
            made = action()
            if hasattr(made, "__await__"):
                await made

    def run(self, given: Any, *_more: Any) -> str:
        """Have the effect."""
        self.ran.append(json.loads(json.dumps(given)))
        return "done"

    async def act(self, given: Any = None, **about: Any) -> None:
        """Make the act through the entry point."""
        await self.entry.act(self, self.given if given is None else given, **about)

    def open_session(self) -> None:
        """Begin the session as a program does that begins now."""
        wait = 0.0 if self.durable else None
        self.session = SessionCoordinator(
            self.hooks, session_id="s", tools=self.tools, cwd=self.folder, approval_wait=wait, **self.options
        )

    async def begin_again(self) -> None:
        """End the program, which leaves its open questions behind, and begin it again."""
        await self.entry.close()
        await self.session.close()
        self.open_session()

    async def decide_pending(self, label: str = "Allow") -> None:
        """Answer the one open question of a durable backend."""
        (record,) = await self.approver.broker.pending(ROBIN)
        self.note_allowed(record.request)
        option = next(one.id for one in record.request.options if one.label == label)
        assert (await self.approver.broker.decide(record.request.id, record.request.digest, option, ROBIN)).accepted


@asynccontextmanager
async def opened(entry: Entry, folder: Path, *, armed: bool, durable: bool = False) -> AsyncIterator[Scene]:
    """Open a scene, and close its session at the end."""
    scene = Scene(entry, folder, armed, durable)
    if durable:
        await scene.approver.open()
    scene.open_session()
    session = scene.session  # an attack may put another in its place
    try:
        yield scene
    finally:
        await entry.close()
        for one in {session, scene.session}:
            await one.close()
        if durable:
            await scene.approver.close()
