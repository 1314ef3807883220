"""The tools Read, Write and Bash of a chat, and their refusals."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING

import pytest

from amplifier_hooks.cli.chat.chat_tools import KEPT, LARGEST_FILE, ToolRefused, Workplace

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    """An empty folder."""
    (tmp_path / "project").mkdir()
    return Workplace(tmp_path / "project")


@pytest.mark.rule("CLI-6")
def test_write_and_read(place: Workplace) -> None:
    """Read returns the text that Write wrote, newlines and all, also in new folders."""
    assert place.write({"file_path": "src/a.py", "content": "é\r\n"}) == "wrote 4 bytes to src/a.py"
    assert place.read({"file_path": str(place.folder / "src/a.py")}) == "é\r\n"


@pytest.mark.rule("CLI-6")
@pytest.mark.parametrize("name", ["../out", "/etc/passwd", "link/x", "linked", "", ".", "a\0b", None, 3])
def test_paths_stay_inside(place: Workplace, name: object) -> None:
    """No path leads out of the folder: neither up, nor by its root, nor through a link."""
    outside = place.folder.parent / "elsewhere"
    outside.mkdir()
    (outside / "x").write_text("theirs")
    (place.folder / "link").symlink_to(outside)
    (place.folder / "linked").symlink_to(outside / "x")
    for use in (place.read, place.write):
        with pytest.raises(ToolRefused):
            use({"file_path": name, "content": "mine"})
    assert (outside / "x").read_text() == "theirs"
    assert sorted(path.name for path in place.folder.parent.iterdir()) == ["elsewhere", "project"]


@pytest.mark.rule("CLI-6")
def test_odd_files(place: Workplace) -> None:
    """A pipe is not waited for, a large file not read, and bytes that are no text do no harm."""
    os.mkfifo(place.folder / "pipe")
    for use in (place.read, place.write):
        with pytest.raises(ToolRefused, match="no plain file"):
            use({"file_path": "pipe", "content": ""})
    (place.folder / "large").write_bytes(b"x" * (LARGEST_FILE + 1))
    with pytest.raises(ToolRefused, match="262,144"):
        place.read({"file_path": "large"})
    (place.folder / "odd").write_bytes(b"a\xffb")
    assert place.read({"file_path": "odd"}) == "a\ufffdb"
    with pytest.raises(ToolRefused, match="a text"):
        place.write({"file_path": "new", "content": None})


@pytest.mark.rule("CLI-6")
async def test_shell(place: Workplace) -> None:
    """A command runs in the folder; the model reads both its streams in order, and a failing exit status."""
    assert await place.shell({"command": "pwd; echo oh >&2"}) == f"{place.folder}\noh\n"
    assert await place.shell({"command": "echo no; exit 3"}) == "exit status 3\nno\n"


@pytest.mark.rule("CLI-6")
@pytest.mark.parametrize(
    "given", [{}, {"command": " "}, {"command": "ls", "timeout": 0}, {"command": "ls", "timeout": True}]
)
async def test_shell_called_wrongly(place: Workplace, given: dict[str, object]) -> None:
    """Bash refuses arguments without a command, and an invalid timeout."""
    with pytest.raises(ToolRefused):
        await place.shell(given)


@pytest.mark.rule("CLI-6")
async def test_shell_has_no_keys(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    """No command gets the keys of the chat, since the model reads what a command prints."""
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS", "GITHUB_TOKEN", "DB_PASSWORD"):
        monkeypatch.setenv(name, "precious")
    assert "precious" not in await place.shell({"command": "env"})
    assert "PATH=" in await place.shell({"command": "env"})


@pytest.mark.slow
@pytest.mark.rule("CLI-6")
async def test_shell_ends_at_its_deadline(place: Workplace) -> None:
    """A timeout ends a command with everything it started, and the model reads its output up to then."""
    os.mkfifo(place.folder / "alive")
    alive = os.open(place.folder / "alive", os.O_RDONLY | os.O_NONBLOCK)
    try:
        command = "exec 9>alive; echo begun; (sleep 60; true) & sleep 60"  # a living process holds the pipe open
        with pytest.raises(ToolRefused, match=r"(?s)longer than 1 s.*begun"):
            await place.shell({"command": command, "timeout": 1})
        watch = select.poll()
        watch.register(alive, select.POLLHUP)
        assert watch.poll(5_000)
    finally:
        os.close(alive)


@pytest.mark.rule("CLI-6")
async def test_shell_leaves_nobody_behind(place: Workplace) -> None:
    """The end of a command ends the processes that it left running, too."""
    began = time.monotonic()
    assert await place.shell({"command": "sleep 60 & echo here"}) == "here\n"
    assert time.monotonic() - began < 30


@pytest.mark.rule("CLI-6")
async def test_shell_prints_much(place: Workplace) -> None:
    """Of a long output the model reads the beginning, the end and the number of missing bytes; the screen gets all."""
    heard: list[int] = []
    place.heard = lambda data: heard.append(len(data))
    text = await place.shell({"command": "yes | head -c 1000000; echo end"})
    assert text.startswith("y\ny\n")
    assert text.endswith("end\n")
    assert f"({1000004 - 2 * KEPT:,} bytes left out)" in text
    assert sum(heard) == 1000004
