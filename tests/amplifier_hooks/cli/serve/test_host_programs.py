"""The host of `serve`, in this process: its parts start and end in order."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from attrs import evolve

from amplifier_hooks.cli.serve.host_programs import ApiHost, Host, host_programs
from amplifier_hooks.definitions.model import NewHook, new_hook_id
from amplifier_hooks.definitions.store import DefinitionStore
from amplifier_hooks.registry.hook_table import RegistryChange
from amplifier_hooks.runs.blueprint import Agents
from amplifier_hooks.runs.store.statements import RUN_TABLES
from amplifier_hooks.server.build_api import API_TABLES
from amplifier_hooks.server.edge.access_tokens import AccessTokens
from amplifier_hooks.server.edge.listen import has_listener
from amplifier_hooks.storage.sqlite import SqliteDatabase
from amplifier_hooks.testing import ManualClock
from approval_backends.broker import Broker
from approval_backends.stores.address import store_at
from tests.runs import agent


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder for the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@asynccontextmanager
async def hosted(folder: Path, agents: Agents | None = None) -> AsyncIterator[Host]:
    """Yield the host of `serve --api`, before it serves."""
    store = store_at(str(folder / "approvals.db"))
    await store.open()
    broker = Broker(store)
    options: dict[str, Any] = dict.fromkeys(("hooks", "rules", "record", "port"))
    path = folder / "run" / "hooks.sock"
    host = host_programs(broker, store.database, socket=path, asking="inbox", waits=1.0, **options)
    database = SqliteDatabase(folder / "hooks.db", *API_TABLES, RUN_TABLES)
    yield evolve(host, api=ApiHost(database=database, broker=broker, port=0, agents=agents))
    await store.close()


@pytest.mark.slow
@pytest.mark.rule("API-15", "DSP-3")
async def test_nobody_is_answered_without_the_hooks(own_state: Path) -> None:
    """Hooks made over the API are in force before programs can ask, and as long as they can."""
    said = {
        "name": "guard",
        "event_type": "tool:pre",
        "handler_ref": "tests.amplifier_hooks.server.hooks.guards:denies",
    }
    async with SqliteDatabase(own_state / "hooks.db", *API_TABLES) as database:
        new = NewHook.model_validate(said).to_definition(tenant_id="", hook_id=new_hook_id(), now=ManualClock().now())
        await DefinitionStore(database).create(new)
    seen: list[tuple[str, bool]] = []
    async with hosted(own_state) as host:

        def note(change: RegistryChange) -> None:
            if change.hook == "guard":
                seen.append((change.what, has_listener(host.socket)))

        host.hooks.registry.watch(note)
        async with host.serving():
            assert has_listener(host.socket)
    assert {what for what, _ in seen} >= {"registered", "unregistered"}
    assert not any(open_ for _, open_ in seen)


@pytest.mark.slow
@pytest.mark.rule("API-1", "RUN-7")
@pytest.mark.parametrize("named", [True, False])
async def test_runs_of_agents(own_state: Path, named: bool) -> None:
    """With a folder of agents the API queues their runs, and without one there are no such routes."""
    agents = Agents([agent("writer")]) if named else None
    async with hosted(own_state, agents) as host, host.serving():
        assert host.api is not None
        async with SqliteDatabase(own_state / "hooks.db", *API_TABLES) as database:
            _, secret = await AccessTokens(database).create("ada", scopes=["runs:create", "runs:claim"], tenant="acme")
        headers = {"authorization": f"Bearer {secret}"}
        async with httpx2.AsyncClient(base_url=host.api.address, headers=headers) as client:
            made = await client.post("/runs", json={"agent_name": "writer", "parameters": {}})
            claimed = await client.get("/runner/runs", params={"runner": "one"})
    assert (made.status_code, claimed.status_code) == ((201, 200) if named else (404, 404))
