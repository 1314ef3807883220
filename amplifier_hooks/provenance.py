"""Who said it: the tag on every message that came from a hook. Written by the session only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence


SOURCE: Final = "hook"

TrustLevel = Literal["built-in", "trusted", "plugin", "tenant", "definition", "external"]
TRUST_LEVELS: Final[tuple[TrustLevel, ...]] = get_args(TrustLevel)
"""How far the words of a hook are trusted, the most first."""


@frozen(kw_only=True)
class SourceTrust:
    """On whose behalf a hook speaks. Whoever nobody knows speaks for the host, which let it."""

    trust_level: TrustLevel = "built-in"
    origin: str = ""
    """What it speaks for outside of this process: the address of a service, a program."""
    may_inject: bool = True
    """Whether it may put a text before the model at this event."""

    @property
    def instructs(self) -> bool:
        """Whether a text of it may stand there in the system's name."""
        return self.trust_level == "built-in"


@frozen(kw_only=True)
class Provenance:
    """Where one injected text comes from. A hook's own words never fill these fields."""

    hook: str
    event: str
    timestamp: str
    """When it was put into the context: ISO 8601, UTC."""
    tenant: str
    digest: str
    """SHA-256 of the text as the hook wrote it, in UTF-8."""
    tokens: int
    """Of the text as the model reads it, its heading included."""
    counter: str
    """How they were counted: `tiktoken:o200k_base`, `estimate:…`, `bytes`, `custom:…`."""
    trimmed: bool = False
    standing: TrustLevel = "built-in"
    origin: str = ""
    """As in `Voice`."""

    def facts(self) -> dict[str, Any]:
        """The fields as they are kept beside the message and in the record."""
        return {
            "hook": self.hook,
            "event": self.event,
            "timestamp": self.timestamp,
            "tenant": self.tenant,
            "digest": self.digest,
            "tokens": self.tokens,
            "counter": self.counter,
            "trimmed": self.trimmed,
            "standing": self.standing,
            "origin": self.origin,
        }


def tag(items: Sequence[Provenance], tokens: int) -> dict[str, Any]:
    """A message's metadata: every text in it under `items`, and at the top what holds for all; for one text, all.

    `tokens` is the count of the whole message.
    """
    if len(items) == 1:
        facts = items[0].facts()
        return {"source": SOURCE, **facts, "items": [facts]}
    return {
        "source": SOURCE,
        "event": items[0].event,
        "timestamp": items[0].timestamp,
        "tenant": items[0].tenant,
        "tokens": tokens,
        "counter": items[0].counter,
        "trimmed": any(item.trimmed for item in items),
        "items": [item.facts() for item in items],
    }


def is_injected(metadata: object) -> bool:
    """Whether a message with this metadata came from a hook."""
    return isinstance(metadata, Mapping) and metadata.get("source") == SOURCE
