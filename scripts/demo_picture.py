"""Film `amplifier-hooks demo` in a real terminal, with a person who answers, and make it an animated picture.

    uv run scripts/demo_picture.py          print the last screen
    uv run scripts/demo_picture.py --write  make docs/images/demo.svg
    uv run scripts/demo_picture.py --check  compare the picture with the demo

Times, ids and digests differ from run to run; comparing, they count as equal.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from html import escape
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple, cast

import pexpect
import pyte

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.person import Screen  # noqa: E402  # found by the line above

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyte.screens import Char

PICTURE = ROOT / "docs" / "images" / "demo.svg"
COLUMNS, ROWS = 100, 30
WIDTH, HEIGHT, MARGIN = 8.4, 19, 16
LONGEST, SHORTEST = 4.0, 0.15
"""Seconds a frame stays at most, so that viewers need not wait, and at least, so that they can read it."""
LAST = 6.0
ANSWERS = (("Allow once", "a", 2.0), ("Enter", "\r", 1.5))
"""For each prompt: the words on the screen, the key that answers them, and the seconds before the key."""
VARIES = re.compile(
    r"/\w+/amplifier-hooks-demo-\w+|\b[0-9a-f]{4}\b|\b[0-9A-F]{4}\b|[0-9a-f]{8,64}|\d+:\d\d(?::\d\d)?|\d+ lines"
    r"|Enter confirms|a moment"
)
COLOURS = {
    "red": "#f39a90",
    "green": "#8ad0a0",
    "brown": "#e2b45f",
    "yellow": "#e2b45f",
    "blue": "#7fc6d0",
    "magenta": "#d3a8e0",
    "cyan": "#7fc6d0",
    "white": "#ecebe6",
    "black": "#131518",
}
INK, PAPER = "#ecebe6", "#131518"

Row = tuple["Char", ...]


class Frame(NamedTuple):
    """The text on the screen, and its seconds."""

    rows: tuple[Row, ...]
    seconds: float


def main() -> None:
    """Print the last screen, write the picture, or compare it with the demo."""
    parser = argparse.ArgumentParser(description="Film the demo.")
    parser.add_argument("--write", action="store_true", help="make the picture")
    parser.add_argument("--check", action="store_true", help="say whether the picture is still true")
    asked = parser.parse_args()
    frames = filmed()
    if asked.write:
        PICTURE.write_text(drawn([frame for frame in frames if frame.seconds >= SHORTEST]), encoding="utf-8")
    elif asked.check:
        # A slow machine shows half a screen for longer: screens on the way may differ, the last may not.
        there = words(PICTURE.read_text(encoding="utf-8"))
        if wrong := sorted(there - words(drawn(frames))) or sorted(words(drawn(frames[-1:])) - there):
            sys.exit(f"the picture is out of date; write it again. First difference: {wrong[0]}")
    else:
        print("\n".join("".join(char.data for char in row).rstrip() for row in frames[-1].rows))


def filmed() -> list[Frame]:
    """Run the demo, answer where it asks, and keep each screen with its time."""
    screen = Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    answers = list(ANSWERS)
    frames: list[Frame] = []
    with TemporaryDirectory() as home:
        environment = {
            "HOME": home,
            "LANG": "C.UTF-8",
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "TERM": "xterm-256color",
        }
        child = pexpect.spawn("amplifier-hooks", ["demo"], env=environment, cwd=home, dimensions=(ROWS, COLUMNS))
        since, shown = time.monotonic(), snapshot(screen)
        due: float | None = None
        while True:
            try:
                stream.feed(cast("bytes", child.read_nonblocking(1 << 16, timeout=0.05)))
            except pexpect.TIMEOUT:
                pass
            except pexpect.EOF:
                break
            now, rows = time.monotonic(), snapshot(screen)
            if rows != shown:
                frames.append(Frame(shown, min(now - since, LONGEST)))
                since, shown = now, rows
            if answers and due is None and answers[0][0] in text(rows):
                due = now + answers[0][2]
            if due is not None and now >= due:
                child.send(answers.pop(0)[1])
                due = None
        child.close()
        if child.exitstatus != 0:
            sys.exit(f"the demo ended with {child.exitstatus}:\n{text(shown)}")
    return [*frames, Frame(snapshot(screen), LAST)]


def snapshot(screen: Screen) -> tuple[Row, ...]:
    """Return the screen, row by row."""
    return tuple(tuple(screen.buffer[row][column] for column in range(COLUMNS)) for row in range(ROWS))


def text(rows: tuple[Row, ...]) -> str:
    """Return the text of the rows."""
    return "\n".join("".join(char.data for char in row) for row in rows)


def words(picture: str) -> set[str]:
    """Return the lines of a picture, without the parts that differ from run to run."""
    lines = re.findall(r'<g id="r\d+">(.*?)</g>', picture)
    return {VARIES.sub("…", re.sub(r"<[^>]+>", "", line)).strip() for line in lines}


def drawn(frames: list[Frame]) -> str:
    """Return the picture: all frames one below the other, and a window that moves from one to the next.

    Each row is drawn once, however often it is seen. A viewer who prefers reduced motion sees the last frame.
    """
    rows = {row: number for number, row in enumerate(dict.fromkeys(row for frame in frames for row in frame.rows))}
    wide, high = COLUMNS * WIDTH + 2 * MARGIN, ROWS * HEIGHT + 2 * MARGIN
    total = sum(frame.seconds for frame in frames)
    steps, at = [], 0.0
    for number, frame in enumerate(frames):
        steps.append(f"{100 * at / total:.2f}%{{transform:translateY(-{number * high}px)}}")
        at += frame.seconds
    end = (len(frames) - 1) * high
    body = "".join(
        f'<use href="#r{rows[row]}" x="{MARGIN}" y="{number * high + MARGIN + (place + 1) * HEIGHT - 5}"/>'
        for number, frame in enumerate(frames)
        for place, row in enumerate(frame.rows)
        if any(char.data != " " or char.reverse for char in row)
    )
    defined = "".join(f'<g id="r{number}">{"".join(runs(row))}</g>' for row, number in rows.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" role="img" '
        'aria-label="amplifier-hooks demo in a terminal">\n'
        f"<style>text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        f"fill:{INK};white-space:pre}}.b{{font-weight:600}}.d{{opacity:.72}}"
        f"#film{{transform:translateY(-{end}px)}}"
        f"@keyframes film{{{''.join(steps)}100%{{transform:translateY(-{end}px)}}}}"
        f"@media (prefers-reduced-motion:no-preference){{#film{{animation:film {total:.1f}s step-end infinite}}}}"
        "</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>\n'
        f"<defs>{defined}</defs>\n"
        f'<g id="film">{body}</g>\n</svg>\n'
    )


def runs(row: Row) -> Iterator[str]:
    """One row, each stretch of one look as one piece of text."""
    column = 0
    for look, chars in groupby(row, key=lambda char: (char.fg, char.bg, char.bold, char.reverse)):
        piece = "".join(char.data for char in chars)
        front, back, bold, reverse = look
        ink, ground = COLOURS.get(front, hexadecimal(front, INK)), hexadecimal(back, "")
        if reverse:
            ink, ground = ground or PAPER, ink
        if ground:
            yield (
                f'<rect x="{column * WIDTH:.1f}" y="-14" width="{len(piece) * WIDTH:.1f}" height="{HEIGHT}" '
                f'fill="{ground}"/>'
            )
        if piece.strip():
            style = (' class="b"' if bold else "") + (f' fill="{ink}" style="fill:{ink}"' if ink != INK else "")
            yield (
                f'<text x="{column * WIDTH:.1f}" textLength="{len(piece) * WIDTH:.1f}"{style}>{escape(piece)}</text>'
            )
        column += len(piece)


def hexadecimal(colour: str, otherwise: str) -> str:
    """A colour as a terminal emulator names it."""
    if colour in COLOURS:
        return COLOURS[colour]
    return f"#{colour}" if re.fullmatch(r"[0-9a-fA-F]{6}", colour) else otherwise


if __name__ == "__main__":
    main()
