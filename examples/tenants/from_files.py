"""Two tenants and the system, from files: their hooks run in order, and one tenant's failures never reach the other.

python examples/tenants/from_files.py

Prints:

    6 added, 0 changed, 0 removed
    acme:
      security: the system's own
      input: the system's come first at equal priority
      input: Acme's
      → denied by acme guard
    globex:
      security: the system's own
      input: the system's come first at equal priority
      input: Globex's, for two tools
      → written
"""

import asyncio
import logging
from pathlib import Path

from amplifier_hooks import HookRegistry, SessionCoordinator
from amplifier_hooks.definitions import DefinedHooks, load_files

HERE = Path(__file__).parent
FOR_TENANTS = {
    "http",
    "tenant_hooks:Note",
    "tenant_hooks:slow",
    "tenant_hooks:broken",
}  # what the operator lets them use


async def main() -> None:
    """Let an agent of each tenant write a file."""
    registry = HookRegistry()
    hooks = DefinedHooks(registry, tenant_handlers=FOR_TENANTS)
    plan = hooks.plan(load_files(HERE / "amplifier-hooks.yaml"))
    print(hooks.install(plan))
    for tenant in ("acme", "globex"):
        print(f"{tenant}:")
        async with SessionCoordinator(hooks=registry, tenant=tenant) as session:
            outcome = await session.call_tool("Write", {"path": "notes.txt"}, lambda _: "written")
            print(f"  → denied by {outcome.by}" if outcome.denied else f"  → {outcome.value}")
    await hooks.close()


logging.disable()  # what became of Acme's hooks is in the log, and not for this page
asyncio.run(main())
