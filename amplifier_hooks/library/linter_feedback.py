r"""A linter checks every written file, and the agent mends its findings in the same turn.

The project's configuration decides what the linter does. For a project that is not trusted, choose a linter that runs
no code of the project; ruff is one. The hook fails open.

```python
from pathlib import Path
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import LinterFeedback

registry = HookRegistry()
LinterFeedback().register(registry)
Path("app.py").write_text("import os\n")
outcome = await registry.emit("tool:post", {"tool_name": "Write", "tool_input": {"file_path": "app.py"}})
print(outcome.context_injection)
```

```output
ruff on app.py:
app.py:1:8: F401 [*] `os` imported but unused
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from amplifier_hooks.library.parts.feedback import Feedback, FeedbackSettings

if TYPE_CHECKING:
    from pathlib import Path


class LinterFeedbackSettings(FeedbackSettings):
    """Settings of the linter, and of the writes after which it runs."""

    command: tuple[str, ...] = Field(
        default=("ruff", "check", "--quiet", "--no-fix", "--no-cache", "--output-format=concise", "{file}"),
        min_length=1,
        description="the linter and its arguments, without a shell; {file} stands for the files that were written",
    )


class LinterFeedback(Feedback[LinterFeedbackSettings]):
    """Runs a linter, ruff by default, over the files a tool has just written, and passes on its findings."""

    name = "linter_feedback"
    Settings = LinterFeedbackSettings

    def targets(self, path: Path, folder: Path) -> list[Path]:  # of all feedback
        """Return the written file alone."""
        return [path]
