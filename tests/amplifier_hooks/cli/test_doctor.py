"""`amplifier-hooks doctor`: its findings, and the effect of its repairs."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from typer.testing import CliRunner

from amplifier_hooks.cli.app import app
from amplifier_hooks.cli.common.posting import keep_port
from amplifier_hooks.cli.doctor import CHECKS, Patient, run_checks
from amplifier_hooks.cli.project.read_project import list_trusted
from amplifier_hooks.definitions import TrustStore, load_files
from amplifier_hooks.programs.dialects import CLAUDE_CODE, CODEX
from amplifier_hooks.programs.guarded_processes import marked
from amplifier_hooks.programs.install_hook import Bridge, with_bridge
from amplifier_hooks.record.log import AuditLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_hooks.cli.doctor import Findings, Symptom


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patient:
    """An empty project, with a state folder and marks of its own: other commands of this user may run meanwhile."""
    monkeypatch.setattr("amplifier_hooks.programs.guarded_processes.marks_folder", lambda: tmp_path / "guarded")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AMPLIFIER_HOOKS_STORE", raising=False)
    (tmp_path / "project").mkdir()
    (tmp_path / "run").mkdir()
    return Patient(folder=tmp_path / "project")


def looked(about: str, patient: Patient) -> list[Symptom]:
    """Return the symptoms of one check."""
    return list(run_checks({about: CHECKS[about]}, patient))


def states(found: Iterable[Symptom]) -> set[str]:
    """Return the states of symptoms."""
    return {finding.state for finding in found}


def only(found: Iterable[Symptom], state: str) -> list[Symptom]:
    """Return the symptoms of a state."""
    return [finding for finding in found if finding.state == state]


def config(patient: Patient, text: str, *, trusted: bool = False) -> None:
    """Write the project's file, and trust it as it is if wanted."""
    path = patient.folder / "amplifier-hooks.yaml"
    path.write_text(text)
    if trusted:
        found, trust = load_files(path), TrustStore()
        trust.trust(str(path), [list_trusted(found, path, trust).listed])


@pytest.mark.rule("CLI-5", "DIA-5")
def test_a_program_that_asks_us(patient: Patient) -> None:
    """Our own entries in a program's settings are no foreign hooks; without a server the doctor names the command."""
    path = patient.folder / ".claude" / "settings.local.json"
    path.parent.mkdir()
    settings = with_bridge({}, CLAUDE_CODE, Bridge(python="python3", file="/x/amplifier_hooks/bridge.py", socket="/s"))
    path.write_text(json.dumps(settings))
    asks, silent = looked("programs", patient)
    assert (asks.state, "Claude Code asks amplifier-hooks" in asks.text) == ("ok", True)
    assert (silent.state, silent.repair) == (
        "warning",
        "amplifier-hooks serve --programs --web --hooks amplifier-hooks.yaml",
    )


@pytest.mark.rule("CLI-5", "DIA-5")
def test_a_hook_that_codex_skips(patient: Patient) -> None:
    """A hook that its user has not reviewed in Codex guards nothing: the doctor says so until Codex notes it."""
    path = patient.folder / ".codex" / "hooks.json"
    path.parent.mkdir()
    path.write_text(json.dumps(with_bridge({}, CODEX, Bridge())))
    (skipped,) = (one for one in looked("programs", patient) if "silently" in one.text)
    assert (skipped.state, "Trust all and continue" in skipped.repair) == ("warning", True)
    notes = CODEX.in_home().with_name("config.toml")
    notes.parent.mkdir(parents=True)
    notes.write_text(f'[hooks.state."{path}:pre_tool_use:0:0"]\ntrusted_hash = "sha256:0"\n')
    assert not [one for one in looked("programs", patient) if "silently" in one.text]


