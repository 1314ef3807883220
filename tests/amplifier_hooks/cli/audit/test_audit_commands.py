"""The record and the ledger for people: `amplifier-hooks audit`, `report` and `ledger`."""

from __future__ import annotations

import asyncio
import json
import os
import re
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from amplifier_hooks import HookRegistry, SessionCoordinator
from amplifier_hooks.cli.app import app
from amplifier_hooks.cli.audit import record_text
from amplifier_hooks.library import ToolLedger
from amplifier_hooks.ports import Head
from amplifier_hooks.record.journal import JOURNAL_TABLES
from amplifier_hooks.record.log import HEADS, AuditLog, StoredHeads
from amplifier_hooks.record.record_errors import LogCut
from amplifier_hooks.record.report import LogVerdict
from amplifier_hooks.storage.sqlite import SqliteDatabase
from amplifier_hooks.storage.state_folder import StateFolder
from tests.logbook import KEY, LOG, OTHER_KEY, Book, pinned

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

VKEY = KEY.vkey()
OF = "the log of tenant 'acme', session 's1'"
UNBROKEN = f"Every line of {OF} verifies up to line 9. Nothing kept outside the log excludes that lines were cut off."
HOSTILE = '\u202e\x1b[2J\n<script>alert(1)</script>"&amp;' + " " * 100 + "x"


