"""Definitions in a registry: a set is prepared as a whole, and then replaces the last set in one step.

```
plan(found)      builds every handler, and changes nothing; raises all mistakes in one error
install(plan)    adds, replaces and removes hooks in one step between two emits
```

A hook that did not change keeps its state: its quarantine, its circuit, and its being switched off.

A tenant's definition is untrusted: it runs no program of this machine, imports no code by its name, is at no privileged
event, not even by a pattern, and has no regular expression. `check_tenant_hook` holds these limits whenever a
definition is created, changed, imported or installed.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal

from attrs import define, evolve, field, frozen
from pydantic import ValidationError

from amplifier_hooks.act import freeze
from amplifier_hooks.definitions.files.open_files import Flaw, InvalidDefinitions, Spot
from amplifier_hooks.definitions.install.build_hooks import (
    CONFIGS,
    Background,
    BuildContext,
    Builder,
    Config,
    Part,
    build_ready_made,
    parts_of,
    stand_in,
)
from amplifier_hooks.definitions.kinds.command import Programs
from amplifier_hooks.definitions.kinds.python import check_name
from amplifier_hooks.definitions.kinds.webhook import addresses_of, is_public
from amplifier_hooks.dispatch.middleware import OPERATIONS
from amplifier_hooks.errors import HookError, HookRefused
from amplifier_hooks.events import CATALOGUE
from amplifier_hooks.logs import get_logger
from amplifier_hooks.registry.event_names import applies
from amplifier_hooks.registry.hook_table import RegistryChange
from amplifier_hooks.registry.permissions import PRIVILEGED_HOOKS
from amplifier_hooks.text.strict_parsing import error_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from amplifier_hooks.definitions.files.load_files import DefinitionSet, ReadyMadeEntry
    from amplifier_hooks.definitions.install.build_hooks import Close
    from amplifier_hooks.definitions.model import HookDefinition, Kind, NewHook
    from amplifier_hooks.definitions.private_copies import HookFiles, TrustedFiles
    from amplifier_hooks.dispatch.chain import Hook
    from amplifier_hooks.registry.registry import HookRegistry


TENANT_HANDLERS: Final = frozenset({"http"})
"""Handlers that a tenant's hooks may have, unless the operator names more: entry points, or kinds."""

OPERATORS_ONLY: Final = ("networks", "ports", "plain_http", "secret_env", "headers_env")
"""Keys of a config that reach into the machine or its networks."""


def is_tenant_allowed(event: str) -> bool:
    """Return True if a tenant's hook may be at an event, or at every event that a pattern matches."""
    wrapped = OPERATIONS.get(event)
    names = (event, wrapped.first) if wrapped else (event,)
    return not any(row.privileged and any(applies(name, row.name) for name in names) for row in CATALOGUE)


def check_tenant_hook(hook: NewHook, tenant_id: str, *, handlers: Collection[str] = TENANT_HANDLERS) -> None:
    """Check a hook against the limits of its tenant; the system (`""`) has none.

    Raises `HookRefused` with the field that breaks a limit.
    """
    if not tenant_id:
        return
    who = f"tenant {tenant_id!r}"
    if not is_tenant_allowed(hook.event_type):
        raise HookRefused(
            f"event_type {hook.event_type!r} takes in a privileged point, and {who} lacks {PRIVILEGED_HOOKS} permission"
        )
    if hook.handler_ref == "command" or hook.handler_ref not in handlers:
        known = ", ".join(sorted(set(handlers) - {"command"})) or "nothing"
        raise HookRefused(f"handler_ref {hook.handler_ref!r} is not for {who}; allowed: {known}")
    if hook.matcher is not None and hook.matcher.startswith("re:"):
        raise HookRefused(f"matcher {hook.matcher!r:.60}: {who} writes names, lists and globs, no regular expressions")
    for key in OPERATORS_ONLY:
        if key in hook.config:
            raise HookRefused(f"config.{key} can be set by the operator only, not by {who}")
    url = hook.config.get("url")
    if hook.handler_ref == "http" and isinstance(url, str):
        for address in addresses_of(url):
            if not is_public(address):
                raise HookRefused(f"config.url leads to {address}, which is not public; {who} names public services")


