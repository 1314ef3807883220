"""The contents of a card, whatever the screen: the action first and whole, then the questions, then the grants' reach.

Pure. Every foreign text passes through the `escape` of the sink that will show it, once, here.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import evolve, frozen

from amplifier_hooks.act import freeze, thaw
from amplifier_hooks.approvals import check_digest, grant_keys, kept_keys, make_grants, match_grants, offered
from amplifier_hooks.ports import Decision
from amplifier_hooks.text.escape import clip
from approval_backends.card.file_diff import ChangeLine, change

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from amplifier_hooks.ports import ApprovalRequest, GrantKey

    Escape = Callable[[str], str]


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
class HookQuestion:
    """A hook's question, in the hook's own words."""

    hook: str
    version: str
    prompt: str


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
            first, _newline, more = arguments[key].partition("\n")
            what = clip(escape(first), LONGEST_HEADLINE) + (" …" if more else "")
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


def hook_questions(request: ApprovalRequest, escape: Escape) -> tuple[HookQuestion, ...]:
    """Return the question of every hook that asks, in its own words."""
    return tuple(
        HookQuestion(hook=escape(question.hook), version=escape(question.version), prompt=escape(question.prompt))
        for question in request.questions
    )


def reach(request: ApprovalRequest, escape: Escape) -> GrantReach:
    """Return the reach of an "always" for this request: a sentence for each grant that it would make."""
    keep = request.keep
    ends = "With this session" if keep is None else f"After {_span(keep)}"
    if keep is not None and any(option.session_only for option in request.options):
        ends = f"With this session, or for this project after {_span(keep)}"
    others = "tools, directories or sessions" if keep is None else "tools or directories"
    keys = grant_keys(request) if keep is None else kept_keys(request)
    return GrantReach(
        covers=tuple(reach_of(key, escape) for key in keys),
        leaves=f"Other agents, {others}; other questions; another version of a hook that asks.",
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
    kind, _colon, value = key.scope.partition(":")
    tool, agent, cwd = (escape(part) for part in (key.tool, key.agent, key.cwd))
    where = f"by {agent}" + (f" in {cwd}" if cwd else "") + (" in every session" if key.session is None else "")
    if kind == "action":
        return f"{tool} {where}, exactly these arguments ({value[:12]}) and nothing else."
    if kind == "key":
        return f"Any {tool} {where} for “{escape(value)}”, with no impact beyond those of this call."
    return f"Any {tool} {where} that raises the question “{escape(value)}”."


def _span(seconds: float) -> str:
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = round(seconds / size)
            return f"{count} {name}{'s' * (count > 1)}"
    return f"{round(seconds)} seconds"
