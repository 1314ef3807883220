"""The labels of answers, and what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amplifier_hooks.ports import Option, OptionKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amplifier_hooks.result import Ask


KNOWN_LABELS: Final[Mapping[str, OptionKind]] = {
    "allow": "allow_once",
    "allow once": "allow_once",
    "approve": "allow_once",
    "approve once": "allow_once",
    "yes": "allow_once",
    "allow always": "allow_always",
    "always allow": "allow_always",
    "approve always": "allow_always",
    "deny": "reject_once",
    "deny once": "reject_once",
    "reject": "reject_once",
    "no": "reject_once",
    "deny always": "reject_always",
    "always deny": "reject_always",
    "reject always": "reject_always",
    "never": "reject_always",
}
"""What a plain label means. Any other is a rejection: a word nobody knows must not become a permit."""


def as_options(labels: Iterable[str]) -> tuple[Option, ...]:
    """Options from plain labels."""
    return tuple(
        Option(id=f"option-{number}", label=label, kind=KNOWN_LABELS.get(label.strip().casefold(), "reject_once"))
        for number, label in enumerate(labels, start=1)
    )


def with_refusal(labels: Iterable[str]) -> tuple[Option, ...]:
    """Options from plain labels, with one more where none of them refuses."""
    options = as_options(labels)
    if any(not option.allows for option in options):
        return options
    return as_options([*(option.label for option in options), "Deny"])


def offered(asks: Iterable[Ask]) -> tuple[Option, ...]:
    """The first hook's options, of the kinds that every other one offers too; a refusal is always among them."""
    first, *rest = (as_options(ask.options) for ask in asks)
    return with_refusal(option.label for option in first if all(option.kind in kinds_of(other) for other in rest))


def kinds_of(options: Iterable[Option]) -> set[OptionKind]:
    """The kinds there are among these options."""
    return {option.kind for option in options}
