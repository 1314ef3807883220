"""What goes over the wire: JSON-RPC 2.0 with the names of the Agent Client Protocol, and ours beside them. Pure.

    frames      one message a frame, read strictly
    messages    what the messages hold
    records     requests, decisions and grants as messages

Server, page and client share it; `specs/wire.md` has every message with an example.
"""

from approval_backends.wire.frames import (
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
from approval_backends.wire.messages import ACP_VERSION, META, OURS, accept, fields, told

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
