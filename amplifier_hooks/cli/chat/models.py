"""The environment and the options come in; a model goes out, and streams answers to the messages of a conversation.

Models are pydantic-ai's, with the extra `chat`. Without a key there is a scripted model: it carries out the orders of
the prompt, one for each line, and reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from attrs import field, frozen

from amplifier_hooks.act import freeze
from amplifier_hooks.cli.common.terminal_io import count_text
from amplifier_hooks.errors import HookError, MissingExtra
from amplifier_hooks.injection.memory_context import to_anthropic
from amplifier_hooks.provenance import is_injected
from amplifier_hooks.text.escape import clip, for_log
from amplifier_hooks.text.strict_parsing import load_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from amplifier_hooks.cli.chat.conversation import Tool


class ModelFailed(HookError):
    """The model did not answer; the message gives the reason and a remedy."""


@frozen
class ToolUse:
    """A tool call of the model. Its `input` is None if the arguments were no JSON object."""

    name: str
    input: dict[str, Any] | None
    id: str = field(factory=lambda: f"call_{uuid4().hex[:16]}")
    """An id of ours, since some servers give none, or one to all calls."""


Piece = str | ToolUse
"""A piece of an answer: some text, or a whole tool call."""


# -- a script ----------------------------------------------------------------------------------------------------------

USAGE: Final = """I am a script, not a model. I understand, one on a line:
  read FILE
  write FILE TEXT
  run COMMAND
Set ANTHROPIC_API_KEY, OPENAI_API_KEY or OPENAI_BASE_URL to talk to a model."""


@frozen
class ScriptedModel:
    """A script in the place of a model. It understands three orders, and calls the tools that they name."""

    name: str = "script"

    async def stream(self, messages: Sequence[Mapping[str, Any]], _tools: Sequence[Tool]) -> AsyncIterator[Piece]:
        """Return the tool call of the next order; after the last one, the report."""
        prompts = (one["role"] == "user" and not is_injected(one.get("metadata")) for one in messages)
        asked = max(place for place, is_prompt in enumerate(prompts) if is_prompt)
        since = messages[asked + 1 :]
        orders = [order for line in messages[asked]["content"].splitlines() if (order := order_in(line))]
        done = sum(len(one.get("tool_calls") or ()) for one in since)
        if done < len(orders):
            yield ToolUse(*orders[done])
        else:
            yield _report(since) if orders else USAGE


def order_in(line: str) -> tuple[str, dict[str, Any]] | None:
    """Return the tool that carries out an order, with its arguments; None for any other line."""
    word, _, rest = line.strip().partition(" ")
    file, _, text = rest.partition(" ")
    tools: dict[str, tuple[str, dict[str, Any]]] = {
        "read": ("Read", {"file_path": rest}),
        "write": ("Write", {"file_path": file, "content": f"{text}\n"}),
        "run": ("Bash", {"command": rest}),
    }
    return tools.get(word) if rest else None


def _report(since: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of calls and of those that were not done, and the texts that hooks injected."""
    results = [one for one in since if one.get("role") == "tool"]
    done = sum(not one.get("is_error") for one in results)
    texts = [str(one["content"]) for one in since if is_injected(one.get("metadata"))]
    missed = f", {len(results) - done} not done" if done < len(results) else ""
    calls = f"{count_text(len(results), 'tool call')}: {done} done{missed}."
    return "\n".join([calls, *(f"Hooks added:\n{text}" for text in texts)])


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
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.tools import ToolDefinition

        functions = [ToolDefinition(name=one.name, **one.explanation) for one in tools]
        parameters, shown = ModelRequestParameters(function_tools=functions), 0
        request = model_request_stream(self.model, _history(messages), model_request_parameters=parameters)
        try:
            async with self.model, request as stream:  # the model closes its connections with the answer
                async for _ in stream:
                    text = stream.get().text or ""
                    yield text[shown:]
                    shown = len(text)
                answer = stream.get()
        except Exception as error:  # noqa: BLE001  # the libraries of providers raise errors of their own
            said = for_log(clip(str(error), SAID)) or type(error).__name__
            raise ModelFailed(f"{said}; check {self.advice}") from None
        if answer.finish_reason is None:
            raise ModelFailed("its answer ended in the middle; send it again")
        for call in answer.tool_calls:
            yield ToolUse(call.tool_name, input_of(call.args))


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
        answers = one["role"] == "assistant"
        parts: list[Any] = []
        for block in one["content"]:
            if block["type"] == "text":
                parts.append((known.TextPart if answers else known.UserPromptPart)(block["text"]))
            elif block["type"] == "tool_use":
                names[block["id"]] = block["name"]
                parts.append(known.ToolCallPart(block["name"], block["input"], block["id"]))
            else:
                call = block["tool_use_id"]
                ended: Any = "failed" if "is_error" in block else "success"
                parts.append(known.ToolReturnPart(names[call], block["content"], call, outcome=ended))
        kept.append(known.ModelResponse(parts) if answers else known.ModelRequest(parts))
    return kept


ChatModel = ScriptedModel | RemoteModel


def model_from(environment: Mapping[str, str], provider: str = "auto", name: str | None = None) -> ChatModel:
    """Return the model of this provider; with `auto`, of the first that the environment configures, else the script.

    Without `name`, the environment names the model, or else the provider's default holds. Raises `MissingExtra`.
    """

    def is_configured(prefix: str) -> bool:
        return bool(environment.get(f"{prefix}_API_KEY") or environment.get(f"{prefix}_BASE_URL"))

    if provider == "auto":
        provider = next((one for one, (_, prefix, _) in PROVIDERS.items() if is_configured(prefix)), "script")
    if provider == "script":
        return ScriptedModel()
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
