"""A check of a tool's input against its schema, before the tool runs.

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

from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from amplifier_hooks.events import TOOL_PRE
from amplifier_hooks.library.parts.ready_made import HookSettings, Point, ReadyMade, ToolMatch
from amplifier_hooks.library.parts.tool_schemas import Shapes, ToolShape
from amplifier_hooks.result import CONTINUE, HookResult

if TYPE_CHECKING:
    from collections.abc import Mapping


PRIORITY: Final = 110


class SchemaGuardSettings(HookSettings):
    """The shapes of the tools' inputs."""

    tools: dict[ToolMatch, ToolShape] = Field(
        default_factory=dict, description="what tools take, by name, list of names (`Write|Edit`) or glob"
    )


class SchemaGuard(ReadyMade[SchemaGuardSettings]):
    """Denies a tool call whose input breaks its schema, saying what is wrong, where, and what would be right.

    If several shapes match a tool, all have to fit. The hook fails closed: input that cannot be checked is denied, and
    so is a call that names no tool once there are schemas. A mistake in a schema is reported when the hook is created.

    Raise `InvalidHookSettings` for a schema that is broken, refers to another document, or would be slow to check.
    """

    name = "schema_guard"
    replays = True
    Settings = SchemaGuardSettings

    def __init__(self, settings: SchemaGuardSettings | None = None) -> None:
        super().__init__(settings)
        self._shapes = Shapes(self.name, self.settings.tools)

    def points(self) -> tuple[Point, ...]:
        """Return a gate before tools."""
        return (Point(event=TOOL_PRE, call=self.before, intent="gate", priority=PRIORITY, match=self._shapes.match),)

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
