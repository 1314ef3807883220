"""The cases for every dispatcher, and the bare loop that does them at the least cost.

The bare loop is what people write before they have a registry: `for hook in hooks: await hook(event, data)`. It has no
deadlines, isolation, attribution or protection of the data, and nothing written in Python can be cheaper. In each
comparison it runs the very same hook functions as its rival (or, where a peer calls hooks differently, hooks that
build the same answer), so a ratio shows what the dispatcher adds and not what the hooks do.

Needs the standard library only, as `rounds.py` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter
from typing import Any, Final, Literal

from benchmarks.rounds import Effort, Samples, Timed, measure

__all__ = [
    "CASES",
    "EVENT",
    "Answers",
    "Case",
    "Emit",
    "Hook",
    "bare",
    "building",
    "crowded",
    "hooks",
    "idle",
    "payload",
    "repeated",
    "sampled",
]

Hook = Callable[[str, Any], Awaitable[Any]]
Emit = Callable[[str, Any], Awaitable[Any]]
Kind = Literal["continue", "suspend", "deny", "modify"]

EVENT: Final = "tool:pre"
CROWD_ROUNDS: Final = 11


def payload() -> dict[str, Any]:
    """The data of one tool call."""
    return {
        "session_id": "5f0c2d",
        "tool_name": "Write",
        "tool_call_id": "call_1",
        "tool_input": {"file_path": "src/app.py", "content": "print('hello')\n"},
    }


@dataclass(frozen=True, slots=True)
class Case:
    """So many hooks of these kinds, in turn; and how many times the bare loop it may take us."""

    name: str
    kinds: tuple[Kind, ...]
    target: float
    """Most times the bare loop that it may take; 0 is no limit."""
    sessions: int = 0
    """Number of sessions that emit at the same time; 0 is one emit after the other."""
    events: int = 0
    """Number of events that each session emits."""
    beside_results: float = 0.0
    """Most times the loop that builds the same results (`Answers.record` and `merge`); 0 is no comparison."""


CASES: Final = (
    Case("no hooks", (), 2.0),
    Case("1 hook", ("continue",), 7.0),
    Case("10 hooks", ("continue",) * 10, 2.7),
    Case("100 hooks", ("continue",) * 100, 1.8),
    Case("10 that suspend", ("suspend",) * 10, 1.3),
    Case("first of 10 denies", ("deny",) + ("continue",) * 9, 0.0, beside_results=3.0),
    Case("10 that modify", ("modify",) * 10, 0.0, beside_results=1.8),
    Case("crowd", ("continue",) * 5, 3.0, sessions=1000, events=100),
    Case("crowd, 1 of 5 suspends", ("continue",) * 4 + ("suspend",), 3.0, sessions=1000, events=100),
)


def idle(count: int) -> Case:
    """So many hooks with nothing to say, to be weighed rather than timed."""
    return Case(f"{count} hooks", tuple[Kind, ...](["continue"] * count), target=0.0)


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of hooks, in the types of the measured dispatcher."""

    nothing: Any
    deny: Callable[[], Any]
    modify: Callable[[Mapping[str, Any]], Any]


def hooks(kinds: Sequence[Kind], answers: Answers) -> list[Hook]:
    """One hook of each kind; the n-th `modify` sets the field `k<n>`."""
    return [_hook(kind, number, answers) for number, kind in enumerate(kinds)]


def _hook(kind: Kind, number: int, answers: Answers) -> Hook:
    nothing, deny, modify, key = answers.nothing, answers.deny, answers.modify, f"k{number}"
    match kind:
        case "continue":

            async def hook(_event: str, _data: Any) -> Any:
                return nothing

        case "suspend":

            async def hook(_event: str, _data: Any) -> Any:
                await asyncio.sleep(0)
                return nothing

        case "deny":

            async def hook(_event: str, _data: Any) -> Any:
                return deny()

        case _:

            async def hook(_event: str, _data: Any) -> Any:
                return modify({key: number})

    return hook


def bare(kinds: Sequence[Kind], answers: Answers) -> Emit:
    """The loop. Answers are looked at only where a hook of the case has something to say."""
    nothing, listening = answers.nothing, hooks(kinds, answers)
    if {"deny", "modify"}.isdisjoint(kinds):

        async def emit(event: str, data: Any) -> Any:
            for hook in listening:
                await hook(event, data)
            return nothing

    else:

        async def emit(event: str, data: Any) -> Any:
            for hook in listening:
                answer = await hook(event, data)
                if answer is not nothing:
                    if answer.action == "deny":
                        return answer
                    data = {**data, **answer.data}
            return nothing

    return emit


def building(
    kinds: Sequence[Kind],
    answers: Answers,
    record: Callable[[str, Any], Any],
    conclude: Callable[[str, Any, list[Any], Any], Any],
) -> Emit:
    """The bare loop, and the results that an emit gives: a record of each answer, and one outcome of all of them.

    `record` makes the record of an answer, from the hook's name and the answer; `conclude` makes the outcome, from the
    event, the data as the hooks left it, the records, and the denial or None.
    """
    nothing, listening = answers.nothing, [(f"hook_{place}", hook) for place, hook in enumerate(hooks(kinds, answers))]

    async def emit(event: str, data: Any) -> Any:
        records, denial = [], None
        for name, hook in listening:
            answer = await hook(event, data)
            if answer is not nothing:
                one = record(name, answer)
                records.append(one)
                if answer.action == "deny":
                    denial = one
                    break
                data = {**data, **answer.data}
        return conclude(event, data, records, denial)

    return emit


def repeated(emit: Emit) -> Timed:
    """One emit after the other, from one task; nothing between the clock readings but the emits and their loop."""
    data = payload()

    async def timed(number: int) -> float:
        turns = repeat(None, number)
        start = perf_counter()
        for _ in turns:
            await emit(EVENT, data)
        return perf_counter() - start

    return timed


def crowded(emit: Emit, sessions: int, events: int) -> Timed:
    """Many sessions at once, a task each; timed from when the first is made until the last is done."""

    async def session() -> None:
        data = payload()
        for _ in repeat(None, events):
            await emit(EVENT, data)

    async def timed(number: int) -> float:
        start = perf_counter()
        for _ in repeat(None, number):
            await asyncio.gather(*(session() for _ in range(sessions)))
        return (perf_counter() - start) / (sessions * events)

    return timed


async def sampled(emits: Mapping[str, Emit], case: Case, effort: Effort) -> dict[str, Samples]:
    """Samples of each emit in the circumstances of the case. A crowd is one sample, however long it takes."""
    if case.sessions:
        crowds = {name: crowded(emit, case.sessions, case.events) for name, emit in emits.items()}
        return await measure(crowds, Effort(min(effort.rounds, CROWD_ROUNDS), effort.seconds), number=1)
    return await measure({name: repeated(emit) for name, emit in emits.items()}, effort)
