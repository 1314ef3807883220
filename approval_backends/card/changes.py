"""The change that a call would make to a file, line by line, and the arguments that an approver writes instead. Pure.

The diff is computed from the arguments alone: they are what the digest stands for. The file itself is never read,
because it may look different by the time the call runs, and may not even be on this machine. Lines stay as they came;
the screen that shows them escapes them. Comparing words is linear in the length of the lines.
"""

from __future__ import annotations

import json
import re
from difflib import SequenceMatcher
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import frozen

from amplifier_hooks.act import MAX_DEPTH, freeze
from amplifier_hooks.approvals import act_of
from amplifier_hooks.errors import InputNotFreezable
from amplifier_hooks.text.escape import invisible
from amplifier_hooks.text.strict_parsing import load_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from amplifier_hooks.ports import ApprovalRequest


Kind = Literal["same", "add", "del", "skip", "part"]

PATHS: Final = ("file_path", "path", "notebook_path", "filename")
CONTENTS: Final = ("content", "file_text", "new_source")
PAIRS: Final = (("old_string", "new_string"), ("old_str", "new_str"), ("oldText", "newText"))
NEAR: Final = 3
"""Lines without a change that are kept on both sides of one."""
COMPARABLE: Final = 40_000
"""Pairs of lines that are compared: an attacker can choose more of them that take seconds. Beyond the limit,
the diff removes all old lines and adds all new ones: also true, and done at once.
"""


@frozen
class ChangeLine:
    """One line; `old` and `new` number it from 1 on its side.

    `skip` tells how many lines are left out, `part` names the edit that follows or something special.
    """

    kind: Kind
    old: int | None
    new: int | None
    text: str


@frozen
class FileChange:
    """A change to one file. `whole`: the text is the file's whole new content. `used` names the arguments it shows."""

    path: str
    lines: tuple[ChangeLine, ...]
    used: frozenset[str]
    whole: bool = False

    @property
    def added(self) -> int:
        """Number of added lines."""
        return sum(line.kind == "add" for line in self.lines)

    @property
    def removed(self) -> int:
        """Number of removed lines."""
        return sum(line.kind == "del" for line in self.lines)

    @property
    def result(self) -> str:
        """The new text; for an edit, the text that replaces the old one."""
        return "\n".join(line.text for line in self.lines if line.kind in ("add", "same"))


def change(arguments: Mapping[str, Any]) -> FileChange | None:
    """Return the change that these arguments would make, or None if they do not have one of the known shapes."""
    path = next((name for name in PATHS if isinstance(arguments.get(name), str)), None)
    if path is None:
        return None
    file = arguments[path]
    pair = _pair(arguments)
    if pair is not None:
        return FileChange(file, tuple(compare(arguments[pair[0]], arguments[pair[1]])), frozenset({path, *pair}))
    edits = arguments.get("edits")
    if isinstance(edits, list) and edits and all(_is_plain_edit(edit) for edit in edits):
        return FileChange(file, tuple(_edits(edits)), frozenset({path, "edits"}))
    content = next((name for name in CONTENTS if isinstance(arguments.get(name), str)), None)
    if content is not None:
        return FileChange(file, tuple(_added_lines(arguments[content])), frozenset({path, content}), whole=True)
    return None


def compare(old: str, new: str) -> Iterator[ChangeLine]:
    """Yield the lines of both texts, with the differing lines marked and long equal stretches left out."""
    before, after = old.split("\n"), new.split("\n")
    codes = _codes(before, after)
    for number, (kind, i, j, k, m) in enumerate(codes):
        if kind == "equal":
            head = NEAR if number else 0
            tail = NEAR if number < len(codes) - 1 else 0
            yield from _unchanged_lines(before[i:j], i, k, head, tail)
            continue
        for offset in range(i, j):
            yield ChangeLine("del", offset + 1, None, before[offset])
        for offset in range(k, m):
            yield ChangeLine("add", None, offset + 1, after[offset])


def _unchanged_lines(lines: Sequence[str], old: int, new: int, head: int, tail: int) -> Iterator[ChangeLine]:
    """Yield unchanged lines; if there are more than `head` and `tail` keep, one line counts the rest."""
    hidden = len(lines) - head - tail
    for number, text in enumerate(lines):
        if hidden < 2 or not head <= number < head + hidden:  # noqa: PLR2004  # one line left out would save nothing
            yield ChangeLine("same", old + number + 1, new + number + 1, text)
        elif number == head:
            yield ChangeLine("skip", None, None, f"{hidden:,} unchanged lines")


