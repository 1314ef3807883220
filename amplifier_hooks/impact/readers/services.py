"""Readers of databases and containers: `psql`, `sqlite3`, `redis-cli`, `docker run`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from amplifier_hooks.impact.inline_code import read_sql
from amplifier_hooks.impact.places import NAME, UNKNOWN

if TYPE_CHECKING:
    from amplifier_hooks.impact.program_rows import ProgramRun

FILE_DATABASES: Final = ("sqlite3", "sqlite", "duckdb")
RIGHTS: Final = ("--privileged", "--cap-add", "--device", "--security-opt", "--userns", "--pid", "--uts")
RUN_VALUES: Final = (
    "-p --publish -e --env --env-file --name --network --net -w --workdir -u --user --entrypoint --platform --memory "
    "-m --cpus --hostname -h --restart --label -l --add-host --shm-size --gpus --ulimit --log-driver --log-opt --tmpfs "
    "--health-cmd --pull --link --expose --dns --group-add --ipc --cgroupns --stop-signal -v --volume --mount --pid "
    "--cap-add --device --security-opt --userns --uts --volumes-from"
)


def read_database(run: ProgramRun, words: list[str]) -> None:
    """Read the program of a database: statements in options, in operands, or on the standard input."""
    given = run.split(words, single=run.name in FILE_DATABASES)
    statements: list[str] = []
    for name, value in given.found:
        role = run.row.options.get(name)
        if role == "sql":
            statements.append(value)
        elif role:
            run.apply(role, value)
    if run.name in FILE_DATABASES and given.operands:
        run.reads(given.operands[0])
        statements += given.operands[1:]
    if given.has("-A", "-Ax", "-Axf"):
        run.add("unreadable", run.name, "an archive in a database")
    if not statements and run.stdin != UNKNOWN:
        statements = [run.stdin]
    _note_statements(run, statements, "".join(given.operands[:1]))
    if not statements and (given.operands or given.has("-l", "--list", "--version", "-V", "-version")):
        run.add("service_reads", run.name)
    elif not statements:
        run.add("unreadable", run.name, "statements that only a run can tell")


def _note_statements(run: ProgramRun, statements: list[str], file: str) -> None:
    """Add the impacts of statements; a database in a temporary file is only a file."""
    scratch = run.name in FILE_DATABASES and run.is_scratch(file)
    for statement in statements:
        found = read_sql(statement, run.name)
        run.walk.note(*(one for one in found if not (scratch and one.kind == "service_writes")))
        if scratch:
            run.writes(file)


def read_redis(run: ProgramRun, words: list[str]) -> None:
    """Read `redis-cli`: its operands are one command."""
    operands = run.split(words, stop=True).operands
    lines = [" ".join(operands)] if operands else [] if run.stdin == UNKNOWN else run.stdin.splitlines()
    for line in lines:
        run.walk.note(*read_sql(line, run.name))
    if not lines:
        run.add("service_reads", run.name)


def read_docker_run(run: ProgramRun, words: list[str]) -> None:
    """Read `docker run`: the image, the folders of this machine that it gets, and its rights."""
    given = run.split(words, RUN_VALUES, stop=True)
    for name, value in given.found:
        if name in RIGHTS:
            run.add("system", f"{name} {value}".strip(), "rights outside the container")
        elif name in ("-v", "--volume", "--mount"):
            _read_volume(run, value)
    run.add("runs_unread", "".join(given.operands[:1]), "an image")


def _read_volume(run: ProgramRun, value: str) -> None:
    source = re.sub(r".*(?:source|src)=([^,]*).*", r"\1", value) if "=" in value else value.split(":", maxsplit=1)[0]
    if not (source.startswith(("/", ".", "~")) or UNKNOWN in source):
        return
    run.reads(source, recursive=True)
    if "docker.sock" in source or "containerd" in source:
        run.add("system", source, "the socket of the container engine")
    elif not value.endswith(":ro"):
        run.writes(f"{source}/{NAME}")
