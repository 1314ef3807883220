"""What a person is shown of a request, whatever the screen: the action first and whole, then why, then what stays.

Pure. Every word that somebody else wrote passes through the `escape` of the sink that will show it, once, here.
"""

from __future__ import annotations

import json
import re
from difflib import SequenceMatcher
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import frozen

from amplifier_hooks.action import freeze, thaw
from amplifier_hooks.escape import clip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from amplifier_hooks.ports import ApprovalRequest, Question
    from approval_backends.lifecycle import GrantKey

    Escape = Callable[[str], str]

__all__ = ["Asked", "Headline", "Line", "Reach", "View", "asked", "headline", "reach", "reach_of", "views"]

Op = Literal["same", "added", "removed", "gap"]
Kind = Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"]

LONGEST_WHAT: Final = 512
"""Bytes of the object of a headline; all of it is in the views."""
AROUND: Final = 3
"""Unchanged lines shown around a change."""
COMPARED: Final = 200
"""Changed lines on either side that are compared with each other; of more, all are removed and all are added."""
LINE: Final = re.compile(r"(?:\\u\{[0-9A-F]+\}|[\s\S]){1,4096}")
"""As much of a line as is kept together; no escape is torn."""


@frozen(kw_only=True)
class Headline:
    """What would be done, in two words and one object: `Edit`, `config/production.yaml`."""

    kind: Kind
    verb: str
    what: str


@frozen(kw_only=True)
class Line:
    """One line of a diff. `old` and `new` are its numbers in the two texts; of a gap, `text` says how long it is.

    A line that is very long goes on in others, which have no number.
    """

    op: Op
    text: str
    old: int | None = None
    new: int | None = None


@frozen(kw_only=True)
class View:
    """One way to look at the action. A diff has lines, everything else has text; `whole` is all there is."""

    name: str
    text: str = ""
    lines: tuple[Line, ...] = ()
    added: int = 0
    removed: int = 0
    characters: int = 0


@frozen(kw_only=True)
class Asked:
    """Why somebody is asked: one hook's own words."""

    hook: str
    version: str
    prompt: str


@frozen(kw_only=True)
class Reach:
    """What an "always" would answer from now on, in words."""

    covers: tuple[str, ...]
    leaves: str
    ends: str


# -- the action --------------------------------------------------------------------------------------------------------

SHAPES: Final[tuple[tuple[frozenset[str], Kind, str, str], ...]] = (
    (frozenset({"command"}), "execute", "Run a command", "command"),
    (frozenset({"cmd"}), "execute", "Run a command", "cmd"),
    (frozenset({"file_path", "old_string", "new_string"}), "edit", "Edit", "file_path"),
    (frozenset({"file_path", "edits"}), "edit", "Edit", "file_path"),
    (frozenset({"path", "old_string", "new_string"}), "edit", "Edit", "path"),
    (frozenset({"file_path", "content"}), "edit", "Write", "file_path"),
    (frozenset({"path", "content"}), "edit", "Write", "path"),
    (frozenset({"url"}), "fetch", "Fetch", "url"),
    (frozenset({"pattern"}), "search", "Search for", "pattern"),
    (frozenset({"file_path"}), "read", "Open", "file_path"),
    (frozenset({"path"}), "read", "Open", "path"),
)
"""Arguments that say what a tool does, whatever it is called: keys, kind, verb, and the key that names the object."""


def headline(request: ApprovalRequest, escape: Escape) -> Headline:
    """The action in a line. A tool nobody knows is named, and its arguments speak for themselves below."""
    arguments = request.arguments
    for keys, kind, verb, key in SHAPES:
        if keys <= arguments.keys() and isinstance(arguments[key], str):
            first, _newline, more = arguments[key].partition("\n")
            return Headline(kind=kind, verb=verb, what=clip(escape(first), LONGEST_WHAT) + (" …" if more else ""))
    return Headline(kind="other", verb="Use", what=clip(escape(request.tool), LONGEST_WHAT))


def views(request: ApprovalRequest, escape: Escape) -> tuple[View, ...]:
    """Every way to look at the action, the most telling first; the last is always `Raw`: the exact arguments.

    Raw is ASCII, with everything else as JSON writes it, so what is odd is seen there in another way.
    """
    arguments: Any = thaw(freeze(dict(request.arguments)))
    raw = json.dumps(arguments, indent=2).replace("\x7f", "\\u007f")
    return (*_telling(arguments, escape), View(name="Raw", text=raw, characters=len(raw)))


def _telling(arguments: Mapping[str, Any], escape: Escape) -> Iterator[View]:
    changes = list(_changes(arguments))
    if changes:
        lines = [line for old, new in changes for line in _diff(old, new, escape)]
        yield View(
            name="Diff",
            lines=tuple(lines),
            added=sum(line.op == "added" for line in lines),
            removed=sum(line.op == "removed" for line in lines),
            characters=sum(len(old) + len(new) for old, new in changes),
        )
        return
    for key, name in (("command", "Command"), ("cmd", "Command"), ("url", "Address")):
        if isinstance(arguments.get(key), str):
            yield View(name=name, text=escape(arguments[key]), characters=len(arguments[key]))
            return


