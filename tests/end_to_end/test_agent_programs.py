"""Real agent programs with a scripted model: their tool calls pass through us, with one line in their settings."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from attrs import define

from amplifier_hooks import HookRegistry, HookResult, SelfProtection
from amplifier_hooks import bridge as bridge_module
from amplifier_hooks.definitions.trust import TrustStore
from amplifier_hooks.programs.dialects import DIALECTS
from amplifier_hooks.programs.import_settings import read_settings
from amplifier_hooks.programs.install_hook import Bridge, with_bridge
from amplifier_hooks.programs.program_session import ProgramSessions
from amplifier_hooks.programs.transcripts import SOURCES
from amplifier_hooks.record.line import VerifierKey
from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.record.report import LogVerdict
from amplifier_hooks.record.verify import verify
from amplifier_hooks.server.edge.listen import listening
from amplifier_hooks.server.program_api import create_app
from approval_backends.backend import DeferredApprovals
from approval_backends.lifecycle import Decider
from approval_backends.stores.sqlite import SqliteStore
from tests.conftest import require
from tests.end_to_end.agent_programs import CLAUDE, PROGRAMS, Program, plugin_commands, program_path
from tests.scripted_models import Say, ScriptedModel, Use, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

pytestmark = pytest.mark.agents

TENANT: Final = Decider(name="ada", channel="test")


@pytest.fixture(params=list(PROGRAMS.values()), ids=list(PROGRAMS))
def program(request: pytest.FixtureRequest) -> Program:
    """Yield each program, one after the other."""
    chosen: Program = request.param
    if chosen.dialect == "claude_code" and not CLAUDE.exists():
        require("agents", "the claude-agent-sdk wheel here has no program in it")
    if chosen.dialect != "claude_code":
        program_path(chosen.dialect)
    return chosen


@define
class World:
    """A home, a project, a server with a record, and the inbox."""

    folder: Path
    registry: HookRegistry
    approvals: DeferredApprovals
    store: Path
    record: Path
    key: str

    @property
    def project(self) -> Path:
        """The folder in which the agent works."""
        return self.folder / "project"

    def bridge(self, program: Program, *, portable: bool = False) -> dict[str, Any]:
        """Line in a program's settings, for every event it has."""
        mine = Bridge(python=sys.executable, file=bridge_module.__file__, socket=self.socket, waits=60)
        return with_bridge({}, DIALECTS[program.dialect], Bridge(waits=60) if portable else mine)

    @property
    def socket(self) -> str:
        """Path of the server's socket."""
        return os.fspath(self.folder / "hooks.sock")

    async def run(
        self,
        program: Program,
        settings: Mapping[str, Any],
        model: ScriptedModel,
        *,
        first: Sequence[Sequence[str]] = (),
        path: str | None = None,
        **more: str,
    ) -> str:
        """Run the program to its end, after the commands `first`, with more variables; return what it printed."""
        home = self.folder / "home"
        home.mkdir()
        self.project.mkdir()
        argv, env = program.settled(home, self.project, settings, model.url)
        path = path or f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        basic = {"PATH": path, "HOME": os.fspath(home), "TERM": "dumb", "NO_COLOR": "1"}
        basic["AMPLIFIER_HOOKS_SOCKET"] = self.socket
        for command in first:
            await self._start(command, {**basic, **env, **more})
        return await self._start(argv, {**basic, **env, **more})

    async def _start(self, argv: Sequence[str], environment: Mapping[str, str]) -> str:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=self.project,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await process.communicate(b"y\n" if "extensions" in argv else b"")  # Gemini CLI asks for trust
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, output.decode()[-2000:]
        return output.decode()


def public_half(folder: Path) -> str:
    """Return the public half of the key that signs the record here."""
    return next(folder.glob("*.pub")).read_text()


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    """Yield a world with a server that answers; close its record in the end."""
    registry = HookRegistry()
    store = folder / "approvals.db"
    log = AuditLog.open(folder / "record.jsonl")
    async with DeferredApprovals(SqliteStore(store)) as approvals:
        here = World(folder, registry, approvals, store, folder / "record.jsonl", public_half(folder))
        options = {"approvals": approvals, "audit": log, "self_protection": SelfProtection()}
        pool = ProgramSessions(registry, waits=60.0, options=options)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.fspath(folder / "hooks.sock"))
        listener.listen()
        try:
            async with listening(create_app(pool), listener):
                yield here
        finally:
            await pool.close()
            await log.close()
            listener.close()


