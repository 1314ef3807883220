"""What a person can read about a request: the action, what "always" would cover, what an edit changes. Pure.

A page is a number of rows; how wide the screen is comes later. Whatever somebody else wrote passes through the `Script`
here, once, and stands behind a mark of ours on every line.
"""

from __future__ import annotations

import json
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from amplifier_hooks.action import freeze, thaw
from approval_backends.terminal.cells import Strip, width_of
from approval_backends.terminal.masks import names_secret, pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from amplifier_hooks.ports import ApprovalRequest, Question
    from approval_backends.terminal.cells import Script

__all__ = ["action_page", "changes_page", "diff", "raw_page", "reach_page", "subject"]

Page = tuple[Strip, ...]

SUBJECTS: Final = ("file_path", "path", "notebook_path", "filename", "url", "uri", "pattern", "query")
"""Arguments that name what a tool works on; the first that is there stands beside the tool's name."""
BEFORE_AFTER: Final = (
    ("old_string", "new_string"),
    ("old_str", "new_str"),
    ("old_text", "new_text"),
    ("oldText", "newText"),
    ("old_source", "new_source"),
)
CLAIMS: Final = frozenset({"description", "explanation", "justification", "purpose", "rationale", "reason"})
"""Arguments in which agents say what they are about to do. Nothing checks that."""
COMPARED: Final = 400
"""Lines on either side that are compared with each other; of more, all are removed and all are added."""
AROUND: Final = 3
"""Unchanged lines shown on each side of a change."""
NAMES: Final = 20
"""Columns for names on the left, at most."""
HEADLINE: Final = 36
"""Columns there are on every screen for the tool and what it works on."""
WIDE: Final = 32
"""The same for agent and directory, on a screen of the usual width."""
SHORT: Final = 60
"""Characters of a value that still stands on one line."""


# -- the action --------------------------------------------------------------------------------------------------------


def action_page(request: ApprovalRequest, script: Script) -> Page:
    """The action whole, then every question, then what the agent says about it."""
    arguments: Any = thaw(freeze(dict(request.arguments)))
    claims = {name: value for name, value in arguments.items() if name in CLAIMS and isinstance(value, str)}
    above = set(_in_headline(request, script))
    changes, rest = _taken_apart({n: v for n, v in arguments.items() if n not in claims and n not in above})
    return (
        *_table(_argument(name, value, script) for name, value in rest.items()),
        *(row for number, change in enumerate(changes, start=1) for row in _change(number, changes, *change, script)),
        *([] if arguments else [Strip("no arguments", style="class:dim")]),
        Strip(""),
        *_table(
            [
                *_questions(request, script),
                *(_claim(claim, script) for claim in claims.values()),
                *_not_in_headline(request, script),
            ]
        ),
    )


def raw_page(request: ApprovalRequest, script: Script) -> Page:
    """The exact arguments as JSON, nothing covered, and everything by which the request can be found again."""
    facts = {
        "request": request.id,
        "session": request.session,
        "tenant": request.tenant,
        "agent": request.agent,
        "event": request.event,
        "tool": request.tool,
        "directory": request.cwd,
        "digest": request.digest,
        "asked": request.created.isoformat(timespec="seconds"),
    }
    text = json.dumps(thaw(freeze(dict(request.arguments))), indent=2).replace("\x7f", "\\u007f")
    return (
        *_table(Entry(name, [script.inline(fact)]) for name, fact in facts.items() if fact),
        Strip(""),
        *(Strip(line, lead=" │ ", follow=" ┊ ") for line in text.split("\n")),
    )


def subject(request: ApprovalRequest) -> str:
    """What the tool works on, as far as an argument names it."""
    return next((v for name in SUBJECTS if isinstance(v := request.arguments.get(name), str)), "")


def _in_headline(request: ApprovalRequest, script: Script) -> Iterator[str]:
    """The argument that stands beside the tool's name, if it always does as a whole."""
    for name in SUBJECTS:
        value = request.arguments.get(name)
        if isinstance(value, str):
            whole = script.lines(value) == [value] == [_covered(value, script)] and not _reads_as_json(value)
            if whole and width_of(script.inline(request.tool)) + width_of(value) <= HEADLINE:
                yield name
            return


