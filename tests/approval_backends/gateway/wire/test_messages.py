import json
import re
from pathlib import Path
from typing import Any

import pytest

from approval_backends.gateway.wire.frames import (
    Failure,
    Frame,
    GatewayCall,
    Malformed,
    Note,
    Result,
    read,
    write_frame,
)
from approval_backends.gateway.wire.messages import (
    CALLS,
    NOTES,
    OURS,
    Authenticate,
    Decide,
    HistoryWanted,
    Initialize,
    PermissionAnswer,
    WireMessage,
    accept,
    fields,
)

PAGE = Path(__file__).parents[4] / "specs" / "wire.md"
EXAMPLES = re.findall(r"^```json\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

KNOWN: dict[str, tuple[type[WireMessage], type[WireMessage]]] = {
    **CALLS,
    "initialize": (Initialize, WireMessage),
    "authenticate": (Authenticate, WireMessage),
    "session/request_permission": (WireMessage, PermissionAnswer),
}


def exchanges() -> list[tuple[type[WireMessage], Any]]:
    """Return every example of the specification, with its model."""
    asked: dict[str | int, str] = {}
    found: list[tuple[type[WireMessage], Any]] = []
    for text in EXAMPLES:
        frame: Frame = read(text)
        match frame:
            case GatewayCall(id_, method, params):
                asked[id_] = method
                found.append((KNOWN[method][0], params))
            case Note(method, params):
                found.append((NOTES[method], params))
            case Result(id_, value):
                found.append((KNOWN[asked[id_]][1], value))
            case Failure():
                assert read(write_frame(frame)) == frame
    return found


@pytest.mark.rule("BCK-2", "WIR-2", "WIR-4", "WIR-5", "WIR-6", "WIR-7", "WIR-8", "WIR-9", "WIR-10")
def test_examples() -> None:
    """Each example of the specification is a message as it is sent, with no field more and none less."""
    found = exchanges()
    assert {model for model, _ in found} > {model for pair in CALLS.values() for model in pair} | {*NOTES.values()} - {
        WireMessage
    }
    for model, example in found:
        message = accept(model, example)
        if model is not WireMessage and model is not Initialize:
            assert fields(message) == example


@pytest.mark.rule("WIR-4")
def test_names() -> None:
    """The names of our additions begin with an underscore and our name, as the protocol wants of extensions."""
    assert all(name.startswith(OURS) for name in [*CALLS, *NOTES])


GOOD = {"requestId": "r", "digest": "d", "optionId": "o", "decisionId": "12345678"}


@pytest.mark.rule("WIR-3", "WIR-6")
@pytest.mark.parametrize(
    ("model", "params", "said"),
    [
        (Decide, {}, "requestId: Field required"),
        (Decide, {**GOOD, "digest": ""}, "digest: "),
        (Decide, {**GOOD, "digest": 7}, "digest: "),
        (Decide, {**GOOD, "decisionId": "short"}, "decisionId: "),
        (Decide, {**GOOD, "decisionId": "x" * 129}, "decisionId: "),
        (Decide, {**GOOD, "message": "x" * 8_193}, "message: "),
        (Decide, {**GOOD, "arguments": {"a": 1}}, "arguments: "),
        (HistoryWanted, {"limit": "100"}, "limit: "),
        (HistoryWanted, {"limit": True}, "limit: "),
        (HistoryWanted, {"limit": 201}, "limit: "),
        (Authenticate, {"methodId": "token"}, "_meta: Field required"),
        (Authenticate, {"methodId": "password", "_meta": {}}, "methodId: "),
        (PermissionAnswer, None, "params: "),
        (PermissionAnswer, {}, "outcome: Field required"),
        (PermissionAnswer, {"outcome": {"outcome": "approved", "optionId": "o"}}, "outcome: "),
        (PermissionAnswer, {"outcome": {"outcome": "selected"}}, "outcome.selected.optionId: Field required"),
        (PermissionAnswer, {"outcome": "selected"}, "outcome: "),
    ],
)
def test_wrong_fields(model: type[WireMessage], params: Any, said: str) -> None:
    """A field that is missing or of another type is named; types are taken as they are."""
    with pytest.raises(Malformed) as refused:
        accept(model, params)
    assert refused.value.code == -32602
    assert refused.value.reason.startswith(said)


@pytest.mark.rule("WIR-3")
def test_secrets_stay_out_of_errors() -> None:
    """No error repeats the message, and no message shows its token."""
    canary = "canary-" * 200
    with pytest.raises(Malformed) as refused:
        accept(Authenticate, {"methodId": "token", "_meta": {"amplifier-hooks": {"token": canary}}})
    assert "canary" not in refused.value.reason
    good = accept(Authenticate, {"methodId": "token", "_meta": {"amplifier-hooks": {"token": "canary"}}})
    assert "canary" not in repr(good)


@pytest.mark.rule("WIR-2")
def test_plain_client_says_nothing_of_ours() -> None:
    """Only a client that says so gets our queue; other capabilities do not matter."""
    plain = {"protocolVersion": 1, "clientCapabilities": {"fs": {}, "_meta": {"other": 1}}, "clientInfo": 7}
    assert not accept(Initialize, plain).wants_queue
    assert not accept(Initialize, {"protocolVersion": "2024-11-05"}).wants_queue
    ours = {"protocolVersion": 1, "clientCapabilities": {"_meta": {"amplifier-hooks": {"queue": True}}}}
    assert accept(Initialize, ours).wants_queue


@pytest.mark.rule("WIR-4")
def test_unknown_fields_are_left_alone() -> None:
    """A field that a newer gateway adds does not disturb an older client."""
    example = json.loads(EXAMPLES[-1])["result"]
    model = CALLS[f"{OURS}ping"][1]
    assert accept(model, {**example, "later": 1}) == accept(model, example)
