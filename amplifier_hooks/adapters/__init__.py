"""Tools, models and prompts of other agent SDKs come in; the same calls, past a session's hooks, go out.

Each adapter but `asgi` is an extra with the name of its SDK, and the one file that imports it. Adapters do not import
each other. The limits of each SDK are in docs/adapters.md.
"""
