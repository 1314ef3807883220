"""The hooks of blueprints over HTTP: they are shown, overridden on record, and given back to their file."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks.record.record_errors import LogUnavailable
from amplifier_hooks.server.edge.access_tokens import InvalidToken
from amplifier_hooks.server.runs.agent_routes import agents_router
from amplifier_hooks.testing import CollectingAudit
from tests.api import office
from tests.runs import agent, agent_hook, house, python_hook

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import httpx2

    from tests.api import Office
    from tests.runs import House

WANTED = {"type": "agent", "agent_name": "strict", "on_error": "continue", "timeout_seconds": 30.0}
START = "/agents/writer/hooks/on_run_start"


class BrokenAudit(CollectingAudit):
    """A record that can be written until it breaks."""

    broken = False

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append one record, or raise."""
        if self.broken:
            raise LogUnavailable("the disk is full")
        await super().write(kind, facts, durable=durable)


@asynccontextmanager
async def site(audit: CollectingAudit | None = None) -> AsyncIterator[tuple[Office, House, httpx2.AsyncClient]]:
    """An API with an agent that has both hooks, another one that has none, and a client who may write."""
    writer = agent(start=python_hook(), finish=agent_hook("strict"), description="writes")
    record = audit or CollectingAudit()
    async with (
        house(writer, agent("strict")) as inside,
        office(record=record, routers=[agents_router(inside.runs, record)]) as there,
        await there.client("runs:write", tenant="", name="mara") as client,
    ):
        yield there, inside, client


async def hook(client: httpx2.AsyncClient, hook_type: str = "on_run_start") -> dict[str, Any]:
    """Return a hook of the writer, as the API shows it."""
    agents = {one["agent_name"]: one for one in (await client.get("/agents")).json()["agents"]}
    found: dict[str, Any] = next(one for one in agents["writer"]["hooks"] if one["hook_type"] == hook_type)
    return found


@pytest.mark.rule("RUN-24", "RUN-20")
async def test_an_override_and_back() -> None:
    """An override is shown beside the file's hook with its author, decides runs, and is taken back; both on record."""
    async with site() as (there, inside, client):
        listed = (await client.get("/agents")).json()["agents"]
        assert [(one["agent_name"], len(one["hooks"])) for one in listed] == [("strict", 0), ("writer", 2)]
        seen = await hook(client)
        assert (seen["state"], seen["override"], seen["file"]["handler_ref"]) == ("file", None, "tests:hook")
        answer = await client.put(START, json=WANTED, headers={"if-match": f'"{seen["tag"]}"'})
        assert answer.status_code == 200
        shown = answer.json()
        assert shown == await hook(client)
        assert {name: shown["override"][name] for name in WANTED} == WANTED
        assert (shown["state"], shown["changed_by"], shown["file"]) == ("overridden", "mara", seen["file"])
        run = (await inside.runs.submit("writer", {})).id
        child = await inside.runs.claim("runner", wait=60)
        assert child is not None
        assert (child.agent, child.parent) == ("strict", run)
        back = await client.delete(START, headers={"if-match": shown["tag"]})
        assert (back.status_code, back.json()) == (200, seen)
        (made,), (gone,) = there.audit.facts("run_hook.overridden"), there.audit.facts("run_hook.restored")
        assert (made["by"], made["agent"], made["hook"], made["before"]) == ("mara", "writer", "on_run_start", None)
        assert (made["after"]["target"], made["after"]["on_error"]) == ("strict", "continue")
        assert made["after"]["digest"] == inside.runs.agents.get("writer").digest
        assert (gone["before"], gone["after"]) == (made["after"], None)


@pytest.mark.rule("RUN-24")
async def test_a_change_of_a_hook_that_its_author_has_not_seen() -> None:
    """Without the tag a change is 428, with an old one 412; a hook that no file names is 404, and cannot be added."""
    async with site() as (there, _, client):
        seen = await hook(client)
        assert (await client.put(START, json=WANTED)).status_code == 428
        assert (await client.put(START, json=WANTED, headers={"if-match": seen["tag"]})).status_code == 200
        for tag in (seen["tag"], "", "x", (await hook(client, "on_run_finish"))["tag"]):
            stale = await client.put(START, json={**WANTED, "timeout_seconds": 1.0}, headers={"if-match": tag})
            assert (stale.status_code, stale.json()["code"]) == (412, "changed_meanwhile")
            assert (await client.delete(START, headers={"if-match": tag})).status_code == 412
        for path in ("/agents/absent/hooks/on_run_start", "/agents/strict/hooks/on_run_start"):
            assert (await client.put(path, json=WANTED, headers={"if-match": "x"})).status_code == 404
        assert (await client.put("/agents/writer/hooks/other", json=WANTED)).status_code == 422
        assert len(there.audit.facts("run_hook.overridden")) == 1


