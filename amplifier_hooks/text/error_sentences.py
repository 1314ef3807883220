"""Mistakes in data: an unknown word or one of pydantic's errors comes in; a sentence with the remedy goes out.

A sentence repeats a value only if the value had to be one of a few words: any other value may be a secret.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pydantic import BaseModel
    from pydantic_core import ErrorDetails


LONGEST_PLACE: Final = 80

REMEDIES: Final = {
    "tuple_type": "write a list: [one, another]",
    "frozen_set_type": "write a list: [one, another]",
    "dict_type": "write a mapping: {name: value}",
    "model_type": "write a mapping: {name: value}",
}
"""Remedies for values of the wrong type, in the words of a file and not in those of Python."""

VERBS: Final = frozenset({"cannot", "has", "is", "names", "needs"})
"""First words of a validator's message whose subject is the key."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return "did you mean …?" with the known word that is nearest, or else all known words."""
    names = list(known)
    near = get_close_matches(word, names, 1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names) or 'none'}"


def error_sentence(error: ErrorDetails, model: type[BaseModel]) -> str:
    """Return one of pydantic's errors about a model as a sentence. It uses the descriptions of the model's fields."""
    *around, last = error["loc"] or ("",)
    place = ".".join(map(str, error["loc"]))[:LONGEST_PLACE]
    fields, context = _model_at(model, around).model_fields, error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            return f"unknown key {place!r}; {suggestion(str(last), fields)}"
        case "missing":
            described = last in fields and fields[str(last)].description
            return f"{place!r} is missing; add {f'{last}: {described}' if described else 'it'}"
        case "literal_error":
            return f"{place!r} is {error['input']!r:.40}; write {context['expected']}"
        case "value_error":
            said = str(context["error"])
        case other:
            said = REMEDIES.get(other) or f"{error['msg'][:1].lower()}{error['msg'][1:]}"
    if not place:
        return said
    return f"{place!r} {said}" if said.partition(" ")[0] in VERBS else f"{place!r}: {said}"


def _model_at(model: type[BaseModel], place: Iterable[int | str]) -> type[BaseModel]:
    """Return the model at a place within another, looking through lists and mappings."""
    for part in place:
        if part in model.model_fields:
            model = next(_models(model.model_fields[str(part)].annotation), model)
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a type is made of."""
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
