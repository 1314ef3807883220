"""The verdict of a rules file about one call, with 2 rules and with 100, beside Cedar's.

Each tool has an allow and a deny about one argument of it, and so has each action of the Cedar policies, which are
parsed beforehand, as the file is. Cedar (`cedarpy`) runs in an environment and a process of its own; the rounds of both
alternate. Times are the processor's. The other rows are rules about paths and commands, for which Cedar has no words.
"""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import ExitStack
from time import thread_time
from typing import TYPE_CHECKING, Final

from amplifier_hooks.ports import ActionFacts
from approval_backends.rules.policy import Rules
from benchmarks.options import parser
from benchmarks.peers import installed
from benchmarks.rounds import Effort, Timed, measure
from benchmarks.table import VERDICT, Report, number, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.rounds import Samples

CEDAR: Final = "cedarpy==4.12.2"
FEW: Final = 2
MANY: Final = 100
MORE_RULES_AT_MOST: Final = 1.5
OF_CEDAR_AT_MOST: Final = 0.25
TEXT: Final = "x = 1\n" * 10

SHAPES: Final = {
    "arguments": (
        "tool: Tool{n}, arguments: {{file_path: {{glob: 'src/*'}}}}, other_arguments: any",
        "tool: Tool{n}, arguments: {{file_path: {{glob: '*.env'}}}}",
    ),
    "paths": (
        "tool: Tool{n}, path: ./src/**, arguments: {{content: {{glob: '*'}}}}",
        "tool: Tool{n}, path: '**/.env'",
    ),
    "commands of one tool": (
        "tool: Tool0, command: [tool{n} status, tool{n} log *]",
        "tool: Tool0, command: tool{n} push",
    ),
}
"""The allow and the deny of the rules about each tool, by what they look at."""
CALLS: Final = {
    "arguments": {"file_path": "src/app.py", "content": TEXT},
    "paths": {"file_path": "src/app.py", "content": TEXT},
    "commands of one tool": {"command": "tool0 status"},
}

PEER: Final = """
import sys, time, cedarpy
given = {{"file_path": "src/app.py", "content": {text!r}}}
request = {{"principal": 'User::"me"', "action": 'Action::"Tool0"', "resource": 'Session::"one"', "context": given}}
entities = cedarpy.Entities.from_json_str("[]")
def policies(count):
    return cedarpy.PolicySet.from_str("\\n".join(
        f'permit(principal, action == Action::"Tool{{n}}", resource) when {{{{ context.file_path like "src/*" }}}};'
        f'forbid(principal, action == Action::"Tool{{n}}", resource) when {{{{ context.file_path like "*.env" }}}};'
        for n in range(count // 2)
    ))
sets = {{count: policies(count) for count in {counts}}}
for line in sys.stdin:
    count, times = map(int, line.split())
    chosen = sets[count]
    start = time.thread_time()
    for _ in range(times):
        result = cedarpy.is_authorized(request, chosen, entities)
    spent = time.thread_time() - start
    assert result.decision is cedarpy.Decision.Allow
    print(spent, flush=True)
"""


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    chosen = parser("rules", __doc__).parse_args(arguments)
    effort = Effort(rounds=3 if chosen.quick else 41, seconds=0.0002 if chosen.quick else 0.01)
    report = Report("rules", ("regex",))
    with ExitStack() as stack:
        peer = None if chosen.quick else cedar(stack)
        subjects = {f"{shape} {count}": ours(shape, count) for shape in SHAPES for count in (FEW, MANY)}
        subjects |= {} if peer is None else {f"cedar {count}": peer(count) for count in (FEW, MANY)}
        samples = asyncio.run(measure(subjects, effort))
    rows = [row(shape, samples) for shape in SHAPES]
    if peer is not None:
        rows.append(row("cedar", samples, "Cedar, the same arguments"))
    report.text("The verdict about one call; µs, median.")
    report.table(["rules about", f"{FEW} rules", f"{MANY} rules", "ratio", *VERDICT], rows)
    if peer is None:
        report.text(f"{CEDAR} was not measured.")
    else:
        ratio = samples[f"arguments {MANY}"].ratio(samples[f"cedar {MANY}"])
        beside = [f"{MANY} rules about arguments", number(ratio), *verdict(ratio, OF_CEDAR_AT_MOST)]
        report.table(["", f"times what {CEDAR} takes", *VERDICT], [beside])
    report.finish(write=chosen.write)


def row(shape: str, samples: Mapping[str, Samples], name: str = "") -> list[str]:
    """Return one line of the table."""
    few, many = samples[f"{shape} {FEW}"], samples[f"{shape} {MANY}"]
    ratio = many.ratio(few)
    judged = verdict(ratio, MORE_RULES_AT_MOST) if shape in ("arguments", "paths") else ("", "")
    return [name or shape, number(few.usual), number(many.usual), number(ratio), *judged]


def ours(shape: str, count: int) -> Timed:
    """Return the verdict of so many rules about a call for which an allow matches."""
    lines = ["version: 1", "rules:"]
    for n in range(count // 2):
        for action, conditions in zip(("allow", "deny"), SHAPES[shape], strict=True):
            hooks = ", hooks: '*'" if action == "allow" else ""
            lines.append(f"- {{id: {action}-{n}, action: {action}, {conditions.format(n=n)}{hooks}}}")
    rules = Rules("\n".join(lines).encode())
    facts = ActionFacts(
        tool="Tool0", arguments=CALLS[shape], event="tool:pre", session="one", tenant="acme", cwd="/project"
    )
    found = rules.judge(facts)
    if found is None or found.rule != "allow-0":
        raise SystemExit(f"the rules about {shape} gave {found}")

    async def timed(times: int) -> float:
        start = thread_time()
        for _ in range(times):
            rules.judge(facts)
        return thread_time() - start

    return timed


def cedar(stack: ExitStack) -> Callable[[int], Timed] | None:
    """Return the measurement of Cedar by its number of rules, in a process of its own; None where it has no place."""
    python = installed(CEDAR)
    if python is None:
        return None
    program = PEER.format(text=TEXT, counts=(FEW, MANY))
    process = stack.enter_context(
        subprocess.Popen([str(python), "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    stack.callback(stdin.close)

    def by_rules(count: int) -> Timed:
        async def timed(times: int) -> float:
            print(count, times, file=stdin, flush=True)
            return float(stdout.readline())

        return timed

    return by_rules