async def decide_elsewhere(here: World, verb: str, *arguments: str) -> None:
    """Decide the pending questions in another process, as a person at another terminal does."""
    with here.approvals.broker.watch() as watch:
        while not (waiting := await here.approvals.broker.pending(TENANT)):
            await watch.wait(1.0)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "amplifier_hooks", "approvals", verb, waiting[0].id, "--store", os.fspath(here.store),
        *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, errors = await process.communicate()
    assert process.returncode == 0, (output + errors).decode()


@pytest.mark.rule("DIA-2", "DIA-5")
@pytest.mark.parametrize("portable", [False, True], ids=["personal", "shared"])
async def test_its_calls_are_asked_denied_and_answered(program: Program, portable: bool, tmp_path: Path) -> None:
    """A call approved in the inbox runs, a denied one does not and the model reads why, and the record verifies."""
    async with world(tmp_path) as here:

        @here.registry.gate("tool:pre", name="guard", priority=10)
        async def guard(event: str, data: Any) -> HookResult | None:
            line = json.dumps(data["tool_input"])
            if "production" in line:
                return HookResult.ask("Write to production?")
            return HookResult.deny("that is never done here") if "forbidden" in line else None

        @here.registry.on("tool:post", name="lint")
        async def lint(event: str, data: Any) -> HookResult:
            return HookResult.inject("E501 in line 42")

        script: list[Use | Say] = [
            program.command("echo hello > production.txt"),
            program.command("echo hello > forbidden.txt"),
            Say("finished"),
        ]
        async with serving(*script) as model:
            person = asyncio.create_task(decide_elsewhere(here, "allow", "--yes"))
            await here.run(program, here.bridge(program, portable=portable), model)
            await person
        assert (here.project / "production.txt").read_text() == "hello\n"
        assert not (here.project / "forbidden.txt").exists()
        after_first, after_second = json.dumps(model.requests[1]), json.dumps(model.requests[2])
        assert "E501 in line 42" in after_first
        assert "that is never done here" in after_second
    report = verify({1: here.record}, keys=[VerifierKey.parse(here.key)])
    assert report.verdict is LogVerdict.UNBROKEN, report
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "record.jsonl").read_text().splitlines()]
    assert {"approval.decided", "tool.done", "tool.denied"} <= set(kinds)


@pytest.mark.rule("DIA-2")
async def test_a_refusal_in_the_inbox_is_read_by_the_model(program: Program, tmp_path: Path) -> None:
    """A call that a person refuses does not run, and the model reads that a person refused it."""
    async with world(tmp_path) as here:
        here.registry.gate("tool:pre", name="guard")(lambda event, data: HookResult.ask("Write to production?"))
        async with serving(program.command("echo hello > production.txt"), Say("finished")) as model:
            person = asyncio.create_task(decide_elsewhere(here, "deny", "--message", "not before the release"))
            await here.run(program, here.bridge(program), model)
            await person
        assert not (here.project / "production.txt").exists()
        assert "Write to production?" in json.dumps(model.requests[1])


@pytest.mark.rule("SLF-1", "SLF-3")
async def test_it_does_not_take_off_its_guard(program: Program, tmp_path: Path) -> None:
    """A call that would switch our hook off is denied, and a script of the program starts no command that decides."""
    async with world(tmp_path) as here:
        settings = DIALECTS[program.dialect].settings[-1]
        decide = f"{sys.executable} -m amplifier_hooks resume --yes --store {here.store} > said.txt 2>&1; true\n"
        script: list[Use | Say] = [
            program.command(f"echo '{{}}' > {settings}"),
            program.command("sh ../decide.sh"),
            Say("finished"),
        ]
        (tmp_path / "decide.sh").write_text(decide)
        async with serving(*script) as model:
            await here.run(program, here.bridge(program), model)
        assert "self-protection" in json.dumps(model.requests[1])
        assert "decides in a person's place" in (here.project / "said.txt").read_text()


@pytest.mark.rule("DIA-2")
async def test_without_a_server_nothing_runs(program: Program, tmp_path: Path) -> None:
    """When the server is away, a tool call does not run, and the model reads how to start it."""
    async with world(tmp_path) as here:
        settings = here.bridge(program)
        tool_events = {name: groups for name, groups in settings["hooks"].items() if "Tool" in name}
    here.folder.joinpath("hooks.sock").unlink(missing_ok=True)
    async with serving(program.command("echo hello > production.txt"), Say("finished")) as model:
        await here.run(program, {"hooks": tool_events}, model)
    assert not (here.project / "production.txt").exists()
    assert "amplifier-hooks serve" in json.dumps(model.requests[1])


