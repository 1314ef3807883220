"""The key file."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from amplifier_hooks.record.line import VerifierKey
from amplifier_hooks.record.log_files import AuditKey
from amplifier_hooks.record.record_errors import UnsafeLog

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.rule("AUD-2")
def test_made_once(tmp_path: Path) -> None:
    """The first use creates a key that only its owner can read, with its public half beside it; later uses read it."""
    before = os.umask(0)
    try:
        key = AuditKey.open(tmp_path / "audit.key")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "audit.key").stat().st_mode) == 0o600
    assert AuditKey.open(tmp_path / "audit.key").public == key.public
    public = VerifierKey.parse((tmp_path / "audit.key.pub").read_text())
    assert (public.name, public.public) == ("amplifier-hooks/audit", key.public)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.key", "audit.key.pub"]
    assert key.fingerprint in repr(key)


@pytest.mark.rule("AUD-2")
def test_made_at_the_same_time(tmp_path: Path) -> None:
    """Many that open a key at once all get one key."""
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(AuditKey.open(tmp_path / "audit.key").public)) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16
    assert len(set(found)) == 1


@pytest.mark.rule("AUD-2")
def test_refused(tmp_path: Path) -> None:
    """A key that other users may read, a link, a pipe and a file without a key are refused, and none is replaced."""
    AuditKey.open(tmp_path / "audit.key")
    (tmp_path / "link").symlink_to(tmp_path / "audit.key")
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "empty").touch(0o600)
    (tmp_path / "open").write_bytes((tmp_path / "audit.key").read_bytes())
    (tmp_path / "open").chmod(0o640)
    (tmp_path / "folder").mkdir()
    for name, problem in {
        "link": "link",
        "pipe": "no plain file",
        "empty": "no key that can be read",
        "open": "others may read",
        "folder": "no plain file",
    }.items():
        with pytest.raises(UnsafeLog, match=problem):
            AuditKey.open(tmp_path / name)
    assert (tmp_path / "empty").read_bytes() == b""


@pytest.mark.rule("AUD-2")
def test_other_kind(tmp_path: Path) -> None:
    """The error names a key of another kind."""
    command = ["openssl", "genpkey", "-algorithm", "X25519", "-out", str(tmp_path / "audit.key")]
    subprocess.run(command, check=True, capture_output=True)
    (tmp_path / "audit.key").chmod(0o600)
    with pytest.raises(UnsafeLog, match="another kind"):
        AuditKey.open(tmp_path / "audit.key")


@pytest.mark.rule("AUD-4")
def test_hiding() -> None:
    """A value of the key and the log hashes secrets; another key or another log gives another value."""
    one, other = AuditKey(b"\x01" * 32), AuditKey(b"\x02" * 32)
    values = {one.hash_key("a"), one.hash_key("b"), other.hash_key("a")}
    assert len(values) == 3
    assert one.hash_key("a") in values
