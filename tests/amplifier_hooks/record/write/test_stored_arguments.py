"""Arguments beside the record."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import SessionCoordinator
from amplifier_hooks.act import freeze
from amplifier_hooks.errors import InvalidLimit
from amplifier_hooks.record.write.beside_the_log import ARGUMENTS, StoredArguments
from amplifier_hooks.record.write.log import AuditLog
from amplifier_hooks.record.write.log_files import AuditKey
from amplifier_hooks.storage.database import StoreUnavailable
from amplifier_hooks.storage.sqlite import MemoryDatabase, SqliteDatabase
from amplifier_hooks.testing import CollectingAudit, ManualClock
from tests.records import facts, kinds

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.rule("PKG-2", "AUD-4")
async def test_kept_and_purged(tmp_path: Path) -> None:
    """Arguments are found by the recorded digest until they expire, and the record holds without them."""
    clock, path = ManualClock(), tmp_path / "record.jsonl"
    given = {"file_path": "a.py", "content": "é"}
    async with SqliteDatabase(tmp_path / "arguments.db", ARGUMENTS) as database:
        store = StoredArguments(database, clock, retention=timedelta(days=1))
        async with (
            AuditLog.open(path, key=AuditKey(b"\x07" * 32)) as log,
            SessionCoordinator(session_id="s1", audit=log, arguments=store, tenant="acme") as session,
        ):
            assert (await session.call_tool("Write", given, str)).ok
            digest = facts(path, "tool.running")[0]["digest"]
            assert await store.find(digest, "acme") == freeze(given)
            assert await store.find(digest) is None
            clock.advance(86_401)
            assert await store.find(digest, "acme") is None
            assert await store.purge(log) == 1
    assert b"a.py" not in path.read_bytes()
    assert facts(path, "arguments.purged") == [{"number": 1}]
    assert kinds(path)[-1] == "log.checkpoint"


@pytest.mark.rule("PKG-2")
async def test_purge() -> None:
    """A purge deletes only expired arguments or, on demand, all of a tenant."""
    clock, audit = ManualClock(), CollectingAudit()
    async with MemoryDatabase(ARGUMENTS) as database:
        store = StoredArguments(database, clock, retention=timedelta(seconds=10))
        await store.keep("a", "acme", b"{}")
        await store.keep("b", "other", b"{}")
        clock.advance(9)
        await store.keep("b", "other", b"{}")
        await store.keep("big", "other", b"x" * (1 << 20) + b"x")
        clock.advance(2)
        assert await store.purge(audit) == 1
        assert await store.find("b", "other") == b"{}"
        assert await store.find("big", "other") is None
        assert await store.purge(audit, tenant="other") == 1
        assert await store.find("b", "other") is None
    assert [dict(fact) for fact in audit.facts("arguments.purged")] == [{"number": 1}, {"number": 1, "tenant": "other"}]
    with pytest.raises(InvalidLimit, match="retention"):
        StoredArguments(database, clock, retention=timedelta(0))


@pytest.mark.rule("PKG-2")
async def test_store_is_away() -> None:
    """A call runs although its arguments cannot be stored, because the digest is on record."""

    class Away:
        async def keep(self, digest: str, tenant: str, arguments: bytes) -> None:
            raise StoreUnavailable("gone")

    audit = CollectingAudit()
    ran: list[Any] = []
    async with SessionCoordinator(session_id="s1", audit=audit, arguments=Away()) as session:
        assert (await session.call_tool("Write", {}, ran.append)).ok
    assert "tool.running" in audit.kinds
