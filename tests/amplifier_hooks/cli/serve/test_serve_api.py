"""`amplifier-hooks serve --api`: the HTTP API in one process with the programs' socket."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.api import new_hook


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
