"""The form behind a card: a person's choice so far, and the effect of each key. Pure: the time is an argument.

    ┌ arming ┐   a key that comes in here is lost, and begins it anew
    card ─ letter or arrow ─▶ another answer is selected ─ Enter ─▶ it is given
      ├ m ▶ message ─ Enter ─▶ denied, with the message       Enter counts when no other key came right before it:
      ├ e ▶ edit ─ Ctrl-S ─▶ changes ─ Enter ─▶ allowed, edited   a finger is slower than a paste
      ├ l ▶ later: the card goes, nothing is decided    only where the question can come back
      └ v ▶ exact arguments

Nothing allows unless it was selected here, on this card, by a key of its own. A person who has not read to the end, or
is asked about an action of high risk, has to type four characters of the digest too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import evolve, field, frozen

from amplifier_hooks.act import freeze
from amplifier_hooks.approvals import KNOWN_LABELS, answered_digest, offered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from amplifier_hooks.ports import ApprovalRequest, Option, OptionKind


Page = Literal["action", "exact", "reach", "message", "edit", "changes", "group"]
Does = Literal["choose", "message", "edit", "later"]

ARMING: Final = 0.5
"""Seconds in which no key counts: after the card appeared, after it came back, after a key that was lost."""
PAUSE: Final = 0.2
"""Seconds between any key and an Enter that counts."""
CODE: Final = 4
"""Characters of the digest to type where a key is not enough."""
MESSAGE: Final = 2_000
"""Characters that a message may have."""

OPENS: Final[Mapping[Does, Page]] = {"message": "message", "edit": "edit"}
"""Actions that open a page of their own."""
KINDS: Final[Mapping[OptionKind, tuple[str, str]]] = {
    "reject_once": ("d", "deny"),
    "reject_always": ("n", "deny always"),
    "allow_once": ("a", "allow once"),
    "allow_always": ("w", "allow always"),
}
"""The letter and the name of each kind, in the order of the card. The name stands beside an unknown label."""


EVERY: Final[Mapping[str, tuple[str, str]]] = {"d": ("x", "Deny all {count}"), "a": ("b", "Allow all {count}")}
"""Letters and labels of the verbs for a group, by the letter of the verb for one request."""


@frozen
class Chosen:
    """A person's answer: an option that was offered, with a message for the model, or with edited arguments."""

    option: Option
    message: str | None = None
    arguments: Mapping[str, Any] | None = None
    together: tuple[ApprovalRequest, ...] = ()
    """Alike requests that were shown with this one, and get the same answer."""


@frozen
class WaitingQuestion:
    """Another question that waits for the person at this terminal, and its end."""

    request: ApprovalRequest
    until: datetime


@frozen
class Later:
    """The person looked, and left the question open."""


@frozen
class Verb:
    """One thing that can be done with the card, and its letter."""

    letter: str
    label: str
    does: Does = "choose"
    option: Option | None = None
    every: bool = False
    """True if the verb answers all requests of the group."""

    @property
    def allows(self) -> bool:
        """True if the verb lets the action happen."""
        return self.option is not None and self.option.allows

    @property
    def lasts(self) -> bool:
        """True if the verb answers more than this one request."""
        return self.option is not None and self.option.lasts


