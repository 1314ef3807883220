"""Hooks over HTTP: made, read, changed, switched, tried and removed; and what keeps tenants apart."""

import asyncio
import importlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import thread_time
from typing import Any

import httpx2
import pytest

from amplifier_hooks import HookResult, SessionCoordinator
from amplifier_hooks.definitions.model import DefinitionSettings
from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.server.build_api import API_TABLES
from amplifier_hooks.server.edge.authentication import RateLimiter
from amplifier_hooks.storage.postgres import PostgresDatabase
from approval_backends.backend import DeferredApprovals
from approval_backends.lifecycle import Decider, RequestRecord
from tests.api import SECRET, Office, new_hook, office
from tests.stores import DSN, FILES, database, schema, server, until

CALL = {"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "ls"}, "tenant_id": "acme"}
NOBODY = "hook_000000000000"


@pytest.fixture(autouse=True)
def guards() -> Iterator[Any]:
    """The module that definitions name."""
    sys.path.insert(0, str(Path(__file__).parent))
    module: Any = importlib.import_module("guards")
    yield module
    sys.path.pop(0)
    del sys.modules["guards"]


@pytest.fixture
async def there() -> AsyncIterator[Office]:
    """The API."""
    async with office(tenant_handlers={"http", "guards:says", "guards:denies", "guards:asks", "guards:waits"}) as made:
        yield made


def python(name: str, handler: str, **fields: Any) -> dict[str, Any]:
    """A hook of this process."""
    return new_hook(name, handler_ref=f"guards:{handler}", config={}, timeout_ms=5000, **fields)


async def made(client: httpx2.AsyncClient, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """A hook that is there."""
    answer = await client.post("/v1/hooks", json=body or new_hook())
    assert answer.status_code == 201, answer.text
    hook: dict[str, Any] = answer.json()
    return hook


def match(hook: dict[str, Any]) -> dict[str, str]:
    """The header that names the version one has seen."""
    return {"if-match": f'"{hook["version"]}"'}


def names(there: Office) -> list[str]:
    """The hooks that are registered and come from definitions."""
    return [hook.name for hook in there.registry.hooks() if hook.source == "definition"]


# -- the life of a hook ------------------------------------------------------------------------------------------------


@pytest.mark.rule("API-1", "API-4")
async def test_a_hook_is_made_and_read(there: Office) -> None:
    """A new hook has an id, the tenant of the token, dates, band and version; it is found by its id and in lists."""
    client = await there.client()
    answer = await client.post("/v1/hooks", json=new_hook(priority=10, tags=["a"]))
    hook = answer.json()
    assert answer.headers["location"] == f"/v1/hooks/{hook['hook_id']}"
    assert answer.headers["etag"] == '"1"'
    assert (hook["tenant_id"], hook["version"], hook["band"], hook["kind"]) == ("acme", 1, "security", "http")
    assert hook["created_at"] == hook["updated_at"]
    got = await client.get(f"/v1/hooks/{hook['hook_id']}")
    assert got.json() == hook
    assert got.headers["etag"] == '"1"'
    assert (await client.get("/v1/hooks")).json() == {"hooks": [hook], "next": None}


@pytest.mark.rule("API-1", "API-4")
async def test_a_hook_is_in_force_at_once(there: Office) -> None:
    """A new hook runs with the next event of its tenant; one that is switched off, changed or removed does not."""
    client = await there.client()
    hook = await made(client, python("strict", "denies"))
    place = f"/v1/hooks/{hook['hook_id']}"
    assert (await there.registry.emit("tool:pre", CALL)).reason == "not today"
    assert not (await there.registry.emit("tool:pre", {**CALL, "tenant_id": "other"})).denied
    off = (await client.put(f"{place}/toggle")).json()
    assert (off["enabled"], off["version"]) == (False, 2)
    assert not (await there.registry.emit("tool:pre", CALL)).denied
    on = (await client.put(f"{place}/toggle", json={"enabled": True})).json()
    assert (await client.put(f"{place}/toggle", json={"enabled": True})).json() == on  # nothing is different
    assert (await there.registry.emit("tool:pre", CALL)).denied
    changed = await client.put(place, json={"event_type": "PostToolUse"}, headers=match(on))
    assert (changed.status_code, changed.json()["event_type"]) == (200, "tool:post")
    assert not (await there.registry.emit("tool:pre", CALL)).denied
    gone = await client.delete(place, headers=match(changed.json()))
    assert (gone.status_code, gone.content) == (204, b"")
    assert names(there) == []
    assert (await client.get(place)).status_code == 404


@pytest.mark.rule("API-1")
async def test_lists_are_filtered_and_paged(there: Office) -> None:
    """Lists are filtered by event, tenant and whether a hook is on; pages follow each other by cursor."""
    client, other, admin = await there.client(), await there.client(tenant="b"), await there.admin()
    for number in range(5):
        await made(client, new_hook(f"h{number}", enabled=number != 3))
    await made(client, new_hook("late", event_type="onToolResult"))
    await made(other)
    await made(admin, python("system", "says"))
    names: list[str] = []
    cursor = None
    while True:
        page = (await client.get("/v1/hooks", params={"limit": 2, "cursor": cursor} if cursor else {"limit": 2})).json()
        names += [hook["name"] for hook in page["hooks"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert names == ["h0", "h1", "h2", "h3", "h4", "late"]

    async def found(who: httpx2.AsyncClient, **wanted: Any) -> list[str]:
        return [hook["name"] for hook in (await who.get("/v1/hooks", params=wanted)).json()["hooks"]]

    assert await found(client, event_type="tool:post") == ["late"] == await found(client, event_type="PostToolUse")
    assert await found(client, enabled="false") == ["h3"]
    assert await found(client, tenant_id="acme") == names
    assert await found(admin) == [*names, "guard", "system"]
    assert await found(admin, tenant_id="") == ["system"]
    assert await found(admin, tenant_id="b") == ["guard"]
    assert (await client.get("/v1/hooks", params={"limit": 0})).status_code == 422
    for wrong in ("nonsense", "Ynl0ZXM", "é", "W10", "eyJ9"):
        assert (await client.get("/v1/hooks", params={"cursor": wrong})).status_code == 400
    page = (await client.get("/v1/hooks", params={"limit": 3})).json()
    assert await found(client, cursor=page["next"], enabled="false") == ["h3"]


@pytest.mark.rule("API-4")
async def test_scopes_of_routes(there: Office) -> None:
    """Hooks need hooks:manage, what they did hooks:read, and the system's hooks hooks:admin."""
    manage, read = await there.client("hooks:manage"), await there.client("hooks:read")
    system = await there.client("hooks:manage", "hooks:read", tenant="")
    for place in ("", "/logs", "/stats", f"/{NOBODY}"):
        is_log = place in ("/logs", "/stats")
        assert ((await manage.get(f"/v1/hooks{place}")).status_code == 403) is is_log
        assert ((await read.get(f"/v1/hooks{place}")).status_code == 403) is not is_log
    assert (await system.post("/v1/hooks", json=new_hook())).status_code == 403
    assert (await system.get("/v1/hooks")).json()["code"] == "insufficient_scope"
    assert (await system.get("/v1/hooks/logs")).status_code == 200


# -- F-API-01: tenants -------------------------------------------------------------------------------------------------


@pytest.mark.fault("F-API-01")
@pytest.mark.rule("TEN-1", "API-1")
async def test_another_tenants_hook_is_not_there(there: Office) -> None:
    """Another tenant's hook gets the 404 of a hook that does not exist, and a cursor of its list shows none of it."""
    client, other, admin = await there.client(), await there.client(tenant="b"), await there.admin()
    theirs = [await made(other, python(f"h{number}", "says")) for number in range(2)]
    await there.registry.emit("tool:pre", {**CALL, "tenant_id": "b"})
    await there.api.recorder.flush()
    log = (await other.get("/v1/hooks/logs")).json()["logs"][0]["log_id"]
    cursor = (await other.get("/v1/hooks", params={"limit": 1})).json()["next"]
    system = await made(admin, python("system", "says"))
    for hook in (theirs[0]["hook_id"], system["hook_id"], NOBODY):
        place = f"/v1/hooks/{hook}"
        answers = [
            await client.get(place),
            await client.put(place, json={"priority": 1}, headers={"if-match": '"1"'}),
            await client.put(place, json={"priority": 1}),
            await client.delete(place, headers={"if-match": '"9"'}),
            await client.put(f"{place}/toggle"),
            await client.post(f"{place}/test", json={"sample_context": {}}),
        ]
        assert [answer.status_code for answer in answers] == [404] * 6
        assert {answer.json()["detail"] for answer in answers} == {"there is no such hook"}
    assert (await client.get(f"/v1/hooks/logs/{log}")).status_code == 404
    for wanted in ({"tenant_id": "b"}, {"tenant_id": ""}, {"tenant_id": "absent"}):
        assert (await client.get("/v1/hooks", params=wanted)).status_code == 404
    assert (await client.get("/v1/hooks", params={"cursor": cursor})).json()["hooks"] == []
    for place in ("logs", "stats"):
        assert (await client.get(f"/v1/hooks/{place}", params={"tenant_id": "b"})).status_code == 404
    assert (await client.get("/v1/hooks")).json()["hooks"] == []
    assert (await client.get("/v1/hooks/logs")).json()["logs"] == []
    assert (await client.get("/v1/hooks/stats")).json()["statistics"] == []
    assert await made(client, python("h0", "says"))  # their names are not taken for us
    assert len((await other.get("/v1/hooks")).json()["hooks"]) == 2


@pytest.mark.fault("F-API-02")
@pytest.mark.rule("API-4")
@pytest.mark.parametrize(
    "extra",
    [
        {"tenant_id": "b"},
        {"tenant_id": ""},
        {"hook_id": "hook_0123456789ab"},
        {"created_at": "2020-01-01T00:00:00Z"},
        {"tier": "built-in"},
        {"trusted": True},
        {"created_by": "root"},
        {"version": 7},
        {"id": "x"},
        {"intent": "gate"},
    ],
)
async def test_what_a_body_may_not_say(there: Office, extra: dict[str, Any]) -> None:
    """Tier, tenant, trust, creator, id and version are not the caller's to say: refused, and nothing is kept."""
    client = await there.client()
    assert (await client.post("/v1/hooks", json={**new_hook(), **extra})).status_code == 422
    hook = await made(client)
    changed = await client.put(f"/v1/hooks/{hook['hook_id']}", json=extra, headers=match(hook))
    assert changed.status_code == 422
    assert (await client.get("/v1/hooks")).json()["hooks"] == [hook]


@pytest.mark.fault("F-API-03")
@pytest.mark.rule("EVT-5", "DEF-1")
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize(
    ("event", "said"),
    [
        *(
            ("LLM:POST", "write 'llm:post'"),
            ("Llm.Call.Post", "write 'llm.call.post'"),
            ("llm-post", "write 'llm:post'"),
        ),
        *(("TOOL:PRE", "write 'tool:pre'"), ("tool::pre", "write 'tool:pre'"), ("pretooluse", "write 'PreToolUse'")),
        ("tool.execute.pe", "unknown event 'tool.execute.pe', so the hook 'odd' would never run: did you mean"),
        ("tool:before", "did you mean 'tool:pre'?"),
        ("acme:go", "unknown event 'acme:go', so the hook 'odd' would never run"),
        ("acme:*", "unknown event 'acme:*', so the hook 'odd' would never run"),
    ],
)
async def test_an_unknown_event(there: Office, event: str, said: str, enabled: bool) -> None:
    """A hook at an event that is none is neither made nor changed to, on or off, and the answer says what was meant."""
    client = await there.client()
    answer = await client.post("/v1/hooks", json=new_hook("odd", event_type=event, enabled=enabled))
    assert answer.status_code == 422
    assert said in answer.json()["detail"]
    hook = await made(client, new_hook("odd", enabled=enabled))
    changed = await client.put(f"/v1/hooks/{hook['hook_id']}", json={"event_type": event}, headers=match(hook))
    assert (changed.status_code, said in changed.json()["detail"]) == (422, True)
    assert (await client.get("/v1/hooks")).json()["hooks"] == [hook]


@pytest.mark.rule("EVT-5", "API-4")
async def test_an_event_of_the_hosts_own(there: Office) -> None:
    """A tenant's hook may be at an event that the host declared; it runs there, and can be tried."""
    client = await there.client()
    there.registry.declare("acme:go", gate=True)
    hook = await made(client, python("strict", "denies", event_type="acme:go"))
    assert (await there.registry.emit("acme:go", {"tenant_id": "acme"})).reason == "not today"
    tried = await client.post(f"/v1/hooks/{hook['hook_id']}/test", json={"sample_context": {}})
    assert (tried.status_code, tried.json()["result"]["action"]) == (200, "deny")
    wrong = await client.post(f"/v1/hooks/{hook['hook_id']}/test", json={"sample_context": {}, "event_type": "ACME:GO"})
    assert (wrong.status_code, wrong.json()["detail"]) == (422, "unknown event 'ACME:GO': write it 'acme:go'")


@pytest.mark.rule("DEF-5", "TEN-1")
@pytest.mark.fault("F-WH-01")
@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "localhost", "a.LOCALHOST."],
)
@pytest.mark.parametrize("enabled", [True, False])
async def test_a_webhook_of_a_tenant_to_this_machine(there: Office, host: str, enabled: bool) -> None:
    """A tenant's webhook to an inner address is refused when it is stored, made or changed, switched off or not."""
    client = await there.client()
    body = {"config": {"url": f"https://{host}/"}, "enabled": enabled}
    answer = await client.post("/v1/hooks", json={**new_hook(), **body})
    assert answer.status_code == 403
    assert "not public" in answer.text
    hook = await made(client)
    changed = await client.put(f"/v1/hooks/{hook['hook_id']}", json=body, headers=match(hook))
    assert changed.status_code == 403
    assert (await client.get("/v1/hooks")).json()["hooks"] == [hook]


@pytest.mark.fault("F-API-03", "F-API-04", "F-API-05")
@pytest.mark.rule("TRU-1", "TEN-1")
@pytest.mark.parametrize(
    "body",
    [
        {"event_type": "context:assembled"},
        {"event_type": "onModelResponse"},
        {"event_type": "llm:pre"},
        {"event_type": "*"},
        {"event_type": "llm:*"},
        {"event_type": "model"},
        {"handler_ref": "command", "config": {"argv": ["/bin/true"]}},
        {"handler_ref": "os:system", "config": {}},
        {"handler_ref": "agent", "config": {}},
        {"matcher": "re:(a+)+$"},
        {"matcher": "re:" + "a" * 100_000},
        {"matcher": "re:(?=a)a"},
        {"config": {"url": "https://a.example", "networks": ["127.0.0.0/8"]}},
    ],
)
async def test_what_a_tenant_may_not_have(there: Office, body: dict[str, Any]) -> None:
    """Privileged points, commands, foreign code, regular expressions, inner networks: neither made nor changed to."""
    client = await there.client()
    status = 422 if len(str(body)) > 10_000 else 403
    answer = await client.post("/v1/hooks", json={**new_hook(), **body})
    assert answer.status_code == status
    hook = await made(client)
    changed = await client.put(f"/v1/hooks/{hook['hook_id']}", json=body, headers=match(hook))
    assert changed.status_code == status
    assert (await client.get("/v1/hooks")).json()["hooks"] == [hook]
    assert [kind for kind in there.audit.kinds if kind.startswith("definition")] == ["definition.created"]


@pytest.mark.fault("F-API-05")
@pytest.mark.rule("REG-4", "TEN-1")
@pytest.mark.parametrize(
    "matcher", ["*a*a*a*a*a*a*b", "?*" * 60 + "b", "|".join(["*a*a*a*ab"] * 50), "*[ab]*[ab]*[ab]*c"]
)
async def test_a_tenants_pattern_holds_nobody_up(there: Office, matcher: str) -> None:
    """With the worst pattern a tenant may have and the worst name of a tool, everybody else waits less than 50 ms."""
    client = await there.client()
    await made(client, python("warm", "says", matcher="a*"))
    await there.registry.emit("tool:pre", CALL)
    began = thread_time()
    hook = await made(client, python("worst", "says", matcher=matcher))
    for name in ("ab" * 32, "ab" * 5_000 + "c", "ab" * 50 + "da" * 50 + "c", "a" * 60_000):
        start = thread_time()
        await there.registry.emit("tool:pre", {**CALL, "tool_name": name})
        assert thread_time() - start < 0.05
    assert hook["matcher"] == matcher
    assert thread_time() - began < 0.5


@pytest.mark.fault("F-API-13")
@pytest.mark.parametrize(
    "name",
    [
        "",
        "a\x00b",
        "a\nb",
        "a\u202eb",
        "gu\u0430rd",
        "x" * 10_240,
        "../../etc/passwd",
        "a/b",
        " a",
        "a  b",
        "Guard",
        "guard",
        "\u200b",
    ],
)
async def test_names_have_a_grammar(there: Office, name: str) -> None:
    """Control characters, other directions, other alphabets, paths, great length and look-alikes are no names."""
    client = await there.client()
    await made(client)
    answer = await client.post("/v1/hooks", json=new_hook(name))
    assert answer.status_code == (409 if name.lower() == "guard" else 422)
    assert [kind for kind in there.audit.kinds if kind.startswith("definition")] == ["definition.created"]
    assert len((await client.get("/v1/hooks")).json()["hooks"]) == 1


# -- versions ----------------------------------------------------------------------------------------------------------


@pytest.mark.fault("F-API-06")
@pytest.mark.rule("API-11")
async def test_a_stale_version(there: Office) -> None:
    """A change has to say which version it is for; for another one it is 412, and of two at once one is made."""
    client = await there.client()
    hook = await made(client)
    place = f"/v1/hooks/{hook['hook_id']}"
    assert (await client.put(place, json={"priority": 1})).status_code == 428
    assert (await client.delete(place)).status_code == 428
    for etag in ('"2"', "nonsense", "*", '"1", "2"'):
        refused = await client.put(place, json={"priority": 1}, headers={"if-match": etag})
        assert (refused.status_code, refused.json()["code"]) == (412, "changed_meanwhile")
    changes = [client.put(place, json={"priority": number}, headers=match(hook)) for number in range(5)]
    statuses = sorted([answer.status_code for answer in await asyncio.gather(*changes)])
    assert statuses == [200, 412, 412, 412, 412]
    now = (await client.get(place)).json()
    assert now["version"] == 2
    assert (await client.delete(place, headers=match(hook))).status_code == 412
    assert (await client.put(f"{place}/toggle", headers=match(hook))).status_code == 412
    assert (await client.delete(place, headers=match(now))).status_code == 204


# -- secrets -----------------------------------------------------------------------------------------------------------


@pytest.mark.fault("F-API-08")
@pytest.mark.rule("API-7")
async def test_a_refused_address_is_not_repeated(there: Office) -> None:
    """The problem of a URL repeats no part of it that may be secret: name, password, path and query."""
    client = await there.client()
    for address in (
        "https://ada:hunter2@hooks.example/hunter2?key=hunter2",
        "http://hooks.example/hunter2#hunter2",
        "hunter2",
    ):
        answer = await client.post("/v1/hooks", json=new_hook(config={"url": address}))
        assert answer.status_code == 422
        assert "hunter2" not in answer.text


@pytest.mark.fault("F-API-08")
@pytest.mark.rule("API-4")
async def test_a_secret_is_not_sent_elsewhere(there: Office) -> None:
    """A caller that cannot read a secret cannot have it sent to another address either."""
    client = await there.client()
    hook = await made(client, {**new_hook(), "config": {"url": "https://hooks.example/", "headers": {"x-key": "k"}}})
    moved = {"config": {"url": "https://evil.example/", "headers": hook["config"]["headers"]}}
    answer = await client.put(f"/v1/hooks/{hook['hook_id']}", json=moved, headers=match(hook))
    assert answer.status_code == 422
    assert "config.headers.x-key" in answer.json()["detail"]


@pytest.mark.fault("F-API-08")
@pytest.mark.rule("API-1")
async def test_secrets_are_never_read_back(there: Office) -> None:
    """No answer, error, log entry or record has a secret of a hook; sent back as it was shown, it stays as it is."""
    client = await there.client()
    hidden = "Bearer hunter2hunter2hunter2"
    config = {"url": "https://a.example", "secret": SECRET, "headers": {"X-Own": hidden}}
    answers = [await client.post("/v1/hooks", json=new_hook(config=config))]
    hook = answers[0].json()
    place = f"/v1/hooks/{hook['hook_id']}"
    answers += [await client.get(place), await client.get("/v1/hooks")]
    shown = answers[1].json()["config"]
    answers.append(await client.put(place, json={"config": shown, "priority": 7}, headers=match(hook)))
    answers.append(await client.put(place, json={"config": {**config, "bad": 1}}, headers={"if-match": '"2"'}))
    answers.append(
        await client.post("/v1/hooks", json=new_hook("b", config={**config, "headers": 3, "secret": [SECRET]}))
    )
    answers.append(await client.post(f"{place}/test", json={"sample_context": {"tool_name": "Bash"}}))
    assert [answer.status_code for answer in answers[:4]] == [201, 200, 200, 200]
    said = "".join(answer.text + str(answer.headers) for answer in answers) + repr(there.audit.records)
    assert "hunter2" not in said
    assert SECRET not in said
    kept = await there.api.keeper.store.get(hook["hook_id"])
    assert kept is not None
    assert kept.definition.config == config
    assert kept.definition.priority == 7


# -- the record --------------------------------------------------------------------------------------------------------


@pytest.mark.fault("F-API-12")
@pytest.mark.rule("API-12")
async def test_every_change_is_on_record_first(there: Office) -> None:
    """The record has caller and digests of each change and trial, durably, before the answer."""
    client = await there.client()
    hook = await made(client, python("strict", "denies"))
    place = f"/v1/hooks/{hook['hook_id']}"
    changed = (await client.put(place, json={"priority": 3}, headers=match(hook))).json()
    await client.put(f"{place}/toggle")
    await client.post(f"{place}/test", json={"sample_context": CALL})
    await client.delete(place, headers={"if-match": '"3"'})
    records = [record for record in there.audit.records if record.kind.startswith("definition")]
    assert [record.kind.removeprefix("definition.") for record in records] == [
        "created", "changed", "changed", "tried", "deleted",
    ]  # fmt: skip
    assert all(record.durable for record in records)
    facts = [record.facts for record in records]
    assert {one["by"] for one in facts} == {"ada"}
    assert {one["hook_id"] for one in facts} == {changed["hook_id"]}
    assert facts[0]["before"] is None
    assert facts[0]["after"] == facts[1]["before"] != facts[1]["after"] == facts[2]["before"]
    assert facts[4]["after"] is None


@pytest.mark.fault("F-API-12")
@pytest.mark.rule("API-12")
async def test_without_the_record_nothing_changes(there: Office) -> None:
    """While the record cannot be written every change is 503, and everything is as it was."""
    client = await there.client()
    hook = await made(client, python("strict", "says"))
    place = f"/v1/hooks/{hook['hook_id']}"
    there.audit.error = OSError("the disk is full")
    answers = [
        await client.post("/v1/hooks", json=new_hook("other")),
        await client.put(place, json={"priority": 3}, headers=match(hook)),
        await client.put(f"{place}/toggle"),
        await client.delete(place, headers=match(hook)),
        await client.post(f"{place}/test", json={"sample_context": {}}),
    ]
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(503, "audit_unavailable")] * 5
    there.audit.error = None
    assert (await client.get("/v1/hooks")).json()["hooks"] == [hook]
    assert (await there.registry.emit("tool:pre", CALL)).data["note"] == "seen"


@pytest.mark.rule("API-12")
async def test_what_was_recorded_and_not_made(there: Office) -> None:
    """A change that is on record and came too late after all is followed by a record that says so."""
    client = await there.client()
    hook = await made(client)
    place = f"/v1/hooks/{hook['hook_id']}"
    changes = [client.put(place, json={"priority": number}, headers=match(hook)) for number in range(2)]
    await asyncio.gather(*changes)
    kinds = [kind for kind in there.audit.kinds if kind.startswith("definition")]
    assert kinds.count("definition.changed") - kinds.count("definition.unchanged") == 1


@pytest.mark.rule("API-12", "AUD-1")
async def test_in_a_real_record(tmp_path: Path) -> None:
    """In a real log the record of a change is there when the answer is."""
    log = AuditLog.open(tmp_path / "record.jsonl")
    async with office() as there:
        there.api.keeper.record = log
        await made(await there.client())
        lines = [json.loads(line) for line in (tmp_path / "record.jsonl").read_text().splitlines()]
        assert [line["facts"]["hook"] for line in lines if line["kind"] == "definition.created"] == ["guard"]
    await log.close()


# -- quotas ------------------------------------------------------------------------------------------------------------


@pytest.mark.fault("F-API-11")
@pytest.mark.rule("API-10")
async def test_the_101st_definition(there: Office) -> None:
    """A tenant has at most 100 definitions, and of one event so many as the settings say; others notice nothing."""
    client, other = await there.client(), await there.client(tenant="b")
    for number in range(100):
        await made(client, new_hook(f"h{number}", enabled=False))
    more = await client.post("/v1/hooks", json=new_hook("more"))
    assert (more.status_code, more.json()["code"]) == (409, "quota")
    for number in range(20):
        await made(other, new_hook(f"h{number}"))
    more = await other.post("/v1/hooks", json=new_hook("more"))
    assert (more.status_code, more.json()["code"]) == (409, "quota")
    assert await made(other, new_hook("more", event_type="tool:post"))


@pytest.mark.fault("F-API-11")
async def test_a_thousand_creates(there: Office) -> None:
    """Of a burst of creates some get through and the rest are told to wait; another tenant is not."""
    there.api.caller_check.writes = RateLimiter(20.0, 3, clock=float)
    client, other = await there.client(), await there.client(tenant="b")
    answers = await asyncio.gather(*(client.post("/v1/hooks", json=new_hook(f"h{n}")) for n in range(100)))
    assert {answer.status_code for answer in answers} == {201, 429}
    assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 429)
    await made(other)


