"""The cost of a ready-made hook where it has nothing to say, and where it has: schemas, skills, secrets.

A call that is none of a hook's is emitted past that hook, and past an empty one at the same place. The schema guard is
compared with the validator it asks; skills with one pass over the words of the prompt, which looks each of them up.
Secrets are looked for in texts with few, with many, and in ones that are made to be slow (redaction.py).
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs

from amplifier_hooks import HookRegistry, library
from benchmarks import redaction
from benchmarks.options import parser
from benchmarks.rounds import QUICK, Effort, measure
from benchmarks.table import VERDICT, Report, number, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from amplifier_hooks.library.parts.ready_made import ReadyMade
    from benchmarks.rounds import Samples, Timed

STEADY: Final = Effort(rounds=41, seconds=0.01)
PAST_AT_MOST: Final = 2.0
GUARD_AT_MOST: Final = 3.0
SKILLS_AT_MOST: Final = 5.0

FILES: Final = 1_000
WORDS: Final = 400

READ: Final = {"session_id": "s", "tool_name": "Read", "tool_call_id": "c", "tool_input": {"file_path": "a.txt"}}
DONE: Final = {**READ, "result": "text", "duration_ms": 1.0}
SHAPE: Final = {"tools": {"Write": {"required": ["file_path"]}}}

PAST: Final[tuple[tuple[str, dict[str, Any], str, dict[str, Any]], ...]] = (
    ("InjectionScan", {"match": "Web*"}, "tool:post", DONE),
    ("LinterFeedback", {}, "tool:post", DONE),
    ("ProtectedPaths", {"match": "Write|Edit"}, "tool:pre", READ),
    ("RateLimit", {"match": "Web*"}, "tool:pre", READ),
    ("SchemaGuard", SHAPE, "tool:pre", READ),
    ("SchemaNudge", SHAPE, "tool:post", DONE),
    ("SideEffects", {}, "tool:pre", READ),
    (
        "SubagentArtifacts",
        {"expected": {"writer": ["a"]}},
        "subagent:stop",
        {"session_id": "s", "agent_name": "reader"},
    ),
    ("TestFeedback", {}, "tool:post", DONE),
    ("ToolLedger", {"match": "Write"}, "tool:pre", READ),
    ("TypeFeedback", {}, "tool:post", DONE),
)
"""A hook, its settings, and a call it is asked about that is none of its business; of some, already by its match.

