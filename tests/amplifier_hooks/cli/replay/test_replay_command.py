"""`amplifier-hooks replay`: the decisions of a configuration about calls of the past."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from amplifier_hooks import HookRegistry, SessionCoordinator, library
from amplifier_hooks.cli.app import app
from amplifier_hooks.cli.project.read_project import trust_content
from amplifier_hooks.definitions import load_files
from amplifier_hooks.library.parts.ready_made import ReadyMade
from amplifier_hooks.library.tool_ledger import ToolLedger
from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.storage.state_folder import StateFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typer.testing import Result

pytestmark = pytest.mark.rule("CLI-10")

PROTECTED = "version: 1\nlibrary:\n  protected_paths: {}\n"
REJECTED = "The user doesn't want to proceed with this tool use. The tool use was rejected"
START = datetime(2026, 3, 1, 10, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with a file of hooks as the current folder, and a state folder of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    configure(tmp_path / "shop", PROTECTED)
    yield tmp_path / "shop"
    sys.modules.pop("shop_hooks", None)


def configure(folder: Path, text: str, name: str = "amplifier-hooks.yaml") -> Path:
    """Write a file of hooks."""
    path = folder / name
    path.write_text(text)
    return path


def call(tool: str, *, ends: str = "done", error: bool = False, at: float = 0.0, **given: Any) -> list[dict[str, Any]]:
    """Return the entries of a call and its result, as Claude Code writes them."""
    name = f"t{len(tool)}-{json.dumps(given)}-{at}"
    about = {"sessionId": "s1", "cwd": "/shop", "timestamp": (START + timedelta(seconds=at)).isoformat()}
    use = {"type": "tool_use", "id": name, "name": tool, "input": given}
    result = {"type": "tool_result", "tool_use_id": name, "content": ends, "is_error": error}
    return [{**about, "message": {"content": [part]}} for part in (use, result)]


def transcript(folder: Path, *calls: list[dict[str, Any]], name: str = "claude/projects/shop/s1.jsonl") -> Path:
    """Write a transcript of these calls."""
    path = folder.parent / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(entry)}\n" for entries in calls for entry in entries))
    return path


def run(*arguments: object, source: str = "claude-code") -> Result:
    """Run the command, and return its result."""
    return CliRunner().invoke(app, ["replay", "--from", source, *map(str, arguments)], env={"COLUMNS": "200"})


def answers(*arguments: object, source: str = "claude-code") -> dict[str, int]:
    """Return the numbers of calls by answer, without zeros."""
    told = run(*arguments, "--json", source=source)
    assert told.exit_code == 0, told.output
    [configuration] = json.loads(told.stdout)["configurations"]
    return {answer: count for answer, count in configuration["answers"].items() if count}


def test_the_sums(folder: Path) -> None:
    """The program's own transcripts are read; calls that would be asked about are counted, with hook and reason."""
    transcript(folder, call("Read", file_path="/shop/a.py"), call("Write", file_path="/shop/.env", content="x"))
    told = run()
    assert (told.exit_code, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    assert lines[0] == "2 calls of 1 session in 1 file"
    assert [line.split() for line in lines[3:6]] == [
        ["1", "50.0%", "would", "run", "unasked"],
        ["1", "50.0%", "would", "be", "asked", "about"],
        ["0", "0.0%", "would", "be", "denied"],
    ]
    assert "  protected_paths: asked 1" in lines
    assert any("asked  Write: '/shop/.env' is protected" in line for line in lines)


def test_differences_from_the_transcript(folder: Path) -> None:
    """A call that ran and would be denied, and one that its user rejected and that would run, are listed."""
    configure(folder, "version: 1\nlibrary:\n  protected_paths: {action: deny}\n")
    path = transcript(
        folder,
        call("Read", file_path="/shop/a.py"),
        call("Write", file_path="/shop/.env", content="x"),
        call("Bash", ends=REJECTED, error=True, command="make deploy"),
    )
    told = run(path).stdout
    assert "1 call ran, and would have been denied:\n  s1.jsonl:3  Write  /shop/.env\n      protected_paths: " in told
    assert "1 call rejected by the user would have run unasked:\n  s1.jsonl:5  Bash  make deploy\n" in told


def test_a_rate_limit_counts_by_the_recorded_times(folder: Path) -> None:
    """A limit of calls in a time counts the calls as they came, not as they are replayed."""
    configure(folder, "version: 1\nlibrary:\n  rate_limit: {calls: 2, seconds: 10}\n")
    slow = [call("Read", file_path=f"/shop/{number}", at=number * 6.0) for number in range(6)]
    fast = [call("Read", file_path=f"/shop/{number}", at=number * 1.0) for number in range(6)]
    assert answers(transcript(folder, *slow, name="slow.jsonl")) == {"allowed": 6}
    assert answers(transcript(folder, *fast, name="fast.jsonl")) == {"allowed": 2, "denied": 4}


def test_always(folder: Path) -> None:
    """With --always an answer for good covers the calls of its session, or those of its project for 30 days."""
    configure(
        folder,
        'version: 1\nhooks:\n  - {name: guard, event_type: tool:pre, priority: 10, handler_ref: "shop_hooks:guard"}\n',
    )
    options = "['Allow once', 'Allow always', 'Deny']"
    (folder / "shop_hooks.py").write_text(
        "from amplifier_hooks import HookResult\n"
        f"ASK = HookResult.ask('Read it?', options={options}, approval_key='read', risk='low')\n"
        "def guard(event, data):\n    return ASK\n"
    )
    trust_content(load_files(folder / "amplifier-hooks.yaml"), folder / "amplifier-hooks.yaml")
    days = [*range(3), 40]
    for day in days:
        transcript(folder, *_reads(f"s{day}", at=day * 86_400.0), name=f"days/{day}.jsonl")
        os.utime(folder.parent / f"days/{day}.jsonl", (day, day))
    path = folder.parent / "days"
    assert answers(path) == {"asked": 8}
    assert answers(path, "--always", "session") == {"asked": 4, "covered": 4}
    assert answers(path, "--always", "project") == {"asked": 2, "covered": 6}


def _reads(session: str, at: float) -> list[list[dict[str, Any]]]:
    calls = [call("Read", at=at + number, file_path=f"/shop/{number}") for number in range(2)]
    return [[{**entry, "sessionId": session} for entry in entries] for entries in calls]


EXTERNAL = """version: 1
hooks:
  - {name: guard, event_type: tool:pre, priority: 10, handler_ref: command, config: {argv: [sh, guard.sh]}}
  - {name: far, event_type: tool:pre, priority: 10, handler_ref: http, config: {url: "http://127.0.0.1:9/x"}}
  - {name: mine, event_type: tool:pre, priority: 10, handler_ref: "shop_hooks:guard"}
library:
  tool_ledger: {}
  linter_feedback: {}
"""


def test_nothing_runs_and_nothing_is_imported(folder: Path) -> None:
    """Commands, services, code that is not trusted, and hooks that write take no part, and each is listed."""
    configure(folder, EXTERNAL)
    (folder / "guard.sh").write_text(f"touch {folder}/ran; exit 2\n")
    (folder / "shop_hooks.py").write_text(f"open({str(folder / 'imported')!r}, 'w')\ndef guard(event, data): ...\n")
    told = run(transcript(folder, call("Read", file_path="/shop/a.py")))
    assert told.exit_code == 0
    assert not (folder / "ran").exists()
    assert not (folder / "imported").exists()
    assert not StateFolder().ledger.exists()
    for why in (
        "it runs a program: guard",
        "it sends a request: far",
        "amplifier-hooks validate --trust trusts it: mine",
        "it needs more than the call, or writes, sends or runs something: tool_ledger",
        "it decides nothing before a tool call: linter_feedback",
    ):
        assert why in told.stdout


def test_two_configurations(folder: Path) -> None:
    """With --compare the calls that two files decide about otherwise are listed, with both answers."""
    strict = configure(folder, "version: 1\nlibrary:\n  protected_paths: {action: deny}\n", "strict.yaml")
    path = transcript(folder, call("Read", file_path="/shop/a.py"), call("Write", file_path="/shop/.env", content="x"))
    told = run(path, "--compare", strict).stdout
    assert "1 call differs:\n         1  asked by amplifier-hooks.yaml, denied by strict.yaml\n" in told
    assert "  s1.jsonl:3  Write  /shop/.env\n      amplifier-hooks.yaml: asked, protected_paths: " in told
    first, second = json.loads(run(path, "--compare", strict, "--json").stdout)["configurations"]
    assert [[one["answer"] for one in given["calls"]] for given in (first, second)] == [
        ["allowed", "asked"],
        ["allowed", "denied"],
    ]


def test_rules(folder: Path) -> None:
    """Rules take part as in a session: an allow answers a question, a deny denies."""
    rules = folder / "rules.yaml"
    rules.write_text(
        "version: 1\nrules:\n"
        "- {id: env, action: allow, tool: Write, path: '**/.env', hooks: '*', other_arguments: any}\n".replace(
            "'**/.env'", "/shop/.env"
        )
        + "- {id: no-push, action: deny, tool: Bash, command: git push}\n"
    )
    path = transcript(folder, call("Write", file_path="/shop/.env"), call("Bash", command="git push"))
    assert answers(path, "--rules", rules) == {"allowed": 1, "denied": 1}


@pytest.mark.rule("DSP-11")
def test_report_only_hooks(folder: Path) -> None:
    """A report-only hook stops nothing in a replay either, and its answers are counted."""
    configure(folder, "version: 1\nlibrary:\n  protected_paths: {report_only: true}\n")
    told = run(transcript(folder, call("Write", file_path="/shop/.env", content="x")))
    assert "protected_paths would have answered ask_user 1 time, but is report-only: it stops nothing" in told.stdout
    assert "protected_paths is report-only: it stops nothing" in told.stdout
    assert answers(folder.parent / "claude") == {"allowed": 1}


def test_lines_that_cannot_be_read(folder: Path) -> None:
    """A line that cannot be read is named with its file and number, and the others are replayed."""
    path = transcript(folder, call("Read", file_path="/shop/a.py"))
    path.write_text("{broken\n" + path.read_text())
    told = run(path)
    assert told.exit_code == 0
    assert "1 line could not be read:\n  s1.jsonl:1  this is no JSON that all readers understand alike" in told.stdout
    assert json.loads(run(path, "--json").stdout)["read"]["problems"] == [
        {"file": str(path), "line": 1, "problem": "this is no JSON that all readers understand alike"}
    ]


def test_a_call_that_is_denied_after_its_approval(folder: Path) -> None:
    """A call that a person would be asked about, and that a gate denies when it looks again, counts as denied."""
    (folder / "changeable.py").write_text(
        "from amplifier_hooks import HookResult\n\nanswers = [HookResult.ask('sure?')]\n\n\n"
        "async def gate(event, data):\n    return answers.pop() if answers else HookResult.deny('no more')\n"
    )
    configure(
        folder,
        "version: 1\nhooks:\n"
        "  - {name: gate, event_type: 'tool:pre', handler_ref: 'changeable:gate', fail_mode: closed}\n",
    )
    assert CliRunner().invoke(app, ["validate", "--trust"]).exit_code == 0
    sys.modules.pop("changeable", None)
    assert answers(transcript(folder, call("Read", file_path="/shop/a.py"))) == {"denied": 1}


@pytest.mark.rule("CLI-2")
def test_lists_cover_a_secret_that_is_cut_off(folder: Path) -> None:
    """A list shows no part of a secret that goes on past the text it shows, and shortens the names of tools."""
    token, long = "ghp_" + "a1B2c3D4e5" * 4, "eyJhbGciOiJIUzI1NiJ9." + "A1b2" * 180 + "." + "c3D4" * 10
    configure(folder, "version: 1\nlibrary:\n  protected_paths: {action: deny}\n")
    path = transcript(
        folder,
        call("Bash", ends=REJECTED, error=True, command=f"x {long} {token}"),
        call("T" * 9_000, ends=REJECTED, error=True, command="y"),
    )
    for told in (run(path).stdout, run(path, "--json").stdout):
        assert "ghp_" not in told
        assert "T" * 200 not in told
        assert "x (secret)…" in told or "x (secret)\\u2026" in told


async def write_record(folder: Path, *, ledger: bool) -> Path:
    """Write a record of one call, with a ledger beside it if wanted."""
    registry = HookRegistry()
    async with ToolLedger() as kept:
        if ledger:
            kept.register(registry)
        async with (
            AuditLog.open(folder / "record.jsonl") as log,
            SessionCoordinator(registry, session_id="s1", audit=log, cwd="/shop") as session,
        ):
            await session.call_tool("Write", {"file_path": ".env", "content": "x"}, lambda given: "done", call_id="c1")
    return folder / "record.jsonl"


@pytest.mark.rule("LIB-2")
def test_a_record_with_a_ledger(folder: Path) -> None:
    """The calls of a record have their arguments from the ledger."""
    record = asyncio.run(write_record(folder, ledger=True))
    assert answers(record, source="record") == {"asked": 1}


def test_a_record_without_arguments_says_so(folder: Path) -> None:
    """A record whose calls have no arguments anywhere says so, and is not replayed."""
    told = run(asyncio.run(write_record(folder, ledger=False)), source="record")
    assert told.exit_code == 1
    assert "not replayed: 1 call whose arguments are not kept" in told.stdout
    assert "has no call of a tool with its input" in told.stderr


@pytest.mark.rule("CLI-2")
def test_lists_cover_secrets_and_escape(folder: Path) -> None:
    """A list shows the beginning of a call, without secrets, and on one line."""
    token = "ghp_" + "a1B2c3D4e5" * 4
    configure(folder, "version: 1\nlibrary:\n  protected_paths: {action: deny}\n")
    path = transcript(folder, call("Bash", command=f"echo {token} > .env\n\x1b[2J rm x"))
    for told in (run(path).stdout, run(path, "--json").stdout):
        assert token not in told
        assert "\x1b" not in told
        assert "echo (secret) > .env" in told


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere"], 2, "nowhere is not there"),
        (["--hooks", "nowhere.yaml"], 1, "nowhere.yaml"),
        (["--hooks", "broken.yaml"], 1, "broken.yaml:2"),
        (["--rules", "broken.yaml"], 1, "broken.yaml"),
        (["--hooks", "unknown.yaml"], 1, "unknown.yaml:3: no installed package has a hook called 'protected_path'"),
        (["--hooks", "settings.yaml"], 1, "settings.yaml:3"),
    ],
)
@pytest.mark.rule("CLI-3")
def test_wrong_calls(arguments: list[str], code: int, said: str, folder: Path) -> None:
    """A path that is not there is a wrong call, and a file that cannot be used a failure that names it."""
    transcript(folder, call("Read", file_path="/shop/a.py"))
    configure(folder, "version: 1\nhooks: 3\n", "broken.yaml")
    configure(folder, "version: 1\nlibrary:\n  protected_path: {}\n", "unknown.yaml")
    configure(folder, "version: 1\nlibrary:\n  protected_paths: {action: shrug}\n", "settings.yaml")
    told = run(*arguments)
    assert told.exit_code == code
    assert said in told.stderr
    assert run(source="other").exit_code == 2


