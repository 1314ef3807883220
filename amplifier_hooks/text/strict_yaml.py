"""Strict YAML or JSON comes in; its value goes out, with the line of every part, so that an error can name the line.

In YAML `yes`, `no`, `on` and `off` are texts, and so are dates and numbers that begin with a zero: the type of a value
should not depend on the YAML version that its author has in mind. Duplicate keys, aliases and tags are refused. In JSON
`NaN`, a duplicate key and a character after the end are refused.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from attrs import field, frozen

from amplifier_hooks.errors import HookError, MissingExtra
from amplifier_hooks.text.strict_json import refuse_constant

if TYPE_CHECKING:
    from collections.abc import Callable


KeyPath = tuple[str | int, ...]
"""Position of a part in a file: keys of objects and indexes of lists."""

STRING: Final = "tag:yaml.org,2002:str"
SCALARS: Final = (
    ("tag:yaml.org,2002:null", re.compile(r"~|null|"), "~n"),
    ("tag:yaml.org,2002:bool", re.compile(r"true|false"), "tf"),
    ("tag:yaml.org,2002:int", re.compile(r"-?(?:0|[1-9][0-9]*)"), "-0123456789"),
    ("tag:yaml.org,2002:float", re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+(?:[eE][-+]?[0-9]+)?"), "-0123456789"),
)
MEANT: Final[dict[str, Callable[[str], int | float | bool | None]]] = dict(
    zip((tag for tag, _, _ in SCALARS), (lambda _: None, "true".__eq__, int, float), strict=True)
)
LONGEST_NUMBER: Final = 300

TOO_DEEP: Final = "it is nested too deeply"


class NotReadable(HookError, ValueError):
    """A text that is not YAML or not JSON, or that is ambiguous."""

    def __init__(self, line: int, sentence: str) -> None:
        self.line = line
        self.sentence = sentence
        super().__init__(f"line {line}: {sentence}")


@frozen
class ParsedDocument:
    """The value of a file, with the line of each part. The value of an empty file is None."""

    value: Any
    lines: dict[KeyPath, int] = field(factory=lambda: {(): 1})

    def line(self, path: KeyPath) -> int:
        """Return the line of a part or, if the part is missing, of the part that would contain it."""
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path, 1)


@cache
def yaml_library() -> Any:
    """Return the module `yaml`. Raises `MissingExtra`."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise MissingExtra("reading YAML", "yaml") from None
    return yaml


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

    for tag, pattern, first in SCALARS:
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
    for tag, pattern, _ in SCALARS:
        if node.tag == tag and pattern.fullmatch(node.value) and len(node.value) <= LONGEST_NUMBER:
            return MEANT[tag](node.value)
    if node.tag != STRING:
        raise NotReadable(line, f"{node.value!r:.40} is no {node.tag.rpartition(':')[2]!r}; write it as text")
    return str(node.value)
