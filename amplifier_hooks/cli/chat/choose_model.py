"""Which model is meant, by the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import frozen

from amplifier_hooks.cli.chat.anthropic import AnthropicWire
from amplifier_hooks.cli.chat.openai import OpenAIWire
from amplifier_hooks.cli.chat.remote_model import RemoteModel
from amplifier_hooks.cli.chat.scripted_model import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amplifier_hooks.cli.chat.chat_model import ChatModel
    from amplifier_hooks.cli.chat.remote_model import Wire


@frozen
class Provider:
    """One way to speak to models: the variables it is told by, and what holds without them."""

    wire: Callable[[], Wire]
    key: str
    base: str
    model: str
    address: str
    usual: str


PROVIDERS: Final[Mapping[str, Provider]] = {
    "anthropic": Provider(
        AnthropicWire,
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_MODEL",
        "https://api.anthropic.com",
        "claude-sonnet-4-5",
    ),
    "openai": Provider(
        OpenAIWire, "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "https://api.openai.com/v1", "gpt-5-mini"
    ),
}
"""In the order they are tried. An address without a key is enough: a server of one's own may want none."""


def model_from(environment: Mapping[str, str], provider: str = "auto", name: str | None = None) -> ChatModel:
    """The model of this provider; with `auto`, of the first that the environment says anything about, else the script.

    `name` is the model's; without it, what the environment says.
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
