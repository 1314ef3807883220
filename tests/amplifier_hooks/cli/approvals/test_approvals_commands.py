"""The command that lists and answers requests, over the store of another process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pexpect
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from amplifier_hooks import AuditLog, HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.cli.app import app
from amplifier_hooks.cli.common.terminal_io import user_name
from amplifier_hooks.impacts import Impact
from amplifier_hooks.ports import Assessment, KeptResult, Question
from approval_backends.backend import DeferredApprovals
from approval_backends.broker import Broker
from approval_backends.lifecycle import Decider, RequestRecord
from approval_backends.stores.sqlite import SqliteStore
from approval_backends.testing import ALLOW, ALWAYS, DENY, a_request
from tests.stores import FILES, address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from typer.testing import Result

WORKER = Path(__file__).parents[3] / "approval_backends" / "stores" / "worker.py"
HOSTILE = "a\x1b[2J\x07\x9b\u202e\u200b\r\nb"
RAW = [piece.encode() for piece in ("\x1b", "\x07", "\x9b", "\u202e", "\u200b", "\r")]
SOON = 60


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with two requests in it, which the command finds by the environment."""
    path = tmp_path / "approvals.db"
    monkeypatch.setenv("AMPLIFIER_HOOKS_STORE", str(path))
    asked(path, id="1111aaaa0000")
    asked(path, 2, id="2222bbbb0000", session="session-2")
    return path


HERE = replace(ALWAYS, label="Allow always in this session", session_only=True)
PROJECT = replace(ALWAYS, id="project", label="Allow always in this project")


def asked(path: Path, number: int = 1, **changes: Any) -> None:
    """Put a request into a store."""
    now = datetime.now(UTC)
    request = replace(a_request(number, **changes), created=now, expires=now + timedelta(seconds=300))
    at(path, lambda broker: broker.submit(request))


def at(path: Path, work: Callable[[Broker], Awaitable[Any]]) -> Any:
    """Do something with a store."""

    async def done() -> Any:
        async with Broker(SqliteStore(path)) as broker:
            return await work(broker)

    return asyncio.run(done())


def record(path: Path, request: str) -> RequestRecord:
    """A request as the store has it."""
    found: RequestRecord = at(path, lambda broker: broker.store.get(request))
    return found


def run(*arguments: str, typed: str | None = None) -> Result:
    """Run the command here, with no terminal."""
    return CliRunner().invoke(app, ["approvals", *arguments], input=typed)


def facts(*arguments: str) -> Any:
    """Return the JSON that the command prints; it prints nothing else."""
    told = run(*arguments, "--json")
    assert (told.exit_code, told.stderr) == (0, "")
    assert told.stdout.isascii()
    return json.loads(told.stdout)


