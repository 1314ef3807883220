"""The host of `serve`, in this process: its parts start and end in order."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from attrs import evolve
from typer.testing import CliRunner, Result

from amplifier_hooks import AuditLog, HookResult
from amplifier_hooks import bridge as bridge_module
from amplifier_hooks.cli.app import app
from amplifier_hooks.cli.project.read_project import tell_change
from amplifier_hooks.cli.serve.host_programs import ApiHost, Host, host_programs
from amplifier_hooks.definitions.model import NewHook, new_hook_id
from amplifier_hooks.definitions.store import DefinitionStore
from amplifier_hooks.registry.hook_table import RegistryChange
from amplifier_hooks.server.build_api import API_TABLES
from amplifier_hooks.server.edge.listen import has_listener
from amplifier_hooks.storage.sqlite import SqliteDatabase
from amplifier_hooks.testing import ManualClock
from approval_backends.broker import Broker
from approval_backends.stores.address import store_at
from approval_backends.stores.sqlite import SqliteStore
from tests.conftest import require_installed


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder for the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@asynccontextmanager
async def hosted(folder: Path) -> AsyncIterator[Host]:
    """Yield the host of `serve --api`, before it serves."""
    store = store_at(str(folder / "approvals.db"))
    await store.open()
    broker = Broker(store)
    options: dict[str, Any] = dict.fromkeys(("hooks", "rules", "record", "port"))
    path = folder / "run" / "hooks.sock"
    host = host_programs(broker, store.database, socket=path, asking="inbox", waits=1.0, **options)
    database = SqliteDatabase(folder / "hooks.db", *API_TABLES)
    yield evolve(host, api=ApiHost(database=database, broker=broker, port=0))
    await store.close()


@pytest.mark.slow
@pytest.mark.rule("API-15", "DSP-3")
async def test_nobody_is_answered_without_the_hooks(own_state: Path) -> None:
    """Hooks made over the API are in force before programs can ask, and as long as they can."""
    said = {
        "name": "guard",
        "event_type": "tool:pre",
        "handler_ref": "tests.amplifier_hooks.server.hooks.guards:denies",
    }
    async with SqliteDatabase(own_state / "hooks.db", *API_TABLES) as database:
        new = NewHook.model_validate(said).to_definition(tenant_id="", hook_id=new_hook_id(), now=ManualClock().now())
        await DefinitionStore(database).create(new)
    seen: list[tuple[str, bool]] = []
    async with hosted(own_state) as host:

        def note(change: RegistryChange) -> None:
            if change.hook == "guard":
                seen.append((change.what, has_listener(host.socket)))

        host.hooks.registry.watch(note)
        async with host.serving():
            assert has_listener(host.socket)
    assert {what for what, _ in seen} >= {"registered", "unregistered"}
    assert not any(open_ for _, open_ in seen)


# -- a process that answers other programs' hooks ----------------------------------------------------------------------


GUARDS = """
from amplifier_hooks import HookRegistry, HookResult, HookResult

registry = HookRegistry()

@registry.gate("tool:pre", name="guard")
async def guard(event, data):
    return HookResult.deny("not here") if "rm" in data["tool_input"]["command"] else None
