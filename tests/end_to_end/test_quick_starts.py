"""The quick starts of the README that wait for a person or a server: each works as it stands there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from approval_backends.client import ApprovalsClient
from tests.person import Person

pytestmark = [pytest.mark.rule("PKG-7"), pytest.mark.slow]

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = Path(sys.executable).parent


def quick_start(heading: str) -> str:
    """Return the code of a quick start."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition(f"### {heading}\n")[2]
    code = re.search(r"```(?:python|sh)\n(.*?)```", section, re.DOTALL)
    assert code is not None
    return code[1]


def test_approve_in_a_terminal(tmp_path: Path) -> None:
    """A person at a terminal allows the call with two keys, and it runs."""
    person = Person(program=quick_start("Approve in a terminal"), environment={"HOME": str(tmp_path)})
    person.sees("make release")
    person.sees("Enter confirms")
    person.types("a")
    person.sees("▸ a Allow", "Enter confirms")
    person.types("\r")
    person.sees("value='ran'")
    person.child.close()


async def test_approve_on_a_page(tmp_path: Path) -> None:
    """An approver with the printed link allows the call, and it runs."""
    program = (sys.executable, "-c", quick_start("Approve on a page"))
    home = {"HOME": str(tmp_path), "PATH": os.defpath}
    running = await asyncio.create_subprocess_exec(*program, env=home, stdout=asyncio.subprocess.PIPE)
    assert running.stdout is not None
    link = (await running.stdout.readline()).decode().split()[1]
    async with ApprovalsClient(link, link.partition("#t=")[2]) as client:
        if not client.queue:
            async for _ in client.news():
                if client.queue:
                    break
        card = await client.show(client.queue[0].request_id)
        (allow,) = (option for option in card.options if option.kind == "allow_once")
        decided = await client.decide(client.queue[0], allow.option_id)
    assert decided.accepted
    assert "value='ran'" in (await running.stdout.read()).decode()
    await running.wait()


def test_in_front_of_claude_code(tmp_path: Path) -> None:
    """The commands write the hooks and the program's settings, and the server answers programs."""
    home = {"HOME": str(tmp_path), "PATH": os.defpath, "XDG_RUNTIME_DIR": str(tmp_path)}
    make, install, serve = (
        [str(PROGRAMS / "amplifier-hooks"), *shlex.split(line, comments=True)[1:]]
        for line in quick_start("In front of Claude Code").splitlines()
    )
    for words in (make, [*install, "--yes"]):
        subprocess.run(words, cwd=tmp_path, env=home, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    settings = json.loads((tmp_path / ".claude" / "settings.local.json").read_text(encoding="utf-8"))
    assert "PreToolUse" in settings["hooks"]
    serving = subprocess.Popen([*serve, "--port", "0"], cwd=tmp_path, env=home, stderr=subprocess.PIPE, text=True)
    assert serving.stderr is not None
    messages = ""
    for line in serving.stderr:
        messages += line
        if "Ctrl-C" in line:
            serving.send_signal(signal.SIGINT)
    assert serving.wait() == 0
    serving.stderr.close()
    assert "Programs are answered at" in messages
    assert "Approvals are at" in messages


def test_the_page_for_a_team() -> None:
    """The commands name a file that exists, the service in it, and the file with the token of its port."""
    lines = [shlex.split(line, comments=True) for line in quick_start("The page for a team").splitlines()]
    compose = ROOT / lines[1][lines[1].index("--file") + 1]
    text = compose.read_text(encoding="utf-8")
    service, _, file = lines[2][lines[2].index("exec") + 1 :]
    assert f"\n  {service}:\n" in text
    assert f":{re.sub(r'[^0-9]', '', file)}" in text
    assert lines[0][1].partition("=")[0] in text
