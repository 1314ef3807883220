"""A file of rules: YAML that means what it looks like, and a line for every mistake.

`yes`, `no`, `on` and `off` are words here, and so are dates and numbers that begin with a zero: what an argument has to
be should not depend on the YAML version somebody has in mind. A key twice, an alias and a tag are refused.
"""

from __future__ import annotations

import re
import stat
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import yaml
from pydantic import ValidationError

from approval_backends.errors import InvalidRules, RulesUnreadable
from approval_backends.rules.model import RuleModel, RulesModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pydantic_core import ErrorDetails

__all__ = ["Place", "parse_rules", "read_file"]

LARGEST: Final = 1_048_576
"""Bytes of a file; far more than anybody writes by hand."""

Place = tuple[str | int, ...]
"""Where something stands in a file, by keys and numbers."""

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


class Loader(yaml.SafeLoader):
    """YAML with few surprises."""

    yaml_implicit_resolvers: Any = {}  # noqa: RUF012  # the base's; replaced, not changed

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node. Refuses an alias: a few lines of them make a file of any size."""
        if self.check_event(yaml.AliasEvent):
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs leave it out
            raise yaml.MarkedYAMLError(problem="an alias", problem_mark=event.start_mark)
        return super().compose_node(parent, index)


for _tag, _pattern, _first in SCALARS:
    Loader.add_implicit_resolver(_tag, re.compile(f"(?:{_pattern.pattern})\\Z"), [*_first, ""])


def read_file(path: Path) -> bytes:
    """The bytes of a file of rules. Raises `RulesUnreadable`, also where others may write it."""
    try:
        with path.open("rb") as file:
            found = path.stat()
            if stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IWOTH:
                raise RulesUnreadable(str(path), f"anybody may write to it; chmod o-w {path}")
            data = file.read(LARGEST + 1)
    except OSError as problem:
        raise RulesUnreadable(str(path), f"{problem.strerror or problem}; name a file of rules that is there") from None
    if len(data) > LARGEST:
        raise RulesUnreadable(str(path), f"it has more than {LARGEST:,} bytes; split what it says")
    return data


def parse_rules(data: bytes, name: str) -> tuple[RulesModel, dict[Place, int]]:
    """What the file says, and on which line each part stands. Raises `InvalidRules` with everything that is wrong."""
    value, lines = _load(data, name)
    try:
        model = RulesModel.model_validate(value)
    except ValidationError as problem:
        found = [_mistake(error, lines) for error in problem.errors(include_url=False)]
        raise InvalidRules(name, sorted(found)) from None
    first: dict[str, int] = {}
    twice: list[tuple[int, str]] = []
    for number, rule in enumerate(model.rules):
        line = lines["rules", number]
        if first.setdefault(rule.id, line) != line:
            twice.append((line, f"rule {rule.id!r} is there already, in line {first[rule.id]}; give one another id"))
    if twice:
        raise InvalidRules(name, twice)
    return model, lines


def _load(data: bytes, name: str) -> tuple[Any, dict[Place, int]]:
    lines: dict[Place, int] = {}
    text = ""
    try:
        text = data.decode("utf-8-sig")
        node = yaml.compose(text, Loader=Loader)
        if node is None:
            raise InvalidRules(name, [(1, "the file is empty; to have no rules, name no file")])
        return _value(node, (), lines, name), lines
    except UnicodeDecodeError as problem:
        line = data[: problem.start].count(b"\n") + 1
        raise InvalidRules(name, [(line, "this is not UTF-8; save the file as that")]) from None
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        said = " ".join(filter(None, (problem.context, problem.problem)))
        said += "; a text that begins with '*' stands between quotes" * ("alias" in said)
        raise InvalidRules(name, [(mark.line + 1 if mark else 1, f"this is not YAML: {said}")]) from None
    except yaml.YAMLError as problem:
        line = text[: getattr(problem, "position", 0)].count("\n") + 1
        raise InvalidRules(name, [(line, f"this is not YAML: {getattr(problem, 'reason', problem)}")]) from None
    except RecursionError:
        raise InvalidRules(name, [(1, "it is nested too deeply; rules are a flat list")]) from None


def _value(node: yaml.Node, at: Place, lines: dict[Place, int], name: str) -> Any:
    line = lines[at] = node.start_mark.line + 1
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, line, name)
    if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
        return [_value(item, (*at, number), lines, name) for number, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode) or node.tag != "tag:yaml.org,2002:map":
        raise InvalidRules(name, [(line, f"the tag {node.tag!r} means nothing here; leave it out")])
    found: dict[str, Any] = {}
    for key, value in node.value:
        here = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or not isinstance(word := _scalar(key, here, name), str):
            raise InvalidRules(name, [(here, "a key is a text; put it between quotes")])
        if word in found:
            first = lines[(*at, word)]
            raise InvalidRules(name, [(here, f"{word!r} is there already, in line {first}; keep one of them")])
        found[word] = _value(value, (*at, word), lines, name)
        lines[(*at, word)] = here
    return found


def _scalar(node: yaml.ScalarNode, line: int, name: str) -> str | int | float | bool | None:
    """A plain value, where its tag and its text agree: `!!int yes` and a number of 10,000 digits are mistakes."""
    for tag, pattern, _ in SCALARS:
        if node.tag == tag and pattern.fullmatch(node.value) and len(node.value) <= LONGEST_NUMBER:
            return MEANT[tag](node.value)
    if node.tag != STRING:
        raise InvalidRules(
            name, [(line, f"{node.value!r:.40} is no {node.tag.rpartition(':')[2]!r}; write it as text")]
        )
    return str(node.value)


def _mistake(error: ErrorDetails, lines: dict[Place, int]) -> tuple[int, str]:
    """One mistake as line and sentence."""
    at: Place = error["loc"]
    known = at
    while known not in lines:  # the file itself is in line 1
        known = known[:-1]
    if not at or (at[0] == "rules" and error["type"] in ("list_type", "model_type", "too_short")):
        return lines[known], SHAPES[min(len(at), 2)]
    key = str(at[-1])
    if error["type"] == "extra_forbidden":
        said = f"unknown key {key[:40]!r}; {_meant(key, [*_names(at)])}"
    elif error["type"] == "missing":
        said = f"{key!r} is missing; add {key}: {WANTED[key]}"
    elif error["type"] == "literal_error":
        said = f"{key!r} is {error['input']!r:.40}; write {error['ctx']['expected']}"
    else:
        said = str(error["ctx"]["error"]) if error["type"] == "value_error" else error["msg"]
        said = f"{key!r} {said}" if key in _names(at) else said
    return lines[known], said


SHAPES: Final = (
    "a file of rules is a mapping with version: 1 and rules",
    "'rules' is no list with rules in it; begin each with '- id: …', or name no file to have none",
    "a rule is a mapping, as in '- id: no-secrets'",
)
WANTED: Final = {
    "id": "a name of its own",
    "effect": "allow, ask or deny",
    "tool": "a tool, or '*'",
    "version": "1",
    "rules": "and a list of them",
}


def _names(at: Place) -> Iterable[str]:
    """The keys there may be where something stands."""
    return RuleModel.model_fields if at[0] == "rules" and len(at) > 1 else RulesModel.model_fields


def _meant(key: str, names: list[str]) -> str:
    likely = get_close_matches(key, names, 1)
    return f"did you mean {likely[0]!r}?" if likely else f"known are {', '.join(names)}"
