"""Serving the approval page from the command line."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pexpect
import pytest
from typer.testing import CliRunner

from amplifier_hooks.cli.app import app
from amplifier_hooks.cli.common.inbox import inbox
from amplifier_hooks.storage.state_folder import StateFolder
from approval_backends.broker import Broker
from approval_backends.client import ApprovalsClient
from approval_backends.gateway.approvers import Approver
from approval_backends.gateway.gateway import Gateway
from approval_backends.stores.memory import MemoryStore
from approval_backends.stores.sqlite import SqliteStore
from tests.api import new_hook
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


@pytest.mark.rule("BCK-2", "BCK-9", "CLI-1", "DSP-11", "WIR-1", "WIR-11")
@pytest.mark.fault("F-WS-16")
def test_serve(tmp_path: Path) -> None:
    """A gateway shows a file's requests, hides its token, and names the hooks and rules that stop no act."""
    tmp_path.chmod(0o700)
    store, hooks, rules = (tmp_path / name for name in ("approvals.db", "hooks.yaml", "rules.yaml"))
    hooks.write_text("version: 1\nlibrary:\n  protected_paths: {report_only: true}\n")
    rules.write_text("version: 1\nreport_only: true\nrules:\n- {id: all, action: deny, tool: '*'}\n")
    programs = ("--programs", "--socket", str(tmp_path / "hooks.sock"), "--hooks", str(hooks), "--rules", str(rules))
    with serving(tmp_path, "--store", str(store), "--user", "Mara", *programs) as (process, said):
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
        assert f"To sign in, open this file in a browser: {file.with_suffix('.html')}\n" in err
        assert f"cat {file}\n" in err
        for name in ("protected_paths", str(rules)):
            assert f"{name} is report-only: it stops nothing" in err
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
        (["--web", "--host", "0.0.0.0"], 2, "--name approvals.example.com"),
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
async def test_the_inbox_hands_over_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both files are new and belong to the owner, whatever was there before, and no link in their place is followed."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder, token = StateFolder().make(), f'"><script>{"x" * 32}'
    async with Gateway(Broker(MemoryStore()), [Approver(name="Mara", token=token)]) as gateway:
        folder.gateway(gateway.port).symlink_to(elsewhere)
        async with inbox(gateway) as there:
            assert json.loads(there.file.read_text()) == {"address": gateway.address, "token": token}
            assert not there.file.is_symlink()
            assert "<script>" not in there.page.read_text()
    assert elsewhere.read_text() == "precious"
    assert not list(folder.path.iterdir())


# -- the HTTP API beside the socket ------------------------------------------------------------------------------------


def free_port() -> int:
    """Return a port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
@pytest.mark.rule("API-1", "API-6", "API-8", "API-12")
@pytest.mark.fault("F-API-07")
def test_the_api_is_served(tmp_path: Path) -> None:
    """A token of the command makes hooks over HTTP, on record; the server hangs up on a request that is too large."""
    state = {"XDG_STATE_HOME": os.fspath(tmp_path / "state"), "HOME": os.fspath(tmp_path)}
    environment = {"PATH": os.environ["PATH"], **state}
    command, port = [sys.executable, "-m", "amplifier_hooks"], free_port()

    def run(*arguments: str) -> str:
        ran = subprocess.run(
            [*command, *arguments], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return ran.stdout.strip()

    secret = run("token", "create", "ci", "--tenant", "acme", "--scope", "hooks:manage")
    path = tmp_path / "run" / "hooks.sock"
    process = subprocess.Popen(
        [*command, "serve", "--api", "--api-port", str(port), "--socket", os.fspath(path)],
        env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        while f":{port}" not in (line := process.stderr.readline()):
            assert line, "it ended"
        with httpx2.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"authorization": f"Bearer {secret}"}
        ) as client:
            made = client.post("/v1/hooks", json=new_hook())
            assert made.status_code == 201
            assert client.get("/v1/hooks").json()["hooks"] == [made.json()]
        for head in (
            "POST /v1/hooks HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100000000\r\n\r\n",
            "POST /v1/hooks HTTP/1.0\r\nHost: {host}\r\nContent-Length: 100000000\r\n\r\n",
        ):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
                raw.sendall(head.format(host=f"127.0.0.1:{port}").encode())
                answer = b""
                while part := raw.recv(4096):
                    answer += part
            assert answer.startswith(b"HTTP/1.1 413")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0
    lines = (tmp_path / "state" / "amplifier-hooks" / "record.jsonl").read_text().splitlines()
    made_of = [record["facts"] for record in map(json.loads, lines) if record["kind"] == "definition.created"]
    assert [(facts["by"], facts["tenant"]) for facts in made_of] == [("ci", "acme")]
    assert made_of[0]["bearer"].startswith("tok_")  # which token it was can be read
    assert "acme" in run("token", "list")
