"""A file, a module or a folder comes in; a registry with its hooks goes out, once the content is trusted.

Changes of trusted hooks are announced, asked about, and taken over once they are trusted.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import shlex
import sys
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer
from attrs import frozen

from amplifier_hooks.admission.rules import SelfProtection
from amplifier_hooks.definitions import DefinedHooks, DefinitionSet, WatchedFiles, load_files
from amplifier_hooks.definitions.files.load_files import PROJECT_FILE
from amplifier_hooks.definitions.kinds.python import build_hook
from amplifier_hooks.definitions.list_files import FileDigests, FilesNotListed, list_files, listed_modules
from amplifier_hooks.definitions.private_copies import ProjectModules, TrustedFiles, remove_unused
from amplifier_hooks.definitions.reload import PinnedModules, is_gone
from amplifier_hooks.definitions.trust import SETS_OWN, FileList, TrustStore
from amplifier_hooks.errors import HookRefused, HookUnavailable, InvalidRegistration, SettingsError
from amplifier_hooks.registry.registry import HookRegistry
from amplifier_hooks.storage.state_folder import StateFolder, default_socket
from amplifier_hooks.text.escape import for_terminal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from amplifier_hooks.definitions import Plan
    from amplifier_hooks.ports import ApprovalBackend, AuditSink
    from amplifier_hooks.registry.hook_table import RegistryChange
    from amplifier_hooks.runs.blueprint import Agents
    from approval_backends.rules.policy import Rules


def project_file(named: Path | None = None, folder: Path | None = None) -> Path:
    """Return the absolute path of the named file of hooks, or of that of the folder; links stay as they are."""
    path = (folder or Path()) / PROJECT_FILE if named is None else named
    if path.is_dir():
        path /= PROJECT_FILE
    return Path(os.path.abspath(path))  # noqa: PTH100


def existing_file(named: Path | None = None) -> Path:
    """Return the named file of hooks, or that of this folder. Raises `SettingsError` if it is missing."""
    path = project_file(named)
    if not path.exists():
        remedy = f"{GONE}: amplifier-hooks validate --trust" if is_removed(path) else "amplifier-hooks init writes one"
        raise SettingsError(path, f"it is not there; {remedy}")
    return path


GONE: Final = "the hooks that were trusted stay in force where they run; put it back, or trust its removal"


def is_removed(path: Path) -> bool:
    """Return True if a file of hooks is gone, and an approver has not decided about that."""
    kept = TrustStore().trusted_list(str(path)) if is_gone(path) else None
    return kept is not None and not kept.is_removal


def trust_removal(path: Path) -> None:
    """Trust the removal of a file of hooks, so that none of them is in force. Raises `OSError`."""
    trust = TrustStore()
    kept = trust.trusted_list(str(path))
    if kept is not None:
        trust.trust(str(path), [kept.removal()])


@frozen(eq=False)
class Project:
    """A file of hooks, read and built, with the registry in which the hooks are in force."""

    path: Path
    found: DefinitionSet
    hooks: DefinedHooks
    plan: Plan
    trusted: bool
    """True if the files are trusted as they are now; otherwise nothing of them was imported."""
    changed: bool = False
    """True if the files were trusted, and have changed since."""

    @property
    def unread(self) -> bool:
        """True if a hook in Python was not imported."""
        return not self.trusted and any(one.enabled and one.kind == "python" for one in self.found.definitions)

    @property
    def registry(self) -> HookRegistry:
        """The registry, with the hooks of this file and no others."""
        return self.hooks.registry

    @classmethod
    def build(cls, path: Path) -> Project:
        """Read a file and build its hooks; of files that are not trusted as they are now, nothing is imported.

        Raises `InvalidDefinitions` with every flaw.
        """
        found = load_files(path)
        files = trusted_as_now(found, path)
        if files is not None:
            return cls.of(path, found, files)
        hooks = DefinedHooks(HookRegistry(register_on_error="deny"))
        plan = hooks.plan(found, imports=False)
        hooks.install(plan)
        return cls(path, found, hooks, plan, trusted=False, changed=TrustStore().trusted_list(str(path)) is not None)

    @classmethod
    def of(cls, path: Path, found: DefinitionSet, files: TrustedFiles) -> Project:
        """Build the hooks of files to which the operator has agreed, from private copies. Raises as `build` does."""
        hooks = DefinedHooks(HookRegistry(register_on_error="deny"))
        files.make()
        plan = hooks.plan(found, files=files)
        hooks.install(plan)
        return cls(path, found, hooks, plan, trusted=True)


def list_trusted(found: DefinitionSet, path: Path, trust: TrustStore) -> TrustedFiles:
    """Return the files of a set as they are now, trusted or not. Raises `FilesNotListed`."""
    digests = FileDigests()
    return TrustedFiles(list_files(found, digests, trust.trusted_list(str(path))), trust.copies, digests)


def trusted_as_now(found: DefinitionSet, path: Path) -> TrustedFiles | None:
    """Return the files of a set if they are trusted as they are now; None otherwise."""
    trust = TrustStore()
    with suppress(FilesNotListed):
        files = list_trusted(found, path, trust)
        return files if trust.trusts(files.listed) else None
    return None


def trust_content(found: DefinitionSet, path: Path) -> Project:
    """Build the hooks of a file, and then trust the file and all that its hooks run, as they are now.

    Raises `HookError` if they cannot be built or listed, and `OSError` if the trust cannot be stored.
    """
    trust = TrustStore()
    files = list_trusted(found, path, trust)
    project = Project.of(path, found, files)
    trust.trust(str(path), [files.listed])
    remove_unused(trust)
    return project


def rules_in(path: Path | None) -> Rules | None:
    """Return the rules of a file, if one is named. Raises the errors of a file that cannot be used."""
    if path is None:
        return None
    from approval_backends.rules.policy import Rules

    return Rules.load(path)


MODULE_NAME: Final = re.compile(r"[A-Za-z_][\w.]*:\w*")
ENDINGS: Final = (".yaml", ".yml", ".json")


@frozen
class NamedHooks:
    """A registry, with the watched files or modules from which its hooks come."""

    registry: HookRegistry
    files: WatchedFiles | None = None
    modules: PinnedModules | None = None
    """The project's modules of a registry that was named."""

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
            more=trusted_now,
            ports=ports,
            off="--no-self-protection" if off else "",
        )

    async def close(self) -> None:
        """Close what the hooks of a file have opened, after their last event. Closing twice is harmless."""
        if self.files is not None:
            await self.files.hooks.close()


