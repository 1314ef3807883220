"""A file, a module or a folder comes in; a registry with its hooks goes out, once the content is trusted."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import frozen

from amplifier_hooks.admission.self_protection import SelfProtection
from amplifier_hooks.definitions import DefinedHooks, load_files
from amplifier_hooks.definitions.files.load_files import PROJECT_FILE
from amplifier_hooks.definitions.reload import trusted_part
from amplifier_hooks.definitions.trust import TrustStore, digest_of
from amplifier_hooks.errors import HookRefused, InvalidRegistration, SettingsError
from amplifier_hooks.registry.registry import HookRegistry
from amplifier_hooks.storage.state_folder import StateFolder, default_socket

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_hooks.definitions import DefinitionSet, Plan, WatchedFiles


def project_file(named: Path | None = None, folder: Path | None = None) -> Path:
    """Return the named file of hooks, or that of the folder. Raises `SettingsError` if it is missing."""
    path = (folder or Path()) / PROJECT_FILE if named is None else named
    if path.is_dir():
        path /= PROJECT_FILE
    if not path.exists():
        raise SettingsError(path, "it is not there; amplifier-hooks init writes one")
    return path.resolve()


def content_digest(found: DefinitionSet) -> str:
    """Return the digest to which trust applies: of the content of the files, and of the scripts that they name."""
    make_importable(found.folder)  # without it, the digest would leave out the modules beside the file
    facts, words = trusted_part(found)
    return digest_of(facts, words, found.folder)


def trust_content(found: DefinitionSet, path: Path) -> None:
    """Trust the files with their current content. Raises `OSError` if the trust cannot be stored."""
    TrustStore().add({content_digest(found): str(path)})


def make_importable(folder: Path) -> None:
    """Add this folder to the end of the import path, so that its modules hide none of ours."""
    if os.fspath(folder) not in sys.path:
        sys.path.append(os.fspath(folder))


@frozen(eq=False)
class Project:
    """A file of hooks, read and built, with the registry in which the hooks are in force."""

    path: Path
    found: DefinitionSet
    hooks: DefinedHooks
    plan: Plan

    @property
    def registry(self) -> HookRegistry:
        """The registry, with the hooks of this file and no others."""
        return self.hooks.registry

    @classmethod
    def build(cls, path: Path, *, found: DefinitionSet | None = None) -> Project:
        """Read a file and build its hooks. That imports the modules that they name, also modules beside the file.

        Raises `InvalidDefinitions` with every flaw.
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
    """A registry, and the watched files if its hooks come from a file."""

    registry: HookRegistry
    files: WatchedFiles | None = None

    def protection(self, *paths: Path | None, ports: tuple[int, ...] = (), off: bool = False) -> SelfProtection:
        """Return the self-protection of a command: our state, its own files, and the files of the hooks in force."""
        from amplifier_hooks.programs.guarded_processes import marks_folder

        state = StateFolder()
        own = (
            state.path,
            state.trust,
            default_socket(),
            marks_folder(),
            None if self.files is None else self.files.path,
            *paths,
        )
        return SelfProtection(
            paths=tuple(path for path in own if path is not None),
            ports=ports,
            off="--no-self-protection" if off else "",
        )

    async def close(self) -> None:
        """Close what the hooks of a file have opened, after their last event. Closing twice is harmless."""
        if self.files is not None:
            await self.files.hooks.close()


def hooks_named(name: str | None) -> NamedHooks:
    """Return the hooks of this file, or the registry `MODULE:NAME`; an empty registry without a name.

    If the name is that of a function, the function is called for the registry. Modules in the current folder can be
    named, too. Naming a file trusts it. Raises `HookError` for hooks that cannot be read, built or found.
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
    except Exception as error:  # a foreign module may raise anything when it is imported or called
        raise InvalidRegistration(
            f"hooks {name!r}: {error}; write MODULE:NAME of a HookRegistry, or a file of hooks"
        ) from error
    if not isinstance(registry, HookRegistry):
        raise InvalidRegistration(f"hooks {name!r} are of type {type(registry).__name__}, and no HookRegistry")
    registry.check_gates()
    return registry


def hooks_of_folder(folder: Path, agree: Callable[[Path, DefinitionSet], bool]) -> NamedHooks:
    """Return the hooks of the project in this folder; none if it has no file.

    Nothing of the project runs or is imported unless its content is trusted: from before, or now because `agree`
    returns True for the file and its definitions. Raises `HookRefused` if it is not trusted, and `HookError` as
    `hooks_named` does.
    """
    from amplifier_hooks.definitions import WatchedFiles, load_files
    from amplifier_hooks.definitions.files.load_files import PROJECT_FILE
    from amplifier_hooks.definitions.trust import TrustStore

    if not (folder / PROJECT_FILE).exists():
        return hooks_named(None)
    path = project_file(folder=folder)
    found = load_files(path)
    if not TrustStore().trusts(content_digest(found)):
        if not agree(path, found):
            trusting = shlex.join(["amplifier-hooks", "validate", os.fspath(path), "--trust"])
            raise HookRefused(f"{path} has not been trusted as it is now; read it, then: {trusting}")
        trust_content(found, path)
    project = Project.build(path, found=found)
    return NamedHooks(project.registry, WatchedFiles(project.path, project.hooks))
