"""The card: a form, a size and a time in, the lines of the screen out. Pure.

The question stands above, the answers below, both always whole; between them stands the page, as much of it as fits.
On a screen too small for reading, the card only offers to refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen
from prompt_toolkit.utils import get_cwidth as width_of

from approval_backends.card.impact_lines import NO_FACTS
from approval_backends.terminal.card_pages import (
    Line,
    action_page,
    changes_page,
    clip_text,
    group_page,
    inline,
    lay_out,
    raw_page,
    reach_page,
    subject_text,
)
from approval_backends.terminal.form import code_of

if TYPE_CHECKING:
    from datetime import datetime

    from approval_backends.card.impact_lines import CardFacts
    from approval_backends.terminal.card_pages import Strip
    from approval_backends.terminal.form import Form, Verb


MIN_WIDTH: Final = 40
MIN_HEIGHT: Final = 12
"""Columns and lines of a screen on which a card can be read."""
NARROW: Final = 80
"""Columns below which words are short."""
ROOMY: Final = 20
"""Lines from which on one is left blank, and risk and agent have one each."""
FIELD: Final = {"message": 3, "edit": 100}
"""Lines of the input field, at most."""
MOST_LAYOUTS: Final = 8
"""Pages of one card whose layout is kept."""
EDGE: Final = 2
"""Cells of a line across the screen before its text."""
MINUTE: Final = 60
DAYS: Final = 48
"""Hours from which on the time is in days."""
SHORTER: Final = {
    "Allow always in this session": "Always: session",
    "Allow always in this project": "Always: project",
}
"""Labels that would be the same if they were cut."""
WRITING: Final = {"message": "for the model", "edit": "what would run instead"}
HINTS: Final = {
    "exact": "v goes back",
    "edit": "Ctrl-S shows what it changes · Esc goes back",
}

STYLES: Final = {
    "strong": "bold",
    "selected": "bold reverse",
    "dim": "#767676",
    "label": "#767676",
    "accent": "bold #00875f",
    "good": "#008700",
    "mid": "bold #af5f00",
    "high": "bold #af5f5f",
}
"""Colours that can be read on white and on black alike. Each repeats what a word or a sign says."""

RISKS: Final = {"low": ("○", "Low risk", ""), "medium": ("◆", "Medium risk", "mid"), "high": ("▲", "High risk", "high")}


@frozen(kw_only=True)
class Scene:
    """All facts that a card depends on beside the form: the screen, and the time."""

    width: int
    height: int
    left: float
    """Seconds until an answer does not count any more."""
    until: datetime | None = None
    """The end of the time, in the person's own time zone."""
    more: int = 0
    """Number of other questions that wait."""
    sooner: float | None = None
    """Seconds left of the other question that ends first, if it ends before this one."""
    armed: bool = True
    ready: bool = True

    @property
    def narrow(self) -> bool:
        """True if words have to be short."""
        return self.width < NARROW


@frozen
class Sheet:
    """The lines above and below an input field. Together they are as high as the screen."""

    above: tuple[Line, ...]
    field: int
    below: tuple[Line, ...]

    @property
    def lines(self) -> tuple[Line, ...]:
        """All lines above and below the field."""
        return (*self.above, *self.below)


class CardPages:
    """The lines of every page of one card, laid out once for each width: a page may have a megabyte."""

    def __init__(self, facts: CardFacts = NO_FACTS) -> None:
        self._facts = facts
        self._layouts: dict[object, tuple[Line, ...]] = {}

    def lines(self, form: Form, scene: Scene) -> tuple[Line, ...]:
        """Return the lines of the page that the person is on."""
        of = (form.page, form.verb.option) if form.page == "reach" else form.page
        alike = tuple(one.id for one in form.alike) if form.page == "group" else ()
        key = (of, scene.width, form.digest, alike)
        if key not in self._layouts:
            if len(self._layouts) >= MOST_LAYOUTS:
                self._layouts.clear()
            self._layouts[key] = lay_out(page_of(form, self._facts), scene.width)
        return self._layouts[key]