# -- running hooks -----------------------------------------------------------------------------------------------------


@pytest.mark.fault("F-API-10")
async def test_a_hook_is_removed_while_it_runs(there: Office, guards: Any) -> None:
    """The run ends with the answer of the hook as it began, and the hook does not run again."""
    client = await there.client()
    hook = await made(client, python("slow", "waits"))
    running = asyncio.create_task(there.registry.emit("tool:pre", CALL))
    await until(lambda: guards.LEFT == ["began"])
    assert (await client.delete(f"/v1/hooks/{hook['hook_id']}", headers=match(hook))).status_code == 204
    guards.GO.set()
    assert (await running).reason == "it has waited"
    assert not (await there.registry.emit("tool:pre", CALL)).denied
    assert guards.LEFT == ["began"]


async def asked(there: Office, person: Decider) -> RequestRecord:
    """The one question that waits."""
    async with asyncio.timeout(60):
        with there.broker.watch() as watch:
            while not (found := await there.broker.pending(person)):
                await watch.wait(0.05)
    return found[0]


async def allowed(there: Office, record: RequestRecord, person: Decider) -> bool:
    """Say yes; whether it counted."""
    option = next(one.id for one in record.request.options if one.allows)
    return (await there.broker.decide(record.id, record.digest, option, person)).accepted


