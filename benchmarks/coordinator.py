"""The cost a session adds to a tool call, beside the parts that any session needs.

The parts: the input as canonical JSON and its digest, one copy decoded for the tool, five hooks before and five after
in a bare loop, and one record encoded. Ours has deadlines, isolation, a record in memory (four records a call) and
the payload's fields besides. An injection is measured beside counting its tokens with bare tiktoken. A second look at
an act is measured beside the first one, with five gates that look twice.

    python -m benchmarks coordinator --before PATH     the call beside that of another checkout, in the same rounds
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.act import Call, freeze
from amplifier_hooks.injection.budget import InjectionLimits
from amplifier_hooks.injection.tokens.tokenizers import Unavailable, encoding
from amplifier_hooks.testing import CollectingDisplay
from benchmarks.cases import Kind, bare, hooks, payload
from benchmarks.checkouts import subject_of
from benchmarks.dispatch import OURS
from benchmarks.options import parser
from benchmarks.rounds import QUICK, THOROUGH, Timed, measure
from benchmarks.table import VERDICT, Report, number, verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

HOOKS: Final = 5
QUIET: Final[list[Kind]] = ["continue"] * HOOKS
CALL: Final = f"`call_tool`, {HOOKS} hooks before and after"
INJECTION: Final = "one injection, count warm"
SECOND: Final = f"a second look, {HOOKS} gates"
BEFORE: Final = "the call, beside the other checkout"
CALL_AT_MOST: Final = 4.0
SECOND_AT_MOST: Final = 1.0
BEFORE_AT_MOST: Final = 0.6
INJECTION_AT_MOST: Final = 3.0
WHY: Final = {
    "call": (
        "the two emits take two fifths of it (see `dispatch`), four records a sixth, freezing the input a ninth, two "
        "payloads a tenth, the digest and three copies of the input a fifteenth each; six times of day, among these, "
        "are a tenth. Without all of these, the steps that are left take more than the parts do: what stops it, who "
        "cancels it, who may still be asked."
    ),
    "injection": "the text is escaped, labelled, reserved for, counted as it will be read, recorded and logged.",
}
TEXT: Final = "src/app.py:42:1: E501 Line too long (97 > 88)\n" * 12


class InMemory:
    """A record that is thrown away: what is measured is making it."""

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Take the line."""


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    options = parser("coordinator", __doc__)
    options.add_argument("--before", type=Path, metavar="PATH", help="a checkout to compare with, with its .venv")
    chosen = options.parse_args(arguments)
    report = Report("coordinator", ("tiktoken",))
    effort = QUICK if chosen.quick else THOROUGH
    rows = []
    why = {CALL: WHY["call"], BEFORE: WHY["call"], INJECTION: WHY["injection"]}
    with ExitStack() as stack:
        compared = [
            (CALL, tool_call(), CALL_AT_MOST),
            (SECOND, looks(), SECOND_AT_MOST),
            (INJECTION, injection(), INJECTION_AT_MOST),
        ]
        if chosen.before is not None:
            before = stack.enter_context(subject_of(chosen.before, __name__, "tool_call", "ours"))
            compared.append((BEFORE, {"bare": before, "ours": tool_call()["ours"]}, BEFORE_AT_MOST))
        for name, subjects, target in compared:
            samples = asyncio.run(measure(subjects, effort))
            ratio = samples["ours"].ratio(samples["bare"])
            usual = (number(samples[subject].usual) for subject in ("bare", "ours"))
            rows.append([name, *usual, number(ratio), *verdict(ratio, target)])
    report.table(["µs, median", "beside", "ours", "ratio", *VERDICT], rows)
    report.text(
        "Beside: the parts of a call one after the other; the first look at the act; counting the tokens; the call of "
        "the other checkout."
    )
    report.explain((row[0] for row in rows if "**missed**" in row), why)
    report.finish(write=chosen.write)


def tool_call() -> dict[str, Timed]:
    """One tool call, and its parts one after the other."""
    registry = HookRegistry()
    quiet = hooks(QUIET, OURS)
    for event in ("tool:pre", "tool:post"):
        for index, hook in enumerate(quiet):
            registry.on(event, hook, name=f"{event}-{index}")
    session = SessionCoordinator(registry, session_id="s", audit=InMemory())
    loop, data = bare(QUIET, OURS), payload()
    tool_input = data["tool_input"]
    record = {"kind": "outcome", "number": 1, "time": "2026-01-01T00:00:00+00:00", "session": "s", "event": "tool:pre"}

    async def tool(_input: Any) -> str:
        return "written"

    async def parts() -> None:
        text = json.dumps(tool_input, sort_keys=True, separators=(",", ":")).encode("ascii")
        hashlib.sha256(text).hexdigest()
        given = json.loads(text)
        await loop("tool:pre", data)
        await tool(given)
        await loop("tool:post", data)
        json.dumps(record, separators=(",", ":"))

    async def ours() -> None:
        await session.call_tool("Write", tool_input, tool)

    return {"bare": doing(parts), "ours": doing(ours)}


def looks() -> dict[str, Timed]:
    """The first look of hooks and record at an act, and a second one as it follows an approval."""
    registry = HookRegistry()
    for index, hook in enumerate(hooks(QUIET, OURS)):
        registry.gate("tool:pre", hook, name=f"gate-{index}")
    judge = SessionCoordinator(registry, session_id="s", audit=InMemory())._session  # noqa: SLF001  # no public method looks twice
    act, call = judge.act("tool:pre", "Write", freeze(payload()["tool_input"])), Call(id="c")

    async def look() -> None:
        await judge.judge(act, call, {})

    judged = asyncio.run(judge.judge(act, call, {}))

    async def look_again() -> None:
        await judge.look_again(judged)

    return {"bare": doing(look), "ours": doing(look_again)}


def injection() -> dict[str, Timed]:
    """One injected text, and counting its tokens."""
    found = encoding("o200k_base")
    if isinstance(found, Unavailable):
        raise SystemExit(found.reason)
    session = SessionCoordinator(
        session_id="s", audit=InMemory(), display=CollectingDisplay(), budget=InjectionLimits(per_turn=None)
    )
    result = HookResult.inject(TEXT)

    async def counted() -> None:
        len(found.encode_ordinary(TEXT))

    async def injected() -> None:
        await session.process_hook_result(result, "tool:post", "lint")
        session.context.messages.clear()

    return {"bare": doing(counted), "ours": doing(injected)}


def doing(step: Callable[[], Awaitable[None]]) -> Timed:
    """Return a function that takes a step so many times."""

    async def timed(times: int) -> float:
        start = perf_counter()
        for _ in range(times):
            await step()
        return perf_counter() - start

    return timed
