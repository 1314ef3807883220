"""What a tool takes: its JSON schema, an example of what is right, and what an input has wrong, in words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from amplifier_hooks.errors import InvalidHookSettings
from amplifier_hooks.library.parts.ready_made import HookSettings
from amplifier_hooks.library.parts.schema_example import example_of
from amplifier_hooks.text.json_schema import Schema
from amplifier_hooks.text.matching import compile_matcher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.text.json_schema import Wrong
    from amplifier_hooks.text.matching import Matcher


MOST_WRONG: Final = 5
LONGEST_EXAMPLE: Final = 600
NAMES_KEPT: Final = 1_024
AT_THE_TOP: Final = ("$schema", "$id", "id", "$defs", "definitions")
"""Where the draft, the name and the definitions of a schema are looked for."""


class ToolShape(HookSettings):
    """What one tool takes."""

    input_schema: dict[str, Any] = Field(default_factory=dict, description="a JSON schema of the tool's input")
    required: tuple[str, ...] = Field(default=(), description="fields that have to be there, besides those it names")
    min_length: dict[str, int] = Field(default_factory=dict, description="least length of fields: text or lists")
    max_length: dict[str, int] = Field(default_factory=dict, description="greatest length of fields: text or lists")
    example: dict[str, Any] | None = Field(
        default=None, description="an input that is right; left out, one is made from the schema where that is possible"
    )

    def whole(self) -> dict[str, Any]:
        """All of it as one schema."""
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
    """A schema that was found fit, and an example of what it asks for.

    Raises `ValueError`, saying what is wrong with it.
    """

    def __init__(self, settings: ToolShape) -> None:
        schema = settings.whole()
        self._schema = Schema(schema)
        self.fits = self._schema.fits
        self.wrong = self._schema.wrong
        self.example = self._example(schema, settings.example)

    def told(self, wrong: tuple[Wrong, ...]) -> str:
        """What is wrong, in words, with an example of what is right."""
        more = len(wrong) - MOST_WRONG
        said = "; ".join(str(one) for one in wrong[:MOST_WRONG]) + (f"; and {more} more" if more > 0 else "")
        return f"{said}. Correct is, for example: {self.example}" if self.example else said

    def _example(self, schema: Mapping[str, Any], given: object) -> str:
        if given is not None and (wrong := self.wrong(given)):
            raise ValueError(f"its example is wrong itself: {wrong[0]}")
        made = example_of(schema) if given is None else given
        try:
            text = json.dumps(made, ensure_ascii=False)
            return text if made is not None and len(text) <= LONGEST_EXAMPLE and self.fits(made) else ""
        except (TypeError, ValueError):
            return ""


class Shapes:
    """The shapes of several tools, found by a tool's name.

    Raises `InvalidHookSettings` in the name of `hook`.
    """

    def __init__(self, hook: str, tools: Mapping[str, ToolShape]) -> None:
        self._made: list[tuple[Matcher, Shape]] = []
        self._known: dict[str, tuple[Shape, ...]] = {}
        problems = []
        for spec, settings in tools.items():
            try:
                self._made.append((compile_matcher(spec), Shape(settings)))
            except ValueError as error:
                problems.append(f"setting 'tools.{spec[:80]}': {error}")
        if problems:
            raise InvalidHookSettings(hook, tuple(problems))

    def __bool__(self) -> bool:
        return bool(self._made)

    @property
    def match(self) -> str | None:
        """What selects the calls that any of them is for; None where that cannot be said as one matcher."""
        specs = [matcher.spec for matcher, _ in self._made]
        return "|".join(specs) if specs and not any(spec == "*" or ":" in spec for spec in specs) else None

    def of(self, tool: str) -> tuple[Shape, ...]:
        """Every shape that is for this tool, in the order they were given."""
        known = self._known.get(tool)
        if known is None:
            if len(self._known) >= NAMES_KEPT:  # made-up names must not fill the memory
                self._known.clear()
            known = self._known[tool] = tuple(shape for matcher, shape in self._made if matcher.matches(tool))
        return known