@frozen(kw_only=True)
class Form:
    """The state of one card. From `opens` on keys count, from `enters` on Enter counts."""

    request: ApprovalRequest
    offered: tuple[Verb, ...]
    opens: float
    enters: float
    page: Page = "action"
    selected: int = 0
    code: str = ""
    note: str = ""
    message: str = ""
    arguments: Mapping[str, Any] | None = None
    top: int = 0
    rows: int = 1
    width: int = 0
    read: Mapping[Page, int] = field(factory=dict)
    """Number of lines of each page, from the first one on, that have been on screen at this width."""
    whole: frozenset[Page] = frozenset()
    """The pages of which every line has been on screen, at any width."""
    alike: tuple[ApprovalRequest, ...] = ()
    """Requests that can be answered together with this one."""
    fits: bool = False
    """True if the screen is large enough for reading."""

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """The possible answers on the current page."""
        if self.page != "changes":
            return (*self.offered, *_verbs_of_group(self.offered, len(self.alike) + 1))
        allow = next(verb.option for verb in self.offered if verb.allows and not verb.lasts)
        return (self.offered[0], Verb("a", "Allow edited", option=allow), Verb("e", "Edit again", "edit"))

    @property
    def verb(self) -> Verb:
        """The verb that Enter would confirm."""
        return self.verbs[self.selected]

    @property
    def digest(self) -> str:
        """The digest of the act that would run."""
        return answered_digest(self.request, self.arguments)

    @property
    def must_read(self) -> tuple[Page, ...]:
        """The pages that belong to the selected answer."""
        if self.page == "changes":
            return ("changes",)
        if self.verb.every:
            return ("action", "group")
        return ("action", "reach") if self.verb.lasts and self.verb.allows else ("action",)

    @property
    def unread(self) -> bool:
        """True if a part that belongs to the selected answer has not been on screen yet."""
        return not self.whole.issuperset(self.must_read)

    @property
    def wants_code(self) -> bool:
        """True if the selected answer takes characters of the digest."""
        if not self.verb.allows or not self.fits:
            return False
        high = self.request.risk == "high"
        alone = not self.verb.lasts and not self.verb.every and self.page != "changes"
        return high if not self.unread else not high and alone

    @property
    def asleep(self) -> str:
        """The obstacle to the selected answer; empty, if it can be given, or could with the code."""
        if not self.verb.allows:
            return ""
        if not self.fits:
            return "the screen is too small to read what would run"
        if self.message and self.page != "changes":
            return "there is a message that would be lost; m shows it"
        if self.unread and not self.wants_code:
            return "read on first: PgDn"
        return ""

    def with_alike(self, alike: tuple[ApprovalRequest, ...]) -> Form:
        """Return the form with the alike requests that wait now. A group that is being answered stays as it is."""
        if self.verb.every or alike == self.alike:
            return self
        return evolve(self, alike=alike, whole=self.whole - {"group"}, read={**self.read, "group": 0})

    def after_drawing(self, *, width: int, rows: int, length: int, fits: bool) -> Form:
        """Return the form after so many lines of the page, from its top on, have been on screen.

        Another width makes other lines of a text, so reading begins again, except for pages that were read whole.
        """
        read = dict(self.read) if width == self.width else {}
        top = max(0, min(self.top, read.get(self.page, 0), length - rows))
        if fits:
            read[self.page] = max(read.get(self.page, 0), min(top + rows, length))
        whole = self.whole | {self.page} if fits and read.get(self.page, 0) >= length else self.whole
        return evolve(self, width=width, rows=rows, read=read, whole=whole, top=top, fits=fits)

    def is_armed(self, now: float) -> bool:
        """Return True if keys count."""
        return now >= self.opens

    def is_ready(self, now: float) -> bool:
        """Return True if Enter counts."""
        return now >= max(self.opens, self.enters)


def begin(request: ApprovalRequest, now: float, *, may_wait: bool = False) -> Form:
    """Return a fresh card, with a refusal selected; the request has to offer one. `may_wait` adds Later."""
    offered = (*verbs_of(request), *([Verb("l", "Later", "later")] if may_wait else ()))
    return Form(request=request, offered=offered, opens=now + ARMING, enters=now + ARMING)


def rearm(form: Form, now: float) -> Form:
    """Return the form after an interruption: a refusal is selected again, and nothing counts for a moment."""
    page: Page = "changes" if form.page == "changes" else "action"
    return evolve(form, selected=0, code="", page=page, opens=now + ARMING, enters=now + ARMING)


def verbs_of(request: ApprovalRequest) -> tuple[Verb, ...]:
    """Return the refusals first, then the verbs that allow; a high risk has no "always"."""
    ordered = sorted(offered(request), key=lambda option: tuple(KINDS).index(option.kind))
    letters: set[str] = set()
    found = [Verb(_letter(KINDS[option.kind][0], letters), _label(option), option=option) for option in ordered]
    refusals = [verb for verb in found if not verb.allows]
    allowing = [verb for verb in found if verb.allows]
    message = [Verb("m", "Deny with message", "message")] if refusals else []
    edit = [Verb("e", "Edit", "edit")] if any(not verb.lasts for verb in allowing) else []
    return (*refusals[:1], *message, *refusals[1:], *allowing, *edit)


def _verbs_of_group(offered: tuple[Verb, ...], count: int) -> Iterator[Verb]:
    """Yield the verbs that answer every request of a group, in place of those that answer one of them once."""
    for verb in offered if count > 1 else ():
        if verb.option is not None and not verb.lasts and verb.letter in EVERY:
            letter, label = EVERY[verb.letter]
            yield Verb(letter, label.format(count=count), option=verb.option, every=True)


def code_of(digest: str) -> str:
    """Return the characters of a digest that a person types to confirm an action."""
    return digest[:CODE].upper()


def _letter(wanted: str, taken: set[str]) -> str:
    letter: str = next(sign for sign in (wanted, *"123456789", "?") if sign not in taken)
    taken.add(letter)
    return letter


def _label(option: Option) -> str:
    label = option.label.strip()
    return label if KNOWN_LABELS.get(label.casefold()) == option.kind else f"{label} ({KINDS[option.kind][1]})"


# -- written text ------------------------------------------------------------------------------------------------------


def refuse_with(form: Form, message: str) -> Chosen:
    """Return a refusal with a message for the model; without a message, a plain refusal."""
    return _refuse(evolve(form, message=message))


def keep_message(form: Form, message: str, now: float) -> Form:
    """Return from the message, and keep it."""
    return evolve(_back(form, now), message=message)


