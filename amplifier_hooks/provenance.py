"""Who said it: the tag on every message that came from a hook. Written by the session only."""

from __future__ import annotations

from typing import Any

from attrs import asdict, frozen

__all__ = ["Provenance"]


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

    def metadata(self) -> dict[str, Any]:
        """The tag as it is kept beside the message."""
        return {"source": "hook", **asdict(self)}
