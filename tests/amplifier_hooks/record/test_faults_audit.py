"""Disks that fail, power cuts, torn and damaged files: acknowledged records survive, and the log states the damage."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.record.log_files import AuditKey, file_of, numbers_of
from amplifier_hooks.record.record_errors import LogUnavailable
from amplifier_hooks.record.writer import WriteSchedule
from tests.conftest import THOROUGH
from tests.disk import FAULTS, FaultyFiles
from tests.records import entries, facts, kinds

if TYPE_CHECKING:
    from pathlib import Path

KEY = AuditKey(b"\x07" * 32)
OFTEN = WriteSchedule(lines=3, segment=1_500, retry=0)
"""A schedule with frequent checkpoints and segments, and immediate retries."""


def opened(path: Path, **options: Any) -> AuditLog:
    """Open a log with this test's key."""
    return AuditLog.open(path, key=KEY, **{"pace": OFTEN, **options})


async def scenario(path: Path, files: FaultyFiles) -> list[int]:
    """Open, write with and without waiting, begin new segments, close, open again; return the acknowledged numbers."""
    acknowledged: list[int] = []
    number = 0
    for _ in range(2):
        try:
            log = opened(path, files=files)
        except OSError:
            continue
        for _ in range(4):
            number += 1
            with suppress(OSError):
                await log.write("decision", {"number": number, "text": "x" * 100}, durable=True)
                acknowledged.append(number)
            with suppress(OSError):
                await log.write("note", {"number": number})
        with suppress(OSError):
            await log.close()
    return acknowledged


def decisions(path: Path) -> list[int]:
    """Return the numbers of the recorded decisions."""
    return [fact["number"] for fact in facts(path, "decision")]


# -- the disk fails ----------------------------------------------------------------------------------------------------


async def calls_of_scenario(path: Path) -> list[str]:
    """Return the scenario's calls of the file system on a healthy disk."""
    files = FaultyFiles()
    assert await scenario(path, files) == list(range(1, 9))
    return files.calls


@pytest.mark.rule("AUD-3", "AUD-5")
@pytest.mark.fault("F-AUD-07", "F-AUD-08", "F-AUD-13")
@pytest.mark.parametrize(("times", "error"), [(1, "interrupted"), (2, "broken"), (1_000_000, "full")])
async def test_fails_at_every_call(tmp_path: Path, times: int, error: str) -> None:
    """Whichever call fails, once or for ever, acknowledged records are in a log that holds, each once."""
    count = len(await calls_of_scenario(tmp_path / "well.jsonl"))
    assert count > 30
    ways = sorted(FAULTS)  # every day, each call fails in one of the ways
    for first in range(1, count + 1) if THOROUGH else range(1 + ways.index(error), count + 1, len(ways)):
        path = tmp_path / f"{first}.jsonl"
        files = FaultyFiles(first, FAULTS[error], times=times)
        acknowledged = await scenario(path, files)
        files.armed = False
        log = opened(path)
        await log.write("decision", {"number": 100}, durable=True)
        await log.close()
        found = decisions(path)
        assert found == sorted(set(found)), f"call {first}, {files.calls[first - 1]}"
        assert set(found) >= {*acknowledged, 100}, f"call {first}, {files.calls[first - 1]}"
        assert kinds(path)[-2:] == ["log.closed", "log.checkpoint"]


@pytest.mark.rule("AUD-5")
async def test_short_writes(tmp_path: Path) -> None:
    """A disk that takes a third of the given bytes each time gets all of them."""
    files = FaultyFiles()
    files.short = True
    assert await scenario(tmp_path / "record.jsonl", files) == list(range(1, 9))
    assert decisions(tmp_path / "record.jsonl") == list(range(1, 9))


@pytest.mark.rule("AUD-3")
@pytest.mark.fault("F-AUD-08")
async def test_sync_fails_once(tmp_path: Path) -> None:
    """A failed sync refuses all records since the last one; the next record begins a segment that counts them."""
    files = FaultyFiles(2, errno.EIO, only=("sync",))  # the sync of the first line succeeds
    log = opened(tmp_path / "record.jsonl", files=files, pace=WriteSchedule(retry=0))
    length = (tmp_path / "record.jsonl").stat().st_size
    await log.write("note", {})
    with pytest.raises(LogUnavailable, match="Input/output error"):
        await log.write("decision", {"number": 2}, durable=True)
    await log.write("decision", {"number": 3}, durable=True)
    await log.close()
    assert decisions(tmp_path / "record.jsonl") == [3]
    first = entries(tmp_path / "record.jsonl")[1]
    assert first.facts["segment"] == 2
    assert first.facts["left"] == {
        "why": "failure",
        "bytes": length,
        "error": "OSError: [Errno 5] Input/output error: 'sync'",
    }
    assert facts(tmp_path / "record.jsonl", "log.lost") == [{"records": 2}]
    assert (tmp_path / "record.jsonl").read_bytes()[length:].count(b'"number":2') == 1


