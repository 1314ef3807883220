r"""The pages of a card: the action, the exact arguments, the reach of an "always", the changes of an edit. Pure.

A page is a number of rows; the width of the screen comes later. Foreign text is escaped here, once, and stands behind a
mark of ours on every line.

Secrets are covered. A cover can deceive too, so it hides only a text that is known to be a secret by its form or its
name, holds no slash, dot, blank or sign of a shell, and does not stand where a command's name stands: no command word,
path or host disappears behind it.

People edit arguments as JSON, in which an invisible character stands as `\u202e`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen
from prompt_toolkit.utils import get_cwidth as width_of

from amplifier_hooks.act import freeze, thaw
from amplifier_hooks.text.escape import for_terminal
from amplifier_hooks.text.secrets import Secrets, is_secret_name
from approval_backends.card.changes import change, compare
from approval_backends.card.contents import group_member, oddities, reach, would_have_covered
from approval_backends.card.impact_lines import NO_FACTS, impact_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from amplifier_hooks.ports import ApprovalRequest, Option
    from approval_backends.card.changes import ChangeLine
    from approval_backends.card.impact_lines import CardFacts


Line = tuple[tuple[str, str], ...]
"""One line of the screen: pairs of a style and a text."""

TAB: Final = "⇥"
STOP: Final = 4
"""Columns from one tab stop to the next."""


def shown_lines(text: str) -> list[str]:
    """Return a foreign text, line by line; a tab and the last blank of a line can be seen."""
    return [_show_blanks(line) for line in _escape_tab_sign(for_terminal(text)).split("\n")]


def inline(text: str) -> str:
    """Return a foreign text as one line."""
    one = for_terminal(text).replace("\n", "\\u{0A}").replace("\t", "\\u{09}")
    return _show_blanks(_escape_tab_sign(one))


def _escape_tab_sign(text: str) -> str:
    """Return the text without our own sign for a tab."""
    return text.replace(TAB, f"\\u{{{ord(TAB):X}}}")


def _show_blanks(line: str) -> str:
    if line.endswith(" "):
        line = line[:-1] + "\\u{20}"
    first, *others = line.split("\t")
    for other in others:
        first += TAB + " " * (STOP - 1 - width_of(first) % STOP) + other
    return first


@frozen
class Strip:
    """A line before the width of the screen is known. `lead` stands before it, `follow` before its wrapped parts.

    Both are ours and equally wide, so that no foreign text begins where one of our own lines does.
    """

    text: str
    style: str = ""
    lead: str = " "
    follow: str = " "
    lead_style: str = "class:dim"
    words: bool = False


def lay_out(rows: tuple[Strip, ...], width: int) -> tuple[Line, ...]:
    """Return rows as lines of at most `width` cells. Nothing is left out."""
    return tuple(
        ((row.lead_style, lead), (row.style, piece))
        for row in rows
        for number, piece in enumerate(wrap_text(row.text, width - width_of(row.lead), words=row.words))
        for lead in (row.follow if number else row.lead,)
    )


def wrap_text(text: str, width: int, *, words: bool = False) -> list[str]:
    """Return pieces of at most `width` cells that together are the text; with `words`, cut between words."""
    if text.isascii() and (len(text) <= width or not words):
        return [text[start : start + width] for start in range(0, len(text) or 1, width)]
    pieces = []
    start = used = blank = 0
    for index, sign in enumerate(text):
        cells = width_of(sign)
        if used + cells > width:
            cut = blank if words and blank > start + width // 2 else index
            pieces.append(text[start:cut])
            start, used = cut, width_of(text[cut:index])
        used += cells
        if sign == " ":
            blank = index + 1
    return [*pieces, text[start:]]


def clip_text(text: str, width: int) -> str:
    """Return at most `width` cells; a cut tells how many characters are missing."""
    if width_of(text) <= width:
        return text
    room = width - len(f"…(+{len(text):,})")
    if room < 0:
        return "…"[:width]
    length = len(text)
    used = 0
    for index, sign in enumerate(text):
        used += width_of(sign)
        if used > room:
            length = index
            break
    return f"{text[:length]}…(+{len(text) - length:,})"


def text_of(line: Line) -> str:
    """Return the text of a line alone."""
    return "".join(text for _, text in line)


Piece = tuple[str, bool]
"""A part of a text, and True if it is to be covered."""

HIDEABLE: Final = re.compile(r"(?:[A-Za-z-]+ )?([^\s/.:;&|(){}<>$`\\'\"]+)")
"""A secret that is neither a path, a host nor a command, behind the name of its scheme, if it has one."""
SHORTEST: Final = 8
"""Characters of an argument that is one secret as a whole, at least."""
COMMAND_FOLLOWS: Final = frozenset("\n\r;&|(`{")


@cache
def secrets() -> Secrets:
    """Return the finder of secrets, made at the first card."""
    return Secrets(environment={})


def names_secret(name: str, value: str) -> bool:
    """Return True if an argument of this name and value is one secret as a whole."""
    found = HIDEABLE.fullmatch(value) if is_secret_name(name) and len(value) >= SHORTEST else None
    return found is not None and found[1] == value


def pieces(text: str) -> list[Piece]:
    """Return the text in parts; joined, they are the text."""
    found: list[Piece] = []
    end = 0
    for begin, stop, _ in secrets().spans(text):
        match = HIDEABLE.fullmatch(text, begin, stop)
        if match is None or _names_command(text, start := match.start(1)):
            continue
        found += [(text[end:start], False), (text[start:stop], True)]
        end = stop
    return [*found, (text[end:], False)]


def _names_command(text: str, start: int) -> bool:
    """Return True if a word that begins here may be the command that runs."""
    while start and text[start - 1] in " \t":
        start -= 1
    return start == 0 or text[start - 1] in COMMAND_FOLLOWS


def cover(text: str) -> str:
    """Return the cover of a secret, in brackets that no other text has."""
    return f"⟨secret, {len(text):,} characters⟩"


Page = tuple[Strip, ...]

SUBJECTS: Final = ("command", "cmd", "file_path", "path", "notebook_path", "filename", "url", "uri", "pattern", "query")
"""Arguments that name the object of a tool; the first that is there stands beside the tool's name."""
CLAIMS: Final = frozenset({"description", "explanation", "justification", "purpose", "rationale", "reason"})
"""Arguments in which agents say what they are about to do. Nothing checks that."""
NAMES: Final = 20
"""Columns for names on the left, at most."""
HEADLINE: Final = 36
"""Columns that every screen has for the tool and its object."""
WIDE: Final = 32
"""Columns for agent and directory, on a screen of the usual width."""
SHORT: Final = 60
"""Characters of a value that still stands on one line."""


