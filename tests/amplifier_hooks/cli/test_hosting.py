"""What `serve` puts together, in this process: in which order it begins and ends."""

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from amplifier_hooks.cli.hosting import ApiPlace, host_programs
from amplifier_hooks.definitions.model import NewHook, new_hook_id
from amplifier_hooks.definitions.store import DefinitionStore
from amplifier_hooks.registry import Change
from amplifier_hooks.server.listening import answers
from amplifier_hooks.server.management import API_TABLES
from amplifier_hooks.storage.sqlite import SqliteDatabase
from amplifier_hooks.testing import ManualClock
from approval_backends.broker import Broker
from approval_backends.stores.address import store_at


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for all that is kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.mark.slow
@pytest.mark.rule("API-15", "DSP-3")
async def test_nobody_is_answered_without_the_hooks(own_state: Path) -> None:
    """Hooks made over the API are in force before programs can ask, and as long as they can."""
    place, path = own_state / "hooks.db", own_state / "run" / "hooks.sock"
    said = {"name": "guard", "event_type": "tool:pre", "handler_ref": "tests.amplifier_hooks.server.guards:denies"}
    guard = NewHook.model_validate(said)
    async with SqliteDatabase(place, *API_TABLES) as database:
        new = guard.defined(tenant_id="", hook_id=new_hook_id(), now=ManualClock().now())
        await DefinitionStore(database).create(new)
    store = store_at(str(own_state / "approvals.db"))
    await store.open()
    broker = Broker(store)
    options: dict[str, Any] = dict.fromkeys(("hooks", "rules", "record", "port"))
    host = host_programs(broker, store.database, socket=path, asking="inbox", waits=1.0, **options)
    host = evolve(host, api=ApiPlace(database=SqliteDatabase(place, *API_TABLES), broker=broker, port=0))
    seen: list[tuple[str, bool]] = []

    def note(change: Change) -> None:
        if change.hook == "guard":
            seen.append((change.what, answers(path)))

    host.hooks.registry.watch(note)
    async with host.serving():
        assert answers(path)
    await store.close()
    assert {what for what, _ in seen} >= {"registered", "unregistered"}
    assert not any(open_ for _, open_ in seen)
