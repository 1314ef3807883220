"""What a person can read about a request: the action, what "always" would cover, what an edit changes. Pure.

A page is a number of rows; how wide the screen is comes later. Whatever somebody else wrote passes through the `Script`
here, once, and stands behind a mark of ours on every line.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen
from prompt_toolkit.utils import get_cwidth as width_of

from amplifier_hooks.act import freeze, thaw
from approval_backends.card.contents import reach
from approval_backends.card.file_diff import change, compare
from approval_backends.card.oddities import oddities
from approval_backends.terminal.cells import Strip
from approval_backends.terminal.masked_secrets import names_secret, pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from amplifier_hooks.ports import ApprovalRequest
    from approval_backends.card.file_diff import ChangeLine
    from approval_backends.terminal.cells import Script


Page = tuple[Strip, ...]

SUBJECTS: Final = ("file_path", "path", "notebook_path", "filename", "url", "uri", "pattern", "query")
"""Arguments that name what a tool works on; the first that is there stands beside the tool's name."""
CLAIMS: Final = frozenset({"description", "explanation", "justification", "purpose", "rationale", "reason"})
"""Arguments in which agents say what they are about to do. Nothing checks that."""
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
    """The action whole, then every question, why the risk is as it is, and what the agent says about it."""
    arguments: Any = thaw(freeze(dict(request.arguments)))
    claims = {name: value for name, value in arguments.items() if name in CLAIMS and isinstance(value, str)}
    above = set(_in_headline(request, script))
    changed = change(arguments)
    told = {*claims, *above, *(changed.used - {subject_name(request)} if changed else ())}
    rows = (
        *_table(_argument(name, value, script) for name, value in arguments.items() if name not in told),
        *(_difference(changed.lines, script) if changed else ()),
        *([] if arguments else [Strip("no arguments", style="class:dim")]),
        Strip(""),
    )
    why = [
        *_questions(request, script),
        *_risks(request, script),
        *(_claim(claim, script) for claim in claims.values()),
        *_not_in_headline(request, script),
    ]
    shown = "\n".join([*(arguments[name] for name in above), *(row.text for row in rows), *(e.text for e in why)])
    return (*rows, *_table([*_odd(arguments, shown, script), *why]))


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


def subject_name(request: ApprovalRequest) -> str | None:
    """The argument that names what the tool works on."""
    return next((name for name in SUBJECTS if isinstance(request.arguments.get(name), str)), None)


def _in_headline(request: ApprovalRequest, script: Script) -> Iterator[str]:
    """The argument that stands beside the tool's name, if it always does as a whole."""
    name = subject_name(request)
    value = request.arguments[name] if name else ""
    whole = script.lines(value) == [value] == [_covered(value, script)] and not _reads_as_json(value)
    if name and whole and width_of(script.inline(request.tool)) + width_of(value) <= HEADLINE:
        yield name


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

    @property
    def text(self) -> str:
        """The name and the lines."""
        return "\n".join((self.label, *self.lines))


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


def _odd(arguments: Mapping[str, Any], shown: str, script: Script) -> Iterator[Entry]:
    """A line for everything that does not look like what it is, as the page names it."""
    for odd in oddities(arguments, script.inline):
        yield Entry("look twice", [odd.sentence(shown)], style="class:mid", words=True)


def _questions(request: ApprovalRequest, script: Script) -> Iterator[Entry]:
    for question in request.questions:
        prompt = script.lines(question.prompt or "Allow this operation?")
        yield Entry(script.inline(question.hook or "a hook"), prompt, words=True)


def _risks(request: ApprovalRequest, script: Script) -> Iterator[Entry]:
    for one in request.risk_reasons:
        *lines, last = script.lines(one.reason)
        yield Entry(f"{one.risk} risk", [*lines, f"{last} ({script.inline(one.by)})"], words=True)


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


# -- what changes ------------------------------------------------------------------------------------------------------

SIGNS: Final = {
    "add": ("+", "class:good"),
    "del": ("-", "class:high"),
    "same": (" ", ""),
    "skip": ("·", "class:dim"),
    "part": ("·", "class:dim"),
}


def changes_page(request: ApprovalRequest, arguments: Mapping[str, Any], digest: str, script: Script) -> Page:
    """What the person's own arguments change, as JSON before and after."""
    old, new = (json.dumps(thaw(freeze(dict(a))), indent=2, ensure_ascii=False) for a in (request.arguments, arguments))
    first = f"Your arguments instead of the agent's; digest {digest[:4]} {digest[4:8]}"
    return (
        Strip(first, style="class:strong", words=True),
        *_difference(tuple(compare(old, new)), script),
        Strip("They pass through the hooks again before anything runs.", style="class:dim", words=True),
    )


def _difference(lines: tuple[ChangeLine, ...], script: Script) -> Iterator[Strip]:
    """What goes and what comes, line by line, and at the end how much of it."""
    for line in lines:
        sign, style = SIGNS[line.kind]
        for text in script.lines(line.text):
            yield Strip(_covered(text, script), style, f" {sign} │ ", f" {sign} ┊ ", lead_style=style)
    added, removed = (sum(line.kind == kind for line in lines) for kind in ("add", "del"))
    yield Strip(f"{added:,} {'line' if added == 1 else 'lines'} added, {removed:,} removed", style="class:dim")


# -- what "always" covers ----------------------------------------------------------------------------------------------


def reach_page(request: ApprovalRequest, script: Script, *, allows: bool) -> Page:
    """What a standing answer would answer from now on, what it would not, and when it ends."""
    told = reach(request, script.inline, request.keep)
    return (
        Strip(f"{'Allowed' if allows else 'Denied'} without asking again:", style="class:strong", words=True),
        *(Strip(covered, lead=" · ", follow=" ┊ ", words=True) for covered in told.covers),
        Strip(""),
        Strip(f"Not covered: {told.leaves[:1].lower()}{told.leaves[1:]}", words=True),
        Strip(f"Ends: {told.ends[:1].lower()}{told.ends[1:]}", words=True),
    )
