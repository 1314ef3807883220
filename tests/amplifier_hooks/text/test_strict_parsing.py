"""JSON that two readers could understand differently is refused."""

from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from amplifier_hooks.text.strict_parsing import error_sentence, load_json, suggestion


@pytest.mark.rule("DEF-1")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "the key 'b' stands twice in one object"),
        ('{"a": NaN}', "NaN is no JSON number"),
        ("[-Infinity]", "-Infinity is no JSON number"),
        ("{} {}", "Extra data"),
        ("\ufeff{}", "BOM"),
        ("1e400", "1e400 does not read back"),
        ("[1e-400]", "does not read back"),
        ("1e-99999999999999999999999", "does not read back"),
        ("1.00000000000000001", "does not read back"),
    ],
)
def test_json_that_is_ambiguous(text: str, problem: str) -> None:
    """A key twice, a constant, a mark before, a character after, and a number that changes are refused."""
    for given in (text, text.encode()):
        with pytest.raises(ValueError, match=problem):
            load_json(given)


@pytest.mark.rule("DEF-1")
@pytest.mark.parametrize(
    "text",
    ["0.1", "0.10000000000000001", "1e21", "-0.0", "1.50", "0.1000000000000000055511151231257827021181583404541015625"],
)
def test_numbers_that_read_back(text: str) -> None:
    """A float is read in its shortest form, with 17 digits, and exactly."""
    assert load_json(text) == float(text)


@pytest.mark.rule("DEF-1")
def test_bytes_are_utf_8() -> None:
    """Bytes in another encoding are refused, although `json.loads` would accept them."""
    with pytest.raises(ValueError, match="utf-8"):
        load_json('{"a": 1}'.encode("utf-16"))


@pytest.mark.rule("DIA-11")
def test_json_that_is_too_deep() -> None:
    """JSON that is nested deeper than a limit is refused, whatever else is in it; brackets in texts do not count."""
    assert load_json("[" * 3 + "]" * 3, deepest=3) == [[[]]]
    assert load_json(b'["[[[", {"a\\"[": 1}]', deepest=2) == ["[[[", {'a"[': 1}]
    for text in ("[" * 4 + "]" * 4, b'{"a": [{"b": [1]}]}', "[" * 1_000_000):
        with pytest.raises(ValueError, match="nested deeper than 3"):
            load_json(text, deepest=3)


@pytest.mark.rule("DIA-11")
def test_a_text_without_an_end_is_read_once() -> None:
    """Quotes behind backslashes in a text that never ends begin no search of their own, so a megabyte takes no time."""
    with pytest.raises(ValueError, match="Unterminated"):
        load_json("[1, [" + '"' + '\\"[' * 500_000, deepest=64)


@pytest.mark.rule("DIA-11")
@pytest.mark.parametrize(
    ("text", "deepest"),
    [("[[], [], [], []]", 2), ("[[], [[[]]]]", 4), ("[[[[], [[]]]]]", 5), ('{"a": {}, "b": [{}]}', 3), ("[]", 1)],
)
def test_brackets_that_close(text: str, deepest: int) -> None:
    """A bracket that closes ends its own level and no other."""
    load_json(text, deepest=deepest)
    with pytest.raises(ValueError, match="nested deeper"):
        load_json(text, deepest=deepest - 1)


class Cup(BaseModel):
    """A cup."""

    model_config = ConfigDict(extra="forbid")

    sugar: int = Field(default=0, description="lumps of sugar")
    size: Literal["small", "large"]

    @field_validator("sugar")
    @classmethod
    def _check_sugar(cls, given: int) -> int:
        if given > 9:
            raise ValueError("is too much; take 9 at most")
        return given


class Order(BaseModel):
    """An order of cups by name."""

    cups: dict[str, tuple[Cup, ...]] = Field(description="names and their cups")


@pytest.mark.rule("PKG-3")
@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({}, "'cups' is missing; add cups: names and their cups"),
        ({"cups": "s3cret"}, "'cups': write a mapping: {name: value}"),
        ({"cups": {"ann": "s3cret"}}, "'cups.ann': write a list: [one, another]"),
        ({"cups": {"ann": [{}]}}, "'cups.ann.0.size' is missing; add it"),
        ({"cups": {"ann": [{"size": "big"}]}}, "'cups.ann.0.size' is 'big'; write 'small' or 'large'"),
        ({"cups": {"ann": [{"size": "small", "suger": 1}]}}, "unknown key 'cups.ann.0.suger'; did you mean 'sugar'?"),
        ({"cups": {"ann": [{"size": "small", "milk": 1}]}}, "unknown key 'cups.ann.0.milk'; known are sugar, size"),
        ({"cups": {"ann": [{"size": "small", "sugar": 10}]}}, "'cups.ann.0.sugar' is too much; take 9 at most"),
        ({"cups": {"ann": [{"size": "small", "sugar": "s3cret"}]}}, "'cups.ann.0.sugar': input should be a valid int"),
    ],
)
def test_a_mistake_is_a_sentence(data: object, sentence: str) -> None:
    """The sentence names the place and the remedy, and repeats no value that could be a secret."""
    with pytest.raises(ValidationError) as caught:
        Order.model_validate(data)
    (said,) = (error_sentence(error, Order) for error in caught.value.errors())
    assert said.startswith(sentence)
    assert "s3cret" not in said


@pytest.mark.rule("PKG-3")
def test_an_unknown_word_has_a_suggestion() -> None:
    """The nearest word is suggested, or else all known words are named."""
    assert suggestion("dney", ["deny", "allow"]) == "did you mean 'deny'?"
    assert suggestion("x", ["deny", "allow"]) == "known are deny, allow"
    assert suggestion("x", []) == "known are none"
