"""What hooks injected, at its place among an SDK's own messages.

The SDK keeps the conversation; what hooks inject is in the context of the session. A text stands where it came: behind
the messages there were at that time, in this and in every later model call.

An SDK may shorten the conversation, by a summary for one. A text keeps to the message it came behind. Without that
message it goes to the beginning, because anywhere else it might part a tool call from its result, which providers
refuse.

What keeps an SDK's run from going on, as the error that ends it.

What an adapter has to tidy up when its session ends.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from attrs import frozen

from amplifier_hooks.errors import HookAbortError, HookUsageError
from amplifier_hooks.events import SESSION_END
from amplifier_hooks.provenance import is_injected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from amplifier_hooks.result import Role
    from amplifier_hooks.session.coordinator import SessionCoordinator, Turn
    from amplifier_hooks.session.model_call import ModelOutcome


M = TypeVar("M")


@frozen(eq=False)
class PositionedText(Generic[M]):
    """A text, and where it came."""

    text: M
    position: int
    """How many messages there were."""
    behind: tuple[M, ...]
    """The last two of them."""

    def position_in(self, messages: Sequence[M]) -> int:
        """How many of these messages it stands behind."""
        if not self.behind or message_at(messages, self.position - 1) == self.behind[-1]:
            return self.position
        last = next((index for index in reversed(range(len(messages))) if messages[index] == self.behind[-1]), None)
        if last is not None:
            return last + 1
        changed_in_place = (
            message_at(messages, self.position - 1) is not None
            and message_at(messages, self.position - 2) == self.behind[0]
        )
        return self.position if changed_in_place else 0


class Texts(Generic[M]):
    """The texts in one session's context. `make` puts one into the words of the SDK.

    The context has to keep messages as dicts with `role`, `content` and `metadata`, like a session's own does.
    """

    def __init__(self, session: SessionCoordinator, make: Callable[[Role, str], M]) -> None:
        self._session = session
        self._make = make
        self._seen = 0
        self._positioned: list[PositionedText[M]] = []

    async def new(self) -> list[M]:
        """Those that nobody has taken yet, in order."""
        messages = self._session.context.get_messages()
        every: Sequence[Mapping[str, Any]] = await messages if inspect.isawaitable(messages) else messages
        fresh, self._seen = every[self._seen :], len(every)
        return [self._make(one["role"], one["content"]) for one in fresh if is_injected(one["metadata"])]

    async def merge_into(self, messages: Sequence[M], *, kept: bool = False) -> list[M]:
        """The SDK's messages with all texts, those that came since the last time at the end.

        With `kept`, the SDK may have kept what it was given before; what is there is not put there again.
        """
        self._add_texts(await self.new(), messages)
        whole: list[M] = []
        begin = 0
        for one in self._positioned:
            if kept and one.text in messages:
                continue
            place = max(begin, one.position_in(messages))
            whole += messages[begin:place]
            whole.append(one.text)
            begin = place
        return whole + list(messages[begin:])

    async def ready(self, messages: Sequence[Any], given: Sequence[M]) -> list[M]:
        """What a model call is made with, once its hooks have had their say: all of it in the words of the SDK.

        `given` are the SDK's own messages, behind which the texts that came meanwhile stand from now on.
        """
        late = await self.new()
        self._add_texts(late, given)
        return [self._make(one["role"], one["content"]) if is_ours(one) else one for one in messages] + late

    def _add_texts(self, texts: Sequence[M], messages: Sequence[M]) -> None:
        """From now on these stand behind those messages."""
        self._positioned += [PositionedText(text, len(messages), tuple(messages[-2:])) for text in texts]


def message_at(messages: Sequence[M], index: int) -> M | None:
    """The message there, if there is one."""
    return messages[index] if 0 <= index < len(messages) else None


def is_ours(message: object) -> bool:
    """Whether a message is one that a hook injected, in our words."""
    return isinstance(message, dict) and is_injected(message.get("metadata"))


def check_turn(turn: Turn) -> Turn:
    """The turn. Raises `HookAbortError` when a hook has denied its prompt."""
    if turn.denied:
        raise HookAbortError(turn.reason or "the prompt was denied", turn.outcome.denied_by or "")
    return turn


def answer_of(outcome: ModelOutcome) -> Any:
    """The model's answer. Raises the provider's own error, and `HookAbortError` when a hook has denied it."""
    if outcome.error is not None:
        raise outcome.error
    if outcome.denied:
        raise HookAbortError(outcome.reason or "the model call was denied", outcome.by or "")
    return outcome.value


def out_of_reach(tool: str, why: str, adapter: str) -> HookUsageError:
    """The error for a tool that runs without any hook being asked, and that the host has not named."""
    return HookUsageError(
        f"the tool {tool!r} is out of reach of hooks: {why}. "
        f"Name it in {adapter}(session, outside=[…]) to let agents use it all the same"
    )


def call_at_end(session: SessionCoordinator, adapter: str, tidy: Callable[[], Awaitable[Any]]) -> None:
    """Have this done once, when the session ends; its record is still open then.

    What it raises, and that it takes too long, is a failure of an observer: it keeps nothing from ending.
    """

    async def on_end(_event: str, data: Mapping[str, Any], _outcome: object) -> None:
        if data.get("session_id") == session.session_id:
            undo()
            await tidy()

    undo = session.hooks.observe(SESSION_END, on_end, name=f"{adapter}:{session.session_id}:end")