def trusted_now() -> tuple[str, ...]:
    """Return the files that this user's trust covers. The store is read again when it has changed."""
    store = TrustStore()
    try:
        status = store.path.stat()
    except OSError:
        return ()
    return _trusted_by(store.path, (status.st_mtime_ns, status.st_size, status.st_ino))


@lru_cache(maxsize=1)
def _trusted_by(path: Path, _signature: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(sorted(TrustStore(path).trusted_files()))


def hooks_named(name: str | None) -> NamedHooks:
    """Return the hooks of this file, or the registry `MODULE:NAME`; an empty registry without a name.

    Naming a file or a module of this folder trusts its current content, once: if its content is another later, the
    hooks that were trusted first are in force until the change is trusted, also if the file is gone. If the name is
    that of a function, the function is called for the registry. Raises `HookError` for hooks that cannot be read, built
    or found.
    """
    if name is None:
        return NamedHooks(HookRegistry(register_on_error="deny"))
    if not (name.endswith(ENDINGS) or Path(name).is_dir()):
        modules = registry_modules(name)
        return NamedHooks(_import_registry(name, modules), modules=modules)
    path = project_file(Path(name))
    kept = TrustStore().trusted_list(str(path))
    if kept is None or (kept.is_removal and is_gone(path)):
        trust_content(load_files(existing_file(path)), path)
    else:
        remove_unused(TrustStore())
    return _followed(path)


def _followed(path: Path) -> NamedHooks:
    """Return the trusted hooks of a file, to be followed; print the reason if they are not those that it has now.

    Raises `HookUnavailable` if they cannot be built.
    """
    files = WatchedFiles(path, DefinedHooks(HookRegistry(register_on_error="deny")), trust=TrustStore())
    files.refresh()
    if files.hooks.in_force is None:
        raise HookUnavailable(files.state.problem)
    tell_problem(path.name, files.state.problem)
    return NamedHooks(files.hooks.registry, files)


def tell_problem(name: str, problem: str) -> None:
    """Print the reason why trusted hooks are in force, and not those that there are now."""
    if problem:
        text = f"{name} is not taken over, and the hooks that were trusted are in force: {problem}"
        typer.echo(for_terminal(text), err=True)


def pinned_modules(path: Path, names: Iterable[str], *, looks: bool = False) -> PinnedModules:
    """Return the modules of this folder that names need, as they were trusted last; print whether a change waits.

    Modules that were never trusted are trusted now, unless the caller only `looks`. Raises `HookUnavailable` for
    modules that cannot be copied.
    """
    try:
        found = PinnedModules(
            path, tuple(names), Path.cwd(), TrustStore(), looks=looks, tell=partial(tell_problem, path.name)
        )
    except OSError as problem:
        raise HookUnavailable(f"the modules of {path} cannot be copied: {problem}") from problem
    if not looks:
        tell_problem(path.name, found.problem)
        remove_unused(found.trust)
    return found


def registry_modules(name: str, *, looks: bool = False) -> PinnedModules:
    """Return the modules of this folder that `MODULE:NAME` needs. Raises as `pinned_modules` does."""
    return pinned_modules(Path.cwd() / name, [f"{name.partition(':')[0]}:"], looks=looks)


def modules_here(names: Iterable[str]) -> ProjectModules:
    """Return the modules of this folder that names such as `module:name` need, copied as they are now.

    Installed modules are not among them. Raises `HookUnavailable` for a module that changes meanwhile, and `OSError`.
    """
    folder, digests = Path.cwd(), FileDigests()
    listed = {one for name in names for one in listed_modules(name, folder, digests)}
    groups = {SETS_OWN: tuple(sorted(listed))}
    files = TrustedFiles(FileList(folder=str(folder), groups=groups), TrustStore().copies, digests)
    files.make()
    return files.modules


def _import_registry(name: str, modules: PinnedModules) -> HookRegistry:
    try:
        found = _named_object(name, "registry", modules.modules)
        registry = found if isinstance(found, HookRegistry) else found()
    except Exception as error:  # a foreign module may raise anything when it is imported or called
        raise InvalidRegistration(
            f"hooks {name!r}: {error}; write MODULE:NAME of a HookRegistry, or a file of hooks"
        ) from error
    if not isinstance(registry, HookRegistry):
        raise InvalidRegistration(f"hooks {name!r} are of type {type(registry).__name__}, and no HookRegistry")
    registry.check_gates()
    return registry


def import_here(name: str, default: str) -> Any:  # any object of any module
    """Return the object that `MODULE:NAME` names, of an installed module or of one in this folder.

    Without `NAME`, it is the one called `default`. Raises whatever the module raises.
    """
    return _named_object(name, default, modules_here([f"{name.partition(':')[0]}:"]))


def _named_object(name: str, default: str, modules: ProjectModules) -> Any:
    module, _, attribute = name.partition(":")
    found = modules.load(module) if modules.has(module) else importlib.import_module(module)
    return getattr(found, attribute or default)


def functions_of(agents: Agents, folder: Path, *, looks: bool = False) -> PinnedModules:
    """Return the modules of this folder that the hooks in a folder of blueprints name. Raises as `pinned_modules`."""
    hooks = [hook for agent in agents for hook in (agent.hooks.on_run_start, agent.hooks.on_run_finish)]
    names = sorted({hook.handler_ref for hook in hooks if hook is not None and hook.handler_ref is not None})
    return pinned_modules(Path(os.path.abspath(folder)), names, looks=looks)  # noqa: PTH100


def find_in(functions: PinnedModules | None) -> Callable[[str], Any]:
    """Return a function that finds a function by its name, in installed modules and in pinned ones."""
    return lambda name: build_hook(name, {}, None if functions is None else functions.modules)


def pinned_by(name: Path) -> PinnedModules | None:
    """Return the modules that `MODULE:NAME`, or a folder of blueprints whose functions are trusted, stands for.

    Nothing is trusted by that. Returns None for any other path. Raises as `pinned_modules` does, and the errors of
    blueprints.
    """
    if MODULE_NAME.fullmatch(str(name)) and not name.exists():
        return registry_modules(str(name), looks=True)
    if name.is_dir() and not project_file(name).exists():
        from amplifier_hooks.runs.blueprint import load_agents

        return functions_of(load_agents(name), name, looks=True)
    return None


def hooks_of_folder(folder: Path) -> NamedHooks:
    """Return the hooks of the project in this folder; none if it has no file.

    Nothing of the project runs or is imported unless its content is trusted as it is now; of a file that is gone, the
    hooks that were trusted are in force. Raises `HookRefused` if the content is not trusted, and `HookError` as
    `hooks_named` does.
    """
    path = project_file(folder=folder)
    if not path.exists():
        return _followed(path) if is_removed(path) else hooks_named(None)
    found, trust = load_files(path), TrustStore()
    kept = trust.trusted_list(str(path))
    if kept is None or kept.digest != list_trusted(found, path, trust).listed.digest:
        trusting = shlex.join(["amplifier-hooks", "validate", os.fspath(path), "--trust"])
        raise HookRefused(f"{path} has not been trusted as it is now; read it, then: {trusting}")
    return _followed(path)


@asynccontextmanager
async def follow_hooks(
    hooks: NamedHooks, approvals: ApprovalBackend | None, audit: AuditSink, *more: PinnedModules | None
) -> AsyncIterator[None]:
    """Follow the files and modules of hooks, and further modules, for the block.

    With `approvals`, the approvers are asked about each change that waits, and `audit` records it.
    """
    from amplifier_hooks.definitions.change_requests import ChangeRequests

    async with AsyncExitStack() as stack:
        if hooks.files is not None:
            stack.callback(hooks.registry.watch(tell_change))
        for one in (hooks.files, hooks.modules, *more):
            if one is None:
                continue
            stack.push_async_callback(_end, asyncio.create_task(one.watch()))
            if approvals is not None and one.trust is not None:
                requests = ChangeRequests(one, one.trust, approvals, audit)
                stack.push_async_callback(_end, asyncio.create_task(requests.follow()))
        yield


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def tell_change(change: RegistryChange) -> None:
    """Print a change of the hooks in force on standard error: a server at a terminal shows no log."""
    if change.what == "broken":
        text = f"{change.hook} has changed and is not taken over: {change.detail}"
    elif change.what in ("defined", "redefined", "undefined"):
        text = f"Hook {change.hook} is {change.what}."
    else:
        return
    print(for_terminal(text), file=sys.stderr, flush=True)
