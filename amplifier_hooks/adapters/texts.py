"""What hooks injected, at its place among an SDK's own messages.

The SDK keeps the conversation; what hooks inject is in the context of the session. A text stands where it came: behind
the messages there were at that time, in this and in every later model call.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from amplifier_hooks.provenance import is_injected

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amplifier_hooks.coordinator import SessionCoordinator
    from amplifier_hooks.result import Role

__all__ = ["Texts"]

M = TypeVar("M")


class Texts(Generic[M]):
    """The texts in one session's context. `make` puts one into the words of the SDK.

    The context has to keep messages as dicts with `role`, `content` and `metadata`, like a session's own does.
    """

    def __init__(self, session: SessionCoordinator, make: Callable[[Role, str], M]) -> None:
        self._session = session
        self._make = make
        self._seen = 0
        self._placed: list[tuple[int, M]] = []

    async def new(self) -> list[M]:
        """Those that nobody has taken yet, in order."""
        messages = self._session.context.get_messages()
        every: Sequence[Mapping[str, Any]] = await messages if inspect.isawaitable(messages) else messages
        fresh, self._seen = every[self._seen :], len(every)
        return [self._make(one["role"], one["content"]) for one in fresh if is_injected(one["metadata"])]

    async def among(self, messages: Sequence[M], *, kept: bool = False) -> list[M]:
        """The SDK's messages with all texts, those that came since the last time at the end.

        With `kept`, the SDK may have kept what it was given before; what is there is not put there again.
        """
        self._placed += [(len(messages), text) for text in await self.new()]
        whole: list[M] = []
        begin = 0
        for place, text in self._placed:
            if kept and text in messages:
                continue
            whole += messages[begin:place]
            whole.append(text)
            begin = max(begin, place)
        return whole + list(messages[begin:])

    async def ready(self, messages: Sequence[Any], given: Sequence[M]) -> list[M]:
        """What a model call is made with, once its hooks have had their say: all of it in the words of the SDK.

        `given` are the SDK's own messages, behind which the texts that came meanwhile stand from now on.
        """
        late = await self.new()
        self._placed += [(len(given), text) for text in late]
        return [self._make(one["role"], one["content"]) if ours(one) else one for one in messages] + late


def ours(message: object) -> bool:
    """Whether a message is one that a hook injected, in our words."""
    return isinstance(message, dict) and is_injected(message.get("metadata"))
