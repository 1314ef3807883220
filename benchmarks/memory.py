"""The memory of a registry, empty and for every hook more.

It is weighed after an emit, with everything it keeps to emit fast. The bare loop is a list of the same hook functions:
its memory is the hooks' own, and the targets are for the memory that a registry adds to that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from amplifier_hooks import HookRegistry
from benchmarks.cases import EVENT, Emit, bare, idle, payload
from benchmarks.dispatch import INTENTS, OURS, emitting
from benchmarks.options import parser
from benchmarks.peers import PEERS, ask
from benchmarks.table import NOTHING, VERDICT, Report, number, verdict
from benchmarks.weight import weights

if TYPE_CHECKING:
    from collections.abc import Sequence

EMPTY_AT_MOST = 2048
HOOK_AT_MOST = 400


def main(arguments: Sequence[str]) -> None:
    """Weigh, print, and keep what was printed if wanted."""
    options = parser("memory", __doc__)
    options.add_argument("--peers", action="store_true", help="weigh others beside it")
    chosen = options.parse_args(arguments)
    report = Report("memory")

    base = asyncio.run(weigh(None))
    rows = [["bare loop", number(base["empty"]), "", "", number(base["per hook"]), NOTHING, "", ""]]
    for intent in INTENTS:
        found = asyncio.run(weigh(intent))
        added = found["per hook"] - base["per hook"]
        rows.append(
            [
                f"registry, `{intent}`",
                number(found["empty"]),
                *verdict(found["empty"], EMPTY_AT_MOST),
                number(found["per hook"]),
                number(added),
                *verdict(added, HOOK_AT_MOST),
            ]
        )
    for name in PEERS if chosen.peers else ():
        peer = ask(name, quick=True)
        if peer:
            found = peer.memory
            figures = [number(found["empty"]), "", "", number(found["per hook"]), NOTHING, "", ""]
            rows.append([f"{name} {peer.version}", *figures])
    report.text(
        "Bytes. A hook weighs what its function does, and what is added to it. google-adk, pluggy, pydantic-ai and "
        "strands-agents are given one function over and over, so the function is not in their figures."
    )
    report.table(["", "empty", *VERDICT, "a hook more", "added", *VERDICT], rows)
    report.finish(write=chosen.write)


async def weigh(intent: str | None) -> dict[str, float]:
    """The bytes of a registry with hooks of this intent, or of the bare loop."""

    async def made(count: int) -> Emit:
        case = idle(count)
        emit = emitting(HookRegistry(), intent, case) if intent else bare(case.kinds, OURS)
        await emit(EVENT, payload())
        return emit

    return await weights(made)