# -- looking -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("BCK-5", "CLI-1", "CLI-2")
def test_list(store: Path) -> None:
    """The list has the waiting requests, oldest first: tool, arguments, risk, agent, time left, and digest."""
    told = run("list")
    assert (told.exit_code, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    assert lines[0] == "1111aaaa  Write  content=pass, file_path=src/1.py"
    digest = record(store, "1111aaaa0000").digest[:12]
    assert re.fullmatch(rf" {{10}}coder in session session-1 · [45]:\d\d left, then denied · digest {digest}", lines[1])
    assert lines[2:4] == [" " * 10 + "guard: Write it?", " " * 10 + "medium risk"]
    assert [line.split()[0] for line in lines[::4]] == ["1111aaaa", "2222bbbb"]
    assert [one["id"] for one in facts("list")] == ["1111aaaa0000", "2222bbbb0000"]
    assert [one["id"] for one in facts("list", "--session", "session-2")] == ["2222bbbb0000"]
    assert facts("list", "--tenant", "other") == []
    quiet = run("list", "--tenant", "other")
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (0, "", "Nothing waits for an answer.\n")


@pytest.mark.rule("APR-13", "CLI-2")
@pytest.mark.fault("F-APR-25")
def test_why_the_risk_is_high(store: Path) -> None:
    """The list, a whole request and JSON have every reason for the risk that counts, with its source."""
    assessments = (
        Assessment(by="egress", risk="high", reason="a new host\nand a secret"),
        Assessment(by="lint", risk="low", reason="only text"),
    )
    asked(store, id="9999", risk="high", assessments=assessments)
    assert run("list").stdout.splitlines()[-1] == r"      high risk, says egress: a new host\u{0A}and a secret"
    lines = run("show", "9999").stdout.splitlines()
    place = lines.index("High risk, says egress:")
    assert lines[place + 1 : place + 3] == ["    | a new host", "    | and a secret"]
    first = {"by": "egress", "risk": "high", "reason": "a new host\nand a secret"}
    assert facts("show", "9999")["request"]["assessments"][0] == first


@pytest.mark.rule("BCK-10", "CLI-2")
def test_impact_comes_first(store: Path) -> None:
    """A list shows the worst impact of a request, and its card every impact before the action; a place is escaped."""
    hostile = "/far\n\x1b[2Jaway"
    asked(store, id="9999", impacts=(Impact("reads", "a.py"), Impact("deletes_outside", hostile)))
    worst = r"deletes /far\u{0A}\u{1B}[2Jaway, outside the project"
    assert run("list").stdout.splitlines()[-4] == f"      it {worst} (and 1 more)"
    first = [f"It {worst}.", "It reads a.py.", "Tool Write, with 2 arguments:"]
    assert run("show", "9999").stdout.splitlines()[1:4] == first
    assert run("allow", "9999", typed="n\n").stderr.splitlines()[:3] == first


@pytest.mark.rule("CLI-2")
def test_short_ids(store: Path) -> None:
    """A list shows enough of an id to tell it apart, and any unique beginning of four characters finds it."""
    asked(store, 3, id="1111aaaa9999")
    assert [line.split()[0] for line in run("list").stdout.splitlines()[::4]] == ["1111aaaa0", "2222bbbb", "1111aaaa9"]
    assert facts("show", "2222")["id"] == "2222bbbb0000"
    for given, said in [
        ("1111", "2 requests begin with '1111': 1111aaaa0000, 1111aaaa9999; write more of it.\n"),
        ("222", "'222' is too short; write 4 characters of the id or more.\n"),
        ("2222bbbb0001", "There is no request '2222bbbb0001'. Did you mean '2222bbbb0000'?\n"),
        (
            "nothing-like-it",
            "There is no request 'nothing-like-it'. amplifier-hooks approvals list --all names those there are.\n",
        ),
    ]:
        for command in ("show", "allow", "deny"):
            told = run(command, given)
            assert (told.exit_code, told.stdout, told.stderr) == (1, "", said)
    told = run("show", "2222", "--tenant", "other")
    assert (told.exit_code, told.stderr) == (
        1,
        "There is no request '2222'. amplifier-hooks approvals list --all names those there are.\n",
    )


@pytest.mark.rule("BCK-5", "CLI-2")
def test_show(store: Path) -> None:
    """The command shows a whole request, with every line of every argument, and its history."""
    lines = "\n".join(f"line {number}" for number in range(200))
    asked(store, id="3333", arguments={"file_path": "a.py", "content": lines, "options": {"mode": 1}}, risk="high")
    told = run("show", "3333")
    assert told.exit_code == 0
    shown = told.stdout.splitlines()
    assert shown[1:5] == ["Tool Write, with 3 arguments:", "  file_path:", "    | a.py", "  content, 200 lines:"]
    assert shown[5:205] == [f"    | line {number}" for number in range(200)]
    assert shown[205:209] == ["  options (JSON), 3 lines:", "    | {", '    |   "mode": 1', "    | }"]
    assert f"  digest {record(store, '3333').digest}" in shown
    assert "Risk high. Without an answer it is denied." in shown
    answers = shown.index("Answers: Allow, Allow always, Deny, Deny always")
    assert shown[answers + 1 : answers + 3] == [
        'An "always" covers:',
        "    | Any Write by coder in /project that raises the question “Write it?”.",
    ]
    assert shown[answers + 4].startswith("  It ends: With this session")
    assert re.fullmatch(r"  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  submitted", shown[-1])
    assert [event["kind"] for event in facts("show", "3333")["events"]] == ["submitted"]


@pytest.mark.rule("APR-6")
def test_a_row_that_changed_in_the_store(store: Path) -> None:
    """A request whose arguments no longer have its digest is not shown and not allowed; it can be denied."""
    asked(store, id="3333", arguments={"command": "rm -rf /"})
    with closing(sqlite3.connect(store)) as database, database:
        database.execute("UPDATE approval_request SET request = replace(request, 'rm -rf /', 'ls')")
    for given in (("show",), ("allow",), ("allow", "--yes")):
        told = run(*given, "3333")
        assert (told.exit_code, "    | ls" in told.output) == (1, False)
        assert "the arguments of request '3333' do not have its digest" in told.stderr
    assert record(store, "3333").status == "pending"
    assert run("deny", "3333").exit_code == 0


@pytest.mark.rule("CLI-2")
@pytest.mark.fault("F-CLI-06", "F-CLI-07")
def test_hostile_text(store: Path) -> None:
    """No foreign text reaches the terminal unescaped, and none of it begins a line."""
    asked(
        store,
        id="4444",
        tool=HOSTILE,
        agent=HOSTILE,
        cwd=HOSTILE,
        arguments={HOSTILE: HOSTILE, "list": [HOSTILE], "spaces": "x" + " " * 5_000 + "y"},
        questions=(Question(hook=HOSTILE, prompt=HOSTILE),),
        assessments=(Assessment(by=HOSTILE, risk="medium", reason=HOSTILE),),
        options=(replace(ALWAYS, label=HOSTILE), replace(ALLOW, label="Go"), DENY),
    )
    outputs = [run("list"), run("show", "4444"), run("list", "--json"), run("show", "4444", "--json")]
    outputs += [run("allow", "4444", "--option", HOSTILE, "--yes"), run("grants"), run("grants", "--json")]
    outputs += [run("list", "--all"), run("show", HOSTILE), run("deny", "4444"), run("revoke", "4444")]
    for told in outputs:
        assert not any(piece in told.stdout_bytes + told.stderr_bytes for piece in RAW)
        assert not any(line.startswith("b") for line in told.stdout.splitlines())
    assert "⟨5,000 spaces⟩" in outputs[1].stdout


@pytest.mark.rule("CLI-2", "BCK-1")
@pytest.mark.fault("F-CLI-07")
def test_look_twice(store: Path) -> None:
    """A word that mixes scripts is named in the list, and in everything that is shown to decide by."""
    asked(store, id="5555", arguments={"command": "c\u0430t notes.txt"})
    named = "look twice: Letters that look alike, c\u0430t. One word of Latin and Cyrillic letters."
    for told in (run("list"), run("show", "5555"), run("allow", "5555")):
        assert [line.strip() for line in told.output.splitlines() if "look twice" in line] == [named]


@pytest.mark.rule("CLI-2")
@pytest.mark.fault("F-CLI-13")
def test_secrets(store: Path) -> None:
    """A list covers secrets, with their length; the texts to decide by are whole."""
    asked(store, id="6666", arguments={"header": "Bearer 0123456789abcdef"})
    asked(store, id="7777", arguments={"api_key": "fedcba9876543210"})
    listed = run("list").stdout
    assert "6666  Write  header=Bearer ⟨secret, 16 characters⟩\n" in listed
    assert "7777  Write  api_key=⟨secret, 16 characters⟩\n" in listed
    assert "    | Bearer 0123456789abcdef\n" in run("show", "6666").stdout
    assert "    | fedcba9876543210\n" in run("show", "7777").stdout


# -- answering ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("BCK-5", "CLI-2", "APR-7")
def test_allow(store: Path) -> None:
    """An allow is for this once unless another answer is named, and on record with the user's name."""
    told = run("allow", "1111", "--yes")
    after = record(store, "1111aaaa0000")
    digest = after.digest[:12]
    assert (told.exit_code, told.stderr) == (0, "")
    assert told.stdout == f"Allow: Write for coder, request 1111aaaa0000, digest {digest}\n"
    assert after.decision is not None
    assert (after.status, after.decision.option) == ("approved", ALLOW.id)
    assert (after.decision.by, after.decision.channel) == (user_name(), "cli")
    assert facts("allow", "2222", "--yes", "--option", "allow ALWAYS")["decision"]["option"] == ALWAYS.id
    again = run("allow", "1111", "--yes")
    said = f"Request 1111aaaa0000 does not wait any more: approved by {user_name()} (cli).\n"
    assert (again.exit_code, again.stdout, again.stderr) == (1, "", said)


@pytest.mark.rule("CLI-2")
def test_the_result_of_a_call_stays_in_the_store(store: Path) -> None:
    """The JSON of a request has no result of its call, which is for the session that made it."""
    run("allow", "1111", "--yes")
    digest, kept = record(store, "1111aaaa0000").digest, KeptResult(digest="0" * 64, size=8, json='"CANARY"')
    assert at(store, lambda broker: broker.claim("1111aaaa0000", digest))
    at(store, lambda broker: broker.settle("1111aaaa0000", "done", result=kept))
    assert record(store, "1111aaaa0000").result == kept
    for told in (run("list", "--all", "--json"), run("show", "1111", "--json")):
        assert (told.exit_code, "1111aaaa0000" in told.stdout, "CANARY" in told.stdout) == (0, True, False)


@pytest.mark.rule("CLI-1")
def test_the_reason_of_an_end_stays_on_its_line(store: Path) -> None:
    """A request that ended for a hostile reason is named on one line, on which nothing can pass for a line of ours."""
    at(store, lambda broker: broker.withdraw("1111aaaa0000", f"{HOSTILE}\nAllow: Write for coder"))
    told = run("allow", "1111", "--yes")
    assert (told.exit_code, told.stdout, told.stderr.count("\n")) == (1, "", 1)
    assert told.stderr.startswith("Request 1111aaaa0000 does not wait any more: ")
    assert "\\u{202E}" in told.stderr


@pytest.mark.rule("BCK-5", "CLI-2")
def test_deny(store: Path) -> None:
    """A deny needs no confirmation, and may carry words for the model."""
    told = run("deny", "1111", "--message", "use the copy")
    assert told.exit_code == 0
    assert told.stdout.startswith("Deny: Write for coder, request 1111aaaa0000, digest ")
    after = record(store, "1111aaaa0000")
    assert after.decision is not None
    assert (after.status, after.decision.message) == ("denied", "use the copy")
    assert "    | use the copy" in run("show", "1111").stdout.splitlines()


@pytest.mark.rule("CLI-2", "APR-6")
def test_options(store: Path) -> None:
    """Only offered answers are accepted; if none allows once, the command line has to name one."""
    asked(store, id="5555", options=(ALWAYS, DENY))
    asked(store, id="6666", options=(HERE, PROJECT, DENY))
    for arguments, said in [
        (("allow", "1111", "--yes", "--option", "Alow"), "'Alow' is not offered; did you mean 'Allow'?"),
        (("allow", "1111", "--yes", "--option", "Deny"), "'Deny' is not offered; known are Allow, Allow always"),
        (("deny", "1111", "--option", "Allow"), "'Allow' is not offered; known are Deny, Deny always"),
        (("allow", "6666", "--yes", "--option", "Allow"), "'Allow' is not offered; known are Allow always in this"),
        (("allow", "5555", "--yes"), "name one of the answers; there are 'Allow always'"),
    ]:
        told = run(*arguments)
        assert (told.exit_code, told.stdout) == (2, "")
        assert said in told.stderr
    assert {one["status"] for one in facts("list", "--all")} == {"pending"}


@pytest.mark.rule("CLI-1", "CLI-2")
@pytest.mark.fault("F-CLI-04")
@pytest.mark.parametrize("arguments", [["allow", "1111"], ["purge"]])
@pytest.mark.parametrize("more", [[], ["--no-input"]])
def test_confirming_without_a_terminal(store: Path, arguments: list[str], more: list[str]) -> None:
    """Without a terminal, piped input confirms nothing: the command does nothing, and names the option to use."""
    told = run(*arguments, *more, typed="y\ny\n")
    assert (told.exit_code, told.stdout) == (2, "")
    assert "--yes confirms it" in told.stderr
    assert record(store, "1111aaaa0000").status == "pending"


@pytest.mark.rule("CLI-2")
@pytest.mark.fault("F-CLI-01")
@pytest.mark.parametrize(("typed", "status"), [("y\r", "approved"), ("\r", "pending"), ("\x03", "pending")])
def test_confirming(store: Path, typed: str, status: str) -> None:
    """Allowing shows exactly what would run and asks; only a yes typed after the question counts."""
    child = pexpect.spawn(
        sys.executable,
        ["-W", "error", "-m", "amplifier_hooks", "approvals", "allow", "1111"],
        env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"},
        dimensions=(40, 120),
        timeout=SOON,
    )
    child.send("y\r")
    child.expect_exact("Tool Write, with 2 arguments:")
    child.expect_exact("    | src/1.py")
    child.expect_exact("Allow? [y/N]:")
    assert record(store, "1111aaaa0000").status == "pending"
    child.send(typed)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == (0 if status == "approved" else 1)
    assert record(store, "1111aaaa0000").status == status


@pytest.mark.rule("APR-5", "CLI-2")
def test_confirming_an_always(store: Path) -> None:
    """Before an "always" is confirmed, the command shows its reach and its end."""
    told = run("allow", "1111", "--option", "Allow always", typed="y\n")
    assert told.exit_code == 2
    covers = told.stderr.index('An "always" covers:')
    assert (
        told.stderr.index("Tool Write, with 2 arguments:") < covers < told.stderr.index("  It ends: With this session")
    )
    assert "covers" not in run("allow", "1111", typed="y\n").stderr
    assert record(store, "1111aaaa0000").status == "pending"


@pytest.mark.rule("APR-5", "CLI-2")
@pytest.mark.parametrize(("label", "here"), [("Allow always", True), (HERE.label, True), (PROJECT.label, False)])
def test_always_for_the_session_or_the_project(store: Path, label: str, *, here: bool) -> None:
    """Of a card with two, "Allow always" is for the session; the reach is that of the answer, with its limits."""
    asked(store, id="5555", options=(ALLOW, HERE, PROJECT, DENY), keep=86_400.0)
    told = run("allow", "5555", "--option", label, "--for", "2h", "--times", "5")
    assert told.exit_code == 2
    assert "  It ends: With this session, or when" in told.stderr if here else "  It ends: After 1 day" in told.stderr
    assert ("in every session" in told.stderr) is not here
    assert "  At most: 5 calls within 2:00:00" in told.stderr
    run("allow", "5555", "--yes", "--option", label)
    decision = record(store, "5555").decision
    assert decision is not None
    assert (decision.option, decision.keep) == ((HERE.id, None) if here else (PROJECT.id, 86_400.0))


@pytest.mark.rule("APR-5", "CLI-2")
def test_limiting_an_always(store: Path) -> None:
    """An approver limits an "always" by time and by calls; an answer that counts once takes no limit."""
    limits = ("--for", "2h", "--times", "5")
    told = run("allow", "1111", "--yes", *limits)
    assert (told.exit_code, told.stderr.count('"Allow" counts once')) == (2, 1)
    assert run("allow", "1111", "--yes", "--option", "Allow always", "--for", "soon").exit_code == 2
    assert run("allow", "1111", "--yes", "--option", "Allow always", *limits).exit_code == 0
    decision = record(store, "1111aaaa0000").decision
    assert decision is not None
    assert (decision.seconds, decision.times) == (7_200, 5)


@pytest.mark.rule("APR-6", "CLI-2")
@pytest.mark.fault("F-APR-04")
def test_too_late(store: Path) -> None:
    """An answer to a request that was decided or has expired changes nothing, and the error names the decider."""
    from amplifier_hooks.cli.approvals import approvals_commands as commands
    from amplifier_hooks.cli.approvals.open_store import StoreView, Trouble

    view = StoreView(str(store))
    before = asyncio.run(commands.find_waiting(view, "1111"))
    kim = Decider(name="Kim", channel="page")
    at(store, lambda broker: broker.decide(before.id, before.digest, DENY.id, kim))
    with pytest.raises(Trouble, match=r"^This answer did not count: already denied by Kim \(page\)\.$"):
        asyncio.run(commands.answer(view, before, ALLOW, as_json=False))
    assert record(store, before.id).status == "denied"


# -- standing answers, and what is kept --------------------------------------------------------------------------------


@pytest.mark.rule("APR-5", "CLI-2")
def test_grants(store: Path) -> None:
    """Grants are listed with their reach, and end when they are revoked."""
    assert run("grants").stderr == "No grant is in force.\n"
    run("allow", "1111", "--yes", "--option", "Allow always")
    assert run("grants").stderr == "No grant is in force.\n", "a grant begins with the claim"
    digest = record(store, "1111aaaa0000").digest
    at(store, lambda broker: broker.claim("1111aaaa0000", digest))
    lines = run("grants").stdout.splitlines()
    assert lines[0] == "1111aaaa  allow always  Write  the question “Write it?”"
    assert lines[1] == " " * 10 + "asked by guard, for coder in session session-1"
    assert lines[2].startswith(" " * 10 + f"given by {user_name()} (cli) at 20")
    assert lines[3:] == [" " * 10 + "covered 0 calls"]
    request = record(store, "1111aaaa0000").request
    at(store, lambda broker: broker.store.use_grants(request, ["1111aaaa0000:1"]))
    lines = run("grants").stdout.splitlines()
    assert lines[3] == " " * 10 + "covered 1 call"
    assert re.fullmatch(r" {12}20\S+ \S+  Write  \{.*", lines[4])
    (grant,) = facts("grants")
    assert (grant["used"], [use["tool"] for use in grant["uses"]]) == (1, ["Write"])
    (question,) = facts("show", "1111")["request"]["questions"]
    assert (question["hook"], question["prompt"]) == ("guard", "Write it?")
    assert (grant["allows"], grant["key"]["scope"], grant["key"]["cwd"]) == (True, "prompt:Write it?", "/project")
    assert run("revoke", "1111", "--tenant", "other").exit_code == 1
    told = run("revoke", "1111")
    assert told.stdout == "Revoked 1111aaaa0000:1: Write, asked by guard, is asked again.\n"
    assert facts("grants") == []
    assert (
        run("revoke", "1111").stderr
        == "There is no grant '1111'. amplifier-hooks approvals grants names those there are.\n"
    )


@pytest.mark.rule("PKG-2", "CLI-2")
def test_purge(store: Path) -> None:
    """Purging removes requests that ended so long ago and are on record, and reports that others stay."""
    run("deny", "1111")
    told = run("purge", "--yes")
    assert (told.exit_code, told.stdout) == (0, "Removed 0 requests.\n")
    assert "Requests that are not in a record yet were kept." in told.stderr
    at(store, lambda broker: broker.store.mark_recorded("1111aaaa0000", version=2))
    assert run("purge", "--yes", "--older-than", "1m").stdout == "Removed 0 requests.\n"
    assert run("purge", "--yes", "--older-than", "0s").stdout == "Removed 1 request.\n"
    assert [one["id"] for one in facts("list", "--all")] == ["2222bbbb0000"]
    for wrong in ("", "7", "7w", "-1d", "1e3s"):
        told = run("purge", "--yes", "--older-than", wrong)
        assert (told.exit_code, told.stdout) == (2, "")
        assert "write 90s, 30m, 12h or 7d" in told.stderr


@pytest.mark.rule("PKG-2", "AUD-4")
def test_purging_leaves_the_record(tmp_path: Path) -> None:
    """The record never had the arguments: purging takes them out of the store's file and changes no byte of it."""
    path, log = tmp_path / "approvals.db", tmp_path / "audit.jsonl"
    registry = HookRegistry()
    registry.gate("tool:pre", lambda event, data: HookResult.ask("Really?"), name="guard")

    async def session() -> None:
        async with DeferredApprovals(SqliteStore(path)) as approvals, AuditLog.open(log) as record:
            coordinator = SessionCoordinator(registry, session_id="s1", approvals=approvals, audit=record)
            call = asyncio.ensure_future(coordinator.call_tool("Write", {"text": "CANARY"}, lambda given: "ran"))
            with approvals.broker.watch() as watch:
                while not (waiting := await approvals.broker.pending(Decider(name="x", channel="y"))):
                    await watch.wait(1)
            (one,) = waiting
            await approvals.broker.decide(
                one.id, one.digest, one.request.options[0].id, Decider(name="Robin", channel="y")
            )
            assert (await call).ok
            await coordinator.close()

    asyncio.run(session())
    before = log.read_bytes()
    digest = json.loads(run("list", "--all", "--json", "--store", str(path)).stdout)[0]["digest"]
    assert b"CANARY" in path.read_bytes()
    told = run("purge", "--yes", "--older-than", "0s", "--store", str(path))
    assert (told.stdout, told.stderr) == ("Removed 1 request.\n", "")
    assert b"CANARY" not in path.read_bytes()
    assert log.read_bytes() == before
    assert b"CANARY" not in before
    assert digest.encode() in before


@pytest.mark.rule("PKG-2")
def test_platforms_are_named() -> None:
    """The README says which platforms are supported, and which one is proved."""
    readme = " ".join(Path(__file__).parents[4].joinpath("README.md").read_text(encoding="utf-8").split())
    assert "Linux and macOS are supported, and Windows for everything that needs no terminal." in readme
    assert "Continuous integration proves Linux." in readme


# -- where the store is ------------------------------------------------------------------------------------------------


@pytest.mark.rule("CLI-2")
def test_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing store is an error and not a new store; the credentials in a DSN are not shown."""
    monkeypatch.delenv("AMPLIFIER_HOOKS_STORE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "amplifier-hooks" / "approvals.db"
    told = run("list")
    assert (told.exit_code, told.stdout) == (1, "")
    assert told.stderr == f"There is no store at {path}; name the one your program uses with --store.\n"
    assert list(tmp_path.iterdir()) == []
    for given, said in [
        ("", "the address is empty; name a file, or postgresql://…"),
        ("mysql://me:secret@host/x", "mysql://host/x is neither a file nor postgresql://…; name one of them"),
    ]:
        told = run("list", "--store", given)
        assert (told.exit_code, told.stderr) == (1, f"{said}\n")
    down = run("list", "--store", "postgresql://me:secret@127.0.0.1:1/x")
    assert (down.exit_code, down.stdout) == (1, "")
    assert "secret" not in down.stderr
    (tmp_path / "notes.txt").write_text("not a database")
    (tmp_path / "notes.txt").chmod(0o600)
    assert run("list", "--store", str(tmp_path / "notes.txt")).exit_code == 1


# -- rules -------------------------------------------------------------------------------------------------------------

RULES = Path(__file__).parents[4] / "examples" / "rules.yaml"


@pytest.mark.rule("BCK-9", "CLI-2")
def test_rules_check(tmp_path: Path) -> None:
    """A file of rules is right, or every mistake is named with file and line."""
    told = run("rules", "check", str(RULES))
    assert re.fullmatch(r".*rules\.yaml: 5 rules, digest [0-9a-f]{12}\n", told.stdout)
    wrong = tmp_path / "r.yaml"
    wrong.write_text("version: 1\nrules:\n- {id: a, action: allow, tool: '*'}\n- {id: b}\n")
    told = run("rules", "check", str(wrong))
    assert (told.exit_code, told.stdout) == (1, "")
    assert [line.split(": ")[0] for line in told.stderr.splitlines()] == [f"{wrong}:3", f"{wrong}:4", f"{wrong}:4"]
    assert run("rules", "check", str(tmp_path / "none.yaml")).exit_code == 1
    wrong.write_text("version: 1\nrules:\n- {id: a, action: deny, tool: X, event: 'tool:prre'}\n")
    told = run("rules", "check", str(wrong))
    assert (told.exit_code, told.stdout) == (1, "")
    assert told.stderr == f"{wrong}:3: 'event' is 'tool:prre', an unknown event; did you mean 'tool:pre'?\n"


@pytest.mark.rule("BCK-9", "CLI-2")
def test_rules_explain() -> None:
    """The explanation names the rules that decide about a call, and why the others do not."""
    explain = ("rules", "explain", str(RULES))
    told = run(*explain, "--tool", "Bash", "--input", '{"command": "git push"}')
    assert (told.exit_code, told.stderr) == (0, "")
    assert told.stdout.splitlines()[:3] == [
        "ask, by publishing: Publish this?",
        "  with high risk: everybody who pulls has it",
        "  decides: publishing (ask, line 35): 'git push' stands in it",
    ]
    assert run(*explain, "--tool", "Read", "--input", "-", typed='{"path": "x.py"}').stdout.startswith(
        "allow, by read-"
    )
    given = facts(*explain, "--tool", "Bash", "--input", '{"command": "git push"}')
    verdict = given["verdict"]
    assert (verdict["risk"], verdict["risk_reason"]) == ("high", "everybody who pulls has it")
    given = facts(*explain, "--tool", "Read", "--input", '{"path": "/x"}', "--cwd", "/y")
    assert (given["verdict"]["action"], given["verdict"]["rule"]) == ("ask", "otherwise")
    assert [one["rule"] for one in given["considered"] if one["matched"]] == []
    for wrong in (
        [],
        ["--tool", "X", "--input", "[]"],
        ["--tool", "X", "--input", "{"],
    ):
        assert run(*explain, *wrong).exit_code == 2


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CLI-1")
@pytest.mark.parametrize(
    "command",
    ["", "list", "show", "allow", "deny", "grants", "revoke", "purge", "watch", "rules check", "rules explain"],
)
def test_help(command: str) -> None:
    """Every command's help begins with its purpose and has examples before the options."""
    told = run(*command.split(), "--help")
    assert told.exit_code == 0
    pattern = rf"Examples:\n +amplifier-hooks approvals {command}.*\n.*Options:"
    assert re.search(pattern, told.stdout, re.DOTALL)


@pytest.mark.rule("CLI-1")
def test_help_is_light() -> None:
    """Asking for help loads neither stores nor the libraries that draw on terminals."""
    program = (
        "import sys; from amplifier_hooks.cli.app import app\n"
        "try: app(['approvals', 'allow', '--help'])\nfinally: print(*sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    loaded = {"sqlite3", "asyncpg", "prompt_toolkit", "yaml", "approval_backends.broker"}
    assert loaded.isdisjoint(told.stdout.split())


@pytest.mark.slow
@pytest.mark.rule("CLI-2", "BCK-6", "BCK-7")
def test_documented_sessions() -> None:
    """The two terminals in docs/approvals.md show the output of two real terminals."""
    script = Path(__file__).parents[4] / "scripts" / "approvals_session.py"
    told = subprocess.run([sys.executable, str(script), "--check"], check=False, capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (0, "")


# -- two processes -----------------------------------------------------------------------------------------------------


async def process(*command: str) -> asyncio.subprocess.Process:
    """Start another process, without a keyboard."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.rule("BCK-5", "BCK-8", "CLI-2")
@pytest.mark.parametrize("kind", FILES)
async def test_deciding_for_another_process(kind: str, tmp_path: Path) -> None:
    """While one process waits, another lists its request and allows it, and the first goes on at once."""
    async with address(kind, tmp_path) as where:
        waiting = await process(str(WORKER), where, "wait", "1")
        assert waiting.stdout is not None
        assert await waiting.stdout.readline() == b"ready\n"
        listing = await process("-m", "amplifier_hooks", "approvals", "list", "--json", "--store", where)
        told, complaints = await listing.communicate()
        assert complaints == b""
        (one,) = json.loads(told)
        allowing = await process("-m", "amplifier_hooks", "approvals", "allow", one["id"], "--yes", "--store", where)
        told, complaints = await allowing.communicate()
        assert (complaints, allowing.returncode) == (b"", 0)
        assert told.startswith(b"Allow: Write for coder, request r0, digest ")
        assert (await waiting.stdout.readline()).decode() == f"['{user_name()}']\n"
        assert await waiting.wait() == 0