def run(*arguments: object) -> Result:
    """Run the command, and return its result."""
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A closed record of two segments, with some odd things in it."""
    book = Book().add("outcome", {"event": "tool:pre", "action": "deny", "session": "first", "reason": HOSTILE})
    book.add(
        "approval.decided", {"tool": HOSTILE, "status": "approved", "by": ["mara"], "session": "second", HOSTILE: 1}
    )
    return book.rotate().add("note", {"number": 1, "tenant": "", "x": 7}).close().files(tmp_path)[1]


@pytest.mark.rule("AUD-6", "CLI-1")
def test_verify(record: Path) -> None:
    """The report begins with the verdict, and lists the checks that were made and those that were not."""
    told = run("verify", record, "--key", VKEY)
    assert (told.exit_code, told.stderr) == (0, "")
    sizes = [path.stat().st_size for path in sorted(record.parent.glob("*.jsonl"), key=lambda path: len(path.name))]
    key = pinned().fingerprint
    assert told.stdout.splitlines() == [
        f"unbroken: {UNBROKEN}",
        "",
        f"log          {LOG}",
        "tenant       acme",
        "session      s1",
        f"segment 1    record.jsonl, 5 lines (1 to 5), {sizes[0]:,} bytes, complete",
        "             written 2026-11-18 00:01:00 to 2026-11-18 00:04:00 by its own clock",
        f"             signed up to line 4 by the key {key}, which is pinned",
        f"segment 2    record.000002.jsonl, 4 lines (6 to 9), {sizes[1]:,} bytes, complete",
        "             written 2026-11-18 00:05:00 to 2026-11-18 00:07:00 by its own clock",
        f"             signed up to line 8 by the key {key}, which is pinned",
        "not checked  heads kept elsewhere, as none is known: a holder of the key could have rewritten all of it",
    ]


@pytest.mark.rule("AUD-2", "AUD-6")
def test_verify_tampered(record: Path) -> None:
    """The report names a changed line, and the lines that were not read because of it."""
    record.write_bytes(record.read_bytes().replace(b"deny", b"Deny"))
    told = run("verify", record, "--key", VKEY)
    assert told.exit_code == 1
    lines = told.stdout.splitlines()
    assert lines[0] == f"tampered: Something that was written to {OF} is not what stands there now."
    assert lines[7] == "             not signed"
    assert lines[-2:] == [
        "not checked  the rest of record.jsonl from line 2 on, as the chain ends there",
        "tampered     record.jsonl, line 2: the line is not the one that was written here: its hash is another",
    ]


@pytest.mark.rule("AUD-2", "AUD-6")
def test_exit_codes(record: Path, tmp_path: Path) -> None:
    """Exit codes tell a whole record, a broken record, and an unknown state apart."""
    assert set(record_text.EXITS) == set(LogVerdict)
    assert run("verify", record).exit_code == 3
    assert run("verify", record, "--key", OTHER_KEY.vkey()).exit_code == 3
    assert run("verify", record, "--key", OTHER_KEY.vkey(), "--key", VKEY, "--log", LOG).exit_code == 0
    assert run("verify", record, "--key", VKEY, "--require-head").exit_code == 4
    assert run("verify", record, "--key", VKEY, "--log", "other").exit_code == 1
    record.unlink()
    assert run("verify", tmp_path / "record.000002.jsonl", "--key", VKEY).exit_code == 1
    codes = " ".join(run("verify", "--help").stdout.split())
    assert "Exit codes: 0 the verdict is intact or unbroken; 1" in codes
    assert "4 it is unbroken, and --require-head was given" in codes


@pytest.mark.rule("AUD-6", "CLI-1")
def test_verify_json(record: Path) -> None:
    """With --json the report is one JSON value."""
    told = json.loads(run("verify", record, "--json").stdout)
    assert told["verdict"] == "cannot tell"
    assert told["findings"] == [
        {
            "found": "no_key",
            "verdict": "cannot tell",
            "file": "",
            "line": None,
            "text": "no key is pinned: a writer of the files could have forged them",
        }
    ]
    assert (told["log"], told["first_bad"], told["compared"]) == (LOG, None, [])
    assert [(one["file"], one["last"], one["pinned"]) for one in told["segments"]] == [
        ("record.jsonl", 5, False),
        ("record.000002.jsonl", 9, False),
    ]
    record.write_bytes(b"{}\n")
    told = json.loads(run("verify", record, "--json").stdout)
    assert told["first_bad"]["line"] == 1


@pytest.mark.rule("AUD-2", "AUD-6")
@pytest.mark.fault("F-AUD-02")
async def test_heads_and_anchors(tmp_path: Path) -> None:
    """A store of heads and a file of notes tell a log that was cut; a note that no pinned key signed is refused."""
    book = Book().add()
    notes = tmp_path / "notes.txt"
    notes.write_text(book.note())
    book.checkpoint().add()
    record = book.files(tmp_path)[1]
    store = tmp_path / "heads.sqlite"
    async with SqliteDatabase(store, HEADS) as database:
        head = Head(log=LOG, segment=1, size=book.seq, head=book.head.hex())
        await StoredHeads(database).put(head)
    notes.write_text(notes.read_text() + book.note())
    with_store, with_notes = ["verify", record, "--heads", store], ["verify", record, "--anchor", notes]
    told = await in_thread(*with_store)
    assert (told.exit_code, told.stdout.partition(":")[0]) == (0, "unbroken so far")
    assert f"head         line 4 of segment 1, kept in {store}, is in the log\n" in told.stdout
    told = await in_thread(*with_notes, "--key", VKEY)
    assert (told.exit_code, told.stdout.partition(":")[0]) == (0, "unbroken so far")
    assert told.stdout.count("anchor       ") == 2
    assert (await in_thread(*with_notes)).exit_code == 0
    told = await in_thread(*with_notes, "--key", OTHER_KEY.vkey())
    assert (told.exit_code, told.stdout) == (2, "")
    assert "is not signed by" in told.stderr
    book.segments[0].pop()
    book.files(tmp_path)
    told = await in_thread(*with_store, "--anchor", notes, "--key", VKEY)
    assert (told.exit_code, told.stdout.partition(":")[0]) == (1, "truncated")
    assert f"head         line 4 of segment 1, kept in {store}, is not in the log\n" in told.stdout
    record.write_bytes(b"\n")
    told = await in_thread(*with_notes)
    assert "anchor       line 2 of segment 1 was not compared: the log is broken before it\n" in told.stdout
    Book(log="00" * 16).close().files(tmp_path)
    told = await in_thread(*with_store, "--key", VKEY)
    assert (told.exit_code, told.stdout.splitlines()[-1]) == (
        3,
        "cannot tell  the store that was asked knows no such log",
    )


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    """The state folder of a user of `serve`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return StateFolder().make()


async def serve(state: StateFolder, count: int = 1) -> None:
    """Write a record beside the approvals, as `serve` does."""
    async with SqliteDatabase(state.approvals, HEADS) as database:
        log = AuditLog.open(state.record, tenant="acme", heads=StoredHeads(database))
        for number in range(count):
            await log.write("note", {"number": number}, durable=True)
        await log.close()


