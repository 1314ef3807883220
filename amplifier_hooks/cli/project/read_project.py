"""A project's hooks, read, built and trusted.

Which hooks are meant: those of a file, of a module, or of the project one is in.
"""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import frozen

from amplifier_hooks.definitions import PROJECT_FILE, DefinedHooks, load_files, trusted_part
from amplifier_hooks.definitions.trust import TrustStore, digest_of
from amplifier_hooks.errors import HookRefused, InvalidRegistration, SettingsError
from amplifier_hooks.registry.registry import HookRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_hooks.definitions import DefinitionSet, Plan, WatchedFiles


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
    make_importable(found.folder)  # or the modules beside the file would be no part of it
    facts, words = trusted_part(found)
    return digest_of(facts, words, found.folder)


def trust_content(found: DefinitionSet, path: Path) -> None:
    """Trust the files as they are now. Raises `OSError` when that cannot be kept."""
    TrustStore.default().add({content_digest(found): str(path)})


def make_importable(folder: Path) -> None:
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
    def build(cls, path: Path, *, found: DefinitionSet | None = None) -> Project:
        """Read a file and build its hooks. That imports what they name, which may be modules beside the file.

        Raises `InvalidDefinitions` with everything that is wrong.
        """
        found = load_files(path) if found is None else found
        make_importable(found.folder)
        hooks = DefinedHooks(HookRegistry(register_on_error="deny"))
        plan = hooks.plan(found)
        hooks.install(plan)
        return cls(path, found, hooks, plan)


ENDINGS: Final = (".yaml", ".yml", ".json")


@frozen
class NamedHooks:
    """A registry, and where its hooks come from a file, what follows that."""

    registry: HookRegistry
    files: WatchedFiles | None = None

    async def close(self) -> None:
        """Close what those of a file have opened, once nothing is told to them any more. Twice is harmless."""
        if self.files is not None:
            await self.files.hooks.close()


def hooks_named(name: str | None) -> NamedHooks:
    """The hooks of this file, or the registry `MODULE:NAME`; an empty one without a name.

    A function in the place of a registry is called for it, and what is in this folder can be named, too. Whoever names
    a file trusts it. Raises `HookError` for what cannot be read, built or found.
    """
    if name is None:
        return NamedHooks(HookRegistry(register_on_error="deny"))
    if name.endswith(ENDINGS) or Path(name).is_dir():
        from amplifier_hooks.definitions import WatchedFiles

        project = Project.build(project_file(Path(name)))
        return NamedHooks(project.registry, WatchedFiles(project.path, project.hooks))
    return NamedHooks(_import_registry(name))


def _import_registry(name: str) -> HookRegistry:
    module, _, attribute = name.partition(":")
    sys.path.append(os.fspath(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), attribute or "registry")
        registry = found if isinstance(found, HookRegistry) else found()
    except Exception as error:  # what somebody else's module raises when it is imported or called
        raise InvalidRegistration(
            f"hooks {name!r}: {error}; write MODULE:NAME of a HookRegistry, or a file of hooks"
        ) from error
    if not isinstance(registry, HookRegistry):
        raise InvalidRegistration(f"hooks {name!r} are of type {type(registry).__name__}, and no HookRegistry")
    registry.check_gates()
    return registry


def hooks_of_folder(folder: Path, agree: Callable[[Path, DefinitionSet], bool]) -> NamedHooks:
    """The hooks of the project in this folder; none where it has no file.

    Nothing of it runs, nor is anything imported, unless its content was trusted: before, or now by `agree`, which is
    shown the file and what it says. Raises `HookRefused` where it was not, and `HookError` as above.
    """
    from amplifier_hooks.definitions import PROJECT_FILE, WatchedFiles, load_files
    from amplifier_hooks.definitions.trust import TrustStore

    if not (folder / PROJECT_FILE).exists():
        return hooks_named(None)
    path = project_file(folder=folder)
    found = load_files(path)
    if not TrustStore.default().trusts(content_digest(found)):
        if not agree(path, found):
            trusting = shlex.join(["amplifier-hooks", "validate", os.fspath(path), "--trust"])
            raise HookRefused(f"{path} has not been trusted as it is now; read it, then: {trusting}")
        trust_content(found, path)
    project = Project.build(path, found=found)
    return NamedHooks(project.registry, WatchedFiles(project.path, project.hooks))
