"""Write the table of all ready-made hooks into the page that shows it.

    uv run scripts/library_table.py          print it
    uv run scripts/library_table.py --write  put it between the markers of specs/library.md

A test compares the page with the hooks.
"""

import argparse
import inspect
import re
from collections.abc import Iterable
from pathlib import Path

from amplifier_hooks import HookRegistry, library
from amplifier_hooks.definitions.model import band_of
from amplifier_hooks.library.parts.ready_made import Point, ReadyMade

PAGE = Path(__file__).parent.parent / "specs" / "library.md"
BLOCK = re.compile(r"(<!-- hooks:[^\n]* -->\n).*?(<!-- /hooks -->)", re.DOTALL)
COLUMNS = ("hook", "what it does", "where", "band", "when it fails")


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description="Write the table of all ready-made hooks into specs/library.md.")
    parser.add_argument("--write", action="store_true", help="into the page, instead of printing it")
    if not parser.parse_args().write:
        print(table())
        return
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_table(text: str) -> str:
    """Return the page's text with the table as it should be now."""
    page, found = BLOCK.subn(lambda place: f"{place[1]}\n{table()}\n\n{place[2]}", text)
    if not found:
        raise ValueError("the page has no place for the table; mark it with <!-- hooks: … --> and <!-- /hooks -->")
    return page


def table() -> str:
    """Return what stands between the markers."""
    hooks = [getattr(library, name) for name in library.__all__]
    rows = [row(hook) for hook in sorted(hooks, key=lambda hook: str(hook.name))]
    return "\n".join([line(COLUMNS), line("---" for _ in COLUMNS), *(line(cells) for cells in rows)])


def row(hook: type[ReadyMade]) -> tuple[str, ...]:  # type: ignore[type-arg]  # whatever its settings are
    """Return what is to be said about one hook, as it is with the settings it comes with."""
    points = hook().points()
    summary = (inspect.getdoc(hook) or "").splitlines()[0]
    where = dict.fromkeys(f"`{point.event}` {point.intent}" for point in points)
    bands = dict.fromkeys(f"{band_of(point.priority).name} ({point.priority})" for point in points)
    fails = dict.fromkeys(failure(point) for point in points)
    return (f"`{hook.name}`", summary, ", ".join(where), ", ".join(bands), ", ".join(fails))


def failure(point: Point) -> str:
    """Return what a failure at this point means, as a registry decides it."""
    registry = HookRegistry()
    getattr(registry, point.intent)(point.event, point.call)
    (registered,) = registry.hooks()
    return "closed: denies" if registered.denies(point.event) else "open: skipped"


def line(cells: Iterable[str]) -> str:
    """Return one line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
