r"""Arguments as a person writes them: JSON, in which whatever cannot be seen stands as `\u202e`. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from amplifier_hooks.act import freeze, thaw
from amplifier_hooks.errors import InputNotFreezable
from amplifier_hooks.text.escape import for_terminal

if TYPE_CHECKING:
    from collections.abc import Mapping


class NotUsable(ValueError):
    """What was written cannot be arguments; the text says where and why."""


def writable(arguments: Mapping[str, Any]) -> str:
    """The arguments as JSON to be edited. Reading it back unchanged gives the same arguments."""
    return typed(json.dumps(thaw(freeze(dict(arguments))), indent=2, ensure_ascii=False))


def typed(text: str) -> str:
    r"""A text as it may stand in the field: what cannot be seen as JSON writes it. Newlines stay."""
    return "".join(sign if sign == "\n" or _seen(sign) else _escaped(sign) for sign in text)


def read_back(text: str) -> dict[str, Any]:
    """The arguments that were written. Raises `NotUsable`, with the line."""
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as problem:
        raise NotUsable(f"line {problem.lineno}: {problem.msg}") from problem
    except RecursionError as problem:
        raise NotUsable("it is nested too deep") from problem
    if not isinstance(value, dict):
        raise NotUsable("arguments are an object: { … }")
    try:
        freeze(value)
    except InputNotFreezable as problem:
        raise NotUsable(str(problem)) from problem
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise NotUsable(f"{name!r} is there twice")
        found[name] = value
    return found


def _seen(sign: str) -> bool:
    return for_terminal(sign) == sign != "\t"


def _escaped(sign: str) -> str:
    return json.dumps(sign)[1:-1] if sign != "\t" else "  "
