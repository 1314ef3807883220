"""The contents of a card, whatever the screen: the action whole, its oddities, the questions, the grants' reach.

Pure. Every foreign text passes through the `escape` of the sink that will show it, once, here.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import evolve, frozen
from msgspec.structs import replace

from amplifier_hooks.act import freeze, thaw
from amplifier_hooks.approvals import check_digest, grant_keys, kept_keys, make_grants, match_grants, offered
from amplifier_hooks.impacts import BOUNDED
from amplifier_hooks.ports import Decision
from amplifier_hooks.text.escape import clip, for_terminal, invisible
from approval_backends.card.changes import ChangeLine, change

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from amplifier_hooks.ports import ApprovalRequest, GrantKey, Option

    Escape = Callable[[str], str]
    from collections.abc import Callable, Sequence


ToolKind = Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"]

LONGEST_HEADLINE: Final = 512
"""Bytes of the object of a headline; the views have all of it."""
PIECE: Final = re.compile(r"(?:\\u\{[0-9A-F]+\}|[\s\S]){1,4096}")
"""The longest piece of a line that stays together; no escape is torn."""

WHOLE_ACTIONS: Final = {"command": "Command", "cmd": "Command", "url": "Address", "query": "Query"}
"""Arguments that tell the whole action when no file changes."""
CLAIM: Final = "description"


@frozen(kw_only=True)
class Headline:
    """The action in two words and one object: `Edit`, `config/production.yaml`."""

    kind: ToolKind
    verb: str
    what: str


@frozen(kw_only=True)
class ActionView:
    """One way to look at the action. A diff has lines, any other view has text; `characters` counts the agent's own.

    A very long line continues in further lines, which have no number.
    """

    name: str
    text: str = ""
    lines: tuple[ChangeLine, ...] = ()
    added: int = 0
    removed: int = 0
    characters: int = 0


@frozen(kw_only=True)
class GrantReach:
    """The reach of an "always" from now on, in words."""

    covers: tuple[str, ...]
    leaves: str
    ends: str


# -- the action --------------------------------------------------------------------------------------------------------

SHAPES: Final[tuple[tuple[frozenset[str], ToolKind, str], ...]] = (
    (frozenset({"command"}), "execute", "command"),
    (frozenset({"cmd"}), "execute", "cmd"),
    (frozenset({"file_path", "old_string", "new_string"}), "edit", "file_path"),
    (frozenset({"file_path", "edits"}), "edit", "file_path"),
    (frozenset({"path", "old_string", "new_string"}), "edit", "path"),
    (frozenset({"file_path", "content"}), "edit", "file_path"),
    (frozenset({"path", "content"}), "edit", "path"),
    (frozenset({"pattern"}), "search", "pattern"),
    (frozenset({"url"}), "fetch", "url"),
    (frozenset({"file_path"}), "other", "file_path"),
    (frozenset({"path"}), "other", "path"),
)
"""Arguments that say what is acted on: keys, the kind they make likely, and the key that names it.

A path alone does not tell what the tool does: it may read the file or delete it.
"""
VERBS: Final[Mapping[ToolKind, str]] = {"execute": "Run a command"}
"""For every other kind the tool's own name is the verb."""


def headline(request: ApprovalRequest, escape: Escape) -> Headline:
    """Return the action in a line. An unknown tool is named, and its arguments appear below."""
    arguments, tool = request.arguments, clip(escape(request.tool), LONGEST_HEADLINE)
    for keys, kind, key in SHAPES:
        if keys <= arguments.keys() and isinstance(arguments[key], str):
            lines = arguments[key].split("\n")
            first = next(filter(str.strip, lines), "")
            what = clip(escape(first), LONGEST_HEADLINE) + (" …" if len(lines) > 1 else "")
            return Headline(kind=kind, verb=VERBS.get(kind, tool), what=what)
    return Headline(kind="other", verb="Use", what=tool)


def views(request: ApprovalRequest, escape: Escape) -> tuple[ActionView, ...]:
    """Return every way to look at the action, the most telling first; the last is always `Raw`: the exact arguments.

    Raw is ASCII and otherwise as JSON writes it, so odd characters appear there in another form. Raises
    `ApprovalMismatch` for a request whose arguments do not have its digest.
    """
    check_digest(request)
    arguments: Any = thaw(freeze(dict(request.arguments)))
    return (*_main_views(arguments, escape), _json("Raw", arguments))


def _main_views(arguments: Mapping[str, Any], escape: Escape) -> Iterator[ActionView]:
    """Yield the view that people read first, then the arguments that this view does not tell."""
    changed = change(arguments)
    if changed is not None:
        lines = tuple(piece for line in changed.lines for piece in _pieces(line, escape))
        size = sum(len(line.text) for line in changed.lines)
        yield ActionView(name="Diff", lines=lines, added=changed.added, removed=changed.removed, characters=size)
        if not changed.whole:
            yield ActionView(name="Result", text=escape(changed.result), characters=len(changed.result))
        used: Collection[str] = changed.used
    else:
        key = next((key for key in WHOLE_ACTIONS if isinstance(arguments.get(key), str)), None)
        if key is None:
            text = json.dumps(arguments, ensure_ascii=False, indent=2)
            yield ActionView(name="Arguments", text=escape(text), characters=len(text))
            return
        yield ActionView(name=WHOLE_ACTIONS[key], text=escape(arguments[key]), characters=len(arguments[key]))
        used = (key,)
    besides = {key: value for key, value in arguments.items() if key not in used and key != CLAIM}
    if besides:
        yield _json("Besides", besides)


