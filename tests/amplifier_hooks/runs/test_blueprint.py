"""Blueprints: the valid ones, and the refused ones with all their mistakes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks.runs import RunHooks
from amplifier_hooks.runs.blueprint import BlueprintError, load_agents, read_blueprint, read_entries
from amplifier_hooks.runs.run_states import UnknownAgent

if TYPE_CHECKING:
    from pathlib import Path

PYTHON: dict[str, Any] = {"type": "python", "handler_ref": "billing.hooks:validate", "on_error": "block"}
AGENT: dict[str, Any] = {"type": "agent", "agent_name": "audit-agent", "on_error": "continue"}
HTTP: dict[str, Any] = {"type": "http", "url": "https://hooks.example/run", "on_error": "continue"}


def written(**fields: Any) -> str:
    """Return a blueprint as text."""
    return json.dumps({"name": "writer", "type": "autonomous", **fields})


def mistakes(text: str | bytes, **options: Any) -> list[str]:
    """Return the mistakes of a blueprint."""
    with pytest.raises(BlueprintError) as caught:
        read_blueprint(text, **options)
    return list(caught.value.problems)


@pytest.mark.rule("RUN-1", "RUN-8", "RUN-15")
def test_a_whole_blueprint() -> None:
    """A blueprint names its agent's input and result, and one hook for each end of its runs."""
    blueprint = read_blueprint(
        written(
            description="Writes invoices.",
            system_prompt="You write invoices.",
            parameters_schema={"type": "object", "required": ["amount"]},
            output_schema=None,
            hooks={"on_run_start": PYTHON, "on_run_finish": {"$ref": "audit"}},
        ),
        named={"audit": {**AGENT, "mode": "async", "on_error": "ignore"}},
    )
    start, finish = blueprint.hooks.on_run_start, blueprint.hooks.on_run_finish
    assert start is not None
    assert (start.type, start.target, start.on_error, start.timeout_seconds) == (
        *("python", "billing.hooks:validate", "block", 300.0),
    )
    assert finish is not None
    assert (finish.type, finish.target, finish.on_error, finish.mode) == ("agent", "audit-agent", "ignore", "async")
    assert blueprint.parameters_schema is not None
    assert "amount" in str(blueprint.parameters_schema.problem({}))
    assert blueprint.brings_text


@pytest.mark.rule("RUN-15")
def test_the_least_blueprint() -> None:
    """A blueprint needs only a name and a type."""
    blueprint = read_blueprint('{"name": "a", "type": "procedural"}')
    assert (blueprint.hooks.on_run_start, blueprint.parameters_schema, blueprint.brings_text) == (None, None, False)


@pytest.mark.rule("RUN-8")
def test_the_fields_of_an_entry() -> None:
    """An http hook has an address, a method and headers; a timeout may be set for every hook."""
    entry = {**HTTP, "method": "PUT", "headers": {"authorization": "Bearer ${TOKEN}"}, "timeout_seconds": 5}
    start = read_blueprint(written(hooks={"on_run_start": entry})).hooks.on_run_start
    assert start is not None
    assert (start.method, start.headers, start.timeout_seconds) == ("PUT", {"authorization": "Bearer ${TOKEN}"}, 5.0)