@pytest.mark.rule("AUD-3")
@pytest.mark.fault("F-AUD-08")
async def test_nothing_moves_while_a_write_fails(tmp_path: Path) -> None:
    """A write that fails creates no segment: no record, no service."""
    files = FaultyFiles(error=errno.EIO, times=1_000_000, only=("write",))
    log = opened(tmp_path / "record.jsonl", files=files, pace=WriteSchedule(retry=0))
    files.first = len(files.calls) + 1
    with pytest.raises(LogUnavailable, match="Input/output error"):
        await log.write("decision", {}, durable=True)
    assert numbers_of(tmp_path / "record.jsonl") == [1]
    files.first = 0
    await log.close()


@pytest.mark.rule("AUD-3")
@pytest.mark.fault("F-AUD-07")
async def test_full_disk_denies(tmp_path: Path) -> None:
    """While the disk is full, gates deny as `audit_unavailable`; with space again, the log counts what it lost."""
    files = FaultyFiles(error=errno.ENOSPC, times=1_000_000, only=("write", "make"))
    registry = HookRegistry()
    ran: list[Any] = []

    @registry.gate("tool:pre")
    async def watch(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult.deny("no") if data["tool_input"].get("bad") else HookResult.proceed()

    async with (
        opened(tmp_path / "record.jsonl", files=files, pace=WriteSchedule(retry=0)) as log,
        SessionCoordinator(registry, session_id="s1", audit=log) as session,
    ):
        assert (await session.call_tool("Write", {"n": 1}, ran.append)).ok
        files.first = len(files.calls) + 1
        for _ in range(3):
            refused = await session.call_tool("Write", {"n": 2}, ran.append)
            assert refused.denied
            assert "audit_unavailable" in (refused.reason or "")
        files.first = 0
        assert (await session.call_tool("Write", {"n": 3}, ran.append)).ok
    assert ran == [{"n": 1}, {"n": 3}]
    found = kinds(tmp_path / "record.jsonl")
    assert found.count("tool.running") == 2
    assert found.count("log.lost") == 1
    assert facts(tmp_path / "record.jsonl", "log.lost")[0]["records"] >= 3
    assert facts(tmp_path / "record.jsonl", "segment.opened")[-1]["left"]["why"] == "failure"


@pytest.mark.rule("AUD-3")
@pytest.mark.fault("F-AUD-07")
async def test_not_tried_too_often(tmp_path: Path) -> None:
    """A failing disk gets a pause, and records of that time are refused at once."""
    files = FaultyFiles(error=errno.ENOSPC, times=1_000_000)
    log = opened(tmp_path / "record.jsonl", files=files, pace=WriteSchedule(retry=1_000))
    files.first = len(files.calls) + 1
    for _ in range(5):
        with pytest.raises(LogUnavailable, match="No space left"):
            await log.write("note", {}, durable=True)
    with pytest.raises(LogUnavailable, match="No space left"):
        await log.write("note", {})
    assert len(files.calls) - files.first < 8
    files.first = 0
    await log.close()
    assert kinds(tmp_path / "record.jsonl")[-2:] == ["log.closed", "log.checkpoint"]


@pytest.mark.rule("AUD-3")
async def test_closing_fails(tmp_path: Path) -> None:
    """A log that cannot be closed raises, and still releases its lock."""
    files = FaultyFiles(error=errno.EIO, times=1_000_000)
    log = opened(tmp_path / "record.jsonl", files=files, pace=WriteSchedule())
    files.first = len(files.calls) + 1
    with pytest.raises(LogUnavailable, match="Input/output error"):
        await log.close()
    await opened(tmp_path / "record.jsonl", pace=WriteSchedule()).close()
    assert kinds(tmp_path / "record.jsonl") == [
        "segment.opened",
        "log.closed",
        "log.recovered",
        "log.resumed",
        "log.closed",
        "log.checkpoint",
    ]
    assert facts(tmp_path / "record.jsonl", "log.resumed") == [{"closed": False, "size": 2}]


# -- the power fails ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("AUD-5")
@pytest.mark.fault("F-AUD-04", "F-AUD-13")
@pytest.mark.parametrize("seed", range(12))
async def test_power_cut(tmp_path: Path, seed: int) -> None:
    """After power cuts, in which unsynced bytes and names are lost, all acknowledged records are there."""
    count = len(await calls_of_scenario(tmp_path / "well.jsonl"))
    chance = random.Random(seed)  # not for secrets
    path = tmp_path / "record.jsonl"
    acknowledged: list[int] = []
    files = FaultyFiles(error=errno.EIO, times=1_000_000)
    for _ in range(8):
        files.restart(chance.randint(1, count))
        acknowledged += await scenario_from(path, files, len(acknowledged))
        if chance.randrange(2):  # else the writer dies, and the next one finds all that it wrote
            files.power_cut(chance)
    files.power_cut(chance)
    log = opened(path)
    await log.close()
    assert set(decisions(path)) >= set(acknowledged)


@pytest.mark.rule("AUD-5")
@pytest.mark.fault("F-AUD-13")
@pytest.mark.parametrize("names", [1, 2])
async def test_power_cut_after_a_folder_was_not_synced(tmp_path: Path, names: int) -> None:
    """A writer that died before the name of a segment was durable leaves that to the next one."""
    path, files = tmp_path / "record.jsonl", FaultyFiles(names, errno.EIO, times=1_000_000, only=("sync_folder",))
    with suppress(OSError):
        log = opened(path, files=files)
        while numbers_of(path) == [1]:
            with suppress(LogUnavailable):
                await log.write("decision", {"number": 1, "text": "x" * 500}, durable=True)
        with suppress(OSError):
            await log.close()
    assert files.unsynced_names
    files.restart(0)
    log = opened(path, files=files)
    await log.write("decision", {"number": 2}, durable=True)
    assert files.unsynced_names == set()
    await log.close()


async def scenario_from(path: Path, files: FaultyFiles, start: int) -> list[int]:
    """Write numbered decisions, and return those that were acknowledged; stop at the first that was not."""
    acknowledged: list[int] = []
    with suppress(OSError):
        log = opened(path, files=files)
        try:
            for number in range(start * 100 + 1, start * 100 + 9):
                await log.write("note", {"text": "y" * 150})
                await log.write("decision", {"number": number}, durable=True)
                acknowledged.append(number)
        finally:
            await log.close()
    return acknowledged


# -- what a writer finds -----------------------------------------------------------------------------------------------


async def a_log(path: Path, **options: Any) -> bytes:
    """Write a log with three records that is not closed, as after its writer's death, and return its bytes."""
    log = opened(path, **{"pace": WriteSchedule(), **options})
    for number in (1, 2, 3):
        await log.write("decision", {"number": number, "text": "é\n"}, durable=True)
    data = path.read_bytes()  # noqa: ASYNC240  # a small file
    await log.close()
    path.write_bytes(data)  # noqa: ASYNC240  # see above
    return data


@pytest.mark.rule("AUD-5")
@pytest.mark.fault("F-AUD-04")
@pytest.mark.parametrize(
    "tail",
    [b"{", b'{"seq":5,"time":"2026', b'{"seq":5,"x":"\xc3', b"\0" * 4_096, b"x" * 100_000],
    ids=["one byte", "half a line", "half a character", "NULs", "longer than a line"],
)
async def test_torn_tail(tmp_path: Path, tail: bytes) -> None:
    """A line without an end is cut off, and the next line states its length and its hash."""
    path = tmp_path / "record.jsonl"
    data = await a_log(path)
    path.write_bytes(data + tail)
    await opened(path, pace=WriteSchedule()).close()
    assert path.read_bytes().startswith(data)
    assert kinds(path)[4:] == ["log.recovered", "log.resumed", "log.closed", "log.checkpoint"]
    assert facts(path, "log.recovered") == [{"bytes": len(tail), "digest": hashlib.sha256(tail).hexdigest()}]
    assert facts(path, "log.resumed") == [{"closed": False, "size": 4}]
    assert decisions(path) == [1, 2, 3]


@pytest.mark.rule("AUD-5")
@pytest.mark.fault("F-AUD-04")
async def test_torn_everywhere(tmp_path: Path) -> None:
    """Wherever a log was cut off, the next writer continues after its whole lines."""
    data = await a_log(tmp_path / "whole.jsonl")
    ends = [place for place in range(len(data) + 1) if data[:place].endswith(b"\n")]
    for place in range(0, len(data) + 1, 7):
        path = tmp_path / f"{place}.jsonl"
        path.touch(0o600)
        path.write_bytes(data[:place])
        await opened(path).close()
        whole = sum(end <= place for end in ends)
        assert len(decisions(path)) == max(0, whole - 1)
        assert ("log.recovered" in kinds(path)) == (place not in (0, *ends))


@pytest.mark.rule("AUD-5")
@pytest.mark.fault("F-AUD-05")
@pytest.mark.parametrize("line", [1, 2, 3])
async def test_damaged_line(tmp_path: Path, line: int) -> None:
    """No writer continues after a complete but wrong line: a new segment begins, and names the rest."""
    path = tmp_path / "record.jsonl"
    data = await a_log(path)
    lines = data.splitlines(keepends=True)
    good = b"".join(lines[:line])
    damaged = good + lines[line].replace(b'"number":', b'"number":1') + b"".join(lines[line + 1 :])
    path.write_bytes(damaged)
    log = opened(path)
    await log.write("decision", {"number": 9}, durable=True)
    await log.close()
    assert path.read_bytes() == damaged
    assert decisions(path) == [*range(1, line), 9]
    rest = damaged[len(good) :]
    assert facts(path, "segment.opened")[1]["left"] == {
        "why": "damage",
        "bytes": len(good),
        "dropped": len(rest),
        "digest": hashlib.sha256(rest).hexdigest(),
    }


@pytest.mark.rule("AUD-2", "AUD-5")
async def test_other_key(tmp_path: Path) -> None:
    """With another key the log continues in a segment with that key."""
    path = tmp_path / "record.jsonl"
    data = await a_log(path)
    log = AuditLog.open(path)
    await log.write("decision", {"number": 4}, durable=True)
    await log.close()
    assert path.read_bytes() == data
    assert decisions(path) == [1, 2, 3, 4]
    keys = [fact["key"].rpartition("+")[2] for fact in facts(path, "segment.opened")]
    assert len(set(keys)) == 2
    assert facts(path, "segment.opened")[1]["left"] == {"why": "key", "bytes": len(data)}


@pytest.mark.rule("AUD-5")
@pytest.mark.fault("F-AUD-13")
async def test_segments(tmp_path: Path) -> None:
    """A growing log continues in new files, with numbers in their names and one chain over all of them."""
    path = tmp_path / "record.jsonl"
    log = opened(path)
    for number in range(20):
        await log.write("decision", {"number": number, "text": "x" * 200}, durable=True)
    await log.close()
    numbers = numbers_of(path)
    assert len(numbers) > 3
    assert file_of(path, 2).name == "record.000002.jsonl"
    assert decisions(path) == list(range(20))
    assert facts(path, "segment.closed") == [{"next": number} for number in numbers[1:]]
    assert not any("left" in fact for fact in facts(path, "segment.opened"))


@pytest.mark.rule("AUD-5")
@pytest.mark.fault("F-AUD-13")
@pytest.mark.parametrize("cut", ["after the checkpoint", "before the checkpoint", "in the checkpoint", "in the close"])
async def test_cut_while_turning(tmp_path: Path, cut: str) -> None:
    """A crash between the old segment and the new one leaves one segment that is written, and one chain."""
    path = tmp_path / "record.jsonl"
    log = opened(path)
    while numbers_of(path) == [1]:
        await log.write("decision", {"number": 1, "text": "x" * 500}, durable=True)
    await log.close()
    for number in numbers_of(path)[1:]:
        file_of(path, number).unlink()
    data = path.read_bytes()
    closed = data.rindex(b'{"seq":', 0, data.index(b'"kind":"segment.closed"'))
    end = data.index(b"\n", closed) + 1
    path.write_bytes(
        data[
            : {
                "after the checkpoint": len(data),
                "before the checkpoint": end,
                "in the checkpoint": end + 20,
                "in the close": closed + 20,
            }[cut]
        ]
    )
    log = opened(path, pace=WriteSchedule())
    await log.write("decision", {"number": 2}, durable=True)
    await log.close()
    found = entries(path)
    assert [entry.facts["number"] for entry in found if entry.kind == "decision"][-1] == 2
    assert numbers_of(path) == ([1, 2] if cut == "after the checkpoint" else [1])
    assert not any("left" in entry.facts for entry in found)


@pytest.mark.rule("AUD-5")
async def test_empty_segment(tmp_path: Path) -> None:
    """A new segment without a whole first line begins anew, and continues the one before."""
    path = tmp_path / "record.jsonl"
    log = opened(path)
    while numbers_of(path) == [1]:
        await log.write("decision", {"number": 1, "text": "x" * 500}, durable=True)
    await log.close()
    last = file_of(path, numbers_of(path)[-1])
    for contents in (b"", last.read_bytes()[:40]):
        last.write_bytes(contents)
        await opened(path).close()
        assert ("log.recovered" in kinds(path)) == bool(contents)


async def test_loop_that_is_gone(tmp_path: Path) -> None:
    """The log still writes for a caller whose event loop is gone."""
    log = opened(tmp_path / "record.jsonl", pace=WriteSchedule())

    def elsewhere() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(log.write("note", {}, durable=True))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # that it is left behind is the point

    await asyncio.to_thread(elsewhere)
    await log.write("note", {}, durable=True)
    await log.close()
    assert kinds(tmp_path / "record.jsonl").count("note") == 2
