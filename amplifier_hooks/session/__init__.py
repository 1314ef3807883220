"""Turns, model calls and tool calls come in; checked, answered and recorded ones go out."""
