"""The files in deploy/: linters accept them, and their steps work with PostgreSQL and in a clean root."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pytest
import yaml
from attrs import frozen

from tests.conftest import require
from tests.stores import server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

pytestmark = [pytest.mark.rule("PKG-7"), pytest.mark.slow]

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
UNIT: Final = DEPLOY / "amplifier-hooks.service"
PROGRAMS: Final = Path(sys.executable).parent
"""Folder of the programs that were installed with this interpreter."""
FREE_PORTS: Final = ("--port", "0", "--api-port", "0", "--json")
NO_USER: Final = 61184
"""The id of a user without an entry in the list of users, as systemd makes one up for a unit."""
EXPOSURE: Final = 1.5
"""The exposure that systemd may find in the unit, from 0 (none) to 10."""
CLIENTS: Final = re.compile(r"(PIP|UV)_(EXTRA_|DEFAULT_)?INDEX(_URL)?|SSL_CERT_FILE")
"""Variables that say where packages come from."""


def run(*words: str | Path) -> str:
    """Run a command to its end and return its output."""
    done = subprocess.run(words, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def program(name: str, part: str) -> str:
    """Return the path of a program; skip without it, or fail where the part is required."""
    found = shutil.which(name, path=f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}")
    return found or require(part, f"{name} is not installed")


# -- linters -------------------------------------------------------------------------------------------------------


def test_the_dockerfile_is_clean() -> None:
    """The linter of Dockerfiles has no complaint."""
    run(program("hadolint", "containers"), DEPLOY / "Dockerfile")


def test_the_compose_file_keeps_its_schema() -> None:
    """The compose file is valid by the published schema."""
    checker = program("check-jsonschema", "containers")
    run(checker, "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """Systemd finds no fault in the unit, and little that its service could reach."""
    analyze = program("systemd-analyze", "containers")
    unit = tmp_path / UNIT.name
    unit.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={PROGRAMS}/amplifier-hooks", UNIT.read_text()))
    run(analyze, "verify", unit)
    run(analyze, "security", "--offline=true", f"--threshold={EXPOSURE * 10:.0f}", unit)


# -- the steps -----------------------------------------------------------------------------------------------------


def instruction(name: str) -> list[str]:
    """Return the words of the last instruction of this name in the Dockerfile, written as a list."""
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    words: list[str] = json.loads(re.sub(r"^[^[]*", "", [line for line in lines if line.startswith(name)][-1]))
    return words


def interpolate(value: Any, variables: Mapping[str, str]) -> Any:
    """Put variables and their defaults into the texts of a compose file, as Compose does."""
    match value:
        case str():
            return re.sub(r"\$\{(\w+)(?::[-?]([^}]*))?\}", lambda found: variables.get(found[1], found[2] or ""), value)
        case list():
            return [interpolate(one, variables) for one in value]
        case dict():
            return {key: interpolate(one, variables) for key, one in value.items()}
        case _:
            return value


def unit_environment() -> dict[str, str]:
    """Return the variables that the unit sets."""
    lines = re.findall(r"(?m)^Environment=(.*)", UNIT.read_text(encoding="utf-8"))
    return dict(word.split("=", 1) for line in lines for word in shlex.split(line))


@frozen
class Served:
    """The addresses of a server that serves."""

    page: str
    api: str

    def check_health(self) -> int:
        """Return the exit status of the image's health check, at the port of this API."""
        code = [word.replace(":8438", f":{urlsplit(self.api).port}") for word in instruction("HEALTHCHECK")]
        return subprocess.run([sys.executable, *code[1:]], check=False, capture_output=True).returncode

    def page_status(self, host: str) -> int:
        """Return the status of the page for a client that reached it under this name."""
        page = urlsplit(self.page)._replace(netloc=f"127.0.0.1:{urlsplit(self.page).port}").geturl()
        try:
            with urllib.request.urlopen(urllib.request.Request(page, headers={"Host": host})) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code


@contextmanager
def serving(words: Sequence[str | Path], environment: Mapping[str, str], folder: Path) -> Iterator[Served]:
    """Run a server until the block ends."""
    with (folder / "messages").open("w+", encoding="utf-8") as messages:
        running = subprocess.Popen(
            words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=messages
        )
        assert running.stdout is not None
        try:
            yield read_addresses(running.stdout, folder / "messages")
        finally:
            running.send_signal(signal.SIGINT)
            running.wait()
            running.stdout.close()


def read_addresses(output: IO[bytes], messages: Path) -> Served:
    """Read the addresses that a server prints once it serves."""
    found: dict[str, str] = {}
    while not {"api", "address"} <= found.keys():
        line = output.readline()
        assert line, messages.read_text(encoding="utf-8")
        found |= json.loads(line)
    return Served(page=found["address"], api=found["api"])


