import asyncio
import sqlite3
from pathlib import Path

import pytest

from amplifier_hooks.library.parts.hook_database import AGAIN, HookDatabase, database_opener
from amplifier_hooks.storage.database import Migrations, Script, Statement, StoreUnavailable
from amplifier_hooks.storage.postgres import PostgresDatabase
from amplifier_hooks.storage.sqlite import SqliteDatabase
from amplifier_hooks.storage.state_folder import StateFolder

pytestmark = pytest.mark.rule("LIB-2")

TABLES = Migrations(component="test", steps=(("CREATE TABLE {schema}.note (text TEXT NOT NULL)",),))


class Seconds:
    """A clock that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def written(text: str) -> Script[int]:
    """Write one note, and return the number of notes."""
    yield Statement("INSERT INTO {schema}.note VALUES ($1)", (text,))
    ((count,),) = yield Statement("SELECT count(*) FROM {schema}.note")
    return int(count)


async def test_opened_when_needed(tmp_path: Path) -> None:
    """The first use creates the file; closing and using the database again goes on with its content."""
    path = tmp_path / "notes.db"
    book = HookDatabase("hook", TABLES, database_opener(str(path), Path()))
    assert not path.exists()
    both = await asyncio.gather(book.run(written("a")), book.run(written("b")))
    assert sorted(both) == [1, 2]
    await book.close()
    await book.close()
    assert await book.run(written("c")) == 3
    await book.close()


def test_each_loop_opens_it(tmp_path: Path) -> None:
    """A database that was used in one event loop can be used in another one."""
    book = HookDatabase("hook", TABLES, database_opener(str(tmp_path / "notes.db"), Path()))
    assert [asyncio.run(book.run(written("a"))) for _ in range(2)] == [1, 2]


async def test_left_alone_for_a_while(tmp_path: Path) -> None:
    """A database that failed is not tried again at once, but later."""
    clock, folder = Seconds(), tmp_path / "later"
    book = HookDatabase("hook", TABLES, database_opener(str(folder / "notes.db"), Path()), clock)
    with pytest.raises(StoreUnavailable, match="No such file"):
        await book.run(written("a"))
    folder.mkdir(mode=0o700)
    with pytest.raises(StoreUnavailable, match="No such file"):
        await book.fetch("SELECT 1")
    clock.now = AGAIN
    assert await book.run(written("a")) == 1
    other = sqlite3.connect(folder / "notes.db")
    other.execute("DROP TABLE note")
    other.close()
    with pytest.raises(StoreUnavailable, match="no such table"):
        await book.run(written("b"))
    with pytest.raises(StoreUnavailable, match="no such table"):
        await book.fetch("SELECT 1")
    clock.now += AGAIN
    with pytest.raises(StoreUnavailable, match="no such table"):
        await book.fetch("SELECT * FROM {schema}.note")
    await book.close()


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address is a file, memory, a PostgreSQL server, or a file in the user's state folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made = [database_opener(place, StateFolder().ledger)(TABLES) for place in ("a.db", "~/b.db", ":memory:", "")]
    assert all(isinstance(database, SqliteDatabase) for database in made)
    assert [database.path for database in made if isinstance(database, SqliteDatabase)] == [
        Path("a.db"), tmp_path / "home" / "b.db", None, tmp_path / "state" / "amplifier-hooks" / "ledger.db",
    ]  # fmt: skip
    assert isinstance(database_opener("postgresql://localhost/x", Path())(TABLES), PostgresDatabase)


async def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a place for the user's state, the store is unavailable like any other."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(StoreUnavailable, match="Not a directory"):
        await HookDatabase("hook", TABLES, database_opener("", StateFolder().ledger)).fetch("SELECT 1")