@pytest.mark.fault("F-API-09")
@pytest.mark.rule("APR-6")
async def test_a_question_of_an_old_version_is_void(there: Office) -> None:
    """When a definition changes, what it asked is taken back, and asked again as the hook is now."""
    client = await there.client()
    hook = await made(client, python("asker", "asks"))
    person = Decider(name="ada", channel="test", tenant="acme")
    ran: list[Any] = []
    approvals = DeferredApprovals(there.broker)
    async with SessionCoordinator(there.registry, session_id="s", approvals=approvals, tenant="acme") as session:
        call = asyncio.create_task(session.call_tool("Bash", {"command": "ls"}, ran.append))
        old = await asked(there, person)
        changed = await client.put(f"/v1/hooks/{hook['hook_id']}", json={"priority": 7}, headers=match(hook))
        assert changed.status_code == 200
        assert not await allowed(there, old, person)
        assert ran == []
        assert await allowed(there, await asked(there, person), person)
        assert (await call).ok
    assert len(ran) == 1


@pytest.mark.rule("API-11", "TEN-1")
async def test_a_hook_that_cannot_be_built_any_more(there: Office) -> None:
    """One tenant's broken definition in the store fails by itself; the others are in force."""
    admin, client = await there.admin(), await there.client()
    await made(client, python("strict", "denies", event_type="tool:post"))
    hook = await made(admin, python("gone", "says", priority=10))
    store = there.api.keeper.store
    kept = await store.get(hook["hook_id"])
    assert kept is not None
    broken = kept.definition.model_copy(update={"handler_ref": "guards:nothing"})
    await store.delete(hook["hook_id"], 1)
    await store.create(broken)
    await until(lambda: there.api.stored_hooks.problem(broken) is not None)
    assert (await there.registry.emit("tool:pre", CALL)).denied
    assert (await there.registry.emit("tool:post", CALL)).reason == "not today"
    shown = {one["name"]: one["problem"] for one in (await admin.get("/v1/hooks")).json()["hooks"]}
    assert shown["strict"] is None
    assert "nothing" in shown["gone"]


