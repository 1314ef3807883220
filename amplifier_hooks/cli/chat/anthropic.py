"""Anthropic's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import define

from amplifier_hooks.cli.chat.chat_model import Draft, ModelFailed
from amplifier_hooks.injection.provider_messages import to_anthropic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from amplifier_hooks.cli.chat.chat_model import Piece
    from amplifier_hooks.cli.chat.chat_tools import Tool


LONGEST_ANSWER: Final = 8_192
"""Tokens; they want to be told."""


@define
class AnthropicWire:
    """One request, and the reading of its answer."""

    complete: bool = False
    _draft: Draft | None = None

    path = "/v1/messages"

    @staticmethod
    def headers(key: str) -> dict[str, str]:
        """Who asks, and in which version."""
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}

    @staticmethod
    def body(model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> dict[str, Any]:
        """What is asked."""
        return {
            "model": model,
            "max_tokens": LONGEST_ANSWER,
            **to_anthropic(messages),
            "tools": [
                {"name": tool.name, "description": tool.description, "input_schema": dict(tool.schema)}
                for tool in tools
            ],
            "stream": True,
        }

    def read(self, said: Mapping[str, Any]) -> Iterator[Piece]:
        """The pieces in one event. Raises `ModelFailed` for an error in the middle."""
        kind = said.get("type")
        if kind == "error":
            raise ModelFailed(f"it stopped in the middle: {said.get('error')}")
        if kind == "content_block_start" and said["content_block"]["type"] == "tool_use":
            self._draft = Draft(said["content_block"]["id"], said["content_block"]["name"])
        elif kind == "content_block_delta" and said["delta"]["type"] == "text_delta":
            yield said["delta"]["text"]
        elif kind == "content_block_delta" and said["delta"]["type"] == "input_json_delta" and self._draft is not None:
            self._draft.arguments += said["delta"]["partial_json"]
        elif kind == "content_block_stop" and self._draft is not None:
            yield self._draft.whole()
            self._draft = None
        elif kind == "message_stop":
            self.complete = True
