"""Serving the approval page from the command line."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pexpect
import pytest
from typer.testing import CliRunner

from amplifier_hooks.cli.app import app
from amplifier_hooks.cli.serve.host_programs import hand_over_files
from approval_backends.broker import Broker
from approval_backends.client import ApprovalsClient
from approval_backends.stores.sqlite import SqliteStore
from tests.gateways import asked

if TYPE_CHECKING:
    from collections.abc import Iterator

SOON = 60
COMMAND = [sys.executable, "-W", "error", "-m", "amplifier_hooks", "serve"]


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Run the command in a process of its own, and yield the process and its printed addresses."""
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "BROWSER": "true"}
    command = [*COMMAND, "--web", "--port", "0", "--json", *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(SOON)


@pytest.mark.rule("CLI-1", "BCK-2", "WIR-1", "WIR-11")
@pytest.mark.fault("F-WS-16")
def test_serve(tmp_path: Path) -> None:
    """A gateway over a file shows requests of another process; only the owner can read its token, until its end."""
    tmp_path.chmod(0o700)
    store = tmp_path / "approvals.db"
    with serving(tmp_path, "--store", str(store), "--user", "Mara") as (process, said):
        file = Path(said["token_file"])
        token = json.loads(file.read_text())["token"]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.with_suffix(".html").stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        for place in ("cmdline", "environ") if sys.platform == "linux" else ():
            assert token.encode() not in Path(f"/proc/{process.pid}/{place}").read_bytes()
        assert asyncio.run(answered(store, said["address"], token)) == ("approved", "Mara")
        process.send_signal(signal.SIGTERM)
        _out, err = process.communicate(timeout=SOON)
        assert process.returncode == 0
        assert token not in err
        assert said["address"] in err
        assert not list(file.parent.glob("gateway-*"))


async def answered(store: Path, address: str, token: str) -> tuple[str, str | None]:
    """Ask in this process over the gateway's file, answer as its client, and return the decision and the decider."""
    request = asked()
    async with SqliteStore(store) as asking, ApprovalsClient(address, token) as mara:
        broker = Broker(asking)
        await broker.submit(request)
        async for _news in mara.news():
            if mara.queue:
                break
        await mara.decide(mara.queue[0], "allow")
        record = await broker.wait(request.id)
        return record.status, record.decision.by if record.decision else None


@pytest.mark.rule("CLI-1", "WIR-11")
def test_serve_at_a_terminal(tmp_path: Path) -> None:
    """A user at a terminal gets the link with its token, and the store is a file of their own."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "BROWSER": "true", "COLUMNS": "200"}
    with pexpect.spawn(
        COMMAND[0], [*COMMAND[1:], "--web", "--port", "0", "--open"], env=environment, timeout=SOON
    ) as it:
        it.expect(r"Approvals are at (http://127\.0\.0\.1:\d+/#t=[\w-]{43})\s")
        it.expect("Ctrl-C stops it")
        page = next((tmp_path / "amplifier-hooks").glob("gateway-*.html")).read_text()
        assert it.match is not None
        it.sendintr()
        it.expect(pexpect.EOF)
    assert "http-equiv" in page
    assert it.exitstatus == 0
    assert (tmp_path / "amplifier-hooks" / "approvals.db").exists()
    assert not list((tmp_path / "amplifier-hooks").glob("gateway-*"))


@pytest.mark.rule("CLI-1", "BCK-4")
@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--web", "--host", "0.0.0.0"], 2, "say under which names"),
        (
            ["--web", "--store", "/nowhere/approvals.db"],
            1,
            "The server cannot start: the folder /nowhere cannot be used",
        ),
    ],
)
def test_serve_called_wrongly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], code: int, said: str
) -> None:
    """A server that cannot start prints one sentence with a remedy."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    told = CliRunner().invoke(app, ["serve", *options])
    assert told.exit_code == code
    assert said in told.stderr


@pytest.mark.rule("CLI-1", "WIR-11")
@pytest.mark.fault("F-WS-16")
def test_hand_over_files(tmp_path: Path) -> None:
    """Both files are new and belong to the owner, whatever was there before, and no link in their place is followed."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    (tmp_path / "gateway-8000.json").symlink_to(elsewhere)
    link = 'http://127.0.0.1:8000/#t="><script>'
    with hand_over_files(tmp_path, "http://127.0.0.1:8000/", link, "secret") as there:
        assert json.loads(there.file.read_text()) == {"address": "http://127.0.0.1:8000/", "token": "secret"}
        assert not there.file.is_symlink()
        assert "<script>" not in there.page.read_text()
    assert elsewhere.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere"]
