"""The session package carries out turns, model calls and tool calls: it checks, decides and records each of them."""