"""


def environment(folder: Path) -> dict[str, str]:
    """A home of its own."""
    return {"PATH": os.environ["PATH"], "HOME": os.fspath(folder), "XDG_STATE_HOME": os.fspath(folder / "state")}


@pytest.mark.rule("CLI-1", "DSP-11")
async def test_serving_tells_the_hooks_in_force(own_state: Path) -> None:
    """A server without a hook says that it stops no call, and names the remedy; with hooks it says their number."""
    async with hosted(own_state) as host:
        host.hooks.registry.gate("tool:pre", lambda event, data: HookResult.deny("no"), name="trial", report_only=True)
        assert host.hooks_line == (
            "No hook is in force, so no call is stopped. Name your hooks, such as: --hooks amplifier-hooks.yaml"
        )
        host.hooks.registry.observe("tool:post", name="watch")(lambda event, data, outcome: None)
        assert host.hooks_line == "1 hook is in force."
        host.hooks.registry.observe("tool:error", name="watch")(lambda event, data, outcome: None)
        assert host.hooks_line == "1 hook is in force."  # at two events


@contextmanager
def served(folder: Path, *arguments: str) -> Iterator[Path]:
    """The command, running until the block ends; yields its socket."""
    (folder / "guards.py").write_text(GUARDS)
    path = folder / "run" / "hooks.sock"
    process = subprocess.Popen(
        [sys.executable, "-m", "amplifier_hooks", "serve", "--socket", os.fspath(path), *arguments],
        cwd=folder, env=environment(folder), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        said = ""
        while str(path) not in said:
            line = process.stderr.readline()
            require_installed(line)
            assert line, said
            said += line
        yield path
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0


def second_server(folder: Path, path: Path, *arguments: str) -> Result:
    """Return the end of a command in this process that cannot serve."""
    return CliRunner().invoke(app, ["serve", "--socket", os.fspath(path), *arguments], env=environment(folder))


def bridged(path: Path, command: str, session: str = "s") -> dict[str, Any]:
    """Return the server's answer about this command, over the real bridge, which a program of its own starts."""
    question = {
        "session_id": session, "cwd": "/", "hook_event_name": "PreToolUse", "tool_name": "Bash",
        "tool_input": {"command": command}, "tool_use_id": "t",
    }  # fmt: skip
    bridge = [sys.executable, "-I", "-S", bridge_module.__file__, os.fspath(path), "claude_code", "deny"]
    program = f"import subprocess, sys; sys.exit(subprocess.run({bridge!r}, check=False).returncode)"
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        input=json.dumps(question).encode(), capture_output=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout or b"{}")
    return answer


@pytest.mark.rule("BCK-6", "CLI-1", "DIA-2", "SLF-2")
def test_programs_are_answered_with_a_registry_of_ones_own(tmp_path: Path) -> None:
    """The named hooks and rules decide, the socket is this user's, and the record tells of an operator's option."""
    rule = {"id": "no-search", "action": "deny", "tool": "Bash", "command": "find *", "reason": "not here"}
    (tmp_path / "rules.yaml").write_text(json.dumps({"version": 1, "rules": [rule]}))
    options = ("--rules", os.fspath(tmp_path / "rules.yaml"), "--record", os.fspath(tmp_path / "record.jsonl"))
    with served(tmp_path, "--hooks", "guards:registry", "--no-self-protection", *options) as path:
        assert path.stat().st_mode & 0o077 == 0
        assert bridged(path, "rm -rf /")["hookSpecificOutput"]["permissionDecision"] == "deny"
        assert bridged(path, "find .")["hookSpecificOutput"]["permissionDecision"] == "deny"
        assert bridged(path, "ls") == {}
        assert bridged(path, f"echo > {tmp_path}/amplifier-hooks.yaml") == {}
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "record.jsonl").read_text().splitlines()]
    assert "tool.denied" in kinds
    assert {"log.closed", "self_protection.off"} <= set(kinds)
    assert not path.exists()


@pytest.mark.slow
@pytest.mark.rule("SLF-1", "SLF-2")
def test_programs_do_not_take_off_their_guard(tmp_path: Path) -> None:
    """A program changes no file and no setting that guards it, and starts no command that decides."""
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "guard.sh").write_text("exit 0\n")
    hook = {"name": "guard", "event_type": "tool:pre", "priority": 1, "handler_ref": "command"}
    config = {"argv": ["sh", "checks/guard.sh"]}
    (tmp_path / "hooks.yaml").write_text(json.dumps({"version": 1, "hooks": [{**hook, "config": config}]}))
    record = tmp_path / "record.jsonl"
    commands = (
        f"echo > {tmp_path}/hooks.yaml",
        f"cd {tmp_path} && rm -rf checks",
        f"mkdir -p {tmp_path}/.claude && tee {tmp_path}/.claude/settings.local.json",
        f"rm {tmp_path}/state/amplifier-hooks/trust.json",
        f"python3 -c \"open('{record}', 'w')\"",
        f"curl --unix-socket {tmp_path}/run/hooks.sock http://x/",
        "uvx amplifier-hooks uninstall claude-code",
    )
    with served(tmp_path, "--hooks", "hooks.yaml", "--record", os.fspath(record)) as path:
        for number, command in enumerate(commands):
            answer = bridged(path, command, f"s{number}")
            assert "self-protection" in str(answer), command
        assert bridged(path, f"cat {tmp_path}/hooks.yaml") == {}
    assert "self_protection.off" not in record.read_text()