def change_arguments(form: Form, arguments: Mapping[str, Any], now: float) -> Form:
    """Show what the edited arguments change; if that is nothing, return to the card."""
    back = evolve(_back(form, now), whole=form.whole - {"changes"}, read={**form.read, "changes": 0})
    if freeze(dict(arguments)) == freeze(dict(form.request.arguments)):
        return evolve(back, note="nothing was changed")
    return _to(evolve(back, arguments=arguments), "changes", now)


# -- keys --------------------------------------------------------------------------------------------------------------


def press(form: Form, key: str, now: float) -> Form | Chosen | Later:
    """Return the form, or the answer, after a key.

    Keys have names (`enter`, `left`, `pagedown`) or are their character.
    """
    if key == "interrupt":
        return _refuse(form)
    if not form.is_armed(now):
        return rearm(form, now)
    if key == "paste" or (key == "enter" and not form.is_ready(now)):
        return evolve(rearm(form, now), note="too quick" if key == "enter" else "pasted text is no answer")
    form = evolve(form, note="")
    if key == "enter":
        return _confirm(form, now) if form.fits else _refuse(form)
    if key == "escape" and form.page == "action" and form.selected == 0:
        return _refuse(form)
    pressed = KEYS[key](form, now) if key in KEYS else _character(form, key, now)
    return evolve(pressed, enters=max(pressed.enters, now + PAUSE))


def _confirm(form: Form, now: float) -> Form | Chosen | Later:
    verb = form.verb
    if form.page == "exact":
        return _to(form, "action", now)
    if form.asleep:
        return form
    if form.wants_code and form.code.upper() != code_of(form.digest):
        return evolve(form, code="", note="not that")
    if verb.option is None:
        return _to(form, OPENS[verb.does], now) if verb.does in OPENS else Later()
    if verb.allows or verb.every:
        arguments = form.arguments if form.page == "changes" else None
        return Chosen(verb.option, arguments=arguments, together=form.alike if verb.every else ())
    return Chosen(verb.option, message=form.message.strip() or None)


def _refuse(form: Form) -> Chosen:
    refusal = next(verb.option for verb in form.offered if verb.option is not None and not verb.allows)
    return Chosen(refusal, message=form.message.strip() or None)


def _to(form: Form, page: Page, now: float) -> Form:
    """Turn to another page. It is another thing to look at, so Enter waits for as long as it did for the card."""
    if page == form.page:
        return form
    return evolve(form, page=page, top=0, enters=now + ARMING)


def _select(form: Form, index: int, now: float) -> Form:
    form = evolve(form, selected=index % len(form.verbs), code="")
    if form.page == "changes":
        return form
    if form.verb.lasts:  # its reach is another one than that of the "always" before
        page: Page = "action" if form.page == "reach" else form.page
        form = evolve(form, page=page, whole=form.whole - {"reach"}, read={**form.read, "reach": 0})
    return _to(form, "group" if form.verb.every else "reach" if form.verb.lasts else "action", now)


def _step(by: int) -> Callable[[Form, float], Form]:
    return lambda form, now: _select(form, form.selected + by, now)


def _scroll(pages: int, lines: int = 0) -> Callable[[Form, float], Form]:
    """Return a scroll step. It never goes past the lines that follow those already on screen: nothing is skipped."""

    def scroll(form: Form, _now: float) -> Form:
        top = form.top + pages * max(1, form.rows - 1) + lines
        return evolve(form, top=max(0, min(top, form.read.get(form.page, 0))))

    return scroll


def _back(form: Form, now: float) -> Form:
    return _to(evolve(form, selected=0, code="", arguments=None), "action", now)


def _erase(form: Form, _now: float) -> Form:
    return evolve(form, code=form.code[:-1])


def _character(form: Form, key: str, now: float) -> Form:
    if len(key) != 1:
        return form
    if form.wants_code and key in "0123456789abcdefABCDEF":
        return evolve(form, code=(form.code + key.upper())[-CODE:])
    if key == "v":
        return _to(form, "action" if form.page == "exact" else "exact", now)
    for index, verb in enumerate(form.verbs):
        if verb.letter == key.casefold():
            selected = _select(form, index, now)
            page = OPENS.get(verb.does)
            return selected if page is None else _to(selected, page, now)
    return form


FAR: Final = 1_000_000
KEYS: Final[Mapping[str, Callable[[Form, float], Form]]] = {
    "left": _step(-1),
    "right": _step(1),
    "tab": _step(1),
    "back-tab": _step(-1),
    "up": _scroll(0, -1),
    "down": _scroll(0, 1),
    "pageup": _scroll(-1),
    "pagedown": _scroll(1),
    " ": _scroll(1),
    "home": _scroll(-FAR),
    "end": _scroll(FAR),
    "backspace": _erase,
    "escape": _back,
}
