import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks import HookRegistry, HookResult, Outcome, SessionCoordinator
from amplifier_hooks.errors import InvalidHookSettings
from amplifier_hooks.library import SchemaGuard, SchemaNudge
from amplifier_hooks.library.tool_schemas import Shape, Shapes, ToolShape, example_of

pytestmark = pytest.mark.rule("LIB-1")


def shape(schema: dict[str, Any], **more: Any) -> Shape:
    """Return the shape of a tool with this schema."""
    return Shape(ToolShape(input_schema=schema, **more))


def test_definitions_are_found_beside_required_fields() -> None:
    """Required fields and lengths are added to a schema without hiding its definitions or its draft."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"n": {"minimum": 3}},
        "properties": {"n": {"$ref": "#/definitions/n"}},
    }
    found = shape(schema, required=["n"], max_length={"name": 3}, min_length={"name": 2, "all": 1})
    assert [(one.where, one.keyword) for one in found.wrong({"n": 2, "name": "abcd", "all": []})] == [
        ("/n", "minimum"), ("/all", "minItems"), ("/name", "maxLength"),
    ]  # fmt: skip
    assert [one.what for one in found.wrong({})] == ['"n" is a required property']
    assert found.wrong({"n": 3, "name": "abc", "all": [1]}) == ()


def test_a_schema_with_a_name_takes_required_fields() -> None:
    """The name a schema has for itself stays where it may stand."""
    schema = {
        "$id": "https://example.com/tool",
        "properties": {"n": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"minimum": 3}},
    }
    assert [one.where for one in shape(schema, required=["a"]).wrong({"a": 1, "n": 2})] == ["/n"]


def test_values_stay_out_of_what_is_said() -> None:
    """A message names places and rules, never a value, and is short, however many mistakes there are."""
    found = shape({"additionalProperties": {"type": "integer", "maximum": 3}})
    wrong = found.wrong({f"field{number}": "hunter2" for number in range(20)})
    assert len(wrong) == 20
    told = found.describe(wrong)
    assert "hunter2" not in told
    assert told.count(" is not of type ") == 5
    assert "; and 15 more" in told
    assert " more" not in found.describe(wrong[:5])


def test_only_the_first_of_very_much() -> None:
    """In a large input, and with a schema that refers to itself, only the first mistake is searched for."""
    found = shape({"items": {"type": "integer"}})
    assert len(found.wrong(["a"] * 5_000)) == 1
    doubling = shape({"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2, "type": "object"})
    value: dict[str, Any] = {"a": 1}
    for _ in range(40):
        value = {"a": value}
    assert len(doubling.wrong(value)) == 1


@pytest.mark.parametrize("value", [{"a": object()}, {1: 2}, {"a": "\ud800"}, {"a": {1, 2}}])
def test_what_is_no_json(value: object) -> None:
    """A value that JSON cannot hold is an error of its kind, or a mistake."""
    found = shape({"additionalProperties": {"type": "integer"}, "propertyNames": {"pattern": "^a$"}})
    try:
        assert found.wrong(value)
    except ValueError:
        return


@pytest.mark.parametrize(
    ("schema", "example"),
    [
        ({"required": ["a", "b"], "properties": {"a": {"type": "string"}, "b": {"minimum": 4, "type": "number"}}},
         {"a": "text", "b": 4}),
        ({"examples": [{"a": 1}], "type": "object"}, {"a": 1}),
        ({"type": ["string", "null"], "minLength": 6}, "textxx"),
        ({"type": "string", "maxLength": 2}, "te"),
        ({"type": "string", "format": "date"}, "2026-01-31"),
        ({"type": "array", "minItems": 2, "items": {"enum": ["x", "y"]}}, ["x", "x"]),
        ({"type": "array"}, []),
        ({"const": 5}, 5),
        ({"default": "d"}, "d"),
        ({"type": "integer", "exclusiveMinimum": 5}, 6),
        ({"type": "integer", "maximum": -5}, -5),
        ({"type": "integer", "multipleOf": 7}, 7),
        ({"type": "boolean"}, True),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, 1),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, "text"),
        ({"allOf": [{"$ref": "#/$defs/a"}, {"required": ["n"], "properties": {"n": {"minimum": 3}}}],
          "$defs": {"a": {"type": "object", "properties": {"n": {"type": "integer"}}}}}, {"n": 3}),
        ({"allOf": [True, {"type": "null"}]}, None),
        ({"oneOf": [{"required": ["a"]}], "properties": {"a": {"type": "boolean"}}}, {"a": True}),
        ({}, None),
    ],
)  # fmt: skip
def test_examples(schema: dict[str, Any], example: object) -> None:
    """An example is the schema's own, or the smallest that the schema allows."""
    assert example_of(schema) == example


def test_recursion_ends() -> None:
    """A schema that requires itself has no finite example, and the search for one ends."""
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}
    assert example_of(schema)
    assert shape(schema).example == ""


LEAVES = st.sampled_from([
    {"type": "string"}, {"type": "integer", "minimum": 3}, {"enum": ["a", 1]}, {"type": "boolean"}, {"type": "null"},
    {"type": "string", "minLength": 9}, {"pattern": "^x"}, {"const": [1]}, {"type": "string", "format": "uuid"}, True,
])  # fmt: skip
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items, "minItems": 1}, inner),
        st.builds(
            lambda one, two: {"type": "object", "properties": {"a": one, "b": two}, "required": ["b"]}, inner, inner
        ),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: {"allOf": parts}, st.lists(inner, min_size=1, max_size=2)),
    ),
    max_leaves=6,
)


