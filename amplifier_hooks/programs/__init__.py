"""Questions and settings of Claude Code, Codex and Gemini CLI come in; answers in their spelling go out."""

from typing import TYPE_CHECKING

from amplifier_hooks import load_on_use

if TYPE_CHECKING:
    from amplifier_hooks.programs.dialects import CLAUDE_CODE, CODEX, GEMINI
    from amplifier_hooks.programs.import_settings import read_settings

__all__ = ["CLAUDE_CODE", "CODEX", "GEMINI", "read_settings"]

__getattr__ = load_on_use(
    __name__, {"dialects": ("CLAUDE_CODE", "CODEX", "GEMINI"), "import_settings": ("read_settings",)}
)