@pytest.mark.rule("AUD-2", "AUD-6", "AUD-8")
@pytest.mark.fault("F-AUD-02")
async def test_the_store_is_found(state: StateFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a record and without a store, the record of serve is compared with the store of its approvals."""
    await serve(state)
    cut = state.record.read_bytes()
    await serve(state)
    told = await in_thread("verify", "--require-head")
    assert (told.exit_code, told.stderr) == (0, "")
    line = len(state.record.read_bytes().splitlines())
    assert told.stdout.startswith(
        f"intact: Every line of the log of tenant 'acme' verifies, and the head of line {line} in segment 1 in "
        f"{state.approvals} vouches for its end. An older log, restored together with an older head, would look the "
        f"same.\n"
    )
    assert "tenant       acme\nsession      none\n" in told.stdout
    moved = state.approvals.rename(state.path / "moved.db")
    monkeypatch.setenv("AMPLIFIER_HOOKS_STORE", str(moved))
    assert (await in_thread("verify", "--require-head")).exit_code == 0
    state.record.write_bytes(cut)
    told = await in_thread("verify", "--key", state.record.with_name("audit.key.pub"))
    assert (told.exit_code, told.stdout.partition(":")[0]) == (1, "truncated")


@pytest.mark.rule("AUD-2", "AUD-8")
@pytest.mark.fault("F-AUD-21")
@pytest.mark.parametrize("now", ["nothing", "another log"])
async def test_a_log_that_is_gone(state: StateFolder, now: str) -> None:
    """A record that is gone, with or without another in its place, is a cut beside the store that remembers it."""
    await serve(state)
    state.record.unlink()
    if now == "another log":
        with pytest.raises(LogCut, match="line 5 of segment 1 of the log"):
            await serve(state)
    told = await in_thread("verify")
    assert (told.exit_code, told.stdout.partition(":")[0]) == (1, "truncated" if now == "nothing" else "tampered")
    state.approvals.unlink()
    told = await in_thread("verify")
    assert told.exit_code == (2 if now == "nothing" else 3)


@pytest.mark.rule("AUD-6")
async def test_verifying_changes_no_store(state: StateFolder) -> None:
    """A store without heads is read, and nothing is added to it; one that cannot be read is as good as none."""
    Book().close().files(state.path)
    async with SqliteDatabase(state.approvals, JOURNAL_TABLES):
        pass
    before = state.approvals.read_bytes()
    assert (await in_thread("verify", "--key", VKEY)).stdout.startswith("unbroken: ")
    assert state.approvals.read_bytes() == before
    state.approvals.write_bytes(b"no database")
    assert (await in_thread("verify", "--key", VKEY)).exit_code == 0
    assert (await in_thread("verify", "--key", VKEY, "--heads", state.approvals)).exit_code == 2


async def in_thread(*arguments: object) -> Result:
    """The command, away from the loop of the test: it has one of its own."""
    return await asyncio.to_thread(run, *arguments)


@pytest.mark.rule("AUD-6", "CLI-1")
def test_misuse(record: Path, tmp_path: Path) -> None:
    """A missing or unusable file is an error on standard error, with exit code 2."""
    (tmp_path / "odd").write_text("x")
    (tmp_path / "folder").mkdir()
    for arguments, said in (
        (["verify", tmp_path / "nothing.jsonl"], "nothing.jsonl is not there"),
        (["verify", record, "--key", "odd"], "'odd' is no verifier key"),
        (["verify", record, "--key", tmp_path / "odd"], "odd does not hold a verifier key: name the .pub file"),
        (["verify", record, "--key", tmp_path / "folder"], "Is a directory"),
        (["verify", record, "--anchor", tmp_path / "odd"], "does not hold signed notes"),
        (["verify", record, "--anchor", tmp_path / "nothing"], "No such file"),
        (["verify", record, "--heads", tmp_path / "nothing"], "nothing is not there"),
        (["verify", record, "--heads", tmp_path / "odd"], "--heads"),
        (["verify", tmp_path / "folder"], "folder is a folder; name the record's first file in it"),
        (["tail", record, "--lines", "-1"], "greater than or equal to 0"),
        (["verify", record, "--json", "--html"], "choose one of them"),
        (["show", record, "--json", "--html"], "choose one of them"),
    ):
        told = run(*arguments)
        assert (told.exit_code, told.stdout) == (2, "")
        assert said in re.sub(r"[\s│]+", " ", told.stderr)


@pytest.mark.rule("AUD-6", "CLI-1")
def test_a_private_key_is_not_shown(record: Path) -> None:
    """The error about the private half of a key names the public file, and never shows the private content."""
    private, secret = record.with_name("audit.key"), "MC4CAQAwBQYDK2VwBCIEIOAUJXV1g46ooi6CvTJkrX0V8I7jbntVTMaPSAJ8ZklA"
    private.write_text(f"-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----\n")
    told = run("verify", record, "--key", private)
    assert (told.exit_code, told.stdout) == (2, "")
    assert f"name the public one: {private}.pub" in re.sub(r"\s+", " ", told.stderr)
    assert secret not in told.stderr
    for text in (private.read_text(), private.read_text() + "x" * 5_000):
        assert secret not in run("verify", record, "--key", text).stderr


@pytest.mark.rule("AUD-6", "CLI-1")
def test_a_kind_that_is_not_there(record: Path) -> None:
    """The message about a missing kind of lines lists the kinds of the record."""
    told = run("show", record, "--kind", "tool.deny")
    assert (told.exit_code, told.stdout) == (0, "")
    assert "There is no such line; its kinds are approval.decided, " in told.stderr


@pytest.mark.rule("AUD-6", "CLI-1")
def test_unreadable(record: Path) -> None:
    """A record that cannot be read is an error on standard error, with exit code 1."""
    record.unlink()
    os.mkfifo(record)
    for command in ("tail", "show"):
        told = run(command, record)
        assert told.exit_code == 1
        assert told.stderr == f"The record cannot be read: {record} is no plain file\n"


@pytest.mark.rule("AUD-6")
def test_tail(record: Path) -> None:
    """The last lines come one a line, also over segments, and odd characters stay on theirs."""
    told = run("tail", record)
    assert (told.exit_code, told.stderr) == (0, "")
    odd = '\\u{202E}\\u{1B}[2J\\u{0A}<script>alert(1)</script>"&amp;'
    first, second = told.stdout.splitlines()[1:3]
    assert first.startswith(f"2026-11-18 00:02:00       2  outcome               tool:pre  deny  {odd}    ")
    assert first.endswith("x")
    assert second.startswith(f"2026-11-18 00:03:00       3  approval.decided      {odd}    ")
    assert second.endswith('    x  approved  ["mara"]')
    last = [
        f"2026-11-18 00:05:00       6  segment.opened        segment 2 of the log {LOG}",
        "2026-11-18 00:06:00       7  note                  x 7",
        "2026-11-18 00:07:00       8  log.closed",
        "                          9  log.checkpoint        signed up to line 8",
    ]
    assert run("tail", record, "-n", 4).stdout.splitlines() == last
    assert run("tail", record, "-n", 2).stdout.splitlines() == last[2:]
    assert run("tail", record, "--lines", 6).stdout.splitlines()[2:] == last
    assert run("tail", record, "--lines", 0).stdout == ""
    raw = run("tail", record, "-n", 1, "--json").stdout
    assert raw.encode() == (record.parent / "record.000002.jsonl").read_bytes().splitlines(keepends=True)[-1]
    with record.open("ab") as file:
        file.write(b"\x1b[2J\n{torn")
    lines = run("tail", record, "-n", 7).stdout.splitlines()
    assert lines[1:3] == [f"record.jsonl, line {line}: does not end in a hash and a newline" for line in (6, 7)]
    assert lines[3:] == last
    assert json.loads(run("tail", record, "-n", 6, "--json").stdout.splitlines()[0]) == {
        "file": "record.jsonl",
        "line": 6,
        "problem": "does not end in a hash and a newline",
    }


@pytest.mark.rule("AUD-6")
def test_show(record: Path) -> None:
    """The command shows every fact of a line, odd characters visible; the verdict goes to standard error."""
    told = run("show", record, "--kind", "approval.decided", "--key", VKEY)
    assert (told.exit_code, told.stderr) == (0, f"unbroken: {UNBROKEN}\n")
    odd = '\\u{202E}\\u{1B}[2J\\u{0A}<script>alert(1)</script>"&amp;' + " " * 100 + "x"
    assert told.stdout.splitlines() == [
        "3  approval.decided  2026-11-18T00:03:00+00:00",
        f"    tool           {odd}",
        "    status         approved",
        '    by             ["mara"]',
        "    session        second",
        f"    {odd} 1",
        "",
    ]
    assert run("show", record, "--session", "first").stdout.splitlines()[0].startswith("2  outcome")
    assert run("show", record, "--last", 1).stdout.startswith("9  log.checkpoint  without a time\n")
    lines = run("show", record, "--json").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, 10))
    record.write_bytes(record.read_bytes() + b"\xff\n" + b"x" * 70_000)
    told = run("show", record)
    assert "record.jsonl, line 6: does not end in a hash and a newline\n\nrecord.jsonl, line 7: " in told.stdout


@pytest.mark.rule("AUD-6")
def test_show_leaves_evidence_out(tmp_path: Path) -> None:
    """Bytes behind the last line that counts are no line of the record."""
    book = Book().add()
    about = {"bytes": sum(map(len, book.segments[0])), "digest": sha256(b"{broken}\n").hexdigest()}
    book.begin(left={"why": "failure", **about}).close()
    book.segments[0].append(b"{broken}\n")
    told = run("show", book.files(tmp_path)[1], "--key", VKEY)
    assert told.stderr.startswith("unbroken: ")
    assert "end in a hash" not in told.stdout
    (tmp_path / "record.000002.jsonl").write_bytes(b"")
    assert "end in a hash" in run("show", tmp_path / "record.jsonl").stdout


# -- the page ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AUD-6")
def test_page(record: Path) -> None:
    """The page loads nothing and runs nothing, and foreign text stays text in it, with odd characters visible."""
    told = run("show", record, "--key", VKEY, "--html")
    assert (told.exit_code, told.stderr.partition(":")[0]) == (0, "unbroken")
    page = told.stdout
    assert "default-src 'none'; style-src 'sha256-" in page
    assert "<script" not in page.lower()
    assert not re.search(r"""(?:src|href|url)\s*[=(]|\son\w+=|style=""", page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&amp;amp;" in page
    assert "\\u{202E}\\u{1B}[2J" in page
    assert page.count("<details>") == 9
    assert "<h1>Unbroken</h1>" in page
    assert "<mark>" not in page


@pytest.mark.rule("AUD-6")
def test_page_tampered(record: Path) -> None:
    """The page names the finding, and marks the bad line and the lines behind it, in that file only."""
    record.write_bytes(record.read_bytes().replace(b"deny", b"Deny") + b"\xff<b>\n")
    page = run("show", record, "--key", VKEY, "--html").stdout
    assert "<h1>Tampered</h1>" in page
    assert "record.jsonl, line 2: the line is not the one that was written here: its hash is another" in page
    summaries = re.findall(r"<summary>(.*?)</summary>", page)
    marks = [one.partition("<mark>")[2].removesuffix("</mark>") for one in summaries]
    assert marks == ["", "the chain ends here", *["not checked"] * 4, *[""] * 4]


@pytest.mark.rule("AUD-6")
def test_page_of_verify(record: Path) -> None:
    """The page of `verify` has the report and no lines; a page of `show` without lines reports that."""
    told = run("verify", record, "--html")
    assert told.exit_code == 3
    assert "<h1>Cannot tell</h1>" in told.stdout
    assert "not checked  heads kept elsewhere" in told.stdout
    assert "<details>" not in told.stdout
    assert "There is no such line." in run("show", record, "--kind", "nothing", "--html").stdout


@pytest.mark.rule("AUD-6", "CLI-1")
@pytest.mark.parametrize("command", [[], ["verify"], ["tail"], ["show"]])
def test_help(command: list[str]) -> None:
    """Help has examples before the options, and explains the exit codes."""
    told = run(*command, "--help")
    assert re.search(r"Examples:\n +amplifier-hooks audit \w+ record.jsonl.*\n.*Options:", told.stdout, re.DOTALL)
    assert not command or "Exit codes: 0" in told.stdout


# -- report ------------------------------------------------------------------------------------------------------------


def report(*arguments: object) -> Result:
    """Run `report`, and return its result."""
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


@pytest.fixture
def reported(tmp_path: Path) -> Path:
    """A record with report-only answers of a gate and of rules, and with answers of a gate in force."""
    book = Book()
    for number, action in enumerate(["deny", "ask_user", "deny"]):
        guard = {"hook": "guard", "action": "continue", "would": {"action": action, "reason": f"\x1b[2Jno {number}"}}
        other = {"hook": "other", "action": "deny"}
        book.add("outcome", {"event": "tool:pre", "tool": "Bash", "session": f"s{number}", "answers": [guard, other]})
    rules = {"hook": "rule:no-rm", "tool": "Bash", "would": {"action": "deny", "reason": None}, "session": "s0"}
    return book.add("rules.reported", {"event": "tool:pre", **rules}).close().files(tmp_path)[1]


@pytest.mark.rule("CLI-9", "DSP-11")
def test_the_report(reported: Path) -> None:
    """The report counts the answers of each hook and rule by action, and shows the latest of each."""
    told = report(reported, "--last", 1)
    assert (told.exit_code, told.stderr) == (0, "")
    first, latest, rule, of_rule = told.stdout.splitlines()
    assert first == "guard (report-only: it stops nothing) would have denied 2, asked about 1"
    assert latest.endswith("  denied Bash: \\u{1B}[2Jno 2")
    assert rule == "rule:no-rm (report-only: it stops nothing) would have denied 1"
    assert of_rule.endswith("  denied Bash")


@pytest.mark.rule("CLI-9", "CLI-3")
def test_the_report_for_programs(reported: Path) -> None:
    """With --json the report is one JSON value; --session limits it; a record without such answers says so."""
    [guard] = json.loads(report(reported, "--session", "s1", "--json").stdout)
    assert (guard["hook"], guard["would"], guard["latest"][0]["tool"]) == ("guard", {"ask_user": 1}, "Bash")
    told = report(reported, "--session", "none")
    assert (told.exit_code, told.stdout) == (0, "")
    assert "no answer of a report-only hook" in told.stderr


@pytest.mark.rule("DSP-11", "AUD-6")
def test_the_lines_of_the_record(reported: Path) -> None:
    """A line of the record says of a report-only answer that it stops nothing."""
    told = run("tail", reported)
    assert "guard would have answered deny, but is report-only: it stops nothing" in told.stdout


# -- ledger ------------------------------------------------------------------------------------------------------------


def ledger(*arguments: str) -> Result:
    """Run `ledger`, and return its result."""
    return CliRunner().invoke(app, ["ledger", *arguments])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This user's state, with a ledger of two sessions in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def called() -> None:
        registry = HookRegistry()
        async with ToolLedger() as kept:
            kept.register(registry)
            for number in (1, 2):
                async with SessionCoordinator(registry, session_id=f"s{number}") as session, session.turn("go"):
                    await session.call_tool("Read", {"path": f"a{number}\u202e\n"}, lambda value: "text")
                    await session.call_tool("Write", {"password": "hunter2-hunter2"}, lambda value: 1 / 0)

    asyncio.run(called())
    return tmp_path


@pytest.mark.rule("LIB-2", "CLI-3")
def test_the_ledger(home: Path) -> None:
    """Each call is one line, the latest last, without control codes."""
    lines = ledger().stdout.splitlines()
    assert [line.split()[2:4] for line in lines] == [["ok", "Read"], ["failed", "Write"]] * 2
    assert "a1\\u{202E}" in lines[0]
    assert "(ZeroDivisionError: division by zero)" in lines[1]
    assert "hunter2" not in ledger().output
    assert len(ledger("--session", "s1").stdout.splitlines()) == 2
    assert len(ledger("--status", "failed", "--limit", "1").stdout.splitlines()) == 1
    assert (
        ledger("--store", str(home / "amplifier-hooks" / "ledger.db"), "--tool", "Read").stdout.splitlines()
        == lines[::2]
    )


@pytest.mark.rule("LIB-2", "CLI-3")
def test_the_ledger_for_programs(home: Path) -> None:
    """With --json each call is one value, with all its facts."""
    first = json.loads(ledger("--json", "--session", "s2").stdout.splitlines()[0])
    assert (first["tool"], first["status"], first["output"]) == ("Read", "ok", "text")
    assert len(first["digest"]) == 64


@pytest.mark.rule("LIB-2", "CLI-3")
def test_the_ledger_is_not_there(home: Path, tmp_path: Path) -> None:
    """An empty list is reported; listing makes no ledger."""
    nothing = ledger("--tool", "Fetch")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "The ledger has no such calls.\n")
    missing = ledger("--store", str(tmp_path / "none.db"))
    assert missing.exit_code == 1
    assert "There is no ledger at" in missing.stderr
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "other.db").write_text("no database")
    (tmp_path / "other.db").chmod(0o600)
    broken = ledger("--store", str(tmp_path / "other.db"))
    assert (broken.exit_code, broken.stdout) == (1, "")
    assert "The ledger cannot be read: the store is damaged" in broken.stderr


@pytest.mark.rule("LIB-2", "CLI-3")
def test_the_ledger_called_wrongly(home: Path) -> None:
    """The error about an unknown status lists the known ones."""
    wrong = ledger("--status", "done")
    assert wrong.exit_code == 2
    assert "'done' is not one of 'ok', 'failed', 'denied'" in wrong.stderr.replace("\n", " ")
