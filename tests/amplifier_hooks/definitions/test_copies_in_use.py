"""Private copies that nothing uses are removed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amplifier_hooks.definitions import TrustStore, load_files
from amplifier_hooks.definitions.copies_in_use import CopiesInUse, remove_unused
from amplifier_hooks.definitions.list_files import FileDigests, list_files
from amplifier_hooks.definitions.private_copies import TrustedFiles

pytestmark = pytest.mark.rule("TRU-9")

HOOKS = (
    "version: 1\nhooks:\n- {name: guard, event_type: tool:pre, handler_ref: command, config: {argv: [./guard.sh]}}\n"
)
OLD = "0" * 64
HOLD = """
import sys
from pathlib import Path
from amplifier_hooks.definitions.copies_in_use import IN_USE
IN_USE.hold(Path(sys.argv[1]), ["0" * 64])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    """A store that trusts one project, whose copies are made, and beside them copies of nothing."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "hooks.yaml").write_text(HOOKS)
    (tmp_path / "project" / "guard.sh").write_text("#!/bin/sh\n")
    store = TrustStore(tmp_path / "state" / "trust.json")
    listed = list_files(load_files(tmp_path / "project" / "hooks.yaml"), FileDigests())
    TrustedFiles(listed, store.copies).make()
    store.trust("project", [listed])
    (store.copies / OLD / "sub").mkdir(parents=True)
    (store.copies / OLD / "sub" / "guard.sh").write_text("")
    return store


def names(store: TrustStore) -> set[str]:
    """Return the names of all copies."""
    return {path.name for path in store.copies.glob("[!.]*")}


def test_copies_that_nothing_uses_are_removed(store: TrustStore) -> None:
    """The copies of trusted lists stay, of every source, and so does what is no copy; others are removed."""
    (store.copies / "notes").mkdir()
    before = names(store)
    assert remove_unused(store) == 1
    assert names(store) == before - {OLD}
    assert remove_unused(store) == 0
    assert remove_unused(TrustStore(store.path.parent / "absent" / "trust.json")) == 0


def test_copies_of_a_running_process_stay(store: TrustStore) -> None:
    """Copies that a process may start stay while it runs, and are removed after its end, however it ended."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, os.fspath(store.copies)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert remove_unused(store) == 0
        assert OLD in names(store)
        process.kill()
        process.wait()
    assert remove_unused(store) == 1
    assert len(list(store.copies.glob(".uses-*"))) == 1  # that of this process


def test_copies_of_this_process_stay(store: TrustStore) -> None:
    """Copies that this process once had in force stay, also after they are no longer trusted."""
    CopiesInUse().hold(store.copies, [OLD])
    in_use = CopiesInUse()
    in_use.hold(store.copies, [OLD])
    in_use.hold(store.copies, [OLD])
    store.trust("project", [])
    before = names(store)
    assert remove_unused(store) == 0
    assert names(store) == before
