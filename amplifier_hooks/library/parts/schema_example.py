"""A value that satisfies a JSON schema, where one can be made without searching. The caller checks that it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.text.json_schema import resolved

if TYPE_CHECKING:
    from collections.abc import Callable


DEEPEST: Final = 8
MOST_ITEMS: Final = 3
LONGEST_TEXT: Final = 64

GIVEN: Final[tuple[tuple[str, Callable[[Any], Any]], ...]] = (
    ("examples", lambda values: values[0]),
    ("default", lambda value: value),
    ("const", lambda value: value),
    ("enum", lambda values: values[0]),
)
"""Keywords that say what a value may be."""

FORMATS: Final = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "email": "someone@example.com",
    "ipv4": "192.0.2.1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def example_of(schema: object) -> Any:
    """An example: the schema's own if it has one, else the least that it asks for."""
    return _made(schema, schema, 0)


def _made(schema: object, root: object, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return None
    for keyword, value in GIVEN:
        if schema.get(keyword) not in (None, []):
            return value(schema[keyword])
    simpler = _simpler(schema, root)
    if simpler is not None:
        return _made(simpler, root, depth + 1)
    kind = schema.get("type") or ("object" if {"properties", "required"} & schema.keys() else "")
    make = KINDS.get(kind[0] if isinstance(kind, list) else kind)
    return make(schema, root, depth) if make else None


def _simpler(schema: Mapping[str, Any], root: object) -> object:
    """The same without its first combination of schemas; None where it has none."""
    if "$ref" in schema:
        return resolved(root, schema["$ref"])
    for keyword in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(keyword), list) and schema[keyword]:
            parts = schema[keyword] if keyword == "allOf" else schema[keyword][:1]
            return _together({name: value for name, value in schema.items() if name != keyword}, parts, root)
    return None


def _together(first: Mapping[str, Any], parts: list[Any], root: object) -> dict[str, Any]:
    """Schemas that all hold, as one: what each asks for, the last word on the rest."""
    whole: dict[str, Any] = {**first}
    for part in parts:
        found = resolved(root, part["$ref"]) if isinstance(part, Mapping) and "$ref" in part else part
        if not isinstance(found, Mapping):
            continue
        properties = {**whole.get("properties", {})}
        for name, schema in found.get("properties", {}).items():
            both = isinstance(schema, Mapping) and isinstance(properties.get(name), Mapping)
            properties[name] = {**properties[name], **schema} if both else schema
        required = [*whole.get("required", ()), *found.get("required", ())]
        whole = {**whole, **found, "properties": properties, "required": list(dict.fromkeys(required))}
        if not properties:
            del whole["properties"]
        if not required:
            del whole["required"]
    return whole


def _object(schema: Mapping[str, Any], root: object, depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name in schema.get("required", ()):
        own = schema.get("properties", {}).get(name, True)
        made[name] = "text" if own in (True, {}) else _made(own, root, depth + 1)
    return made


def _array(schema: Mapping[str, Any], root: object, depth: int) -> list[Any]:
    count = min(max(schema.get("minItems", 0), 1 if "items" in schema else 0), MOST_ITEMS)
    return [_made(schema.get("items"), root, depth + 1) for _ in range(count)]


def _text(schema: Mapping[str, Any], root: object, depth: int) -> str:  # noqa: ARG001  # as the others are called
    text = FORMATS.get(schema.get("format", ""), "text")
    least, most = schema.get("minLength", 0), schema.get("maxLength", LONGEST_TEXT)
    return text.ljust(min(least, LONGEST_TEXT), "x")[: max(most, 0)]


def _number(schema: Mapping[str, Any], root: object, depth: int) -> Any:  # noqa: ARG001  # as the others are called
    if "minimum" in schema:
        return schema["minimum"]
    if "exclusiveMinimum" in schema:
        return schema["exclusiveMinimum"] + 1
    return schema.get("multipleOf") or min(1, schema.get("maximum", 1))


KINDS: Final = {
    "object": _object,
    "array": _array,
    "string": _text,
    "number": _number,
    "integer": _number,
    "boolean": lambda *_: True,
    "null": lambda *_: None,
}
