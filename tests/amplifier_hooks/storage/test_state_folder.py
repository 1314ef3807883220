"""The folder of a user's state."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from amplifier_hooks.definitions.trust import TrustStore
from amplifier_hooks.storage.state_folder import StateFolder, locked


@pytest.mark.rule("CLI-3")
def test_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Approvals and trust are in one folder, which is created for its owner alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("AMPLIFIER_HOOKS_TRUST", raising=False)
    folder = tmp_path / "state" / "amplifier-hooks"
    assert (StateFolder().approvals.parent, TrustStore().path.parent, StateFolder().path) == (folder,) * 3
    assert not folder.exists()
    assert stat.S_IMODE(StateFolder().make().path.stat().st_mode) == 0o700


@pytest.mark.rule("CLI-3")
@pytest.mark.parametrize("named", ["", "state", "../elsewhere"])
def test_no_absolute_path(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path does not move the state, because state must not depend on the working directory."""
    monkeypatch.setenv("XDG_STATE_HOME", named)
    monkeypatch.setenv("HOME", "/home/robin")
    assert StateFolder().path == Path("/home/robin/.local/state/amplifier-hooks")


@pytest.mark.rule("TRU-2")
def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    """A second holder waits for a limited time, gets an error that names the file, and the lock after the first."""
    path = tmp_path / "lock"
    with locked(path):
        with pytest.raises(TimeoutError, match=str(path)), locked(path, within=0):
            pass
        assert path.stat().st_mode & 0o077 == 0
    with locked(path, within=0):
        pass
