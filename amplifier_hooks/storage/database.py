"""The face all databases share.

What is opened and closed, and can be used as an async context.

Why a store cannot be used, and whose turn it is then.

```
StoreUnavailable          base of all; what needs the store is blocked
├── StoreBusy             locked, or too slow, for longer than its limit; try again
├── StoreClosed           it is closed, or was opened in another process
├── UnsafeStore           others could read or replace it; the operator puts that right
├── CorruptStore          it is damaged, or no store of ours; the operator restores it
└── SchemaMismatch        written by a newer version; upgrade this one
```
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from attrs import frozen

from amplifier_hooks.errors import HookError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from amplifier_hooks.storage.change_signal import Watch


class Openable:
    """Entering the context opens it, and leaving closes it, whatever happened meanwhile."""

    async def open(self) -> Self:
        """Make it ready, and return it. Twice is harmless."""
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of it. Twice is harmless."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class StoreUnavailable(HookError):
    """The store cannot be used now. Whether the last write arrived may be unknown: read again before repeating it."""


class StoreBusy(StoreUnavailable):
    """It was locked or did not answer for longer than its limit."""


class StoreClosed(StoreUnavailable):
    """It is closed, not open yet, or was opened by the process this one was forked from."""


class UnsafeStore(StoreUnavailable):
    """Somebody else could read it or put another in its place, so it is not opened."""


class CorruptStore(StoreUnavailable):
    """It is damaged or something else, so it is not opened. It is never replaced by an empty one."""


class SchemaMismatch(StoreUnavailable):
    """Its tables are of a version this program does not know, so it is not touched."""


LIMIT: Final = 5.0
"""Seconds after which a database that does not answer counts as unavailable."""

Row = Sequence[Any]
T = TypeVar("T")


@frozen
class Statement:
    """One SQL statement with its values, which it names `$1`, `$2`, …; each of them at least once.

    Tables are written `{schema}.name`, so that one text serves every kind of database.
    """

    sql: str
    values: tuple[Any, ...] = ()


@frozen
class Wake:
    """Wake whoever watches this topic, once the transaction holds. A topic is short: a notification has 8,000 bytes.

    `said`: a statement of the script has notified other machines itself. `news` is what the transaction has made of
    what is watched, if it has read that: who watches here need not read it again.
    """

    topic: str
    notified: bool = False
    news: Any = None


Script = Generator[Statement | Wake, list[Row], T]
"""Statements of one transaction. It is given the rows of each; what it returns is the result, and what it raises undoes
the transaction."""


@frozen(kw_only=True)
class Migrations:
    """The steps that make one component's tables, the first version first. Never change one that was released."""

    component: str
    steps: tuple[tuple[str, ...], ...]

    def after(self, version: int) -> tuple[str, ...] | None:
        """The next step for tables of this version, or None when they are up to date.

        Raises `SchemaMismatch` for a version that is not known yet.
        """
        if version > len(self.steps):
            raise SchemaMismatch(
                f"the tables of {self.component!r} have version {version}, and this program knows "
                f"{len(self.steps)}; upgrade it"
            )
        return self.steps[version] if version < len(self.steps) else None


class Database(Protocol):
    """Statements, transactions, and waiting for what others change.

    Every method raises `StoreUnavailable` when the database cannot be reached, is full, locked or read-only. What
    was being written then may or may not have arrived; read before writing again. Cancelling a write leaves that open,
    too. One database belongs to one event loop.
    """

    async def open(self) -> Self:
        """Connect, check, and migrate. Twice is harmless.

        Raises also when the store is unsafe, damaged or too new; nothing is left open then.
        """
        ...

    async def close(self) -> None:
        """Let go of everything. Whoever waits is woken. Twice is harmless."""
        ...

    async def migrate(self, *migrations: Migrations) -> None:
        """Bring the tables of further components up to date, made if they are not there. Raises as `open` does."""
        ...

    async def run(self, script: Script[T]) -> T:
        """Drive a script to its end in one transaction that nothing else interleaves with.

        It raises what the script raises, and nothing was written then.
        """
        ...

    async def fetch(self, sql: str, *values: Any) -> list[Row]:
        """The rows of one statement that is a transaction of its own."""
        ...

    def watch(self, topic: str | None = None) -> AbstractContextManager[Watch]:
        """Watch one topic, or all. Armed from here on: watch, then read, then wait, then read again."""
        ...
