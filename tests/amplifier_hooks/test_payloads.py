import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from amplifier_hooks import payloads
from amplifier_hooks.events import ALL_EVENTS, CATALOGUE, Event, payload_model
from amplifier_hooks.payloads import ErrorInfo, Payload, ToolPayload
from tests.cases import each

WHERE_AND_WHEN = {"session_id": "s-1", "timestamp": "2026-01-31T12:00:00.250000+00:00"}
TOOL = {"tool_name": "Write", "tool_call_id": "c-1", "tool_input": {"file_path": "a.py"}}
ERROR = {"type": "OSError", "message": "disk full"}

# EVT-8: the required fields of each payload.
MINIMUM: dict[str, dict[str, Any]] = {
    "prompt:submit": {"prompt": "Update config"},
    "context:assembled": {"messages": [{"role": "user", "content": "Update config"}]},
    "llm:pre": {"messages": [], "model": "m-1"},
    "llm:post": {"response": {"content": "done"}},
    "tool:pre": TOOL,
    "tool:post": {**TOOL, "result": "written", "duration_ms": 12.5},
    "tool:error": {"tool_name": "Write", "tool_call_id": "c-1", "error": ERROR},
    "orchestrator:complete": {"orchestrator": "loop", "turn_count": 3, "duration_ms": 900, "status": "success"},
}
MODELS = list(dict.fromkeys([*(payload_model(name) for name in ALL_EVENTS), ErrorInfo]))
REQUIRED = [(name, field) for name, fields in MINIMUM.items() for field in fields]


@pytest.mark.rule("EVT-1")
@each("event", CATALOGUE)
def test_model_of_each(event: Event) -> None:
    """Every row names a pydantic model that lets further fields through and makes a schema."""
    model = payload_model(event.name)
    assert issubclass(model, Payload)
    assert model.__name__ == event.payload
    assert model.model_config.get("extra") == "allow"
    assert set(model.model_json_schema()["required"]) >= {"timestamp"}


@pytest.mark.rule("EVT-1", "EVT-3")
def test_model_by_alias() -> None:
    """Any spelling leads to the model, and an unknown event has the fields of all payloads."""
    assert payload_model("PreToolUse") is payload_model("tool:pre") is ToolPayload
    assert payload_model("deploy:pre") is Payload


@pytest.mark.rule("EVT-1")
def test_no_model_is_left_over() -> None:
    """Every model is the payload of an event, or a base of one."""
    models = {model for model in vars(payloads).values() if isinstance(model, type) and issubclass(model, Payload)}
    used = {base for name in ALL_EVENTS for base in payload_model(name).__mro__}
    assert models <= used


@pytest.mark.rule("EVT-1")
@each("model", MODELS)
def test_fields_are_described(model: type[BaseModel]) -> None:
    """Every field has a description."""
    assert [name for name, field in model.model_fields.items() if not field.description] == []


@pytest.mark.rule("EVT-2")
@each("name", ALL_EVENTS)
def test_where_and_when(name: str) -> None:
    """Every payload has a session and a time, and fields for agent, run, turn and the event it follows from."""
    fields = payload_model(name).model_fields
    assert fields["timestamp"].is_required()
    assert {"session_id", "tenant_id", "run_id", "turn", "agent", "event_id", "parent_id"} <= set(fields)


