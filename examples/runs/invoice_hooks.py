"""The hooks that `with_engine/invoice-writer.json` names: one before a run, and one after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

TIERS: Final = {"C-2071": ("gold", 50_000), "C-1188": ("silver", 20_000)}


def validate(event: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Block what is too large, and add what the writer has to know."""
    wanted = data["parameters"]
    tier, limit = TIERS[wanted["customer"]]
    if wanted["amount"] > limit:
        return {"action": "block", "block_reason": f"{wanted['amount']:,} is above the limit of {limit:,}"}
    return {"action": "continue", "parameters": {**wanted, "tier": tier}}


def audit(event: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Say what was invoiced."""
    print(f"  audit: {data['status']}: {data['result_text']}")
    return {}
