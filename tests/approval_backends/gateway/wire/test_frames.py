import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approval_backends.gateway.wire.frames import (
    DEEPEST,
    Failure,
    Frame,
    GatewayCall,
    Malformed,
    Note,
    Result,
    read,
    write_frame,
)

texts = st.text(max_size=12)
ids = st.integers() | texts
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
params = st.dictionaries(texts, values, max_size=3)
frames: st.SearchStrategy[Frame] = st.one_of(
    st.builds(GatewayCall, ids, texts, params),
    st.builds(Note, texts, params),
    st.builds(Result, ids, values),
    st.builds(Failure, st.none() | ids, st.integers(), texts, st.none() | params),
)


@pytest.mark.rule("BCK-2", "WIR-3")
@given(frames)
def test_round_trip(frame: Frame) -> None:
    """Every written message reads back as it was, and is ASCII on its way."""
    text = write_frame(frame)
    assert text.isascii()
    assert read(text) == frame


@pytest.mark.rule("WIR-3")
@given(st.text() | values.map(json.dumps) | frames.map(lambda frame: write_frame(frame)[:-1]))
def test_anything_else(text: str) -> None:
    """Any text is a message or is refused as malformed; nothing else can come of it."""
    with suppress(Malformed):
        assert isinstance(read(text), Frame)


HEAD = '{"jsonrpc":"2.0","id":"7",'


@pytest.mark.rule("WIR-3")
@pytest.mark.fault("F-WS-08")
@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("[" * 30_000, -32700, "nested deeper than 64"),
        (HEAD + '"method":"m","params":{"a":' + "[" * 65 + "]" * 65 + "}}", -32700, "nested deeper than 64"),
        (HEAD + '"method":"m","method":"n"}', -32700, "the key 'method' stands twice"),
        (HEAD + '"method":"m","params":{"a":NaN}}', -32700, "NaN is no JSON number"),
        (HEAD + '"method":"m","params":{"a":-Infinity}}', -32700, "Infinity is no JSON number"),
        (HEAD + '"method":"m","params":{"a":1e999}}', -32700, "1e999 does not read back"),
        (HEAD + '"method":"m","params":{"a":' + "9" * 5_000 + "}}", -32700, "4300 digits"),
        (HEAD + '"method":"m","params":{"a":"\\ud800"}}', -32700, "half of a character"),
        (HEAD + '"method":"m","params":{"a":[{"\\udc00":1}]}}', -32700, "half of a character"),
        (HEAD + '"method":"m"', -32700, "Expecting"),
        ("", -32700, "Expecting"),
        ("[]", -32600, "batches are not supported"),
        ('"text"', -32600, "a message is a JSON object"),
        ('{"id":"7","method":"m"}', -32600, "jsonrpc"),
        ('{"jsonrpc":"2.0","id":null,"method":"m"}', -32600, '"id"'),
        ('{"jsonrpc":"2.0","id":1.5,"method":"m"}', -32600, '"id"'),
        ('{"jsonrpc":"2.0","id":true,"method":"m"}', -32600, '"id"'),
        ('{"jsonrpc":"2.0","id":"' + "i" * 300 + '","method":"m"}', -32600, '"id"'),
        (HEAD + '"method":7}', -32600, '"method"'),
        (HEAD + '"method":"m","params":[1]}', -32602, "params are an object"),
        (HEAD + '"method":"m","result":1}', -32600, "a method, or a result, or an error"),
        (HEAD + '"result":1,"error":{"code":1,"message":""}}', -32600, "a method, or a result, or an error"),
        (HEAD + '"result":1,"error":null}', -32600, "a method, or a result, or an error"),
        (HEAD + '"error":"no"}', -32600, '"error"'),
        (HEAD + '"error":{"code":true,"message":""}}', -32600, "a code and a message"),
        ('{"jsonrpc":"2.0"}', -32600, "a method, or a result, or an error"),
    ],
)
def test_malformed(text: str, code: int, said: str) -> None:
    """A text that two readers could understand differently is refused, and the reason names the flaw."""
    with pytest.raises(Malformed) as refused:
        read(text)
    assert refused.value.code == code
    assert said in refused.value.failure.reason


@pytest.mark.rule("WIR-3")
def test_depth_is_no_matter_of_text() -> None:
    """Brackets inside a text are no nesting, and a text of the greatest depth is read."""
    call = GatewayCall("1", "m", {"text": '["{' * 500 + '\\"'})
    assert read(write_frame(call)) == call
    deep: Any = 0
    for _ in range(DEEPEST - 2):
        deep = [deep]
    assert read(write_frame(GatewayCall("1", "m", {"a": deep}))) == GatewayCall("1", "m", {"a": deep})


@pytest.mark.rule("WIR-3")
def test_refusal_names_its_request() -> None:
    """A refusal carries the id of the request, if that much could be read."""
    with pytest.raises(Malformed) as refused:
        read(HEAD + '"method":"m","params":[]}')
    assert read(write_frame(refused.value.failure)) == Failure("7", -32602, "Invalid params: params are an object")
    with pytest.raises(Malformed) as refused:
        read("{")
    assert refused.value.failure.id is None