@pytest.mark.rule("API-11")
async def test_what_others_write_is_in_force_here(there: Office) -> None:
    """A definition that another process stores is in force here as soon as this process is woken."""
    client = await there.client()
    hook = await made(client, python("strict", "denies"))
    store = there.api.keeper.store
    kept = await store.get(hook["hook_id"])
    assert kept is not None
    await store.delete(hook["hook_id"], 1)
    await until(lambda: "strict" not in names(there))
    assert not (await there.registry.emit("tool:pre", CALL)).denied
    await store.create(kept.definition)
    await until(lambda: "strict" in names(there))
    assert (await there.registry.emit("tool:pre", CALL)).denied


@pytest.mark.postgres
@pytest.mark.rule("API-11", "API-12")
async def test_two_machines(guards: Any) -> None:
    """Over one PostgreSQL a hook that is made on one machine is in force on the other, and what ran there is seen."""
    await server()
    handlers = {"guards:denies"}
    async with (
        schema() as name,
        PostgresDatabase(DSN, *API_TABLES, schema=name) as one,
        PostgresDatabase(DSN, *API_TABLES, schema=name) as two,
        office(one, tenant_handlers=handlers) as here,
        office(two, tenant_handlers=handlers) as elsewhere,
    ):
        client, other = await here.client(), await elsewhere.client()
        hook = await made(client, python("strict", "denies"))
        await until(lambda: "strict" in names(elsewhere))
        assert (await elsewhere.registry.emit("tool:pre", CALL)).denied
        await elsewhere.api.recorder.flush()
        assert len((await client.get("/v1/hooks/logs")).json()["logs"]) == 1
        changed = await other.put(f"/v1/hooks/{hook['hook_id']}", json={"priority": 3}, headers=match(hook))
        assert (await client.get(f"/v1/hooks/{hook['hook_id']}")).json() == changed.json()