@pytest.mark.rule("CLI-5")
def test_what_is_not_in_use_is_not_looked_at(patient: Patient) -> None:
    """On a working machine nothing has failed, and parts that are not in use have no finding."""
    settings = patient.folder / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"telemetry": {"enabled": false}}')  # a program without hooks
    found = list(run_checks(CHECKS, patient))
    assert {finding.about for finding in found} == {"python", "terminal", "hooks", "state"}
    assert "failed" not in states(found)
    assert all(finding.repair for finding in found if finding.state in ("warning", "failed"))


@pytest.mark.rule("CLI-5", "CLI-3")
def test_as_json_and_quiet(patient: Patient) -> None:
    """JSON has every finding; --quiet only warnings and failures; the exit code is 1 after a failure."""
    options = ["--directory", str(patient.folder)]
    told = CliRunner().invoke(app, ["doctor", "--json", *options])
    value = json.loads(told.stdout)
    assert (told.exit_code, value["ok"]) == (0, True)
    assert {"about", "state", "text", "repair"} == set(value["checks"][0])
    assert CliRunner().invoke(app, ["doctor", "--quiet", *options]).stdout == ""
    config(patient, "version: 1\nhooks:\n  - {name: x\n")
    told = CliRunner().invoke(app, ["doctor", *options])
    assert told.exit_code == 1
    assert "repair: mend it there, then: amplifier-hooks validate" in told.stdout
    assert "1 failed" in told.stderr


@pytest.mark.rule("CLI-5", "CLI-3")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--directory", "/nowhere"], "dir '/nowhere' does not exist"),
        (["--jsn"], "--json"),
    ],
)
def test_called_wrongly(patient: Patient, options: list[str], said: str) -> None:
    """A wrong call is an error with the nearest name."""
    told = CliRunner().invoke(app, ["doctor", *options], env={"COLUMNS": "200"})
    assert told.exit_code == 2
    assert said in told.stderr


@pytest.mark.rule("CLI-5", "CLI-3")
def test_a_repair_can_be_typed(patient: Patient) -> None:
    """A repair is a valid command line, also for folders with odd names."""
    folder = patient.folder / "a b;c"
    folder.mkdir()
    (folder / "amplifier-hooks.yaml").write_text("version: 2\n")
    (found,) = only(looked("hooks", evolve(patient, folder=folder)), "failed")
    typed = shlex.split(found.repair.partition("then: ")[2])
    assert typed == ["amplifier-hooks", "validate", str(folder / "amplifier-hooks.yaml")]


@pytest.mark.rule("CLI-5")
def test_a_check_that_breaks(patient: Patient) -> None:
    """A check that raises has failed, and the others go on."""

    def broken(_patient: Patient) -> Findings:
        raise RuntimeError("oops")

    found = list(run_checks({"broken": broken, "python": CHECKS["python"]}, patient))
    assert [(finding.about, finding.state) for finding in found] == [("broken", "failed"), ("python", "ok")]
    assert "RuntimeError: oops" in found[0].text


# -- the project -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CLI-5")
def test_a_file_of_hooks(patient: Patient) -> None:
    """A file that is missing is a note; one with mistakes has failed, with a finding for each and its line."""
    assert only(looked("hooks", patient), "note")[0].repair == "amplifier-hooks init"
    config(patient, "version: 1\nhooks:\n  - {name: a, event_type: 3}\n")
    failed = only(looked("hooks", patient), "failed")
    assert len(failed) == 2
    assert all(re.search(r"amplifier-hooks\.yaml:\d", finding.text) for finding in failed)
    config(patient, "version: 1\nsettings: {hooks_enabled: false}\n")
    assert "nothing runs" in only(looked("hooks", patient), "warning")[0].text


@pytest.mark.rule("CLI-5", "LIB-1")
def test_hooks_of_a_trusted_file_are_built(patient: Patient) -> None:
    """A trusted file is built: a hook that cannot work has failed, and one that could not run is a warning."""
    hook = "  - {name: guard, event_type: tool:pre, handler_ref: command, config: {argv: [./guard.sh]}}\n"
    config(patient, f"version: 1\nhooks:\n{hook}library:\n  rate_limit: {{}}\n", trusted=True)
    found = looked("hooks", patient)
    assert "'./guard.sh' is not there" in only(found, "warning")[0].text
    config(patient, "version: 1\nlibrary:\n  rate_limit: {cals: 3}\n", trusted=True)
    assert "did you mean 'calls'?" in only(looked("hooks", patient), "failed")[0].text


