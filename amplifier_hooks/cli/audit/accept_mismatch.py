"""Going on with a record and a store that do not fit together, once the operator knows why."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from attrs import frozen

from amplifier_hooks.cli.approvals.open_store import Trouble, View, user_name
from amplifier_hooks.record.record_errors import LogCut, LogUnavailable, StoreReplaced
from amplifier_hooks.record.write.log import AuditLog
from amplifier_hooks.record.write.stored_heads import StoredHeads
from amplifier_hooks.storage.state_folder import state_folder

if TYPE_CHECKING:
    from pathlib import Path


@frozen
class Accepted:
    """What the operator has accepted so far: that the record lacks lines, that the store is another or older."""

    cut: bool = False
    store: bool = False

    def and_also(self, problem: LogUnavailable) -> Accepted:
        """This, too."""
        return Accepted(
            cut=self.cut or isinstance(problem, LogCut), store=not isinstance(problem, LogCut) or self.store
        )


async def gone_on(record: Path | None, store: str | None, accepted: Accepted) -> LogUnavailable | None:
    """Go on with the two, unless something does not fit that was not accepted: then say what, and write nothing.

    Raises `Trouble` where one of them is not there, and what keeps them from being opened.
    """
    path = state_folder() / "record.jsonl" if record is None else record
    if not path.exists():  # opening would make it
        raise Trouble(f"There is no record at {path}; name its first file.")
    async with View(store).opened() as desk:
        heads = await StoredHeads.beside(desk.database)
        log = AuditLog.open(path, heads=heads, accept_cut=accepted.cut, accept_store=accepted.store)
        try:
            await log.check()
            if accepted != Accepted():
                facts = {"by": user_name(), "record": accepted.cut, "store": accepted.store}
                await log.write("operator.accepted", facts, durable=True)
        except (LogCut, StoreReplaced) as problem:
            return problem
        finally:
            with suppress(LogUnavailable):  # it is on its way already
                await log.close()
    return None
