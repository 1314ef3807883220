"""The cost of a record: to encode, chain and append it, to have it on disk, and to look for secrets in it.

Beside it stands the bare work that any record needs: `os.write` of the same bytes, and `fdatasync` after a group of
them, on the same disk. Figures per second depend on the machine, the ratios less so.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.record.encode_facts import Redactor
from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.record.log_files import AuditKey
from benchmarks.options import parser
from benchmarks.rounds import QUICK, Effort, Timed, measure
from benchmarks.table import VERDICT, Report, number

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY: Final = AuditKey(b"\x07" * 32)
GROUP: Final = 64
BURST: Final = 2_000
"""Records between two pauses in which the writer catches up."""

FACTS: Final[dict[str, Any]] = {
    "number": 12,
    "time": "2026-11-18T15:02:11.201340+00:00",
    "session": "5b0c1f0e9a7d4f2e8c3b6a1d0e9f8c7b",
    "tenant": "acme",
    "event": "tool:pre",
    "action": "deny",
    "reason": "Writes to production need a second pair of eyes",
    "denied_by": "protect_production",
    "answers": [{"hook": "protect_production", "action": "deny", "status": "ok", "duration_ms": 0.1234}],
}
"""The facts of an outcome with one answer: a line of some 480 bytes."""

REACHED: Final = {"with redaction": 60_000, "without": 150_000}
GROUPED: Final = 0.45
FASTEST_LOOK: Final = 50.0
WHY: Final = (
    f"{GROUP} waiters take turns with the disk: while it syncs, none of them has a next record. A record costs them "
    "5 µs of Python, most of it to encode it (1.5), to queue it (1.0), to chain it (0.9) and to wake its waiter (1.6). "
    "Two groups that take turns would overlap with the disk, and halve the rate of a slow one."
)
LENGTH: Final = 60_000
SECRET: Final = " ghp_abcdefghijklmnopqrst "  # noqa: S105  # its shape is what matters


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    chosen = parser("audit", __doc__).parse_args(arguments)
    asyncio.run(report(quick=chosen.quick, write=chosen.write))


async def report(*, quick: bool, write: bool) -> None:
    """Measure everything, in one run."""
    out = Report("audit", ("cryptography", "msgspec"))
    with TemporaryDirectory() as name:
        folder = Path(name)
        out.text("Appending without waiting for the disk, one writer, beside a bare `os.write` of the same line.")
        out.table(
            ["what", "records/s", "ours, µs", "bare, µs", "ratio", *VERDICT],
            [await appended(kind, folder, quick=quick) for kind in REACHED],
        )
        out.text(
            f"On disk when `write` returns: {GROUP} waiters, beside groups of {GROUP} lines written bare and synced."
        )
        heads = ["waiters", "records/s", "bare, records/s", "share", "half within", *VERDICT]
        out.table(heads, [await grouped(GROUP, folder, quick=quick), await grouped(1, folder, quick=quick)])
        out.text(WHY)
        out.text("One append holds the event loop for so long while another thread syncs the same file all the time.")
        out.table(["what", "median, µs", "99 %, µs", "99.9 %, µs", *VERDICT], await held(folder, quick=quick))
    out.text("Looking for secrets, in texts of 60,000 characters made to be slow.")
    out.table(["text", "MB/s", *VERDICT], looks(quick=quick))
    out.finish(write=write)


# -- appending ---------------------------------------------------------------------------------------------------------


async def appended(kind: str, folder: Path, *, quick: bool) -> list[str]:
    """One row: records a second, and how many times a bare write that is."""
    log = AuditLog.open(folder / f"{kind}.jsonl", key=KEY, redact=kind == "with redaction")
    await log.write("outcome", FACTS, durable=True)
    line = log.path.read_bytes().splitlines(keepends=True)[-1]  # before anything is measured
    descriptor = os.open(folder / f"bare {kind}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def ours(count: int) -> float:
        began = perf_counter()
        for _ in range(count):
            await log.write("outcome", FACTS)
        spent = perf_counter() - began
        await log.write("outcome", FACTS, durable=True)  # what is queued must not burden the next sample
        return spent

    async def bare(count: int) -> float:
        began = perf_counter()
        for _ in range(count):
            os.write(descriptor, line)
        return perf_counter() - began

    samples = await measure({"ours": ours, "bare": bare}, QUICK if quick else Effort(31, 0.0), number=BURST)
    await log.close()
    os.close(descriptor)
    spent, alone = samples["ours"].usual, samples["bare"].usual
    reached, wanted = 1e6 / spent, REACHED[kind]
    figures = [number(reached), number(spent), number(alone), number(samples["ours"].ratio(samples["bare"]))]
    return [f"{kind}, {len(line)} bytes", *figures, f"≥ {wanted:,}", "met" if reached >= wanted else "**missed**"]


async def grouped(waiters: int, folder: Path, *, quick: bool) -> list[str]:
    """Return one row: the share of the disk's rate that waiters reach together."""
    log = AuditLog.open(folder / f"group {waiters}.jsonl", key=KEY)
    await log.write("outcome", FACTS, durable=True)
    line = log.path.read_bytes().splitlines(keepends=True)[-1]  # before anything is measured
    descriptor = os.open(folder / f"bare group {waiters}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def ours(count: int) -> float:
        async def waiter() -> None:
            for _ in range(count):
                await log.write("outcome", FACTS, durable=True)

        began = perf_counter()
        await asyncio.gather(*(waiter() for _ in range(waiters)))
        return perf_counter() - began

    async def bare(count: int) -> float:
        began = perf_counter()
        for _ in range(count):
            os.write(descriptor, line * waiters)
            os.fdatasync(descriptor)
        return perf_counter() - began

    subjects: dict[str, Timed] = {"ours": ours, "bare": bare}
    samples = await measure(subjects, QUICK if quick else Effort(21, 0.0), number=4 if quick else 30)
    await log.close()
    os.close(descriptor)
    shares = [one / other for one, other in zip(samples["bare"].seconds, samples["ours"].seconds, strict=True)]
    low, _, high = quantiles(shares, n=4)
    share = median(shares)
    met = "met" if share >= GROUPED else "**missed**"
    each = [waiters * 1e6 / samples[name].usual for name in ("ours", "bare")]
    goal = [f"≥ {GROUPED:g}", met] if waiters == GROUP else ["", ""]
    return [str(waiters), *map(number, each), number(share), f"{low:.2f} to {high:.2f}", *goal]


async def held(folder: Path, *, quick: bool) -> list[list[str]]:
    """Rows: the time one step of the loop takes, when it appends and when it writes bare to a file that is synced."""
    count = 200 if quick else 20_000
    log = AuditLog.open(folder / "held.jsonl", key=KEY)
    await log.write("outcome", FACTS, durable=True)
    line = log.path.read_bytes().splitlines(keepends=True)[-1]  # before anything is measured
    descriptor = os.open(folder / "bare held", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    over = threading.Event()

    def sync() -> None:
        while not over.is_set():
            os.fdatasync(descriptor)
            sleep(0.0005)

    ours, bare = deque[float](), deque[float]()
    syncing = threading.Thread(target=sync, daemon=True)
    syncing.start()
    for turn in range(count):
        began = perf_counter()
        os.write(descriptor, line)
        bare.append(perf_counter() - began)
        if not turn % 16:
            await asyncio.sleep(0)
    over.set()
    syncing.join()
    waiting: set[asyncio.Task[None]] = set()
    for turn in range(count):
        if not turn % 16:  # a caller waits for the disk all the time, and the writer syncs for it
            waiting.add(asyncio.ensure_future(log.write("outcome", FACTS, durable=True)))
            await asyncio.sleep(0)
        began = perf_counter()
        await log.write("outcome", FACTS)
        ours.append(perf_counter() - began)
    await asyncio.gather(*waiting)
    await log.close()
    os.close(descriptor)
    rows = []
    late = []
    for name, found in (("bare `os.write`", bare), ("ours", ours)):
        places = sorted(found)
        late.append(places[len(places) * 999 // 1000])
        rows.append([name, *(number(places[len(places) * part // 1000] * 1e6) for part in (500, 990, 999)), "", ""])
    rows[1][-2:] = ["99.9 % ≤ bare", "met" if late[1] <= late[0] else "**missed**"]
    return rows


# -- looking for secrets -----------------------------------------------------------------------------------------------

TEXTS: Final = {
    "prose": "the quick brown fox jumps over the lazy dog ",
    "digests": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 ",
    "one letter": "a",
    "one letter and a blank": "a ",
    "beginnings of tokens": "ghp_sk-xoxb-AKIAeyJ",
    "tokens that are too short": "ghp_abcdefghijk ",
    "names without values": "token secret password ",
    "names and colons": "token: ",
    "half an address": "://a:",
    "beginnings of a key": "-----BEGIN ",
    "bearers without a token": "Bearer \n",
    "not ASCII": "é",
    "beyond the first plane": "𝄞 ",
}


def looks(*, quick: bool) -> list[list[str]]:
    """Rows: how many bytes a second, for each text, and for texts with secrets in them."""
    redactor = Redactor(b"k" * 32, secrets=["a secret that is known"], environment={})
    texts = {name: (piece * LENGTH)[:LENGTH] for name, piece in TEXTS.items()}
    for count in (1, 2, 4, 5, 50):
        texts[f"prose with {count} secrets"] = ((TEXTS["prose"] * LENGTH)[: LENGTH // count] + SECRET) * count
    texts["nothing but secrets"] = (SECRET * LENGTH)[:LENGTH]
    texts["a secret without a blank"] = "x" * LENGTH + SECRET.strip()
    rows = []
    for name, text in texts.items():
        fastest = min(timed_look(redactor, text) for _ in range(3 if quick else 15))
        speed = len(text.encode()) / fastest / 1e6
        rows.append([name, number(speed), f"≥ {FASTEST_LOOK:g}", "met" if speed >= FASTEST_LOOK else "**missed**"])
    return rows


def timed_look(redactor: Redactor, text: str) -> float:
    """Return the seconds of one look."""
    began = perf_counter()
    redactor.redact(text)
    return perf_counter() - began
