"""Requests of programs and people come in over HTTP; answers of hooks, lists and pages go out.

Programs send their questions to `program_api`. Every other client has a token and passes, in this order, `edge`
(sockets, host check, authentication, rate limit) and the routes of `hooks`, `runs`, `approval_routes` and `health`.
`build_api` puts all of it together. Extra `server`; the command is `amplifier-hooks serve`.
"""

from typing import TYPE_CHECKING

from amplifier_hooks import load_on_use

if TYPE_CHECKING:
    from amplifier_hooks.server.build_api import ManagedApi, open_api

__all__ = ["ManagedApi", "open_api"]

__getattr__ = load_on_use(__name__, {"build_api": ("ManagedApi", "open_api")})