@asynccontextmanager
async def serve(environment: Mapping[str, str], folder: Path, *arguments: str) -> AsyncIterator[None]:
    """Run `amplifier-hooks serve` for the block, from when it answers programs that post."""
    argv = [sys.executable, "-m", "amplifier_hooks", "serve", *arguments]
    process = await asyncio.create_subprocess_exec(*argv, cwd=folder, env=environment, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        told = b""
        while b"Ctrl-C stops it" not in told:
            line = await process.stderr.readline()
            assert line, told.decode()
            told += line
        yield
    finally:
        process.terminate()
        await process.communicate()


@pytest.mark.rule("DIA-2", "DIA-5", "SLF-3")
async def test_a_stopped_server_blocks_a_program_that_posts(tmp_path: Path) -> None:
    """Claude Code posts its calls as installed; without the server it blocks calls and prompts, and both say why."""
    claude_code = PROGRAMS["claude_code"]
    if not CLAUDE.exists():
        require("agents", "the claude-agent-sdk wheel here has no program in it")
    for name in ("bin", "installed", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "claude").symlink_to(CLAUDE)
    (tmp_path / "guards.py").write_text(
        "from amplifier_hooks import HookRegistry, HookResult\n"
        "registry = HookRegistry()\n"
        "@registry.gate('tool:pre', name='guard')\n"
        "async def guard(event, data):\n"
        "    return HookResult.deny('that is never done') if 'forbidden' in str(data['tool_input']) else None\n"
    )
    environment = {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": os.fspath(tmp_path / "home"),
        "AMPLIFIER_HOOKS_SOCKET": os.fspath(tmp_path / "hooks.sock"),
    }
    install = [sys.executable, "-m", "amplifier_hooks", "install", "claude-code", "--yes"]
    installing = await asyncio.create_subprocess_exec(*install, cwd=tmp_path / "installed", env=environment)
    assert await installing.wait() == 0
    settings = json.loads((tmp_path / "installed" / ".claude" / "settings.local.json").read_text())
    assert settings["hooks"]["PreToolUse"][0]["hooks"][0]["type"] == "http"
    lines = ("echo hello > made.txt", "echo hello > forbidden.txt", "sh ../decide.sh")
    calls = [claude_code.command(line) for line in lines]

    async def run(name: str, settings: Mapping[str, Any]) -> tuple[str, ScriptedModel, Path]:
        (tmp_path / name).mkdir()
        decide = f"{sys.executable} -m amplifier_hooks resume --yes > said.txt 2>&1; true\n"
        (tmp_path / name / "decide.sh").write_text(decide)
        here = World(tmp_path / name, HookRegistry(), None, tmp_path, tmp_path, "")  # type: ignore[arg-type]  # no server
        async with serving(*calls, Say("finished")) as model:
            said = await here.run(
                claude_code, settings, model, AMPLIFIER_HOOKS_SOCKET=environment["AMPLIFIER_HOOKS_SOCKET"]
            )
        return said, model, here.project

    async with serve(environment, tmp_path, "--programs", "--hooks", "guards:registry"):
        _, model, project = await run("served", settings)
    assert (project / "made.txt").read_text() == "hello\n"
    assert not (project / "forbidden.txt").exists()
    assert "that is never done" in json.dumps(model.requests[2])
    assert "decides in a person's place" in (project / "said.txt").read_text()

    tools = {name: groups for name, groups in settings["hooks"].items() if "Tool" in name}
    _, model, project = await run("calls", {"hooks": tools})
    assert not (project / "made.txt").exists()
    assert "start-it-with:amplifier-hooks+serve+--programs" in json.dumps(model.requests[1])

    said, model, _ = await run("prompts", settings)
    assert model.requests == []
    assert "Start it with: amplifier-hooks serve --programs" in said


@pytest.mark.rule("DIA-12")
async def test_its_plugin_asks(program: Program, tmp_path: Path) -> None:
    """With our plugin, which the program installed by itself, a call is asked about and denied as with settings."""
    async with world(tmp_path) as here:
        here.registry.gate("tool:pre", name="guard")(
            lambda event, data: HookResult.deny("never") if "forbidden" in json.dumps(data["tool_input"]) else None
        )
        calls = (program.command("echo hello > fine.txt"), program.command("echo hello > forbidden.txt"))
        async with serving(*calls, Say("finished")) as model:
            await here.run(program, {}, model, first=plugin_commands(program.dialect))
        assert (here.project / "fine.txt").exists()
        assert not (here.project / "forbidden.txt").exists()


@pytest.mark.rule("DIA-12")
async def test_its_plugin_without_the_command(program: Program, tmp_path: Path) -> None:
    """On a machine without amplifier-hooks the plugin refuses every call, and says what to install."""
    folder = tmp_path / "bin"
    folder.mkdir()
    if node := shutil.which("node"):
        (folder / "node").symlink_to(node)
    async with world(tmp_path) as here, serving(program.command("echo hello > a.txt"), Say("finished")) as model:
        path = f"{folder}{os.pathsep}{os.defpath}"
        assert shutil.which("amplifier-hooks", path=path) is None
        said = await here.run(program, {}, model, first=plugin_commands(program.dialect), path=path)
        assert not (here.project / "a.txt").exists()
        # `codex exec` prints that a hook blocked the prompt, and not why.
        expected = "UserPromptSubmit Blocked" if program.dialect == "codex" else "uv tool install"
        assert expected in said + json.dumps(model.requests)


FOLDERS: Final = {
    "claude_code": ("claude-code", ".claude/projects"),
    "codex": ("codex", ".codex/sessions"),
    "gemini": ("gemini", ".gemini/tmp"),
}
"""For each program the source of its transcripts, and their folder in its home."""


@pytest.mark.rule("CLI-10")
async def test_its_transcript_has_what_its_hooks_were_asked(program: Program, tmp_path: Path) -> None:
    """The calls in a program's transcript have the tools, inputs and folder of its questions, and their ends."""
    asked: list[tuple[str, Any, str]] = []
    async with world(tmp_path) as here:

        @here.registry.gate("tool:pre", name="guard")
        async def guard(event: str, data: Any) -> HookResult | None:
            asked.append((data["tool_name"], data["tool_input"], data["cwd"]))
            return HookResult.deny("never") if "forbidden" in json.dumps(data["tool_input"]) else None

        calls = (program.command("echo hello"), program.command("echo > forbidden.txt"))
        async with serving(*calls, Say("finished")) as model:
            await here.run(program, here.bridge(program), model)
    name, folder = FOLDERS[program.dialect]
    source = SOURCES[name]
    [transcript] = [source.read(file) for file in source.files(tmp_path / "home" / folder)]
    assert [(call.tool, call.input, call.cwd) for call in transcript.calls] == asked
    assert [call.happened for call in transcript.calls] == ["ran", "denied"]
    assert transcript.problems == []


GUARD: Final = """\
import json, sys
question = json.load(sys.stdin)
line = json.dumps(question["tool_input"])
if "deny-by-exit" in line:
    print("no, by exit", file=sys.stderr)
    sys.exit(2)
if "deny-by-json" in line:
    said = {"permissionDecision": "deny", "permissionDecisionReason": "no, by json"}
    print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", **said}}))
if "crash" in line:
    raise RuntimeError("broken")
if "rewrite" in line:
    changed = {**question["tool_input"], "command": "echo rewritten > result.txt"}
    said = {"permissionDecision": "allow", "updatedInput": changed}
    print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", **said}}))
"""

CASES: Final = ["deny-by-exit", "deny-by-json", "crash", "rewrite", "nothing"]


@pytest.mark.rule("DIA-1")
@pytest.mark.parametrize("case", CASES)
async def test_the_same_script_has_the_same_outcome_there_and_here(case: str, tmp_path: Path) -> None:
    """Settings with a command hook have one outcome in the real Claude Code and here."""
    guard = tmp_path / "guard.py"
    guard.write_text(GUARD)
    hook = {"type": "command", "command": f"{sys.executable} {guard}", "timeout": 30}
    settings = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [hook]}]}}
    call = PROGRAMS["claude_code"].command(f"echo {case} > result.txt")

    there = tmp_path / "there"
    there.mkdir()
    async with world(there) as elsewhere, serving(call, Say("finished")) as model:
        await elsewhere.run(PROGRAMS["claude_code"], settings, model)
        result = elsewhere.project / "result.txt"
        ran_there = result.read_text() if result.exists() else None
        read_there = json.dumps(model.requests[1])

    path = tmp_path / "settings.json"
    path.write_text(json.dumps(settings))
    imported = read_settings(path, DIALECTS["claude_code"], project=tmp_path)
    trust = TrustStore(tmp_path / "state" / "trust.json")
    trust.trust("settings", [one.files for one in imported.hooks])
    registry = HookRegistry()
    imported.register(registry, trust)
    outcome = await registry.emit(
        "tool:pre", {"session_id": "s", "tool_name": "Bash", "tool_call_id": "c", "tool_input": dict(call.input)}
    )
    ran_here = None
    if not outcome.denied:
        process = await asyncio.create_subprocess_shell(outcome.data["tool_input"]["command"], cwd=tmp_path)
        await process.wait()
        ran_here = (tmp_path / "result.txt").read_text()
    assert ran_here == ran_there
    assert (ran_here is None) is case.startswith("deny")
    if outcome.denied:
        assert (outcome.reason or "") in read_there
    shutil.rmtree(there, ignore_errors=True)
