"""Questions and settings of Claude Code, Codex and Gemini CLI come in; answers in their spelling go out."""
