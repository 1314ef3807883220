import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks.text.escape import invisible
from approval_backends.card.edit_arguments import LARGEST, BadArguments, edit_request, editable_text, read_arguments
from approval_backends.testing import a_request

values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v, max_size=3))


@pytest.mark.rule("BCK-3", "APR-7")
@given(st.dictionaries(st.text(), values, max_size=3))
def test_editable(arguments: dict[str, Any]) -> None:
    """The text holds the arguments exactly, and no invisible character."""
    text = editable_text(arguments)
    assert text is not None
    assert json.loads(text) == arguments
    assert invisible(text) == frozenset()


@pytest.mark.rule("APR-7")
def test_too_large_to_edit() -> None:
    """Arguments too large to be sent back are not offered for editing."""
    assert editable_text({"a": "x" * LARGEST}) is None
    with pytest.raises(BadArguments, match="at most 49,152"):
        read_arguments(json.dumps({"a": "x" * LARGEST}))


@pytest.mark.rule("APR-7")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Line 1, column 1: Expecting value."),
        ('{"a": 1,\n}', "Line "),
        ("[1]", "Arguments are an object"),
        ('{"a": 1, "a": 2}', '"a" is there twice.'),
        ('{"a": {"b": 1, "b": 1}}', '"b" is there twice.'),
        ('{"a": NaN}', "NaN is no number"),
        ('{"a": -Infinity}', "-Infinity is no number"),
        ('{"a": 1e999}', "$.a"),
        ('{"a": ' + "[" * 20_000, "nested"),
        ('{"a": ' + "[" * 100 + "]" * 100 + "}", "."),
        ('{"a": ' + "9" * 5_000 + "}", "too long"),
    ],
)
def test_bad_arguments(text: str, said: str) -> None:
    """A text that two readers could understand differently is no arguments; the sentence says where it is wrong."""
    with pytest.raises(BadArguments, match=r"\S") as refused:
        read_arguments(text)
    assert said in str(refused.value)


@pytest.mark.rule("APR-7", "BCK-3")
def test_edited() -> None:
    """The digest is that of the action with the edited arguments, and the lines show the differences."""
    request = a_request(arguments={"path": "a", "content": "x\ny", "n": 1})
    change = edit_request(request, '{"n": true, "path": "a", "content": "x\\nz"}')
    assert [(line.kind, line.text) for line in change.lines if line.kind != "same"] == [
        ("del", "    y"),
        ("del", '"n": 1'),
        ("add", "    z"),
        ("add", '"n": true'),
    ]
    same = a_request(arguments={"path": "a", "content": "x\nz", "n": True})
    assert change.digest == same.digest != request.digest


@pytest.mark.rule("APR-7")
def test_nothing_is_changed() -> None:
    """Equal arguments, however they are written, are no edit."""
    request = a_request(arguments={"b": 1, "a": "ü"})
    with pytest.raises(BadArguments, match="Nothing is changed yet"):
        edit_request(request, '{ "a": "\\u00fc",\n "b": 1 }')
