"""A file of rules: YAML, and a line for every mistake."""

from __future__ import annotations

import stat
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from amplifier_hooks.text.strict_yaml import TOO_DEEP, KeyPath, Marked, NotReadable, parse_yaml
from approval_backends.errors import InvalidRules, RulesUnreadable
from approval_backends.rules.model import RuleModel, RulesModel

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pydantic_core import ErrorDetails


LARGEST: Final = 1_048_576
"""Bytes of a file; far more than anybody writes by hand."""


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


def parse_rules(data: bytes, name: str) -> tuple[RulesModel, dict[KeyPath, int]]:
    """What the file says, and on which line each part stands. Raises `InvalidRules` with everything that is wrong."""
    marked = _load(data, name)
    lines = marked.lines
    try:
        model = RulesModel.model_validate(marked.value)
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


def _load(data: bytes, name: str) -> Marked:
    try:
        marked = parse_yaml(data)
    except NotReadable as problem:
        said = f"{problem.said}; rules are a flat list" * (problem.said == TOO_DEEP) or problem.said
        raise InvalidRules(name, [(problem.line, said)]) from None
    if marked.value is None:
        raise InvalidRules(name, [(1, "the file is empty; to have no rules, name no file")])
    return marked


def _mistake(error: ErrorDetails, lines: dict[KeyPath, int]) -> tuple[int, str]:
    """One mistake as line and sentence."""
    at: KeyPath = error["loc"]
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


def _names(at: KeyPath) -> Iterable[str]:
    """The keys there may be where something stands."""
    return RuleModel.model_fields if at[0] == "rules" and len(at) > 1 else RulesModel.model_fields


def _meant(key: str, names: list[str]) -> str:
    likely = get_close_matches(key, names, 1)
    return f"did you mean {likely[0]!r}?" if likely else f"known are {', '.join(names)}"
