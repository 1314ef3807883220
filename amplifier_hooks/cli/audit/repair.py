"""Repairs that an operator orders: accept a record and a store that do not fit together, and remove old records.

Only whole records of ended chats are removed, and no others.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from amplifier_hooks.cli.approvals.open_store import StoreView, Trouble
from amplifier_hooks.cli.common.terminal_io import user_name
from amplifier_hooks.record.beside_the_log import StoredHeads
from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.record.log_files import Files, file_of, numbers_of
from amplifier_hooks.record.record_errors import LogCut, LogInUse, LogUnavailable, StoreReplaced
from amplifier_hooks.storage.state_folder import StateFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


async def resume_log(record: Path | None, store: str | None, accepted: set[type]) -> LogUnavailable | None:
    """Go on with a record and a store, and return None; for a mismatch that was not accepted, return it instead.

    `accepted` has the types of the mismatches that the operator has accepted: `LogCut`, `StoreReplaced`.

    After a mismatch, nothing is written. Raises `Trouble` if the record or the store is missing, and the errors of
    opening them.
    """
    path = StateFolder().record if record is None else record
    if not path.exists():  # opening would make it
        raise Trouble(f"There is no record at {path}; name its first file.")
    async with StoreView(store).open_store() as desk:
        heads = await StoredHeads.beside(desk.database)
        log = AuditLog.open(path, heads=heads, accept_cut=LogCut in accepted, accept_store=StoreReplaced in accepted)
        try:
            await log.check()
            if accepted:
                facts = {"by": user_name(), "record": LogCut in accepted, "store": StoreReplaced in accepted}
                await log.write("operator.accepted", facts, durable=True)
        except (LogCut, StoreReplaced) as problem:
            return problem
        finally:
            with suppress(LogUnavailable):  # the caller gets this problem already
                await log.close()
    return None


OURS: Final = re.compile(r"[0-9a-f]{32}\.jsonl")
"""The name that `chat` gives a record. Files with other names stay."""


def ended_records(folder: Path, before: float) -> Iterator[Path]:
    """Return the first files of the records that no chat has written to since this time, in seconds since 1970."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if OURS.fullmatch(path.name) and not path.is_symlink():
            latest = max(file_of(path, number).stat().st_mtime for number in numbers_of(path))
            if latest < before:
                yield path


def remove_records(paths: list[Path]) -> int:
    """Remove these records, and return their number; a record that a chat still writes stays. Raises `OSError`."""
    files, count = Files(), 0
    for path in paths:
        with suppress(LogInUse):
            held = files.open(path)
            try:
                files.lock(held, path)
                for number in reversed(numbers_of(path)):  # the first one last: a search for records finds it
                    file_of(path, number).unlink()
            finally:
                files.close(held)
            count += 1
    return count