# -- the action --------------------------------------------------------------------------------------------------------


def action_page(request: ApprovalRequest, facts: CardFacts = NO_FACTS) -> Page:
    """Return the impacts of the action, the action as a whole, every question, the reasons for the risk, and claims."""
    arguments: Any = thaw(freeze(dict(request.arguments)))
    claims = {name: value for name, value in arguments.items() if name in CLAIMS and isinstance(value, str)}
    above = set(_in_headline(request))
    changed = change(arguments)
    names = {*claims, *above, *(changed.used - {subject_name(request)} if changed else ())}
    rows = (
        *_table(_argument(name, value) for name, value in arguments.items() if name not in names),
        *(_difference(changed.lines) if changed else ()),
        *([] if arguments else [Strip("no arguments", style="class:dim")]),
        Strip(""),
    )
    why = [
        *_questions(request),
        *_risks(request),
        *(_claim(claim) for claim in claims.values()),
        *_not_in_headline(request),
    ]
    shown = "\n".join([*(arguments[name] for name in above), *(row.text for row in rows), *(e.text for e in why)])
    return (*_impacts(request, facts), *rows, *_table([*_odd(arguments, shown), *why]))


def raw_page(request: ApprovalRequest) -> Page:
    """Return the exact arguments as JSON, nothing covered, and all facts by which the request can be found again."""
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
        *_table(TableEntry(name, [inline(fact)]) for name, fact in facts.items() if fact),
        Strip(""),
        *(Strip(line, lead=" │ ", follow=" ┊ ") for line in text.split("\n")),
    )


