"""How often a question has left a process and come back: a command that a hook ran asks the server, and so on.

Within a process the depth of an emit is counted by the registry. What goes on in another process is not seen from here,
so a command is told how far it is by a variable, and what speaks with the server passes that on.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from amplifier_hooks.errors import HookRefused

MOST_HOPS: Final = 4
HOPS_VARIABLE: Final = "AMPLIFIER_HOOKS_HOPS"
HOPS_HEADER: Final = "x-amplifier-hooks-hops"

HOPS: Final[ContextVar[int]] = ContextVar("amplifier_hooks_hops", default=0)


def next_hop() -> str:
    """What a command that is started now is told."""
    return str(HOPS.get() + 1)


def arrived(said: str | None) -> None:
    """Note how far the question is that came in with this; what is no number is none.

    Raises `HookRefused` when it has come back too often.
    """
    hops = int(said) if said and said.isascii() and said.isdigit() and len(said) <= len("1000") else 0
    if hops >= MOST_HOPS:
        raise HookRefused(f"hooks ask in a circle: this question has come back {hops} times through their commands")
    HOPS.set(hops)
