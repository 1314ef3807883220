"""Rules for all commands: help, names, colours, completions, and the bridge that other programs call."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from amplifier_hooks.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every command."""
    command = get_command(app) if command is None else command
    for name, one in getattr(command, "commands", {}).items():
        yield (*path, name)
        yield from commands(one, (*path, name))


COMMANDS = sorted(commands())


def called(*arguments: str, **more: Any) -> Any:
    """Run the command, and return its result."""
    return CliRunner().invoke(app, [*arguments], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"}, **more)


@pytest.mark.rule("CLI-1", "CLI-3")
@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_begins_with_examples(path: tuple[str, ...]) -> None:
    """Every command explains itself with examples before its options: by its name, and with options that it has."""
    told = called(*path, "--help")
    assert told.exit_code == 0
    before, found, after = told.stdout.partition("Options:")
    assert found
    assert "Examples:\n" in before
    examples = re.findall(rf"amplifier-hooks {' '.join(path)}\b[^\n]*", before.partition("Examples:\n")[2])
    assert examples, before
    used = {option for line in examples for option in re.findall(r"(?<=\s)--[\w-]+", re.sub(r'"[^"]*"', "", line))}
    deeper = any(len(other) > len(path) and other[: len(path)] == path for other in COMMANDS)
    assert deeper or used <= set(re.findall(r"--[\w-]+", after)), used


@pytest.mark.rule("CLI-3")
def test_the_list_of_commands() -> None:
    """On 80 columns the list of commands cuts no sentence."""
    told = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    listed = told.stdout.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert {line.split()[0] for line in listed} == {path[0] for path in COMMANDS}
    assert not [line for line in listed if not line.endswith(".") or line.endswith("...")]


@pytest.mark.rule("CLI-3")
@pytest.mark.parametrize(
    ("arguments", "loaded"), [(["--help"], set()), (["audit", "--help"], {"audit_commands"})], ids=["all", "audit"]
)
def test_help_loads_no_other_command(arguments: list[str], loaded: set[str]) -> None:
    """The list of commands loads no command, and a command loads its own module only."""
    program = (
        "import sys, atexit\nfrom amplifier_hooks.cli.app import COMMANDS, main\n"
        "modules = {f'amplifier_hooks.cli.{entry.module}' for entry in COMMANDS.values()}\n"
        "atexit.register(lambda: print(*(modules & sys.modules.keys()), file=sys.stderr))\n"
        f"sys.argv[1:] = {arguments}\nmain()"
    )
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert {module.rpartition(".")[2] for module in run.stderr.split()} == loaded


@pytest.mark.rule("CLI-3")
@pytest.mark.parametrize("path", [path for path in COMMANDS if len(path[-1]) > 3], ids=" ".join)
def test_did_you_mean(path: tuple[str, ...]) -> None:
    """A name with a letter too few is answered with the name, on standard error, with exit code 2."""
    *group, name = path
    told = called(*group, name[:-2] + name[-1])
    assert told.exit_code == 2
    assert f"'{name}'" in told.stderr
    assert told.stdout == ""


@pytest.mark.rule("CLI-1", "CLI-3")
@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("wrong", [["--nonsense"], ["a"] * 9], ids=["option", "arguments"])
def test_any_command_called_wrongly(path: tuple[str, ...], wrong: list[str]) -> None:
    """Unknown options and surplus arguments are exit code 2 and do nothing."""
    told = called(*path, *wrong)
    assert told.exit_code == 2
    assert told.stdout == ""
    assert "Usage: " in told.stderr


@pytest.mark.rule("CLI-3")
def test_a_value_that_no_option_has() -> None:
    """The message about a value that an option does not take names the value and those that it takes."""
    told = called("init", "--preset", "brave")
    assert told.exit_code == 2
    expected = "Error: Invalid value for '--preset': 'brave' is not one of 'careful', 'balanced', 'open'."
    assert told.stderr.splitlines()[-1] == expected


Misuse = tuple[list[str], int, str]
OF_STORE: tuple[Misuse, ...] = (
    (["--store", "mysql://here"], 1, "mysql://here is neither a file nor postgresql://…; name one of them"),
    (["--store", "/nowhere/at/all.db"], 1, "There is no store at /nowhere/at/all.db; name the one your program uses"),
)
OF_RECORD: tuple[Misuse, ...] = (
    ([], 2, "record.jsonl is not there; name the record's first file"),
    (["/nowhere.jsonl"], 2, "/nowhere.jsonl is not there; name the record's first file"),
    (["/"], 2, "/ is a folder; name the record's first file in it"),
)
OF_ONE: tuple[Misuse, ...] = (
    ([], 2, "Missing argument 'ID'"),
    *((["one", *arguments], code, said) for arguments, code, said in OF_STORE),
)
MISUSES: dict[tuple[str, ...], tuple[Misuse, ...]] = {
    ("approvals", "list"): (*OF_STORE, (["--limit", "x"], 2, "unable to parse string as an integer")),
    ("approvals", "grants"): (*OF_STORE, (["one"], 2, "Got unexpected extra argument(s) (one)")),
    ("approvals", "show"): OF_ONE,
    ("approvals", "allow"): OF_ONE,
    ("approvals", "deny"): OF_ONE,
    ("approvals", "revoke"): OF_ONE,
    ("audit", "show"): OF_RECORD,
    ("audit", "tail"): OF_RECORD,
}


@pytest.mark.rule("CLI-1", "CLI-3")
@pytest.mark.parametrize("path", MISUSES, ids=" ".join)
def test_what_is_named_is_not_there(path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error about a missing or invalid store, record or request names a remedy."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # a user may have a store and a record
    for arguments, code, said in MISUSES[path]:
        told = called(*path, *arguments)
        assert (told.exit_code, told.stdout) == (code, "")
        assert said in re.sub(r"[\s│]+", " ", told.stderr)


@pytest.mark.rule("CLI-3")
def test_completions() -> None:
    """The shell's completions know the commands."""
    environment = {**os.environ, "_AMPLIFIER_HOOKS_COMPLETE": "complete_bash", "COMP_WORDS": "amplifier-hooks d"}
    program = "from amplifier_hooks.cli.app import main; main()"
    told = subprocess.run(
        [sys.executable, "-c", program], env={**environment, "COMP_CWORD": "1"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert {"demo", "doctor"} <= set(told.stdout.split())


@pytest.mark.slow
@pytest.mark.rule("CLI-3")
@pytest.mark.parametrize("arguments", [["doctor"], ["demo", "--no-input", "--fast"]], ids=" ".join)
def test_no_colour(arguments: list[str], tmp_path: Path) -> None:
    """With NO_COLOR no command prints colours, also at a terminal."""
    import pexpect

    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    command = ["-m", "amplifier_hooks", *arguments]

    def printed(**more: str) -> str:
        child = pexpect.spawn(sys.executable, command, env={**environment, **more}, timeout=60, encoding="utf-8")
        child.expect(pexpect.EOF)
        return str(child.before)

    assert re.search(r"\x1b\[[\d;]*3\dm", printed())
    assert not re.search(r"\x1b\[[\d;]*3\dm", printed(NO_COLOR="1"))


@pytest.mark.rule("CLI-1")
def test_bridge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge passes the question on as it is, and its answer and exit code back."""
    asked: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()

        def answer() -> None:
            connection, _ = listening.accept()
            asked.append(connection.recv(65536))
            body = b'{"a": 1}oh'
            head = b"HTTP/1.1 200 OK\r\nx-exit-status: 2\r\nx-output-length: 8\r\ncontent-length: 10\r\n\r\n"
            connection.sendall(head + body)
            connection.close()

        server = threading.Thread(target=answer)
        server.start()
        monkeypatch.setenv("AMPLIFIER_HOOKS_SOCKET", str(tmp_path / "s"))
        told = called("bridge", "claude-code", input='{"tool": "Bash"}')
        server.join()
    assert (told.exit_code, json.loads(told.stdout), told.stderr) == (2, {"a": 1}, "oh")
    assert asked[0].startswith(b"POST /v1/bridge/claude_code ")
    assert asked[0].endswith(b'{"tool": "Bash"}')


@pytest.mark.rule("CLI-1", "CLI-3")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["bridge"], 2, "PROGRAM"),
        (["bridge", "vim"], 2, "vim"),
        (["bridge", "codex", "--when-down", "maybe"], 2, "maybe"),
    ],
)
def test_bridge_called_wrongly(arguments: list[str], code: int, said: str) -> None:
    """The error about a wrong call lists the valid values."""
    told = called(*arguments, input="")
    assert told.exit_code == code
    assert said in told.stderr


@pytest.mark.rule("CLI-1")
@pytest.mark.parametrize(("policy", "code"), [("deny", 2), ("ask", 0), ("allow", 0)])
def test_bridge_without_a_server(policy: str, code: int, tmp_path: Path) -> None:
    """Without a server the bridge does what --when-down names; by default it denies."""
    program = "from amplifier_hooks.cli.app import main; main()"
    command = [sys.executable, "-c", program, "bridge", "gemini"]
    environment = {**os.environ, "AMPLIFIER_HOOKS_SOCKET": str(tmp_path / "missing")}
    options = [] if policy == "deny" else ["--when-down", policy]
    told = subprocess.run(
        [*command, *options], input="{}", capture_output=True, text=True, check=False, env=environment
    )
    assert told.returncode == code
    assert ("amplifier-hooks serve" in told.stderr) == (policy == "deny")


WITHOUT_SERVER: Final = """
import sys
sys.modules["fastapi"] = sys.modules["uvicorn"] = None
from amplifier_hooks.cli.app import main
for words in sys.argv[1:]:
    sys.argv = ["amplifier-hooks", *words.split()]
    try:
        main()
    except SystemExit as end:
        print(end.code, file=sys.stderr)
"""


@pytest.mark.rule("CLI-3")
def test_missing_extra(tmp_path: Path) -> None:
    """A command whose extra is missing names the extra and how to install it, and ends with 1."""
    commands = ["serve", "serve --api", "serve --programs --http 0", "runs serve ."]
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_SERVER, *commands],
        env={"HOME": str(tmp_path), "PATH": os.defpath},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    need = "The command could not go on: this command needs the extra 'server': pip install 'amplifier-hooks[server]'"
    assert told.stderr.splitlines() == [need, "1"] * len(commands)
