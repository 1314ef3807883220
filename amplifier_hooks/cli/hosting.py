"""What `amplifier-hooks serve` answers other programs with: hooks, rules, approvals and a record, behind a socket."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

from attrs import frozen

from amplifier_hooks.cli.state import state_folder
from amplifier_hooks.effects.audit import AuditLog
from amplifier_hooks.errors import InvalidRegistration
from amplifier_hooks.registry import HookRegistry
from approval_backends.deferred import DeferredApprovals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_hooks.server.guest import Asking
    from approval_backends.broker import Broker

__all__ = ["Host", "host_programs", "token_file"]


@frozen
class Host:
    """Ready to serve. The socket can be used by this user only."""

    registry: HookRegistry
    socket: Path
    record: Path
    asking: Asking
    waits: float
    options: dict[str, Any]
    port: int | None = None
    """Where those may post that bear the token; nowhere if None."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer, for as long as the block lasts; then end every session, and close the record.

        Raises `OSError` when the socket is in use, or the record cannot be written.
        """
        from amplifier_hooks.server.app import create_app
        from amplifier_hooks.server.guests import Guests
        from amplifier_hooks.server.listening import bound, listening, loopback

        log = AuditLog.open(self.record)
        guests = Guests(self.registry, self.asking, self.waits, {**self.options, "audit": log})
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(listening(create_app(guests), bound(self.socket)))
                stack.callback(self.socket.unlink, missing_ok=True)
                if self.port is not None:
                    posting = create_app(guests, token=token())
                    await stack.enter_async_context(listening(posting, loopback(self.port)))
                yield
        finally:
            await guests.close()
            await log.close()


def token_file() -> Path:
    """Where the token is kept."""
    return state_folder() / "programs.token"


def token() -> str:
    """What programs have to bear that post; made on first use, for its owner alone."""
    path = token_file()
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token_urlsafe(32))
    return path.read_text("ascii").strip()


def host_programs(
    broker: Broker,
    *,
    hooks: str | None,
    rules: Path | None,
    record: Path | None,
    socket: Path | None,
    asking: Asking,
    waits: float,
    port: int | None,
) -> Host:
    """What was asked for, checked. Raises `HookError`, `OSError` for what cannot be read."""
    from amplifier_hooks.server.place import default_socket

    options: dict[str, Any] = {"approvals": DeferredApprovals(broker)}
    if rules is not None:
        from approval_backends.rules import Rules

        options["rules"] = Rules.load(rules)
    path = default_socket() if socket is None else socket
    return Host(registry_at(hooks), path, record or state_folder() / "record.jsonl", asking, waits, options, port)


def registry_at(name: str | None) -> HookRegistry:
    """The registry of this name, or an empty one. A function of that name is called for it.

    What is in this folder can be named, too. Raises `InvalidRegistration` for what is no registry.
    """
    if name is None:
        return HookRegistry(register_on_error="deny")
    module, _, attribute = name.partition(":")
    sys.path.insert(0, os.fspath(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), attribute or "registry")
        registry = found if isinstance(found, HookRegistry) else found()
    except Exception as error:  # what somebody else's module raises when it is imported or called
        raise InvalidRegistration(f"hooks {name!r}: {error}; write MODULE:NAME of a HookRegistry") from error
    if not isinstance(registry, HookRegistry):
        raise InvalidRegistration(f"hooks {name!r} are of type {type(registry).__name__}, and no HookRegistry")
    return registry
