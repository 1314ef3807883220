"""A row for lists of definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_hooks.definitions.install.build_hooks import fail_mode_of, timeout_of

if TYPE_CHECKING:
    from amplifier_hooks.definitions.files.load_files import DefinitionSet
    from amplifier_hooks.definitions.model import HookDefinition


def definition_row(definition: HookDefinition, found: DefinitionSet) -> dict[str, Any]:
    """Return a definition as plain JSON, with defaults filled in and without secrets."""
    settings = found.settings
    return {
        "name": definition.name,
        "hook_id": definition.hook_id,
        "event": definition.event_type,
        "priority": definition.priority,
        "band": definition.band.name,
        "kind": definition.kind,
        "handler": definition.handler_ref,
        "matcher": definition.matcher or "*",
        "fail_mode": fail_mode_of(definition, settings),
        "risk": definition.risk,
        "report_only": definition.report_only,
        "timeout_ms": round(timeout_of(definition, settings) * 1000),
        "mode": definition.config.get("mode", "sync"),
        "tenant": definition.tenant_id,
        "enabled": definition.enabled and settings.hooks_enabled,
        "tags": list(definition.tags),
        "description": definition.description,
        "where": str(found.spot(definition)),
    }
