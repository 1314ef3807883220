"""Notifications: real programs and a real service; only the bus of the desktop is a fake."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import stat
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.definitions.kinds.webhook import AllowedUrls
from amplifier_hooks.errors import HookUnavailable
from amplifier_hooks.library import Notify
from amplifier_hooks.library.notify import NotifySettings, show_on_desktop
from amplifier_hooks.testing import ScriptedApprover

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.rule("LIB-6")

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with all the programs there are; `calls` lists their arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sh", "sleep"):
        (folder / tool).symlink_to(str(shutil.which(tool)))
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("sys.executable", str(folder / "python"))
    return folder


def program(folder: Path, name: str, ending: str = "exit 0") -> None:
    """Create a program that keeps its arguments."""
    path = folder / name
    path.write_text(f"#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done > {folder}/calls\n{ending}\n")
    path.chmod(stat.S_IRWXU)


def called(folder: Path) -> list[str]:
    """Return the arguments that the program was called with."""
    return (folder / "calls").read_text().splitlines()


async def test_notify_send(desk: Path) -> None:
    """On Linux `notify-send` is called, with a text that no desktop takes for HTML or options."""
    program(desk, "notify-send")
    registry = HookRegistry()
    Notify().register(registry)
    await registry.emit("user:notification", {"message": "-a <b>bold</b> & \x1b[31m"})
    *options, mark, title, text = called(desk)
    assert (mark, title, text) == ("--", "amplifier-hooks", "-a &lt;b&gt;bold&lt;/b&gt; &amp; \\u{1B}[31m")
    assert all(option.startswith("--") for option in options)


async def test_bus(desk: Path) -> None:
    """Without `notify-send` the desktop is called over D-Bus, and quotes stay within the text."""
    program(desk, "gdbus")
    await show_on_desktop("it's \\ 'here'")
    assert called(desk)[:3] == ["call", "--session", "--dest=org.freedesktop.Notifications"]
    assert called(desk)[-4:] == ["'it\\'s \\\\ \\'here\\''", "@as []", "@a{sv} {}", "int32 -1"]


async def test_macos(desk: Path) -> None:
    """On macOS `osascript` gets the text as an argument, and never as part of the script."""
    program(desk, "osascript")
    await show_on_desktop('" & do shell script "x', platform="darwin")
    assert called(desk)[-2:] == ["amplifier-hooks", '" & do shell script "x']
    assert "shell" not in " ".join(called(desk)[:-1])


@pytest.mark.parametrize(
    ("ending", "problem"),
    [
        (None, "neither notify-send nor gdbus"),
        ("echo no bus >&2; exit 1", "no bus"),
        ("sleep 60", "did not end within"),
    ],
    ids=["missing", "fails", "hangs"],
)
async def test_trouble(desk: Path, ending: str | None, problem: str, caplog: pytest.LogCaptureFixture) -> None:
    """A desktop that cannot be reached is one warning in the log, and nothing else."""
    if ending is not None:
        program(desk, "notify-send", ending)
    registry = HookRegistry()
    Notify(NotifySettings(seconds=0.1 if "within" in problem else 10)).register(registry)
    for _ in range(2):
        outcome = await registry.emit("user:notification", {"message": "hello"})
        assert outcome.all_succeeded
    [record] = [record for record in caplog.records if record.msg == "not_notified"]
    assert problem in record.__dict__["problem"]


async def test_waiting_approval() -> None:
    """When an approver is asked, the desktop shows the tool that waits, and nothing of its input."""
    registry = HookRegistry()
    told: list[str] = []
    Notify(NotifySettings(events=("approval:required", "session:end", "turn:own")), desktop=told.append).register(
        registry
    )

    @registry.gate("tool:pre")
    async def asks(event: str, data: Any) -> HookResult:
        return HookResult.ask("Really?", options=["Allow", "Deny"])

    async with SessionCoordinator(hooks=registry, approvals=ScriptedApprover("Allow")) as session:
        await session.call_tool("Bash", {"command": "secret"}, str)
    await registry.emit("turn:own", {})
    assert told == ["Bash waits for an approval", "the session has ended", "turn:own"]


@contextlib.asynccontextmanager
async def serving(answer: bytes) -> AsyncIterator[tuple[int, list[tuple[dict[str, str], Any]]]]:
    """Run a service on loopback, and keep the requests it receives."""
    sent: list[tuple[dict[str, str], Any]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        sent.append((headers, json.loads(await reader.readexactly(int(headers["content-length"])))))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], sent


OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
FAILED = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n"


@pytest.mark.parametrize("answer", [OK, FAILED], ids=["ok", "fails"])
async def test_webhook(answer: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A service receives the event, the text and the session, signed; a failure is one warning."""
    from standardwebhooks import Webhook

    registry = HookRegistry()
    async with serving(answer) as (port, sent):
        settings = NotifySettings.model_validate(
            {"desktop": False, "webhook": f"http://127.0.0.1:{port}/x", "secrets": [SECRET]}
        )
        reach = AllowedUrls(networks=("127.0.0.0/8",), ports={port}, http=True)
        Notify(settings, reach=reach).register(registry)
        given = {"tool_name": "Bash", "tool_input": {"command": "secret"}, "session_id": "s-1"}
        outcome = await registry.emit("approval:required", given)
    assert outcome.all_succeeded
    [(headers, body)] = sent
    assert body["data"] == {"event": "approval:required", "text": "Bash waits for an approval", "session_id": "s-1"}
    Webhook(SECRET).verify(json.dumps(body, separators=(",", ":")), headers)
    assert SECRET not in repr(settings)
    assert len([record for record in caplog.records if record.msg == "not_notified"]) == (answer == FAILED)


@pytest.mark.skipif(shutil.which("dbus-monitor") is None, reason="needs the tools of D-Bus")
@pytest.mark.skipif(
    shutil.which("gdbus") is None or shutil.which("notify-send") is not None, reason="needs gdbus alone"
)
async def test_real_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a real bus the call arrives as desktops expect it; a missing desktop is reported."""
    bus = await asyncio.create_subprocess_exec(
        "dbus-daemon", "--session", "--nofork", "--print-address", f"--address=unix:dir={tmp_path}",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert bus.stdout is not None
    address = (await bus.stdout.readline()).decode().strip()
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    monitor = await asyncio.create_subprocess_exec(
        "dbus-monitor", "--address", address, "member=Notify", stdout=asyncio.subprocess.PIPE
    )
    assert monitor.stdout is not None
    await monitor.stdout.readuntil(b"member=NameLost")
    with pytest.raises(HookUnavailable, match=r"ServiceUnknown|not provided by any"):
        await show_on_desktop("it's <here>", 10)
    heard = await monitor.stdout.readuntil(b"int32 -1")
    for part in (
        b"member=Notify",
        b'string "amplifier-hooks"',
        b"uint32 0",
        b'string "it\'s &lt;here&gt;"',
        b"array [",
    ):
        assert part in heard
    for process in (monitor, bus):
        process.terminate()
        await process.wait()
