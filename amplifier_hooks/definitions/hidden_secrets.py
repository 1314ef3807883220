"""Secrets in a config: what is shown in their place, and what becomes of that when it comes back. Pure.

Whoever may change a hook need not know its secrets, so what they were shown stands for them. Not so where the change
names another address: a secret is never sent to a place for which nobody has written it down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.text.secrets import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator


HIDDEN: Final = "(hidden)"
"""What is shown in the place of a secret."""

CARRIERS: Final = ("headers", "env")
"""Where keys stand under names of all sorts."""


def hidden(value: Any, name: str = "", within: str = "") -> Any:
    """A config, or a part of one, without its secrets; the name of a variable that holds one is none."""
    if value in (None, "", [], {}) or name.endswith("_env"):
        return value
    if is_secret_name(name) or within in CARRIERS:
        return HIDDEN
    if name == "url" and isinstance(value, str):
        address, mark, _ = value.partition("?")
        return f"{address}?{HIDDEN}" if mark else value
    if isinstance(value, dict):
        return {one: hidden(item, one, name) for one, item in value.items()}
    return [hidden(item) for item in value] if isinstance(value, list) else value


def kept(new: Any, old: Any) -> Any:
    """The config that was given; where that is what was shown in the place of a secret, the secret.

    With an address that the old one did not have, nothing is taken over, and what was shown stays as it is.
    """
    known = {*addresses(old), *addresses(hidden(old))}
    return _kept(new, old) if known.issuperset(addresses(new)) else new


def left_hidden(value: Any, place: str = "config") -> str | None:
    """Where something is said to be hidden that is not there; None if nothing is."""
    if isinstance(value, str):
        return place if value == HIDDEN or value.endswith(f"?{HIDDEN}") else None
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = (left_hidden(part, f"{place}.{name}") for name, part in parts)
    return next((spot for spot in found if spot is not None), None)


def addresses(value: Any) -> Iterator[str]:
    """Every text in it that says where to send something."""
    if isinstance(value, str):
        if "://" in value:
            yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from addresses(part)


def _kept(new: Any, old: Any, name: str = "", within: str = "") -> Any:
    if new == hidden(old, name, within):
        return old
    if not isinstance(new, dict) or not isinstance(old, dict):
        return new
    return {one: _kept(value, old.get(one), one, name) for one, value in new.items()}
