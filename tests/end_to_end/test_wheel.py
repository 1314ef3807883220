"""The wheel alone, without any extra: every command works, or names the extra that it needs."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from typer.main import get_command

from amplifier_hooks.cli.app import app
from approval_backends.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.rule("PKG-1", "CLI-3")

ROOT: Final = Path(__file__).parents[2]
SERVER: Final = "postgresql://127.0.0.1:9/nothing"
MISSING: Final = re.compile(r"needs the extra '([\w-]+)': pip install 'amplifier-hooks\[\1\]'")
FILES: Final = {
    "amplifier-hooks.yaml": "version: 1\nlibrary:\n  redact_secrets: {}\n",
    "metrics.yaml": "version: 1\nlibrary:\n  metrics: {}\n",
    "telemetry.yaml": "version: 1\nlibrary:\n  metrics: {prometheus: false, opentelemetry: true}\n",
    "web.yaml": "version: 1\nhooks:\n- {name: a, event_type: tool:pre, handler_ref: http, "
    "config: {url: 'https://example.com', secret_env: HOME}}\n",
    "schema.yaml": "version: 1\nlibrary:\n  schema_guard: {tools: {Bash: {input_schema: {type: object}}}}\n",
    "rules.yaml": "version: 1\nrules:\n- {id: reads, action: allow, tool: Read, other_arguments: any, hooks: '*'}\n",
    "settings.json": "{}",
    "record.jsonl": "",
    "functions.py": "AGENTS = {}\n",
}
"""The files of the folder in which every command is called."""
CALLS: Final[tuple[tuple[str, str, str], ...]] = (
    ("demo", "--no-input --fast", ""),
    ("init", "--directory empty", "yaml"),
    ("validate", "", "yaml"),
    ("list", "", "yaml"),
    ("test", "tool:pre --tool Bash --run", "yaml"),
    ("chat", "--directory empty --provider openai --prompt hello", "chat"),
    ("chat", "--directory empty --prompt hello", ""),
    ("doctor", "", "yaml"),
    ("ledger", "", ""),
    ("replay", "empty --from claude-code", "yaml"),
    ("report", "record.jsonl", ""),
    ("import", "claude-code settings.json", ""),
    ("install", "claude-code --yes", ""),
    ("uninstall", "claude-code --yes", ""),
    ("serve", "", "server"),
    ("serve", "--programs", "server"),
    ("serve", "--programs --http 0", "server"),
    ("serve", "--programs --web --port 0", "server"),
    ("serve", "--api --api-port 0", "server"),
    ("serve", "--hooks telemetry.yaml", "yaml"),
    ("serve", "--web --port 0", ""),
    ("stop", "--session nothing --why test", ""),
    ("resume", "--session nothing --yes", ""),
    ("bridge", "claude-code", ""),
    ("approvals list", "", ""),
    ("approvals show", "abcd", ""),
    ("approvals allow", "abcd", ""),
    ("approvals deny", "abcd", ""),
    ("approvals grants", "", ""),
    ("approvals revoke", "abcd", ""),
    ("approvals purge", "--yes", ""),
    ("approvals watch", "", ""),
    ("approvals rules check", "rules.yaml", "yaml"),
    ("approvals rules explain", "rules.yaml --tool Bash", "yaml"),
    ("audit verify", "record.jsonl", ""),
    ("audit tail", "record.jsonl", ""),
    ("audit show", "record.jsonl", ""),
    ("audit accept", "record.jsonl --yes", ""),
    ("runs check", "blueprints", ""),
    ("runs serve", "blueprints --port 0", "server"),
    ("runs work", "functions:AGENTS --url http://127.0.0.1:9", "http"),
    ("runs submit", "writer --url http://127.0.0.1:9", "http"),
    ("runs list", "--url http://127.0.0.1:9", "http"),
    ("runs show", "run_1 --url http://127.0.0.1:9", "http"),
    ("runs stop", "run_1 --url http://127.0.0.1:9", "http"),
    ("runs purge", "--yes", ""),
    ("token create", "ci --scope hooks:read", ""),
    ("token list", "", ""),
    ("token revoke", "tok_1", ""),
)
"""Command, arguments, and the extra that it needs then."""
WITH_YAML: Final[tuple[tuple[str, str, str], ...]] = (
    ("init", "--directory empty", ""),
    ("validate", "", ""),
    ("validate", "metrics.yaml", "server"),
    ("validate", "telemetry.yaml", "otel"),
    ("validate", "web.yaml", "http"),
    ("validate", "schema.yaml", "schemas"),
    ("list", "", ""),
    ("test", "tool:pre --tool Bash --run", ""),
    ("test", "tool:pre --tool Bash --run --hooks metrics.yaml", "server"),
    ("chat", "--hooks amplifier-hooks.yaml --prompt hello", ""),
    ("doctor", "", ""),
    ("replay", "empty --from claude-code", ""),
    ("serve", "--hooks telemetry.yaml", "otel"),
    ("approvals rules check", "rules.yaml", ""),
    ("approvals rules explain", "rules.yaml --tool Bash", ""),
)
"""Calls with the extra for YAML, which comes before others that a file needs."""


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Each command that does something, by its path."""
    command = get_command(app) if command is None else command
    if not hasattr(command, "commands"):
        yield " ".join(path), command
    for name, one in getattr(command, "commands", {}).items():
        yield from commands(one, (*path, name))


