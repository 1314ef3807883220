"""The machine: Python, packages, data, clock and terminal."""

from __future__ import annotations

import hashlib
import platform
import re
import sys
import time
from datetime import UTC, datetime
from importlib import metadata
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from amplifier_hooks.cli.doctor.findings import NOTE, WARNING, Symptom, bad, good, reinstall
from amplifier_hooks.storage.state_folder import state_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amplifier_hooks.cli.doctor.findings import Patient


OLDEST: Final = (3, 11)
RELEASED: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""No clock that is right says it is earlier."""
SLACK: Final = 300.0
"""Seconds a clock may have gone back without anybody asking why."""
MODELS: Final = ("gpt-5", "claude-sonnet-4-5", "gemini-2.5-pro", "any other")
REQUIREMENT: Final = re.compile(r"(?P<name>[\w.-]+)[^;]*(?:;(?P<marker>.*))?")
EXTRA: Final = re.compile(r"extra == ['\"]([\w-]+)['\"]")


def python(_patient: Patient) -> Iterator[Symptom]:
    """Which Python, and which version of this package."""
    version = platform.python_version()
    said = f"Python {version}, amplifier-hooks {metadata.version('amplifier-hooks')}, {platform.system()}"
    if sys.version_info < OLDEST:
        yield bad("python", said, "install Python 3.11 or later, and this package with it")
    else:
        yield good("python", said)
    if sys.platform == "win32":
        yield Symptom("python", NOTE, "on Windows there is no card in the terminal, no record in a file and no bridge")


def packages(_patient: Patient) -> Iterator[Symptom]:
    """What this package needs."""
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
    """Which extras are there whole, and which are not."""
    wanted: dict[str, list[str]] = {}
    for name, extra in _requirements():
        if extra and extra != "all":
            wanted.setdefault(extra, []).append(name)
    missing = {extra: [name for name in names if not _installed(name)] for extra, names in wanted.items()}
    whole = sorted(extra for extra, names in missing.items() if not names)
    yield good("extras", f"installed: {', '.join(whole) or 'none'}")
    for extra, names in sorted(missing.items()):
        if names:
            yield Symptom("extras", NOTE, f"{extra} is not installed ({', '.join(names)})", reinstall(extra))


def _requirements() -> Iterator[tuple[str, str]]:
    """Each package that is required here, with the extra it belongs to."""
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


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def data(_patient: Patient) -> Iterator[Symptom]:
    """Whether the ranks that tokens are counted by are what was shipped."""
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
    """How the tokens of each kind of model are counted, and whether that is exact."""
    from amplifier_hooks.injection.tokens.tokenizer_of_model import yardstick

    named = [patient.environment[name] for name in ("ANTHROPIC_MODEL", "OPENAI_MODEL") if patient.environment.get(name)]
    for model in (*MODELS, *named):
        measure = yardstick(model)
        exact = measure.method.startswith("tiktoken:")
        said = f"{model}: {measure.method}, {'exact' if exact else 'an estimate, rather too high than too low'}"
        if "claude" in model and measure.method.endswith("o200k_base*2.8") and sys.version_info >= (3, 12):
            yield Symptom("counters", NOTE, said, reinstall("claude"))
        else:
            yield good("counters", said)


def clock(_patient: Patient) -> Iterator[Symptom]:
    """Whether the time of day can be right: approvals expire by it, and records are dated."""
    now = datetime.now(UTC)
    latest = max((file.stat().st_mtime for file in state_folder().glob("*.jsonl")), default=0.0)
    repair = "set the clock: sudo timedatectl set-ntp true"
    if now < RELEASED:
        yield bad("clock", f"it says {now:%Y-%m-%d %H:%M} UTC, which is before this package was made", repair)
    elif latest - time.time() > SLACK:
        yield Symptom("clock", WARNING, f"a record was written later than now, {now:%Y-%m-%d %H:%M} UTC", repair)
    else:
        yield good("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC")


def terminal(_patient: Patient) -> Iterator[Symptom]:
    """Whether somebody can be asked here."""
    from approval_backends.errors import BackendUnavailable
    from approval_backends.terminal.device import terminal_of

    try:
        there = terminal_of()
    except BackendUnavailable as problem:
        repair = "run it in a terminal, or approve elsewhere: amplifier-hooks serve --web --open"
        yield Symptom("terminal", NOTE, f"nobody can be asked here: {problem}", repair)
        return
    if there.utf8:
        yield good("terminal", "somebody can be asked here")
    else:
        yield Symptom("terminal", WARNING, f"it shows {there.stdout.encoding} only", "export LC_ALL=C.UTF-8")


def telemetry(patient: Patient) -> Iterator[Symptom]:
    """Whether anything is measured for others. Nothing is sent by this package itself."""
    target = patient.environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if not _installed("opentelemetry-api"):
        yield good("telemetry", "off: nothing is measured for others")
    elif not target:
        yield good("telemetry", "off: OpenTelemetry is installed, and no address is set")
    elif _installed("opentelemetry-sdk"):
        yield good("telemetry", f"on where a hook says so; OTEL_EXPORTER_OTLP_ENDPOINT is {target}")
    else:
        text = f"OTEL_EXPORTER_OTLP_ENDPOINT is {target}, and there is no SDK that would send anything"
        yield Symptom("telemetry", WARNING, text, "pip install opentelemetry-sdk opentelemetry-exporter-otlp")
