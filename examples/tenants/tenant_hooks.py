"""The Python that the hooks of both examples name. The operator decides which of it a tenant may use."""

import asyncio
from collections.abc import Mapping
from typing import Any

from amplifier_hooks import HookResult


class Note:
    """Says that it was asked."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, event: str, data: Mapping[str, Any]) -> None:
        """Print its text."""
        print(f"  {self.text}")


def no_secrets(event: str, data: Mapping[str, Any]) -> HookResult | None:
    """Deny every access to the keys."""
    return HookResult.deny("keys are not read here") if ".pem" in str(data["tool_input"]) else None


def house_rule(event: str, data: Mapping[str, Any]) -> HookResult:
    """Leave a mark, so that the order can be seen."""
    return HookResult.modify({"marks": [*data.get("marks", []), "house"]})


def tenants_rule(event: str, data: Mapping[str, Any]) -> HookResult:
    """Leave a tenant's mark, so that the order can be seen."""
    return HookResult.modify({"marks": [*data.get("marks", []), data["tenant_id"]]})


def broken(event: str, data: Mapping[str, Any]) -> None:
    """Fail, every time."""
    raise RuntimeError("a bug of one tenant's")


async def slow(event: str, data: Mapping[str, Any]) -> None:
    """Take far too long, every time."""
    await asyncio.sleep(60)
