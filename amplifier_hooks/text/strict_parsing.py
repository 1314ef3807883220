"""JSON and YAML that others wrote come in; values go out, or sentences that name a mistake and its remedy.

A text that two readers could understand differently is refused.

`load_json` reads messages and records. `parse_yaml` and `parse_json` read files, and give the line of every part, so
that an error can name the line.

In YAML `yes`, `no`, `on` and `off` are texts, and so are dates and numbers that begin with a zero: the type of a value
should not depend on the YAML version that its author has in mind. Duplicate keys, aliases and tags are refused. In JSON
`NaN`, a duplicate key and a character after the end are refused.

`error_sentence` repeats a value only if the value had to be one of a few words: any other value may be a secret.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NoReturn, get_args

import msgspec

from amplifier_hooks.errors import HookError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pydantic import BaseModel
    from pydantic_core import ErrorDetails


BRACKETS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
"""A text, which ends with the whole if it has no end of its own, or a bracket."""


def load_json(text: str | bytes, *, deepest: int | None = None, **readers: Any) -> Any:
    """Return the value of JSON in UTF-8; `readers` are further options of `json.loads`.

    Raises `ValueError` and `RecursionError`. A key that stands twice in an object is an error, and so are a byte-order
    mark, characters after the value, `NaN`, and a number that does not read back. JSON that is nested deeper than
    `deepest` is refused before it is parsed.
    """
    if deepest is not None:
        text = text.encode() if isinstance(text, str) else text
        if text.count(b"[") + text.count(b"{") > deepest and depth(text) > deepest:
            raise ValueError(f"it is nested deeper than {deepest}")
    if isinstance(text, bytes):
        text = text.decode("utf-8")  # `json.loads` would accept UTF-16, and a byte-order mark
    options = {"parse_float": _exact_float, **readers}
    return json.loads(text, object_pairs_hook=_unique_object, parse_constant=refuse_constant, **options)


def depth(text: bytes) -> int:
    """Return the depth of nested brackets in a text, in linear time, JSON or not."""
    now = most = 0
    for token in BRACKETS.finditer(text):
        first = token[0][:1]
        if first in b"[{":
            now += 1
            most = max(most, now)
        elif first in b"]}":
            now -= 1
    return most


def refuse_constant(word: str) -> NoReturn:
    """Raise `ValueError`: `NaN` and `Infinity` are no JSON."""
    raise ValueError(f"{word} is no JSON number; write a finite one")


def _exact_float(digits: str) -> float:
    """Return a number. Raises `ValueError` unless the digits are a float's: the shortest, the first 17, or all."""
    number = float(digits)
    if repr(number) == digits:
        return number
    with suppress(InvalidOperation):  # the exponent is too large even for a decimal
        if isfinite(number) and Decimal(digits) in (Decimal(repr(number)), Decimal(f"{number:.16e}"), Decimal(number)):
            return number
    raise ValueError(f"the number {digits:.40} does not read back; write one that a 64-bit float holds")


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f"the key {name!r:.60} stands twice in one object; give each key once")
        fields[name] = value
    return fields


# -- files, with their lines -------------------------------------------------------------------------------------------

KeyPath = tuple[str | int, ...]
"""Position of a part in a file: keys of objects and indexes of lists."""

STRING: Final = "tag:yaml.org,2002:str"
DIGITS: Final = "-0123456789"
SCALARS: Final[tuple[tuple[str, re.Pattern[str], str, Callable[[str], int | float | bool | None]], ...]] = (
    ("tag:yaml.org,2002:null", re.compile(r"~|null|"), "~n", lambda _: None),
    ("tag:yaml.org,2002:bool", re.compile(r"true|false"), "tf", "true".__eq__),
    ("tag:yaml.org,2002:int", re.compile(r"-?(?:0|[1-9][0-9]*)"), DIGITS, int),
    ("tag:yaml.org,2002:float", re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+(?:[eE][-+]?[0-9]+)?"), DIGITS, float),
)
"""Tag, form, first characters and meaning of each kind of plain value."""
LONGEST_NUMBER: Final = 300

TOO_DEEP: Final = "it is nested too deeply"


class NotReadable(HookError, ValueError):
    """A text that is not YAML or not JSON, or that is ambiguous."""

    def __init__(self, line: int, sentence: str) -> None:
        self.line = line
        self.sentence = sentence
        super().__init__(f"line {line}: {sentence}")


class ParsedDocument(msgspec.Struct, frozen=True):
    """The value of a file, with the line of each part. The value of an empty file is None."""

    value: Any
    lines: dict[KeyPath, int] = msgspec.field(default_factory=lambda: {(): 1})

    def line(self, path: KeyPath) -> int:
        """Return the line of a part or, if the part is missing, of the part that would contain it."""
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path, 1)


@cache
def yaml_library() -> Any:
    """Return the module `yaml`. Raises `MissingExtra`."""
    return MissingExtra.load("yaml", "reading YAML", "yaml")


