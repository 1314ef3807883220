"""Questions and settings of Claude Code, Codex and Gemini CLI come in; answers in their spelling go out."""

from typing import TYPE_CHECKING

from amplifier_hooks.front_door import load_on_use

if TYPE_CHECKING:
    from amplifier_hooks.programs.claude_code import CLAUDE_CODE
    from amplifier_hooks.programs.codex import CODEX
    from amplifier_hooks.programs.gemini import GEMINI
    from amplifier_hooks.programs.import_settings import read_settings

__all__ = ["CLAUDE_CODE", "CODEX", "GEMINI", "read_settings"]

__getattr__ = load_on_use(
    __name__,
    {
        "claude_code": ("CLAUDE_CODE",),
        "codex": ("CODEX",),
        "gemini": ("GEMINI",),
        "import_settings": ("read_settings",),
    },
)
