"""Mistakes in data become sentences that name the key and the remedy."""

from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from amplifier_hooks.text.error_sentences import error_sentence, suggestion


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
