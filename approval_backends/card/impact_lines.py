"""The impacts of a call as sentences for a card, worst first: "deletes ~/photos, outside the project, 2,314 files".

Pure. Facts about this machine are an argument; `count_files` finds them out. Every place and reason passes through the
`escape` of the sink that will show it, once, here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import field, frozen

from amplifier_hooks.impacts import BOUNDED, MEANINGS
from amplifier_hooks.text.escape import clip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amplifier_hooks.impacts import Impact, ImpactKind
    from amplifier_hooks.ports import ApprovalRequest

    Escape = Callable[[str], str]


SENTENCES: Final[Mapping[ImpactKind, str]] = {
    "deletes_outside": "deletes {place}, outside the project",
    "network_sends": "sends data to {place}",
    "system": "changes this machine, or uses its highest rights: {place}",
    "service_writes": "changes a service: {place}",
    "deletes_many": "deletes many files of the project: {place}",
    "git_loses_work": "can lose work that git keeps: {place}",
    "reads_secret": "reads the secret {place}",
    "runs_unread": "runs code that is not read: {place}",
    "unreadable": "has a part that only a run can tell: {place}",
    "unknown_program": "runs {place}, a program that no table names",
    "git_publishes": "publishes with git: {place}",
    "service_updates": "creates or changes things in a service: {place}",
    "network_new": "connects to {place}, a host that the policy does not name",
    "installs_new": "installs {place}",
    "writes_guarded": "writes {place}, which configures or starts programs",
    "writes_outside": "writes {place}, outside the project",
    "environment": "changes which programs or libraries later commands load: {place}",
    "git_configures": "configures git: {place}",
    "process": "ends or changes other processes: {place}",
    "runs_project": "runs code of the project: {place}",
    "installs_manifest": "installs what the project's manifest names: {place}",
    "inline_code": "runs code that the command itself contains: {place}",
    "deletes_one": "deletes {place}, in the project",
    "writes_tree": "writes {place}, in the project",
    "deletes_generated": "deletes {place}, which programs can generate again",
    "writes_temporary": "writes {place}, a temporary place",
    "git_local": "changes the local git repository: {place}",
    "service_reads": "reads from a service: {place}",
    "network_known": "connects to {place}, which the policy trusts",
    "network_local": "connects to this machine: {place}",
    "reads": "reads {place}",
}
"""A sentence for each kind of impact, in the order of a card. Without a place, the kind's meaning stands instead."""

COUNTED: Final[frozenset[ImpactKind]] = frozenset(("deletes_outside", "deletes_many"))
"""Kinds whose sentence ends with the number of files."""
FEW: Final = 3
"""Places that a sentence about a bounded kind names."""
LONGEST: Final = 512
"""Bytes of a place or a reason in a sentence; the action below has all of it."""


@frozen
class FileCount:
    """The number of files below a place. `whole` is False if the count stopped early."""

    files: int
    whole: bool = True

    @property
    def text(self) -> str:
        """The number in words."""
        return f"{'' if self.whole else 'at least '}{self.files:,} {'file' if self.files == 1 else 'files'}"


@frozen
class CardFacts:
    """Facts beside a request: the home folder on the machine of the card, numbers of files there, other requests."""

    home: str = ""
    counts: Mapping[str, FileCount] = field(factory=dict)
    earlier: tuple[ApprovalRequest, ...] = ()
    """Requests of the session, to count those that an "always" would have covered."""


NO_FACTS: Final = CardFacts()


@frozen
class ImpactLine:
    """A sentence about one impact, or about all of a bounded kind. `bounded` if the meaning of the kind bounds harm."""

    text: str
    bounded: bool


def impact_lines(request: ApprovalRequest, escape: Escape, facts: CardFacts = NO_FACTS) -> tuple[ImpactLine, ...]:
    """Return every impact of a request in sentences, worst first. Only the places of bounded kinds are shortened."""
    reasons: dict[tuple[ImpactKind, str], list[str]] = {}
    for one in request.impacts:
        reasons.setdefault((one.kind, one.place), []).append(one.reason)
    secrets = [one for one in request.impacts if one.kind == "reads_secret" and one.place]
    found: list[ImpactLine] = []
    for kind in SENTENCES:
        places = {place: why for (of, place), why in reasons.items() if of == kind}
        shown = {place: _line_text(_short(place, request, facts), escape) for place in places}
        if kind in BOUNDED and places:
            named = [text for place, text in shown.items() if place]
            more = f" and {len(named) - FEW:,} more" if len(named) > FEW else ""
            found.append(ImpactLine(_sentence(kind, f"{', '.join(named[:FEW])}{more}"), bounded=True))
            continue
        for place, why in places.items():
            text = _sentence(kind, shown[place])
            if kind == "network_sends" and secrets:
                text += f", and may send {_listed_secrets(secrets, request, escape, facts)}"
            if kind in COUNTED and place in facts.counts:
                text += f", {facts.counts[place].text}"
            because = [_line_text(one, escape) for one in dict.fromkeys(why) if one]
            found.append(ImpactLine(f"{text} ({', '.join(because)})" if because else text, bounded=False))
    return tuple(found)


def _sentence(kind: ImpactKind, place: str) -> str:
    return SENTENCES[kind].format(place=place) if place else MEANINGS[kind]


def _listed_secrets(secrets: Sequence[Impact], request: ApprovalRequest, escape: Escape, facts: CardFacts) -> str:
    return ", ".join(dict.fromkeys(_line_text(_short(one.place, request, facts), escape) for one in secrets))


def _short(place: str, request: ApprovalRequest, facts: CardFacts) -> str:
    """Return a place from the project, or from the home folder. The project itself keeps its whole name."""
    for folder, name in ((request.project or request.cwd, ""), (facts.home, "~/")):
        if len(folder) > 1 and place.startswith(f"{folder.rstrip('/')}/"):
            return name + place[len(folder.rstrip("/")) + 1 :]
    return place


def _line_text(text: str, escape: Escape) -> str:
    return clip(escape(text).replace("\n", "\\u{0A}"), LONGEST)
