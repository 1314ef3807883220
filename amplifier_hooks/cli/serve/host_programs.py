"""The host of `amplifier-hooks serve`: questions of programs come in at a socket; answers go out."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from attrs import define, frozen

from amplifier_hooks.cli.common.posting import listener_at, programs_token
from amplifier_hooks.cli.common.terminal_io import count_text
from amplifier_hooks.cli.project.read_project import follow_hooks, hooks_named, rules_in
from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.record.record_errors import LogUnavailable
from amplifier_hooks.storage.state_folder import StateFolder, default_socket
from approval_backends.backend import DeferredApprovals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from amplifier_hooks.cli.project.read_project import NamedHooks
    from amplifier_hooks.programs.program_session import Asking
    from amplifier_hooks.registry.registry import HookRegistry
    from amplifier_hooks.storage.database import Database
    from approval_backends.broker import Broker


@define(kw_only=True, eq=False)
class ApiHost:
    """The HTTP API of a host: its port, its database and its broker."""

    database: Database
    broker: Broker
    port: int
    """The port; 0 takes a free one, and is replaced by it when the API starts."""
    names: tuple[str, ...] = ()
    """The host names under which clients reach a proxy in front."""

    @property
    def address(self) -> str:
        """The URL of the API."""
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def serving(self, registry: HookRegistry, record: AuditLog) -> AsyncIterator[None]:
        """Serve the API for the block. Hooks that are defined over it are in force in this registry.

        Raises `OSError` if the port is taken, `StoreUnavailable`, and `SettingsError`.
        """
        from amplifier_hooks.definitions import DefinitionSettings
        from amplifier_hooks.server import open_api
        from amplifier_hooks.server.edge.host_check import HttpLimits
        from amplifier_hooks.server.edge.listen import listening, loopback_socket

        async with AsyncExitStack() as stack:
            await self.database.open()
            stack.push_async_callback(self.database.close)
            listener = stack.enter_context(loopback_socket(self.port))
            self.port = listener.getsockname()[1]
            managing = open_api(
                self.database,
                registry=registry,
                broker=self.broker,
                record=record,
                settings=DefinitionSettings.load(),
                bounds=HttpLimits(names=self.names),
            )
            api = await stack.enter_async_context(managing)
            await stack.enter_async_context(listening(api.app, listener))
            yield


API_OBSERVERS: Final = frozenset({"execution-log", "metrics"})
"""Names of the observers that the API itself registers."""


@frozen
class Host:
    """A host of program sessions, ready to serve. Only this user can use its socket."""

    hooks: NamedHooks
    socket: Path
    record: Path
    asking: Asking
    waits: float
    options: dict[str, Any]
    database: Database
    """The database of the approvals. The head of the record is beside them, so that neither is replaced alone."""
    port: int | None = None
    """The port at which programs with the token may post; none if None."""
    api: ApiHost | None = None
    """The HTTP API; none if None."""

    @property
    def hooks_line(self) -> str:
        """A sentence with the number of hooks in force; without any it says that nothing is stopped, and the remedy."""
        # A hook of a file may be at many events; one that is report-only is in force at none.
        names = {hook.name for hook in self.hooks.registry.hooks() if not hook.report_only}
        count = len(names if self.api is None else names - API_OBSERVERS)
        if count:
            return f"{count_text(count, 'hook')} {'is' if count == 1 else 'are'} in force."
        return "No hook is in force, so no call is stopped. Name your hooks, such as: --hooks amplifier-hooks.yaml"

    @property
    def report_only(self) -> tuple[str, ...]:
        """Names of the hooks, and the file of rules, that stop nothing."""
        rules = self.options.get("rules")
        named = (str(rules.source),) if rules is not None and rules.report_only else ()
        return (*(hook.name for hook in self.hooks.registry.hooks() if hook.report_only), *named)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str | None]:
        """Answer programs for the block; then end every session, and close the record.

        Yields the reason that every call is denied if the record and the store do not fit together, otherwise None.
        Raises `OSError` if the socket is in use or the record cannot be opened, and `StoreUnavailable`.
        """
        from amplifier_hooks.programs.program_session import DeliveryStore, ProgramSessions
        from amplifier_hooks.record.log import StoredHeads
        from amplifier_hooks.server.edge.listen import listening, unix_socket
        from amplifier_hooks.server.program_api import create_app

        heads, deliveries = await StoredHeads.beside(self.database), await DeliveryStore.beside(self.database)
        log = AuditLog.open(self.record, heads=heads)

        async def trouble() -> str | None:
            try:
                await log.check()
            except LogUnavailable as problem:
                return str(problem)
            return None

        options = {**self.options, "audit": log}
        sessions = ProgramSessions(self.hooks.registry, self.asking, self.waits, options, deliveries)
        try:
            async with AsyncExitStack() as stack:
                # Hooks come first and go last: no call is answered while some of them are not in force.
                await stack.enter_async_context(follow_hooks(self.hooks, self.options["approvals"], log))
                if self.api is not None:
                    await stack.enter_async_context(self.api.serving(self.hooks.registry, log))
                stack.push_async_callback(sessions.close)
                await stack.enter_async_context(listening(create_app(sessions, trouble), unix_socket(self.socket)))
                stack.callback(self.socket.unlink, missing_ok=True)
                if self.port is not None:
                    posting = create_app(sessions, trouble, token=programs_token())
                    await stack.enter_async_context(listening(posting, listener_at(self.port)))
                yield await trouble()
        finally:
            await self.hooks.close()  # after the program sessions, whose events they get
            with suppress(LogUnavailable):  # it was reported at the start, or when it happened
                await log.close()


def host_programs(
    broker: Broker,
    database: Database,
    *,
    hooks: str | None,
    rules: Path | None,
    record: Path | None,
    socket: Path | None,
    asking: Asking,
    waits: float,
    port: int | None,
    api: ApiHost | None = None,
    ports: tuple[int, ...] = (),
    unprotected: bool = False,
) -> Host:
    """Return the host for these options, checked. `ports` are those at which this process decides.

    Raises `HookError`, and `OSError` for files that cannot be read.
    """
    options: dict[str, Any] = {"approvals": DeferredApprovals(broker), "rules": rules_in(rules)}
    path = default_socket() if socket is None else socket
    kept = record or StateFolder().make().record
    named = hooks_named(hooks)
    options["self_protection"] = named.protection(path, kept, rules, ports=ports, off=unprotected)
    return Host(named, path, kept, asking, waits, options, database, port, api)