@pytest.mark.rule("API-11")
async def test_while_the_store_is_away(there: Office) -> None:
    """While the store cannot be read changes are 503, and what is in force stays so."""
    client = await there.client()
    await made(client, python("strict", "denies"))
    await there.api.keeper.store.database.close()
    assert (await client.get("/v1/hooks")).status_code == 503
    assert (await client.post("/v1/hooks", json=new_hook())).json()["code"] == "store_unavailable"
    assert (await there.registry.emit("tool:pre", CALL)).reason == "not today"


# -- trials and what hooks did -----------------------------------------------------------------------------------------


@pytest.mark.rule("API-4")
async def test_a_dry_run(there: Office) -> None:
    """A hook is tried alone, on or off, for its own tenant: its record, and the payload as it left it."""
    client = await there.client()
    await made(client, python("strict", "denies"))
    hook = await made(client, python("saying", "says", enabled=False, matcher="Bash"))
    place = f"/v1/hooks/{hook['hook_id']}/test"
    tried = (await client.post(place, json={"sample_context": {**CALL, "tenant_id": "b"}})).json()
    result = tried["result"]
    assert (result["hook_name"], result["success"], result["error"]) == ("saying", True, None)
    assert result["data"] == {"note": "seen"}
    assert result["duration_ms"] > 0
    assert (tried["context_after"]["note"], tried["context_after"]["tenant_id"]) == ("seen", "acme")
    other = (await client.post(place, json={"sample_context": {"tool_name": "Write"}})).json()
    assert other["result"] is None
    assert other["context_after"]["tool_name"] == "Write"
    assert (await client.post(place, json={})).status_code == 422
    wide = {"sample_context": {"tool_name": "Write", "many": [0] * 20_000}}
    assert (await client.post(place, json=wide)).json()["context_after"]["many"]["why"] == "size"


