"""JSON-RPC frames come in; typed messages of the Agent Client Protocol, and ours beside them, go out.

Server, page and client share them; `specs/wire.md` has every message with an example.
"""
