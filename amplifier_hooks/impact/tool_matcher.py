"""A matcher's spelling comes in; a test of tools goes out, by their names or by their kind in any agent program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amplifier_hooks.errors import InvalidRegistration
from amplifier_hooks.text.matching import Matcher, compile_matcher

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

KIND: Final = "kind:"


def compile_tool_matcher(spec: str | Iterable[str] | re.Pattern[str] | None) -> Matcher:
    """Return the matcher for a spelling of `text.matching`, in which `kind:write` stands for every tool that writes.

    Raises `InvalidRegistration` for an invalid spelling, and for a kind that no table has.
    """
    matcher = compile_matcher(spec)
    parts = matcher.spec.split("|")
    wanted = {part.removeprefix(KIND) for part in parts if part.startswith(KIND)}
    if not wanted or matcher.spec.startswith("re:"):
        return matcher
    from amplifier_hooks.impact.tools import kind_names, matched_kind

    if unknown := sorted(wanted - kind_names()):
        known = ", ".join(sorted(kind_names()))
        raise InvalidRegistration(f"matcher {matcher.spec!r} names the unknown kind {unknown[0]!r}; known are {known}")
    return Matcher(matcher.spec, lambda tool: matched_kind(tool) in wanted or matcher.matches(tool))
