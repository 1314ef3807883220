"""OpenAI's chat completions, which many other servers speak as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field

from amplifier_hooks.cli.chat.chat_model import Draft, ModelFailed
from amplifier_hooks.injection.provider_messages import to_openai

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from amplifier_hooks.cli.chat.chat_model import Piece
    from amplifier_hooks.cli.chat.chat_tools import Tool


@define
class OpenAIWire:
    """One request, and the reading of its answer."""

    complete: bool = False
    _drafts: dict[int, Draft] = field(factory=dict)

    path = "/chat/completions"

    @staticmethod
    def headers(key: str) -> dict[str, str]:
        """Who asks. A server of one's own may want no key."""
        return {"authorization": f"Bearer {key}"} if key else {}

    @staticmethod
    def body(model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> dict[str, Any]:
        """What is asked."""
        functions = [
            {"name": tool.name, "description": tool.description, "parameters": dict(tool.schema)} for tool in tools
        ]
        return {
            "model": model,
            "messages": to_openai(messages),
            "tools": [{"type": "function", "function": function} for function in functions],
            "stream": True,
        }

    def read(self, said: Mapping[str, Any]) -> Iterator[Piece]:
        """The pieces in one event. Raises `ModelFailed` for an error in the middle."""
        if said.get("error"):
            raise ModelFailed(f"it stopped in the middle: {said['error']}")
        for choice in said.get("choices") or ():
            delta = choice.get("delta") or {}
            if delta.get("content"):
                yield delta["content"]
            for part in delta.get("tool_calls") or ():
                draft = self._drafts.setdefault(part.get("index") or 0, Draft())
                function = part.get("function") or {}
                draft.id = part.get("id") or draft.id
                draft.name += function.get("name") or ""
                draft.arguments += function.get("arguments") or ""
            if choice.get("finish_reason"):
                self.complete = True
                yield from (draft.whole() for draft in self._drafts.values())
                self._drafts = {}