def subject_name(request: ApprovalRequest) -> str | None:
    """Return the name of the argument that names the object of the tool."""
    return next((name for name in SUBJECTS if isinstance(request.arguments.get(name), str)), None)


def subject_text(request: ApprovalRequest) -> str:
    """Return the object of the tool in a line, with secrets covered: of a command its first line that is not blank."""
    name = subject_name(request)
    lines = shown_lines(request.arguments[name]) if name else [""]
    first = next(filter(str.strip, lines), "")
    return _cover_secrets(first) + (" …" if len(lines) > 1 else "")


def _in_headline(request: ApprovalRequest) -> Iterator[str]:
    """Yield the argument that stands beside the tool's name, if it always stands there as a whole."""
    name = subject_name(request)
    value = request.arguments[name] if name else ""
    whole = shown_lines(value) == [value] == [_cover_secrets(value)] and not _reads_as_json(value)
    if name and whole and width_of(inline(request.tool)) + width_of(value) <= HEADLINE:
        yield name


def _not_in_headline(request: ApprovalRequest) -> Iterator[TableEntry]:
    """Yield the facts that are too long for the headline."""
    facts = {"tool": (request.tool, HEADLINE), "agent": (request.agent, WIDE), "directory": (request.cwd, WIDE)}
    for name, (fact, room) in facts.items():
        if width_of(inline(fact)) > room:
            yield TableEntry(name, shown_lines(fact))


@frozen
class TableEntry:
    """A name and the lines beside it; both can be shown as they are."""

    label: str
    lines: list[str]
    style: str = ""
    words: bool = False
    block: bool = False
    """True if the lines stand below the name."""

    @property
    def text(self) -> str:
        """The name and the lines."""
        return "\n".join((self.label, *self.lines))


def _table(entries: Iterable[TableEntry]) -> Iterator[Strip]:
    """Yield names on the left and the rest beside them; further lines stand behind a mark."""
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


def _impacts(request: ApprovalRequest, facts: CardFacts) -> Iterator[Strip]:
    """Yield a line for each impact, worst first, and a blank line below them."""
    for one in impact_lines(request, inline, facts):
        yield Strip(one.text, "" if one.bounded else "class:strong", lead=" ▸ ", follow=" ┊ ", words=True)
    if request.impacts:
        yield Strip("")


def _odd(arguments: Mapping[str, Any], shown: str) -> Iterator[TableEntry]:
    """Yield a line for everything that does not look like what it is, named as on the web page."""
    for odd in oddities(arguments, inline):
        yield TableEntry("look twice", [odd.sentence(shown)], style="class:mid", words=True)


def _questions(request: ApprovalRequest) -> Iterator[TableEntry]:
    for question in request.questions:
        prompt = shown_lines(question.prompt or "Allow this operation?")
        yield TableEntry(inline(question.hook or "a hook"), prompt, words=True)


def _risks(request: ApprovalRequest) -> Iterator[TableEntry]:
    for one in request.risk_reasons:
        *lines, last = shown_lines(one.reason)
        yield TableEntry(f"{one.risk} risk", [*lines, f"{last} ({inline(one.by)})"], words=True)


def _claim(claim: str) -> TableEntry:
    *lines, last = shown_lines(claim)
    return TableEntry("the agent says", [*lines, f"{last} (not checked)"], words=True)


def _argument(name: str, value: object) -> TableEntry:
    if not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        text = text if len(text) <= SHORT else json.dumps(value, ensure_ascii=False, indent=2)
    else:
        text = json.dumps(value, ensure_ascii=False) if _reads_as_json(value) else value
    whole = isinstance(value, str) and names_secret(name, value)
    lines = [cover(text)] if whole else [_cover_secrets(line) for line in shown_lines(text)]
    block = len(lines) > 1
    label = f"{inline(name)}  {len(lines):,} lines" if block else inline(name)
    return TableEntry(label, lines, style="class:strong", block=block)