@pytest.mark.rule("RUN-24")
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"agent_name": "absent"}, "body.agent_name: there is no such agent"),
        ({"agent_name": None}, "needs agent_name"),
        ({"type": "http", "agent_name": None, "url": "http://10.0.0.1/"}, "its scheme is 'http'"),
        ({"type": "http", "agent_name": None, "url": "https://a.example:1/"}, "port 1 is not among those allowed"),
        ({"type": "http", "url": "https://a.example/"}, "body: agent_name belongs to a hook of type agent"),
        ({"on_error": "ignore"}, "body.on_error"),
        ({"timeout_seconds": 0.0}, "body.timeout_seconds"),
        ({"handler_ref": "os:system"}, "body.handler_ref"),
        ({"headers": {"x": "${PATH}"}}, "body.headers"),
    ],
)
async def test_overrides_with_mistakes(fields: dict[str, Any], said: str) -> None:
    """An override that would fail at every run is refused by name, and neither stored nor on record."""
    async with site() as (there, inside, client):
        seen = await hook(client)
        answer = await client.put(START, json={**WANTED, **fields}, headers={"if-match": seen["tag"]})
        assert (answer.status_code, said in answer.json()["detail"]) == (422, True), answer.text
        assert await inside.runs.store.overrides("writer") == ()
        assert there.audit.facts("run_hook.overridden") == []


@pytest.mark.rule("RUN-24", "API-6")
async def test_callers_who_may_not() -> None:
    """Other scopes open none of it, and no tenant's token can have the scope."""
    async with site() as (there, _, client):
        seen = await hook(client)
        async with await there.client("runs:read", "runs:create", "hooks:admin", tenant="") as reader:
            for method, path in (("GET", "/agents"), ("PUT", START), ("DELETE", START)):
                answer = await reader.request(method, path, headers={"if-match": seen["tag"]})
                assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope")
        with pytest.raises(InvalidToken, match="runs:write is for the system"):
            await there.api.tokens.create("ada", scopes=("runs:write",), tenant="acme")


@pytest.mark.rule("RUN-24")
async def test_no_record_no_change() -> None:
    """While the record cannot be written, a change is 503 and not made; a change that fails is on record as that."""
    audit = BrokenAudit()
    async with site(audit) as (_, inside, client):
        seen = await hook(client)
        audit.broken = True
        answer = await client.put(START, json=WANTED, headers={"if-match": seen["tag"]})
        assert (answer.status_code, answer.json()["code"]) == (503, "audit_unavailable")
        assert await hook(client) == seen
        audit.broken = False

        async def faster(*_: object) -> bool:
            return False

        inside.runs.store.replace_override = faster  # type: ignore[assignment, method-assign]
        answer = await client.put(START, json=WANTED, headers={"if-match": seen["tag"]})
        assert answer.status_code == 412
        assert [kind for kind in audit.kinds if kind.startswith("run_hook")] == [
            "run_hook.overridden",
            "run_hook.unchanged",
        ]


@pytest.mark.rule("RUN-24")
async def test_an_outdated_override_is_shown() -> None:
    """An override that was made for another content of the file shows as outdated, until its author makes it again."""
    async with site() as (_, inside, client):
        await client.put(START, json=WANTED, headers={"if-match": (await hook(client))["tag"]})
        (made,) = await inside.runs.store.overrides("writer")
        inside.runs.agents._known["writer"] = agent(start=python_hook(), finish=agent_hook("strict"))
        shown = await hook(client)
        assert (shown["state"], shown["override"]["agent_name"]) == ("outdated", "strict")
        again = await client.put(START, json=WANTED, headers={"if-match": shown["tag"]})
        assert (again.json()["state"], made.digest) != (
            "outdated",
            (await inside.runs.store.overrides("writer"))[0].digest,
        )
