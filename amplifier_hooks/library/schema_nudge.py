"""A tool that refused its input: tell the model the right form, once for each mistake.

```python
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import SchemaNudge

registry = HookRegistry()
SchemaNudge.from_config({"tools": {"Read": {"example": {"path": "a.txt"}}}}).register(registry)
failed = {"tool_name": "Read", "tool_input": {"file": "a.txt"}, "error": {"type": "ValidationError", "message": "…"}}
print((await registry.emit("tool:error", failed)).context_injection)
```

```output
Read refused its input. Correct is, for example: {"path": "a.txt"}
```
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from amplifier_hooks.events import SESSION_END, TOOL_ERROR, TOOL_POST
from amplifier_hooks.library.parts.ready_made import HookSettings, Once, Point, ReadyMade, ToolMatch
from amplifier_hooks.library.parts.tool_schemas import Shapes, ToolShape
from amplifier_hooks.result import CONTINUE, HookResult

if TYPE_CHECKING:
    from amplifier_hooks.library.parts.tool_schemas import Shape
    from amplifier_hooks.text.json_schema import SchemaMistake


PRIORITY: Final = 310

LOOKED_AT: Final = 2_000
"""Characters at the beginning of a result that are searched: an error shows early that it is one."""

SIGNS: Final = re.compile(
    r"validation ?error|invalid (?:input|argument|parameter|params|type)|invalid_(?:type|request|params|arguments)"
    r"|is a required property|field required|missing required|missing \d+ required|input should be"
    r"|unexpected keyword argument|not of type|-32602",
    re.IGNORECASE,
)
"""Patterns of the validation errors of common libraries."""


class SchemaNudgeSettings(HookSettings):
    """The shapes of the tools' inputs."""

    tools: dict[ToolMatch, ToolShape] = Field(
        default_factory=dict, description="what tools take, by name, list of names (`Write|Edit`) or glob"
    )
    lasting: bool = Field(default=False, description="keep the hint in the context, not only for the next model call")


class SchemaNudge(ReadyMade[SchemaNudgeSettings]):
    """After a validation error, tells the model what the tool takes; once for each mistake of a session.

    The hook reads results that are marked as errors (`is_error`, `isError`, `error`), text that begins like an error,
    and errors that a tool raised. It ignores tools without a shape.

    Raise `InvalidHookSettings` for a schema that is broken, refers to another document, or would be slow to check.
    """

    name = "schema_nudge"
    Settings = SchemaNudgeSettings

    def __init__(self, settings: SchemaNudgeSettings | None = None) -> None:
        super().__init__(settings)
        self._shapes = Shapes(self.name, self.settings.tools)
        self._once = Once()

    def points(self) -> tuple[Point, ...]:
        """Return hooks after a tool returned or raised, and an observer that forgets a session at its end."""
        return (
            Point(event=TOOL_POST, call=self.after, intent="on", priority=PRIORITY, match=self._shapes.match),
            Point(event=TOOL_ERROR, call=self.after, intent="on", priority=PRIORITY, match=self._shapes.match),
            Point(event=SESSION_END, call=self.on_session_end, intent="observe", priority=PRIORITY),
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
        return HookResult.inject(f"{tool} refused its input. {' '.join(new)}", ephemeral=not self.settings.lasting)

    async def on_session_end(self, event: str, data: Mapping[str, Any], outcome: object) -> None:
        """Forget the session."""
        self._once.forget(data)


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
