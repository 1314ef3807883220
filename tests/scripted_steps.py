"""Steps of a scripted model, one after the other."""

from __future__ import annotations

from typing import Any

from attrs import frozen

__all__ = ["Say", "Use"]


@frozen
class Use:
    """A tool call."""

    tool: str
    input: dict[str, Any]


@frozen
class Say:
    """Text, after which the model has nothing more to do."""

    text: str
