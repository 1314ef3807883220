"""A program asks and is killed. An approver decides meanwhile. It starts again, gets that decision, and acts once.

The question, the decision and the claim live in a file. The call has an id of the program's own, so after a restart the
same call is the same question: it is not asked a second time, and a call that was approved once runs once.

Run it: python examples/survive_restart.py

Prints:
    worker: may I deploy build 7? No answer yet
    worker: killed
    Robin sees: Deploy to production? deploy {'build': 7}
    worker: deploying build 7
    worker: deployed
    worker: deployed
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from approval_backends import Decider, DeferredApprovals, SqliteStore

registry = HookRegistry()


@registry.gate("tool:pre", match="deploy")
async def production(event: str, data: Mapping[str, Any]) -> HookResult:
    """Ask about every deployment; the question may be answered for a day."""
    return HookResult.ask("Deploy to production?", options=["Allow once", "Deny"], timeout=24 * 3600)


def deploy(given: Any) -> None:
    """Deploy a build, which must not happen unasked, and not twice."""
    print(f"worker: deploying build {given['build']}", flush=True)


async def worker(file: str) -> None:
    """Make one call. Until an approver decides, it is pending; another call with the same id goes on from there."""
    async with (
        DeferredApprovals(SqliteStore(file)) as approvals,
        SessionCoordinator(registry, session_id="release-train", approvals=approvals, approval_wait=0.2) as session,
    ):
        outcome = await session.call_tool("deploy", {"build": 7}, deploy, call_id="deploy-7")
        if outcome.pending:
            print("worker: may I deploy build 7? No answer yet", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        print(f"worker: {'deployed' if outcome.ok else outcome.reason}")


async def robin(file: str) -> None:
    """Act as another program, or another machine: list the requests that wait, and decide."""
    me = Decider(name="Robin", channel="example")
    async with DeferredApprovals(SqliteStore(file)) as approvals:
        for record in await approvals.broker.pending(me):
            request = record.request
            print(f"Robin sees: {request.prompt} {request.tool} {dict(request.arguments)}", flush=True)
            await approvals.broker.decide(request.id, request.digest, request.options[0].id, me)


def main() -> None:
    """Start the worker three times, with a person in between."""
    with TemporaryDirectory() as folder:
        file = str(Path(folder) / "approvals.db")
        command = [sys.executable, __file__, file]
        if subprocess.run(command, check=False).returncode == -signal.SIGKILL:
            print("worker: killed", flush=True)
        asyncio.run(robin(file))
        subprocess.run(command, check=True)
        subprocess.run(command, check=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(worker(sys.argv[1]))
    else:
        main()
