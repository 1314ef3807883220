"""Hooks as data: files and stored definitions come in; hooks of a registry go out.

```
found = load_files(Path("amplifier-hooks.yaml"))     reads; `InvalidDefinitions` has file and line
hooks = DefinedHooks(registry)
plan = hooks.plan(found)                             builds the handlers, changes nothing; `plan.warnings`
hooks.install(plan)                                  in force, in one step
rows = [definition_row(one, found) for one in found.definitions]

files = WatchedFiles(path, hooks, trusted=…)         follows files that change: `refresh()`, `watch()`, `state`
```
"""

from typing import TYPE_CHECKING

from amplifier_hooks.front_door import load_on_use

if TYPE_CHECKING:
    from amplifier_hooks.definitions.files.load_files import PROJECT_FILE, DefinitionSet, ReadyMadeEntry, load_files
    from amplifier_hooks.definitions.install.build_external import agent_builder
    from amplifier_hooks.definitions.install.build_hooks import Builder, fail_mode_of, timeout_of
    from amplifier_hooks.definitions.install.defined_hooks import DefinedHooks, Plan, Replaced
    from amplifier_hooks.definitions.invalid_definitions import Flaw, InvalidDefinitions, Spot
    from amplifier_hooks.definitions.model import (
        BANDS,
        EXTERNAL_KINDS,
        HIDDEN,
        Band,
        FailMode,
        HookChanges,
        HookDefinition,
        Kind,
        NewHook,
        band_of,
        likeness,
        new_hook_id,
    )
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

__getattr__ = load_on_use(
    __name__,
    {
        "files.load_files": (
            "DefinitionSet",
            "PROJECT_FILE",
            "ReadyMadeEntry",
            "load_files",
        ),
        "install.build_external": ("agent_builder",),
        "install.build_hooks": (
            "Builder",
            "fail_mode_of",
            "timeout_of",
        ),
        "install.defined_hooks": (
            "DefinedHooks",
            "Plan",
            "Replaced",
        ),
        "invalid_definitions": (
            "Flaw",
            "InvalidDefinitions",
            "Spot",
        ),
        "model": (
            "BANDS",
            "Band",
            "EXTERNAL_KINDS",
            "FailMode",
            "HIDDEN",
            "HookChanges",
            "HookDefinition",
            "Kind",
            "NewHook",
            "band_of",
            "likeness",
            "new_hook_id",
        ),
        "reload": (
            "ReloadState",
            "Trusted",
            "WatchedFiles",
            "trusted_part",
        ),
        "settings": ("DefinitionSettings",),
        "summary": ("definition_row",),
        "tenant_rules": (
            "TENANT_HANDLERS",
            "check_tenant_hook",
            "is_tenant_allowed",
        ),
        "trust": ("TrustStore",),
    },
)
