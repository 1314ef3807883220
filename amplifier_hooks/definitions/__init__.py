"""Hooks as data: files and stored definitions come in; hooks of a registry go out.

```
found = load_files(Path("amplifier-hooks.yaml"))     reads; `InvalidDefinitions` has file and line
hooks = DefinedHooks(registry)
plan = hooks.plan(found)                             builds the handlers, changes nothing; `plan.warnings`
hooks.install(plan)                                  in force, in one step
rows = [definition_row(one, found) for one in found.definitions]

files = WatchedFiles(path, hooks, trust=…)           follows files that change: `refresh()`, `watch()`, `state`
```
"""

from typing import TYPE_CHECKING

from amplifier_hooks import load_on_use

if TYPE_CHECKING:
    from amplifier_hooks.definitions.files.load_files import DefinitionSet, load_files
    from amplifier_hooks.definitions.files.open_files import InvalidDefinitions
    from amplifier_hooks.definitions.install.build_hooks import agent_builder, definition_row
    from amplifier_hooks.definitions.install.defined_hooks import DefinedHooks, Plan
    from amplifier_hooks.definitions.model import DefinitionSettings, HookDefinition
    from amplifier_hooks.definitions.reload import WatchedFiles
    from amplifier_hooks.definitions.trust import TrustStore

__all__ = [
    "DefinedHooks",
    "DefinitionSet",
    "DefinitionSettings",
    "HookDefinition",
    "InvalidDefinitions",
    "Plan",
    "TrustStore",
    "WatchedFiles",
    "agent_builder",
    "definition_row",
    "load_files",
]

__getattr__ = load_on_use(
    __name__,
    {
        "files.load_files": ("DefinitionSet", "load_files"),
        "files.open_files": ("InvalidDefinitions",),
        "install.build_hooks": ("agent_builder", "definition_row"),
        "install.defined_hooks": ("DefinedHooks", "Plan"),
        "model": ("DefinitionSettings", "HookDefinition"),
        "reload": ("WatchedFiles",),
        "trust": ("TrustStore",),
    },
)
