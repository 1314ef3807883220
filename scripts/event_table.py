"""Write the table of all events into the pages that show it.

    uv run scripts/event_table.py          print it
    uv run scripts/event_table.py --write  put it between the markers of each page

A test compares the pages with the catalogue, so a new event is one row in `events.py` and one run of this.
"""

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

from amplifier_hooks.events import CATALOGUE, Event, payload_model
from amplifier_hooks.payloads import Payload

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "specs" / "events.md",)
BLOCK = re.compile(r"(<!-- events:[^\n]* -->\n).*?(<!-- /events -->)", re.DOTALL)
ANSWERS = ("deny", "modify", "inject_context", "ask_user")  # `continue` is an answer everywhere
COLUMNS = ("event", "fires", "payload", "gate", "answers", "privileged", "other names")


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description="Write the table of all events into the pages that show it.")
    parser.add_argument("--write", action="store_true", help="into the pages, instead of printing it")
    if not parser.parse_args().write:
        print(table())
        return
    for page in PAGES:
        page.write_text(with_table(page.read_text(encoding="utf-8")), encoding="utf-8")


def with_table(text: str) -> str:
    """Return a page's text with the table as it should be now."""
    page, found = BLOCK.subn(lambda place: f"{place[1]}\n{table()}\n\n{place[2]}", text)
    if not found:
        raise ValueError("the page has no place for the table; mark it with <!-- events: … --> and <!-- /events -->")
    return page


def table() -> str:
    """Return what stands between the markers."""
    always = [code(field) for field, info in Payload.model_fields.items() if info.is_required()]
    known = [code(field) for field, info in Payload.model_fields.items() if not info.is_required()]
    return "\n".join(
        [
            f"Every payload has {' and '.join(always)},",
            f"and where known {', '.join(known)}.",
            "Fields in parentheses may be missing; `*` marks what a modification replaces.",
            "`continue` is an answer everywhere.",
            "",
            line(COLUMNS),
            line("---" for _ in COLUMNS),
            *(line(cells(event)) for event in CATALOGUE),
        ]
    )


def cells(event: Event) -> tuple[str, ...]:
    """Return one row of the table."""
    return (
        code(event.name),
        event.fires,
        payload(event),
        "gate" if event.gate else "",
        ", ".join(code(answer) for answer in ANSWERS if answer in event.answers),
        "privileged" if event.privileged else "",
        ", ".join(code(spelling) for spelling in event.names[1:]),
    )


def payload(event: Event) -> str:
    """Return the fields an event has beyond those of every event, required ones first."""
    fields = payload_model(event.name).model_fields
    own = [field for field in fields if field not in Payload.model_fields]
    replaced = (event.replaces, *event.also_replaces)
    shown = {field: code(field) + (r"\*" if field in replaced else "") for field in own}
    required = ", ".join(shown[field] for field in own if fields[field].is_required())
    optional = ", ".join(shown[field] for field in own if not fields[field].is_required())
    return f"{required} ({optional})".strip() if optional else required


def code(text: str) -> str:
    """Mark a name as a name."""
    return f"`{text}`"


def line(cells: Iterable[str]) -> str:
    """Return one line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
