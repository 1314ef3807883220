"""The cost the bridge adds to a tool call of another program, and a command hook to its process.

The server runs in a thread of its own, as it would in a process of its own; both bridge and bare interpreter are
started as agent programs start a hook. *The server's share* is the same question over the same socket, without a
process.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from amplifier_hooks import HookRegistry
from amplifier_hooks import bridge as bridge_module
from amplifier_hooks.definitions.kinds.command import CommandHook
from amplifier_hooks.programs.program_session import ProgramSessions
from amplifier_hooks.server.program_api import create_app
from benchmarks.options import parser
from benchmarks.rounds import Effort, Timed, measure
from benchmarks.table import VERDICT, Report, number, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from starlette.requests import Request

INTERPRETER: Final = [sys.executable, "-I", "-c", "pass"]
TOKEN: Final = "token"  # noqa: S105  # of a server that lives for a benchmark


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    chosen = parser("bridge", __doc__).parse_args(arguments)
    report = Report("bridge", ("uvicorn", "fastapi", "httpx2"))
    with ExitStack() as stack:
        subjects = dict(made(stack))
        samples = asyncio.run(measure(subjects, Effort(rounds=3 if chosen.quick else 101, seconds=0), number=1))
    pairs = [
        ("bridged PreToolUse", "python -I -c pass", 1.4),
        ("over http", "bare POST", 3.0),
        ("command hook", "bare process", 1.15),
    ]
    rows = []
    for name, base, target in pairs:
        ratio = samples[name].ratio(samples[base])
        cells = [number(samples[one].usual / 1e3) for one in (name, base)]
        rows.append([f"{name} / {base}", *cells, number(ratio), *verdict(ratio, target)])
    report.table(["ms, median", "ours", "base", "ratio", *VERDICT], rows)
    share = samples["the server's share"].usual / 1e3
    report.text(f"The server's share of a bridged call is {number(share)} ms.")
    report.finish(write=chosen.write)


def made(stack: ExitStack) -> Iterator[tuple[str, Timed]]:
    """Yield the subjects by name, with the servers they need."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    path = folder / "hooks.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.fspath(path))
    stack.enter_context(serving(create_app(ProgramSessions(HookRegistry())), listener))
    port = stack.enter_context(serving(create_app(ProgramSessions(HookRegistry()), token=TOKEN), loopback()))
    bare = stack.enter_context(serving(Starlette(routes=[Route("/", plain, methods=["POST"])]), loopback()))
    bridge = [sys.executable, "-I", "-S", bridge_module.__file__, os.fspath(path), "claude_code", "deny"]
    yield "python -I -c pass", process(INTERPRETER)
    yield "bridged PreToolUse", process(bridge)
    yield "the server's share", asked(os.fspath(path))
    yield "over http", posted(f"http://127.0.0.1:{port}/v1/bridge/claude_code")
    yield "bare POST", posted(f"http://127.0.0.1:{bare}/")
    yield "bare process", bare_process
    yield "command hook", command_hook()


def question(name: str = "PreToolUse") -> bytes:
    """Return a question of Claude Code; each is about another call."""
    question.number = getattr(question, "number", 0) + 1  # type: ignore[attr-defined]
    call = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": f"t{question.number}"}  # type: ignore[attr-defined]
    return json.dumps({"session_id": "s", "cwd": "/", "hook_event_name": name, **call}).encode()


def loopback() -> socket.socket:
    """Return a listener at a free port."""
    listener = socket.socket()
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or a small answer waits for an acknowledgement
    listener.bind(("127.0.0.1", 0))
    return listener


@contextmanager
def serving(app: Any, listener: socket.socket) -> Iterator[int]:
    """Serve in a thread; yield the port."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", access_log=False))
    listener.listen()
    thread = threading.Thread(target=asyncio.run, args=(server.serve([listener]),))
    thread.start()
    address = listener.getsockname()
    try:
        yield address[1] if isinstance(address, tuple) else 0
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


async def plain(request: Request) -> Response:
    """Answer as the smallest possible server that reads a body."""
    await request.body()
    return Response(b"{}", media_type="application/json")


def process(argv: list[str]) -> Timed:
    """Return a function that starts a program as agent programs do, and waits for its end."""

    async def timed(count: int) -> float:
        asked = question()
        began = perf_counter()
        for _ in range(count):
            subprocess.run(argv, input=asked, stdout=subprocess.PIPE, check=True)  # noqa: ASYNC221  # the server is elsewhere
        return perf_counter() - began

    return timed


def asked(path: str) -> Timed:
    """Return a function that asks the server over its socket, without a process."""

    async def timed(count: int) -> float:
        one = question()
        began = perf_counter()
        for _ in range(count):
            status, _, _ = bridge_module.ask(path, "claude_code", one)
            assert status == 0
        return perf_counter() - began

    return timed


def posted(url: str) -> Timed:
    """Return a function that posts to a server, over a connection that is kept."""
    client = httpx2.Client(trust_env=False, headers={"authorization": f"Bearer {TOKEN}"})

    async def timed(count: int) -> float:
        one = question()
        began = perf_counter()
        for _ in range(count):
            client.post(url, content=one).raise_for_status()
        return perf_counter() - began

    return timed


async def bare_process(count: int) -> float:
    """Feed and read a process so many times, with nothing around it, and return the seconds."""
    asked = question()
    began = perf_counter()
    for _ in range(count):
        one = await asyncio.create_subprocess_exec(
            *INTERPRETER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        await one.communicate(asked)
    return perf_counter() - began


def command_hook() -> Timed:
    """Return a function that runs the process as a command hook."""
    hook = CommandHook(argv=tuple(INTERPRETER))
    call = {"session_id": "s", "tool_name": "Bash", "tool_call_id": "c", "tool_input": {"command": "ls"}}

    async def timed(count: int) -> float:
        began = perf_counter()
        for _ in range(count):
            await hook("tool:pre", call)
        return perf_counter() - began

    return timed
