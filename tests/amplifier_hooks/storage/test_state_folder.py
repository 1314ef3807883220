"""The folder of a user's state."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from amplifier_hooks.definitions.trust import TrustStore
from amplifier_hooks.storage.state_folder import make_state_folder, state_folder
from approval_backends.stores.address import default_path


@pytest.mark.rule("CLI-3")
def test_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Approvals and trust are in one folder, which is created for its owner alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("AMPLIFIER_HOOKS_TRUST", raising=False)
    folder = tmp_path / "state" / "amplifier-hooks"
    assert (default_path().parent, TrustStore.default().path.parent, state_folder()) == (folder,) * 3
    assert not folder.exists()
    assert stat.S_IMODE(make_state_folder().stat().st_mode) == 0o700


@pytest.mark.rule("CLI-3")
@pytest.mark.parametrize("named", ["", "state", "../elsewhere"])
def test_no_absolute_path(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path does not move the state, because state must not depend on the working directory."""
    monkeypatch.setenv("XDG_STATE_HOME", named)
    monkeypatch.setenv("HOME", "/home/robin")
    assert state_folder() == Path("/home/robin/.local/state/amplifier-hooks")