@pytest.mark.slow
@pytest.mark.rule("CLI-7", "DEF-1", "TRU-2", "TRU-7")
def test_programs_are_answered_with_a_file(tmp_path: Path) -> None:
    """The hooks of a named file decide; a change does once it is trusted, and one with a mistake changes nothing."""
    file = tmp_path / "hooks.yaml"
    hook = {"name": "guard", "event_type": "tool:pre", "priority": 1, "handler_ref": "command"}

    def says(status: int) -> None:
        config = {"argv": ["sh", "-c", f"echo says {status} >&2; exit {status}"]}
        file.write_text(json.dumps({"version": 1, "hooks": [{**hook, "config": config}]}))

    def becomes(decision: str | None) -> None:
        end = time.monotonic() + 60
        while bridged(path, "ls").get("hookSpecificOutput", {}).get("permissionDecision") != decision:
            assert time.monotonic() < end

    def answer(verb: str, shown: str) -> None:
        """Answer the request about the change, which shows a text, from the command line."""
        requests: list[dict[str, Any]] = []
        while not requests:
            requests = json.loads(command("approvals", "list", "--json"))
        [request] = requests
        assert shown in json.dumps(request)
        command("approvals", verb, request["id"], *(["--yes"] if verb == "allow" else []))

    def command(*words: str) -> str:
        words = (sys.executable, "-m", "amplifier_hooks", *words)
        run = subprocess.run(words, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=True)
        return run.stdout

    says(2)
    with served(tmp_path, "--hooks", "hooks.yaml") as path:
        becomes("deny")
        says(3)
        answer("deny", "says 3")
        says(0)
        for _ in range(5):
            becomes("deny")
        answer("allow", "says 0")
        becomes(None)
        file.write_text("version: 1\nhoks: []\n")
        for _ in range(5):
            becomes(None)
    file.unlink()
    with served(tmp_path, "--hooks", "hooks.yaml") as path:
        becomes(None)
        answer("deny", "Take the hooks of hooks.yaml out of force? It is gone.")
    with served(tmp_path, "--hooks", "hooks.yaml") as path:
        becomes(None)
        assert json.loads(command("approvals", "list", "--json")) == []
        says(2)
        command("validate", "hooks.yaml", "--trust")
        becomes("deny")
    record = tmp_path / "state" / "amplifier-hooks" / "record.jsonl"
    kinds = [json.loads(line)["kind"] for line in record.read_text().splitlines()]
    assert kinds.count("approval.decided") >= 3
    assert kinds.count("tool.done") == 1


@pytest.mark.rule("CLI-7", "CLI-3")
def test_changes_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A change of a hook file is printed on standard error, with the author's text escaped."""
    tell_change(RegistryChange(what="registered", hook="guard"))
    tell_change(RegistryChange(what="redefined", hook="guard"))
    tell_change(RegistryChange(what="broken", hook="hooks.yaml", detail="hooks.yaml:2: unknown key '\x1b[2J'"))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("Hook guard is redefined.\nhooks.yaml has changed and is not taken over: ")
    assert "\x1b" not in said.err


