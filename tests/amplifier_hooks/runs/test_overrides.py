"""Overrides of blueprints' hooks: every coordinator follows them, and a changed file puts them out of force."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from amplifier_hooks.definitions.kinds.webhook import WebhookHook
from amplifier_hooks.runs.blueprint import OUTDATED, HookOverride
from amplifier_hooks.runs.run_hooks import RunHooks
from amplifier_hooks.runs.run_store import RunStore
from amplifier_hooks.storage.database import CorruptStore
from tests.runs import agent, agent_hook, house, python_hook, run_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from amplifier_hooks.runs.blueprint import Blueprint
    from amplifier_hooks.runs.run_states import RunRecord
    from tests.runs import House

KINDS = ("memory", "sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.slow]))


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunStore]:
    """An empty store of each kind."""
    async with run_store(request.param, tmp_path) as made:
        yield made.store


def override(blueprint: Blueprint, **fields: Any) -> HookOverride:
    """Return an override of the start hook of a blueprint."""
    given: dict[str, Any] = {
        "agent": blueprint.name,
        "point": "on_run_start",
        "digest": blueprint.digest,
        "type": "agent",
        "agent_name": "strict",
        "on_error": "block",
        "timeout_seconds": 60.0,
        "by": "mara",
        "at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return HookOverride(**{**given, **fields})


def goes_on(event: str, data: Any) -> dict[str, Any]:
    """Let a run go on."""
    return {"action": "continue", "parameters": {**data["parameters"], "by": "file"}}


def blocks(record: RunRecord) -> dict[str, Any]:
    """Block a run, as an agent."""
    return {"action": "block", "block_reason": f"strict about {record.parameters['parameters']['amount']}"}


async def outcome(here: House, amount: int = 1, **agents: Any) -> RunRecord:
    """Run the writer to its end, and return its run."""
    run = (await here.runs.submit("writer", {"amount": amount})).id
    while (record := await here.runs.get(run)).status not in ("completed", "failed"):
        claimed = await here.runs.claim("runner", wait=0.05)
        if claimed is not None:
            await here.do(claimed, **agents)
    return record


@pytest.mark.rule("RUN-24")
async def test_every_coordinator_follows_an_override(store: RunStore) -> None:
    """The next run after an override asks the other hook, at any coordinator; after its removal, that of the file."""
    blueprints = (agent(start=python_hook()), agent("strict"))
    first, second = RunStore(store.database), RunStore(store.database)
    async with house(*blueprints, store=first) as one, house(*blueprints, store=second) as two:
        one.functions["hook"] = two.functions["hook"] = goes_on
        assert (await outcome(one)).effective == {"amount": 1, "by": "file"}
        made = override(blueprints[0])
        assert await one.runs.store.replace_override(None, made)
        for here in (one, two):
            blocked = await outcome(here, strict=blocks)
            assert (blocked.blocked, blocked.error) == (True, "strict about 1")
            (told,) = await here.told(blocked.id, "hook_blocked")
            assert (told["target_type"], told["target_name"]) == ("agent", "strict")
        assert await two.runs.store.replace_override(made, None)
        for here in (one, two):
            assert (await outcome(here)).effective == {"amount": 1, "by": "file"}


@pytest.mark.rule("RUN-24")
async def test_one_of_two_changes_at_once(store: RunStore) -> None:
    """A change, a first override and a removal count only if the override is the one that their author has seen."""
    writer = agent(start=python_hook())
    first, second = override(writer), override(writer, agent_name="other")
    async with store:
        assert await store.replace_override(None, first)
        assert not await store.replace_override(None, second)
        assert await store.replace_override(first, second)
        assert not await store.replace_override(first, None)
        assert not await store.replace_override(first, first)
        assert await store.overrides("writer") == (second,)
        assert await store.replace_override(second, None)
        assert await store.overrides("writer") == ()


@pytest.mark.rule("RUN-24")
@pytest.mark.parametrize(("in_file", "overridden"), [("block", "continue"), ("continue", "block"), ("block", "block")])
async def test_a_guard_whose_file_changed(in_file: str, overridden: str) -> None:
    """An override for another content of the file fails each run whose start hook blocks, on either side."""
    old, new = (agent(start=python_hook(on_error=in_file), description=text) for text in ("old", "new"))
    async with house(new, agent("strict")) as here:
        here.functions["hook"] = goes_on
        made = override(old, on_error=overridden)
        await here.runs.store.replace_override(None, made)
        failed = await outcome(here)
        assert (failed.status, failed.blocked, failed.handed) == ("failed", False, 0)
        assert OUTDATED in (failed.error or "")
        assert [told["event_type"] for told in await here.told(failed.id, "hook_")] == ["hook_start", "hook_failed"]
        confirmed = made.model_copy(update={"digest": new.digest})
        await here.runs.store.replace_override(made, confirmed)
        assert (await outcome(here, strict=blocks)).blocked
        await here.runs.store.replace_override(confirmed, None)
        assert (await outcome(here)).status == "completed"


@pytest.mark.rule("RUN-24")
async def test_hooks_that_guard_nothing_when_their_file_changed() -> None:
    """A start hook that goes on after failures, and a finish hook, are then those of the file."""
    seen: list[str] = []
    old, new = (
        agent(start=python_hook(on_error="continue"), finish=python_hook("after"), description=text)
        for text in ("old", "new")
    )
    async with house(new, agent("strict")) as here:
        here.functions.update(hook=goes_on, after=lambda event, data: seen.append(event))
        await here.runs.store.replace_override(None, override(old, on_error="continue"))
        await here.runs.store.replace_override(None, override(old, point="on_run_finish", on_error="block"))
        record = await outcome(here)
        await here.until(record.id)
        assert (record.effective, seen) == ({"amount": 1, "by": "file"}, ["run:finish"])


@pytest.mark.rule("RUN-24")
async def test_a_finish_hook_that_is_overridden() -> None:
    """The finish hook of a run that ends after an override is the agent that the override names."""
    writer = agent(finish=python_hook("after", on_error="continue"))
    async with house(writer, agent("strict")) as here:
        await here.runs.store.replace_override(None, override(writer, point="on_run_finish"))
        record = await outcome(here)
        await here.until(record.id)
        (child,) = await here.runs.store.children(record.id)
        assert child.agent == "strict"


@pytest.mark.rule("RUN-24", "RUN-16")
async def test_another_target_gives_its_own_answer() -> None:
    """A start hook that runs again for the same run after an override starts the agent of the override."""
    writer = agent(start=agent_hook("mild"))
    async with house(writer, agent("mild"), agent("strict")) as here:
        run = (await here.runs.submit("writer", {"amount": 1})).id
        assert await here.runs.claim("runner", agents=["writer"]) is None
        mild = await here.runs.claim("runner", wait=60)
        assert mild is not None
        assert mild.agent == "mild"
        await here.runs.store.let_go(here.runs.name)  # the coordinator is gone, and the hook runs again
        await here.runs.store.replace_override(None, override(writer))
        while (await here.runs.get(run)).status == "queued":
            await here.runs.claim("runner", agents=["writer"])
        strict = await here.runs.claim("runner", agents=["strict"], wait=60)
        assert strict is not None
        await here.do(strict, strict=blocks)
        assert (await here.until(run)).error == "strict about 1"


@pytest.mark.rule("RUN-24")
async def test_another_query_is_another_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to two URLs that differ in the query alone have ids of their own; the same URL has the same id again."""
    ids: list[str] = []

    async def exchange(self: WebhookHook, request_id: str, message: bytes, tenant: str) -> bytes:
        ids.append(request_id)
        return b'{"action": "continue"}'

    monkeypatch.setattr(WebhookHook, "exchange", exchange)
    for url in ("https://a.example/v?of=mild", "https://a.example/v?of=strict", "https://a.example/v?of=mild"):
        writer = agent(start={"type": "http", "on_error": "block", "url": url})
        registry = RunHooks().registry_of(writer)
        await registry.emit("run:start", {"run_id": "run_1", "tenant_id": "", "parameters": {}})
    assert (len(ids), len(set(ids)), ids[0]) == (3, 2, ids[2])


