"""What is kept and where it listens: the state, the store, the record, the ports."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from shlex import join, quote
from typing import TYPE_CHECKING, Final

from amplifier_hooks.cli.doctor.findings import NOTE, WARNING, Symptom, bad, good
from amplifier_hooks.storage.state_folder import state_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from amplifier_hooks.cli.doctor.findings import Patient


REACHING: Final = 10.0
"""Seconds to reach a store."""
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def state(_patient: Patient) -> Iterator[Symptom]:
    """Whether the folder of one's own is there and one's own."""
    folder = state_folder()
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
    """Whether the store of approvals can be reached."""
    from amplifier_hooks.storage.store_errors import StoreUnavailable
    from approval_backends.broker import Broker
    from approval_backends.errors import UnknownStore
    from approval_backends.lifecycle import Decider
    from approval_backends.stores.address import default_path, store_at, without_secrets

    name = without_secrets(patient.store) if patient.store else str(default_path())

    async def waiting() -> int:
        async with asyncio.timeout(REACHING), Broker(store) as broker:
            return len(await broker.pending(Decider(name="doctor", channel="cli")))

    try:
        store = store_at(patient.store)
        path: Path | None = getattr(store.database, "path", None)
        if path is not None and not path.exists():
            if patient.store:
                yield bad("approvals", f"there is no store at {name}", "name the one your program uses with --store")
            else:
                yield good("approvals", f"{name} is made on first use")
            return
        count = asyncio.run(waiting())
    except (UnknownStore, StoreUnavailable, OSError) as problem:
        repair = "start the server, or name another store with --store" if "://" in name else f"look at {name}"
        yield bad("approvals", f"{name}: {str(problem) or 'it does not answer'}", repair)
    else:
        yield good("approvals", f"{name}: {count} {'waits' if count == 1 else 'wait'} for an answer")
        if count:
            yield Symptom("approvals", NOTE, "questions are open", "amplifier-hooks approvals list")


def record(patient: Patient) -> Iterator[Symptom]:
    """Whether the record can be written, and is what was written."""
    from amplifier_hooks.cli.audit import record_text
    from amplifier_hooks.cli.audit.find_record import RecordFiles, pinned

    path = patient.record or state_folder() / "record.jsonl"
    if not path.exists():
        yield good("record", f"{path} is made on first use")
        return
    if not os.access(path, os.W_OK):
        yield bad("record", f"{path} cannot be written", f"chmod u+w {quote(str(path))}")
    key = path.with_name("audit.key.pub")
    found = RecordFiles(path)
    report = found.verify(pinned([str(key)]) if key.exists() else [], None, None, [])
    said = f"{path}: {record_text.verdict(report)}"
    look = join(["amplifier-hooks", "audit", "verify", str(path), *(["--key", str(key)] if key.exists() else [])])
    code = record_text.EXITS[report.verdict]
    if code == 0:
        yield good("record", said)
    elif code == 1:
        yield bad("record", said, f"keep the files as they are, and look: {look}")
    else:
        yield Symptom("record", NOTE, said, look)


def ports(patient: Patient) -> Iterator[Symptom]:
    """Whether `serve` could listen."""
    from amplifier_hooks.server.socket_path import default_socket

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", patient.port))
        except OSError:
            ours = (state_folder() / f"gateway-{patient.port}.json").exists()
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
                "ports", WARNING, f"{path} was left behind, and nobody answers there", f"rm {quote(str(path))}"
            )
        else:
            yield good("ports", f"a server answers programs at {path}")