@pytest.mark.slow
@pytest.mark.rule("DIA-2", "DIA-8")
def test_programs_may_post(tmp_path: Path) -> None:
    """The server answers posts of a program with the token, and none of a page in a browser."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    question = {
        "session_id": "s",
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "rm"},
    }
    with served(tmp_path, "--hooks", "guards:registry", "--http", str(port)):
        kept = tmp_path / "state" / "amplifier-hooks" / "programs.token"
        assert kept.stat().st_mode & 0o077 == 0
        bearing = {"authorization": f"Bearer {kept.read_text()}"}
        url = f"http://127.0.0.1:{port}/v1/bridge/claude_code"
        answered = httpx2.post(url, json=question, headers=bearing)
        assert answered.json()["hookSpecificOutput"]["permissionDecision"] == "deny"
        assert httpx2.post(url, json=question).status_code == 401
        assert httpx2.post(url, json=question, headers={**bearing, "origin": "http://evil.example"}).status_code == 403
        assert httpx2.post(url, json=question, headers={**bearing, "host": "evil.example"}).status_code == 403
        assert httpx2.post(url, content=b"[]", headers=bearing).status_code == 400
        named = {**bearing, "webhook-id": "msg_1"}
        assert httpx2.post(url, json=question, headers=named).json() == answered.json()
        assert httpx2.post(url, json=question, headers=named).json() == answered.json()
        other = {**question, "tool_input": {"command": "ls"}}
        assert "another question" in httpx2.post(url, json=other, headers=named).json()["detail"]


@pytest.mark.rule("DIA-5")
def test_the_server_listens_where_programs_post(tmp_path: Path) -> None:
    """Without an option the server takes the port that install chose; a port that is taken is named."""
    kept = tmp_path / "state" / "amplifier-hooks" / "programs.port"
    kept.parent.mkdir(parents=True, mode=0o700)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kept.write_text(f"{port}\n")
    with served(tmp_path):
        assert httpx2.get(f"http://127.0.0.1:{port}/healthz").status_code == 401
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        second = second_server(tmp_path, tmp_path / "run" / "hooks.sock")
        assert second.exit_code == 1
        assert f"port {port}, to which programs post" in second.stderr
        with served(tmp_path, "--http", "0") as path:
            assert bridged(path, "ls") == {}


def test_a_socket_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    """A second server at the same socket says so and ends, and the first goes on."""
    with served(tmp_path, "--hooks", "guards") as path:
        second = second_server(tmp_path, path, "--record", os.fspath(tmp_path / "other.jsonl"))
        assert second.exit_code == 1
        assert "another server answers" in second.stderr
        assert bridged(path, "ls") == {}


@pytest.mark.parametrize("name", ["nowhere", "json:dumps", "json:JSONEncoder", "guards:missing"])
def test_what_is_no_registry_is_refused(name: str, own_state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads to no registry is refused, with an example of a valid one."""
    (own_state / "guards.py").write_text(GUARDS)
    monkeypatch.chdir(own_state)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "guards", raising=False)
    result = CliRunner().invoke(app, ["serve", "--hooks", name])
    assert result.exit_code == 1
    assert name in result.stderr


# -- a record and a store that do not fit together ---------------------------------------------------------------------

ASKED = {
    "session_id": "s", "cwd": "/", "hook_event_name": "PreToolUse", "tool_name": "Bash",
    "tool_input": {"command": "ls"}, "tool_use_id": "t",
}  # fmt: skip


async def one_call(
    folder: Path, before: Callable[[], Awaitable[object]] | None = None
) -> tuple[str | None, int, dict[str, Any], dict[str, Any]]:
    """Return the trouble of a server of this folder at its start, its health, and its answer to a call."""
    async with SqliteStore(folder / "approvals.db") as store:
        host = host_programs(
            Broker(store), store.database, hooks=None, rules=None, record=folder / "record.jsonl",
            socket=folder / "run" / "hooks.sock", asking="inbox", waits=1.0, port=None,
        )  # fmt: skip
        way = httpx2.AsyncHTTPTransport(uds=os.fspath(host.socket))
        async with host.serving() as trouble, httpx2.AsyncClient(transport=way, base_url="http://localhost") as client:
            if before is not None:
                await before()
            health = await client.get("/healthz")
            answered = await client.post("/v1/bridge/claude_code", json=ASKED)
            return trouble, health.status_code, health.json(), answered.json() if answered.content else {}


