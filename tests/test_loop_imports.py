"""Imports on the event loop: none holds other tasks up."""

from __future__ import annotations

import pytest

from tests.loop_imports import MOST, imported_on_the_loop
from tests.stores import DSN, schema, server

SESSION = """
from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.testing import ScriptedApprover
__SETUP__

registry = HookRegistry()
answers = {
    "Deny": HookResult.deny("no"),
    "Ask": HookResult.ask("Really?"),
    "Inject": HookResult.inject("text " * 400),
    "Tell": HookResult.proceed(user_message="hello", user_message_level="warning"),
    "Invalid": {"action": "denyy"},
}

@registry.gate("tool:pre", name="guard")
def guard(event, data):
    return answers.get(data["tool_name"]) or 1 / len(data["tool_input"])

@registry.on("my:event", name="bug")
def bug(event, data):
    raise ValueError("x")

def fails(given):
    raise OSError("x")

watch.on = True
async with SessionCoordinator(hooks=registry, approvals=ScriptedApprover("Allow")__MORE__) as session:
    for tool in (*answers, "Fail"):
        await session.call_tool(tool, {}, lambda given: "ran")
    for _ in range(2):
        await registry.emit("my:event", {})
    async with session.turn("hello"):
        await session.call_tool("Inject", {"more": 1}, lambda given: "ran")
"""

WEBHOOK = """
from amplifier_hooks import HookRegistry
from amplifier_hooks.definitions.kinds.webhook import AllowedUrls
from amplifier_hooks.definitions.kinds.webhook import WebhookHook

async def serve(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: 2\\r\\n\\r\\n{}")
    writer.close()

server = await asyncio.start_server(serve, "127.0.0.1", 0)
port = server.sockets[0].getsockname()[1]
reach = AllowedUrls(networks=["127.0.0.0/8"], ports=[port], http=True)
hook = WebhookHook(url=f"http://127.0.0.1:{port}/", secrets="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", reach=reach)
registry = HookRegistry()
registry.gate("tool:pre", hook, name="service", timeout=60)
watch.on = True
outcome = await registry.emit("tool:pre", {"tool_name": "Write", "tool_call_id": "1", "tool_input": {}})
assert outcome.cause == "hook_invalid_output", outcome.reason
"""

RUN = """
import json, pathlib, tempfile
from amplifier_hooks.runs.blueprint import load_agents
from amplifier_hooks.runs.run_coordinator import RunCoordinator
from amplifier_hooks.runs.run_store import MemoryRuns

folder = pathlib.Path(tempfile.mkdtemp())
(folder / "slow_hook.py").write_text("import concurrent.futures.process, statistics, xmlrpc.client\\nstart = print\\n")
(folder / "agents").mkdir()
hook = {"type": "python", "handler_ref": "slow_hook:start", "on_error": "block"}
blueprint = {"name": "writer", "type": "procedural", "hooks": {"on_run_start": hook}}
(folder / "agents" / "writer.json").write_text(json.dumps(blueprint))
sys.path.insert(0, str(folder))
async with MemoryRuns() as store, RunCoordinator(store, load_agents(folder / "agents")) as runs:
    watch.on = True
    run = await runs.submit("writer", {})
    assert await runs.claim("runner") is None
    while not (await runs.get(run.id)).ended:
        await asyncio.sleep(0)
assert "slow_hook" in sys.modules
"""

STORE = """
from amplifier_hooks.storage.postgres import PostgresDatabase

database = PostgresDatabase(__DSN__, schema=__SCHEMA__)
watch.on = True
await database.open()
await database.close()
"""

DISPLAY = "from amplifier_hooks.session.display import TerminalDisplay"
RECORD = "from pathlib import Path; from tempfile import mkdtemp; from amplifier_hooks import AuditLog"


@pytest.mark.rule("DSP-10")
@pytest.mark.parametrize(
    ("setup", "more"),
    [
        ("", ""),
        ("", ", model='claude-sonnet-4-5'"),
        (f"{DISPLAY}; display = TerminalDisplay()", ", display=display"),
        (f"{RECORD}; log = AuditLog.open(Path(mkdtemp()) / 'record.jsonl')", ", audit=log"),
    ],
    ids=["plain", "estimate", "terminal display", "record"],
)
def test_first_calls(setup: str, more: str) -> None:
    """A started session imports next to nothing on the loop: it logs, denies, asks, injects, notifies, fails."""
    names = imported_on_the_loop(SESSION.replace("__SETUP__", setup).replace("__MORE__", more))
    assert len(names) <= MOST, names


@pytest.mark.rule("DSP-10")
def test_first_request_of_a_service() -> None:
    """The first question to a web service imports next to nothing on the loop."""
    names = imported_on_the_loop(WEBHOOK)
    assert len(names) <= MOST, names


@pytest.mark.rule("DSP-10")
def test_first_run_of_a_hook() -> None:
    """The module of a run's hook is imported beside the loop."""
    names = imported_on_the_loop(RUN)
    assert len(names) <= MOST, names


@pytest.mark.rule("DSP-10")
async def test_first_connection_to_a_store() -> None:
    """The first connection to PostgreSQL imports next to nothing on the loop."""
    await server()
    async with schema() as name:
        names = imported_on_the_loop(STORE.replace("__DSN__", repr(DSN)).replace("__SCHEMA__", repr(name)))
    assert len(names) <= MOST, names
