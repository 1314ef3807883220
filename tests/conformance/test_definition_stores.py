"""Definitions and tokens: one suite over memory, SQLite and PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from amplifier_hooks.definitions.model import HookDefinition, NewHook, new_hook_id
from amplifier_hooks.definitions.store import (
    DEFINITION_TABLES,
    ChangedMeanwhile,
    DefinitionCursor,
    DefinitionStore,
    NameTaken,
    TooManyDefinitions,
)
from amplifier_hooks.server.edge.access_tokens import ACCESS_TABLES, AccessTokens
from amplifier_hooks.storage.database import CorruptStore, Database
from tests.stores import KINDS, database

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(params=KINDS)
async def tables(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """Yield a database with the tables of both."""
    async with database(request.param, tmp_path, DEFINITION_TABLES, ACCESS_TABLES) as opened:
        yield opened


def a_hook(name: str = "guard", tenant: str = "acme", seconds: float = 0, **fields: Any) -> HookDefinition:
    """Return a definition."""
    said = {"name": name, "event_type": "tool:pre", "handler_ref": "http", "config": {"url": "https://a"}, **fields}
    made = NOON + timedelta(seconds=seconds)
    return NewHook.model_validate(said).to_definition(tenant_id=tenant, hook_id=new_hook_id(), now=made)


# -- definitions -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("API-11")
async def test_a_definition_comes_back_whole(tables: Database) -> None:
    """A stored definition comes back whole, with a version; for its tenant, and for a caller that asks about all."""
    store = DefinitionStore(tables)
    hook = a_hook(
        description="ä\\u0000 \U0001f600", config={"url": "https://a", "n": 2**53, "x": [None, 1.5]}, tags=["a"]
    )
    kept = await store.create(hook)
    assert (kept.definition, kept.version) == (hook, 1)
    for tenant in (None, "acme"):
        found = await store.get(hook.hook_id, tenant)
        assert found is not None
        assert (found.definition, found.version) == (hook, 1)
    assert await store.get(hook.hook_id, "other") is None
    assert await store.get("hook_000000000000") is None


@pytest.mark.rule("API-11")
async def test_a_change_is_for_one_version(tables: Database) -> None:
    """A change counts the version on; one for an earlier version, or for a removed hook, is refused and says so."""
    store = DefinitionStore(tables)
    hook = a_hook()
    await store.create(hook)
    changed = hook.model_copy(update={"priority": 7, "enabled": False})
    assert (await store.replace(changed, 1)).version == 2
    with pytest.raises(ChangedMeanwhile) as late:
        await store.replace(hook, 1)
    assert late.value.version == 2
    with pytest.raises(ChangedMeanwhile):
        await store.delete(hook.hook_id, 1)
    found = await store.get(hook.hook_id)
    assert found is not None
    assert found.definition.priority == 7
    await store.delete(hook.hook_id, 2)
    with pytest.raises(ChangedMeanwhile) as gone:
        await store.replace(changed, 2)
    assert gone.value.version is None


@pytest.mark.rule("API-11")
async def test_what_is_kept_in_memory_is_what_there_is(tables: Database) -> None:
    """Memory keeps one version of a hook that is changed again and again, and nothing of a removed one."""
    store, elsewhere = DefinitionStore(tables), DefinitionStore(tables)
    hook, other = a_hook(name="one"), a_hook(name="other")
    for one in (hook, other):
        await store.create(one)
    for version in range(1, 4):
        await store.replace(hook.model_copy(update={"priority": version}), version)
        first, second = await store.find(), await store.find()
        assert [one is another for one, another in zip(first, second, strict=True)] == [True, True]
    assert len(store._read) == 2
    await store.delete(hook.hook_id, 4)
    await elsewhere.delete(other.hook_id, 1)
    assert await store.find() == []
    assert store._read == {}


@pytest.mark.rule("API-11")
async def test_what_is_no_definition(tables: Database) -> None:
    """A definition that this version cannot read makes the store unusable; none is left out in silence."""
    store = DefinitionStore(tables)
    await store.create(a_hook())
    await tables.fetch("UPDATE {schema}.hook_definition SET definition = $1", '{"name": "of tomorrow"}')
    with pytest.raises(CorruptStore, match="hook_"):
        await store.find()


@pytest.mark.fault("F-API-06")
@pytest.mark.rule("API-11")
async def test_of_changes_at_once_one_happens(tables: Database) -> None:
    """Of ten changes to one version at the same time exactly one is made, and the others come too late."""
    store = DefinitionStore(tables)
    hook = a_hook()
    await store.create(hook)
    changes = (store.replace(hook.model_copy(update={"priority": number}), 1) for number in range(10))
    results = await asyncio.gather(*changes, return_exceptions=True)
    won = [result for result in results if not isinstance(result, BaseException)]
    assert len(won) == 1
    assert sum(isinstance(result, ChangedMeanwhile) for result in results) == 9
    found = await store.get(hook.hook_id)
    assert found is not None
    assert not isinstance(won[0], BaseException)
    assert (found.definition, found.version) == (won[0].definition, 2)


@pytest.mark.fault("F-API-13")
@pytest.mark.rule("API-11")
async def test_names_are_told_apart(tables: Database) -> None:
    """A tenant's names are unique also to the eye; another tenant may have the same."""
    store = DefinitionStore(tables)
    await store.create(a_hook("all-clear"))
    for like in ("all-clear", "All-Clear", "a11-clear", "all_clear"):
        with pytest.raises(NameTaken):
            await store.create(a_hook(like))
    await store.create(a_hook("all-clear", tenant="other"))
    other = a_hook("another")
    await store.create(other)
    with pytest.raises(NameTaken):
        await store.replace(other.model_copy(update={"name": "aII-clear"}), 1)
    await store.replace(other.model_copy(update={"name": "An0ther"}), 1)