def _json(name: str, value: object) -> ActionView:
    text = json.dumps(value, indent=2).replace("\x7f", "\\u007f")
    return ActionView(name=name, text=text, characters=len(text))


def _pieces(line: ChangeLine, escape: Escape) -> Iterator[ChangeLine]:
    first, *rest = PIECE.findall(escape(line.text)) or [""]
    yield evolve(line, text=first)
    for more in rest:
        yield ChangeLine(line.kind, None, None, more)


def agent_statement(request: ApprovalRequest, escape: Escape) -> str | None:
    """Return what the agent says about its own action. No check confirms it, so it stands apart from the action."""
    claim = request.arguments.get(CLAIM)
    return escape(claim) if isinstance(claim, str) and claim else None


# -- why, and for how long ---------------------------------------------------------------------------------------------


def reach(request: ApprovalRequest, escape: Escape, option: Option | None = None) -> GrantReach:
    """Return the reach of an "always" for this request, or of one option: a sentence for each grant that it makes."""
    if option is not None:
        request = replace(request, options=(option,), keep=None if option.session_only else request.keep)
    keep = request.keep
    ends = "With this session" if keep is None else f"After {_span(keep)}"
    if keep is not None and any(option.session_only for option in request.options):
        ends = f"With this session, or for this project after {_span(keep)}"
    keys = grant_keys(request) if keep is None else kept_keys(request)
    tools = ["tools"] if any(key.tool for key in keys) else []
    others = ["agents", *tools, "directories", *(["sessions"] if keep is None else [])]
    return GrantReach(
        covers=tuple(reach_of(key, escape) for key in keys),
        leaves=f"Other {', '.join(others[:-1])} or {others[-1]}; other questions; another version of a hook that asks.",
        ends=f"{ends}, or when it is revoked. A deny from any hook or rule still wins.",
    )


def would_have_covered(request: ApprovalRequest, earlier: Iterable[ApprovalRequest]) -> str | None:
    """Return the number of other requests of this session that an "allow always" for this one covers, in words.

    None if there is no such option.
    """
    always = next((option for option in offered(request) if option.kind == "allow_always"), None)
    if always is None:
        return None
    decision = Decision(option=always.id, by="", channel="")
    grants = make_grants(request, decision, request.created)
    others = (one for one in earlier if one.id != request.id and one.session == request.session)
    count = sum(found is not None and found[0] == "allow" for found in (match_grants(one, grants) for one in others))
    return f"Would have covered {count:,} {'call' if count == 1 else 'calls'} of this session so far."


def reach_of(key: GrantKey, escape: Escape) -> str:
    """Return a sentence about the reach of a grant."""
    tool, agent, cwd = (escape(part) for part in (key.tool or "call", key.agent, key.cwd))
    where = f"by {agent}" + (f" in {cwd}" if cwd else "") + (" in every session" if key.session is None else "")
    kind, text = key.scope.partition(":")[0], scope_text(key, escape)
    if kind == "action":
        return f"{tool} {where}, {text} and nothing else."
    if kind == "key":
        return f"Any {tool} {where} for {text}, with no impact beyond those of this call."
    return f"Any {tool} {where} that raises {text}."


def scope_text(key: GrantKey, escape: Escape) -> str:
    """Return the scope of a grant in words."""
    kind, _colon, value = key.scope.partition(":")
    if kind == "action":
        return f"exactly these arguments ({value[:12]})"
    return f"“{escape(value)}”" if kind == "key" else f"the question “{escape(value)}”"


def _span(seconds: float) -> str:
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = round(seconds / size)
            return f"{count} {name}{'s' * (count > 1)}"
    return f"{round(seconds)} seconds"


# -- oddities ---------------------------------------------------------------------------------------------------------

MOST_ODDITIES: Final = 20
"""Oddities named of one kind; an action with more is hostile enough to be denied unread."""
LETTERS: Final = re.compile(r"[^\W\d_]+")
BLANKS: Final = re.compile(r"⟨([\d,]+ [^⟩]*)⟩")
"""A run of blanks as screens show it. No other text has these brackets around a number."""
REORDER: Final = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
ALPHABETS: Final = {
    "Latin": re.compile("[A-Za-z]"),
    "Greek": re.compile("[\u0370-\u03ff]"),
    "Cyrillic": re.compile("[\u0400-\u052f]"),
}


