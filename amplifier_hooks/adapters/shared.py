"""Helpers of all adapters: injected texts among an SDK's messages, errors that end a run, and clean-up at the end.

The SDK keeps the conversation; the session's context keeps the texts that hooks inject. A text keeps its position
behind the messages that were there when it came, in this and in every later model call.

An SDK may shorten the conversation, for example by a summary. A text stays behind the message that it followed. Without
that message the text moves to the beginning, because in any other position it might separate a tool call from its
result, which providers refuse.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from attrs import frozen

from amplifier_hooks.admission.judge import frozen_or_none
from amplifier_hooks.errors import HookAbortError, HookUsageError
from amplifier_hooks.events import SESSION_END
from amplifier_hooks.provenance import is_injected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from amplifier_hooks.result import Role
    from amplifier_hooks.session.coordinator import SessionCoordinator, Turn
    from amplifier_hooks.session.model_call import ModelOutcome


HOSTED: Final = (
    "mcp_servers",  # Anthropic
    "container",
    "web_search_options",  # OpenAI, Perplexity
    "search_parameters",  # xAI
    "search_settings",  # Groq
    "connectors",  # Cohere
    "data_sources",  # Azure OpenAI
    "plugins",  # OpenRouter
    "enable_search",  # Qwen
    "google_search_retrieval",  # Gemini
    "code_execution",
)
"""Settings of models that give them tools of the provider, by any name but `tools`."""

NESTED: Final = ("extra_body", "model_kwargs", "kwargs", "additional_model_request_fields")
"""Settings that hold further settings."""

M = TypeVar("M")


@frozen(eq=False)
class PositionedText(Generic[M]):
    """A text, and the position at which it came."""

    text: M
    position: int
    """Number of messages before the text when it came."""
    behind: tuple[M, ...]
    """The last two of those messages."""

    def position_in(self, messages: Sequence[M]) -> int:
        """Return how many of these messages come before the text."""
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


class Copies(Generic[M]):
    """Copies of messages, for hooks. An object of the SDK stays as it was, whatever a hook does to its copy."""

    def __init__(self, given: Sequence[M]) -> None:
        self.shown = copy.deepcopy(list(given))
        self._originals = {id(one): original for one, original in zip(self.shown, given, strict=True)}

    def restore(self, messages: Sequence[Any]) -> list[Any]:
        """Return the messages with the SDK's own in place of the copies; those that a hook made stay."""
        return [self._originals.get(id(one), one) for one in messages]


class Texts(Generic[M]):
    """The texts in one session's context. `make` turns a text into a message of the SDK.

    The context has to keep messages as dicts with `role`, `content` and `metadata`, like a session's own context does.
    """

    def __init__(self, session: SessionCoordinator, make: Callable[[Role, str], M]) -> None:
        self._session = session
        self._make = make
        self._count = 0
        self._positions: list[PositionedText[M]] = []

    async def new(self) -> list[M]:
        """Return the texts that came since the last call, in order."""
        messages = self._session.context.get_messages()
        every: Sequence[Mapping[str, Any]] = await messages if inspect.isawaitable(messages) else messages
        fresh, self._count = every[self._count :], len(every)
        return [self._make(one["role"], one["content"]) for one in fresh if is_injected(one["metadata"])]

    async def merge_into(self, messages: Sequence[M], *, skip_present: bool = False) -> list[M]:
        """Return the SDK's messages with all texts; texts that came since the last time are at the end.

        With `skip_present`, a text that is still among the messages is not added again: the SDK may have kept it from
        an earlier call.
        """
        self._add_texts(await self.new(), messages)
        whole: list[M] = []
        begin = 0
        for one in self._positions:
            if skip_present and one.text in messages:
                continue
            place = max(begin, one.position_in(messages))
            whole += messages[begin:place]
            whole.append(one.text)
            begin = place
        return whole + list(messages[begin:])

    async def ready(self, messages: Sequence[Any], own: Sequence[M]) -> list[M]:
        """Return the messages of a model call after its hooks have run, all in the format of the SDK.

        `own` are the SDK's own messages; texts that came meanwhile keep their position behind them from now on.
        """
        late = await self.new()
        self._add_texts(late, own)
        return [self._make(one["role"], one["content"]) if is_ours(one) else one for one in messages] + late

    async def call_model(
        self,
        handler: Callable[[list[M]], Awaitable[Any]],
        own: Sequence[M],
        given: Sequence[M],
        *,
        model: str,
        tool_calls: Callable[[Any], Sequence[Any]],
    ) -> Any:
        """Call a model inside the session's `call_model`, and return its answer as the hooks left it.

        `own` are the SDK's messages, and `given` the same with the texts among them. Hooks and middleware get copies of
        messages and answer: a change counts if it comes as a result. Raise the errors of `answer_of`.
        """
        copies: Copies[M] = Copies(given)
        answers: list[Any] = []

        async def call(messages: list[Any]) -> Any:
            answer = await handler(await self.ready(copies.restore(messages), own))
            answers[:] = answer, copy.deepcopy(answer)
            return answers[1]

        outcome = await self._session.call_model(call, copies.shown, model=model, tool_calls=tool_calls)
        value = answer_of(outcome)
        return answers[0] if value is answers[1] else value

    def _add_texts(self, texts: Sequence[M], messages: Sequence[M]) -> None:
        """Give the texts their position behind `messages`."""
        self._positions += [PositionedText(text, len(messages), tuple(messages[-2:])) for text in texts]


