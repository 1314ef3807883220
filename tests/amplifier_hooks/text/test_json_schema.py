import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks.text.json_schema import Schema, SchemaError, resolve_reference


def chain(length: int, part: str = "allOf") -> dict[str, Any]:
    """Return a schema whose definitions each refer to the next one twice, so that each doubles its size."""
    definitions: dict[str, Any] = {
        f"d{number}": {part: [{"$ref": f"#/$defs/d{number + 1}"}] * 2} for number in range(length)
    }
    return {"$defs": {**definitions, f"d{length}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def line(length: int) -> dict[str, Any]:
    """Return a schema whose definitions each refer to the next one."""
    definitions: dict[str, Any] = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(length)}
    return {"$defs": {**definitions, f"d{length}": {}}, "$ref": "#/$defs/d0"}


def nested(depth: int) -> dict[str, Any]:
    """Return a schema of properties within properties."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


@pytest.mark.rule("LIB-1")
@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ({"type": "strng"}, "$.type: "),
        ({"properties": []}, '$.properties: this value is not of type "object"'),
        ({"$ref": "https://example.com/a.json"}, "$ref 'https://example.com/a.json' leads outside; nothing is fetched"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "$ref 'file:///etc/passwd' leads outside"),
        ({"items": [{"$ref": "other.json#/a"}]}, "$ref 'other.json#/a' leads outside"),
        ({"$schema": "https://example.com/draft"}, "Unknown meta-schema"),
        ({"$ref": "#/$defs/nowhere"}, "'#/$defs/nowhere' points to nothing"),
        ({"pattern": "(?=a)b"}, '$.pattern: this value is not a "regex"'),
        ({"pattern": "(a{1000}){1000}"}, "$.pattern: "),
        (nested(80), "it is nested deeper than 64"),
        (chain(40), "written out it has more than 20,000 places"),
        (chain(40, "anyOf"), "written out it has more than 20,000 places"),
        (line(2_000), "it goes on in a chain of more than 256 parts"),
    ],
)
def test_what_is_refused(schema: dict[str, Any], sentence: str) -> None:
    """A schema that is broken, refers to anything outside or would be slow to check is refused, with the reason."""
    with pytest.raises(SchemaError, match=re.escape(sentence)):
        Schema(schema)


@pytest.mark.rule("LIB-1", "RUN-15")
@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"$defs": {"a": {"$anchor": "x", "type": "string"}}, "$ref": "#x"}, "text", 1),
        ({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "required": ["v"]}, {"v": 1}, {"left": {}}),
        ({"properties": {"$ref": {"type": "string"}, "enum": {"type": "integer"}}}, {"$ref": "a"}, {"enum": "a"}),
        ({"enum": [{"$ref": "https://example.com"}]}, {"$ref": "https://example.com"}, 1),
        ({"items": {"type": "integer"}}, [1], ["a"]),
        (
            {
                "$schema": "https://json-schema.org/draft/2019-09/schema",
                "$recursiveAnchor": True,
                "properties": {"a": {"$recursiveRef": "#"}},
            },
            {},
            None,
        ),
        ({"pattern": "^(a+)+$"}, "aaaa", "a" * 50_000 + "b"),
        ({"definitions": {"n": {"minimum": 3}}, "properties": {"n": {"$ref": "#/definitions/n"}}}, {"n": 3}, {"n": 2}),
    ],
)
def test_what_is_accepted(schema: dict[str, Any], right: object, wrong: object) -> None:
    """References within a schema, recursion, and names that look like keywords apply as written."""
    found = Schema(schema)
    assert found.mistakes(right) == ()
    assert wrong is None or found.mistakes(wrong)


def doubled(word: str, anchor: str, to: str) -> dict[str, Any]:
    """Return a schema whose parts each refer to the next one twice, by this keyword and with these anchors."""
    parts: dict[str, Any] = {f"d{n}": {anchor: f"d{n}", "anyOf": [{word: f"{to}d{n + 1}"}] * 2} for n in range(40)}
    return {"$defs": {**parts, "d40": {anchor: "d40", "type": "string"}}, "$ref": "#/$defs/d0"}


@pytest.mark.rule("LIB-1", "RUN-15")
@pytest.mark.parametrize(
    ("word", "anchor", "to"),
    [("$ref", "$anchor", "#"), ("$ref", "x", "#/%24defs/"), ("$dynamicRef", "$dynamicAnchor", "#")],
)
def test_no_way_to_refer_hides_how_large_a_schema_is(word: str, anchor: str, to: str) -> None:
    """References by anchors, dynamic ones and ones with percent signs expand like any other."""
    with pytest.raises(SchemaError, match="written out"):
        Schema(doubled(word, anchor, to))


@pytest.mark.rule("LIB-1")
def test_a_name_of_a_part_hides_nothing() -> None:
    """A part with an `$id`, to which its references would be relative, is refused, because it could hide its size."""
    inner = chain(40, "anyOf")
    with pytest.raises(SchemaError, match=r"\$id is not followed"):
        Schema({"properties": {"a": {"$id": "urn:inner", **inner}}})
    named = Schema({"$id": "https://example.com/tool", "properties": {"$id": {"type": "string"}}})
    assert named.mistakes({"$id": 1})[0].where == "/$id"


@pytest.mark.rule("LIB-1", "RUN-15")
@given(st.recursive(
    st.sampled_from([{}, True, {"$ref": "#"}, {"$ref": "#/$defs/a"}, {"$dynamicRef": "#b"}, {"type": "string"}]),
    lambda inner: st.one_of(
        st.builds(lambda parts: {"allOf": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda one: {"properties": {"a": one}}, inner),
    ),
    max_leaves=8,
))  # fmt: skip
def test_all_that_is_wrong_is_wrong(part: Any) -> None:
    """`fits`, `problem` and `mistakes` agree on every value."""
    schema = Schema({"$defs": {"a": {"type": "integer"}, "b": {"$dynamicAnchor": "b"}}, "properties": {"x": part}})
    for value in ({"x": 1}, {"x": "a"}, {"x": {"a": 1, "x": "a"}}):
        assert schema.fits(value) == (not schema.mistakes(value)) == (schema.problem(value) is None)


@pytest.mark.rule("RUN-15")
@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"$ref": "http://127.0.0.1:9/schema"}, "leads outside; nothing is fetched"),
        ({"$ref": "file:///etc/passwd"}, "leads outside; nothing is fetched"),
        ({"$ref": "#/$defs/none"}, "points to nothing"),
        ({"$schema": "http://example.com/mine"}, "meta-schema"),
        ({"pattern": "("}, "regex"),
        ({"pattern": "(?=a)b"}, "regex"),
        ({"pattern": "((a{100}){100}){100}"}, "regex"),
        ({"allOf": [{"$anchor": "here"}, {"$dynamicAnchor": "here"}]}, "'here' is there twice"),
        ({"$ref": "#here"}, "points to nothing"),
        ({"$defs": {"a": {"$id": "urn:other"}}}, "$id is not followed"),
        (
            {"$schema": "http://json-schema.org/draft-04/schema#", "definitions": {"a": {"id": "urn:other"}}},
            "id is not followed",
        ),
        ({"description": "x" * 300_000}, "at most"),
        ({"minimum": float("nan")}, "no JSON"),
        ({"enum": {1, 2}}, "no JSON"),
    ],
)
def test_a_schema_that_means_harm(document: Any, words: str) -> None:
    """A schema that is broken, refers to anything outside, or exceeds a limit is refused when it is read."""
    with pytest.raises(SchemaError, match=words.replace("$", r"\$")):
        Schema(document)


@pytest.mark.rule("RUN-15", "LIB-1")
def test_a_schema_that_unfolds() -> None:
    """A few references that expand into millions of parts are refused; a recursive schema is fine."""
    doubling = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n - 1}"}] * 2} for n in range(1, 30)}
    with pytest.raises(SchemaError, match="written out"):
        Schema({"$defs": {"a0": {"type": "string"}, **doubling}, "$ref": "#/$defs/a29"})
    deep: dict[str, Any] = {}
    for _ in range(70):
        deep = {"items": deep}
    with pytest.raises(SchemaError, match="deeper than 64"):
        Schema(deep)
    tree = Schema({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "n": {"type": "integer"}}})
    assert tree.problem({"left": {"right": {"n": 1}}}) is None
    assert str(tree.problem({"left": {"right": {"n": "x"}}})).startswith("$.left.right.n: ")


@pytest.mark.rule("RUN-2", "RUN-15")
def test_values_against_a_schema() -> None:
    """The mistakes of a value name their place; a value that is not JSON never fits."""
    schema = Schema({"type": "object", "properties": {"items": {"items": {"type": "integer"}}}})
    assert schema.problem({"items": [1, 2]}) is None
    assert str(schema.problem({"items": [1, "x"]})).startswith("$.items[1]: ")
    for odd in ("\ud800", b"bytes", float("nan")):
        assert schema.problem({"items": [odd]})
    assert Schema(True).problem({"any": 1}) is None  # True is a schema, too
    assert Schema(False).problem({}) is not None


@pytest.mark.rule("RUN-15")
def test_pointers() -> None:
    """References are followed through maps and lists, with their escapes."""
    root = {"a/b": [{"c~d": 1}]}
    assert resolve_reference(root, "#/a~1b/0/c~0d") == 1
    assert resolve_reference(root, "#/%61%7E1b/0") == {"c~d": 1}
    assert resolve_reference(root, "#") is root
    assert [resolve_reference(root, wrong) for wrong in ("#/a", "#/a~1b/7", "#/a~1b/x", "x", 3)] == [None] * 5
