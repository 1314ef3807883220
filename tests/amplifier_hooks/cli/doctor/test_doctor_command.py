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
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve
from typer.testing import CliRunner

from amplifier_hooks.cli.app import app
from amplifier_hooks.cli.doctor import check_machine, check_project
from amplifier_hooks.cli.doctor.check_machine import Patient, run_checks
from amplifier_hooks.cli.doctor.doctor_command import checks
from amplifier_hooks.record.log import AuditLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from amplifier_hooks.cli.doctor.check_machine import Symptom


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patient:
    """An empty project, with a state folder of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AMPLIFIER_HOOKS_STORE", raising=False)
    (tmp_path / "project").mkdir()
    (tmp_path / "run").mkdir()
    return Patient(folder=tmp_path / "project", environment={}, port=free_port())


def free_port() -> int:
    """Return a port that is free at the moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def states(found: Iterable[Symptom]) -> set[str]:
    """Return the states of symptoms."""
    return {finding.state for finding in found}


def only(found: Iterable[Symptom], state: str) -> list[Symptom]:
    """Return the symptoms of a state."""
    return [finding for finding in found if finding.state == state]


def config(patient: Patient, text: str) -> None:
    """Write the project's file."""
    (patient.folder / "amplifier-hooks.yaml").write_text(text)


@pytest.mark.rule("CLI-5")
def test_everything_is_looked_at(patient: Patient) -> None:
    """On a working machine nothing has failed, every check reports, and every other finding has its repair."""
    found = list(run_checks(checks(), patient))
    assert {finding.about for finding in found} == {*checks()} - {"hooks", "programs"}
    assert "failed" not in states(found)
    assert all(finding.repair for finding in found if finding.state in ("warning", "failed"))


@pytest.mark.rule("CLI-5", "CLI-3")
def test_as_json_and_quiet(patient: Patient) -> None:
    """JSON has every finding; --quiet only warnings and failures; the exit code is 1 after a failure."""
    options = ["--directory", str(patient.folder), "--port", str(patient.port)]
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
        (["--directory", "/nowhere"], "/nowhere is no folder"),
        (["--port", "0"], "greater than or equal to 1"),
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
    (found,) = only(check_project.config(evolve(patient, folder=folder)), "failed")
    typed = shlex.split(found.repair.partition("then: ")[2])
    assert typed == ["amplifier-hooks", "validate", str(folder / "amplifier-hooks.yaml")]


@pytest.mark.rule("CLI-5")
def test_a_check_that_breaks(patient: Patient) -> None:
    """A check that raises has failed, and the others go on."""

    def broken(_patient: Patient) -> Iterable[Symptom]:
        raise RuntimeError("oops")

    found = list(run_checks({"broken": broken, "python": check_machine.python}, patient))
    assert [(finding.about, finding.state) for finding in found] == [("broken", "failed"), ("python", "ok")]
    assert "RuntimeError: oops" in found[0].text


# -- the project -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CLI-5")
def test_config(patient: Patient) -> None:
    """A file that is missing is a note; one with mistakes has failed, with a finding for each and its line."""
    assert only(check_project.config(patient), "note")[0].repair == "amplifier-hooks init"
    config(patient, "version: 1\nhooks:\n  - {name: a, event_type: 3}\n")
    failed = only(check_project.config(patient), "failed")
    assert len(failed) == 2
    assert all(re.search(r"amplifier-hooks\.yaml:\d", finding.text) for finding in failed)
    config(patient, "version: 1\nsettings: {hooks_enabled: false}\n")
    assert "nothing runs" in only(check_project.config(patient), "warning")[0].text


HOOK = "  - {{name: {name}, event_type: tool:pre, handler_ref: {kind}, config: {config}}}\n"


@pytest.mark.rule("CLI-5")
@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("command", "{argv: [./guard.sh]}", "'./guard.sh' is not there, or is not executable"),
        ("command", "{argv: [python3, missing.py]}", "the script 'missing.py'"),
        ("command", "{argv: [sh, -c, ls], pass_env: [SHOP_KEY]}", "the variable SHOP_KEY is not set"),
        ("command", "{argv: [sh, -c, true]}", "pass a list of strings"),
        ("http", "{url: 'ftp://example.com', secret_env: SHOP_SECRET}", "ftp"),
        ("http", "{url: 'https://example.com/hook'}", "it has no secret"),
        ("http", "{url: 'https://example.com/hook', secret_env: SHOP_SECRET}", "the variable SHOP_SECRET is not set"),
    ],
)
def test_hooks_that_could_not_run(patient: Patient, kind: str, settings: str, said: str) -> None:
    """The doctor finds a missing command, an address that is not allowed, and a secret that is not set."""
    config(patient, "version: 1\nhooks:\n" + HOOK.format(name="guard", kind=kind, config=settings))
    failed = only(check_project.hooks(patient), "failed")
    assert any(said in finding.text for finding in failed), failed
    assert all(":3: guard: " in finding.text for finding in failed)


