"""Hooks that are looked at in the browser: each answers in its own way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_hooks import HookResult

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["change", "fail", "look", "protect"]


def protect(_event: str, data: Mapping[str, Any]) -> HookResult | None:
    """Deny keys, ask about production, let the rest pass."""
    path = data["tool_input"]["file_path"]
    if "keys" in path:
        return HookResult.deny(f"{path} holds keys")
    return HookResult.ask(f"Change {path}?") if "production" in path else None


def look(_event: str, _data: Mapping[str, Any]) -> None:
    """Return no answer."""


def change(_event: str, data: Mapping[str, Any]) -> HookResult:
    """Return a change, every time."""
    return HookResult.inject("E501 line 42 too long", user_message="1 finding")


def fail(_event: str, _data: Mapping[str, Any]) -> None:
    """Fail."""
    raise RuntimeError("no connection to the ledger")