def server_calls() -> Iterator[tuple[str, str]]:
    """The last call of each command that takes a store, with a store on a database server."""
    last = {path: arguments for path, arguments, _ in CALLS}
    for path, command in commands():
        if path != "approvals watch" and any("--store" in option.opts for option in command.params):  # wants a terminal
            yield path, f"{last[path]} --store {SERVER}"


def test_every_command_is_called() -> None:
    """No command is left out of the calls."""
    assert {path for path, _, _ in CALLS} == {path for path, _ in commands()}


def install(folder: Path, extra: str = "") -> Path:
    """Return the command of a fresh environment with the wheel and what it requires, pinned as here."""
    uv = shutil.which("uv") or os.environ.get("UV")
    if uv is None:
        pytest.skip("uv is not there to build and install a wheel")
    pins = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["uv"]["constraint-dependencies"]
    (folder / "pins.txt").write_text("\n".join(pins))

    def run(*words: str | Path) -> None:
        done = subprocess.run([uv, *words], check=False, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    run("build", "--quiet", "--wheel", "--out-dir", folder, ROOT)
    run("venv", "--quiet", "--no-project", "--python", sys.executable, folder / "env")
    wheel = next(folder.glob("*.whl"))
    run("pip", "install", "--quiet", "--python", folder / "env", "--constraint", "pins.txt", f"{wheel}{extra}")
    return folder / "env" / "bin" / "amplifier-hooks"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command without extras."""
    return install(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def with_yaml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command with the extra for YAML."""
    return install(tmp_path_factory.mktemp("wheel-with-yaml"), "[yaml]")


async def make_store(path: Path) -> None:
    """Make a store of approvals with nothing in it."""
    async with SqliteStore(path):
        pass


def call(command: Path, words: str, folder: Path) -> tuple[int, str, str]:
    """Call the command in a fresh home, and stop a server once it serves; return exit status, output and messages."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "blueprints").mkdir()
    (folder / "empty").mkdir()
    state = folder / "home" / ".local" / "state" / "amplifier-hooks"
    state.mkdir(mode=0o700, parents=True)
    asyncio.run(make_store(state / "approvals.db"))
    environment = {"HOME": str(folder / "home"), "PATH": os.defpath, "AMPLIFIER_HOOKS_TOKEN": "x"}
    with (folder / "out").open("w+", encoding="utf-8") as output:
        running = subprocess.Popen(
            [command, *words.split()],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
        )
        messages = ""
        assert running.stderr is not None
        for line in running.stderr:
            messages += line
            if "Ctrl-C" in line:
                running.send_signal(signal.SIGINT)
        status = running.wait()
        running.stderr.close()
        output.seek(0)
        return status, output.read(), messages


@pytest.mark.slow
def test_the_default_install_is_small(installed: Path) -> None:
    """The wheel requires at most 30 distributions, and all files together have at most 60 MB before they compile."""
    (site,) = installed.parents[1].glob("lib/*/site-packages")
    assert len(list(site.glob("*.dist-info"))) in range(2, 32)  # with the wheel itself
    assert sum(file.stat().st_size for file in site.rglob("*") if file.is_file() and file.suffix != ".pyc") <= 60e6


@pytest.mark.slow
@pytest.mark.rule("PKG-6")
def test_the_wheel_has_the_skill(installed: Path) -> None:
    """The wheel brings the skill for coding agents, at the place where they look for the skills of a package."""
    (site,) = installed.parents[1].glob("lib/*/site-packages")
    skill = site / "amplifier_hooks" / ".agents" / "skills" / "amplifier-hooks" / "SKILL.md"
    here = ROOT / skill.relative_to(site)
    assert skill.read_bytes() == here.read_bytes()


def check_call(command: Path, words: str, extra: str, folder: Path) -> None:
    """Check that a call works, or names the extra that it needs and the command that installs it."""
    status, output, messages = call(command, words, folder)
    assert "Traceback" not in output + messages
    if extra:
        assert status in (1, 2)
        assert set(MISSING.findall(output + messages)) == {extra}
    else:
        assert "Usage:" not in messages
        assert "needs the extra" not in output + messages


@pytest.mark.slow
@pytest.mark.parametrize(("path", "arguments", "extra"), CALLS, ids=lambda value: value or "-")
def test_without_extras(path: str, arguments: str, extra: str, installed: Path, tmp_path: Path) -> None:
    """A command works without extras, or names the one that it needs and the command that installs it."""
    check_call(installed, f"{path} {arguments}", extra, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "arguments", "extra"), WITH_YAML, ids=lambda value: value or "-")
def test_with_yaml(path: str, arguments: str, extra: str, with_yaml: Path, tmp_path: Path) -> None:
    """With YAML a command works, or names the extra that a hook in the file needs."""
    check_call(with_yaml, f"{path} {arguments}", extra, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "arguments"), list(server_calls()))
def test_database_server_without_extras(path: str, arguments: str, installed: Path, tmp_path: Path) -> None:
    """A command that is given a store on a database server names an extra that it needs for that."""
    status, output, messages = call(installed, f"{path} {arguments}", tmp_path)
    assert status in (1, 2)
    assert "Traceback" not in output + messages
    assert MISSING.search(output + messages)