@asynccontextmanager
async def own_database() -> AsyncIterator[str]:
    """Yield the name of a new user with a database of its own, both of which are removed afterwards."""
    import asyncpg

    name = f"hooks_{token_hex(4)}"
    connection = await asyncpg.connect(await server())
    try:
        await connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
        await connection.execute(f"CREATE DATABASE {name} OWNER {name}")
        yield name
    finally:
        await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await connection.execute(f"DROP ROLE IF EXISTS {name}")
        await connection.close()


@pytest.mark.postgres
async def test_the_compose_file_serves_over_postgresql(tmp_path: Path) -> None:
    """The server starts with the command and the variables of the compose file, and its health check sees it."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    services = interpolate(compose, {"POSTGRES_PASSWORD": "secret"})["services"]
    store = urlsplit(services["hooks"]["environment"]["AMPLIFIER_HOOKS_STORE"])
    database = services[store.hostname]["environment"]
    assert (store.username, store.path[1:]) == (database["POSTGRES_USER"], database["POSTGRES_DB"])
    assert store.password == database["POSTGRES_PASSWORD"]
    command = [PROGRAMS / "amplifier-hooks", *services["hooks"]["command"], *FREE_PORTS]
    async with own_database() as name:
        there = urlsplit(await server())
        address = store._replace(netloc=f"{name}:secret@{there.hostname}:{there.port}", path=f"/{name}").geturl()
        environment = {"HOME": str(tmp_path), "PATH": os.defpath, "AMPLIFIER_HOOKS_STORE": address}
        with serving(command, environment, tmp_path) as served:
            assert served.check_health() == 0
            assert served.page_status("localhost:8437") == 200
            assert served.page_status("elsewhere.example") != 200
        assert served.check_health() != 0


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Build the Dockerfile over a fresh Debian, and yield the beginning of a command that runs in a container.

    The containers are `image` and `unit`.
    """
    buildah, debootstrap = program("buildah", "containers"), program("debootstrap", "containers")
    if os.geteuid():
        require("containers", "only root can make a clean root here")
    folder = tmp_path_factory.mktemp("image")
    options = ("--root", f"{folder}/store", "--runroot", f"{folder}/running", "--storage-driver", "vfs")
    bud = ("bud", "--quiet", "--isolation", "chroot", "--pull-never", "--tag", "amplifier-hooks")
    known = [f"--env={name}={value}" for name, value in os.environ.items() if CLIENTS.fullmatch(name)]
    authorities = Path("/usr/local/share/ca-certificates")
    try:
        run(debootstrap, "--variant=minbase", "trixie", folder / "debian")
        run(buildah, *options, "from", "--name", "debian", "scratch")
        run(buildah, *options, "add", "debian", folder / "debian", "/")
        if authorities.is_dir():
            run(buildah, *options, "add", "debian", authorities, authorities)
        run(buildah, *options, "config", *known, "debian")
        run(buildah, *options, "commit", "--quiet", "debian", "docker.io/library/debian:trixie-slim")
        files = ("--ignorefile", DEPLOY / "Dockerfile.dockerignore", "--file", DEPLOY / "Dockerfile")
        run(buildah, *options, *bud, *files, ROOT)
        for name in ("image", "unit"):
            run(buildah, *options, "from", "--pull-never", "--name", name, "localhost/amplifier-hooks")
        yield [buildah, *options, "run", "--isolation", "chroot"]
    finally:
        run(buildah, *options, "rm", "--all")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.containers
def test_the_image_serves(containers: list[str], tmp_path: Path) -> None:
    """A container of the image serves as a user without rights, and writes its state where the volume is."""
    assert run(*containers, "image", "--", "id", "-u").strip() == "10001"
    words = [*containers, "image", "--", *instruction("ENTRYPOINT"), *instruction("CMD"), *FREE_PORTS]
    with serving(words, os.environ, tmp_path) as served:
        assert served.check_health() == 0
        assert served.page_status("localhost:8437") == 200
    assert "record.jsonl" in run(*containers, "image", "--", "ls", "/var/lib/amplifier-hooks")


@pytest.mark.containers
def test_the_unit_serves(containers: list[str], tmp_path: Path) -> None:
    """The command of the unit serves with the unit's variables alone, as a user whom no list of users names."""
    environment = unit_environment()
    folders = (environment["HOME"], environment["XDG_RUNTIME_DIR"])
    run(*containers, "--user", "0:0", "unit", "--", "install", "-d", "-m", "700", "-o", str(NO_USER), *folders)
    start = re.search(r"(?m)^ExecStart=(.*)", UNIT.read_text(encoding="utf-8"))
    assert start is not None
    command = start[1].replace("$SERVE_OPTIONS", " ".join(FREE_PORTS)).split()
    alone = ("env", "-i", *(f"{name}={value}" for name, value in environment.items()))
    with serving([*containers, "--user", str(NO_USER), "unit", "--", *alone, *command], os.environ, tmp_path) as served:
        assert served.check_health() == 0
