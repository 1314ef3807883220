"""The tag on every message that came from a hook: its source, written by the session only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


SOURCE: Final = "hook"

TrustLevel = Literal["built-in", "trusted", "plugin", "tenant", "definition", "external"]
TRUST_LEVELS: Final[tuple[TrustLevel, ...]] = get_args(TrustLevel)
"""The trust levels of hooks, the most trusted first."""


class SourceTrust(msgspec.Struct, frozen=True, kw_only=True):
    """The party on whose behalf a hook speaks. An unknown hook speaks for the host, which let it."""

    trust_level: TrustLevel = "built-in"
    origin: str = ""
    """The party outside of this process for which the hook speaks: the address of a service, a program."""
    may_inject: bool = True
    """True if the hook may put a text before the model at this event."""

    @property
    def instructs(self) -> bool:
        """True if a text of this hook may stand before the model in the system's name."""
        return self.trust_level == "built-in"


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """The source of one injected text. A hook's own words never fill these fields."""

    hook_name: str
    event: str
    timestamp: str
    """Time at which the text was put into the context: ISO 8601, UTC."""
    tenant: str
    digest: str
    """SHA-256 of the text as the hook wrote it, in UTF-8."""
    tokens: int
    """Tokens of the text as the model reads it, its heading included."""
    counter: str
    """The counter that counted the tokens: `tiktoken:o200k_base`, `estimate:…`, `bytes`, `custom:…`."""
    trimmed: bool = False
    standing: TrustLevel = "built-in"
    origin: str = ""
    """The party outside of this process for which the hook speaks, as in `SourceTrust`."""

    def facts(self) -> dict[str, Any]:
        """Return the fields as they are kept beside the message and in the record."""
        return {
            "hook_name": self.hook_name,
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


def tag(items: Sequence[Mapping[str, Any]], tokens: int) -> dict[str, Any]:
    """Return a message's metadata: the facts of every text under `items`, and at the top those that hold for all.

    For one text, all its facts stand at the top. `tokens` is the count of the whole message.
    """
    first, copies = items[0], [{**item} for item in items]
    if len(items) == 1:
        return {"source": SOURCE, **first, "items": copies}
    return {
        "source": SOURCE,
        **{name: first[name] for name in ("event", "timestamp", "tenant", "counter")},
        "tokens": tokens,
        "trimmed": any(item["trimmed"] for item in items),
        "items": copies,
    }


def is_injected(metadata: object) -> bool:
    """Return True if a message with this metadata came from a hook."""
    return isinstance(metadata, Mapping) and metadata.get("source") == SOURCE