def _not_in_headline(request: ApprovalRequest, script: Script) -> Iterator[Entry]:
    """What is too long to stand above as a whole."""
    facts = {"tool": (request.tool, HEADLINE), "agent": (request.agent, WIDE), "directory": (request.cwd, WIDE)}
    for name, (fact, room) in facts.items():
        if width_of(script.inline(fact)) > room:
            yield Entry(name, script.lines(fact))


@frozen
class Entry:
    """A name and what stands beside it, line by line; both can be shown as they are."""

    label: str
    lines: list[str]
    style: str = ""
    words: bool = False
    block: bool = False
    """Whether the lines stand below the name."""


def _table(entries: Iterable[Entry]) -> Iterator[Strip]:
    """Names on the left, the rest beside them; whatever follows on further lines stands behind a mark."""
    entries = list(entries)
    widths = [width_of(entry.label) for entry in entries if not entry.block]
    column = max((width for width in widths if width <= NAMES), default=0)
    for entry in entries:
        lines, label = entry.lines, entry.label
        if entry.block or width_of(label) > column:
            yield Strip(label, style="class:label", lead=" ▸ ", follow=" ┊ ")
        else:
            lead = f" {label}{' ' * (column - width_of(label))}  "
            follow = " " * (column + 1) + "┊ "
            yield Strip(lines[0], entry.style, lead, follow, lead_style="class:label", words=entry.words)
            lines = lines[1:]
        yield from (Strip(line, entry.style, lead=" │ ", follow=" ┊ ", words=entry.words) for line in lines)


def _questions(request: ApprovalRequest, script: Script) -> Iterator[Entry]:
    for question in request.questions:
        prompt = script.lines(question.prompt or "Allow this operation?")
        yield Entry(script.inline(question.hook or "a hook"), prompt, words=True)


def _claim(claim: str, script: Script) -> Entry:
    *lines, last = script.lines(claim)
    return Entry("the agent says", [*lines, f"{last} (not checked)"], words=True)


def _argument(name: str, value: object, script: Script) -> Entry:
    if not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        text = text if len(text) <= SHORT else json.dumps(value, ensure_ascii=False, indent=2)
    else:
        text = json.dumps(value, ensure_ascii=False) if _reads_as_json(value) else value
    whole = isinstance(value, str) and names_secret(name, value)
    lines = [script.cover(text)] if whole else [_covered(line, script) for line in script.lines(text)]
    block = len(lines) > 1
    label = f"{script.inline(name)}  {len(lines):,} lines" if block else script.inline(name)
    return Entry(label, lines, style="class:strong", block=block)


def _covered(line: str, script: Script) -> str:
    """A line that can be shown, with a cover of ours, which no text can imitate, over each secret."""
    return "".join(script.cover(piece) if secret else piece for piece, secret in pieces(line))


def _reads_as_json(text: str) -> bool:
    """Whether a bare text would pass for another value, or for nothing."""
    if text == "" or text != text.strip() or text[0] in '"{[':
        return "\n" not in text
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _taken_apart(arguments: dict[str, Any]) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """Texts before and after, as far as the arguments say them, and every argument that is in none of them."""
    changes = []
    rest = dict(arguments)
    edits = rest.pop("edits") if _are_edits(rest.get("edits")) else []
    for number, change in enumerate([arguments, *edits]):
        left = rest if number == 0 else {f"edits[{number - 1}].{name}": value for name, value in change.items()}
        for old, new in BEFORE_AFTER:
            if _are_texts(change, old, new):
                changes.append((change[old], change[new]))
                left = {name: value for name, value in left.items() if name.rpartition(".")[2] not in (old, new)}
        rest = left if number == 0 else rest | left
    return changes, rest


def _are_texts(change: Mapping[str, Any], *names: str) -> bool:
    return all(isinstance(change.get(name), str) for name in names)


def _are_edits(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(edit, dict) and any(_are_texts(edit, *pair) for pair in BEFORE_AFTER) for edit in value
    )


def _change(number: int, changes: list[tuple[str, str]], old: str, new: str, script: Script) -> Iterator[Strip]:
    if len(changes) > 1:
        yield Strip(f"change {number} of {len(changes)}", style="class:dim")
    yield from diff(old, new, script)


