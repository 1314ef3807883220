from typing import Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.errors import InvalidHookSettings
from amplifier_hooks.library import SchemaGuard

pytestmark = pytest.mark.rule("LIB-1")

SCHEMA = {
    "type": "object",
    "properties": {"file_path": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}},
    "required": ["file_path"],
    "additionalProperties": False,
}


def guarded(tools: dict[str, Any]) -> HookRegistry:
    """Return a registry with a guard of these tools."""
    registry = HookRegistry()
    SchemaGuard.from_config({"tools": tools}).register(registry)
    return registry


async def test_a_call_is_denied_with_what_to_do() -> None:
    """The denial that the model reads names each mistake, its place, and a correct input; the tool does not run."""
    registry = guarded({"Read": {"input_schema": SCHEMA, "example": {"file_path": "a.txt", "limit": 10}}})
    ran: list[object] = []
    async with SessionCoordinator(hooks=registry) as session, session.turn("go"):
        refused = await session.call_tool("Read", {"limit": 0, "path": "a"}, ran.append)
        passed = await session.call_tool("Read", {"file_path": "a.txt"}, ran.append)
        other = await session.call_tool("Write", {"limit": 0}, ran.append)
    assert (refused.denied, refused.by, passed.ok, other.ok) == (True, "schema_guard", True, True)
    assert refused.reason is not None
    assert "Operation denied by schema_guard: the input of Read is not what it takes:" in refused.reason
    assert "at /limit: this value is less than the minimum of 1" in refused.reason
    assert '"file_path" is a required property' in refused.reason
    assert "('path' was unexpected)" in refused.reason
    assert refused.reason.endswith('Correct is, for example: {"file_path": "a.txt", "limit": 10}')
    assert ran == [{"file_path": "a.txt"}, {"limit": 0}]


async def test_required_fields_and_lengths_without_a_schema() -> None:
    """Required fields and lengths need no schema."""
    registry = guarded({"Write*": {"required": ["content"], "max_length": {"content": 5}}})
    long = await registry.emit("tool:pre", {"tool_name": "WriteFile", "tool_input": {"content": "123456"}})
    missing = await registry.emit("tool:pre", {"tool_name": "Write", "tool_input": {}})
    assert "at /content: this value is longer than 5 characters" in (long.reason or "")
    assert '"content" is a required property' in (missing.reason or "")


async def test_every_shape_of_a_tool_has_to_fit() -> None:
    """If two shapes match a name, both apply."""
    registry = guarded({"Write|Edit": {"required": ["a"]}, "*": {"max_length": {"a": 1}}})
    actions = [
        (await registry.emit("tool:pre", {"tool_name": "Edit", "tool_input": value})).action
        for value in ({"a": "x"}, {"a": "xx"}, {})
    ]
    assert actions == ["continue", "deny", "deny"]


@pytest.mark.parametrize(
    "payload",
    [{"tool_input": {}}, {"tool_name": 3, "tool_input": {}}, {"tool_name": "Read", "tool_input": {1: 2}},
     {"tool_name": "Read", "tool_input": {"file_path": object()}}, {"tool_name": "Read"}],
)  # fmt: skip
async def test_what_cannot_be_judged_is_denied(payload: dict[str, Any]) -> None:
    """A call without a tool's name, and input that is missing or no JSON, do not pass; without schemas they do."""
    assert (await guarded({"Read": {"input_schema": SCHEMA}}).emit("tool:pre", payload)).denied
    assert not (await guarded({}).emit("tool:pre", payload)).denied


async def test_changed_input_is_judged_again() -> None:
    """Input that another hook has changed has to fit as well."""
    registry = guarded({"Read": {"input_schema": SCHEMA}})
    registry.on("tool:pre", lambda event, data: HookResult.modify({"tool_input": {"limit": 1}}), priority=400)
    assert (await registry.emit("tool:pre", {"tool_name": "Read", "tool_input": {"file_path": "a"}})).denied


def test_refused_when_it_is_made() -> None:
    """A schema that is broken or refers outside is an error with the hook's name, the tool and the reason."""
    with pytest.raises(InvalidHookSettings, match=r"hook 'schema_guard': 'tools.Read': .ref 'https:"):
        guarded({"Read": {"input_schema": {"$ref": "https://example.com/s.json"}}})
    with pytest.raises(InvalidHookSettings, match=r"'tools\.Read, Write\.\[key\]': matcher"):
        guarded({"Read, Write": {}})