def plain_message(role: Role, text: str) -> dict[str, Any]:
    """Return a message in the format that several SDKs share."""
    return {"role": role, "content": text}


def message_at(messages: Sequence[M], index: int) -> M | None:
    """Return the message at `index`, or None if there is none."""
    return messages[index] if 0 <= index < len(messages) else None


def is_ours(message: object) -> bool:
    """Return True if a hook injected the message, and it is still in the session's format."""
    return isinstance(message, dict) and is_injected(message.get("metadata"))


def as_bytes(arguments: str | None) -> bytes:
    """Return a model's own JSON for `call_tool`, which reads it strictly. A call without arguments has an object."""
    return (arguments or "{}").encode("utf-8", "surrogatepass")


def is_readable(arguments: bytes) -> bool:
    """Return True if a model's own JSON may be the input of a call; `call_tool` refuses any other."""
    return frozen_or_none(arguments) is not None


def check_turn(turn: Turn) -> Turn:
    """Return the turn. Raise `HookAbortError` if a hook has denied its prompt."""
    if turn.denied:
        raise HookAbortError(turn.reason or "the prompt was denied", turn.outcome.denied_by or "")
    return turn


def answer_of(outcome: ModelOutcome) -> Any:
    """Return the model's answer.

    Raise the provider's own error, or `HookAbortError` if a hook has denied the answer.
    """
    if outcome.error is not None:
        raise outcome.error
    if outcome.denied:
        raise HookAbortError(outcome.reason or "the model call was denied", outcome.by or "")
    return outcome.value


def with_nested(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return settings, and all settings inside of them."""
    inside = (settings.get(name) for name in NESTED)
    return [settings, *(further for one in inside if isinstance(one, Mapping) for further in with_nested(one))]


def hosted_tools(settings: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings that give a model tools of its provider, nested settings included.

    An empty object counts, because providers take it for a tool without options.
    """
    return [name for one in with_nested(settings) for name in HOSTED if one.get(name) not in (None, False, (), [])]


def check_reach(tool: str, why: str, adapter: str, outside: Collection[str]) -> None:
    """Raise `HookUsageError` for a tool that runs without a question to the hooks, unless the host has named it."""
    if tool not in outside:
        raise HookUsageError(
            f"the tool {tool!r} is out of reach of hooks: {why}. "
            f"Name it in {adapter}(session, outside=[…]) to let agents use it all the same"
        )


def call_at_end(session: SessionCoordinator, adapter: str, tidy: Callable[[], Awaitable[Any]]) -> None:
    """Call `tidy` once, when the session ends; the session's record is still open then.

    An error of `tidy`, or a timeout, is the failure of an observer: it does not keep the session from ending.
    """

    async def on_end(_event: str, data: Mapping[str, Any], _outcome: object) -> None:
        if data.get("session_id") == session.session_id:
            undo()
            await tidy()

    undo = session.hooks.observe(SESSION_END, on_end, name=f"{adapter}:{session.session_id}:end")
