"""The input of a tool: its JSON schema, an example of a correct input, and the mistakes of an input in words.

The example is built from the schema if that is possible without searching. The caller checks that it fits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from amplifier_hooks.errors import InvalidHookSettings
from amplifier_hooks.impact.tool_matcher import compile_tool_matcher
from amplifier_hooks.library.parts.ready_made import HookSettings
from amplifier_hooks.text.json_schema import Schema, resolve_reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_hooks.text.json_schema import SchemaMistake
    from amplifier_hooks.text.matching import Matcher


DEEPEST: Final = 8
MOST_ITEMS: Final = 3
LONGEST_TEXT: Final = 64

GIVEN: Final[tuple[tuple[str, Callable[[Any], Any]], ...]] = (
    ("examples", lambda values: values[0]),
    ("default", lambda value: value),
    ("const", lambda value: value),
    ("enum", lambda values: values[0]),
)
"""Keywords that give a possible value."""

FORMATS: Final = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "email": "someone@example.com",
    "ipv4": "192.0.2.1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def example_of(schema: object) -> Any:
    """Return an example: the schema's own if it has one, otherwise the smallest that satisfies the schema."""
    return _make_example(schema, schema, 0)


def _make_example(schema: object, root: object, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return None
    for keyword, value in GIVEN:
        if schema.get(keyword) not in (None, []):
            return value(schema[keyword])
    simpler = _simplify(schema, root)
    if simpler is not None:
        return _make_example(simpler, root, depth + 1)
    kind = schema.get("type") or ("object" if {"properties", "required"} & schema.keys() else "")
    make = KINDS.get(kind[0] if isinstance(kind, list) else kind)
    return make(schema, root, depth) if make else None


def _simplify(schema: Mapping[str, Any], root: object) -> object:
    """Return the schema with its first combination of schemas resolved, or None if it has none."""
    if "$ref" in schema:
        return resolve_reference(root, schema["$ref"])
    for keyword in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(keyword), list) and schema[keyword]:
            parts = schema[keyword] if keyword == "allOf" else schema[keyword][:1]
            return _merge_schemas({name: value for name, value in schema.items() if name != keyword}, parts, root)
    return None


def _merge_schemas(first: Mapping[str, Any], parts: list[Any], root: object) -> dict[str, Any]:
    """Merge schemas that all apply: `properties` and `required` add up, and of other keywords the last one counts."""
    whole: dict[str, Any] = {**first}
    for part in parts:
        found = resolve_reference(root, part["$ref"]) if isinstance(part, Mapping) and "$ref" in part else part
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
        made[name] = "text" if own in (True, {}) else _make_example(own, root, depth + 1)
    return made


def _array(schema: Mapping[str, Any], root: object, depth: int) -> list[Any]:
    count = min(max(schema.get("minItems", 0), 1 if "items" in schema else 0), MOST_ITEMS)
    return [_make_example(schema.get("items"), root, depth + 1) for _ in range(count)]


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


MOST_WRONG: Final = 5
LONGEST_EXAMPLE: Final = 600
NAMES_KEPT: Final = 1_024
AT_THE_TOP: Final = ("$schema", "$id", "id", "$defs", "definitions")
"""Keywords at the top of a schema: its draft, its name and its definitions."""


class ToolShape(HookSettings):
    """The input of one tool."""

    input_schema: dict[str, Any] = Field(default_factory=dict, description="a JSON schema of the tool's input")
    required: tuple[str, ...] = Field(default=(), description="fields that have to be there, besides those it names")
    min_length: dict[str, int] = Field(default_factory=dict, description="least length of fields: text or lists")
    max_length: dict[str, int] = Field(default_factory=dict, description="greatest length of fields: text or lists")
    example: dict[str, Any] | None = Field(
        default=None, description="an input that is right; left out, one is made from the schema where that is possible"
    )

    def full_schema(self) -> dict[str, Any]:
        """Return all settings as one schema."""
        properties: dict[str, dict[str, int]] = {}
        for words, lengths in (
            (("minLength", "minItems"), self.min_length),
            (("maxLength", "maxItems"), self.max_length),
        ):
            for name, length in lengths.items():
                properties.setdefault(name, {}).update(dict.fromkeys(words, length))
        more: dict[str, Any] = {"properties": properties} if properties else {}
        if self.required:
            more["required"] = list(self.required)
        if not more:
            return self.input_schema
        inner = {name: value for name, value in self.input_schema.items() if name not in AT_THE_TOP}
        outer = {name: value for name, value in self.input_schema.items() if name in AT_THE_TOP}
        return {**outer, "allOf": [inner, {"type": "object", **more}]}


class Shape:
    """A schema that was checked, and an example of a fitting value.

    Raise `ValueError` with the mistake in the schema.
    """

    def __init__(self, settings: ToolShape) -> None:
        schema = settings.full_schema()
        self._schema = Schema(schema)
        self.fits = self._schema.fits
        self.wrong = self._schema.mistakes
        self.example = self._example(schema, settings.example)

    def describe(self, wrong: tuple[SchemaMistake, ...]) -> str:
        """Return the mistakes in words, with an example of a correct input."""
        more = len(wrong) - MOST_WRONG
        said = "; ".join(str(one) for one in wrong[:MOST_WRONG]) + (f"; and {more} more" if more > 0 else "")
        return f"{said}. Correct is, for example: {self.example}" if self.example else said

    def _example(self, schema: Mapping[str, Any], value: object) -> str:
        if value is not None and (wrong := self.wrong(value)):
            raise ValueError(f"its example is wrong itself: {wrong[0]}")
        made = example_of(schema) if value is None else value
        try:
            text = json.dumps(made, ensure_ascii=False)
            return text if made is not None and len(text) <= LONGEST_EXAMPLE and self.fits(made) else ""
        except (TypeError, ValueError):
            return ""


class Shapes:
    """The shapes of several tools, found by a tool's name.

    Raise `InvalidHookSettings` in the name of `hook`.
    """

    def __init__(self, hook: str, tools: Mapping[str, ToolShape]) -> None:
        self._shapes: list[tuple[Matcher, Shape]] = []
        self._cache: dict[str, tuple[Shape, ...]] = {}
        problems = []
        for spec, settings in tools.items():
            try:
                self._shapes.append((compile_tool_matcher(spec), Shape(settings)))
            except ValueError as error:
                problems.append(f"'tools.{spec[:80]}': {error}")
        if problems:
            raise InvalidHookSettings(hook, tuple(problems))

    def __bool__(self) -> bool:
        return bool(self._shapes)

    @property
    def match(self) -> str | None:
        """A matcher for the calls that any of the shapes is for; None if one matcher cannot express that."""
        specs = [matcher.spec for matcher, _ in self._shapes]
        return "|".join(specs) if specs and not any(spec == "*" or ":" in spec for spec in specs) else None

    def of(self, tool: str) -> tuple[Shape, ...]:
        """Return every shape that is for this tool, in the order in which they were given."""
        known = self._cache.get(tool)
        if known is None:
            if len(self._cache) >= NAMES_KEPT:  # made-up names must not fill the memory
                self._cache.clear()
            known = self._cache[tool] = tuple(shape for matcher, shape in self._shapes if matcher.matches(tool))
        return known
