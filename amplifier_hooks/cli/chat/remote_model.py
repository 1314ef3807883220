"""A model behind an address: one streamed POST for each answer."""

from __future__ import annotations

import json
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from attrs import field, frozen

from amplifier_hooks.cli.chat.chat_model import ModelFailed
from amplifier_hooks.text.escape import clip, for_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    import httpx2

    from amplifier_hooks.cli.chat.chat_model import Piece
    from amplifier_hooks.cli.chat.chat_tools import Tool


CONNECT: Final = 15.0
SILENCE: Final = 300.0
"""Seconds until it is reached, and between two pieces of an answer."""
SAID: Final = 500
"""Bytes of what it says about an error."""
OK: Final = 200
ADVICE: Final[Mapping[int, str]] = {
    401: "check the key in {key}",
    403: "check the key in {key}, and what it may use",
    404: "check --model and {address}",
    429: "wait a little, then say it again",
    529: "it is overloaded; say it again later",
}


class Wire(Protocol):
    """How one provider is asked, and how its answer is read. One for each call."""

    path: str
    complete: bool

    @staticmethod
    def headers(key: str, /) -> dict[str, str]:
        """Who asks."""
        ...

    @staticmethod
    def body(model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool], /) -> dict[str, Any]:
        """What is asked."""
        ...

    def read(self, said: Mapping[str, Any], /) -> Iterator[Piece]:
        """The pieces in one event."""
        ...


@frozen(kw_only=True)
class RemoteModel:
    """A model, how it is spoken to, and where. `variables` are those the key and the address came from."""

    name: str
    wire: Callable[[], Wire]
    address: str
    key: str = field(default="", repr=False)
    variables: tuple[str, str] = ("the key", "the address")

    async def stream(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> AsyncIterator[Piece]:
        """Its answer as it comes. Raises `ModelFailed`, also for an answer that ends too early."""
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
                    raise ModelFailed(await self._refused(response))
                async for piece in self._pieces(response, wire):
                    yield piece
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            said = for_log(clip(str(error), SAID)) or type(error).__name__
            raise ModelFailed(f"{self.address} cannot be reached ({said}); check {self.variables[1]}") from None
        if not wire.complete:
            raise ModelFailed("its answer ended in the middle; say it again")

    async def _pieces(self, response: httpx2.Response, wire: Wire) -> AsyncIterator[Piece]:
        import httpx2

        try:
            async for event in httpx2.EventSource(response):
                if event.data and event.data != "[DONE]":
                    for piece in wire.read(json.loads(event.data)):
                        yield piece
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ModelFailed(f"its answer is in no format that is known here ({type(error).__name__})") from None

    async def _refused(self, response: httpx2.Response) -> str:
        """What it says about that, and what to do."""
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
    """The sentence in an error, where there is one."""
    try:
        error = json.loads(body)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, LookupError, TypeError):
        return body.decode("utf-8", "replace")


def _on_this_machine(address: str) -> bool:
    """Whether a proxy would only be in the way."""
    host = urlsplit(address).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
