"""Turns, model calls and tool calls come in; each is checked, decided and recorded, and its outcome goes out."""
