r"""The tests of written files run at once, and the agent reads the failures.

A test runner runs the agent's code: switch this hook on only where the agent may run its code anyway. It fails open.

```python
from pathlib import Path
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import TestFeedback

registry = HookRegistry()
TestFeedback.from_config({"seconds": 55}).register(registry)
Path("test_app.py").write_text("def test_sum():\n    assert 1 + 1 == 3\n")
outcome = await registry.emit("tool:post", {"tool_name": "Write", "tool_input": {"file_path": "test_app.py"}})
print(outcome.context_injection.splitlines()[-2])
```

```output
FAILED test_app.py::test_sum - assert (1 + 1) == 3
```
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Final

from pydantic import Field, field_validator

from amplifier_hooks.library.parts.feedback import Feedback, FeedbackSettings

MOST_TESTS: Final = 20
"""Test files that are run for one written file."""


class TestFeedbackSettings(FeedbackSettings):
    """Settings of the test runner, and the places of tests."""

    command: tuple[str, ...] = Field(
        default=("pytest", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "{file}"),
        min_length=1,
        description="the runner and its arguments, without a shell; {file} stands for the test files",
    )
    tests: tuple[str, ...] = Field(
        default=("tests/**/test_{name}.py", "test_{name}.py"),
        description="where the tests of a file are, as globs in the folder; {name} stands for its name without ending",
    )

    @field_validator("tests")
    @classmethod
    def _check_patterns(cls, tests: tuple[str, ...]) -> tuple[str, ...]:
        for glob in tests:
            if not glob.strip("./") or Path(glob).is_absolute():
                raise ValueError(f"has {glob!r:.80}; write it as it is in the folder, such as 'tests/test_{{name}}.py'")
        return tests

    findings: frozenset[int] = Field(
        default=frozenset({1, 2}), description="exit statuses that mean a test failed, or could not be loaded"
    )
    seconds: float = Field(default=50.0, gt=0, le=55, description="how long they may take")


class TestFeedback(Feedback[TestFeedbackSettings]):
    """Runs the tests of the files a tool has just written, with pytest by default; passes on what fails."""

    __test__ = False  # pytest would take it for tests
    name = "test_feedback"
    Settings = TestFeedbackSettings

    def targets(self, path: Path, folder: Path) -> list[Path]:
        """Return the file itself if it is a test, otherwise the tests that are named after it."""
        name = path.stem
        if any(fnmatchcase(path.name, glob.rpartition("/")[2].replace("{name}", "*")) for glob in self.settings.tests):
            return [path]
        if not name.isidentifier():
            return []
        found = (file for glob in self.settings.tests for file in folder.glob(glob.replace("{name}", name)))
        return list(dict.fromkeys(islice((file for file in found if file.is_file()), MOST_TESTS)))
