"""Power cuts: data that the disk was not told to keep may be lost, kept, or torn, and no decision is, ever."""

from __future__ import annotations

import random
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Final

import pytest
from attrs import define, field

from amplifier_hooks.storage import sqlite
from approval_backends.lifecycle import RequestRecord
from approval_backends.stores.sqlite import SqliteStore
from approval_backends.testing import ALLOW, ALWAYS, DENY, MovableClock, a_request, an_answer
from tests.conftest import THOROUGH
from tests.powercut import FolderSync, Said, Sync, digest, image, images, put, recording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from amplifier_hooks.ports import ApprovalRequest, Option
    from tests.powercut import DiskLog, Image, Step

FILE: Final = "approvals.db"
KINDS: Final = {
    "pending": ("submitted",),
    "approved": ("submitted", "approve"),
    "claimed": ("submitted", "approve", "claim"),
    "done": ("submitted", "approve", "claim", "finish"),
    "denied": ("submitted", "deny"),
}
"""Steps of a request's life that each status implies."""
CLOCK: Final = MovableClock()
"""A clock that stands, so that only the first transaction keeps its reading."""
ANSWERS: Final = {"r1": ALLOW, "r2": DENY, "r3": ALWAYS}


@define
class Office:
    """A store with a client, and the promises made to that client: before each change, and after it."""

    store: SqliteStore
    log: DiskLog
    said: dict[str, list[str]] = field(factory=dict)

    async def ask(self, request: ApprovalRequest) -> None:
        """Submit the request."""
        await self._told(request, "pending", self.store.submit(request))

    async def answer(self, request: ApprovalRequest, option: Option) -> None:
        """Decide the request."""
        status = "approved" if option.allows else "denied"
        await self._told(request, status, self.store.answer(an_answer(request, option)))

    async def run(self, request: ApprovalRequest) -> None:
        """Claim the request, and settle it."""
        await self._told(request, "claimed", self.store.move(request.id, "claim", digest=request.digest))
        await self._told(request, "done", self.store.move(request.id, "finish"))

    async def _told(self, request: ApprovalRequest, status: str, change: Any) -> None:
        self.log.say(f"begun {request.id} {status}")
        record = await change
        assert isinstance(record, RequestRecord)
        assert record.status == status
        self.log.say(f"acknowledged {request.id} {status}")


async def a_day(path: Path, log: DiskLog) -> None:
    """Make the store, ask three times, and decide each time."""
    first, second, third = (a_request(id=name) for name in ANSWERS)
    async with SqliteStore(path, clock=CLOCK) as store:
        log.say("acknowledged the-store there")
        office = Office(store, log)
        await office.ask(first)
        await office.answer(first, ALLOW)
        await office.ask(second)
        await office.answer(second, DENY)
        await office.run(first)
    async with SqliteStore(path, clock=CLOCK) as store:
        office = Office(store, log)
        await office.ask(third)
        await office.answer(third, ALWAYS)


def told(steps: Sequence[Step]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the acknowledged state of each request, and the furthest possible one."""
    acknowledged: dict[str, int] = {}
    begun: dict[str, int] = {}
    for step in steps:
        if isinstance(step, Said):
            word, name, status = step.text.split()
            numbers = acknowledged if word == "acknowledged" else begun
            numbers[name] = len(KINDS.get(status, ()))
    return acknowledged, begun


async def holds(folder: Path, steps: Sequence[Step]) -> None:
    """Check that the store opens, and has for every request the acknowledged state, or the one just begun; no other."""
    acknowledged, begun = told(steps)
    if "the-store" not in acknowledged and not (folder / FILE).exists():
        return  # it was being made
    assert (folder / FILE).exists()
    async with SqliteStore(folder / FILE, clock=CLOCK) as store:
        claimed: list[str] = []
        for name, option in ANSWERS.items():
            record = await store.get(name)
            kinds = tuple(event.kind for event in await store.events(name))
            assert acknowledged.get(name, 0) <= len(kinds) <= begun.get(name, 0)
            if record is None:
                assert kinds == ()
                continue
            assert kinds == KINDS[record.status]
            assert record.digest == record.request.digest
            assert (None if record.decision is None else record.decision.option) == (option.id if kinds[1:] else None)
            claimed += [name] if "claim" in kinds and option is ALWAYS else []
        assert [grant.request for grant in await store.grants()] == claimed


def cuts(
    steps: Sequence[Step], chance: random.Random, mixtures: int, begin: int = 0
) -> Iterator[tuple[Sequence[Step], Image]]:
    """Yield every disk the power could leave, with the steps until then; each once.

    Right before a sync or an acknowledgement most is open; an earlier cut is one of the disks of such a moment.
    """
    seen = set()
    for end, step in enumerate([*steps, FolderSync()]):
        if end >= begin and isinstance(step, Sync | FolderSync | Said):
            for found in images(steps[:end], chance, mixtures):
                key = (digest(found), *map(str, told(steps[:end])))
                if key not in seen:
                    seen.add(key)
                    yield steps[:end], found


@pytest.fixture
async def day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Return the steps of the disk while a store was made and used."""
    folder = tmp_path / "day"
    folder.mkdir(mode=0o700)
    with recording(folder, monkeypatch) as log:
        await a_day(folder / FILE, log)
    assert image(log.steps) == {path.name: path.read_bytes() for path in folder.iterdir()}  # nothing went past us
    return log.steps


@pytest.mark.fault("F-ST-03")
@pytest.mark.rule("BCK-8")
@pytest.mark.parametrize("mixtures", [0, pytest.param(60, marks=pytest.mark.slow)])
async def test_power_cut(day: list[Step], mixtures: int, tmp_path: Path) -> None:
    """After a power cut at any moment the store opens, keeps the acknowledged changes, and invents no decision."""
    chance, number = random.Random(mixtures), count()
    step = 1 if THOROUGH or mixtures else 3
    for steps, found in islice(cuts(day, chance, mixtures), 0, None, step):
        folder = tmp_path / f"{next(number)}"
        put(found, folder)
        await holds(folder, steps)
    assert next(number) > 200 / step


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.fault("F-ST-03")
@pytest.mark.rule("BCK-8")
async def test_power_cut_while_recovering(day: list[Step], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second power cut, during the recovery from the first, changes nothing about that."""
    chance, number = random.Random(7), count()
    for steps, found in cuts(day, chance, 2):
        if not found.get(f"{FILE}-journal"):
            continue
        folder = tmp_path / f"{next(number)}"
        put(found, folder)
        with recording(folder, monkeypatch, found) as log:
            await holds(folder, steps)
        for _, again in cuts(log.steps, chance, 2, log.begun):
            other = tmp_path / f"{next(number)}"
            put(again, other)
            await holds(other, steps)
    assert next(number) > 200


@pytest.mark.fault("F-ST-03")
async def test_unsynced_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not sync does not hold: the cuts find the losses they are there to find."""
    settings = tuple(one.replace("= FULL", "= OFF") for one in sqlite.SETTINGS)
    monkeypatch.setattr(sqlite, "SETTINGS", settings)
    (tmp_path / "day").mkdir(mode=0o700)
    with recording(tmp_path / "day", monkeypatch) as log:
        await a_day(tmp_path / "day" / FILE, log)
    for number, (steps, found) in enumerate(cuts(log.steps, random.Random(1), 2)):
        folder = tmp_path / f"{number}"
        put(found, folder)
        try:
            await holds(folder, steps)
        except Exception:  # noqa: BLE001  # a decision that is gone, or a file that cannot be read
            return
    pytest.fail("no cut was noticed")