@given(SCHEMAS.filter(lambda schema: isinstance(schema, dict)))
def test_an_example_that_is_shown_is_right(schema: dict[str, Any]) -> None:
    """For every schema, the example that is shown satisfies it; an example that would not is not shown."""
    found = shape(schema)
    if found.example:
        assert found.wrong(json.loads(found.example)) == ()


def test_an_example_of_ones_own() -> None:
    """A given example is shown as it is, and refused if it breaks the schema."""
    schema = {"required": ["a"]}
    assert shape(schema, example={"a": "ü"}).example == '{"a": "ü"}'
    with pytest.raises(ValueError, match=r'its example is wrong itself: "a" is a required property'):
        shape(schema, example={"b": 1})
    assert shape(schema, example={"a": "x" * 700}).example == ""


def test_all_that_is_wrong_with_several_tools() -> None:
    """Every tool whose schema is refused is named, under the hook's name."""
    with pytest.raises(InvalidHookSettings) as caught:
        Shapes("guard", {"A": ToolShape(input_schema={"type": 1}), "B": ToolShape(input_schema={"$ref": "x"})})
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "'tools.A'",
        "'tools.B'",
    ]


def test_tools_by_name() -> None:
    """Every shape that matches a tool's name is found, in order, however many names are asked for."""
    shapes = Shapes("guard", {"Write|Edit": ToolShape(required=("a",)), "W*": ToolShape(required=("b",))})
    both = shapes.of("Write")
    assert len(both) == 2
    assert shapes.of("Edit") == both[:1]
    assert not [name for name in map(str, range(2_000)) if shapes.of(name)]
    assert shapes.of("Write") == both


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


TOOLS = {
    "Read": {"input_schema": {"type": "object", "properties": {"limit": {"type": "integer"}}}, "required": ["path"]}
}


@pytest.fixture
def registry() -> HookRegistry:
    """Return a registry with the hook."""
    registry = HookRegistry()
    SchemaNudge.from_config({"tools": TOOLS}).register(registry)
    return registry


async def returned(registry: HookRegistry, result: object, value: object = None, **more: Any) -> Outcome:
    """Return the outcome of a result."""
    payload = {"session_id": "s", "tool_name": "Read", "tool_input": {} if value is None else value, "result": result}
    return await registry.emit("tool:post", {**payload, **more})


async def test_once_for_each_mistake(registry: HookRegistry) -> None:
    """A new mistake in a session brings up the right form; a repeated mistake does not."""
    error = {"is_error": True, "content": "1 validation error for Read"}
    said = [
        (await returned(registry, error, value, session_id=session)).context_injection
        for value, session in (({}, "s"), ({"limit": 3}, "s"), ({"path": "a", "limit": "x"}, "s"), ({}, "t"))
    ]
    assert said == [
        'Read refused its input. "path" is a required property. Correct is, for example: {"path": "text"}',
        None,
        (
            'Read refused its input. At /limit: this value is not of type "integer". '
            'Correct is, for example: {"path": "text"}'
        ),
        'Read refused its input. "path" is a required property. Correct is, for example: {"path": "text"}',
    ]


@pytest.mark.parametrize(
    ("result", "noticed"),
    [
        ("Invalid parameters: path", True),
        ({"error": {"code": -32602, "message": "no"}}, True),
        ({"isError": True, "content": [{"type": "text", "text": "Field required"}]}, True),
        ({"content": "validation error"}, False),
        ("x" * 3_000 + "validation error", False),
        ({"is_error": True, "content": "no such file"}, False),
        (["validation error"], False),
        (None, False),
    ],
)
async def test_what_counts_as_a_complaint(registry: HookRegistry, result: object, noticed: bool) -> None:
    """A result marked as an error and text that begins like one count; text that merely has the words does not."""
    assert bool((await returned(registry, result)).injections) is noticed


async def test_other_tools_are_left_alone(registry: HookRegistry) -> None:
    """A tool without a shape gets no hint."""
    assert not (await returned(registry, "Invalid parameters", tool_name="Write")).injections
    assert not (await returned(registry, "Invalid parameters", tool_name=None)).injections


async def test_input_that_is_right_by_the_schema(registry: HookRegistry) -> None:
    """If the schema finds no mistake, the example is shown, once for each complaint."""
    results = ["Invalid input: a", "Invalid input: a", "Invalid input: b"]
    said = [(await returned(registry, result, {"path": "a"})).context_injection for result in results]
    hint = 'Read refused its input. Correct is, for example: {"path": "text"}'
    assert said == [hint, None, hint]
    assert (await returned(registry, "Invalid input", {1: 2})).context_injection == hint


async def test_a_tool_that_raises() -> None:
    """An error that a tool raised counts, too; the hint is for the next model call."""
    registry = HookRegistry()
    seen: list[Any] = []
    SchemaNudge.from_config({"tools": TOOLS}).register(registry)

    def read(value: object) -> None:
        raise TypeError("read() missing 1 required positional argument: 'path'")

    async with SessionCoordinator(hooks=registry) as session, session.turn("go"):
        assert (await session.call_tool("Read", {}, read)).error
        assert (await session.call_tool("Write", {}, read)).error
        await session.call_model(seen.extend, [])
    (hint,) = [message["content"] for message in seen if "refused its input" in message["content"]]
    assert 'Correct is, for example: {"path": "text"}' in hint