# -- what changes ------------------------------------------------------------------------------------------------------


def diff(old: str, new: str, script: Script) -> Iterator[Strip]:
    """What goes and what comes, line by line, and at the end how much of it. A gap says how long it is."""
    before, after = script.lines(old) if old else [], script.lines(new) if new else []
    added = removed = 0
    for kind, lines in _blocks(before, after):
        added += len(lines) * (kind == "+")
        removed += len(lines) * (kind == "-")
        style = {"+": "class:good", "-": "class:high"}.get(kind, "")
        if kind == "~":
            yield Strip(f"{len(lines):,} unchanged lines", style="class:dim", lead="   · ", follow="   · ")
        else:
            for line in lines:
                yield Strip(_covered(line, script), style, f" {kind} │ ", f" {kind} ┊ ", lead_style=style)
    yield Strip(f"{added:,} {_lines(added)} added, {removed:,} removed", style="class:dim")


def changes_page(request: ApprovalRequest, arguments: Mapping[str, Any], digest: str, script: Script) -> Page:
    """What the person's own arguments change, as JSON before and after."""
    old, new = (json.dumps(thaw(freeze(dict(a))), indent=2, ensure_ascii=False) for a in (request.arguments, arguments))
    return (
        Strip(
            f"Your arguments instead of the agent's; digest {digest[:4]} {digest[4:8]}",
            style="class:strong",
            words=True,
        ),
        *diff(old, new, script),
        Strip("They pass through the hooks again before anything runs.", style="class:dim", words=True),
    )


def _blocks(before: list[str], after: list[str]) -> Iterator[tuple[str, list[str]]]:
    start = next(
        (n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    rest = min(len(before), len(after)) - start
    end = next((n for n in range(rest) if before[-1 - n] != after[-1 - n]), rest)
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    yield from _same(before[:start], head=0, tail=AROUND)
    if max(len(old), len(new)) > COMPARED:
        yield from (("-", old), ("+", new))
    else:
        for tag, i, j, m, n in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if tag == "equal":
                yield from _same(old[i:j], head=AROUND, tail=AROUND)
            else:
                yield from (("-", old[i:j]), ("+", new[m:n]))
    yield from _same(before[len(before) - end :], head=AROUND, tail=0)


def _same(lines: list[str], *, head: int, tail: int) -> Iterator[tuple[str, list[str]]]:
    if len(lines) <= head + tail + 1:
        yield " ", lines
        return
    yield " ", lines[:head]
    yield "~", lines[head : len(lines) - tail]
    yield " ", lines[len(lines) - tail :]


def _lines(count: int) -> str:
    return "line" if count == 1 else "lines"


# -- what "always" covers ----------------------------------------------------------------------------------------------


def reach_page(request: ApprovalRequest, script: Script, *, allows: bool) -> Page:
    """What a standing answer would answer from now on, what it would not, and when it ends."""
    verb = "Allowed" if allows else "Denied"
    return (
        Strip(f"{verb} without asking again, from now on:", style="class:strong", words=True),
        *(row for question in request.questions for row in _covers(request, question, script)),
        Strip(""),
        Strip(
            "Not covered: other agents, tools, directories or sessions, and another version of a hook that asks.",
            words=True,
        ),
        Strip("It ends with this session, or when it is revoked. A deny from any hook or rule still wins.", words=True),
    )


def _covers(request: ApprovalRequest, question: Question, script: Script) -> Iterator[Strip]:
    where = f"by {script.inline(request.agent)}" + (f" in {script.inline(request.cwd)}" if request.cwd else "")
    tool, hook = script.inline(request.tool), script.inline(question.hook)
    if question.key is not None:
        what, said = f"Any {tool} {where} for which {hook} asks under the key", question.key
    elif question.scope == "action" or not question.prompt:
        what, said = f"{tool} {where} with exactly these arguments and nothing else; digest", request.digest[:12]
    else:
        what, said = f"Any {tool} {where} for which {hook} asks", question.prompt
    yield Strip(what, lead=" · ", follow=" ┊ ", words=True)
    yield from (Strip(line, lead="   │ ", follow="   ┊ ", words=True) for line in script.lines(said))
