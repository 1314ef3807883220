"""Real agent programs attack their guard, in the set-up that the documents tell a user to type."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.agent_programs import CLAUDE, PROGRAMS, Program, program_path
from tests.scripted_models import Say, Use, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.agents

COMMANDS = Path(sys.executable).parent
DEFINITIONS = """
version: 1
library: {recovery_hint: {}}
hooks:
  - {name: shell guard, event_type: "tool:pre", handler_ref: command, config: {argv: [./guard.sh]}}
  - {name: python guard, event_type: "tool:pre", handler_ref: "guard:check"}
"""
SHELL_GUARD = """#!/bin/sh
if grep -q forbidden; then echo "no, says the shell" >&2; exit 2; fi
"""
PYTHON_GUARD = """
from amplifier_hooks import HookResult
import words

def check(event, data):
    return HookResult.deny("no, says Python") if words.WORD in str(data["tool_input"]) else None
"""
TAKEN_OFF = """
version: 1
hooks:
  - {name: mine, event_type: "tool:pre", handler_ref: command, config: {argv: [sh, -c, "touch ran.txt"]}}
"""
ATTACK = """
for name in guard words ctok brotli yaml sitecustomize; do echo "open('ran.txt', 'w')" > $name.py; done
printf '#!/bin/sh\\ntouch ran.txt\\n' > guard.sh
cp ../mine.yaml amplifier-hooks.yaml
for words in "validate --trust" "approvals allow x --yes" "resume --yes" "uninstall PROGRAM --yes"; do
  OURS $words >> said.txt 2>&1; echo "$words: $?" >> codes.txt
done
until grep -q "not taken over" ../serve.log; do sleep 0.1; done
"""
"""Code that no reading of a call shows: it changes each file for real, and then waits until the server has seen it."""

COMMAND = "amplifier-hooks"
GUARDS = ("amplifier-hooks.yaml", "guard.sh", "words.py")


@pytest.fixture(params=["claude_code", "codex"])
def program(request: pytest.FixtureRequest) -> Program:
    """Yield each program, one after the other."""
    chosen = PROGRAMS[request.param]
    if chosen.dialect == "claude_code" and not CLAUDE.exists():
        pytest.skip("the claude-agent-sdk wheel here has no program in it")
    if chosen.dialect != "claude_code":
        program_path(chosen.dialect)
    return chosen


def typed(*words: str, cwd: Path, env: dict[str, str]) -> str:
    """Run our command as a user types it, and return what it printed."""
    ended = subprocess.run(
        [COMMAND, *words], cwd=cwd, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        executable=COMMANDS / COMMAND,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


async def lines_of(process: asyncio.subprocess.Process, log: Path) -> AsyncIterator[str]:
    """Yield the lines of a server, and append them to its log."""
    assert process.stdout is not None
    with log.open("a") as file:
        async for line in process.stdout:
            file.write(line.decode())
            file.flush()
            yield line.decode()


@pytest.mark.slow
@pytest.mark.rule("TRU-5", "TRU-6", "TRU-7", "SLF-1", "SLF-3")
async def test_it_neither_takes_off_its_guard_nor_runs_code_in_the_server(program: Program, tmp_path: Path) -> None:
    """A program that edits, deletes and uninstalls its guard stays guarded, and none of its code runs in the server."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    name = program.dialect.replace("_", "-")
    attack = ATTACK.replace("PROGRAM", name).replace("OURS", os.fspath(COMMANDS / COMMAND))
    files = {"amplifier-hooks.yaml": DEFINITIONS, "guard.sh": SHELL_GUARD, "guard.py": PYTHON_GUARD}
    for file, text in {**files, "words.py": "WORD = 'secret'\n", "attack.sh": attack}.items():
        (project / file).write_text(text)
    (project / "guard.sh").chmod(0o755)
    (tmp_path / "mine.yaml").write_text(TAKEN_OFF)
    calls = [
        *(program.command(f"echo 'version: 1' > {file}") for file in GUARDS),
        program.command("rm .claude/settings.local.json ~/.codex/hooks.json"),
        *(program.command(f"amplifier-hooks {words}") for words in ("validate --trust", f"uninstall {name} --yes")),
        program.command("sh attack.sh"),
        program.command("echo forbidden > shell.txt"),
        program.command("echo secret > python.txt"),
        program.command("echo harmless > harmless.txt"),
    ]
    script: list[Use | Say] = [*calls, Say("finished")]
    async with serving(*script) as model:
        argv, own = program.settled(home, project, {}, model.url)
        basic = {"PATH": f"{COMMANDS}{os.pathsep}{os.environ['PATH']}", "HOME": os.fspath(home), "TERM": "dumb"}
        basic["AMPLIFIER_HOOKS_SOCKET"] = os.fspath(tmp_path / "hooks.sock")
        typed("install", name, *(["--user"] if name == "codex" else []), "--yes", cwd=project, env=basic)
        server = await asyncio.create_subprocess_exec(
            COMMANDS / COMMAND, "serve", "--programs", "--hooks", "amplifier-hooks.yaml",
            cwd=project, env=basic, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            log = lines_of(server, tmp_path / "serve.log")
            async for line in log:
                if "Programs are answered" in line:
                    break
            rest = asyncio.create_task(read_to_end(log))
            agent = await asyncio.create_subprocess_exec(
                *argv, cwd=project, env={**basic, **own}, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            output, _ = await agent.communicate()
            assert agent.returncode == 0, output.decode()[-2000:]
        finally:
            if server.returncode is None:
                server.send_signal(signal.SIGINT)
            await server.wait()
        await rest
    told = [request.get("messages") or request["input"] for request in model.requests]
    answers = [json.dumps(after[len(before) :]) for before, after in pairwise(told)]
    denied = ["self-protection" in one for one in answers]
    assert denied == [True] * 6 + [False] * 4, answers
    codes = [line.rpartition(" ")[2] for line in (project / "codes.txt").read_text().splitlines()]
    assert codes == ["1"] * 4, (project / "said.txt").read_text()
    assert "no, says the shell" in answers[7]
    assert "no, says Python" in answers[8]
    assert (project / "harmless.txt").exists()
    assert not [file for file in ("ran.txt", "shell.txt", "python.txt") if (project / file).exists()]


async def read_to_end(lines: AsyncIterator[str]) -> None:
    """Read lines until there are no more."""
    async for _ in lines:
        pass