@pytest.mark.rule("AUD-9")
def test_a_record_that_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a running server cannot record, its health is red and says why, and every call is denied."""
    opened: list[AuditLog] = []
    original = AuditLog.open

    def opening(*arguments: Any, **options: Any) -> AuditLog:
        opened.append(original(*arguments, **options))
        return opened[-1]

    async def close() -> None:
        await opened[0].close()

    monkeypatch.setattr(AuditLog, "open", opening)
    trouble, code, health, answer = asyncio.run(one_call(tmp_path, close))
    assert trouble is None
    assert (code, health) == (503, {"status": "red", "problem": "the record is closed"})
    assert "the record is closed" in answer["hookSpecificOutput"]["permissionDecisionReason"]


@pytest.mark.rule("AUD-8", "CLI-1")
@pytest.mark.fault("F-ST-09")
def test_an_older_copy_of_the_store(tmp_path: Path) -> None:
    """With an older copy of its store the server starts red and denies every call, until an operator accepts it."""
    fine: Any = (None, 200, {"status": "ok"}, {})
    store, record = tmp_path / "approvals.db", tmp_path / "record.jsonl"
    assert asyncio.run(one_call(tmp_path)) == fine
    older = store.read_bytes()
    assert asyncio.run(one_call(tmp_path)) == fine
    store.write_bytes(older)
    trouble, code, health, answer = asyncio.run(one_call(tmp_path))
    assert trouble is not None
    assert "amplifier-hooks audit accept" in trouble
    assert (code, health) == (503, {"status": "red", "problem": trouble})
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "was written beside the store" in answer["hookSpecificOutput"]["permissionDecisionReason"]

    def accept(*options: str) -> Result:
        return CliRunner().invoke(app, ["audit", "accept", os.fspath(record), "--store", os.fspath(store), *options])

    before = record.read_bytes()
    assert accept("--no-input").exit_code == 2
    assert accept().exit_code == 2  # there is no terminal to ask at
    assert record.read_bytes() == before
    accepted = accept("--yes")
    assert (accepted.exit_code, accepted.stdout) == (0, "")
    assert accepted.stderr.splitlines() == [trouble, "Accepted, and on record."]
    assert accept().stderr == "They fit together.\n"
    kinds = [json.loads(line)["kind"] for line in record.read_text().splitlines()]
    assert kinds.count("store.accepted") == kinds.count("operator.accepted") == 1
    assert asyncio.run(one_call(tmp_path)) == fine


@pytest.mark.rule("AUD-8")
@pytest.mark.fault("F-ST-09")
def test_a_record_that_was_cut(tmp_path: Path) -> None:
    """With a record that lost its end the server denies every call; accepted, the record goes on in a new segment."""
    assert asyncio.run(one_call(tmp_path))[1] == 200
    record = tmp_path / "record.jsonl"
    record.write_bytes(b"".join(record.read_bytes().splitlines(keepends=True)[:3]))
    assert asyncio.run(one_call(tmp_path))[1] == 503
    called = ["audit", "accept", os.fspath(record), "--store", os.fspath(tmp_path / "approvals.db"), "--yes"]
    assert CliRunner().invoke(app, called).exit_code == 0
    said = [json.loads(line) for line in (tmp_path / "record.000002.jsonl").read_text().splitlines()]
    assert said[0]["facts"]["left"]["why"] == "cut"
    assert [one["facts"]["record"] for one in said if one["kind"] == "operator.accepted"] == [True]
    assert asyncio.run(one_call(tmp_path))[1] == 200


@pytest.mark.rule("CLI-1")
def test_accepting_what_is_not_there(tmp_path: Path) -> None:
    """Accepting makes no new record and no new store in the place of a missing one."""
    for record, store in (("missing.jsonl", "missing.db"), ("record.jsonl", "missing.db")):
        (tmp_path / "record.jsonl").touch()
        called = ["audit", "accept", os.fspath(tmp_path / record), "--store", os.fspath(tmp_path / store)]
        result = CliRunner().invoke(app, called)
        assert result.exit_code == 1
        assert "missing" in result.stderr
    assert not (tmp_path / "missing.db").exists()
