"""The path of acts, walked at random beside a model: no effect without the consent of the policy in force.

Hooks, rules, people, the clock and the emergency stop change at the points of an act's way. The model has the policy as
plain sets, and says at the moment of each effect if the policy allows it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest
from attrs import define, evolve, frozen
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.act import Act, freeze
from amplifier_hooks.ports import ActionFacts, ApprovalRequest, Decision, RuleVerdict
from amplifier_hooks.testing import CollectingAudit, ManualClock, ScriptedApprover
from tests.conftest import THOROUGH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PATHS: Final = ("notes", "build", "secrets")
NAMES: Final = ("one", "two", "three")
RECORDS: Final = {
    "outcome": "judged",
    "approval.requested": "requested",
    "approval.decided": "decided",
    "tool.running": "running",
}
POINTS: Final = ("judged", "requested", "thinking", "decided", "granted", "running", "claim")

EVERY: Final = frozenset(PATHS)
NO_PATHS: Final[frozenset[str]] = frozenset()
few: Final = st.sampled_from([NO_PATHS, NO_PATHS, *(frozenset({path}) for path in PATHS)])
asked: Final = st.sampled_from([EVERY, EVERY, NO_PATHS, *(frozenset({path}) for path in PATHS)])
names: Final = st.sampled_from(NAMES)
gates: Final = st.tuples(st.just("gate"), names, few, asked)
changes: Final = st.one_of(
    gates,
    st.tuples(st.just("remove"), names),
    st.tuples(st.just("enable"), names, st.booleans()),
    st.tuples(st.just("rules"), few, few),
    st.sampled_from([("stop", True), ("require", True), ("require", False)]),
)
answers: Final = st.tuples(
    st.sampled_from(["Allow", "Allow", "Allow", "Allow always", "Deny", "late"]),
    st.sampled_from([None, None, None, *PATHS]),
)


@frozen
class Gate:
    """A gate that denies some paths, asks about others, and has a version."""

    denies: frozenset[str]
    asks: frozenset[str]
    version: str
    enabled: bool = True


@define
class Policy:
    """All that is in force: gates, rules, a required gate, the emergency stop. A `RulePolicy` and the model at once."""

    gates: dict[str, Gate]
    denies: frozenset[str] = frozenset()
    allows: frozenset[str] = frozenset()
    digest: str = "0"
    required: bool = False
    stopped: bool = False

    def judge(self, facts: ActionFacts) -> RuleVerdict | None:
        """Return the verdict of the rules."""
        path = facts.arguments.get("path")
        if path in self.denies:
            return RuleVerdict(action="deny", rule="denies")
        return RuleVerdict(action="allow", rule="allows", answers=("*",)) if path in self.allows else None

    def asking(self, path: str) -> set[tuple[str, str]]:
        """Return names and versions of the gates that ask about a path."""
        return {(name, gate.version) for name, gate in self.gates.items() if gate.enabled and path in gate.asks}

    def objects(self, path: str) -> bool:
        """Return True if any part denies a path, or no gate looks at it and one is required."""
        gates = [gate for gate in self.gates.values() if gate.enabled]
        unguarded = self.required and not gates
        return self.stopped or unguarded or path in self.denies or any(path in gate.denies for gate in gates)


class Points(CollectingAudit):
    """A record whose writes are points of an act's way."""

    def __init__(self, at: Callable[[str], None]) -> None:
        super().__init__()
        self.at = at

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append one record."""
        await super().write(kind, facts, durable=durable)
        self.at(RECORDS.get(kind, ""))


class Approver(ScriptedApprover):
    """An approver whose claims the machine counts."""

    def __init__(self, machine: AdmissionPath) -> None:
        super().__init__()
        self.machine = machine

    async def request(self, request: ApprovalRequest) -> Decision:
        """Answer as the machine has drawn."""
        self.requests.append(request)
        decision = await self.machine.think(request)
        self.note(request, decision)
        return decision

    async def claim(self, request_id: str, digest: str) -> bool:
        """Give out an approval, and tell the machine."""
        self.machine.at("claim")
        claimed = await super().claim(request_id, digest)
        if claimed:
            self.machine.note_claim(request_id, digest)
        return claimed


class AdmissionPath(RuleBasedStateMachine):
    """One session, whose policy changes while acts are on their way."""

    @initialize()
    def open(self) -> None:
        """Open the session."""
        self.loop = asyncio.new_event_loop()
        self.hooks, self.policy, self.clock = HookRegistry(), Policy({}), ManualClock()
        self.approver = Approver(self)
        self.number = 0
        self.undo: dict[str, Callable[[], object]] = {}
        self.changes: dict[str, list[tuple[Any, ...]]] = {}
        self.answers: list[Any] = []
        self.valid: dict[str, tuple[str, Any]] = {}
        """Requests that were allowed in time: the digest that was allowed, and the option's kind."""
        self.claimed: dict[int, set[tuple[str, str, str]]] = {}
        """Digest, hook and version of each answer that an act has claimed, by the act's number."""
        self.grants: set[tuple[str, str, str]] = set()
        """Hook, version and path of each "always"."""
        self.ran: list[tuple[int, str]] = []
        self.hooks.on("approval:granted", lambda event, data: self.at("granted"), name="granted")
        self.session = SessionCoordinator(
            self.hooks,
            session_id="s",
            approvals=self.approver,
            audit=Points(self.at),
            rules=self.policy,
            clock=self.clock,
            cwd="/",
        )
        self.change("gate", "one", NO_PATHS, EVERY)

    def teardown(self) -> None:
        """Close the session."""
        if hasattr(self, "loop"):
            self.loop.run_until_complete(self.session.close())
            self.loop.close()

    # -- changes -----------------------------------------------------------------------------------------------------

    def at(self, point: str) -> None:
        """Carry out the changes that were drawn for this point."""
        for change in self.changes.pop(point, ()):
            self.change(*change)

    def change(self, what: str, *about: Any) -> None:
        """Change the policy, and the model with it."""
        getattr(self, f"_{what}")(*about)

    def _gate(self, name: str, denies: frozenset[str], asks: frozenset[str]) -> None:
        self._remove(name)
        version = f"{sorted(denies)} {sorted(asks)}"

        def gate(event: str, data: Any) -> HookResult | None:
            path = data["tool_input"]["path"]
            if path in denies:
                return HookResult.deny("no")
            labels = ["Allow", "Allow always", "Deny"]
            return HookResult.ask(f"{name}?", options=labels, approval_key=path) if path in asks else None

        gate.hook_version = version  # type: ignore[attr-defined]
        self.hooks.gate("tool:pre", gate, name=name)
        self.policy.gates[name] = Gate(denies, asks, version)

    def _remove(self, name: str) -> None:
        self.hooks.unregister(name)
        self.policy.gates.pop(name, None)

    def _enable(self, name: str, enabled: bool) -> None:
        if name in self.policy.gates:
            (self.hooks.enable if enabled else self.hooks.disable)(name)
            self.policy.gates[name] = evolve(self.policy.gates[name], enabled=enabled)

    def _rules(self, denies: frozenset[str], allows: frozenset[str]) -> None:
        self.policy.denies, self.policy.allows = denies, allows
        self.policy.digest = str(int(self.policy.digest) + 1)

    def _stop(self, stopped: bool) -> None:
        self.undo.pop("stop", bool)()
        if stopped:
            self.undo["stop"] = self.hooks.emergency_stop("stop")
        self.policy.stopped = stopped

    def _require(self, required: bool) -> None:
        self.undo.pop("require", bool)()
        if required:
            self.undo["require"] = self.hooks.require("tool:pre")
        self.policy.required = required

    # -- people ------------------------------------------------------------------------------------------------------

    async def think(self, request: ApprovalRequest) -> Decision:
        """Answer as drawn: with a label, with another path, or too late."""
        kind, path = self.answers.pop(0) if self.answers else ("Allow", None)
        self.at("thinking")
        if kind == "late":
            self.clock.advance(1e6)
        label = kind if kind in ("Allow always", "Deny") else "Allow"
        option = next(one for one in request.options if one.label == label)
        edited = None if path is None else {**request.arguments, "path": path}
        if option.allows and kind != "late":
            arguments = dict(request.arguments) if edited is None else edited
            self.valid[request.id] = (self.digest_of(arguments), option.kind)
        return Decision(option=option.id, by="Robin", channel="test", arguments=edited)

    def note_claim(self, request_id: str, digest: str) -> None:
        """Keep the answers that an act has claimed."""
        allowed, kind = self.valid.pop(request_id, ("", ""))
        if digest != allowed:
            return  # the effect then lacks this answer
        request = next(one for one in self.approver.requests if one.id == request_id)
        keys = [(one.hook, one.version) for one in request.questions]
        self.claimed.setdefault(request.arguments["number"], set()).update((digest, *key) for key in keys)
        if kind == "allow_always":
            self.grants |= {(one.hook, one.version, one.key or "") for one in request.questions}

    def digest_of(self, arguments: Mapping[str, Any]) -> str:
        """Return the digest of an act of this session."""
        return Act("", "s", "tool:pre", "write", "/", freeze(dict(arguments))).digest

    # -- acts --------------------------------------------------------------------------------------------------------

    def effect(self, given: Mapping[str, Any]) -> str:
        """Have the effect, and hold it against the model."""
        path, number = given["path"], given["number"]
        assert not self.policy.objects(path), (path, self.policy)
        claimed, digest = self.claimed.pop(number, set()), self.digest_of(given)
        if path not in self.policy.allows:
            for hook, version in self.policy.asking(path):
                assert (digest, hook, version) in claimed or (hook, version, path) in self.grants, (hook, self.policy)
        assert all(one[0] == digest for one in claimed)
        self.ran.append((number, path))
        return "done"

    @rule(
        path=st.sampled_from(PATHS),
        changes=st.lists(st.tuples(st.sampled_from(POINTS), changes), min_size=1, max_size=3),
        answers=st.lists(answers, max_size=3),
    )
    def act_under_changes(self, path: str, changes: list[Any], answers: list[Any]) -> None:
        """Make an act while the policy changes; then lift the stop, and take back the rules."""
        for point, change in changes:
            if point != "claim" or change[0] == "stop":
                self.changes.setdefault(point, []).append(change)
        self.answers = answers
        self.run_act(path)
        self.change("stop", False)
        self.change("rules", NO_PATHS, NO_PATHS)

    @rule(path=st.sampled_from(PATHS), change=gates)
    def act_calmly(self, path: str, change: tuple[Any, ...]) -> None:
        """Change a gate, and make an act that runs exactly if no part of the policy objects."""
        self.change(*change)
        should = not self.policy.objects(path)
        self.run_act(path)
        assert ((self.number, path) in self.ran) == should, self.policy

    def run_act(self, path: str) -> None:
        """Call the tool, and wait until the call is over."""
        self.number += 1
        given = {"path": path, "number": self.number}
        before = len(self.ran)
        outcome = self.loop.run_until_complete(self.session.call_tool("write", given, self.effect))
        if outcome.error is not None:
            raise outcome.error
        assert len(self.ran) - before <= 1
        self.changes, self.answers = {}, []


TestAdmissionPath = pytest.mark.rule("COO-4", "APR-6", "APR-7", "BCK-6", "DSP-2")(AdmissionPath.TestCase)
TestAdmissionPath.settings = settings(stateful_step_count=20, max_examples=40 if THOROUGH else 15)