@pytest.mark.rule("API-4")
async def test_a_dry_run_of_a_pattern_and_of_a_failure(there: Office) -> None:
    """A hook for several events has to be told which; a failure is a record like any other, without its secrets."""
    admin = await there.admin()
    hook = await made(admin, python("all", "fails", event_type="tool:*", priority=10))
    place = f"/v1/hooks/{hook['hook_id']}/test"
    assert (await admin.post(place, json={"sample_context": {}})).json()["code"] == "which_event"
    tried = (await admin.post(place, json={"sample_context": {}, "event_type": "PreToolUse"})).json()
    assert (tried["result"]["status"], tried["result"]["action"]) == ("error", "deny")
    assert "hunter2" not in json.dumps(tried)


@pytest.mark.fault("F-HD-17")
@pytest.mark.rule("API-4")
async def test_a_hook_that_calls_back_over_the_api(there: Office, guards: Any) -> None:
    """A hook whose trial starts its own trial is told that it is running already, however it gets here."""
    client = await there.client()
    first, *others = [await made(client, python(f"h{number}", "waits")) for number in range(6)]
    far = {"x-amplifier-hooks-hops": "4"}
    circle = await client.post(f"/v1/hooks/{first['hook_id']}/test", json={"sample_context": {}}, headers=far)
    assert (circle.status_code, circle.json()["code"]) == (508, "hooks_in_a_circle")
    path = "/v1/hooks/{}/test"
    body: dict[str, Any] = {"sample_context": {}}
    running = [asyncio.create_task(client.post(path.format(first["hook_id"]), json=body))]
    await until(lambda: len(guards.LEFT) == 1)
    again = await client.post(path.format(first["hook_id"]), json=body)
    assert (again.status_code, again.json()["code"]) == (429, "trial_running")
    running += [asyncio.create_task(client.post(path.format(one["hook_id"]), json=body)) for one in others[:3]]
    await until(lambda: len(guards.LEFT) == 4)
    assert (await client.post(path.format(others[3]["hook_id"]), json=body)).status_code == 429
    elsewhere = await there.client(tenant="b")
    theirs = await made(elsewhere, python("free", "says"))
    assert (await elsewhere.post(path.format(theirs["hook_id"]), json=body)).status_code == 200
    guards.GO.set()
    assert {answer.status_code for answer in await asyncio.gather(*running)} == {200}
    assert (await client.post(path.format(first["hook_id"]), json=body)).status_code == 200


