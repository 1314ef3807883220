"""One run of the path of an act: a session, its registry and rules, a broker over a faulty store, people and operators.

Every delay, fault and choice is drawn from the scheduler, so a seed replays the whole run. The invariants are checked
where the effect happens, and at the end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import simloom

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.foreign_code import DaemonPool
from amplifier_hooks.ports import ActionFacts, RuleVerdict
from amplifier_hooks.storage.database import StoreUnavailable
from approval_backends import Broker, MemoryStore, RacingApprovals
from approval_backends.lifecycle import Decider
from approval_backends.stores.approval_store import ClockReading

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

T0: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
DELAYS: Final = (0.0, 0.001, 0.01, 0.5, 1.0, 1.001, 2.0, 6.0)
FAULTY: Final = (
    "submit",
    "get",
    "answer",
    "move",
    "expire_due",
    "begin_session",
    "find_call",
    "grants_for",
    "mark_recorded",
)
ROBIN: Final = Decider(name="Robin", channel="simulation")
WORKERS: Final = 3

coverage: Counter[str] = Counter()
"""Ends of calls over all runs, to see that each end is reached."""


class Violation(AssertionError):
    """An invariant of the path was broken."""


def drawn(name: str, choices: tuple[Any, ...]) -> Any:
    """Return one of the choices."""
    return choices[simloom.draw(name, len(choices))]


class LoopClock:
    """The clock of the simulated loop."""

    def now(self) -> datetime:
        """Return the simulated time."""
        return T0 + timedelta(seconds=asyncio.get_running_loop().time())

    def reading(self) -> ClockReading:
        """Return the simulated time as a store reads it."""
        seconds = asyncio.get_running_loop().time()
        return ClockReading(T0 + timedelta(seconds=seconds), "boot-1", 1_000.0 + seconds)


class Policy:
    """The policy in force: it allows every act until an operator forbids them. Also the rules of the session."""

    def __init__(self) -> None:
        self.forbidden = False
        self.by_rule = False
        self.digest = "0"

    def judge(self, _facts: ActionFacts) -> RuleVerdict | None:
        """Deny, once the operator has read rules that deny."""
        return RuleVerdict(action="deny", rule="frozen", reason="") if self.by_rule else None


class FaultyStore(MemoryStore):
    """A memory store that yields before and after each step, fails, and loses acknowledgements."""

    def __init__(self, policy: Policy, clock: Callable[[], ClockReading]) -> None:
        super().__init__(clock=clock)
        self.policy = policy
        self.faults = 0
        self.claimed_under: dict[str, bool] = {}
        """By request: True if the policy forbade the act when its claim began."""


def yields_and_fails(name: str) -> Callable[..., Awaitable[Any]]:
    """Return a step of the store that yields, fails before its effect, or loses the acknowledgement after it."""
    step = getattr(MemoryStore, name)

    @wraps(step)
    async def faulty(self: FaultyStore, *args: Any, **options: Any) -> Any:
        if name == "move" and args[1:] and args[1] == "claim":
            self.claimed_under[args[0]] = self.policy.forbidden
        fault = simloom.draw("fault", 30)
        await asyncio.sleep(drawn("store", (0.0, 0.0, 0.001, 0.01, 0.5)))
        if fault == 0:
            self.faults += 1
            raise StoreUnavailable(f"{name} fails")
        result = await step(self, *args, **options)
        await asyncio.sleep(drawn("store", DELAYS[:3]))
        if fault == 1:
            self.faults += 1
            raise StoreUnavailable(f"the acknowledgement of {name} is lost")
        return result

    return faulty


for method in FAULTY:
    setattr(FaultyStore, method, yields_and_fails(method))


def submit_in_loop(_pool: DaemonPool, call: Any) -> None:
    """Call a function that belongs into a thread after a drawn delay, in the simulated loop."""
    asyncio.get_running_loop().call_later(drawn("thread", DELAYS[:4]), call.carry_out)


setattr(DaemonPool, "_submit", submit_in_loop)  # noqa: B010  a real thread runs outside the simulated time


class Scenario:
    """The parts of one run."""

    def __init__(self) -> None:
        self.clock, self.policy = LoopClock(), Policy()
        self.store = FaultyStore(self.policy, self.clock.reading)
        self.registry = HookRegistry()
        self.runs: Counter[str] = Counter()
        self.lasting = simloom.draw("lasting", 4) == 0
        """True if people may allow for good, so that a call may run again."""
        self.over = False
        self.broken: list[str] = []
        """Invariants that were broken; the session would take an exception of the tool for the tool's own."""
        self.registry.gate("tool:pre", self.ask, match="Write", name="guard")

    async def ask(self, _event: str, _data: Mapping[str, Any]) -> HookResult:
        """Ask about every call, after a while."""
        await asyncio.sleep(drawn("hook", DELAYS[:3]))
        options = ["Allow once", *(["Allow always"] if self.lasting else []), "Deny"]
        return HookResult.ask("Write?", options=options, timeout=8)

    async def call(self, session: SessionCoordinator, number: int) -> None:
        """Make one call, and make it again while it is pending."""
        call_id = f"call_{number % drawn('ids', (1, 1, 2))}"
        given = {"file_path": call_id if simloom.draw("same", 6) else str(number), "content": "x"}
        await asyncio.sleep(drawn("agent", (0.0, 0.0, 0.001, 1.0)))
        for _again in range(3):
            called = asyncio.ensure_future(
                session.call_tool("Write", given, self.write(call_id, given), call_id=call_id)
            )
            if simloom.draw("gives up", 6) == 0:
                asyncio.get_running_loop().call_later(drawn("gives up after", DELAYS), called.cancel)
            try:
                outcome = await called
            except asyncio.CancelledError:
                coverage["cancelled"] += 1
                continue
            coverage[outcome.status if not outcome.cause else outcome.cause] += 1
            if outcome.pending is None:
                break
            await asyncio.sleep(drawn("again", DELAYS))

    def write(self, call_id: str, given: dict[str, str]) -> Callable[[Any], str]:
        """Return the tool: the effect, and the invariants at its beginning."""

        def effect(arguments: Any) -> str:
            self.runs[call_id] += 1
            if arguments not in (given, {**given, "content": "edited"}):
                self.broken.append(f"{arguments} ran, and {given} was given")
            if self.runs[call_id] > 1 and not self.lasting:
                self.broken.append(f"{call_id} ran twice")
            mine = [one.id for one in self.store._visible_records() if one.request.call == call_id]
            if any(self.store.claimed_under.get(request) for request in mine):
                self.broken.append("an act ran that the policy forbade when its claim began")
            return "written"

        return effect

    async def operate(self) -> None:
        """Forbid every act: by a gate, by rules that are read again, or by an emergency stop."""
        await asyncio.sleep(drawn("operator", DELAYS))
        way = drawn("way", ("nothing", "nothing", "nothing", "gate", "rules", "stop"))
        if way == "gate":
            self.registry.gate("tool:pre", lambda _event, _data: HookResult.deny("frozen"), name="frozen")
        elif way == "rules":
            self.policy.by_rule, self.policy.digest = True, "1"
        elif way == "stop":
            self.registry.emergency_stop("frozen")
        self.policy.forbidden = way != "nothing"

    async def decide(self, broker: Broker) -> None:
        """Answer every question, in a drawn way and time."""
        while not self.over:
            await asyncio.sleep(0.05)
            with suppress(StoreUnavailable):
                for record in await broker.pending(ROBIN):
                    await asyncio.sleep(drawn("person", DELAYS))
                    option = drawn("answer", record.request.options)
                    edit = {**record.request.arguments, "content": "edited"} if simloom.draw("edit", 4) == 0 else None
                    arguments = edit if option.allows else None
                    await broker.decide(record.id, record.digest, option.id, ROBIN, arguments=arguments)

    async def run(self) -> None:
        """Run everything side by side, and check what is left."""
        async with Broker(self.store) as broker:
            session = SessionCoordinator(
                self.registry,
                session_id="s1",
                approvals=RacingApprovals(broker=broker),
                rules=self.policy,
                clock=self.clock,
                approval_wait=drawn("wait", (None, 1.0)),
            )
            people = asyncio.create_task(self.decide(broker))
            calls = asyncio.gather(*(self.call(session, number) for number in range(WORKERS)), self.operate())
            await asyncio.wait_for(calls, 600)
            self.over = True
            await people
            await session.end()
            if not self.store.faults:
                self.check_store()
            if self.broken:
                raise Violation("; ".join(self.broken))

    def check_store(self) -> None:
        """Note it if an approval is left that a later call could use."""
        left = [record for record in self.store._visible_records() if record.status in ("pending", "approved")]
        if left:
            self.broken.append(f"left behind: {[(record.id, record.status) for record in left]}")


async def scenario() -> None:
    """Run once."""
    await Scenario().run()