@cache
def _loader() -> Any:
    """Return a loader of YAML without implicit types that surprise authors."""
    yaml = yaml_library()

    base: Any = yaml.SafeLoader

    class Loader(base):  # type: ignore[misc]  # it is there with the extra only
        yaml_implicit_resolvers: Any = {}  # noqa: RUF012  # the base's; replaced, not changed

        def compose_node(self, parent: Any, index: Any) -> Any:
            """Return the next node. Refuses an alias, because a few lines of aliases make a file of any size."""
            if self.check_event(yaml.AliasEvent):
                raise yaml.MarkedYAMLError(problem="an alias", problem_mark=self.peek_event().start_mark)
            return super().compose_node(parent, index)

    for tag, pattern, first, _ in SCALARS:
        Loader.add_implicit_resolver(tag, re.compile(f"(?:{pattern.pattern})\\Z"), [*first, ""])
    return Loader


def parse_yaml(data: bytes) -> ParsedDocument:
    """Return the value of YAML, with its lines. Raises `NotReadable`, `MissingExtra`."""
    text = _text(data)
    node = _compose(text)
    if node is None:
        return ParsedDocument(None)
    lines: dict[KeyPath, int] = {}
    try:
        return ParsedDocument(_value(node, (), lines), lines)
    except RecursionError:
        raise NotReadable(1, TOO_DEEP) from None


def parse_json(data: bytes) -> ParsedDocument:
    """Return the value of JSON, with its lines. Raises `NotReadable`."""
    text = _text(data)
    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except json.JSONDecodeError as problem:
        raise NotReadable(problem.lineno, f"this is not JSON: {problem.msg[:1].lower()}{problem.msg[1:]}") from None
    except RecursionError:
        raise NotReadable(1, TOO_DEEP) from None
    except ValueError as problem:
        raise NotReadable(1, f"this is not JSON: {problem}") from None
    # All JSON is YAML except its tabs, which stand only between values, so the YAML nodes give the lines.
    node = _compose(text.replace("\t", " "))
    lines: dict[KeyPath, int] = {}
    _mark(node, (), lines)
    return ParsedDocument(value, lines)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data[: problem.start].count(b"\n") + 1
        raise NotReadable(line, "this is not UTF-8; save the file as that") from None


def _compose(text: str) -> Any:
    yaml = yaml_library()
    try:
        return yaml.compose(text, Loader=_loader())
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        said = " ".join(filter(None, (problem.context, problem.problem)))
        said += "; a text that begins with '*' stands between quotes" * ("alias" in said)
        raise NotReadable(mark.line + 1 if mark else 1, f"this is not YAML: {said}") from None
    except yaml.YAMLError as problem:
        line = text[: getattr(problem, "position", 0)].count("\n") + 1
        raise NotReadable(line, f"this is not YAML: {getattr(problem, 'reason', problem)}") from None
    except RecursionError:
        raise NotReadable(1, TOO_DEEP) from None


def _value(node: Any, at: KeyPath, lines: dict[KeyPath, int]) -> Any:
    line = lines[at] = node.start_mark.line + 1
    if node.id == "scalar":
        return _scalar(node, line)
    if node.id == "sequence" and node.tag == "tag:yaml.org,2002:seq":
        return [_value(item, (*at, number), lines) for number, item in enumerate(node.value)]
    if node.id != "mapping" or node.tag != "tag:yaml.org,2002:map":
        raise NotReadable(line, f"the tag {node.tag!r} means nothing here; leave it out")
    found: dict[str, Any] = {}
    for key, value in node.value:
        here = key.start_mark.line + 1
        if key.id != "scalar" or not isinstance(word := _scalar(key, here), str):
            raise NotReadable(here, "a key is a text; put it between quotes")
        if word in found:
            raise NotReadable(here, f"{word!r} is there already, in line {lines[(*at, word)]}; keep one of them")
        found[word] = _value(value, (*at, word), lines)
        lines[(*at, word)] = here
    return found


def _mark(node: Any, at: KeyPath, lines: dict[KeyPath, int]) -> None:
    """Add the line of each part to `lines`."""
    if node is None:
        return
    lines.setdefault(at, node.start_mark.line + 1)
    if node.id == "sequence":
        for number, item in enumerate(node.value):
            _mark(item, (*at, number), lines)
    elif node.id == "mapping":
        for key, value in node.value:
            word = str(key.value).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            place, here = (*at, word), key.start_mark.line + 1
            if place in lines:
                raise NotReadable(here, f"{word!r} is there already, in line {lines[place]}; keep one of them")
            lines[place] = here
            _mark(value, place, lines)


def _scalar(node: Any, line: int) -> str | int | float | bool | None:
    """Return a plain value. Raises `NotReadable` for `!!int yes`, where tag and text disagree, and for huge numbers."""
    for tag, pattern, _, meaning in SCALARS:
        if node.tag == tag and pattern.fullmatch(node.value) and len(node.value) <= LONGEST_NUMBER:
            return meaning(node.value)
    if node.tag != STRING:
        raise NotReadable(line, f"{node.value!r:.40} is no {node.tag.rpartition(':')[2]!r}; write it as text")
    return str(node.value)


# -- sentences for mistakes --------------------------------------------------------------------------------------------


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
    from difflib import get_close_matches  # slow to load, for mistakes only

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
