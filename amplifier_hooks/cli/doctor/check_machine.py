"""Checks of the machine: each takes a patient and returns symptoms with their repairs.

They look at Python, packages, data, clock, terminal and telemetry, and at the state folder, the store, the record and
the ports.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import re
import shutil
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from importlib.resources import files
from pathlib import Path  # noqa: TC003  # attrs keeps it
from shlex import join, quote
from typing import TYPE_CHECKING, Final, Literal

from attrs import field, frozen

from amplifier_hooks.errors import MissingExtra
from amplifier_hooks.storage.state_folder import StateFolder, default_socket

if TYPE_CHECKING:
    from amplifier_hooks.ports import Stop

State = Literal["ok", "note", "warning", "failed"]

OK: Final = "ok"
NOTE: Final = "note"
WARNING: Final = "warning"
FAILED: Final = "failed"


@frozen
class Symptom:
    """One finding of a check. Unless its state is ok, `repair` names the command or the step that repairs it."""

    about: str
    state: State
    text: str
    repair: str = ""


@frozen(kw_only=True)
class Patient:
    """The subject of the checks: a project, its environment, and the store, record and port of the user."""

    folder: Path
    environment: Mapping[str, str] = field(factory=lambda: dict(os.environ))
    store: str | None = None
    record: Path | None = None
    port: int = 0


Check = Callable[[Patient], Iterable[Symptom]]


def good(about: str, text: str) -> Symptom:
    """Return a symptom that everything is in order."""
    return Symptom(about, OK, text)


def bad(about: str, text: str, repair: str) -> Symptom:
    """Return a symptom of a failure, with its repair."""
    return Symptom(about, FAILED, text, repair)


def reinstall(extra: str = "") -> str:
    """Return the command that installs this package anew, with an extra if one is named."""
    wanted = f"'amplifier-hooks[{extra}]'" if extra else "--force-reinstall amplifier-hooks"
    pip = shutil.which("pip", path=os.path.dirname(sys.executable))  # noqa: PTH120  # a search path is text
    return f"{'pip install' if pip else 'uv pip install'} {wanted}"


def run_checks(checks: Mapping[str, Check], patient: Patient) -> Iterator[Symptom]:
    """Return the symptoms of all checks. A check that raises is a symptom, too."""
    for about, check in checks.items():
        try:
            yield from check(patient)
        except MissingExtra as missing:
            yield bad(about, str(missing), reinstall(missing.extra))
        except Exception as error:  # noqa: BLE001  # the other checks have to run
            text = f"the check itself failed: {type(error).__name__}: {error}"
            yield bad(about, text, "report this, with the output of: amplifier-hooks doctor --json")


OLDEST: Final = (3, 11)
RELEASED: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""A date before this release; a clock that shows an earlier one is wrong."""
SLACK: Final = 300.0
"""Seconds that a clock may have gone back without a warning."""
MODELS: Final = ("gpt-5", "claude-sonnet-4-5", "gemini-2.5-pro", "any other")
REQUIREMENT: Final = re.compile(r"(?P<name>[\w.-]+)[^;]*(?:;(?P<marker>.*))?")
EXTRA: Final = re.compile(r"extra == ['\"]([\w-]+)['\"]")


def python(_patient: Patient) -> Iterator[Symptom]:
    """Return the versions of Python and of this package, and the limits on Windows."""
    version = platform.python_version()
    text = f"Python {version}, amplifier-hooks {metadata.version('amplifier-hooks')}, {platform.system()}"
    if sys.version_info < OLDEST:
        yield bad("python", text, "install Python 3.11 or later, and this package with it")
    else:
        yield good("python", text)
    if sys.platform == "win32":
        yield Symptom("python", NOTE, "on Windows there is no card in the terminal, no record in a file and no bridge")


def packages(_patient: Patient) -> Iterator[Symptom]:
    """Return the packages that this package needs, and the missing ones."""
    there, missing = [], []
    for name, extra in _requirements():
        if extra:
            continue
        try:
            there.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        yield bad("packages", f"not installed: {', '.join(missing)}", reinstall())
    yield good("packages", ", ".join(there))


def extras(_patient: Patient) -> Iterator[Symptom]:
    """Return the extras that are installed completely, and those that are not."""
    wanted: dict[str, list[str]] = {}
    for name, extra in _requirements():
        if extra and extra != "all":
            wanted.setdefault(extra, []).append(name)
    missing = {extra: [name for name in names if not _is_installed(name)] for extra, names in wanted.items()}
    whole = sorted(extra for extra, names in missing.items() if not names)
    yield good("extras", f"installed: {', '.join(whole) or 'none'}")
    for extra, names in sorted(missing.items()):
        if names:
            yield Symptom("extras", NOTE, f"{extra} is not installed ({', '.join(names)})", reinstall(extra))


