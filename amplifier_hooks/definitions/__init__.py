"""Hooks as data: what they look like, and how they come into a registry.

```
found = load_files(Path("amplifier-hooks.yaml"))     reads; `InvalidDefinitions` has file and line
hooks = DefinedHooks(registry)
plan = hooks.plan(found)                             builds the handlers, changes nothing; `plan.warnings`
hooks.install(plan)                                  in force, in one step
rows = [definition_row(one, found) for one in found.definitions]

files = WatchedFiles(path, hooks, trusted=…)         the same for files that change: `refresh()`, `watch()`, `state`
```

    model      `NewHook`, `HookChanges`, `HookDefinition`: one hook as data
    hiding     what is shown in the place of secrets, and what becomes of it
    bands      what a priority stands for
    settings   `DefinitionSettings`: what holds for all hooks from definitions
    files      `load_files`: a set of them from YAML and JSON, with a line for every flaw; `pages`, `refs` and `flaws`
    tenants    `check_tenant_hook`: what a tenant's hook may be
    parts      what a definition is registered as; `external`, `ready` and `background` are what carries it out
    installed  `DefinedHooks`: a set in a registry, replaced as a whole
    reload     `WatchedFiles`: a set that follows its files, once they are trusted
    rows       `definition_row`: one definition for whoever lists them
    store      `DefinitionStore`: definitions in a database
    executions what each hook did, kept for a day; `recorder` writes it down
"""

from __future__ import annotations

from amplifier_hooks.definitions.bands import BANDS, Band, FailMode, band_of
from amplifier_hooks.definitions.external import agent_builder
from amplifier_hooks.definitions.files import PROJECT_FILE, DefinitionSet, ReadyMadeEntry, load_files
from amplifier_hooks.definitions.flaws import Flaw, InvalidDefinitions, Spot
from amplifier_hooks.definitions.hiding import HIDDEN
from amplifier_hooks.definitions.installed import DefinedHooks, Plan, Replaced
from amplifier_hooks.definitions.model import (
    EXTERNAL_KINDS,
    HookChanges,
    HookDefinition,
    Kind,
    NewHook,
    likeness,
    new_hook_id,
)
from amplifier_hooks.definitions.parts import Builder, fail_mode_of, timeout_of
from amplifier_hooks.definitions.reload import ReloadState, Trusted, WatchedFiles, trusted_part
from amplifier_hooks.definitions.rows import definition_row
from amplifier_hooks.definitions.settings import DefinitionSettings
from amplifier_hooks.definitions.tenants import TENANT_HANDLERS, check_tenant_hook, is_tenant_allowed

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
