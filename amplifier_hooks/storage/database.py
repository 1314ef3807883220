"""The interface that all databases share: statements, scripts, migrations, and the errors of a store.

```
StoreUnavailable          base of all; everything that needs the store is blocked
├── StoreBusy             the store is locked or too slow, for longer than its limit; try again
├── StoreClosed           the store is closed, or was opened in another process
├── UnsafeStore           other users can read or replace the store; the operator corrects that
├── CorruptStore          the store is damaged, or belongs to another program; the operator restores it
└── SchemaMismatch        a newer version wrote the store; the operator upgrades this one
```
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar

from attrs import frozen

from amplifier_hooks.errors import HookError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractContextManager
    from types import TracebackType

    from amplifier_hooks.storage.change_signal import Watch


class Openable:
    """A resource with `open` and `close`. As an async context manager it opens on entry and always closes on exit."""

    async def open(self) -> Self:
        """Open the resource, and return it. A second call does nothing."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the resource. A second call does nothing."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class StoreUnavailable(HookError):
    """The store cannot be used now. The last write may or may not have arrived: read again before repeating it."""


class StoreBusy(StoreUnavailable):
    """The store was locked, or did not answer, for longer than its limit."""


class StoreClosed(StoreUnavailable):
    """The store is closed, is not open yet, or was opened by the parent process before a fork."""


NOT_OPEN: Final = "the store is not open; open it first: await store.open(), or async with the backend"
"""Sentence of the error of a store that is used before it is open."""


class UnsafeStore(StoreUnavailable):
    """Another user could read the store or replace it, so it is not opened."""


class CorruptStore(StoreUnavailable):
    """The file is damaged, or not a store, so it is not opened. An empty store never replaces it."""


class SchemaMismatch(StoreUnavailable):
    """The store's tables have a version that this program does not know, so they stay untouched."""


VERSIONS: Final = (
    "CREATE TABLE IF NOT EXISTS {schema}.schema_version (component TEXT PRIMARY KEY, version INTEGER NOT NULL)"
)
SET_VERSION: Final = (
    "INSERT INTO {schema}.schema_version VALUES ($1, $2) "
    "ON CONFLICT (component) DO UPDATE SET version = excluded.version"
)
LIMIT: Final = 5.0
"""Timeout, in seconds, after which a silent database counts as unavailable."""

Row = Sequence[Any]
P = ParamSpec("P")
T = TypeVar("T")


@frozen
class Statement:
    """One SQL statement with its values, which it names `$1`, `$2`, …; each value at least once.

    Statements write tables as `{schema}.name`, so that one text serves every kind of database.
    """

    sql: str
    values: tuple[Any, ...] = ()


@frozen
class Wake:
    """A request to wake the watchers of a topic once the transaction is committed.

    A topic must be short, because a notification has 8,000 bytes. `news` is the new state of the watched thing, if the
    transaction has read it: watchers in this process then need not read it again.
    """

    topic: str
    news: Any = None


@frozen
class Check:
    """A check that a transaction waits for; an error that it raises undoes the transaction.

    The event loop runs it, so it may use another database, but never this one.
    """

    run: Callable[[], Coroutine[Any, Any, None]]


Script = Generator[Statement | Wake | Check, list[Row], T]
"""A generator of one transaction's statements. It receives the rows of each statement. Its return value is the result,
and an exception undoes the transaction."""


@frozen(kw_only=True)
class Migrations:
    """The steps that create one component's tables, oldest version first. Never change a released step."""

    component: str
    steps: tuple[tuple[str, ...], ...]

    def take_step(self) -> Script[bool]:
        """Bring the tables to the next version. Return True if they were up to date.

        Raises `SchemaMismatch` for a version that this program does not know.
        """
        rows = yield Statement("SELECT version FROM {schema}.schema_version WHERE component = $1", (self.component,))
        version = rows[0][0] if rows else 0
        if version > len(self.steps):
            raise SchemaMismatch(
                f"the tables of {self.component!r} have version {version}, and this program knows "
                f"{len(self.steps)}; upgrade it"
            )
        if version == len(self.steps):
            return True
        for statement in self.steps[version]:
            yield Statement(statement)
        yield Statement(SET_VERSION, (self.component, version + 1))
        return False


class Database(Protocol):
    """A database: statements, transactions, and waiting for changes by others.

    Every method raises `StoreUnavailable` if the database cannot be reached, is full, locked or read-only. An
    interrupted or cancelled write may or may not have arrived; read before writing again. One database belongs to one
    event loop.
    """

    async def open(self) -> Self:
        """Connect, check, and migrate. A second call does nothing.

        Raises also if the store is unsafe, damaged or too new; leaves nothing open then.
        """
        ...

    async def close(self) -> None:
        """Close all connections, and wake all waiters. A second call does nothing."""
        ...

    async def migrate(self, *migrations: Migrations) -> None:
        """Create or update the tables of further components. Raises the errors of `open`."""
        ...

    async def run(self, script: Script[T]) -> T:
        """Drive a script to its end in one transaction, isolated from all others, and return its result.

        Raises the errors of the script, and writes nothing then.
        """
        ...

    async def fetch(self, sql: str, *values: Any) -> list[Row]:
        """Run one statement in its own transaction, and return its rows."""
        ...

    def tell(self, *topics: str) -> None:
        """Wake the watchers of topics, after a statement that has changed them."""
        ...

    def watch(self, topic: str | None = None) -> AbstractContextManager[Watch]:
        """Watch one topic, or all, from entry of the context on: watch, then read, then wait, then read again."""
        ...


def transaction(
    script: Callable[Concatenate[Any, P], Script[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Turn a method that yields the statements of a transaction into one that runs them in `self.database`."""

    @wraps(script)
    async def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = await self.database.run(script(self, *args, **kwargs))
        return found

    return run
