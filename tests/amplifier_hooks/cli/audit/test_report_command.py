"""`amplifier-hooks report`: the answers of report-only hooks and rules on a record."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from amplifier_hooks.cli.app import app
from tests.logbook import Book

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


def run(*arguments: object) -> Result:
    """Run the command, and return its result."""
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A record with report-only answers of a gate and of rules, and with answers of a gate in force."""
    book = Book()
    for number, action in enumerate(["deny", "ask_user", "deny"]):
        guard = {"hook": "guard", "action": "continue", "would": {"action": action, "reason": f"\x1b[2Jno {number}"}}
        other = {"hook": "other", "action": "deny"}
        book.add("outcome", {"event": "tool:pre", "tool": "Bash", "session": f"s{number}", "answers": [guard, other]})
    rules = {"hook": "rule:no-rm", "tool": "Bash", "would": {"action": "deny", "reason": None}, "session": "s0"}
    return book.add("rules.reported", {"event": "tool:pre", **rules}).close().files(tmp_path)[1]


@pytest.mark.rule("CLI-9", "DSP-11")
def test_the_report(record: Path) -> None:
    """The report counts the answers of each hook and rule by action, and shows the latest of each."""
    told = run("report", record, "--last", 1)
    assert (told.exit_code, told.stderr) == (0, "")
    first, latest, rule, of_rule = told.stdout.splitlines()
    assert first == "guard (report-only: it stops nothing) would have denied 2, asked about 1"
    assert latest.endswith("  denied Bash: \\u{1B}[2Jno 2")
    assert rule == "rule:no-rm (report-only: it stops nothing) would have denied 1"
    assert of_rule.endswith("  denied Bash")


@pytest.mark.rule("CLI-9", "CLI-3")
def test_the_report_for_programs(record: Path) -> None:
    """With --json the report is one JSON value; --session limits it; a record without such answers says so."""
    [guard] = json.loads(run("report", record, "--session", "s1", "--json").stdout)
    assert (guard["hook"], guard["would"], guard["latest"][0]["tool"]) == ("guard", {"ask_user": 1}, "Bash")
    told = run("report", record, "--session", "none")
    assert (told.exit_code, told.stdout) == (0, "")
    assert "no answer of a report-only hook" in told.stderr


@pytest.mark.rule("DSP-11", "AUD-6")
def test_the_lines_of_the_record(record: Path) -> None:
    """A line of the record says of a report-only answer that it stops nothing."""
    told = run("audit", "tail", record)
    assert "guard would have answered deny, but is report-only: it stops nothing" in told.stdout
