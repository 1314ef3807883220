"""The pictures of the terminal in the documents: a real shell, the real command, and what was on the screen.

A picture that no longer shows what happens fails its test; `AMPLIFIER_PICTURES=write` makes it anew instead.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from scripts.approvals_session import Terminal
from scripts.demo_picture import Frame, drawn, snapshot, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.slow, pytest.mark.rule("CLI-6", "CLI-7")]

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
HOOKS: Final = """version: 1
library:
  protected_paths: {}
  linter_feedback: {}
hooks:
  - {name: no publishing, event_type: tool:pre, matcher: Bash, priority: 10, handler_ref: my_hooks:no_publishing}
"""
MINE: Final = """from amplifier_hooks import HookResult

def no_publishing(event, data):
    if "git push" in data["tool_input"]["command"]:
        return HookResult.deny("publishing is for people")
"""
DIGEST: Final = 64
SHORT, LONG = 1.5, 4.0
"""Seconds a frame stays."""


class Film:
    """A terminal in a project, with its frames."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.terminal = Terminal(folder, columns=100, rows=30)
        self.frames: list[Frame] = []

    def keep(self, seconds: float = SHORT) -> None:
        """Keep the present screen as a frame."""
        self.frames.append(Frame(snapshot(self.terminal.screen), seconds))

    def runs(self, command: str, seconds: float = LONG) -> None:
        """Run a command to its end."""
        self.terminal.runs(command)
        self.keep(seconds)

    def says(self, line: str, until: Callable[[str], bool] | None = None, seconds: float = LONG) -> None:
        """Type a line to the program that runs, and wait for this, or else for its next prompt."""
        self.terminal.types(f"{line}\r")
        self.terminal.sees(until or (lambda text: f"> {line}\n" in text and text.endswith("\n>")))
        self.keep(seconds)


@pytest.fixture
def film(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Film]:
    """A project with hooks that are trusted, in a folder whose path is short enough for a card to show it whole."""
    folder = tmp_path_factory.mktemp("film") / "shop"
    folder.mkdir()
    (folder / "amplifier-hooks.yaml").write_text(HOOKS)
    (folder / "my_hooks.py").write_text(MINE)
    one = Film(folder)
    yield one
    one.terminal.closes()


def is_true(name: str, title: str, film: Film) -> None:
    """Compare a picture with what happened, or write it. The folder's name is left out."""
    here = str(film.folder)
    picture = drawn(film.frames).replace("amplifier-hooks demo in a terminal", title)
    picture = picture.replace(here, "~/shop".ljust(len(here)))
    picture = re.sub(" · [0-9a-f]{8}⟧", " · 5f3c9e21⟧", picture)
    picture = re.sub(r"[0-9]{2} tokens", "45 tokens", picture)  # they depend on the mark
    picture = re.sub(r"[0-9a-f]{20,64}", lambda found: "5f3c9e21" * 8 if len(found[0]) == DIGEST else found[0], picture)
    picture = re.sub(r"\b[0-9a-f]{4} [0-9a-f]{4}\b", "5f3c 9e21", picture)  # of a request
    picture = re.sub(r"\b[0-9]{2}:[0-9]{2}:[0-9]{2}\b", "12:00:00", picture)
    path = IMAGES / f"{name}.svg"
    if os.environ.get("AMPLIFIER_PICTURES") == "write":
        path.write_text(picture, encoding="utf-8")
    assert not words(picture) ^ words(path.read_text(encoding="utf-8"))


def test_project(film: Film) -> None:
    """`list` shows the hooks and the meaning of a failure, `validate --trust` their files, and `test` a dry run."""
    film.runs("amplifier-hooks validate --trust")
    film.runs("amplifier-hooks list --event tool:pre")
    film.runs("amplifier-hooks test tool:pre --tool Bash")
    film.terminal.clears()
    film.runs("""echo '{"tool_name": "Bash", "tool_input": {"command": "git push"}}' > call.json""", SHORT)
    film.runs("amplifier-hooks test tool:pre --input call.json --run")
    is_true("project", "amplifier-hooks list and test in a terminal", film)


def test_chat(film: Film) -> None:
    """In a chat a finding is read by the model, a command denied, and a protected file asked about."""
    film.runs("amplifier-hooks validate --trust", SHORT)
    film.terminal.clears()
    film.terminal.types("amplifier-hooks chat\r")
    film.terminal.sees(lambda text: text.endswith("\n>"))
    film.keep()
    film.says("write app.py import os")
    film.says("run git push")
    film.says("write .env KEY=1", lambda text: "Enter confirms" in text and "a moment" not in text)
    film.says("", lambda text: text.count("1 tool call: 0 done, 1 not done") == 2 and text.endswith("\n>"))
    is_true("chat", "amplifier-hooks chat in a terminal", film)


@pytest.mark.rule("TRU-7")
def test_a_change_that_waits(film: Film) -> None:
    """A server keeps its trusted hooks, and an approver sees the difference before a change takes effect."""
    film.terminal.runs("export AMPLIFIER_HOOKS_SOCKET=$PWD/s.sock; chmod 700 .")
    film.terminal.runs("amplifier-hooks serve --programs --hooks amplifier-hooks.yaml 2> serve.txt &")
    film.terminal.runs("until [ -S s.sock ]; do sleep 0.2; done")
    film.terminal.clears()
    film.runs("sed -i 's/deny(.publishing is for people.)/proceed()/' my_hooks.py", SHORT)
    film.terminal.runs("until amplifier-hooks approvals list 2> /dev/null | grep -q TrustHooks; do sleep 0.2; done")
    film.terminal.clears()
    film.terminal.types("amplifier-hooks approvals watch\r")
    film.terminal.sees(lambda text: "Enter confirms" in text and "a moment" not in text)
    film.keep()
    film.terminal.types("\r")
    film.terminal.sees(lambda text: "denied" in text.lower())
    film.keep()
    film.terminal.types("\x03")
    film.terminal.runs("kill %1; wait %1")
    is_true("change", "a change of hooks waits for an approver in a terminal", film)


@pytest.mark.rule("CLI-4")
def test_demo() -> None:
    """The picture of the demo shows what the demo prints."""
    script = IMAGES.parents[1] / "scripts" / "demo_picture.py"
    asked = "--write" if os.environ.get("AMPLIFIER_PICTURES") == "write" else "--check"
    told = subprocess.run([sys.executable, str(script), asked], check=False, capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (0, "")
