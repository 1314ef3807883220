"""Inputs of tools and their JSON schemas: a gate before the tool runs, and advice after the tool refused its input.

An example of a correct input is built from the schema if that is possible without searching, and then checked.

```python
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import SchemaGuard

registry = HookRegistry()
schema = {"type": "object", "properties": {"path": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}}}
SchemaGuard.from_config({"tools": {"Read": {"input_schema": schema, "required": ["path"]}}}).register(registry)
outcome = await registry.emit("tool:pre", {"tool_name": "Read", "tool_input": {"limit": "all"}})
print(outcome.reason)
```

```output
the input of Read is not what it takes: at /limit: this value is not of type "integer"; "path" is a required property. Correct is, for example: {"path": "text"}
```
"""  # noqa: E501  # the output is one line

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from amplifier_hooks.errors import InvalidHookSettings
from amplifier_hooks.events import TOOL_ERROR, TOOL_POST, TOOL_PRE
from amplifier_hooks.impact.tool_matcher import compile_tool_matcher
from amplifier_hooks.library.parts.ready_made import HookSettings, Once, Point, ReadyMade, ToolMatch
from amplifier_hooks.result import CONTINUE, HookResult
from amplifier_hooks.text.json_schema import Schema, resolve_reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_hooks.text.json_schema import SchemaMistake
    from amplifier_hooks.text.matching import Matcher


# -- examples ----------------------------------------------------------------------------------------------------------


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


# -- shapes of inputs --------------------------------------------------------------------------------------------------


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


class ShapeSettings(HookSettings):
    """The shapes of the tools' inputs."""

    tools: dict[ToolMatch, ToolShape] = Field(
        default_factory=dict, description="what tools take, by name, list of names (`Write|Edit`) or glob"
    )


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
        self.of = lru_cache(NAMES_KEPT)(self._find)
        """Returns every shape that is for a tool, in the order in which they were given."""
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

    def _find(self, tool: str) -> tuple[Shape, ...]:
        return tuple(shape for matcher, shape in self._shapes if matcher.matches(tool))


# -- the hooks ---------------------------------------------------------------------------------------------------------


GUARD_PRIORITY: Final = 110


class SchemaGuard(ReadyMade[ShapeSettings]):
    """Denies a tool call whose input breaks its schema, saying what is wrong, where, and what would be right.

    If several shapes match a tool, all have to fit. The hook fails closed: input that cannot be checked is denied, and
    so is a call that names no tool once there are schemas. A mistake in a schema is reported when the hook is created.

    Raise `InvalidHookSettings` for a schema that is broken, refers to another document, or would be slow to check.
    """

    name = "schema_guard"
    replays = True
    Settings = ShapeSettings

    def __init__(self, settings: ShapeSettings | None = None) -> None:
        super().__init__(settings)
        self._shapes = Shapes(self.name, self.settings.tools)

    def points(self) -> tuple[Point, ...]:
        """Return a gate before tools."""
        return (
            Point(event=TOOL_PRE, call=self.before, intent="gate", priority=GUARD_PRIORITY, match=self._shapes.match),
        )

    async def before(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Let an input pass that fits every shape of its tool."""
        tool = data.get("tool_name")
        if not isinstance(tool, str):
            return (
                HookResult.deny("the call names no tool, so its input cannot be checked") if self._shapes else CONTINUE
            )
        value = data.get("tool_input")
        for shape in self._shapes.of(tool):
            try:
                wrong = () if shape.fits(value) else shape.wrong(value)
            except ValueError as error:
                return HookResult.deny(f"the input of {tool} is no JSON: {error}")
            if wrong:
                return HookResult.deny(f"the input of {tool} is not what it takes: {shape.describe(wrong)}")
        return CONTINUE


NUDGE_PRIORITY: Final = 310

LOOKED_AT: Final = 2_000
"""Characters at the beginning of a result that are searched: an error shows early that it is one."""

SIGNS: Final = re.compile(
    r"validation ?error|invalid (?:input|argument|parameter|params|type)|invalid_(?:type|request|params|arguments)"
    r"|is a required property|field required|missing required|missing \d+ required|input should be"
    r"|unexpected keyword argument|not of type|-32602",
    re.IGNORECASE,
)
"""Patterns of the validation errors of common libraries."""


class SchemaNudge(ReadyMade[ShapeSettings]):
    """After a validation error, tells the model what the tool takes; once for each mistake of a session.

    The hook reads results that are marked as errors (`is_error`, `isError`, `error`), text that begins like an error,
    and errors that a tool raised. It ignores tools without a shape.

    ```python
    from amplifier_hooks import HookRegistry
    from amplifier_hooks.library import SchemaNudge

    registry = HookRegistry()
    SchemaNudge.from_config({"tools": {"Read": {"example": {"path": "a.txt"}}}}).register(registry)
    failed = {"tool_name": "Read", "tool_input": {"file": "a.txt"}, "error": {"type": "ValidationError"}}
    print((await registry.emit("tool:error", failed)).context_injection)
    ```

    ```output
    Read refused its input. Correct is, for example: {"path": "a.txt"}
    ```

    Raise `InvalidHookSettings` for a schema that is broken, refers to another document, or would be slow to check.
    """

    name = "schema_nudge"
    Settings = ShapeSettings

    def __init__(self, settings: ShapeSettings | None = None) -> None:
        super().__init__(settings)
        self._shapes = Shapes(self.name, self.settings.tools)
        self._once = Once()

    def points(self) -> tuple[Point, ...]:
        """Return hooks after a tool returned or raised."""
        return (
            Point(event=TOOL_POST, call=self.after, intent="on", priority=NUDGE_PRIORITY, match=self._shapes.match),
            Point(event=TOOL_ERROR, call=self.after, intent="on", priority=NUDGE_PRIORITY, match=self._shapes.match),
        )

    async def after(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Inject the right form of the input, if this is a new validation error."""
        shapes = self._shapes.of(str(data.get("tool_name")))
        if not shapes:
            return CONTINUE
        complaint = _complaint(
            data.get("error") if event == TOOL_ERROR else data.get("result"), raised=event == TOOL_ERROR
        )
        if SIGNS.search(complaint) is None:
            return CONTINUE
        tool = data["tool_name"]
        said = [_advice(shape, data.get("tool_input"), complaint) for shape in shapes]
        new = [text for text, mistake in said if text and self._once.is_first(data, tool, mistake)]
        if not new:
            return CONTINUE
        return HookResult.inject(f"{tool} refused its input. {' '.join(new)}", ephemeral=True)


def _advice(shape: Shape, value: object, complaint: str) -> tuple[str, object]:
    """Return the advice of this shape, and a key of the mistake that it is about."""
    try:
        wrong: tuple[SchemaMistake, ...] = shape.wrong(value)
    except ValueError:
        wrong = ()
    if wrong:
        told = shape.describe(wrong)
        return f"{told[0].upper()}{told[1:]}", frozenset((one.where, one.keyword, one.what) for one in wrong)
    return (f"Correct is, for example: {shape.example}" if shape.example else ""), complaint


def _complaint(value: object, *, raised: bool) -> str:
    """Return the beginning of a tool's error, or an empty text if the value does not look like one."""
    if isinstance(value, str):
        return value[:LOOKED_AT]
    if not isinstance(value, Mapping):
        return str(value)[:LOOKED_AT] if raised else ""
    if not raised and not any(value.get(name) for name in ("is_error", "isError", "error", "errors")):
        return ""
    try:
        return json.dumps(value, default=str, ensure_ascii=False)[:LOOKED_AT]
    except (TypeError, ValueError):
        return str(value)[:LOOKED_AT]