@pytest.mark.rule("EVT-2")
@pytest.mark.parametrize("when", ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00+00:00", "2026-01-31T12:00:00.5+00:00"])
def test_utc(when: str) -> None:
    """A timestamp is ISO 8601 in UTC, and stays as it was written."""
    assert Payload(session_id="s", timestamp=when).timestamp == when


@pytest.mark.rule("EVT-2")
@pytest.mark.parametrize(
    "when", ["2026-01-31T12:00:00", "2026-01-31T12:00:00+01:00", "yesterday", "", 1769860800, None]
)
def test_not_utc(when: object) -> None:
    """A time of day without its zone, in another zone or in another notation is refused."""
    with pytest.raises(ValidationError, match="timestamp"):
        Payload.model_validate({"session_id": "s", "timestamp": when})


@pytest.mark.rule("EVT-2")
@each("name", ALL_EVENTS)
def test_no_session(name: str) -> None:
    """The session may be empty in requests, in runs, and in events about hooks and modules."""
    domain, _ = name.split(":")
    try:
        payload_model(name).model_validate({"session_id": "", "timestamp": WHERE_AND_WHEN["timestamp"]})
        complaints = set()
    except ValidationError as error:
        complaints = {problem["loc"][0] for problem in error.errors()}
    assert ("session_id" in complaints) == (domain not in {"request", "run", "hook", "module"})


@pytest.mark.rule("EVT-8")
@pytest.mark.parametrize(("name", "fields"), MINIMUM.items())
def test_minimum(name: str, fields: dict[str, Any]) -> None:
    """A payload with only its required fields is valid, and comes out unchanged."""
    data = {**WHERE_AND_WHEN, **fields}
    seen = payload_model(name).model_validate(data)
    assert seen.model_dump(exclude_unset=True) == data
    assert payload_model(name).model_validate_json(json.dumps(data)) == seen


@pytest.mark.rule("EVT-8")
@pytest.mark.parametrize(("name", "field"), REQUIRED)
def test_less_than_minimum(name: str, field: str) -> None:
    """A payload that lacks one of these fields is refused by name."""
    data = {**WHERE_AND_WHEN, **MINIMUM[name]}
    del data[field]
    with pytest.raises(ValidationError, match=field):
        payload_model(name).model_validate(data)


@pytest.mark.rule("EVT-1", "EVT-8")
@pytest.mark.parametrize(("name", "fields"), MINIMUM.items())
def test_more_than_minimum(name: str, fields: dict[str, Any]) -> None:
    """Custom fields are welcome and kept."""
    data = {**WHERE_AND_WHEN, **fields, "branch": "main"}
    assert payload_model(name).model_validate(data).model_dump(exclude_unset=True)["branch"] == "main"


@pytest.mark.rule("EVT-8")
@pytest.mark.parametrize("missing", ["type", "message"])
def test_error_is_type_and_message(missing: str) -> None:
    """An error names its type and has a message."""
    with pytest.raises(ValidationError, match=missing):
        ErrorInfo.model_validate({key: value for key, value in ERROR.items() if key != missing})


@pytest.mark.rule("EVT-8")
def test_upstream_error() -> None:
    """An error with `msg`, as orchestrators of the upstream kernel write it, is read."""
    data = {**WHERE_AND_WHEN, **TOOL, "error": {"type": "OSError", "msg": "disk full"}}
    assert payload_model("tool:error").model_validate(data).model_dump()["error"] == ERROR


@pytest.mark.rule("EVT-8")
def test_payloads_are_values() -> None:
    """A payload that was checked cannot be changed afterwards."""
    seen = ToolPayload.model_validate({**WHERE_AND_WHEN, **TOOL})
    with pytest.raises(ValidationError, match="frozen"):
        seen.tool_name = "Bash"


@pytest.mark.rule("RUN-12")
@pytest.mark.parametrize(
    ("phase", "more"),
    {
        "start": set(),
        "complete": {"duration_ms", "action"},
        "failed": {"error", "on_error_behavior"},
        "blocked": {"block_reason"},
        "timeout": {"error", "on_error_behavior"},
    }.items(),
)
def test_hook_events(phase: str, more: set[str]) -> None:
    """The payloads about the hooks of a run have a field for each fact."""
    facts = {"event_type", "session_id", "run_id", "timestamp", "hook_type", "target_type", "target_name"}
    assert facts | more <= set(payload_model(f"hook:{phase}").model_fields)


@pytest.mark.rule("EVT-1")
@pytest.mark.parametrize(
    ("name", "fields"),
    {
        "run:start": "agent_name parameters session_id run_id",
        "run:finish": "agent_name parameters session_id run_id result_text result_data status error",
        "agent:pre": "agent_name agent_definition inputs system_prompt model",
        "agent:post": "agent_name agent_definition inputs system_prompt model result duration_ms",
        "workflow:pre": "workflow_name step_id step_action inputs state",
        "workflow:post": "workflow_name step_id step_action inputs state result duration_ms",
        "request:pre": "method path headers body",
        "request:post": "method path headers body status_code response_headers duration_ms",
    }.items(),
)
def test_operations(name: str, fields: str) -> None:
    """The payload of an operation has the facts of its typed context."""
    assert set(fields.split()) <= set(payload_model(name).model_fields)
