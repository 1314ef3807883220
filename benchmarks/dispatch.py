"""The cost of an emit: this registry beside a bare loop over the same hooks, and beside other dispatchers.

Ours runs with everything on that is on by default: deadlines, isolation, attribution, a read-only view of the data, a
depth limit. The targets are for `on` hooks. Beside them stand gates, which have the clock read after each and look at
changed data a second time, and `register` hooks, which get a copy of the data each.

    python -m benchmarks dispatch --peers     others too, each in an environment of its own (made when first wanted)
    python -m benchmarks dispatch --profile   what each ingredient of an emit costs, where it stands
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks import HookRegistry, HookResult
from amplifier_hooks.result import CONTINUE, Answer, Outcome
from benchmarks.ablation import INGREDIENTS, AsItIs, variants
from benchmarks.cases import CASES, EVENT, Answers, Case, Emit, bare, building, hooks, repeated, sampled
from benchmarks.options import parser
from benchmarks.peers import PEERS, Measured, ask
from benchmarks.rounds import QUICK, THOROUGH, Effort, Samples, measure
from benchmarks.table import NOTHING, VERDICT, Report, number, verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INTENTS: Final = ("on", "gate", "register")
BESIDE_ON: Final = ("1 hook", "10 hooks", "100 hooks")
BESIDE_ON_AT_MOST: Final = 1.5
PROFILED: Final = ("1 hook", "10 hooks", "100 hooks", "10 that suspend", "first of 10 denies", "10 that modify")

OURS: Final = Answers(nothing=CONTINUE, deny=lambda: HookResult.deny("not here"), modify=HookResult.modify)


LATE: Final = (
    "A mapping that copies a field when a hook reads it takes 0.67 of the time for one hook that reads nothing, 0.55 "
    "for 100, but 1.1 to 1.4 where hooks read three fields and 1.9 where they read all, and it is no dict: "
    "`json.dumps(data)` fails. A dict that copies only its lists and objects late takes 1.0 and 0.8, and 1.3 to 1.5 "
    "where hooks read three fields; libraries that read a dict past its methods would miss those"
)
ONCE: Final = (
    "of one emit, the fields that need a copy are found, and copied for the hook, in a quarter of its time; asking "
    "whether a hook has cancelled the task takes a tenth, as does a context that says who runs, with comparing it; the "
    "read-only view and two readings of the clock take a tenth together, calls and branches the rest (`--profile` "
    "leaves out one at a time). One context for all emits would save a twentieth, and name no hook that runs; one run "
    "for all of them, cleared for each emit, takes longer than a new one. A hook can cancel the task without waiting, "
    f"so no emit can do without asking. {LATE}"
)
EACH: Final = (
    "a hook gets a payload of its own, which takes two thirds of what is not the hook itself: a read-only view, and "
    "copies of the lists and objects in it. Contexts are compared after it, and two flags looked at"
)
HELD: Final = (
    "the clock is read after each gate, and the gate is held to its own deadline. One reading after the last gate "
    "would take 0.83 of the time of 100 gates and 0.98 of that of one, and could not tell which gate was late"
)
WHY: Final[Mapping[str, str]] = {
    "1 hook": f"{ONCE}. There is one hook to share it.",
    "10 hooks": f"{EACH}.",
    "100 hooks": f"{EACH}.",
    "10 that suspend": (
        "joining the watchdog takes as long as two emits, once. Each hook that waited has its time taken, held to its "
        "deadline and kept, and each step of the loop passes two more generators and enters a context."
    ),
    "first of 10 denies": (
        "the loop makes an answer and an outcome as well. Ours also makes a payload of its own for the hook, a context "
        "and a run, as for one hook, and takes the time. The record of the answer takes a fifth of it."
    ),
    "10 that modify": (
        "for each hook the loop merges two dicts and makes a record. Ours also freezes the change, so that the hook "
        "cannot change it later, checks that no identity field is touched, makes a read-only view of the outcome with "
        "copies of what is in it, and takes the time. None of these takes more than a tenth."
    ),
    "crowd": f"{ONCE}. There are five hooks to share it.",
    "crowd, 1 of 5 suspends": "as for hooks that suspend: the watchdog is joined in each emit, for one hook.",
    "`gate`, 10 hooks": f"{HELD}.",
    "`gate`, 100 hooks": f"{HELD}.",
    "`register`, 100 hooks": (
        "a registered hook gets a dict of its own, not a view, and one more call tells if it is ready."
    ),
}


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    options = parser("dispatch", __doc__)
    options.add_argument("--peers", nargs="?", const="all", metavar="NAME", help="measure others beside it")
    options.add_argument("--profile", action="store_true", help="leave out one ingredient at a time")
    chosen = options.parse_args(arguments)
    effort = QUICK if chosen.quick else THOROUGH

    if chosen.profile:
        report = Report("dispatch-profile", ("msgspec",))
        for case in CASES:
            if case.name in PROFILED:
                asyncio.run(profile(case, effort, report))
    else:
        report = Report("dispatch", ("msgspec",))
        measured = {case.name: asyncio.run(ours(case, effort)) for case in small(CASES, quick=chosen.quick)}
        show_ours(report, measured)
        if chosen.peers:
            names = list(PEERS) if chosen.peers == "all" else [chosen.peers]
            show_peers(report, measured, {name: ask(name, quick=chosen.quick) for name in names})
    report.finish(write=chosen.write)


def small(cases: Sequence[Case], *, quick: bool) -> list[Case]:
    """The cases, with little crowds where it has to be quick."""
    return [replace(case, sessions=20, events=2) if quick and case.sessions else case for case in cases]


def emitting(registry: HookRegistry, intent: str, case: Case) -> Emit:
    """The `emit` of a registry that got the hooks of the case."""
    for place, hook in enumerate(hooks(case.kinds, OURS)):
        getattr(registry, intent)(EVENT, hook, name=f"hook_{place}")
    return registry.emit


async def ours(case: Case, effort: Effort) -> dict[str, Samples]:
    """Samples of the bare loop and of each way to register."""
    ways = {intent: emitting(HookRegistry(), intent, case) for intent in INTENTS}
    if case.beside_results:
        ways["results"] = building(case.kinds, OURS, Answer, outcome_of)
    return await sampled({"bare": bare(case.kinds, OURS), **ways}, case, effort)


def outcome_of(event: str, data: Any, answers: list[Answer], denial: Answer | None) -> Outcome:
    """Return what an emit returns for these answers."""
    ran = tuple([answer.hook_name for answer in answers])
    if denial is None:
        return Outcome(event, data, ran, 0.0, "modify", modified=True, answers=tuple(answers))
    reason, by = denial.result.reason, denial.hook_name
    return Outcome(event, data, ran, 0.0, "deny", reason, by, "denied_by_hook", answers=tuple(answers))


def show_ours(report: Report, measured: Mapping[str, Mapping[str, Samples]]) -> None:
    """Ratios with their verdicts, then the times."""
    rows = []
    for case in CASES:
        samples = measured[case.name]
        base = samples["bare"]
        ratio = samples["on"].ratio(base)
        low, high = samples["on"].spread(base)
        beside = [number(samples[intent].ratio(base)) for intent in INTENTS[1:]]
        judged = verdict(ratio, case.target) if case.target else ("", "")
        rows.append([case.name, number(ratio), f"{low:.2f} to {high:.2f}", *judged, *beside])
    report.text("Times the bare loop takes: median of the same-round ratios, and the span of the middle half of them.")
    report.table(["case", "`on`", "half within", *VERDICT, "`gate`", "`register`"], rows)

    rows += show_results(report, measured) + show_beside_on(report, measured)
    report.explain((row[0] for row in rows if "**missed**" in row), WHY)

    subjects = ("bare", *INTENTS)
    report.text("µs per emit, fastest / median.")
    report.table(
        ["case", *subjects],
        [
            [name, *(f"{number(samples[one].best)} / {number(samples[one].usual)}" for one in subjects)]
            for name, samples in measured.items()
        ],
    )


def show_results(report: Report, measured: Mapping[str, Mapping[str, Samples]]) -> list[list[str]]:
    """Show, and return, the cases beside a loop that builds the same results: answers on record, and an outcome."""
    rows = []
    for case in CASES:
        if case.beside_results:
            samples = measured[case.name]
            ratio = samples["on"].ratio(samples["results"])
            times = (number(samples[one].usual) for one in ("results", "on"))
            rows.append([case.name, *times, number(ratio), *verdict(ratio, case.beside_results)])
    report.text("Beside a loop that builds the same results; µs, median.")
    report.table(["case", "loop", "`on`", "ratio", *VERDICT], rows)
    return rows


def show_beside_on(report: Report, measured: Mapping[str, Mapping[str, Samples]]) -> list[list[str]]:
    """Show, and return, what the other ways to register take beside `on`."""
    rows = []
    for name in BESIDE_ON:
        for intent in INTENTS[1:]:
            ratio = measured[name][intent].ratio(measured[name]["on"])
            rows.append([f"`{intent}`, {name}", number(ratio), *verdict(ratio, BESIDE_ON_AT_MOST)])
    report.text("Times what `on` takes.")
    report.table(["case", "ratio", *VERDICT], rows)
    return rows


def show_peers(
    report: Report, measured: Mapping[str, Mapping[str, Samples]], peers: Mapping[str, Measured | None]
) -> None:
    """Ratios to the bare loop, ours first, the others by what ten hooks cost."""
    own = [number(samples["on"].ratio(samples["bare"])) for samples in measured.values()]
    there = {name: peer for name, peer in peers.items() if peer}
    rows = [["**this registry, `on`**", *own]]
    for name in sorted(there, key=lambda name: there[name].ratios.get("10 hooks", 0.0)):
        peer = there[name]
        rows.append([f"{name} {peer.version}", *(number(peer.ratios.get(case.name)) for case in CASES)])
    rows += [[name, "not installed", *("" for _ in CASES[1:])] for name, peer in peers.items() if not peer]
    report.text(f"Others: times the bare loop takes in the same process. `{NOTHING}`: there is nothing to compare.")
    report.table(["", *(case.name for case in CASES)], rows)


async def profile(case: Case, effort: Effort, report: Report) -> None:
    """Report the saving of leaving out each ingredient, the dearest first."""
    registries: dict[str, Any] = variants(waits="suspend" in case.kinds)
    subjects = {name: repeated(emitting(registry(), "on", case)) for name, registry in registries.items()}
    samples = await measure({"bare": repeated(bare(case.kinds, OURS)), **subjects}, effort)
    whole = samples[AsItIs]
    saved = {
        name: median(full - less for full, less in zip(whole.seconds, samples[name].seconds, strict=True)) * 1e9
        for name in registries
        if name != AsItIs
    }
    report.text(
        f"**{case.name}**: bare {number(samples['bare'].usual)} µs, as it is {number(whole.usual)} µs, "
        f"{number(whole.ratio(samples['bare']))} times."
    )
    report.table(
        ["without", "ns saved", "ratio then"],
        [
            [name, f"{saved[name]:,.0f}", number(samples[name].ratio(samples["bare"]))]
            for name in sorted(saved, key=saved.__getitem__, reverse=True)
        ],
    )
    stale = [
        name for name, _edits, waits in INGREDIENTS if name not in registries and (waits or "suspend" not in case.kinds)
    ]
    if stale:
        report.text(f"Not measured, as the source reads otherwise now: {', '.join(stale)}.")
