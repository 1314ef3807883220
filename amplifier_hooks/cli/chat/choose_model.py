"""The environment and the options come in; a model goes out.

Without a key, that is a scripted model: it carries out the orders of the prompt, one for each line, and reports.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from amplifier_hooks.cli.chat.remote_model import AnthropicWire, OpenAIWire, RemoteModel, ToolUse
from amplifier_hooks.provenance import is_injected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from amplifier_hooks.cli.chat.chat_tools import Tool
    from amplifier_hooks.cli.chat.remote_model import ChatModel, ModelWire, Piece


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


@frozen
class ProviderConfig:
    """One provider: its wire format, the variables that configure it, and the defaults without them."""

    wire: Callable[[], ModelWire]
    key: str
    base: str
    model: str
    address: str
    usual: str


PROVIDERS: Final[Mapping[str, ProviderConfig]] = {
    "anthropic": ProviderConfig(
        AnthropicWire,
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_MODEL",
        "https://api.anthropic.com",
        "claude-sonnet-4-5",
    ),
    "openai": ProviderConfig(
        OpenAIWire, "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "https://api.openai.com/v1", "gpt-5-mini"
    ),
}
"""The providers, in the order of trial. An address without a key is enough: a private server may need none."""


def model_from(environment: Mapping[str, str], provider: str = "auto", name: str | None = None) -> ChatModel:
    """Return the model of this provider; with `auto`, of the first that the environment configures, else the script.

    Without `name`, the environment names the model, or else the provider's default holds.
    """
    if provider == "auto":
        provider = next(
            (known for known, one in PROVIDERS.items() if environment.get(one.key) or environment.get(one.base)),
            "script",
        )
    if provider == "script":
        return ScriptedModel()
    one = PROVIDERS[provider]
    return RemoteModel(
        name=name or environment.get(one.model) or one.usual,
        wire=one.wire,
        address=environment.get(one.base) or one.address,
        key=environment.get(one.key, ""),
        variables=(one.key, one.base),
    )