@pytest.mark.rule("API-3", "API-4")
async def test_what_hooks_did(there: Office) -> None:
    """Every event that a hook was reached by is in the log and in the statistics, filtered and paged."""
    client = await there.client()
    await made(client, python("saying", "says", event_type="tool:*"))
    for number in range(3):
        await there.registry.emit("tool:pre", {**CALL, "request_id": f"r{number}"})
    there.registry.gate("tool:post", lambda event, data: HookResult.deny("no"), name="mine", priority=900)
    await there.registry.emit("tool:post", CALL)
    await there.api.recorder.flush()
    logs = (await client.get("/v1/hooks/logs", params={"event_type": "tool:pre"})).json()["logs"]
    assert [entry["request_id"] for entry in logs] == ["r2", "r1", "r0"]
    assert logs[0]["hook_results"][0]["hook_name"] == "saying"
    one = (await client.get(f"/v1/hooks/logs/{logs[0]['log_id']}")).json()
    assert one == logs[0]
    page = (await client.get("/v1/hooks/logs", params={"limit": 3})).json()
    rest = (await client.get("/v1/hooks/logs", params={"limit": 3, "cursor": page["next"]})).json()
    assert (len(page["logs"]), len(rest["logs"]), rest["next"]) == (3, 1, None)
    stopped = (await client.get("/v1/hooks/logs", params={"aborted": "true"})).json()["logs"]
    assert [entry["abort_reason"] for entry in stopped] == ["no"]
    statistics = (await client.get("/v1/hooks/stats", params={"hook_name": "saying"})).json()["statistics"]
    assert [(one["event_type"], one["runs"]) for one in statistics] == [("tool:post", 1), ("tool:pre", 3)]
    assert statistics[1]["p95_ms"] > 0


