"""JSON-RPC frames come in; typed messages of the Agent Client Protocol, and ours beside them, go out.

Server, page and client share them; `specs/wire.md` has every message with an example.
"""

from approval_backends.gateway.wire.frames import (
    MAX_MESSAGE,
    Call,
    ErrorCode,
    Failure,
    Frame,
    Id,
    Malformed,
    Note,
    Result,
    encoded,
    parsed,
    read,
    written,
)
from approval_backends.gateway.wire.messages import ACP_VERSION, META, OURS, accept, fields, told

__all__ = [
    "ACP_VERSION",
    "MAX_MESSAGE",
    "META",
    "OURS",
    "Call",
    "ErrorCode",
    "Failure",
    "Frame",
    "Id",
    "Malformed",
    "Note",
    "Result",
    "accept",
    "encoded",
    "fields",
    "parsed",
    "read",
    "told",
    "written",
]