@pytest.mark.rule("CLI-5", "CLI-7")
@pytest.mark.parametrize("trusted", [True, False])
def test_modules_are_imported_once_trusted(patient: Patient, *, trusted: bool) -> None:
    """The module of a trusted hook is imported, in another process; that of an untrusted one is not."""
    (patient.folder / "here.py").write_text("import os\nfrom pathlib import Path\nPath('seen').touch()\nos._exit(7)\n")
    hooks = "  - {name: here, event_type: tool:pre, handler_ref: 'here:gate'}\n"
    config(patient, f"version: 1\nhooks:\n{hooks}", trusted=trusted)
    found = looked("hooks", patient)
    assert (patient.folder / "seen").exists() is trusted
    if trusted:
        assert "ended with exit status 7" in only(found, "failed")[0].text
    else:
        assert only(found, "note")[0].repair.endswith("amplifier-hooks.yaml --trust")


@pytest.mark.rule("CLI-5", "CLI-8")
def test_settings_that_cannot_be_read(patient: Patient) -> None:
    """Settings of another program that cannot be read have failed; hooks of its own are not looked at."""
    settings = patient.folder / ".claude" / "settings.json"
    settings.parent.mkdir()
    hooks = {"PreToolUse": [{"hooks": [{"type": "command", "command": "missing-program", "args": []}]}]}
    settings.write_text(json.dumps({"hooks": hooks}))
    assert looked("programs", patient) == []
    settings.write_text("{")
    assert states(looked("programs", patient)) == {"failed"}


@pytest.mark.rule("CLI-5", "TRU-7")
def test_a_file_that_is_gone(patient: Patient) -> None:
    """The doctor finds a trusted file of hooks that is gone, and its command accepts that."""
    config(patient, "version: 1\nlibrary:\n  rate_limit: {}\n", trusted=True)
    (patient.folder / "amplifier-hooks.yaml").unlink()
    (found,) = looked("hooks", patient)
    assert found.state == "failed"
    assert "the hooks that were trusted stay in force where they run" in found.text
    words = shlex.split(found.repair.partition("then: ")[2])
    assert CliRunner().invoke(app, [*words[1:], "--trust"]).exit_code == 0
    assert states(looked("hooks", patient)) == {"note"}


@pytest.mark.rule("CLI-5", "SLF-2")
@pytest.mark.parametrize("protects", [True, False])
def test_protection(patient: Patient, *, protects: bool) -> None:
    """The doctor names each running command that protects itself against agents, and each that does not."""
    with marked(protects=protects):
        found = [one for one in looked("protection", patient) if f"process {os.getpid()} " in one.text]
        assert states(found) == {"ok" if protects else "warning"}
    assert not [one for one in looked("protection", patient) if f"process {os.getpid()} " in one.text]


# -- places ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CLI-5")
def test_state(patient: Patient, tmp_path: Path) -> None:
    """The doctor finds a state folder that others can read, and its command repairs the folder."""
    folder = tmp_path / "state" / "amplifier-hooks"
    assert states(looked("state", patient)) == {"ok"}
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    (found,) = looked("state", patient)
    assert found.state == "warning"
    subprocess.run(shlex.split(found.repair), check=True)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert states(looked("state", patient)) == {"ok"}


@pytest.mark.rule("CLI-5")
@pytest.mark.parametrize("store", ["nowhere.db", "postgresql://user:secret@127.0.0.1:1/shop", "mysql://x"])
def test_store(patient: Patient, store: str) -> None:
    """A store that cannot be reached has failed, and no password is shown."""
    (found,) = looked("approvals", Patient(folder=patient.folder, store=store))
    assert found.state == "failed"
    assert "secret" not in found.text
    assert found.repair


