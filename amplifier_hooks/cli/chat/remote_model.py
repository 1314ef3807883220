"""A model behind an address: messages come in, pieces of text and tool calls go out, one streamed POST an answer.

It speaks Anthropic's messages, and OpenAI's chat completions, which many other servers speak as well.
"""

from __future__ import annotations

import json
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from attrs import define, field, frozen

from amplifier_hooks.act import thaw
from amplifier_hooks.admission.judge import frozen_object
from amplifier_hooks.errors import InputNotFreezable
from amplifier_hooks.injection.provider_messages import to_anthropic, to_openai
from amplifier_hooks.text.escape import clip, for_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

    import httpx2

    from amplifier_hooks.cli.chat.chat_tools import Tool


class ModelFailed(Exception):
    """The model did not answer; the message gives the reason and a remedy."""


@frozen
class ToolUse:
    """A tool call of the model. Its `input` is None if the arguments were no JSON object."""

    id: str
    name: str
    input: dict[str, Any] | None


Piece = str | ToolUse
"""A piece of an answer: some text, or a whole tool call."""


@frozen
class ChatAnswer:
    """A whole answer of the model: its text and its tool calls."""

    text: str = ""
    uses: tuple[ToolUse, ...] = ()


def join_pieces(pieces: Iterable[Piece]) -> ChatAnswer:
    """Join the pieces of an answer."""
    kept = list(pieces)
    text = "".join(piece for piece in kept if isinstance(piece, str))
    return ChatAnswer(text, tuple(piece for piece in kept if isinstance(piece, ToolUse)))


class ChatModel(Protocol):
    """A model for a chat, remote or scripted."""

    @property
    def name(self) -> str:
        """The name of the model; the counter of tokens depends on it."""
        ...

    def stream(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> AsyncIterator[Piece]:
        """Return the answer to these messages, piece by piece. Raises `ModelFailed`. Leaving the loop ends the call."""
        ...


@define
class Draft:
    """A tool call whose arguments are still coming."""

    id: str = ""
    name: str = ""
    arguments: str = ""

    def whole(self) -> ToolUse:
        """Return the call with its arguments parsed: an empty object without any, None if they are no JSON object."""
        try:
            value: Any = thaw(frozen_object((self.arguments.strip() or "{}").encode("utf-8", "surrogatepass")))
        except InputNotFreezable:
            value = None
        return ToolUse(str(self.id), str(self.name), value)


CONNECT: Final = 15.0
SILENCE: Final = 300.0
"""Seconds until the server is reached, and between two pieces of an answer."""
SAID: Final = 500
"""Bytes of the server's text about an error."""
OK: Final = 200
ADVICE: Final[Mapping[int, str]] = {
    401: "check the key in {key}",
    403: "check the key in {key}, and what it may use",
    404: "check --model and {address}",
    429: "wait a little, then send it again",
    529: "it is overloaded; send it again later",
}


class ModelWire(Protocol):
    """The wire format of one provider: it writes the request, and reads the answer. Each call has its own instance."""

    path: str
    complete: bool

    @staticmethod
    def headers(key: str, /) -> dict[str, str]:
        """Return the headers that identify the caller."""
        ...

    @staticmethod
    def body(model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool], /) -> dict[str, Any]:
        """Return the body of the request."""
        ...

    def read(self, said: Mapping[str, Any], /) -> Iterator[Piece]:
        """Return the pieces in one event."""
        ...


@frozen(kw_only=True)
class RemoteModel:
    """A model, its wire format and its address. `variables` names the sources of the key and of the address."""

    name: str
    wire: Callable[[], ModelWire]
    address: str
    key: str = field(default="", repr=False)
    variables: tuple[str, str] = ("the key", "the address")

    async def stream(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> AsyncIterator[Piece]:
        """Return the answer piece by piece. Raises `ModelFailed`, also for an answer that ends too early."""
        import httpx2

        wire = self.wire()
        timeout = httpx2.Timeout(SILENCE, connect=CONNECT)
        headers = {**wire.headers(self.key), "accept": "text/event-stream"}
        try:
            async with (
                httpx2.AsyncClient(timeout=timeout, trust_env=not _on_this_machine(self.address)) as client,
                client.stream(
                    "POST",
                    self.address.rstrip("/") + wire.path,
                    json=wire.body(self.name, messages, tools),
                    headers=headers,
                ) as response,
            ):
                if response.status_code != OK:
                    raise ModelFailed(await self._refusal_text(response))
                async for piece in self._pieces(response, wire):
                    yield piece
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            said = for_log(clip(str(error), SAID)) or type(error).__name__
            raise ModelFailed(f"{self.address} cannot be reached ({said}); check {self.variables[1]}") from None
        if not wire.complete:
            raise ModelFailed("its answer ended in the middle; send it again")

    async def _pieces(self, response: httpx2.Response, wire: ModelWire) -> AsyncIterator[Piece]:
        import httpx2

        try:
            async for event in httpx2.EventSource(response):
                if event.data and event.data != "[DONE]":
                    for piece in wire.read(json.loads(event.data)):
                        yield piece
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ModelFailed(f"its answer is in no format that is known here ({type(error).__name__})") from None

    async def _refusal_text(self, response: httpx2.Response) -> str:
        """Return the status, the server's text, and a remedy."""
        said = b""
        async for chunk in response.aiter_bytes():
            said += chunk
            if len(said) > SAID:
                break
        key, address = self.variables
        text = for_log(clip(_message(said), SAID))
        advice = ADVICE.get(response.status_code, "").format(key=key, address=address)
        return f"status {response.status_code} from {self.address}: {text}" + (f"; {advice}" if advice else "")


def _message(body: bytes) -> str:
    """Return the message of an error, or the whole body if it has none."""
    try:
        error = json.loads(body)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, LookupError, TypeError):
        return body.decode("utf-8", "replace")


def _on_this_machine(address: str) -> bool:
    """Return True if the address is on this machine, where no proxy is needed."""
    host = urlsplit(address).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


LONGEST_ANSWER: Final = 8_192
"""Tokens of the longest answer; Anthropic's protocol requires this limit."""


@define
class AnthropicWire:
    """The wire format of one request and its answer."""

    complete: bool = False
    _draft: Draft | None = None

    path = "/v1/messages"

    @staticmethod
    def headers(key: str) -> dict[str, str]:
        """Return the headers that identify the caller and the version."""
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}

    @staticmethod
    def body(model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> dict[str, Any]:
        """Return the body of the request."""
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
        """Return the pieces in one event. Raises `ModelFailed` for an error in the middle."""
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


@define
class OpenAIWire:
    """The wire format of one request and its answer."""

    complete: bool = False
    _drafts: dict[int, Draft] = field(factory=dict)

    path = "/chat/completions"

    @staticmethod
    def headers(key: str) -> dict[str, str]:
        """Return the header that identifies the caller; none without a key, which a private server may not need."""
        return {"authorization": f"Bearer {key}"} if key else {}

    @staticmethod
    def body(model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> dict[str, Any]:
        """Return the body of the request."""
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
        """Return the pieces in one event. Raises `ModelFailed` for an error in the middle."""
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
