import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks.errors import InvalidHookSettings
from amplifier_hooks.library.parts.tool_schemas import Shape, Shapes, ToolShape, example_of

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
