"""The store, who sits at it, and how a request is found."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer
from attrs import frozen

from amplifier_hooks.cli.common.terminal_io import stop
from amplifier_hooks.errors import HookError
from amplifier_hooks.storage.database import StoreUnavailable
from approval_backends.broker import Broker
from approval_backends.lifecycle import Decider
from approval_backends.stores.address import default_path, store_at, without_secrets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable

    from amplifier_hooks.storage.database import Database
    from approval_backends.lifecycle import RequestRecord


T = TypeVar("T")

SHORTEST: Final = 4
"""Characters of an id that have to be there."""
HISTORY: Final = 10_000


class Trouble(Exception):
    """It cannot go on; the message is for the person who called."""


@frozen
class StoreView:
    """Where to look, and at what."""

    store: str | None = None
    tenant: str | None = None
    sessions: list[str] | None = None

    @property
    def name(self) -> str:
        """The store, as it can be shown."""
        return without_secrets(self.store) if self.store else str(default_path())

    @asynccontextmanager
    async def open_store(self, *, create: bool = False) -> AsyncIterator[OpenStore]:
        """The store, open. It is made only where that is asked for; a mistyped name is not a new store."""
        store = store_at(self.store)
        path = getattr(store.database, "path", None)
        if path is not None and not path.exists():
            if not create:
                raise Trouble(f"There is no store at {self.name}; name the one your program uses with --store.")
            if self.store is None:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            async with Broker(store) as broker:
                yield OpenStore(broker, self.viewer(), store.database)
        except StoreUnavailable as problem:
            why = str(problem).removeprefix("store_unavailable: ")  # a word for programs
            raise Trouble(f"The store {self.name} cannot be used: {why}.") from problem

    def viewer(self) -> Decider:
        """Whoever called this command."""
        sessions = None if self.sessions is None else frozenset(self.sessions)
        return Decider(name=user_name(), channel="cli", tenant=self.tenant, sessions=sessions)


@frozen
class OpenStore:
    """An open store, and who sits at it."""

    broker: Broker
    viewer: Decider
    database: Database

    async def waiting(self, limit: int = HISTORY) -> list[RequestRecord]:
        """What waits for an answer and is in time, oldest first."""
        from approval_backends.lifecycle import is_over

        now = await self.broker.store.now()
        return [record for record in await self.broker.pending(self.viewer, limit) if not is_over(record, now)]

    async def find(self, given: str) -> RequestRecord:
        """The request of this id, or the only one that begins so. Raises `Trouble`."""
        record = await self.broker.show(given, self.viewer)
        if record is not None:
            return record
        pending = await self.broker.pending(self.viewer)
        known = {one.id: one for one in [*pending, *await self.broker.history(self.viewer, HISTORY)]}
        return known[only_one(given, known, "request")]


def only_one(given: str, ids: Iterable[str], what: str) -> str:
    """The id that is meant by its beginning. Raises `Trouble`, with what might have been meant."""
    ids = list(ids)
    found = [one for one in ids if one.startswith(given)] if len(given) >= SHORTEST else []
    if given in ids:
        return given
    if len(found) == 1:
        return found[0]
    if found:
        raise Trouble(f"{len(found)} {what}s begin with {given!r}: {', '.join(found[:5])}; write more of it.")
    if len(given) < SHORTEST and any(one.startswith(given) for one in ids):
        raise Trouble(f"{given!r} is too short; write {SHORTEST} characters of the id or more.")
    likely = get_close_matches(given, ids, 1, 0.6) or get_close_matches(given, [i[: len(given)] for i in ids], 1, 0.7)
    raise Trouble(f"There is no {what} {given!r}." + (f" Did you mean {likely[0]!r}?" if likely else ""))


def user_name() -> str:
    """Who called this command, as the system knows them; variables of the environment do not count."""
    if sys.platform == "win32":
        return os.getlogin()
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def print_line(text: str = "") -> None:
    """What was asked for, to standard output. Foreign parts are escaped already."""
    typer.echo(text)


def run_or_stop(work: Coroutine[Any, Any, T], *, until_interrupted: bool = False) -> T:
    """Do it; what goes wrong is a line on standard error and exit code 1, which Ctrl-C may or may not be."""
    try:
        return asyncio.run(work)
    except (Trouble, HookError, OSError) as problem:
        stop(str(problem))
    except KeyboardInterrupt:
        stop("Stopped.", 0 if until_interrupted else 1)
