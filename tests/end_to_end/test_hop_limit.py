"""A hook's command that asks the server, whose hook runs a command that asks the server, and so on."""

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from amplifier_hooks import HookRegistry
from amplifier_hooks import bridge as bridge_module
from amplifier_hooks.definitions.kinds.command import CommandHook
from amplifier_hooks.programs.program_session import ProgramSessions
from amplifier_hooks.server.edge.listen import listening
from amplifier_hooks.server.program_api import create_app

QUESTION = {
    "session_id": "s", "cwd": "/tmp", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_use_id": "t",
    "tool_input": {"command": "ls"},
}  # fmt: skip

AGAIN = """
import json, os, subprocess, sys
with open(sys.argv[3], "a") as log:
    log.write(os.environ["AMPLIFIER_HOOKS_HOPS"] + "\\n")
question = json.loads(sys.argv[4])
question["tool_use_id"] = os.environ["AMPLIFIER_HOOKS_HOPS"]
ended = subprocess.run([sys.executable, "-I", "-S", sys.argv[1], sys.argv[2], "claude_code"],
    input=json.dumps(question), capture_output=True, text=True)
if ended.returncode or "deny" in ended.stdout:
    print(json.dumps({"action": "deny", "reason": (ended.stdout + ended.stderr)[-300:]}))
"""


@pytest.mark.fault("F-HD-17")
@pytest.mark.rule("DEF-4")
async def test_a_command_that_asks_the_server_again(tmp_path: Path) -> None:
    """The circle ends after four rounds through processes, and all that it was about is denied."""
    path, log = tmp_path / "hooks.sock", tmp_path / "log"
    registry = HookRegistry()
    argv = [sys.executable, "-c", AGAIN, bridge_module.__file__, os.fspath(path), os.fspath(log), json.dumps(QUESTION)]
    registry.gate("tool:pre", CommandHook(argv=argv), name="again", timeout=30)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.fspath(path))
    listener.listen()
    pool = ProgramSessions(registry)
    async with listening(create_app(pool), listener):
        bridge = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", bridge_module.__file__, os.fspath(path), "claude_code",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, _ = await asyncio.wait_for(bridge.communicate(json.dumps(QUESTION).encode()), 60)
        await pool.close()
    assert log.read_text().split() == ["1", "2", "3", "4"]
    assert b'"deny"' in said
    assert b"circle" in said


@pytest.mark.rule("API-9")
@pytest.mark.fault("F-API-14")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 200),
        ([("host", "localhost:8642")], 403),
        ([("host", "127.0.0.1")], 403),
        ([("host", "bridge:8642")], 403),
        ([("host", "evil.example:8642")], 403),
        ([("origin", "http://127.0.0.1:8642")], 403),
    ],
)
async def test_pages_do_not_post(headers: list[tuple[str, str]], status: int) -> None:
    """Programs post to the very address, once named; nothing that may come from a page in a browser is answered."""
    pool = ProgramSessions(HookRegistry())
    transport: Any = httpx2.ASGITransport(create_app(pool, token="t"))
    own = {"authorization": "Bearer t"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8642", headers=own) as client:
        request = client.build_request("POST", "/v1/bridge/claude_code", json=QUESTION)
        request.headers = httpx2.Headers([*request.headers.multi_items(), *headers])
        answer = await client.send(request)
    await pool.close()
    assert answer.status_code == status


@pytest.mark.fault("F-HD-17")
@pytest.mark.parametrize(("hops", "status"), [("3", 200), ("4", 508), ("999", 508), ("x", 200), ("9" * 50, 200)])
async def test_programs_that_post(hops: str, status: int) -> None:
    """A question that has come back too often is refused, and what is no number counts as none."""
    pool = ProgramSessions(HookRegistry())
    transport: Any = httpx2.ASGITransport(create_app(pool, token="t"))
    headers = {"authorization": "Bearer t", "x-amplifier-hooks-hops": hops}
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        answer = await client.post("/v1/bridge/claude_code", json=QUESTION)
    await pool.close()
    assert answer.status_code == status
