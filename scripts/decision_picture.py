"""Draw docs/images/decision.svg: the path of an act, and beside it the life of a request.

    uv run scripts/decision_picture.py          compare the picture with the code
    uv run scripts/decision_picture.py --write  draw the picture again

The steps of the path are those that the docstring of amplifier_hooks/admission/admit.py names, in its order; a step
without a caption here is an error. The states and moves are the table of approval_backends/lifecycle.py.
"""

import argparse
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from amplifier_hooks.admission import admit
from approval_backends.lifecycle import FINAL, MOVES, STATUSES, Status

PICTURE: Final = Path(__file__).parent.parent / "docs" / "images" / "decision.svg"
CAPTIONS: Final = {
    "select by call id": ("select", "a call made again finds its request", ""),
    "judge": ("judge", "rules, hooks, rules on the changed input", "denied"),
    "ask": ("ask", "a rule, a grant or an approver answers", "denied, or pending"),
    "look again": ("look again", "all gates, at the approved bytes", "denied"),
    "record durably": ("record", "on disk, before anything runs", "denied"),
    "(has what is in force changed? look once more)": ("compare", "new rules or gates: one more look", "denied"),
    "claim": ("claim", "once, for exactly this digest", "denied"),
}
"""The name, the meaning and the other ends of each step of the docstring."""
AFTER: Final = (("run", "exactly the bytes of the permit", ""), ("settle", "the end and the result are stored", ""))
BESIDE: Final[dict[str, Status]] = {"ask": "pending", "look again": "approved", "run": "claimed"}
"""The state of the request at a step."""

WIDTH, TOP, ROW, BOX = 800, 54, 66, 44
STYLE: Final = """
  text { font: 12.5px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
  .name { font-weight: 600 }
  .note { font-size: 11px; font-weight: 400; fill: #59636e }
  .title { font-size: 12px; font-weight: 600; fill: #59636e }
  rect { fill: #ffffff; stroke: #0969da; stroke-width: 1.2 }
  rect.state { stroke: #8250df }
  path { fill: none; stroke: #59636e; stroke-width: 1.2; marker-end: url(#head) }
  path.beside { stroke: #8250df; stroke-dasharray: 2 3; marker-end: none }
  marker path { fill: #59636e; stroke: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .note, .title { fill: #9198a1 }
    rect { fill: #151b23; stroke: #4493f8 }
    rect.state { stroke: #ab7df8 }
    path { stroke: #9198a1 }
    path.beside { stroke: #ab7df8 }
    marker path { fill: #9198a1 }
  }
"""


def main() -> None:
    """Compare the picture with the code, or draw it again."""
    parser = argparse.ArgumentParser(description="Draw the path of an act, and the life of a request.")
    parser.add_argument("--write", action="store_true", help="draw the picture again, instead of comparing it")
    picture = draw()
    if parser.parse_args().write:
        PICTURE.write_text(picture, encoding="utf-8")
    elif not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != picture:
        sys.exit("docs/images/decision.svg differs from the code; draw it: uv run scripts/decision_picture.py --write")


def steps() -> list[tuple[str, str, str]]:
    """Return the steps that the docstring names, with their captions, and what follows them."""
    line = next(line for line in (admit.__doc__ or "").splitlines() if "→" in line)
    return [*(CAPTIONS[step.strip()] for step in line.split("→")), *AFTER]


def draw() -> str:
    """Return the picture."""
    path = steps()
    names = [name for name, _, _ in path]
    lines = [text(20, 24, "the path of an act", "title"), text(430, 24, "the life of its request", "title")]
    for number, (name, meaning, other) in enumerate(path):
        y = TOP + number * ROW
        lines += box(20, y, 270, name, meaning)
        if number + 1 < len(path):
            lines.append(arrow(f"M155 {y + BOX} V{y + ROW - 2}"))
        if other:
            lines += [arrow(f"M290 {y + BOX // 2} H308"), text(312, y + BOX // 2 + 4, other, "note")]
    for step, state in BESIDE.items():
        y = TOP + names.index(step) * ROW
        lines += moves_of(state, y)
        lines.append(f'<path class="beside" d="M290 {y + 36} H430"/>')
    lines += moves_of("unknown", TOP + len(path) * ROW)
    places = {state: names.index(step) for step, state in BESIDE.items()} | {"unknown": len(path)}
    for state, after in pairwise(places):
        move = next(move for move, row in MOVES.items() if state in row.sources and row.target == after)
        below = TOP + places[after] * ROW
        lines += [arrow(f"M480 {TOP + places[state] * ROW + BOX} V{below - 2}"), text(488, below - 8, move, "note")]
    height = TOP + (len(path) + 1) * ROW
    head = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            "<title>The path of an act from judge to settle, and the states of its request</title>",
            f"<style>{STYLE}</style>",
            f'<defs>{head}<path d="M0 0 L8 4 L0 8 z"/></marker></defs>',
            *lines,
            "</svg>\n",
        ]
    )


def moves_of(state: Status, y: int) -> Iterator[str]:
    """Yield a state, and beside it the states in which it can end, each with its moves."""
    yield from box(430, y, 100, state)
    ends: dict[Status, list[str]] = {}
    for move, row in MOVES.items():
        if state in row.sources and row.target in FINAL:
            ends.setdefault(row.target, []).append(move)
    known = sorted(ends, key=STATUSES.index)
    for number, end in enumerate(known):
        level = y + BOX // 2 + round((number - (len(known) - 1) / 2) * 17)
        yield arrow(f"M530 {y + BOX // 2} C550 {y + BOX // 2} 545 {level} 566 {level}")
        moves = ", ".join(ends[end]).replace("_", " ")
        yield text(572, level + 4, f'{end}<tspan class="note" dx="8">{moves}</tspan>', "name")


def box(x: int, y: int, width: int, name: str, note: str = "") -> Iterator[str]:
    """Yield a box with a name, and a note below it; the box of a state has none."""
    shape = "" if note else ' class="state"'
    yield f'<rect{shape} x="{x}" y="{y}" width="{width}" height="{BOX}" rx="6"/>'
    yield text(x + 12, y + (19 if note else 27), name, "name")
    if note:
        yield text(x + 12, y + 35, note, "note")


def text(x: int, y: int, words: str, kind: str) -> str:
    """Return a line of text."""
    return f'<text class="{kind}" x="{x}" y="{y}">{words}</text>'


def arrow(way: str) -> str:
    """Return an arrow along a way."""
    return f'<path d="{way}"/>'


if __name__ == "__main__":
    main()