def entry_without(entry: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an entry with one field less."""
    return {key: value for key, value in entry.items() if key != name}


@pytest.mark.rule("RUN-8", "RUN-15")
@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (entry_without(PYTHON, "type"), "'hooks.on_run_start.type' is missing; add it"),
        (entry_without(PYTHON, "on_error"), "'hooks.on_run_start.on_error' is missing; add it"),
        (entry_without(PYTHON, "handler_ref"), "a hook of type python needs handler_ref"),
        (entry_without(AGENT, "agent_name"), "a hook of type agent needs agent_name"),
        (entry_without(HTTP, "url"), "a hook of type http needs url"),
        ({**PYTHON, "agent_name": "x"}, "agent_name belongs to a hook of type agent"),
        ({**PYTHON, "headers": {}}, "headers belongs to a hook of type http"),
        ({**PYTHON, "type": "command"}, "'hooks.on_run_start.type'"),
        ({**PYTHON, "on_error": "ignore"}, "'hooks.on_run_start.on_error'"),
        ({**PYTHON, "mode": "async"}, "'hooks.on_run_start.mode'"),
        ({**PYTHON, "timeout_seconds": 0}, "'hooks.on_run_start.timeout_seconds'"),
        ({**PYTHON, "timeout_seconds": True}, "'hooks.on_run_start.timeout_seconds'"),
        ({**PYTHON, "timeout_seconds": "300"}, "'hooks.on_run_start.timeout_seconds'"),
        ({**PYTHON, "handler_ref": "not a path"}, "is no dotted path"),
        ({**PYTHON, "onerror": "block"}, "unknown key 'hooks.on_run_start.onerror'; did you mean 'on_error'?"),
        ({**HTTP, "method": "GET"}, "'hooks.on_run_start.method'"),
        ({"$ref": "nothing"}, "there is no hook named 'nothing'; there are: audit"),
        ({"$ref": ["audit"]}, "there is no hook named"),
        ({"$ref": "audit", "on_error": "block"}, "a $ref stands alone"),
        ("audit", "'hooks.on_run_start'"),
    ],
)
def test_an_entry_nobody_could_use(entry: Any, words: str) -> None:
    """Each mistake in a hook is refused, with its place and the remedy."""
    (mistake,) = mistakes(written(hooks={"on_run_start": entry}), named={"audit": AGENT})
    assert words in mistake


@pytest.mark.rule("RUN-15")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "write a mapping"),
        ("{", "this is not JSON: Expecting property name enclosed in double quotes: line 1 column 2"),
        (b"\xff", "can't decode byte 0xff in position 0"),
        ('{"name": "a", "name": "b", "type": "procedural"}', "the key 'name' stands twice"),
        ('{"name": NaN}', "NaN is no JSON number"),
        ("[" * 100_000, "it is nested deeper than 128"),
        (" " * 1_100_000, "bytes; at most"),
        (written(name="../etc"), "'name' is no name"),
        (written(type="other"), "'type' is 'other'"),
        (written(hooks={"on_run_begin": PYTHON}), "unknown key 'hooks.on_run_begin'; "),
        (written(hooks={"ON_RUN_START": PYTHON}), "unknown key 'hooks.ON_RUN_START'; "),
        (written(parameters_schema=[]), "'parameters_schema' is no schema: a schema is an object"),
        (written(output_schema={"type": "nonsense"}), "'output_schema' is no schema: $.type"),
    ],
)
def test_a_blueprint_nobody_could_run(text: str | bytes, words: str) -> None:
    """A text that is no blueprint is refused, for any reason."""
    assert any(words in mistake for mistake in mistakes(text))


@pytest.mark.rule("RUN-15")
def test_all_mistakes_at_once() -> None:
    """All mistakes of a blueprint are reported together."""
    assert len(mistakes(json.dumps({"name": 1, "hooks": {"on_run_start": {}}, "more": 1}))) == 5


@pytest.mark.rule("RUN-8", "RUN-15")
def test_a_folder_of_blueprints(tmp_path: Path) -> None:
    """A folder is loaded as a whole, its blueprints and the hooks they share; otherwise every mistake is reported."""
    (tmp_path / "hooks.json").write_text(json.dumps({"audit": AGENT}))
    (tmp_path / "writer.json").write_text(written(hooks={"on_run_finish": {"$ref": "audit"}}))
    agents = load_agents(tmp_path)
    assert agents.get("writer").hooks.on_run_finish is not None
    missing = "writer: hooks.on_run_finish: there is no agent 'audit-agent'; there are: writer"
    assert RunHooks().problems(agents) == [missing]
    with pytest.raises(UnknownAgent, match="there are: writer"):
        agents.get("painter")
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(BlueprintError, match=r"(?s)a\.json: .*line 1.*b\.json: 'name' is missing"):
        load_agents(tmp_path)
    for broken in ("a.json", "b.json"):
        (tmp_path / broken).unlink()
    (tmp_path / "twice.json").write_text(written())
    with pytest.raises(BlueprintError, match="two agents of this name"):
        load_agents(tmp_path)
    with pytest.raises(BlueprintError, match="no such folder"):
        load_agents(tmp_path / "none")


@pytest.mark.rule("RUN-8")
@pytest.mark.parametrize("text", ["[]", '{"a": 1}', '{"a": {"$ref": "b"}}'])
def test_shared_hooks_nobody_could_use(text: str) -> None:
    """Shared hooks are one object of hooks, and none of them is a reference."""
    with pytest.raises(BlueprintError):
        read_entries(text)


@pytest.mark.rule("RUN-19")
def test_addresses_that_the_operator_allows(tmp_path: Path) -> None:
    """The file of named hooks allows networks, ports and hosts of plain http; a mistake in that is named."""
    file = tmp_path / "hooks.json"
    file.write_text('{"$allow": {"networks": ["10.0.0.0/8"], "ports": [8443], "http": ["validator:8080"]}}', "ascii")
    reach = load_agents(tmp_path).reach
    assert (sorted(reach.ports), *reach.http_hosts) == ([443, 8443], "validator:8080")
    assert [str(network) for network in reach.networks] == ["10.0.0.0/8"]
    for wrong in ('{"http": "validator"}', '{"ports": ["8443"]}', '{"networks": ["10.0.0.1/8"]}', '{"odd": []}', "[]"):
        file.write_text(f'{{"$allow": {wrong}}}', "ascii")
        with pytest.raises(BlueprintError, match=r"hooks.json: .*"):
            load_agents(tmp_path)
