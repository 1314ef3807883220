"""Work that will not end is kept until the process ends, and does not keep the process from ending."""

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, sys
import amplifier_hooks.record.verify  # as the command does; by chance fewer modules are cleared without it
from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.definitions.install.build_hooks import Background
from amplifier_hooks.session.options import as_backend
from approval_backends import RacingApprovals

async def deaf(*arguments, **options):
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:
            pass

class Deaf:
    request_approval = deaf

def ask(event, data):
    return HookResult.ask("?", timeout=0.01)

async def main(kind):
    registry, approvals, background = HookRegistry(), None, Background(farewell=0.01)
    if kind == "gate":
        registry.gate("tool:pre", deaf, timeout=0.01)
    elif kind == "captured":
        registry.gate("tool:pre", deaf, timeout=0.01, capture=True)
    elif kind == "background":
        registry.observe("tool:pre", background.observer("deaf", deaf, 9))
    else:
        registry.gate("tool:pre", ask)
        approvals = Deaf() if kind == "approver" else RacingApprovals(as_backend(Deaf()))
    async with SessionCoordinator(hooks=registry, approvals=approvals) as session:
        outcome = await session.call_tool("Bash", {}, lambda given: "ran")
    await background.close()
    return outcome.status

loop = asyncio.new_event_loop()
print(loop.run_until_complete(main(sys.argv[1])))
loop.close()
"""


@pytest.mark.rule("DSP-5")
@pytest.mark.parametrize(
    ("kind", "status"),
    [("gate", "denied"), ("captured", "denied"), ("background", "ok"), ("approver", "denied"), ("race", "denied")],
)
def test_the_process_ends(kind: str, status: str) -> None:
    """A process ends although a hook or an approval backend swallows its cancellation and its closing for ever."""
    command = [sys.executable, "-c", PROGRAM, kind]
    assert subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout == f"{status}\n"
