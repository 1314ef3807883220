"""JSON-RPC 2.0, one message a frame: strict reading, plain writing. Pure.

    text ── read ──▶ GatewayCall · Note · Result · Failure ── write_frame ──▶ text

`read` refuses a text that two readers could understand differently: duplicate keys, NaN, lone surrogates, numbers
too large to print, and nesting beyond any message of ours. A frame holds one message; the profile has no batches.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeGuard

from attrs import field, frozen

from amplifier_hooks.text.strict_parsing import load_json

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_MESSAGE: Final = 64 * 1024
"""Bytes of one incoming message."""
DEEPEST: Final = 64
LONGEST_ID: Final = 256

ErrorCode = Literal[-32700, -32600, -32601, -32602, -32603, -32000, -32001, -32002, -32003, -32029]
NAMES: Final[Mapping[ErrorCode, str]] = {
    -32700: "Parse error",
    -32600: "Invalid request",
    -32601: "Method not found",
    -32602: "Invalid params",
    -32603: "Internal error",
    -32000: "Authentication required",
    -32001: "Not allowed",
    -32002: "Resource not found",
    -32003: "Store unavailable",
    -32029: "Too many messages",
}
"""JSON-RPC defines the codes up to -32603, the Agent Client Protocol -32000 and -32002."""

Id = str | int


@frozen
class GatewayCall:
    """A request: it expects an answer with its id."""

    id: Id
    method: str
    params: Mapping[str, Any] = field(factory=dict)


@frozen
class Note:
    """A notification: it gets no answer."""

    method: str
    params: Mapping[str, Any] = field(factory=dict)


@frozen
class Result:
    """The answer to a request."""

    id: Id
    value: Any = None


@frozen
class Failure:
    """An error response. It has no `id` if the request's id could not be read."""

    id: Id | None
    code: int
    reason: str
    data: Mapping[str, Any] | None = None


Frame = GatewayCall | Note | Result | Failure


class Malformed(ValueError):
    """A frame that is no message. The gateway answers it with an error; the connection stays open."""

    def __init__(self, code: ErrorCode, reason: str, id: Id | None = None) -> None:  # noqa: A002  # its name on the wire
        self.code = code
        self.reason = reason
        self.id = id
        super().__init__(reason)

    @property
    def failure(self) -> Failure:
        """The error response to send."""
        return Failure(self.id, self.code, f"{NAMES[self.code]}: {self.reason}")


def write_frame(frame: Frame) -> str:
    """Return a message as text: compact, and ASCII only, so that nothing in it can be cut or read in two ways."""
    return encode_json(_fields(frame))


def read(text: str) -> Frame:
    """Return the message in a frame. Raises `Malformed`."""
    message = parse_json(text)
    if not isinstance(message, dict):
        what = "batches are not supported" if isinstance(message, list) else "a message is a JSON object"
        raise Malformed(-32600, what)
    id_ = message.get("id")
    known = id_ if _is_id(id_) else None
    if message.get("jsonrpc") != "2.0":
        raise Malformed(-32600, 'the member "jsonrpc" has to be "2.0"', known)
    if "id" in message and known is None and "error" not in message:
        raise Malformed(-32600, f'the member "id" has to be an integer, or a text of at most {LONGEST_ID} characters')
    if "method" in message:
        return _read_call(message, known)
    if "result" in message and "error" not in message and known is not None:
        return Result(known, message["result"])
    if "error" in message and "result" not in message:
        return _read_failure(message["error"], known)
    raise Malformed(-32600, "a message has a method, or a result, or an error", known)


encode_json: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
"""Return a value as compact JSON."""


def _fields(frame: Frame) -> dict[str, Any]:
    match frame:
        case GatewayCall(id_, method, params):
            return {"jsonrpc": "2.0", "id": id_, "method": method, "params": dict(params)}
        case Note(method, params):
            return {"jsonrpc": "2.0", "method": method, "params": dict(params)}
        case Result(id_, value):
            return {"jsonrpc": "2.0", "id": id_, "result": value}
        case Failure(id_, code, reason, data):
            error = {"code": code, "message": reason} | ({} if data is None else {"data": dict(data)})
            return {"jsonrpc": "2.0", "id": id_, "error": error}


def _read_call(message: dict[str, Any], known: Id | None) -> Frame:
    method, params = message["method"], message.get("params")
    if not isinstance(method, str):
        raise Malformed(-32600, 'the member "method" has to be a text', known)
    if "result" in message or "error" in message:
        raise Malformed(-32600, "a message has a method, or a result, or an error", known)
    if params is not None and not isinstance(params, dict):
        raise Malformed(-32602, "params are an object", known)
    return Note(method, params or {}) if known is None else GatewayCall(known, method, params or {})


def _read_failure(error: object, known: Id | None) -> Failure:
    if not isinstance(error, dict):
        raise Malformed(-32600, 'the member "error" has to be an object')
    code, reason, data = error.get("code"), error.get("message"), error.get("data")
    if type(code) is not int or not isinstance(reason, str):
        raise Malformed(-32600, "an error has a code and a message")
    return Failure(known, code, reason, data if isinstance(data, dict) else None)


def _is_id(value: object) -> TypeGuard[Id]:
    return type(value) is int or (isinstance(value, str) and len(value) <= LONGEST_ID)


# -- JSON that can be read in one way only -----------------------------------------------------------------------------

HALF: Final = re.compile("[\ud800-\udfff]|\\\\u[dD][89a-fA-F]")


def parse_json(text: str) -> object:
    """Return the value of a JSON text that can be read in one way only. Raises `Malformed` for any other."""
    try:
        value: object = load_json(text, deepest=DEEPEST)
        if HALF.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError:
        raise Malformed(-32700, "half of a character") from None
    except ValueError as problem:
        raise Malformed(-32700, str(problem)) from None
    return value
