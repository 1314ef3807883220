"""The environment and the options come in; a model goes out, and streams answers to the messages of a conversation.

Models are pydantic-ai's, with the extra `chat`. Without a key there is a scripted model: it carries out the orders of
the prompt, one for each line, and reports.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from attrs import field, frozen

from amplifier_hooks.act import freeze
from amplifier_hooks.errors import HookError, MissingExtra
from amplifier_hooks.injection.provider_messages import to_anthropic
from amplifier_hooks.provenance import is_injected
from amplifier_hooks.text.escape import clip, for_log
from amplifier_hooks.text.strict_json import load_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

    from amplifier_hooks.cli.chat.chat_tools import Tool


class ModelFailed(HookError):
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


# -- a script ----------------------------------------------------------------------------------------------------------

ORDERS: Final[Mapping[str, tuple[str, Callable[[re.Match[str]], dict[str, Any]]]]] = {
    r"read (?P<file>\S+)": ("Read", lambda found: {"file_path": found["file"]}),
    r"write (?P<file>\S+) (?P<text>.+)": (
        "Write",
        lambda found: {"file_path": found["file"], "content": found["text"].replace("\\n", "\n") + "\n"},
    ),
    r"(?:run |\$ ?)(?P<command>.+)": ("Bash", lambda found: {"command": found["command"]}),
}
USAGE: Final = """I am a script, not a model. I understand, one on a line:
  read FILE
  write FILE TEXT
  run COMMAND
Set ANTHROPIC_API_KEY, OPENAI_API_KEY or OPENAI_BASE_URL to talk to a model."""


@frozen
class ScriptedModel:
    """A script in the place of a model. It understands three orders, and calls the tools that they name."""

    name: str = "script"

    async def stream(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> AsyncIterator[Piece]:
        """Return the tool call of the next order; after the last one, the report."""
        del tools
        asked = max((place for place, one in enumerate(messages) if _asks(one)), default=-1)
        since = messages[asked + 1 :]
        orders = list(_orders(str(messages[asked]["content"]) if asked >= 0 else ""))
        done = sum(len(one.get("tool_calls") or ()) for one in since)
        if done < len(orders):
            name, given = orders[done]
            yield ToolUse(f"call_{len(messages)}", name, given)
            return
        for word in re.findall(r"\S+\s*", _report(since) if orders else USAGE):
            yield word


def _asks(message: Mapping[str, Any]) -> bool:
    """Return True if the message is a prompt of the user."""
    return message.get("role") == "user" and not is_injected(message.get("metadata"))


def _orders(prompt: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in prompt.splitlines():
        for pattern, (tool, given) in ORDERS.items():
            found = re.fullmatch(pattern, line.strip())
            if found:
                yield tool, given(found)
                break


def _report(since: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of calls and of those that were not done, and the texts that hooks injected."""
    results = [one for one in since if one.get("role") == "tool"]
    done = sum(not one.get("is_error") for one in results)
    texts = [str(one["content"]) for one in since if is_injected(one.get("metadata"))]
    calls = f"{len(results)} tool call{'' if len(results) == 1 else 's'}: {done} done"
    missed = f", {len(results) - done} not done" if done < len(results) else ""
    return "\n".join([f"{calls}{missed}.", *(f"Hooks added:\n{text}" for text in texts)])


# -- models of pydantic-ai ---------------------------------------------------------------------------------------------

SAID: Final = 500
"""Bytes of a provider's text about an error."""
PROVIDERS: Final = {
    "anthropic": ("anthropic", "ANTHROPIC", "claude-sonnet-4-5"),
    "openai": ("openai-chat", "OPENAI", "gpt-5-mini"),
}
"""Providers in the order of trial, each with its name in pydantic-ai, the prefix of its variables, its usual model."""


