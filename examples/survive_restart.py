"""A program asks and is killed. Somebody decides meanwhile. It starts again, gets that decision, and acts once.

The question, the decision and the claim live in a file. Its id is the same after a restart, so the same question is
not asked a second time; a decision is claimed before the action and settled after it, so the action is not run twice.

Run it: python examples/survive_restart.py

Prints:
    worker: may I deploy build 7?
    worker: killed
    Robin sees: Deploy to production? deploy {'build': 7}
    worker: allowed by Robin (on call, go ahead)
    worker: deployed build 7
    worker: that was done already
"""

import asyncio
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from amplifier_hooks.action import Action, freeze
from amplifier_hooks.ports import ApprovalRequest, Option, Question
from approval_backends.deferred import DeferredApprovals
from approval_backends.errors import BackendUnavailable
from approval_backends.lifecycle import Decider
from approval_backends.stores.sqlite import SqliteStore

ARGUMENTS = {"build": 7}
ACTION = Action("acme", "release-train", "tool:pre", "deploy", freeze(ARGUMENTS))


def question() -> ApprovalRequest:
    """The question, with an id that stays the same: made of the session and the step, not of chance."""
    now = datetime.now(UTC)
    return ApprovalRequest(
        id="release-train/deploy/1",
        tenant=ACTION.tenant,
        session=ACTION.session,
        agent="release bot",
        event=ACTION.event,
        tool=ACTION.tool,
        arguments=ARGUMENTS,
        digest=ACTION.digest,
        questions=(Question(hook="production", prompt="Deploy to production?"),),
        options=(
            Option(id="allow", label="Allow once", kind="allow_once"),
            Option(id="deny", label="Deny", kind="reject_once"),
        ),
        default="deny",
        created=now,
        expires=now + timedelta(hours=24),
    )


async def worker(file: str) -> None:
    """Ask, wait, and act on the answer. The first time, it is killed while it waits."""
    async with DeferredApprovals(SqliteStore(file)) as approvals:
        await approvals.resume(ACTION.tenant, ACTION.session)
        first = await approvals.broker.store.get(question().id) is None
        if first:
            print("worker: may I deploy build 7?", flush=True)
            await approvals.broker.submit(question())
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            decision = await approvals.request(question())
        except BackendUnavailable:
            print("worker: that was done already")
            return
        print(f"worker: allowed by {decision.by} ({decision.message})")
        if await approvals.claim(question().id, ACTION.digest):
            print("worker: deployed build 7")
            await approvals.settle(question().id, "done")


async def robin(file: str) -> None:
    """Another program, or another machine: list what waits, and decide."""
    me = Decider(name="Robin", channel="example")
    async with DeferredApprovals(SqliteStore(file)) as approvals:
        for record in await approvals.pending(me):
            request = record.request
            print(f"Robin sees: {request.prompt} {request.tool} {dict(request.arguments)}", flush=True)
            await approvals.decide(request.id, request.digest, "allow", me, message="on call, go ahead")


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
