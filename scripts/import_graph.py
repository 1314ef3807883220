"""Draw docs/images/imports.svg: the layers of both packages, and the imports between them.

    uv run scripts/import_graph.py          compare the picture with the code
    uv run scripts/import_graph.py --write  draw the picture again

A row is a layer of the import contracts in pyproject.toml. An arc on the right is an import that points downward; an
import that points upward is red. Type-only imports count. The front doors (`__init__` of each package) have no row.
"""

import argparse
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import grimp

ROOT: Final = Path(__file__).parent.parent
PICTURE: Final = ROOT / "docs" / "images" / "imports.svg"
HOOKS: Final = "amplifier_hooks"
BACKENDS: Final = "approval_backends"
NOTE: Final = "An arc leads down to an imported layer. Wider arcs stand for more imports, pale arcs lead to values."
WIDTH, LABEL, TOP, ROW, LINE, GAP, LETTERS = 800, 372, 28, 23, 15, 30, 40
STYLE: Final = """
  text { font: 12.5px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328; text-anchor: end }
  .note { font-size: 11px; fill: #59636e; text-anchor: start }
  .package { font-size: 11px; font-weight: 600; text-anchor: start; fill: #0969da }
  rect { fill: #0969da; fill-opacity: .06 }
  path { fill: none; stroke: #0969da; stroke-opacity: .42 }
  circle { fill: #0969da }
  .package.b { fill: #8250df } rect.b { fill: #8250df } path.b { stroke: #8250df } circle.b { fill: #8250df }
  path.base { stroke-opacity: .15 }
  path.up { stroke: #cf222e; stroke-opacity: 1 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .note { fill: #9198a1 }
    .package { fill: #4493f8 }
    rect { fill: #4493f8; fill-opacity: .1 }
    path { stroke: #4493f8; stroke-opacity: .5 }
    circle { fill: #4493f8 }
    .package.b { fill: #ab7df8 } rect.b { fill: #ab7df8 } path.b { stroke: #ab7df8 } circle.b { fill: #ab7df8 }
    path.base { stroke-opacity: .2 }
    path.up { stroke: #f85149 }
  }
"""


class Row(NamedTuple):
    """A layer: modules and directories of one package that stand on one line of its contract."""

    package: str
    names: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """Text of the label, in lines that fit beside the arcs."""
        lines = [""]
        for name in self.names:
            longer = f"{lines[-1]} · {name}" if lines[-1] else name
            if len(longer) > LETTERS:
                lines.append(name)
            else:
                lines[-1] = longer
        return lines


def main() -> None:
    """Compare the picture with the code, or draw it again."""
    parser = argparse.ArgumentParser(description="Draw the layers of both packages, and the imports between them.")
    parser.add_argument("--write", action="store_true", help="draw the picture again, instead of comparing it")
    write = parser.parse_args().write
    rows = read_rows()
    picture = draw(rows, count_imports(rows))
    if write:
        PICTURE.write_text(picture, encoding="utf-8")
    elif not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != picture:
        sys.exit("docs/images/imports.svg differs from the code; draw it again: uv run scripts/import_graph.py --write")


def read_rows() -> list[Row]:
    """Return the layers from top to bottom: those of the backends stand above `storage`, which they import."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contracts = {contract["id"]: contract for contract in linter["contracts"]}
    hooks = [_row(HOOKS, layer) for layer in contracts["hooks"]["layers"]]
    backends = [_row(BACKENDS, layer) for layer in contracts["backends"]["layers"]]
    below = next(number for number, row in enumerate(hooks) if "storage" in row.names)
    return [*hooks[:below], *backends, *hooks[below:]]


def _row(package: str, layer: str) -> Row:
    """Return the row of a layer, without names in parentheses: modules that are not written yet."""
    names = (name.strip() for name in layer.replace(":", "|").split("|"))
    return Row(package, tuple(name for name in names if not name.startswith("(")))


def count_imports(rows: list[Row]) -> Counter[tuple[Row, Row]]:
    """Count the imports from one row to another."""
    row_of = {f"{row.package}.{name}": row for row in rows for name in row.names}
    graph = grimp.build_graph(HOOKS, BACKENDS)
    imports: Counter[tuple[Row, Row]] = Counter()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            upper, lower = (row_of.get(".".join(name.split(".")[:2])) for name in (module, imported))
            if upper and lower and upper != lower:
                imports[upper, lower] += 1
    return imports


def draw(rows: list[Row], imports: Counter[tuple[Row, Row]]) -> str:
    """Return the picture: a label for each row, an arc for each pair of rows that import, a band for each package."""
    height: dict[Row, int] = {}
    bands: list[tuple[Row, int]] = []
    y = TOP - GAP
    for row in rows:
        if not bands or bands[-1][0].package != row.package:
            y += GAP
            bands.append((row, y))
        height[row] = y + ROW // 2 + LINE * (len(row.lines) - 1) // 2
        y += ROW + LINE * (len(row.lines) - 1)
    ends = [start - GAP for _, start in bands[1:]] + [y]
    parts = []
    for (row, start), end in zip(bands, ends, strict=True):
        parts.append(f'<rect{_kind(row)} x="8" y="{start - 2}" width="{LABEL + 4}" height="{end - start + 4}" rx="6"/>')
        kind = "package b" if row.package == BACKENDS else "package"
        parts.append(f'<text class="{kind}" x="10" y="{start - 9}">{row.package}/</text>')
    order = {row: number for number, row in enumerate(rows)}
    for (upper, lower), count in sorted(imports.items(), key=lambda one: (order[one[0][0]], order[one[0][1]])):
        parts.append(_arc(upper, height[upper], height[lower], count, base=lower == rows[-1]))
    for row, middle in height.items():
        parts.append(f'<circle{_kind(row)} cx="{LABEL}" cy="{middle}" r="3"/>')
        first = middle + 4 - LINE * (len(row.lines) - 1) / 2
        parts += [
            f'<text x="{LABEL - 12}" y="{first + LINE * number:g}">{line}</text>'
            for number, line in enumerate(row.lines)
        ]
    parts.append(f'<text class="note" x="10" y="{y + 24}">{NOTE}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 34}" role="img" aria-label="{NOTE}">\n'
        f"<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _arc(row: Row, start: int, end: int, count: int, *, base: bool) -> str:
    """Return an arc from the height of a row to the height of a row that it imports; arcs to the base are pale."""
    kinds = ["b"] * (row.package == BACKENDS) + ["base"] * base + ["up"] * (end < start)
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    reach = LABEL + 20 + abs(end - start) * 0.72
    width = 1 + min(count.bit_length(), 7) // 2  # in coarse steps: most new imports leave the picture as it is
    line = f"M{LABEL + 7} {start} C{reach:.0f} {start} {reach:.0f} {end} {LABEL + 7} {end}"
    return f'<path{kind} stroke-width="{width}" d="{line}"/>'


def _kind(row: Row) -> str:
    """Return the attribute that colours a row of the backends differently."""
    return ' class="b"' if row.package == BACKENDS else ""


if __name__ == "__main__":
    main()