@pytest.mark.fault("F-API-13")
async def test_of_two_that_are_alike_at_once_one_is_kept(tables: Database) -> None:
    """Of two alike definitions that come at the same time one is kept."""
    store = DefinitionStore(tables)
    results = await asyncio.gather(*(store.create(a_hook("guard")) for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(result, NameTaken) for result in results) == 4
    assert len(await store.find()) == 1


@pytest.mark.fault("F-API-11")
@pytest.mark.rule("API-10")
async def test_a_tenant_has_so_many(tables: Database) -> None:
    """Beyond its quota a tenant keeps no more; others are not counted."""
    store = DefinitionStore(tables)
    for number in range(3):
        await store.create(a_hook(f"h{number}"), most=3)
    with pytest.raises(TooManyDefinitions):
        await store.create(a_hook("more"), most=3)
    await store.create(a_hook("more", tenant="other"), most=3)


@pytest.mark.rule("API-11")
async def test_pages_of_definitions(tables: Database) -> None:
    """Pages follow each other without a gap or a repetition, also while others come and go; filters hold."""
    store = DefinitionStore(tables)
    hooks = [a_hook(f"h{number}", seconds=number // 2, enabled=number != 4) for number in range(6)]
    for hook in hooks:
        await store.create(hook)
    await store.create(a_hook(tenant="other", event_type="tool:post"))
    seen: list[str] = []
    after = None
    while page := await store.find(tenant="acme", after=after, limit=2):
        seen += [one.definition.hook_id for one in page]
        after = DefinitionCursor.of(page[-1])
        if len(seen) == 2:
            await store.delete(page[0].definition.hook_id, 1)
    assert sorted(seen) == sorted(hook.hook_id for hook in hooks)
    assert [one.definition.name for one in await store.find(enabled=False)] == ["h4"]
    assert [one.definition.tenant_id for one in await store.find(event="tool:post")] == ["other"]


@pytest.mark.rule("API-11")
async def test_changes_wake(tables: Database) -> None:
    """A watch wakes on every change."""
    store = DefinitionStore(tables)
    hook = a_hook()
    with store.watch() as watch:
        await store.create(hook)
        assert await watch.wait(60)
        await store.replace(hook, 1)
        assert await watch.wait(60)
        await store.delete(hook.hook_id, 2)
        assert await watch.wait(60)


# -- tokens ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("API-6")
async def test_tokens_are_kept(tables: Database) -> None:
    """A token is known from the moment it is made until it is revoked."""
    tokens = AccessTokens(tables)
    made, secret = await tokens.create("ada", scopes=["hooks:read"], tenant="acme")
    assert await tokens.bearer(secret) == made
    assert await tokens.tokens("acme") == [made]
    revoked = await tokens.revoke(made.id)
    assert revoked is not None
    assert revoked.revoked is not None
    assert await tokens.revoke(made.id) == revoked
    assert await tokens.bearer(secret) is None