def draw(form: Form, scene: Scene, pages: CardPages) -> tuple[Form, Sheet]:
    """Return the sheet, and the form after that sheet has been on screen."""
    fits = scene.width >= MIN_WIDTH and scene.height >= MIN_HEIGHT
    if not fits:
        form = form.after_drawing(width=form.width, rows=1, length=1, fits=False)
        return form, Sheet((), 0, _small(form, scene))
    head = _head(form, scene)
    read = evolve(form, whole=form.whole | {form.page})  # with this sheet, perhaps; then other answers are awake
    room = scene.height - len(head) - max(len(_foot(state, scene, 0)) for state in (form, read))
    field = min(FIELD.get(form.page, 0), room)
    rows = room - field
    lines = pages.lines(form, scene) if rows else ()
    if form.page not in FIELD:
        form = form.after_drawing(width=scene.width, rows=rows, length=len(lines), fits=True)
    top = 0 if form.page in FIELD else form.top
    body = lines[top : top + rows]
    foot = _foot(form, scene, len(lines))
    blank: tuple[Line, ...] = ((),) * (scene.height - len(head) - len(body) - field - len(foot))
    return form, Sheet((*head, *body, *blank), field, foot)


def page_of(form: Form, facts: CardFacts = NO_FACTS) -> tuple[Strip, ...]:
    """Return the rows of the page that the person is on."""
    if form.page == "exact":
        return raw_page(form.request)
    if form.page == "reach" and form.verb.option is not None:
        return reach_page(form.request, form.verb.option, facts)
    if form.page == "group":
        return group_page((form.request, *form.alike))
    if form.page == "changes" and form.arguments is not None:
        return changes_page(form.request, form.arguments, form.digest)
    return action_page(form.request, facts)


def time_left(seconds: float) -> str:
    """Return the time left, to the second for as long as a person can follow it."""
    whole = max(0, int(seconds))
    hours, minutes = whole // 3600, whole // MINUTE % MINUTE
    if hours >= DAYS:
        return f"{hours // 24} days"
    return f"{hours} h {minutes:02}" if hours else f"{minutes}:{whole % MINUTE:02}"


# -- parts -------------------------------------------------------------------------------------------------------------


