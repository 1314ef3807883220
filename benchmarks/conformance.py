"""The results of the AGENT-HOOKS conformance kit for a session that runs foreign interceptors.

Vectors of the kit by part. One is left out where it is about a capability that a session does not have, and says so.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from agent_hooks.ctk import load_vectors, run_vector

from benchmarks.options import parser
from benchmarks.table import Report
from tests.conformance.agent_hooks_harness import CAPABILITIES, SessionHarness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_hooks.ctk import VectorResult


def main(arguments: Sequence[str]) -> None:
    """Run the kit, print, and keep what was printed if wanted."""
    chosen = parser("conformance", __doc__).parse_args(arguments)
    report = Report("conformance", ("agent-hooks-sdk",))
    parts, results = asyncio.run(run())
    rows = [[part, *(str(parts[part][status]) for status in ("pass", "fail", "skip"))] for part in sorted(parts)]
    total = sum(parts.values(), Counter[str]())
    rows.append(["all", *(str(total[status]) for status in ("pass", "fail", "skip"))])
    report.table(["part of AGENT-HOOKS 0.1", "passed", "failed", "left out"], rows)
    report.text(f"Declared: {', '.join(sorted(one.value for one in CAPABILITIES))}.")
    for one in results:
        if one.status != "pass":
            report.text(f"- {one.id}: {one.detail or '; '.join(one.failures)}")
    report.finish(write=chosen.write)


async def run() -> tuple[dict[str, Counter[str]], list[VectorResult]]:
    """Return the number of vectors by part and result, and all vectors."""
    parts: dict[str, Counter[str]] = defaultdict(Counter)
    results = []
    for vector in load_vectors():
        result = await run_vector(SessionHarness(), vector)
        parts[(vector.get("part") or "core").partition("/")[0]][result.status] += 1
        results.append(result)
    return parts, results