@pytest.mark.rule("API-1", "API-11")
@pytest.mark.parametrize("kind", FILES)
async def test_over_every_store(kind: str, tmp_path: Path) -> None:
    """In a file and in PostgreSQL a hook is made, runs, is logged, changed and removed as it is in memory."""
    async with (
        database(kind, tmp_path, *API_TABLES) as tables,
        office(tables, tenant_handlers={"guards:denies"}) as there,
    ):
        client = await there.client()
        hook = await made(client, python("strict", "denies"))
        assert (await there.registry.emit("tool:pre", CALL)).denied
        await there.api.recorder.flush()
        (entry,) = (await client.get("/v1/hooks/logs", params={"hook_name": "strict"})).json()["logs"]
        assert entry["aborted"]
        (counted,) = (await client.get("/v1/hooks/stats")).json()["statistics"]
        assert (counted["runs"], counted["aborts"]) == (1, 1)
        changed = await client.put(f"/v1/hooks/{hook['hook_id']}", json={"priority": 3}, headers=match(hook))
        assert (await client.get("/v1/hooks", params={"event_type": "tool:pre"})).json()["hooks"] == [changed.json()]
        assert (await client.post("/v1/hooks", json=python("Strict", "denies"))).status_code == 409
        gone = await client.delete(f"/v1/hooks/{hook['hook_id']}", headers=match(changed.json()))
        assert gone.status_code == 204
        assert not (await there.registry.emit("tool:pre", CALL)).denied
        for odd in ("\x00", "\U0001f600", "ä" * 90):
            assert (await client.get("/v1/hooks", params={"event_type": odd, "tenant_id": "acme"})).status_code == 200
            assert (await client.get("/v1/hooks/logs", params={"hook_name": odd, "event_type": odd})).status_code == 200
            for path in ("/v1/hooks", "/v1/hooks/logs", "/v1/hooks/stats"):
                assert (await (await there.admin()).get(path, params={"tenant_id": odd})).status_code == 200


@pytest.mark.rule("API-1")
async def test_figures(there: Office) -> None:
    """Prometheus reads requests by route and status, with a token of the system's, and no tenant's name."""
    client, admin = await there.client(), await there.admin()
    await made(client, python("saying", "says"))
    await there.registry.emit("tool:pre", CALL)
    await client.get(f"/v1/hooks/{NOBODY}")
    await client.get("/nowhere/hunter2")
    figures = (await admin.get("/metrics")).text
    assert 'route="/v1/hooks/{hook_id}",status="404"' in figures
    assert 'amplifier_hooks_http_requests_total{method="POST",route="/v1/hooks",status="201"} 1.0' in figures
    assert 'amplifier_events_total{action="modify",event="tool:pre"} 1.0' in figures
    assert "acme" not in figures
    assert "hunter2" not in figures
    assert (await client.get("/metrics")).status_code == 403


@pytest.mark.rule("API-3", "DEF-3")
async def test_the_log_can_be_switched_off() -> None:
    """With hooks_execution_log_enabled false nothing is kept; with hooks_enabled false nothing runs."""
    off = DefinitionSettings(hooks_execution_log_enabled=False, hooks_enabled=False)
    async with office(settings=off, tenant_handlers={"guards:denies"}) as there:
        client = await there.client()
        await made(client, python("strict", "denies"))
        assert not (await there.registry.emit("tool:pre", CALL)).denied
        await there.api.recorder.flush()
        assert (await client.get("/v1/hooks/logs")).json()["logs"] == []