log = get_logger(__name__)

What = Literal["defined", "redefined", "undefined"]

REFUSED: Final = (
    "it is not in force: hooks are switched off, or the registry refuses it; the server's log has the reason"
)
UNREAD: Final = "it is not imported, because the file is not trusted as it is now"
DIGITS: Final = 16
"""Digits of a digest in the record of a change."""


@frozen(eq=False, kw_only=True)
class PreparedHook:
    """A definition, or a ready-made hook, that is ready to be registered."""

    name: str
    enter: Callable[[HookRegistry], None]
    """Registers the hook. A hook whose `enter` is the installed one stays as it is."""
    terms: object
    """Inputs of the hook besides its definition: the folder and the settings, or a ready-made hook's digest."""
    spot: Spot
    close: Close | None = None
    """Releases the hook's resources when it is removed."""
    definition: HookDefinition | None = None
    """Definition of the hook; None for a ready-made hook."""
    broken: str = ""
    """Reason why a stand-in that fails is registered for the hook; empty if it could be built."""
    warnings: tuple[str, ...] = ()
    """Reasons why the hook cannot run on this machine now."""

    @property
    def key(self) -> str:
        """Identity across reloads: the hook id, or the name of a ready-made hook."""
        return self.name if self.definition is None else self.definition.hook_id

    @property
    def digest(self) -> str:
        """Digest of the definition, or of a ready-made hook's name and config."""
        return str(self.terms) if self.definition is None else self.definition.digest

    def is_of(self, definition: HookDefinition | None, terms: object) -> bool:
        """Return True if the hook was made from this definition, apart from its dates, and these terms."""
        mine = self.definition
        if mine is None or definition is None:
            return self.terms == terms and mine is definition
        return self.terms == terms and (mine == definition or mine.digest == definition.digest)


@frozen(eq=False, kw_only=True)
class Plan:
    """A set of definitions that is built and not in force yet."""

    found: DefinitionSet
    prepared: tuple[PreparedHook, ...]
    """The hooks, built and not registered."""
    broken: tuple[Flaw, ...] = ()
    """Mistakes of the hooks that could not be built and fail every time instead; for tolerant plans."""

    @property
    def warnings(self) -> tuple[Flaw, ...]:
        """Reasons why hooks of the plan cannot run on this machine now."""
        return tuple(Flaw(one.spot, said) for one in self.prepared for said in one.warnings)

    def problem(self, hook_id: str) -> str | None:
        """Return the reason why a definition would not be in force as written; None also for one switched off."""
        return _problem(hook_id, {one.key: one for one in self.prepared}.get(hook_id), self.found)