def _requirements() -> Iterator[tuple[str, str]]:
    """Return each package that is required on this Python, with its extra."""
    for requirement in metadata.requires("amplifier-hooks") or ():
        found = REQUIREMENT.fullmatch(requirement)
        if found is None:
            continue
        marker = found["marker"] or ""
        newer = re.search(r"python_(?:full_)?version >= ['\"]3\.(\d+)['\"]", marker)
        if newer and sys.version_info < (3, int(newer[1])):
            continue
        extra = EXTRA.search(marker)
        if found["name"] != "amplifier-hooks":
            yield found["name"], extra[1] if extra else ""


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def data(_patient: Patient) -> Iterator[Symptom]:
    """Compare the digest of the ranks of each encoding, which count tokens, with the shipped digest."""
    from amplifier_hooks.injection.tokens.encodings import ENCODINGS

    ranks = files("amplifier_hooks.injection.tokens") / "ranks"
    for name in ENCODINGS:
        try:
            digest = hashlib.sha256((ranks / f"{name}.xz").read_bytes()).hexdigest()
            expected = (ranks / f"{name}.xz.sha256").read_text(encoding="ascii").split()[0]
        except (OSError, IndexError) as problem:
            yield bad("data", f"{name} cannot be read: {problem}", reinstall())
            continue
        if digest == expected:
            yield good("data", f"{name} has the SHA-256 {digest[:12]}…")
        else:
            yield bad("data", f"{name} is damaged: its SHA-256 is another one", reinstall())


def counters(patient: Patient) -> Iterator[Symptom]:
    """Return the method that counts tokens for each kind of model, and its precision."""
    from amplifier_hooks.injection.tokens.tokenizers import yardstick

    named = [patient.environment[name] for name in ("ANTHROPIC_MODEL", "OPENAI_MODEL") if patient.environment.get(name)]
    for model in (*MODELS, *named):
        measure = yardstick(model)
        exact = measure.method.startswith("tiktoken:")
        text = f"{model}: {measure.method}, {'exact' if exact else 'an estimate, rather too high than too low'}"
        if "claude" in model and measure.method.endswith("o200k_base*2.8") and sys.version_info >= (3, 12):
            yield Symptom("counters", NOTE, text, reinstall("claude"))
        else:
            yield good("counters", text)


def clock(_patient: Patient) -> Iterator[Symptom]:
    """Check that the time of day can be right: approvals expire by it, and records are dated."""
    now = datetime.now(UTC)
    latest = max((file.stat().st_mtime for file in StateFolder().path.glob("*.jsonl")), default=0.0)
    repair = "set the clock: sudo timedatectl set-ntp true"
    if now < RELEASED:
        yield bad("clock", f"it shows {now:%Y-%m-%d %H:%M} UTC, which is before this package was made", repair)
    elif latest - time.time() > SLACK:
        yield Symptom("clock", WARNING, f"a record was written later than now, {now:%Y-%m-%d %H:%M} UTC", repair)
    else:
        yield good("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC")


def terminal(_patient: Patient) -> Iterator[Symptom]:
    """Check that a terminal can ask the user."""
    from approval_backends.errors import BackendUnavailable
    from approval_backends.terminal.device import terminal_of

    try:
        there = terminal_of()
    except BackendUnavailable as problem:
        repair = "run it in a terminal, or approve in a browser: amplifier-hooks serve --web --open"
        yield Symptom("terminal", NOTE, f"no terminal can ask you here: {problem}", repair)
        return
    if there.utf8:
        yield good("terminal", "the terminal can ask you")
    else:
        yield Symptom("terminal", WARNING, f"it shows {there.stdout.encoding} only", "export LC_ALL=C.UTF-8")


def telemetry(patient: Patient) -> Iterator[Symptom]:
    """Return the state of OpenTelemetry. This package itself sends nothing."""
    target = patient.environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if not _is_installed("opentelemetry-api"):
        yield good("telemetry", "off: OpenTelemetry is not installed")
    elif not target:
        yield good("telemetry", "off: OpenTelemetry is installed, and no address is set")
    elif _is_installed("opentelemetry-sdk"):
        yield good("telemetry", f"on for hooks that use it; OTEL_EXPORTER_OTLP_ENDPOINT is {target}")
    else:
        text = f"OTEL_EXPORTER_OTLP_ENDPOINT is {target}, and there is no SDK that would send anything"
        yield Symptom("telemetry", WARNING, text, "pip install opentelemetry-sdk opentelemetry-exporter-otlp")