Hooks that have something to do at each of their events have no row.
"""


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    chosen = parser("library", __doc__).parse_args(arguments)
    effort = QUICK if chosen.quick else STEADY
    report = Report("library", ("jsonschema-rs", "pydantic"))

    report.text("A call that is none of a hook's, emitted past it; µs, median.")
    rows = [[case[0], *compared(asyncio.run(past(*case, effort)), PAST_AT_MOST)] for case in PAST]
    report.table(["hook", "past an empty hook", "past this one", "ratio", *VERDICT], rows)

    report.text("The schema guard on an input of 1 KB that is right; µs, median.")
    report.table(["", "jsonschema-rs", "ours", "ratio", *VERDICT], asyncio.run(guarded(effort)))

    report.text(f"Skills in {FILES:,} files, a prompt of {WORDS} words; µs, median.")
    with tempfile.TemporaryDirectory() as folder:
        report.table(["prompt", "one pass", "ours", "ratio", *VERDICT], asyncio.run(skilled(Path(folder), effort)))
    redaction.add_to(report, quick=chosen.quick)
    report.finish(write=chosen.write)


# -- past it -----------------------------------------------------------------------------------------------------------


async def empty(event: str, data: Mapping[str, Any]) -> None:
    """Say nothing."""


async def past(
    name: str, settings: dict[str, Any], event: str, payload: dict[str, Any], effort: Effort
) -> dict[str, Samples]:
    """Emitting past this hook, and past an empty one at the same place."""
    hook: ReadyMade[Any] = getattr(library, name).from_config(settings)
    ours, bare = HookRegistry(), HookRegistry()
    hook.register(ours)
    intent = next((point.intent for point in hook.points() if point.event == event and point.intent != "observe"), "on")
    getattr(bare, intent)(event, empty)
    return await measure({"bare": emitting(bare, event, payload), "ours": emitting(ours, event, payload)}, effort)


def emitting(registry: HookRegistry, event: str, payload: dict[str, Any]) -> Timed:
    """Return a function that emits the event so many times."""

    async def timed(times: int) -> float:
        start = perf_counter()
        for _ in range(times):
            await registry.emit(event, payload)
        return perf_counter() - start

    return timed


def doing(function: Callable[..., Any], *arguments: Any) -> Timed:
    """Return a function that calls the function so many times."""

    async def timed(times: int) -> float:
        start = perf_counter()
        for _ in range(times):
            function(*arguments)
        return perf_counter() - start

    return timed


# -- schemas -----------------------------------------------------------------------------------------------------------


def schema() -> dict[str, Any]:
    """A schema of what an editing tool takes."""
    edit = {
        "type": "object",
        "properties": {
            "old": {"type": "string", "minLength": 1},
            "new": {"type": "string"},
            "line": {"type": "integer", "minimum": 1},
            "mode": {"enum": ["replace", "insert", "delete"]},
        },
        "required": ["old", "new", "line"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {"file_path": {"type": "string", "maxLength": 4096}, "edits": {"type": "array", "items": edit}},
        "required": ["file_path", "edits"],
        "additionalProperties": False,
    }


def input_of(size: int) -> dict[str, Any]:
    """An input of about so many bytes that is right by it."""
    value: dict[str, Any] = {"file_path": "src/pkg/module.py", "edits": []}
    while len(json.dumps(value)) < size:
        line = len(value["edits"]) + 1
        value["edits"].append(
            {"old": f"return {line}", "new": f"return total + {line}", "line": line, "mode": "replace"}
        )
    return value


async def guarded(effort: Effort) -> list[list[str]]:
    """The guard beside the validator it asks: the hook alone, and an emit past it."""
    value = input_of(1_024)
    guard = library.SchemaGuard.from_config({"tools": {"Edit": {"input_schema": schema()}}})
    registry = HookRegistry()
    guard.register(registry)
    payload = {"session_id": "s", "tool_name": "Edit", "tool_call_id": "c", "tool_input": value}

    async def alone(times: int) -> float:
        start = perf_counter()
        for _ in range(times):
            await guard.before("tool:pre", payload)
        return perf_counter() - start

    bare = doing(jsonschema_rs.validator_for(schema()).is_valid, value)
    ways: list[tuple[str, Timed]] = [("the hook", alone), ("an emit past it", emitting(registry, "tool:pre", payload))]
    return [
        [name, *compared(await measure({"bare": bare, "ours": timed}, effort), GUARD_AT_MOST)] for name, timed in ways
    ]


# -- skills ------------------------------------------------------------------------------------------------------------


def skill_files(folder: Path) -> None:
    """Skills with a name and three keywords each, which share many words."""
    for number_ in range(FILES):
        keywords = [f"topic{number_ % 97}", f"tool{number_ % 31} setup", f"skill{number_}"]
        front = json.dumps({"name": f"skill-{number_}", "description": "One step.", "keywords": keywords})
        (folder / f"skill{number_}.md").write_text(f"---\n{front}\n---\nDo it.\n", encoding="utf-8")


async def skilled(folder: Path, effort: Effort) -> list[list[str]]:
    """A prompt past the skills, beside one pass over its words."""
    skill_files(folder)
    hook = library.Skills.from_config({"folders": [str(folder)]})
    registry = HookRegistry()
    hook.register(registry)
    known = {f"skill{number_}": number_ for number_ in range(FILES)}
    prose = ("please look at the tests of this module and say why they take so long " * WORDS).split()[:WORDS]
    rows = []
    for name, words in (
        ("about nothing", prose),
        ("about one skill", [*prose[:-1], "skill77"]),
        ("about ten of them", [*prose[:-10], *(f"skill{number_}" for number_ in range(10))]),
    ):
        prompt = " ".join(words)
        payload = {"session_id": "s", "prompt": prompt}
        await registry.emit("prompt:submit", payload)  # what it brings up is shown once
        samples = await measure(
            {"bare": doing(one_pass, known, prompt), "ours": emitting(registry, "prompt:submit", payload)}, effort
        )
        rows.append([name, *compared(samples, SKILLS_AT_MOST)])
    return rows


def one_pass(known: Mapping[str, int], prompt: str) -> int:
    """Look every word up."""
    return sum(word.lower() in known for word in prompt.split())


def compared(samples: dict[str, Samples], target: float) -> Iterable[str]:
    """The cells of one comparison."""
    bare, ours = samples["bare"], samples["ours"]
    ratio = ours.ratio(bare)
    return [number(bare.usual), number(ours.usual), number(ratio), *verdict(ratio, target)]