@frozen
class Oddity:
    """One thing to look at twice. `mark` is its form in the text, escaped for its screen; it may be empty."""

    what: str
    mark: str
    note: str

    def sentence(self, shown: str) -> str:
        """Return the oddity in a line, to stand beside `shown`. A mark that `shown` lacks may be part of a secret."""
        return f"{', '.join(filter(None, (self.what, self.mark if self.mark in shown else '')))}. {self.note}"


def oddities(value: object, escape: Escape) -> tuple[Oddity, ...]:
    """Return everything odd in the texts of some arguments, names included."""
    texts = list(_texts(value))
    return (*_unseen(texts, escape), *_runs(texts, escape), *_leftward(texts), *_look_alikes(texts, escape))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _unseen(texts: Sequence[str], escape: Escape) -> Iterator[Oddity]:
    counts: Counter[str] = Counter()
    for text in texts:
        for character in invisible(text):
            counts[character] += text.count(character)
    for character, count in sorted(counts.items())[:MOST_ODDITIES]:
        name = unicodedata.name(character, "").capitalize() or "Control character"
        yield Oddity(name if count == 1 else f"{name}, {count:,} times", escape(character), _effect(character))


def _effect(character: str) -> str:
    if unicodedata.bidirectional(character) in REORDER:
        return "It would have changed the order of what you read."
    if character in "\r\x1b\x08\x9b":
        return "In a terminal it would have moved the cursor."
    return "You would not have seen it."


def _runs(texts: Sequence[str], escape: Escape) -> Iterator[Oddity]:
    runs = Counter(run for text in texts for run in BLANKS.findall(escape(text)))
    for run, count in list(runs.items())[:MOST_ODDITIES]:
        times = "" if count == 1 else f", {count:,} times"
        yield Oddity(f"{run} in a row{times}", "", "Shown as a count. They would have pushed the rest out of sight.")


def _leftward(texts: Sequence[str]) -> Iterator[Oddity]:
    if any(unicodedata.bidirectional(character) in ("R", "AL") for text in texts for character in set(text)):
        yield Oddity("Letters of a right-to-left script", "", "Shown in the order in which they stand, left to right.")


def _look_alikes(texts: Sequence[str], escape: Escape) -> Iterator[Oddity]:
    """Yield the words that mix alphabets whose letters look the same."""
    words = {word for text in texts if not text.isascii() for word in LETTERS.findall(text) if not word.isascii()}
    mixed = [word for word in sorted(words) if len(_alphabets(word)) > 1]
    for word in mixed[:MOST_ODDITIES]:
        yield Oddity("Letters that look alike", escape(word), f"One word of {' and '.join(_alphabets(word))} letters.")


def _alphabets(word: str) -> list[str]:
    return [name for name, letters in ALPHABETS.items() if letters.search(word)]


# -- requests that are answered together ------------------------------------------------------------------------------

MOST_TOGETHER: Final = 20
"""Requests that are answered together, at most."""
LONGEST_LINE: Final = 512
"""Bytes of arguments, as canonical JSON, that one line of a group shows."""


@frozen
class GroupMember:
    """A request as a member of a group: the key of the group, and the whole action in a line."""

    group: str
    line: str


def group_member(request: ApprovalRequest, escape: Callable[[str], str]) -> GroupMember | None:
    """Return a request as a member of its group, or None if it is answered alone.

    A request is answered alone if its risk is not low, silence allows it, its arguments do not fit into a line, or
    something in them does not look like what it is.
    """
    arguments = dict(request.arguments)
    whole = freeze(arguments)
    if request.risk != "low" or request.default != "deny" or len(whole) > LONGEST_LINE:
        return None
    if oddities(arguments, escape):
        return None
    telling = [value for name, value in arguments.items() if name != CLAIM]
    text = telling[0] if len(telling) == 1 and isinstance(telling[0], str) else whole.decode("ascii")
    return GroupMember(_group_key(request), escape(text).replace("\n", "\\u{0A}"))


def alike_requests(request: ApprovalRequest, others: Iterable[ApprovalRequest]) -> tuple[ApprovalRequest, ...]:
    """Return those of other requests that can be answered together with this one."""
    member = group_member(request, for_terminal)
    if member is None:
        return ()
    found = ((one, group_member(one, for_terminal)) for one in others)
    return tuple(one for one, other in found if other and other.group == member.group)[: MOST_TOGETHER - 1]


def _group_key(request: ApprovalRequest) -> str:
    """Return the digest of all that members of a group have in common: everything but their arguments.

    Places of impacts count, except those of kinds whose meaning bounds the harm.
    """
    impacts = {(one.kind, *(("", "") if one.kind in BOUNDED else (one.place, one.reason))) for one in request.impacts}
    common = [
        [request.tenant, request.session, request.agent, request.event, request.tool, request.cwd, request.project],
        [[one.hook, one.version, one.prompt, one.key, one.scope] for one in request.questions],
        [[one.id, one.label, one.kind] for one in request.options],
        sorted(impacts),
    ]
    return hashlib.sha256(json.dumps(common).encode()).hexdigest()[:16]