REACHING: Final = 10.0
"""Seconds to reach a store."""
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def state(_patient: Patient) -> Iterator[Symptom]:
    """Check that the state folder of the user is writable, and closed to other users."""
    folder = StateFolder().path
    if not folder.exists():
        nearest = next(parent for parent in folder.parents if parent.exists())
        if os.access(nearest, os.W_OK):
            yield good("state", f"{folder} is made on first use")
        else:
            yield bad("state", f"{folder} cannot be made in {nearest}", "set XDG_STATE_HOME to a folder of yours")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        yield bad("state", f"{folder} cannot be written", f"chmod u+rwx {quote(str(folder))}")
    elif os.name == "posix" and stat.S_IMODE(folder.stat().st_mode) & OTHERS:
        yield Symptom("state", WARNING, f"{folder} can be read by others", f"chmod 700 {quote(str(folder))}")
    else:
        yield good("state", f"{folder} is yours alone")


def approvals(patient: Patient) -> Iterator[Symptom]:
    """Check that the store of approvals answers, count its open requests, and name the stops in force."""
    from amplifier_hooks.cli.approvals.stop_commands import stop_line
    from amplifier_hooks.storage.database import StoreUnavailable
    from approval_backends.broker import Broker
    from approval_backends.errors import UnknownStore
    from approval_backends.lifecycle import Decider
    from approval_backends.stores.address import store_at, without_secrets

    name = without_secrets(patient.store) if patient.store else str(StateFolder().approvals)

    async def look() -> tuple[int, list[Stop]]:
        async with asyncio.timeout(REACHING), Broker(store) as broker:
            viewer = Decider(name="doctor", channel="cli")
            return len(await broker.pending(viewer)), await broker.stops_in_force(viewer)

    try:
        store = store_at(patient.store)
        path: Path | None = getattr(store.database, "path", None)
        if path is not None and not path.exists():
            if patient.store:
                yield bad("approvals", f"there is no store at {name}", "name the one your program uses with --store")
            else:
                yield good("approvals", f"{name} is made on first use")
            return
        count, stops = asyncio.run(look())
    except (UnknownStore, StoreUnavailable, OSError) as problem:
        repair = "start the server, or name another store with --store" if "://" in name else f"look at {name}"
        yield bad("approvals", f"{name}: {str(problem) or 'it does not answer'}", repair)
    else:
        yield good("approvals", f"{name}: {count} {'waits' if count == 1 else 'wait'} for an answer")
        if count:
            yield Symptom("approvals", NOTE, "requests are open", "amplifier-hooks approvals list")
        for stop in stops:
            wanted = [
                *(("--tenant", stop.tenant) if stop.tenant else ()),
                *(("--session", stop.session) if stop.session else ()),
            ]
            yield Symptom("approvals", WARNING, stop_line(stop), join(["amplifier-hooks", "resume", *wanted]))


def record(patient: Patient) -> Iterator[Symptom]:
    """Check that the record is writable, and verify it."""
    from amplifier_hooks.cli.audit import record_text
    from amplifier_hooks.cli.audit.find_record import RecordFiles, pinned_keys

    path = patient.record or StateFolder().record
    if not path.exists():
        yield good("record", f"{path} is made on first use")
        return
    if not os.access(path, os.W_OK):
        yield bad("record", f"{path} cannot be written", f"chmod u+w {quote(str(path))}")
    key = path.with_name("audit.key.pub")
    found = RecordFiles(path)
    report = found.verify(pinned_keys([str(key)]) if key.exists() else [], None, None, [])
    text = f"{path}: {record_text.verdict(report)}"
    look = join(["amplifier-hooks", "audit", "verify", str(path), *(["--key", str(key)] if key.exists() else [])])
    code = record_text.EXITS[report.verdict]
    if code == 0:
        yield good("record", text)
    elif code == 1:
        yield bad("record", text, f"keep the files as they are, and look: {look}")
    else:
        yield Symptom("record", NOTE, text, look)


def ports(patient: Patient) -> Iterator[Symptom]:
    """Check that `serve` could listen at its port and its socket."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", patient.port))
        except OSError:
            ours = StateFolder().gateway(patient.port).exists()
            who = "a gateway of ours, it seems" if ours else "another program"
            text = f"port {patient.port} is taken by {who}"
            yield Symptom("ports", NOTE if ours else WARNING, text, "amplifier-hooks serve --web --port 0")
        else:
            yield good("ports", f"port {patient.port} is free")
    path = default_socket()
    if not hasattr(socket, "AF_UNIX"):
        yield Symptom(
            "ports", NOTE, "there are no sockets of files here: programs post", "amplifier-hooks serve --http 8642"
        )
        return
    if not path.exists():
        yield good("ports", f"no server answers programs at {path}; amplifier-hooks serve would")
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.settimeout(REACHING)
        try:
            one.connect(os.fspath(path))
        except OSError:
            yield Symptom(
                "ports", WARNING, f"{path} was left behind, and no server answers there", f"rm {quote(str(path))}"
            )
        else:
            yield good("ports", f"a server answers programs at {path}")
