"""A project's hooks, read, built and trusted."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from amplifier_hooks.definitions import PROJECT_FILE, DefinedHooks, load_files, trusted_part
from amplifier_hooks.definitions.trust import TrustStore, digest_of
from amplifier_hooks.errors import SettingsError
from amplifier_hooks.registry.registry import HookRegistry

if TYPE_CHECKING:
    from amplifier_hooks.definitions import DefinitionSet, Plan


def project_file(named: Path | None = None, folder: Path | None = None) -> Path:
    """The file that is meant: the one that is named, or that of the folder. Raises `SettingsError` if it is missing."""
    path = (folder or Path()) / PROJECT_FILE if named is None else named
    if path.is_dir():
        path /= PROJECT_FILE
    if not path.exists():
        raise SettingsError(path, "it is not there; amplifier-hooks init writes one")
    return path.resolve()


def content_digest(found: DefinitionSet) -> str:
    """What trust in a set of files is in: their content, and that of the scripts they name."""
    importable(found.folder)  # or the modules beside the file would be no part of it
    facts, words = trusted_part(found)
    return digest_of(facts, words, found.folder)


def trust_content(found: DefinitionSet, path: Path) -> None:
    """Trust the files as they are now. Raises `OSError` when that cannot be kept."""
    TrustStore.default().add({content_digest(found): str(path)})


def importable(folder: Path) -> None:
    """Let modules in this folder be found, after all others: none of them takes the place of one that we import."""
    if os.fspath(folder) not in sys.path:
        sys.path.append(os.fspath(folder))


@frozen(eq=False)
class Project:
    """What a file says, and the registry in which it is in force."""

    path: Path
    found: DefinitionSet
    hooks: DefinedHooks
    plan: Plan

    @property
    def registry(self) -> HookRegistry:
        """With its hooks, and no others."""
        return self.hooks.registry

    @classmethod
    def built(cls, path: Path, *, found: DefinitionSet | None = None) -> Project:
        """Read a file and build its hooks. That imports what they name, which may be modules beside the file.

        Raises `InvalidDefinitions` with everything that is wrong.
        """
        found = load_files(path) if found is None else found
        importable(found.folder)
        hooks = DefinedHooks(HookRegistry(register_on_error="deny"))
        plan = hooks.plan(found)
        hooks.install(plan)
        return cls(path, found, hooks, plan)
