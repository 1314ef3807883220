"""Sessions with the ready-made set and a durable record: in this process, and behind a server in another.

`amplifier-hooks init` writes the set. Its rate limit is raised, as a benchmark calls without pause. A variant leaves a
part out, so that the difference is the cost of the part.

    python -m benchmarks.guarded FOLDER VARIANT     serve programs at FOLDER/VARIANT.sock; print the port for HTTP, and
                                                    that of a bare server
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import define
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from amplifier_hooks import AuditLog, HookRegistry, SelfProtection, SessionCoordinator
from amplifier_hooks.cli.project.project_commands import template
from amplifier_hooks.definitions import DefinedHooks, load_files
from approval_backends.backend import DeferredApprovals
from approval_backends.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

__all__ = ["TOKEN", "VARIANTS", "Guarded", "Variant"]

Variant = Literal["all", "no record", "one gate"]
VARIANTS: Final[tuple[Variant, ...]] = ("all", "no record", "one gate")
"""The whole; without a record; and with one gate that says nothing in place of the set."""

TOKEN: Final = "token"  # noqa: S105  # of a server that lives for a benchmark


@define
class Guarded:
    """A registry, and the options of its sessions."""

    registry: HookRegistry
    options: Mapping[str, Any]
    folder: Path

    @classmethod
    async def open(cls, stack: AsyncExitStack, folder: Path, variant: Variant) -> Guarded:
        """Open the store and the record of a variant, in a folder of its own."""
        own = folder / variant
        own.mkdir()
        approvals = await stack.enter_async_context(DeferredApprovals(SqliteStore(own / "approvals.db")))
        options: dict[str, Any] = {"approvals": approvals, "self_protection": SelfProtection()}
        if variant != "no record":
            options["audit"] = AuditLog.open(own / "record.jsonl")
            stack.push_async_callback(options["audit"].close)
        return cls(one_gate() if variant == "one gate" else ready_made(own), options, own)

    async def session(self, stack: AsyncExitStack) -> SessionCoordinator:
        """Open a session."""
        return await stack.enter_async_context(
            SessionCoordinator(hooks=self.registry, cwd=str(self.folder), **self.options)
        )


def ready_made(folder: Path) -> HookRegistry:
    """Return a registry with the hooks of the file that `init` writes."""
    path = folder / "amplifier-hooks.yaml"
    path.write_text(template().replace("calls: 600", "calls: 100000"), encoding="utf-8")
    hooks = DefinedHooks(HookRegistry(register_on_error="deny"))
    hooks.install(hooks.plan(load_files(path)))
    return hooks.registry


def one_gate() -> HookRegistry:
    """Return a registry with a gate that has nothing to say."""
    registry = HookRegistry()
    registry.gate("tool:pre", name="gate")(nothing)
    return registry


async def nothing(_event: str, _data: Mapping[str, Any]) -> None:
    """A hook that has nothing to say."""


async def serve(folder: Path, variant: Variant) -> None:
    """Serve programs until standard input ends."""
    from amplifier_hooks.programs.program_session import DeliveryStore, ProgramSessions
    from amplifier_hooks.server.edge.listen import listening, loopback_socket, unix_socket
    from amplifier_hooks.server.program_api import create_app
    from amplifier_hooks.storage.sqlite import SqliteDatabase

    async with AsyncExitStack() as stack:
        guarded = await Guarded.open(stack, folder, variant)
        database = await stack.enter_async_context(SqliteDatabase(guarded.folder / "deliveries.db"))
        deliveries = await DeliveryStore.beside(database)
        pool = ProgramSessions(guarded.registry, options=guarded.options, deliveries=deliveries)
        stack.push_async_callback(pool.close)
        port, bare = loopback_socket(0), loopback_socket(0)
        await stack.enter_async_context(listening(create_app(pool), unix_socket(folder / f"{variant}.sock")))
        await stack.enter_async_context(listening(create_app(pool, token=TOKEN), port))
        await stack.enter_async_context(listening(bare_app(), bare))
        print(port.getsockname()[1], bare.getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)


def bare_app() -> Starlette:
    """Return the smallest possible server that reads a body."""

    async def answer(request: Request) -> Response:
        await request.body()
        return Response(b"{}", media_type="application/json")

    return Starlette(routes=[Route("/", answer, methods=["POST"])])


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), next(one for one in VARIANTS if one == sys.argv[2])))
