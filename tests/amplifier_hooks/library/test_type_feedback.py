"""The type checker hook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amplifier_hooks import HookRegistry
from amplifier_hooks.library import TypeFeedback

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.rule("LIB-6")
async def test_findings(tmp_path: Path) -> None:
    """Findings of mypy in the written file are injected, and none of the files that it imports."""
    registry = HookRegistry()
    TypeFeedback.from_config({"cwd": str(tmp_path)}).register(registry)
    (tmp_path / "other.py").write_text("x: int = 'two'\n")
    for text, findings in (("import other\ny: int = 'one'\n", 1), ("import other\ny = other.x\n", 0)):
        (tmp_path / "app.py").write_text(text)
        given = {"tool_name": "Edit", "tool_input": {"file_path": str(tmp_path / "app.py")}}
        outcome = await registry.emit("tool:post", given)
        assert (outcome.context_injection or "").count("error:") == findings
        assert "other.py" not in (outcome.context_injection or "")