def test_the_example_in_the_documents(folder: Path) -> None:
    """The example on the page is what the command prints."""
    root = Path(__file__).parents[4]
    page = (root / "docs" / "programs.md").read_text()
    block = page.partition("<!-- replay: recorded, a test compares it -->\n```console\n")[2].partition("```")[0]
    example = root / "examples" / "replay"
    told = run(example / "session.jsonl", "--hooks", example / "amplifier-hooks.yaml")
    assert block == f"$ amplifier-hooks replay --from claude-code session.jsonl\n{told.stdout}"
    assert run(example / "session.jsonl", "--hooks", example / "strict.yaml").exit_code == 0


@pytest.mark.rule("LIB-8")
def test_every_hook_that_decides_about_calls_replays() -> None:
    """Each ready-made hook that answers before a tool call is replayed, except for those that write."""
    ready_made = [getattr(library, name) for name in library.__all__]
    kinds = [kind for kind in ready_made if isinstance(kind, type) and issubclass(kind, ReadyMade)]
    deciding = {
        kind.name: kind.replays
        for kind in kinds
        if any(point.event == "tool:pre" and point.intent in ("gate", "on") for point in kind().points())
    }
    assert {name for name, replays in deciding.items() if not replays} == {"audit_log", "tool_ledger"}
    assert {kind.name for kind in kinds if kind.replays} <= deciding.keys()
