"""The store that the options name: opened for the user of the command, with its requests found by id."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from difflib import get_close_matches
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from attrs import frozen

from amplifier_hooks.cli.common.terminal_io import error_text, stop, user_name
from amplifier_hooks.errors import HookError
from amplifier_hooks.storage.state_folder import StateFolder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable

    from amplifier_hooks.storage.database import Database
    from approval_backends.broker import Broker
    from approval_backends.lifecycle import Decider, RequestRecord


P = ParamSpec("P")
T = TypeVar("T")

SHORTEST: Final = 4
"""Characters of an id that a user has to type at least."""
HISTORY: Final = 10_000
KEPT_GRANTS: Final = 30 * 86_400.0
"""Seconds for which a store on disk keeps an "always" for a project, where a command offers one."""


class Trouble(Exception):
    """The command cannot go on; the message is for its user."""


@frozen
class StoreView:
    """A store by its address, and the tenant and sessions to which the command restricts itself."""

    store: str | None = None
    tenant: str | None = None
    sessions: list[str] | None = None

    @property
    def name(self) -> str:
        """The address of the store, without secrets."""
        from approval_backends.stores.address import without_secrets

        return without_secrets(self.store) if self.store else str(StateFolder().approvals)

    @asynccontextmanager
    async def open_store(self, *, create: bool = False) -> AsyncIterator[OpenStore]:
        """Open the store for the block. Only with `create` is a missing one made: a mistyped name is no new store.

        Raises `Trouble` if the store is missing or cannot be used.
        """
        from amplifier_hooks.storage.database import StoreUnavailable
        from approval_backends.broker import Broker
        from approval_backends.stores.address import store_at

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
            step = "check that the server runs and lets this user in" if "://" in self.name else "look at the file"
            raise Trouble(
                f"The store {self.name} cannot be used: {why}; {step}, or name another with --store."
            ) from problem

    def viewer(self) -> Decider:
        """Return the user of this command as a decider."""
        from approval_backends.lifecycle import Decider

        sessions = None if self.sessions is None else frozenset(self.sessions)
        return Decider(name=user_name(), channel="cli", tenant=self.tenant, sessions=sessions)


@frozen
class OpenStore:
    """An open store, and the user who looks at it."""

    broker: Broker
    viewer: Decider
    database: Database

    async def waiting(self, limit: int = HISTORY) -> list[RequestRecord]:
        """Return the requests that wait for an answer and are in time, oldest first."""
        from approval_backends.lifecycle import is_over

        now = await self.broker.store.now()
        return [record for record in await self.broker.pending(self.viewer, limit) if not is_over(record, now)]

    async def find(self, given: str) -> RequestRecord:
        """Return the request with this id, or the only one whose id begins so. Raises `Trouble`."""
        record = await self.broker.show(given, self.viewer)
        if record is not None:
            return record
        pending = await self.broker.pending(self.viewer)
        known = {one.id: one for one in [*pending, *await self.broker.history(self.viewer, HISTORY)]}
        return known[only_one(given, known, "request")]


def only_one(given: str, ids: Iterable[str], what: str) -> str:
    """Return the only id that begins so. Raises `Trouble`, with the nearest id if there is one."""
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
    listed = "grants" if what == "grant" else "list --all"
    near = f"Did you mean {likely[0]!r}?" if likely else f"amplifier-hooks approvals {listed} names those there are."
    raise Trouble(f"There is no {what} {given!r}. {near}")


def run_or_stop(work: Coroutine[Any, Any, T], *, until_interrupted: bool = False) -> T:
    """Run the work and return its result. An error is a line on standard error and exit code 1.

    Ctrl-C ends with exit code 0 if `until_interrupted`, otherwise with 1.
    """
    try:
        return asyncio.run(work)
    except (Trouble, HookError, OSError) as problem:
        stop(error_text(problem))
    except KeyboardInterrupt:
        stop("Stopped.", 0 if until_interrupted else 1)


def on_loop(work: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Return the function of a command that runs an async function, with its options and its errors."""

    @wraps(work)
    def command(*args: P.args, **options: P.kwargs) -> None:
        run_or_stop(work(*args, **options))

    return command
