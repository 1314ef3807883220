"""Tool calls, model calls and prompts of other agent SDKs come in; the calls go out as a session's hooks left them.

Each adapter except `asgi` is an extra with the name of its SDK, and the only file that imports that SDK. Adapters do
not import each other. The limits of each SDK are in docs/adapters.md.
"""
