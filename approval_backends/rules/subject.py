"""One call, as rules look at it, and what a condition says about it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from attrs import define, frozen

from amplifier_hooks.text.paths import Whereabouts

if TYPE_CHECKING:
    from amplifier_hooks.ports import ActionFacts


@frozen
class Finding:
    """Whether a condition is met, None if nobody can say, and why."""

    met: bool | None
    why: str


@define(eq=False)
class Subject:
    """One call, and what was found out about it so far."""

    facts: ActionFacts

    @cached_property
    def paths(self) -> Whereabouts:
        """Where the paths in its arguments lead."""
        return Whereabouts(self.facts.arguments, self.facts.cwd)

    def named(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The arguments of these names."""
        return self.paths.named(names)