@pytest.mark.rule("RUN-24")
def test_secrets_stay_with_their_address() -> None:
    """Headers and method of the file stay with the URL of the file, whatever else changes; another URL gets none."""
    there = {"url": "https://a.example/v", "headers": {"Authorization": "Bearer ${TOKEN}"}, "method": "PUT"}
    entry = agent(start={"type": "http", "on_error": "block", **there}).hooks.on_run_start
    assert entry is not None
    same = override(agent(), type="http", agent_name=None, url=there["url"], timeout_seconds=5.0).entry_over(entry)
    other = override(agent(), type="http", agent_name=None, url="https://b.example/v").entry_over(entry)
    assert (same.headers, same.method, same.timeout_seconds) == (there["headers"], "PUT", 5.0)
    assert (other.url, other.headers, other.method) == ("https://b.example/v", {}, "POST")
    assert override(agent()).entry_over(entry).headers == {}


@pytest.mark.rule("RUN-24", "RUN-8")
@pytest.mark.parametrize(
    "fields",
    [
        {"type": "python", "agent_name": None},
        {"type": "http", "agent_name": None},
        {"agent_name": None},
        {"url": "https://a.example/"},
        {"agent_name": "no name"},
        {"on_error": "ignore"},
        {"timeout_seconds": 0.0},
        {"timeout_seconds": 1e9},
    ],
)
def test_overrides_that_are_none(fields: dict[str, Any]) -> None:
    """An override without its target, with two, with code, or with values that no file may have is refused."""
    entry = agent(start=agent_hook("mild")).hooks.on_run_start
    assert entry is not None
    with pytest.raises(ValidationError):
        override(agent(), **fields).entry_over(entry)


@pytest.mark.rule("RUN-24")
def test_the_digest_of_a_blueprint() -> None:
    """The digest follows every field that the file sets, schemas included, and no field that it leaves out."""
    digests = {
        agent(**fields).digest
        for fields in (
            *({}, {"description": ""}, {"description": "x"}, {"start": python_hook()}),
            *({"start": python_hook(on_error="continue")}, {"parameters_schema": {"type": "object"}}),
            {"parameters_schema": {"type": "object", "required": ["a"]}},
        )
    }
    assert len(digests) == 7
    assert agent(start=python_hook()).digest == agent(start=python_hook()).digest


@pytest.mark.rule("RUN-24")
async def test_an_override_that_cannot_be_read() -> None:
    """A row that this version cannot read makes the store unusable, and is not left out."""
    async with house(agent(start=python_hook())) as here:
        sql = "INSERT INTO {schema}.hook_override (agent, point, body) VALUES ($1, $2, $3)"
        await here.runs.store.database.fetch(sql, "writer", "on_run_start", "{}")
        with pytest.raises(CorruptStore, match="an override of 'writer' cannot be read"):
            await here.runs.store.overrides("writer")