@frozen
class Replaced:
    """Names of the hooks that an installation changed."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{len(self.added)} added, {len(self.changed)} changed, {len(self.removed)} removed"


@frozen(eq=False)
class InstalledHook:
    """A prepared hook that is registered, with its registrations."""

    prepared: PreparedHook
    hooks: tuple[Hook, ...]


@define(eq=False)
class DefinedHooks:
    """The hooks of a registry that come from definitions. All other hooks of the registry stay as they are.

    `builders` make the handlers of further kinds, such as `agent`; `tenant_handlers` are the handlers that tenants'
    hooks may have, commands always excepted. Variables that definitions name are read from `environment`, by default
    that of the process.
    """

    registry: HookRegistry
    builders: Mapping[Kind, Builder] = field(factory=dict, kw_only=True)
    tenant_handlers: Collection[str] = field(default=TENANT_HANDLERS, kw_only=True)
    environment: Mapping[str, str] | None = field(default=None, kw_only=True)
    in_force: DefinitionSet | None = field(default=None, init=False)
    """Set that is registered; None if there is none."""
    background: Background = field(factory=Background, init=False)
    _programs: Programs = field(factory=Programs, init=False)
    """Runner of the commands of all hooks."""
    _installed: dict[str, InstalledHook] = field(factory=dict, init=False)
    _leaving: set[asyncio.Task[None]] = field(factory=set, init=False)
    """Tasks that close removed hooks."""

    def plan(
        self,
        found: DefinitionSet,
        *,
        tolerant: bool = False,
        files: TrustedFiles | None = None,
        imports: bool = True,
    ) -> Plan:
        """Build the handlers of a set, importing the modules they name, and check that the registry accepts them.

        Args:
            tolerant: True lets a hook that cannot be built fail at every event, instead of refusing the set.

        Raises `InvalidDefinitions` with all mistakes. In a `tolerant` plan, a hook that cannot be built fails
        at every event, with its own fail mode; such a plan suits sets of independent hooks, such as those of several
        tenants. With `files`, commands and modules run from the copies of these trusted files. Without `imports`, a
        hook in Python stays unread: it fails at every event.
        """
        flaws: list[Flaw] = []
        enabled = found.settings.hooks_enabled
        prepared = list(self._prepare_all(found, flaws, files, tolerant=tolerant, imports=imports)) if enabled else []
        accepted = [one for one in prepared if self._is_installed(one)]
        most = found.settings.hooks_max_per_event
        with self.registry.at_once(max_per_event=most, own_events=found.events, keep=False):
            self.registry.remove(self._other_hooks(accepted))
            for one in prepared:
                if self._is_installed(one):
                    continue
                try:
                    with self.registry.at_once():
                        one.enter(self.registry)
                except HookError as problem:
                    flaws.append(Flaw(one.spot, str(problem)))
                else:
                    accepted.append(one)
        if flaws and not tolerant:
            raise InvalidDefinitions(flaws)
        wanted = set(accepted)
        ready = tuple(one for one in prepared if one in wanted)
        return Plan(found=found, prepared=ready, broken=tuple(sorted(set(flaws))))

    def install(self, plan: Plan) -> Replaced:
        """Replace the installed set by a plan in one step; a running emit goes on with the hooks it began with.

        A hook that is now switched off is not started any more, in a running emit either. If the registry has changed
        since `plan`, this raises the errors of registering and leaves everything unchanged.

        Args:
            plan: Set that `plan` has built.
        """
        old = self._installed
        new: dict[str, InstalledHook] = {}
        most = plan.found.settings.hooks_max_per_event
        with self.registry.at_once(max_per_event=most, own_events=plan.found.events):
            self.registry.remove(self._other_hooks(one for one in plan.prepared if self._is_installed(one)))
            for one in plan.prepared:
                if self._is_installed(one):
                    new[one.key] = InstalledHook(one, old[one.key].hooks)
                    continue
                before = len(self.registry.hooks())
                one.enter(self.registry)
                new[one.key] = InstalledHook(one, self.registry.hooks()[before:])
            replaced = self._record_changes(old, new)
        self.registry.renumber(chain.from_iterable(one.hooks for one in new.values()))
        off = {one.hook_id for one in plan.found.definitions if not one.enabled}
        for hook in chain.from_iterable(old[key].hooks for key in off & old.keys()):
            hook.enabled = False
            hook.settle()
        self._forget_events()
        self._installed, self.in_force = new, plan.found
        stays = {one.prepared.enter for one in new.values()}
        self._close_soon(one.prepared for one in old.values() if one.prepared.enter not in stays)
        return replaced

    def hooks(self) -> tuple[Hook, ...]:
        """Return the registered hooks that come from definitions."""
        return tuple(chain.from_iterable(one.hooks for one in self._installed.values()))

    def definition_of(self, hook: Hook) -> HookDefinition | None:
        """Return the definition that a hook carries out; None for a ready-made hook, and for all other hooks.

        Args:
            hook: Hook of the registry.
        """
        standing = self._installed.values()
        return next((one.prepared.definition for one in standing if hook in one.hooks), None)

    def problem(self, hook_id: str) -> str | None:
        """Return the reason why a definition is not in force as written; None also for one switched off."""
        installed = self._installed.get(hook_id)
        return _problem(hook_id, None if installed is None else installed.prepared, self.in_force)

    async def close(self) -> None:
        """Remove all hooks of definitions, cancel background hooks, and release resources. Idempotent."""
        with self.registry.at_once():
            self.registry.remove(self.hooks())
        self._forget_events()
        old, self._installed, self.in_force = self._installed, {}, None
        await self.background.close()
        self._close_soon(one.prepared for one in old.values())
        if self._leaving:
            await asyncio.wait(self._leaving)

    def _close_soon(self, gone: Iterable[PreparedHook]) -> None:
        """Start tasks that close removed hooks. Without an event loop, the hooks have opened nothing."""
        closing = [one for one in gone if one.close is not None]
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        for one in closing:
            task = loop.create_task(_close_hook(one))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    # -- inside --------------------------------------------------------------------------------------------------

    def _is_installed(self, one: PreparedHook) -> bool:
        """Return True if a prepared hook is already registered, unchanged."""
        standing = self._installed.get(one.key)
        return standing is not None and standing.prepared.enter is one.enter

    def _forget_events(self) -> None:
        if self.in_force is not None:
            self.registry.forget_own_events(self.in_force.events)

    def _other_hooks(self, kept: Iterable[PreparedHook]) -> list[Hook]:
        """Return the installed hooks that are not among the kept ones."""
        keys = {one.key for one in kept}
        return [hook for key, one in self._installed.items() if key not in keys for hook in one.hooks]

    def _prepare_all(
        self, found: DefinitionSet, flaws: list[Flaw], files: TrustedFiles | None, *, tolerant: bool, imports: bool
    ) -> Iterator[PreparedHook]:
        """Yield the enabled hooks of a set; a hook that did not change since the last set is reused."""
        for entry in found.library:
            try:
                yield self._build_ready_made(entry, None if files is None else files.of(entry.name))
            except HookError as problem:
                flaws.append(Flaw(entry.spot, str(problem)))
        said = found.settings
        times = (said.hooks_default_timeout_ms, said.hooks_chain_timeout_ms)
        for definition in found.definitions:
            if not definition.enabled:
                continue
            own, modules = (None, None) if files is None else (files.of(definition.hook_id), files.modules)
            around = BuildContext(found.folder, self.environment, self._programs, own, modules)
            terms = (found.folder, *times, said.hooks_fail_open_default, own and own.root)
            try:
                if definition.kind == "python" and not imports:
                    check_name(definition.handler_ref, found.folder)
                    parts = stand_in(definition, said, UNREAD)
                    yield _prepared_hook(found, definition, parts, terms, UNREAD)
                    continue
                yield self._reusable_hook(found, definition, terms) or self._build_hook(
                    found, definition, around, terms
                )
                continue
            except ValidationError as problem:
                model = CONFIGS.get(definition.kind, Config)
                wrong = [
                    Flaw(found.spot(definition, "config", *error["loc"]), error_sentence(error, model))
                    for error in problem.errors(include_url=False)
                ]
            except HookError as problem:
                wrong = [Flaw(found.spot(definition, "handler_ref"), str(problem))]
            flaws += wrong
            if tolerant:
                why = wrong[0].said
                parts = stand_in(definition, found.settings, why)
                yield self._reusable_hook(found, definition, terms, why) or _prepared_hook(
                    found, definition, parts, terms, why
                )

    def _build_ready_made(self, entry: ReadyMadeEntry, files: HookFiles | None) -> PreparedHook:
        named = files if files is not None and files.files else None
        digest = hashlib.sha256(freeze([entry.content, str(named and named.root)])).hexdigest()
        standing = self._installed.get(entry.name)
        if standing is not None and standing.prepared.is_of(None, digest):
            return evolve(standing.prepared, spot=entry.spot)
        enter, close = build_ready_made(entry.name, entry.config, digest, named, report_only=entry.report_only)
        return PreparedHook(name=entry.name, enter=enter, close=close, terms=digest, spot=entry.spot)

    def _reusable_hook(
        self, found: DefinitionSet, definition: HookDefinition, terms: object, broken: str = ""
    ) -> PreparedHook | None:
        """Return the installed hook of a definition, if it was made from the same inputs; None otherwise."""
        standing = self._installed.get(definition.hook_id)
        if standing is None or standing.prepared.broken != broken or not standing.prepared.is_of(definition, terms):
            return None
        spot = found.spot(definition)
        same = standing.prepared.spot == spot and standing.prepared.definition is definition
        return standing.prepared if same else evolve(standing.prepared, spot=spot, definition=definition)

    def _build_hook(
        self, found: DefinitionSet, definition: HookDefinition, around: BuildContext, terms: object
    ) -> PreparedHook:
        check_tenant_hook(definition, definition.tenant_id, handlers=self.tenant_handlers)
        parts = parts_of(definition, found.settings, around, self.background, self.builders)
        return _prepared_hook(found, definition, parts, terms)

    def _record_changes(self, old: Mapping[str, InstalledHook], new: Mapping[str, InstalledHook]) -> Replaced:
        """Record the changes between two sets, and return the names of the changed hooks."""
        both = [key for key in new if key in old]
        groups: dict[What, list[str]] = {
            "defined": [key for key in new if key not in old],
            "redefined": [key for key in both if old[key].prepared.enter is not new[key].prepared.enter],
            "undefined": [key for key in old if key not in new],
        }
        names = []
        for what, keys in groups.items():
            names.append(tuple((new if key in new else old)[key].prepared.name for key in keys))
            for key in keys:
                self.registry.tell(_change_of(what, old.get(key), new.get(key)))
        return Replaced(*names)


async def _close_hook(one: PreparedHook) -> None:
    """Close a hook, and log a failure instead of raising it."""
    try:
        closing = one.close() if callable(one.close) else None
        if inspect.isawaitable(closing):
            await closing
    except Exception as problem:  # noqa: BLE001  # a hook of any package
        log.warning("hook_not_closed", hook=one.name, error=repr(problem))


def _problem(hook_id: str, prepared: PreparedHook | None, found: DefinitionSet | None) -> str | None:
    if prepared is not None:
        return prepared.broken or None
    known = () if found is None else found.definitions
    return REFUSED if any(one.enabled and one.hook_id == hook_id for one in known) else None


def _change_of(what: What, old: InstalledHook | None, new: InstalledHook | None) -> RegistryChange:
    """Return a change of a hook in the form of the record."""
    one = new or old
    definition = one.prepared.definition if one else None
    return RegistryChange(
        what=what,
        hook=one.prepared.name if one else "",
        event=definition.event_type if definition else "",
        tenant=definition.tenant_id if definition else "",
        detail=" → ".join(each.prepared.digest[:DIGITS] if each else "nothing" for each in (old, new)),
    )


def _prepared_hook(
    found: DefinitionSet, definition: HookDefinition, parts: tuple[Part, ...], terms: object, broken: str = ""
) -> PreparedHook:
    problems = (getattr(part.call.func, "problems", None) for part in parts)
    return PreparedHook(
        name=definition.name,
        enter=partial(_enter, parts),
        terms=terms,
        spot=found.spot(definition),
        definition=definition,
        broken=broken,
        warnings=tuple(said for ask in problems if ask is not None for said in ask()),
    )


def _enter(parts: Iterable[Part], registry: HookRegistry) -> None:
    for part in parts:
        getattr(registry, part.intent)(part.event, part.call, **part.options)
