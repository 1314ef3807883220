"""What a model is to a chat: messages in, text and tool calls out, in pieces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, frozen

from amplifier_hooks.act import freeze

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from amplifier_hooks.cli.chat.chat_tools import Tool


class ModelFailed(Exception):
    """The model did not answer; the message says why, and what to do about it."""


@frozen
class ToolUse:
    """A tool the model calls. Without an `input` its arguments were no JSON object."""

    id: str
    name: str
    input: dict[str, Any] | None


Piece = str | ToolUse
"""Some of its text, or a whole tool call."""


@frozen
class ChatAnswer:
    """All it said."""

    text: str = ""
    uses: tuple[ToolUse, ...] = ()


def joined(pieces: Iterable[Piece]) -> ChatAnswer:
    """The answer that came in these pieces."""
    kept = list(pieces)
    text = "".join(piece for piece in kept if isinstance(piece, str))
    return ChatAnswer(text, tuple(piece for piece in kept if isinstance(piece, ToolUse)))


class ChatModel(Protocol):
    """A model somewhere."""

    @property
    def name(self) -> str:
        """What it is called; decides how tokens are counted."""
        ...

    def stream(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> AsyncIterator[Piece]:
        """Its answer to these messages, as it comes. Raises `ModelFailed`. Leaving it ends the call."""
        ...


@define
class Draft:
    """A tool call whose arguments are still coming."""

    id: str = ""
    name: str = ""
    arguments: str = ""

    def whole(self) -> ToolUse:
        """The call, with its arguments read. None at all are an empty object; what JSON does not have is no input."""
        try:
            value = json.loads(self.arguments) if self.arguments.strip() else {}
            freeze(value)
        except (ValueError, RecursionError):
            value = None
        return ToolUse(str(self.id), str(self.name), value if isinstance(value, dict) else None)