@frozen
class RemoteModel:
    """A model of pydantic-ai. `advice` names what to check if it does not answer."""

    name: str
    model: Any = field(repr=False)
    advice: str

    async def stream(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> AsyncIterator[Piece]:
        """Return the answer piece by piece. Raises `ModelFailed`, also for an answer that ends too early."""
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.tools import ToolDefinition

        functions = [
            ToolDefinition(name=one.name, parameters_json_schema=dict(one.schema), description=one.description)
            for one in tools
        ]
        parameters = ModelRequestParameters(function_tools=functions)
        try:
            async with (
                self.model,  # its connections are closed with the answer
                model_request_stream(self.model, _history(messages), model_request_parameters=parameters) as stream,
            ):
                async for event in stream:
                    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                        yield event.part.content
                    elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                        yield event.delta.content_delta
                answer = stream.get()
        except Exception as error:  # noqa: BLE001  # the libraries of providers raise errors of their own
            said = for_log(clip(str(error), SAID)) or type(error).__name__
            raise ModelFailed(f"{said}; check {self.advice}") from None
        if answer.finish_reason is None:
            raise ModelFailed("its answer ended in the middle; send it again")
        for call in answer.tool_calls:
            yield ToolUse(call.tool_call_id, call.tool_name, input_of(call.args))


def input_of(arguments: str | dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the arguments of a call: an empty object without any, None if they are no JSON object."""
    try:
        value = load_json(arguments.strip() or "{}") if isinstance(arguments, str) else arguments or {}
        freeze(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _history(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the messages as pydantic-ai has them, valid for any provider."""
    from pydantic_ai import messages as known

    whole = to_anthropic(messages)
    names: dict[str, str] = {}
    kept: list[Any] = [known.ModelRequest([known.SystemPromptPart(whole["system"])])] if "system" in whole else []
    for one in whole["messages"]:
        content = one["content"]
        parts: list[Any] = []
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block["type"] == "text":
                parts.append((known.TextPart if one["role"] == "assistant" else known.UserPromptPart)(block["text"]))
            elif block["type"] == "tool_use":
                names[block["id"]] = block["name"]
                parts.append(known.ToolCallPart(block["name"], block["input"], block["id"]))
            else:
                call, failed = block["tool_use_id"], "is_error" in block
                result = known.ToolReturnPart(names[call], block["content"], call)
                parts.append(replace(result, outcome="failed") if failed else result)
        kept.append(known.ModelResponse(parts) if one["role"] == "assistant" else known.ModelRequest(parts))
    return kept


def model_from(environment: Mapping[str, str], provider: str = "auto", name: str | None = None) -> ChatModel:
    """Return the model of this provider; with `auto`, of the first that the environment configures, else the script.

    Without `name`, the environment names the model, or else the provider's default holds. Raises `MissingExtra`, and
    `ModelFailed` for a provider that is not known.
    """
    if provider == "auto":
        configured = (
            one
            for one, (_, prefix, _) in PROVIDERS.items()
            if environment.get(f"{prefix}_API_KEY") or environment.get(f"{prefix}_BASE_URL")
        )
        provider = next(configured, "script")
    if provider == "script":
        return ScriptedModel()
    if provider not in PROVIDERS:
        raise ModelFailed(f"there is no provider {provider!r}; there are {', '.join(PROVIDERS)} and script")
    kind, prefix, usual = PROVIDERS[provider]
    name = name or environment.get(f"{prefix}_MODEL") or usual
    key, address = environment.get(f"{prefix}_API_KEY") or "none", environment.get(f"{prefix}_BASE_URL") or None
    try:
        from pydantic_ai.models import infer_model
        from pydantic_ai.providers import infer_provider_class

        making: Any = infer_provider_class
        model = infer_model(f"{kind}:{name}", lambda one: making(one)(api_key=key, base_url=address))
    except ImportError:  # of pydantic-ai, or of the provider's library
        raise MissingExtra(f"a model of {provider}", "chat", "chat with the script: --provider script") from None
    return RemoteModel(name, model, f"{prefix}_API_KEY, {prefix}_BASE_URL and --model")