def _head(form: Form, scene: Scene) -> tuple[Line, ...]:
    request, width = form.request, scene.width
    sign, risk, style = RISKS[request.risk]
    style = f"class:{style}" if style else ""
    agent, cwd = inline(request.agent), inline(request.cwd)
    tool, text = inline(request.tool), subject_text(request)
    folder = f", in {cwd}" if cwd else ""
    why = inline(request.risk_reasons[0].reason) if request.risk_reasons else ""
    risk = f" {sign} {risk}"
    caller: tuple[Line, ...] = (
        ((style, risk), ("", clip_text(f": {why}" if why else "", width - width_of(risk)))),
        (("", clip_text(f" {agent} wants to run{folder}", width)),),
    )
    if scene.height < ROOMY:
        caller = (((style, risk), ("", clip_text(f" · {agent}{folder}", width - width_of(risk)))),)
    more = f"{scene.more:,} more waiting" if scene.more else ""
    if scene.sooner is not None and not scene.narrow:
        more += f", one ends in {time_left(scene.sooner)}"
    title = more if more and scene.narrow else " · ".join(filter(None, ("Approval", more)))
    hurry = "class:mid" if scene.left < MINUTE else "class:dim"
    verb = clip_text(f" {tool}", width if not text else max(width // 2, width - width_of(text) - 2))
    return (
        _rule(("class:strong", f" {title} "), (hurry, f" {time_left(scene.left)} left "), width),
        *caller,
        (("class:accent", verb), ("class:strong", clip_text(f"  {text}" if text else "", width - width_of(verb)))),
        *([()] if scene.height >= ROOMY else []),
    )


def _foot(form: Form, scene: Scene, length: int) -> tuple[Line, ...]:
    allowed = form.request.default == "allow"
    when = f" by {scene.until:%H:%M:%S}" if scene.until else ""
    silence = f" No answer{when}: " if scene.narrow else f" Without an answer{when}, this is "
    text = ("class:mid", "allowed.") if allowed else ("", "denied.")
    return (
        _status(form, scene, length),
        (("class:mid" if scene.left < MINUTE else "", silence), text),
        *_bar(form, scene),
        (("class:dim", clip_text(f" {_hint(form, scene)}", scene.width)),),
    )


def _status(form: Form, scene: Scene, length: int) -> Line:
    """Return the visible part of the page, and the digest of the action that would run."""
    digest = f" {'' if scene.narrow else 'digest '}{form.digest[:4]} {form.digest[4:8]} "
    first, last = form.top + 1, min(form.top + form.rows, length)
    if form.page in WRITING:
        text = WRITING[form.page]
    elif last - first + 1 >= length:
        text = "all shown"
    else:
        text = f"{'' if scene.narrow else 'lines '}{first:,}-{last:,} of {length:,}"
        text += ", all seen" if form.page in form.whole else " · PgDn" if scene.narrow else " · PgDn reads on"
    return _rule(("", f" {text} "), ("class:strong", digest), scene.width)


def _rule(left: tuple[str, str], right: tuple[str, str], width: int) -> Line:
    """Return a line across the screen with a text near both ends; the right end is never cut."""
    room = width - 2 * EDGE - width_of(right[1])
    text = clip_text(left[1], room)
    rest = "─" * (room - width_of(text))
    return (("class:dim", "─" * EDGE), (left[0], text), ("class:dim", rest), right, ("class:dim", "─" * EDGE))


def _bar(form: Form, scene: Scene) -> list[Line]:
    """Return the possible answers, in as many lines as they take."""
    bar: list[Line] = []
    line: Line = ()
    used = 0
    for index, verb in enumerate(form.verbs):
        selected = index == form.selected
        text = f" {'▸' if selected else ' '} {verb.letter} {_label(verb, form, scene)} "
        style = "class:selected" if selected else "" if _is_awake(verb, form) else "class:dim"
        if line and used + width_of(text) > scene.width:
            bar.append(line)
            line, used = (), 0
        used += width_of(text)
        line = (*line, (style, clip_text(text, scene.width)))
    return [*bar, line]


def _label(verb: Verb, form: Form, scene: Scene) -> str:
    short = "Message" if scene.narrow and verb.does == "message" else inline(verb.label)
    label = SHORTER.get(short) or clip_text(short, MIN_WIDTH // 2)
    if not _is_awake(verb, form):
        return "(read on)" if scene.narrow else f"{label} (read on)"
    return f"{label}…" if verb.lasts else label


def _is_awake(verb: Verb, form: Form) -> bool:
    return not verb.allows or ("changes" if form.page == "changes" else "action") in form.whole


def _hint(form: Form, scene: Scene) -> str:
    """Return the person's next step, or the obstacle; before it, the result of the last key."""
    if not scene.armed:
        return f"{form.note or 'new'}: keys do not count yet"
    return f"{form.note} · {_next(form, scene)}" if form.note else _next(form, scene)


def _next(form: Form, scene: Scene) -> str:
    if form.page in HINTS:
        return HINTS[form.page]
    if form.page == "message":
        return f"{'Enter denies' if scene.ready else 'a moment'} · Esc goes back and keeps it"
    enter = "Enter confirms" if scene.ready else "a moment"
    code = code_of(form.digest)
    if form.asleep or (form.wants_code and form.code != code):
        return form.asleep or f"{_unread(form, scene)}write {code}, Enter: {form.code}"
    if form.wants_code or scene.narrow or form.note:
        return f"{code if form.wants_code else 'letter chooses'} · {enter}"
    return f"←→ or letter chooses · {enter} · PgDn reads on · v exact · Ctrl-C denies"


def _unread(form: Form, scene: Scene) -> str:
    if not form.unread:
        return ""
    return "not all read: " if scene.narrow else "Not all of it was shown. To allow it, "


def _small(form: Form, scene: Scene) -> tuple[Line, ...]:
    """Return the lines of a screen too small for reading. The most important ones come last: they stay longest."""
    width = scene.width
    enter = "Enter" if scene.ready else "wait"
    allowed = "allowed" if form.request.default == "allow" else "denied"
    lines = (
        f" Too small: {width}x{scene.height}",
        f" enlarge to {MIN_WIDTH}x{MIN_HEIGHT}",
        f" {inline(form.request.tool)}",
        f" {form.digest[:4]} {form.digest[4:8]} · {time_left(scene.left)}",
        f" no answer: {allowed}",
        f" ▸ d Deny, {enter}",
    )
    return tuple((("", clip_text(line, width)),) for line in lines[-scene.height :])