def _cover_secrets(line: str) -> str:
    """Return a line that can be shown, with a cover that no text can imitate over each secret."""
    return "".join(cover(piece) if secret else piece for piece, secret in pieces(line))


def _reads_as_json(text: str) -> bool:
    """Return True if a bare text would pass for another value, or for nothing."""
    if text == "" or text != text.strip() or text[0] in '"{[':
        return "\n" not in text
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


# -- the changes of an edit --------------------------------------------------------------------------------------------

SIGNS: Final = {
    "add": ("+", "class:good"),
    "del": ("-", "class:high"),
    "same": (" ", ""),
    "skip": ("·", "class:dim"),
    "part": ("·", "class:dim"),
}


def changes_page(request: ApprovalRequest, arguments: Mapping[str, Any], digest: str) -> Page:
    """Return the changes that the person's own arguments make, as JSON before and after."""
    old, new = (json.dumps(thaw(freeze(dict(a))), indent=2, ensure_ascii=False) for a in (request.arguments, arguments))
    first = f"Your arguments instead of the agent's; digest {digest[:4]} {digest[4:8]}"
    return (
        Strip(first, style="class:strong", words=True),
        *_difference(tuple(compare(old, new))),
        Strip("They pass through the hooks again before anything runs.", style="class:dim", words=True),
    )


def _difference(lines: tuple[ChangeLine, ...]) -> Iterator[Strip]:
    """Yield the removed and added lines, and at the end their numbers."""
    for line in lines:
        sign, style = SIGNS[line.kind]
        for text in shown_lines(line.text):
            yield Strip(_cover_secrets(text), style, f" {sign} │ ", f" {sign} ┊ ", lead_style=style)
    added, removed = (sum(line.kind == kind for line in lines) for kind in ("add", "del"))
    yield Strip(f"{added:,} {'line' if added == 1 else 'lines'} added, {removed:,} removed", style="class:dim")


# -- the reach of an "always" ------------------------------------------------------------------------------------------


def reach_page(request: ApprovalRequest, option: Option, facts: CardFacts = NO_FACTS) -> Page:
    """Return the reach of one "always" from now on, its limits, and its end."""
    always, so_far = reach(request, inline, option), would_have_covered(request, facts.earlier)
    return (
        Strip(f"{'Allowed' if option.allows else 'Denied'} without asking again:", style="class:strong", words=True),
        *(Strip(covered, lead=" · ", follow=" ┊ ", words=True) for covered in always.covers),
        Strip(""),
        Strip(f"Not covered: {always.leaves[:1].lower()}{always.leaves[1:]}", words=True),
        Strip(f"Ends: {always.ends[:1].lower()}{always.ends[1:]}", words=True),
        *([Strip(so_far, words=True)] if option.allows and so_far else []),
    )


def group_page(requests: Iterable[ApprovalRequest]) -> Page:
    """Return the actions of a group of alike requests, each whole in a line, with its digest."""
    members = [(one, group_member(one, inline)) for one in requests]
    return (
        Strip(f"{len(members):,} alike actions of low risk, one decision for each:", style="class:strong", words=True),
        *(
            Strip(_cover_secrets(member.line), lead=f" {one.digest[:4]} │ ", follow="      ┊ ")
            for one, member in members
            if member is not None
        ),
    )


def arguments_text(arguments: Mapping[str, Any]) -> str:
    """Return the arguments as JSON to be edited. Reading the unchanged text gives equal arguments."""
    return field_text(json.dumps(thaw(freeze(dict(arguments))), indent=2, ensure_ascii=False))


def field_text(text: str) -> str:
    r"""Return a text as it may stand in the field: invisible characters as JSON escapes. Newlines stay."""
    return "".join(sign if sign == "\n" or _is_visible(sign) else _escape_sign(sign) for sign in text)


def _is_visible(sign: str) -> bool:
    return for_terminal(sign) == sign != "\t"


def _escape_sign(sign: str) -> str:
    return json.dumps(sign)[1:-1] if sign != "\t" else "  "
