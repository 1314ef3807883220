"""Record the terminal sessions in docs/approvals.md: real shells, real programs, and the text on their screens.

    uv run scripts/approvals_session.py          print the recorded sessions
    uv run scripts/approvals_session.py --write  put them into the page
    uv run scripts/approvals_session.py --check  compare the page with them

Ids, digests and times differ from run to run; comparing, they count as equal.
"""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

import pexpect
import pyte

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.person import Screen  # noqa: E402  # found by the line above

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = ROOT / "docs" / "approvals.md"
BLOCK = re.compile(r"(<!-- session: ([\w-]+) -->\n```console\n).*?(```\n)", re.DOTALL)
VARIES = re.compile(r"\b[0-9a-f]{4}\b|\b[0-9A-F]{4}\b|[0-9a-f]{8,64}|\d+:\d\d(?::\d\d)?")
COLUMNS, ROWS = 92, 30
SOON = 120


class Terminal:
    """A shell in a window of its own."""

    def __init__(self, folder: Path, columns: int = COLUMNS, rows: int = ROWS) -> None:
        self._folder = folder
        self.screen = Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        environment = {
            "HOME": str(folder.parent),
            "LANG": "C.UTF-8",
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "PS1": "$ ",
            "TERM": "xterm-256color",
        }
        self._shell = pexpect.spawn(
            "bash", ["--norc", "--noprofile"], cwd=str(folder), env=environment, dimensions=(rows, columns)
        )
        self.sees(lambda text: text == "$")

    def types(self, keys: str) -> None:
        """Press keys."""
        self._shell.send(keys)

    def sees(self, seen: Callable[[str], object]) -> None:
        """Wait until this can be seen."""
        end = time.monotonic() + SOON
        while not seen(self.text):
            if time.monotonic() > end:
                raise TimeoutError(f"the screen never showed it:\n{self.text}")
            try:
                self._stream.feed(cast("bytes", self._shell.read_nonblocking(1 << 16, timeout=0.2)))
            except pexpect.TIMEOUT:
                continue

    def runs(self, command: str, until: str = "") -> None:
        """Type a command, and wait for this text, or else for the next prompt."""
        self.types(f"{command}\r")
        if until:
            self.sees(lambda text: until in text)
        else:
            self.sees(lambda text: command in text.replace("\n", "") and text.endswith("\n$"))

    def clears(self) -> None:
        """Begin with an empty screen."""
        self.types("clear\r")
        self.sees(lambda text: text == "$")

    def closes(self) -> None:
        """Close the window."""
        self._shell.close(force=True)

    @property
    def text(self) -> str:
        """The text on the screen."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    @property
    def shown(self) -> str:
        """The text on the screen, without the last prompt and without the folder of the recording."""
        return self.text.removesuffix("\n$").replace(str(self._folder.parent), "/home/robin") + "\n"


def recorded() -> dict[str, str]:
    """Run all sessions, and return the text on the screens."""
    with TemporaryDirectory() as place:
        folder = Path(place).resolve() / "shop"
        folder.mkdir()
        shutil.copy(ROOT / "examples" / "decide_elsewhere.py", folder / "agent.py")
        shutil.copy(ROOT / "examples" / "rules.yaml", folder / "rules.yaml")
        one, two = Terminal(folder), Terminal(folder)
        try:
            return {**another_terminal(one, two), **on_the_card(one, two), **rules(two)}
        finally:
            one.closes()
            two.closes()


def another_terminal(one: Terminal, two: Terminal) -> dict[str, str]:
    """Ask in one terminal; list and allow in another; it runs in the first."""
    one.runs("python agent.py approvals.db", until="wants to write")
    asked = one.shown
    two.runs("export AMPLIFIER_HOOKS_STORE=approvals.db")
    two.runs("amplifier-hooks approvals list")
    found = re.search(r"^([0-9a-f]{8})  Write", two.text, re.MULTILINE)
    if found is None:
        raise LookupError(f"nothing waits:\n{two.text}")
    listed = two.shown
    two.clears()
    two.runs(f"amplifier-hooks approvals allow {found[1][:4]}", until="[y/N]:")
    two.types("y\r")
    two.sees(lambda text: text.endswith("\n$"))
    one.sees(lambda text: text.endswith("\n$"))
    return {"ask": asked, "list": listed, "allow": two.shown, "ran": one.shown}


def on_the_card(one: Terminal, two: Terminal) -> dict[str, str]:
    """Watch in one terminal, ask in the other, answer on the card."""
    one.clears()
    two.clears()
    two.runs("amplifier-hooks approvals watch", until="Waiting for requests")
    one.runs("python agent.py approvals.db", until="wants to write")
    two.sees(lambda text: "Enter confirms" in text)
    card = two.shown
    two.types("a")
    two.sees(lambda text: "▸ a Allow once" in text and "Enter confirms" in text)
    two.types("\r")
    two.sees(lambda text: "): Allow once" in text)
    one.sees(lambda text: text.endswith("\n$"))
    two.types("\x03")
    two.sees(lambda text: text.endswith("\n$"))
    return {"card": card, "watched": two.shown}


def rules(two: Terminal) -> dict[str, str]:
    """Ask a file of rules for its reasons."""
    two.clears()
    two.runs("""amplifier-hooks approvals rules explain rules.yaml --tool Read --input '{"path": ".env"}'""")
    return {"rules": two.shown}


def with_sessions(page: str, sessions: dict[str, str]) -> str:
    """Return the page's text with these sessions."""
    named = [name for _, name, _ in BLOCK.findall(page)]
    if sorted(named) != sorted(sessions):
        raise ValueError(f"the page has places for {named}, and recorded are {list(sessions)}")
    return BLOCK.sub(lambda place: f"{place[1]}{sessions[place[2]]}{place[3]}", page)


def main() -> None:
    """Print the sessions, write them, or compare them with the page."""
    parser = argparse.ArgumentParser(description="Record the terminal sessions in docs/approvals.md.")
    parser.add_argument("--write", action="store_true", help="into the page, instead of printing it")
    parser.add_argument("--check", action="store_true", help="fail where the page shows something else")
    options = parser.parse_args()
    sessions = recorded()
    if not (options.write or options.check):
        for name, shown in sessions.items():
            print(f"--- {name}\n{shown}", end="")
        return
    page = PAGE.read_text(encoding="utf-8")
    wanted = with_sessions(page, sessions)
    if options.write:
        PAGE.write_text(wanted, encoding="utf-8")
        return
    old, new = (VARIES.sub("…", text).splitlines(keepends=True) for text in (page, wanted))
    sys.stderr.writelines(difflib.unified_diff(old, new, "docs/approvals.md", "what happens"))
    raise SystemExit(old != new)


if __name__ == "__main__":
    main()
