"""One process at a time holds the lock of a file."""

from pathlib import Path

import pytest

from amplifier_hooks.storage.file_lock import locked


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
