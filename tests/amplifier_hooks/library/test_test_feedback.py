"""The tests of written files run at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amplifier_hooks import HookRegistry
from amplifier_hooks.library import TestFeedback

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.rule("LIB-6")


@pytest.mark.slow
async def test_findings(tmp_path: Path) -> None:
    """The tests named after a written file run, and failures are injected; so are tests that cannot be loaded."""
    registry = HookRegistry()
    TestFeedback.from_config({"cwd": str(tmp_path)}).register(registry)
    (tmp_path / "tests").mkdir()
    (tmp_path / "conftest.py").write_text("")
    (tmp_path / "tests" / "test_app.py").write_text("from app import one\n\ndef test_one():\n    assert one() == 1\n")
    for text, found in (("def one(): return 2", "1 failed"), ("def one(", "SyntaxError"), ("def one(): return 1", "")):
        (tmp_path / "app.py").write_text(text)
        outcome = await registry.emit("tool:post", {"tool_name": "Write", "tool_input": {"file_path": "app.py"}})
        assert found in (outcome.context_injection or "")
        assert bool(outcome.context_injection) == bool(found)


async def test_no_tests(tmp_path: Path) -> None:
    """A file without tests of its own causes no message and starts no program."""
    registry = HookRegistry()
    TestFeedback.from_config({"cwd": str(tmp_path), "command": ["no-such-runner"]}).register(registry)
    for name in ("app.py", "od*d.py"):
        (tmp_path / name).write_text("")
        outcome = await registry.emit("tool:post", {"tool_name": "Write", "tool_input": {"file_path": name}})
        assert (outcome.action, outcome.user_message) == ("continue", None)