@pytest.mark.rule("CLI-5", "LIB-1")
def test_ready_made(patient: Patient) -> None:
    """A ready-made hook whose settings cannot work has failed; one whose program is not there is a warning."""
    config(
        patient,
        "version: 1\nlibrary:\n  linter_feedback: {command: [no-such-linter, '{file}']}\n  rate_limit: {cals: 3}\n",
    )
    found = list(check_project.hooks(patient))
    assert "linter_feedback is off: no-such-linter not found" in only(found, "warning")[0].text
    assert "did you mean 'calls'?" in only(found, "failed")[0].text
    assert all(re.search(r"amplifier-hooks\.yaml:\d", finding.repair) for finding in found)


@pytest.mark.rule("CLI-5")
def test_hooks_that_are_nowhere(patient: Patient) -> None:
    """The doctor finds unknown hooks and functions, with the nearest names, and imports nothing for it."""
    (patient.folder / "here.py").write_text("raise SystemExit(7)\n")
    python = "  - {{name: {name}, event_type: tool:pre, handler_ref: '{name}:gate'}}\n"
    hooks = "".join(python.format(name=name) for name in ("here", "nowhere"))
    config(patient, f"version: 1\nlibrary: {{rate_limit: {{}}, redact_secret: {{}}}}\nhooks:\n{hooks}")
    found = list(check_project.hooks(patient))
    assert [finding.text.partition(": ")[2] for finding in only(found, "failed")] == [
        "no installed package has a hook called 'redact_secret'; did you mean 'redact_secrets'?",
        "nowhere: nothing called 'nowhere:gate' is found beside the file or among what is installed",
    ]
    assert [finding.text for finding in only(found, "ok")] == ["rate_limit: ready-made", "here: here:gate at tool:pre"]


@pytest.mark.rule("CLI-5")
def test_hooks_that_could(patient: Patient) -> None:
    """A hook with an existing command, and one with an address and its secret, are in order."""
    guard = patient.folder / "guard.sh"
    guard.write_text("#!/bin/sh\n")
    guard.chmod(0o755)
    one = HOOK.format(name="one", kind="command", config="{argv: [./guard.sh]}")
    two = HOOK.format(name="two", kind="http", config="{url: 'https://example.com/h', secret_env: SHOP_SECRET}")
    config(patient, f"version: 1\nhooks:\n{one}{two}")
    there = Patient(folder=patient.folder, environment={"SHOP_SECRET": "whsec_c2VjcmV0"})
    assert states(check_project.hooks(there)) == {"ok"}


@pytest.mark.rule("CLI-5", "TRU-2")
def test_other_programs(patient: Patient) -> None:
    """Untrusted hooks of other programs are noted, with the command that shows them."""
    settings = patient.folder / ".claude" / "settings.json"
    settings.parent.mkdir()
    hooks = {"PreToolUse": [{"hooks": [{"type": "command", "command": "missing-program", "args": []}]}]}
    settings.write_text(json.dumps({"hooks": hooks}))
    found = list(check_project.other_programs(patient))
    assert only(found, "note")[0].repair == f"amplifier-hooks import claude-code {settings}"
    assert "'missing-program' is not there" in only(found, "warning")[0].text
    settings.write_text("{")
    assert states(check_project.other_programs(patient)) == {"failed"}


PLUGIN = """[amplifier_hooks.hooks]
fine = amplifier_hooks.registry.registry:HookRegistry
gone = no_such_module:register
mad = {mad}:register
"""


