r"""A type checker checks every written file, and the agent mends its findings in the same turn.

The project's configuration decides what the checker does, and mypy runs the plugins that it names: switch this hook on
only in projects that are trusted. It fails open.

```python
from pathlib import Path
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import TypeFeedback

registry = HookRegistry()
TypeFeedback.from_config({"seconds": 55}).register(registry)
Path("app.py").write_text("x: int = 'one'\n")
outcome = await registry.emit("tool:post", {"tool_name": "Write", "tool_input": {"file_path": "app.py"}})
print(outcome.context_injection)
```

```output
mypy on app.py:
app.py:1: error: Incompatible types in assignment (expression has type "str", variable has type "int")  [assignment]
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from amplifier_hooks.library.parts.feedback import Feedback, FeedbackSettings

if TYPE_CHECKING:
    from pathlib import Path


class TypeFeedbackSettings(FeedbackSettings):
    """Settings of the type checker, and of the writes after which it runs."""

    command: tuple[str, ...] = Field(
        default=("mypy", "--no-error-summary", "--no-pretty", "--follow-imports=silent", "{file}"),
        min_length=1,
        description="the checker and its arguments, without a shell; {file} stands for the files that were written",
    )
    files: tuple[str, ...] = Field(default=("*.py", "*.pyi"), description="which files it is for, by name; globs")
    seconds: float = Field(default=50.0, gt=0, le=55, description="how long it may take; the first time takes longest")


class TypeFeedback(Feedback[TypeFeedbackSettings]):
    """Runs a type checker, mypy by default, over the files a tool has just written."""

    name = "type_feedback"
    Settings = TypeFeedbackSettings

    def targets(self, path: Path, folder: Path) -> list[Path]:  # of all feedback
        """Return the written file alone."""
        return [path]