@pytest.mark.rule("CLI-5", "AUD-1")
async def test_record(patient: Patient, tmp_path: Path) -> None:
    """A record is verified with the key beside it, and one that was changed has failed."""
    path = tmp_path / "record.jsonl"
    log = AuditLog.open(path)
    await log.write("session.began", {"session": "s"}, durable=True)
    await log.close()
    asked = Patient(folder=patient.folder, record=path)
    assert states(looked("record", asked)) == {"ok"}
    path.write_bytes(path.read_bytes().replace(b"session.began", b"session.ended"))
    (found,) = looked("record", asked)
    assert (found.state, "tampered" in found.text) == ("failed", True)
    assert f"amplifier-hooks audit verify {path} --key {path.with_name('audit.key.pub')}" in found.repair


@pytest.mark.rule("CLI-5")
def test_socket(patient: Patient, tmp_path: Path) -> None:
    """The doctor finds a socket that was left behind."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "run" / "amplifier-hooks.sock"))
        (found,) = looked("socket", patient)
    assert (found.state, found.repair) == ("warning", f"rm {tmp_path / 'run' / 'amplifier-hooks.sock'}")


@pytest.mark.rule("CLI-5", "DIA-5")
def test_a_port_to_which_programs_post(patient: Patient, tmp_path: Path) -> None:
    """The doctor finds a server that does not listen at the port to which programs post."""
    with socket.socket() as port, socket.socket(socket.AF_UNIX) as server:
        port.bind(("127.0.0.1", 0))
        keep_port(port.getsockname()[1])
        server.bind(str(tmp_path / "run" / "amplifier-hooks.sock"))
        server.listen()
        port.listen()
        assert [finding.state for finding in looked("socket", patient)] == ["ok"]
        port.close()
        assert [finding.state for finding in looked("socket", patient)] == ["ok", "failed"]


# -- the machine -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CLI-5", "INJ-5")
def test_tokens(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor names the method that counts each named model's tokens, and calls an estimate one."""
    monkeypatch.setenv("OPENAI_MODEL", "gpt-5")
    said = {finding.text.partition(":")[0]: finding.text for finding in looked("tokens", patient)}
    assert said["gpt-5"] == "gpt-5: tiktoken:o200k_base, exact"
    assert len(said) == 1
    monkeypatch.setenv("OPENAI_MODEL", "some-model")
    (finding,) = looked("tokens", patient)
    assert "an estimate" in finding.text
    monkeypatch.delenv("OPENAI_MODEL")
    assert not list(looked("tokens", patient))


@pytest.mark.rule("CLI-5")
def test_missing_extra(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store whose extra is missing has failed, and the repair installs that extra."""
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    (found,) = looked("approvals", evolve(patient, store="postgresql://127.0.0.1:1/shop"))
    assert (found.state, found.repair) == ("failed", "pip install 'amplifier-hooks[postgres]'")


@pytest.mark.rule("CLI-5", "CLI-3")
def test_repairs_are_commands() -> None:
    """Every command of ours in a repair exists."""
    text = Path(sys.modules[Patient.__module__].__file__ or "").read_text(encoding="utf-8")
    named = sorted(set(re.findall(r"[\"`: ]amplifier-hooks ((?:[a-z]+ ?)+)", text)))
    assert named
    for words in named:
        told = CliRunner().invoke(app, [words.split()[0], "--help"])
        assert told.exit_code == 0, words


@pytest.mark.rule("CLI-5", "DSP-11")
@pytest.mark.parametrize("trusted", [True, False])
def test_a_report_only_hook_is_a_note(patient: Patient, trusted: bool) -> None:
    """A hook that only reports is a note, which names the command that shows its answers."""
    config(patient, "version: 1\nlibrary:\n  protected_paths: {report_only: true}\n", trusted=trusted)
    notes = [one for one in only(looked("hooks", patient), "note") if "protected_paths" in one.text]
    assert [one.text.partition(": ")[2] for one in notes] == ["protected_paths is report-only: it stops nothing"]
    assert notes[0].repair.startswith("amplifier-hooks report")
