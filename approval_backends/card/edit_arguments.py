"""Arguments that an approver writes instead of those shown: a text to start from, read strictly, compared. Pure."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from amplifier_hooks.act import freeze
from amplifier_hooks.approvals import act_of
from amplifier_hooks.errors import InputNotFreezable
from amplifier_hooks.text.escape import invisible
from approval_backends.card.file_diff import compare

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.ports import ApprovalRequest
    from approval_backends.card.file_diff import ChangeLine


LARGEST: Final = 48 * 1024
"""Bytes of text; it has to fit into one message."""


class BadArguments(ValueError):
    """The text cannot be the arguments of a call. The message is a sentence that says what is wrong, and where."""


@frozen
class EditedAction:
    """The edited action: its digest with the new arguments, and the difference from the old ones."""

    digest: str
    lines: tuple[ChangeLine, ...]


def editable_text(arguments: Mapping[str, Any]) -> str | None:
    """Return arguments as JSON to be edited; invisible characters are spelt as JSON escapes.

    None if the arguments are too large to be sent back.
    """
    text = json.dumps(dict(arguments), ensure_ascii=False, indent=2)
    text = text.translate({ord(character): _escape_character(character) for character in invisible(text)})
    return text if len(text.encode()) <= LARGEST else None


def read_arguments(text: str) -> dict[str, Any]:
    """Return the arguments in a text. Raises `BadArguments`."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > LARGEST:
        raise BadArguments(f"This is {size:,} bytes long; at most {LARGEST:,} can be sent.")
    try:
        value = json.loads(text, object_pairs_hook=_unique_object, parse_constant=_refuse_constant)
        freeze(value)
    except json.JSONDecodeError as problem:
        raise BadArguments(f"Line {problem.lineno}, column {problem.colno}: {problem.msg}.") from None
    except InputNotFreezable as problem:
        raise BadArguments(f"{problem}.") from None
    except (RecursionError, ValueError) as problem:
        if isinstance(problem, BadArguments):
            raise
        raise BadArguments("It is nested too deeply, or holds a number that is too long.") from None
    if not isinstance(value, dict):
        raise BadArguments("Arguments are an object: { … }.")
    return value


def edit_request(request: ApprovalRequest, text: str) -> EditedAction:
    """Return the action that this text would make of a request.

    Raises `BadArguments`, also if the arguments are unchanged.
    """
    arguments = read_arguments(text)
    act = act_of(request, arguments)
    if act.input == freeze(dict(request.arguments)):
        raise BadArguments("Nothing is changed yet.")
    return EditedAction(act.digest, tuple(compare(_comparable_text(request.arguments), _comparable_text(arguments))))


def _escape_character(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _comparable_text(arguments: Mapping[str, Any]) -> str:
    """Return a text to compare line by line: sorted by name, with each line of a multi-line value on its own line."""
    lines: list[str] = []
    for name, value in sorted(arguments.items()):
        if isinstance(value, str) and "\n" in value:
            lines += [f"{json.dumps(name)}:", *(f"    {line}" for line in value.split("\n"))]
        else:
            lines += f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False, indent=2)}".split("\n")
    return "\n".join(lines)


def _unique_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    named = dict(pairs)
    if len(named) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise BadArguments(f"{json.dumps(twice)} is there twice.")
    return named


def _refuse_constant(word: str) -> object:
    raise BadArguments(f"{word} is no number in JSON.")