@pytest.mark.rule("CLI-5")
def test_plugins(patient: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins that cannot be imported are found by name, also one that takes its process with it."""
    site = tmp_path / "site"
    info = site / "shop_hooks-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-hooks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(PLUGIN.format(mad="shop_mad"))
    (site / "shop_mad.py").write_text("import os\nos._exit(3)\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    assert "shop-hooks" in {one.name for one in metadata.distributions()}
    failed = only(check_project.plugins(patient), "failed")
    assert [re.sub(r" of .*imported:", ":", finding.text) for finding in failed] == [
        "gone: ModuleNotFoundError: No module named 'no_such_module'",
        "mad: the process ended with exit status 3",
    ]
    assert failed[0].repair == "pip install --force-reinstall shop-hooks"


# -- places ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CLI-5")
def test_state(patient: Patient, tmp_path: Path) -> None:
    """The doctor finds a state folder that others can read, and its command repairs the folder."""
    folder = tmp_path / "state" / "amplifier-hooks"
    assert states(check_machine.state(patient)) == {"ok"}
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    (found,) = check_machine.state(patient)
    assert found.state == "warning"
    subprocess.run(shlex.split(found.repair), check=True)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert states(check_machine.state(patient)) == {"ok"}


@pytest.mark.rule("CLI-5")
@pytest.mark.parametrize("store", ["nowhere.db", "postgresql://user:secret@127.0.0.1:1/shop", "mysql://x"])
def test_store(patient: Patient, store: str) -> None:
    """A store that cannot be reached has failed, and no password is shown."""
    (found,) = check_machine.approvals(Patient(folder=patient.folder, store=store))
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
    assert states(check_machine.record(asked)) == {"ok"}
    path.write_bytes(path.read_bytes().replace(b"session.began", b"session.ended"))
    (found,) = check_machine.record(asked)
    assert (found.state, "tampered" in found.text) == ("failed", True)
    assert f"amplifier-hooks audit verify {path} --key {path.with_name('audit.key.pub')}" in found.repair


@pytest.mark.rule("CLI-5")
def test_ports(patient: Patient, tmp_path: Path) -> None:
    """The doctor finds a taken port and a socket that was left behind."""
    assert states(check_machine.ports(patient)) == {"ok"}
    with socket.socket() as taken, socket.socket(socket.AF_UNIX) as left:
        taken.bind(("127.0.0.1", patient.port))
        taken.listen()
        left.bind(str(tmp_path / "run" / "amplifier-hooks.sock"))
        found = list(check_machine.ports(patient))
    assert [finding.state for finding in found] == ["warning", "warning"]
    assert found[1].repair == f"rm {tmp_path / 'run' / 'amplifier-hooks.sock'}"


# -- the machine -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CLI-5")
def test_clock(patient: Patient, tmp_path: Path) -> None:
    """The doctor finds a clock that is behind the latest record."""
    assert states(check_machine.clock(patient)) == {"ok"}
    record = tmp_path / "state" / "amplifier-hooks" / "record.jsonl"
    record.parent.mkdir(parents=True)
    record.touch()
    os.utime(record, (time.time() + 3600,) * 2)
    assert states(check_machine.clock(patient)) == {"warning"}


@pytest.mark.rule("CLI-5", "INJ-5")
def test_counters(patient: Patient) -> None:
    """The doctor names the method that counts each model's tokens, and calls an estimate one."""
    named = Patient(folder=patient.folder, environment={"OPENAI_MODEL": "qwen3"})
    said = {finding.text.partition(":")[0]: finding.text for finding in check_machine.counters(named)}
    assert said["gpt-5"] == "gpt-5: tiktoken:o200k_base, exact"
    assert "an estimate" in said["qwen3"]


@pytest.mark.rule("CLI-5")
def test_extras(patient: Patient) -> None:
    """An incomplete extra is noted with the command that installs it."""
    found = list(check_machine.extras(patient))
    assert found[0].text.startswith("installed: ")
    assert all(re.fullmatch(r"(uv )?pip install 'amplifier-hooks\[[\w-]+\]'", finding.repair) for finding in found[1:])


@pytest.mark.rule("CLI-5")
def test_missing_extra(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook or a store whose extra is missing has failed, and the repair installs that extra."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    config(patient, "version: 1\nlibrary:\n  metrics: {}\n")
    looked_at = {"hooks": check_project.hooks, "approvals": check_machine.approvals}
    found = list(run_checks(looked_at, evolve(patient, store="postgresql://127.0.0.1:1/shop")))
    assert states(found) == {"failed"}
    extras = [finding.repair.partition("pip install ")[2] for finding in found]
    assert extras == ["'amplifier-hooks[server]'", "'amplifier-hooks[postgres]'"]


@pytest.mark.rule("CLI-5")
@pytest.mark.parametrize(
    "check", [check_machine.packages, check_machine.data, check_machine.telemetry, check_machine.terminal]
)
def test_machine(check: Callable[[Patient], Iterable[Symptom]], patient: Patient) -> None:
    """A complete installation has no warnings and no failures."""
    assert states(check(patient)) <= {"ok", "note"}


@pytest.mark.rule("CLI-5", "CLI-3")
def test_repairs_are_commands() -> None:
    """Every command of ours in a repair exists."""
    sources: list[Any] = [check_machine, check_project, check_machine]
    text = "".join(Path(module.__file__).read_text(encoding="utf-8") for module in sources)
    named = sorted(set(re.findall(r"[\"`: ]amplifier-hooks ((?:[a-z]+ ?)+)", text)))
    assert named
    for words in named:
        told = CliRunner().invoke(app, [words.split()[0], "--help"])
        assert told.exit_code == 0, words
