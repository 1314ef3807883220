"""Hooks as data: files and stored definitions come in; hooks of a registry go out.

```
found = load_files(Path("amplifier-hooks.yaml"))     reads; `InvalidDefinitions` has file and line
hooks = DefinedHooks(registry)
plan = hooks.plan(found)                             builds the handlers, changes nothing; `plan.warnings`
hooks.install(plan)                                  in force, in one step
rows = [definition_row(one, found) for one in found.definitions]

files = WatchedFiles(path, hooks, trusted=…)         the same for files that change: `refresh()`, `watch()`, `state`
```
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from amplifier_hooks.definitions.files.load_files import PROJECT_FILE, DefinitionSet, ReadyMadeEntry, load_files
    from amplifier_hooks.definitions.hidden_secrets import HIDDEN
    from amplifier_hooks.definitions.install.build_external import agent_builder
    from amplifier_hooks.definitions.install.build_hooks import Builder, fail_mode_of, timeout_of
    from amplifier_hooks.definitions.install.defined_hooks import DefinedHooks, Plan, Replaced
    from amplifier_hooks.definitions.invalid_definitions import Flaw, InvalidDefinitions, Spot
    from amplifier_hooks.definitions.model import (
        EXTERNAL_KINDS,
        HookChanges,
        HookDefinition,
        Kind,
        NewHook,
        likeness,
        new_hook_id,
    )
    from amplifier_hooks.definitions.priority import BANDS, Band, FailMode, band_of
    from amplifier_hooks.definitions.reload import ReloadState, Trusted, WatchedFiles, trusted_part
    from amplifier_hooks.definitions.settings import DefinitionSettings
    from amplifier_hooks.definitions.summary import definition_row
    from amplifier_hooks.definitions.tenant_rules import TENANT_HANDLERS, check_tenant_hook, is_tenant_allowed
    from amplifier_hooks.definitions.trust import TrustStore

__all__ = [
    "BANDS",
    "EXTERNAL_KINDS",
    "HIDDEN",
    "PROJECT_FILE",
    "TENANT_HANDLERS",
    "Band",
    "Builder",
    "DefinedHooks",
    "DefinitionSet",
    "DefinitionSettings",
    "FailMode",
    "Flaw",
    "HookChanges",
    "HookDefinition",
    "InvalidDefinitions",
    "Kind",
    "NewHook",
    "Plan",
    "ReadyMadeEntry",
    "ReloadState",
    "Replaced",
    "Spot",
    "TrustStore",
    "Trusted",
    "WatchedFiles",
    "agent_builder",
    "band_of",
    "check_tenant_hook",
    "definition_row",
    "fail_mode_of",
    "is_tenant_allowed",
    "likeness",
    "load_files",
    "new_hook_id",
    "timeout_of",
    "trusted_part",
]

HOMES: Final = {
    "BANDS": "priority",
    "Band": "priority",
    "Builder": "install.build_hooks",
    "DefinedHooks": "install.defined_hooks",
    "DefinitionSet": "files.load_files",
    "DefinitionSettings": "settings",
    "EXTERNAL_KINDS": "model",
    "FailMode": "priority",
    "Flaw": "invalid_definitions",
    "HIDDEN": "hidden_secrets",
    "HookChanges": "model",
    "HookDefinition": "model",
    "InvalidDefinitions": "invalid_definitions",
    "Kind": "model",
    "NewHook": "model",
    "PROJECT_FILE": "files.load_files",
    "Plan": "install.defined_hooks",
    "ReadyMadeEntry": "files.load_files",
    "ReloadState": "reload",
    "Replaced": "install.defined_hooks",
    "Spot": "invalid_definitions",
    "TENANT_HANDLERS": "tenant_rules",
    "TrustStore": "trust",
    "Trusted": "reload",
    "WatchedFiles": "reload",
    "agent_builder": "install.build_external",
    "band_of": "priority",
    "check_tenant_hook": "tenant_rules",
    "definition_row": "summary",
    "fail_mode_of": "install.build_hooks",
    "is_tenant_allowed": "tenant_rules",
    "likeness": "model",
    "load_files": "files.load_files",
    "new_hook_id": "model",
    "timeout_of": "install.build_hooks",
    "trusted_part": "reload",
}
"""The module of each name; it loads on first use."""


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"amplifier_hooks.definitions.{HOMES[name]}"), name)