def _added_lines(text: str) -> Iterator[ChangeLine]:
    lines = text.split("\n")
    for number, line in enumerate(lines if lines[-1] else lines[:-1], 1):
        yield ChangeLine("add", None, number, line)
    if lines[-1]:
        yield ChangeLine("part", None, None, "No newline at the end")


def _codes(before: Sequence[str], after: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
    """Return the opcodes.

    The common head and tail are set aside first: comparing costs more than the square of the rest.
    """
    head = _common_prefix(before, after)
    tail = _common_prefix(before[head:][::-1], after[head:][::-1])
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    codes = [("replace", 0, len(old), 0, len(new))] if old or new else []
    if len(old) * len(new) <= COMPARABLE:
        codes = list(SequenceMatcher(None, old, new, autojunk=False).get_opcodes())
    moved = [(kind, i + head, j + head, k + head, m + head) for kind, i, j, k, m in codes]
    begin = [("equal", 0, head, 0, head)] if head else []
    end = [("equal", len(before) - tail, len(before), len(after) - tail, len(after))] if tail else []
    return [*begin, *moved, *end]


def _pair(arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    return next((pair for pair in PAIRS if all(isinstance(arguments.get(name), str) for name in pair)), None)


def _is_plain_edit(edit: object) -> bool:
    """Return True if an edit consists of nothing but its old and its new text."""
    return isinstance(edit, dict) and (pair := _pair(edit)) is not None and set(edit) == set(pair)


def _edits(edits: Sequence[Mapping[str, str]]) -> Iterator[ChangeLine]:
    for number, edit in enumerate(edits, 1):
        old, new = next(pair for pair in PAIRS if pair[0] in edit)
        yield ChangeLine("part", None, None, f"Edit {number} of {len(edits)}")
        yield from compare(edit[old], edit[new])


WORD: Final = re.compile(r"\\u\{[0-9A-F]+\}|⟨[^⟩]*⟩|\w+|\s+|.", re.DOTALL)
ALIKE: Final = 0.3
"""Share of a line that must agree at both ends; lines with less in common are two lines, not one that was changed."""


def word_changes(lines: Sequence[ChangeLine]) -> dict[int, tuple[str, str, str]]:
    """Return the changed lines by index, each in three pieces: the middle one differs. No escape is torn."""
    found: dict[int, tuple[str, str, str]] = {}
    for gone, come in _pairs(lines):
        old, new = WORD.findall(lines[gone].text), WORD.findall(lines[come].text)
        head = _common_prefix(old, new)
        tail = _common_prefix(old[head:][::-1], new[head:][::-1])
        shared = sum(map(len, old[:head])) + sum(map(len, old[len(old) - tail :]))
        if shared >= ALIKE * max(len(lines[gone].text), len(lines[come].text)):
            found[gone], found[come] = _pieces(old, head, tail), _pieces(new, head, tail)
    return found


def _pairs(lines: Sequence[ChangeLine]) -> Iterator[tuple[int, int]]:
    """Yield each removed line with the added line that stands in its place."""
    at = 0
    while at < len(lines):
        gone = at
        while at < len(lines) and lines[at].kind == "del":
            at += 1
        come = at
        while at < len(lines) and lines[at].kind == "add":
            at += 1
        yield from zip(range(gone, come), range(come, at), strict=False)
        at += at == gone


def _common_prefix(old: Sequence[str], new: Sequence[str]) -> int:
    """Return the number of lines or words with which both begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _pieces(words: Sequence[str], head: int, tail: int) -> tuple[str, str, str]:
    end = len(words) - tail
    return "".join(words[:head]), "".join(words[head:end]), "".join(words[end:])


# -- arguments of the approver's own ----------------------------------------------------------------------------------

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
    try:
        value = load_json(text, deepest=MAX_DEPTH)
        freeze(value)
    except json.JSONDecodeError as problem:
        raise BadArguments(f"Line {problem.lineno}, column {problem.colno}: {problem.msg}.") from None
    except (InputNotFreezable, ValueError) as problem:
        raise BadArguments(f"{problem}.") from None
    if not isinstance(value, dict):
        raise BadArguments("Arguments are an object: { … }.")
    return value


def edit_request(request: ApprovalRequest, text: str) -> EditedAction:
    """Return the action that this text would make of a request.

    Raises `BadArguments`, also if the arguments are unchanged, or the text is too large.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > LARGEST:
        raise BadArguments(f"This is {size:,} bytes long; at most {LARGEST:,} can be sent.")
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