def _changes(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Texts before and after, as far as the arguments say them."""
    edits = arguments.get("edits")
    for change in edits if isinstance(edits, list) else [arguments]:
        if not isinstance(change, dict):
            continue
        old, new = change.get("old_string", ""), change.get("new_string", change.get("content"))
        if isinstance(old, str) and isinstance(new, str):
            yield old, new


def _diff(old: str, new: str, escape: Escape) -> Iterator[Line]:
    """What both have at the start and at the end is set aside first: comparing takes the square of what is left."""
    before, after = old.split("\n") if old else [], new.split("\n") if new else []
    start = _shared(before, after)
    end = _shared(before[start:][::-1], after[start:][::-1])
    i, j = start, len(before) - end
    k, m = start, len(after) - end
    blocks = [("replace", i, j, k, m)]
    if max(j - i, m - k) <= COMPARED:
        matcher = SequenceMatcher(None, before[i:j], after[k:m], autojunk=False)
        blocks = [(tag, a + i, b + i, c + k, d + k) for tag, a, b, c, d in matcher.get_opcodes()]
    blocks = [("equal", 0, i, 0, k), *blocks, ("equal", j, len(before), m, len(after))]
    for number, (tag, a, b, c, d) in enumerate(blocks):
        if tag == "equal":
            yield from _same(before[a:b], a, c, (number == 0, number == len(blocks) - 1), escape)
        else:
            yield from _lines("removed", before[a:b], a, c, escape)
            yield from _lines("added", after[c:d], a, c, escape)


def _shared(some: Sequence[str], others: Sequence[str]) -> int:
    """How many lines two texts begin with together."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=False)))


def _lines(op: Op, texts: Sequence[str], old: int, new: int, escape: Escape) -> Iterator[Line]:
    for number, text in enumerate(texts, start=1):
        first, *rest = LINE.findall(escape(text)) or [""]
        yield Line(
            op=op,
            text=first,
            old=None if op == "added" else old + number,
            new=None if op == "removed" else new + number,
        )
        for more in rest:
            yield Line(op=op, text=more)


def _same(texts: Sequence[str], old: int, new: int, edge: tuple[bool, bool], escape: Escape) -> Iterator[Line]:
    """What stays as it is: a few lines next to each change, and how many are between them."""
    head, tail = 0 if edge[0] else AROUND, 0 if edge[1] else AROUND
    left_out = len(texts) - head - tail
    if left_out <= 1:
        yield from _lines("same", texts, old, new, escape)
        return
    yield from _lines("same", texts[:head], old, new, escape)
    yield Line(op="gap", text=f"{left_out:,} unchanged lines")
    after = len(texts) - tail
    yield from _lines("same", texts[after:], old + after, new + after, escape)


# -- why, and for how long ---------------------------------------------------------------------------------------------


def asked(request: ApprovalRequest, escape: Escape) -> tuple[Asked, ...]:
    """Every hook that asks, in its own words."""
    return tuple(
        Asked(hook=escape(question.hook), version=escape(question.version), prompt=escape(question.prompt))
        for question in request.questions
    )


def reach(request: ApprovalRequest, escape: Escape, keep: float | None = None) -> Reach:
    """What "always" would cover for this request: one sentence for each hook that asks."""
    ends = "With this session" if keep is None else f"After {_span(keep)}"
    others = "tools, directories or sessions" if keep is None else "tools or directories"
    return Reach(
        covers=tuple(_covers(request, question, escape) for question in request.questions),
        leaves=f"Other agents, {others}; other questions; another version of a hook that asks.",
        ends=f"{ends}, or when it is revoked. A deny from any hook or rule still wins.",
    )


def reach_of(key: GrantKey, escape: Escape) -> str:
    """What a grant covers, in a sentence."""
    kind, _colon, value = key.scope.partition(":")
    return _sentence((key.tool, key.agent, key.cwd), kind, value, escape)


def _covers(request: ApprovalRequest, question: Question, escape: Escape) -> str:
    kind, value = "prompt", question.prompt
    if question.key is not None:
        kind, value = "key", question.key
    elif question.scope == "action" or not question.prompt:
        kind, value = "action", request.digest
    return _sentence((request.tool, request.agent, request.cwd), kind, value, escape)


def _sentence(place: tuple[str, str, str], kind: str, value: str, escape: Escape) -> str:
    tool, agent, cwd = (escape(part) for part in place)
    where = f"by {agent}" + (f" in {cwd}" if cwd else "")
    if kind == "action":
        return f"{tool} {where}, exactly these arguments ({value[:12]}) and nothing else."
    if kind == "key":
        return f"Any {tool} {where} with the key “{escape(value)}”."
    return f"Any {tool} {where} that raises the question “{escape(value)}”."


def _span(seconds: float) -> str:
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = round(seconds / size)
            return f"{count} {name}{'s' * (count > 1)}"
    return f"{round(seconds)} seconds"
