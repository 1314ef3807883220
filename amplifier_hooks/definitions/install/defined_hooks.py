"""Definitions in a registry: a set of them is prepared as a whole, and then takes the place of the last one at once.

```
plan(found)      builds every handler, and changes nothing; raises everything that is wrong
install(plan)    one step between two emits: what is new, what changed, what is gone
```

What did not change stays as it is, with its quarantine, its circuit and its being switched off.
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
from amplifier_hooks.definitions.install.build_external import BuildContext, texts_in
from amplifier_hooks.definitions.install.build_hooks import (
    Background,
    Builder,
    Part,
    build_ready_made,
    parts_of,
    stand_in,
)
from amplifier_hooks.definitions.invalid_definitions import Flaw, InvalidDefinitions, Spot, error_sentence
from amplifier_hooks.definitions.kinds.command import Programs
from amplifier_hooks.definitions.tenant_rules import TENANT_HANDLERS, check_tenant_hook
from amplifier_hooks.errors import HookError
from amplifier_hooks.logs import get_logger
from amplifier_hooks.registry.hook_table import RegistryChange

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping

    from amplifier_hooks.definitions.files.load_files import DefinitionSet, ReadyMadeEntry
    from amplifier_hooks.definitions.model import HookDefinition, Kind
    from amplifier_hooks.dispatch.chain import Hook
    from amplifier_hooks.registry.registry import HookRegistry


log = get_logger(__name__)

What = Literal["defined", "redefined", "undefined"]

DIGITS: Final = 16
"""Of a digest, in the record of a change."""


@frozen(eq=False, kw_only=True)
class PreparedHook:
    """One definition, or one ready-made hook, ready to be registered."""

    name: str
    enter: Callable[[HookRegistry], None]
    """Registers it. The same again is the same hook, and stays."""
    terms: object
    """What it was made from, besides its definition."""
    spot: Spot
    close: Callable[[], Awaitable[None]] | None = None
    """Lets go of what it holds open, when it does not stand any more."""
    definition: HookDefinition | None = None
    """None for a ready-made hook."""
    broken: str = ""
    """Why a failure stands in for it."""
    warnings: tuple[str, ...] = ()
    """What would keep it from running, as things are on this machine now."""

    @property
    def key(self) -> str:
        """What it is told by from one set to the next."""
        return self.name if self.definition is None else self.definition.hook_id

    @property
    def digest(self) -> str:
        """The digest of what it was made from."""
        return str(self.terms) if self.definition is None else self.definition.digest

    def is_of(self, definition: HookDefinition | None, terms: object) -> bool:
        """Whether it was made from these. Dates make no other hook."""
        mine = self.definition
        if mine is None or definition is None:
            return self.terms == terms and mine is definition
        return self.terms == terms and (mine == definition or mine.digest == definition.digest)


@frozen(eq=False, kw_only=True)
class Plan:
    """A set of definitions that could be built, and is not in force yet."""

    found: DefinitionSet
    prepared: tuple[PreparedHook, ...]
    broken: tuple[Flaw, ...] = ()
    """Hooks that fail every time, because they could not be built, where others were not to suffer from that."""
    trusted: Callable[[], bool] | None = None
    """Whether its programs may run, asked each time; None is always."""

    @property
    def warnings(self) -> tuple[Flaw, ...]:
        """What would keep its hooks from running, as things are on this machine now."""
        return tuple(Flaw(one.spot, said) for one in self.prepared for said in one.warnings)


@frozen
class Replaced:
    """What an installation changed, by names."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{len(self.added)} added, {len(self.changed)} changed, {len(self.removed)} removed"


@frozen(eq=False)
class InstalledHook:
    """One prepared hook that is registered, and what it is registered as."""

    prepared: PreparedHook
    hooks: tuple[Hook, ...]


@define(eq=False)
class DefinedHooks:
    """The hooks of a registry that come from definitions. Whatever else is registered there stays as it is.

    `builders` are for more kinds, such as `agent`, each making the handler of a definition; `tenant_handlers` is what
    carries out tenants' hooks, besides commands, which never do. The variables that definitions name are looked up in
    `environment`, in that of the process if None.
    """

    registry: HookRegistry
    builders: Mapping[Kind, Builder] = field(factory=dict, kw_only=True)
    tenant_handlers: Collection[str] = field(default=TENANT_HANDLERS, kw_only=True)
    environment: Mapping[str, str] | None = field(default=None, kw_only=True)
    in_force: DefinitionSet | None = field(default=None, init=False)
    """The set that is registered."""
    background: Background = field(factory=Background, init=False)
    _programs: Programs = field(factory=Programs, init=False)
    """Runs the commands of all of them."""
    _trusted: Callable[[], bool] | None = field(default=None, init=False)
    _installed: dict[str, InstalledHook] = field(factory=dict, init=False)
    _leaving: set[asyncio.Task[None]] = field(factory=set, init=False)
    """Closes what does not stand any more."""

    def plan(self, found: DefinitionSet, *, tolerant: bool = False, trusted: Callable[[], bool] | None = None) -> Plan:
        """Build the handlers of a set, and try whether the registry takes them. Imports what they name.

        Raises `InvalidDefinitions` with everything that is wrong. Where it is `tolerant`, a hook that cannot be built
        fails every time it is asked instead, which means what its fail_mode says: for sets of hooks that do not know
        of each other, such as those of different tenants. `trusted` is asked before each run of a program of the set.
        """
        flaws: list[Flaw] = []
        prepared = list(self._prepare_all(found, flaws, tolerant=tolerant)) if found.settings.hooks_enabled else []
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
        return Plan(found=found, prepared=ready, broken=tuple(sorted(set(flaws))), trusted=trusted)

    def install(self, plan: Plan) -> Replaced:
        """Put a plan in the place of what stands, in one step; an emit that runs goes on with what it began with.

        A hook that was switched off is not started any more even there. Raises what registering raises, where the
        registry has changed since it was asked; then everything is as it was.
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
        self._installed, self.in_force, self._trusted = new, plan.found, plan.trusted
        stays = {one.prepared.enter for one in new.values()}
        self._close_soon(one.prepared for one in old.values() if one.prepared.enter not in stays)
        return replaced

    def hooks(self) -> tuple[Hook, ...]:
        """What is registered of definitions."""
        return tuple(chain.from_iterable(one.hooks for one in self._installed.values()))

    def definition_of(self, hook: Hook) -> HookDefinition | None:
        """The definition a hook carries out; None for one of a ready-made hook, and for all others."""
        standing = self._installed.values()
        return next((one.prepared.definition for one in standing if hook in one.hooks), None)

    async def close(self) -> None:
        """Take all of it out again, end what runs in the background, and close what is open. Twice is harmless."""
        with self.registry.at_once():
            self.registry.remove(self.hooks())
        self._forget_events()
        old, self._installed, self.in_force = self._installed, {}, None
        await self.background.close()
        self._close_soon(one.prepared for one in old.values())
        if self._leaving:
            await asyncio.wait(self._leaving)

    def _close_soon(self, gone: Iterable[PreparedHook]) -> None:
        """Close these soon. Without an event loop nothing of them was opened."""
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
        """Whether it is registered as it is."""
        standing = self._installed.get(one.key)
        return standing is not None and standing.prepared.enter is one.enter

    def _forget_events(self) -> None:
        if self.in_force is not None:
            self.registry.forget_own_events(self.in_force.events)

    def _is_trusted(self) -> bool:
        return self._trusted is None or self._trusted()

    def _other_hooks(self, kept: Iterable[PreparedHook]) -> list[Hook]:
        """What is registered besides these."""
        keys = {one.key for one in kept}
        return [hook for key, one in self._installed.items() if key not in keys for hook in one.hooks]

    def _prepare_all(self, found: DefinitionSet, flaws: list[Flaw], *, tolerant: bool) -> Iterator[PreparedHook]:
        """Everything in a set that is switched on; what did not change since the last one is taken over."""
        for entry in found.library:
            try:
                yield self._build_ready_made(entry)
            except HookError as problem:
                flaws.append(Flaw(entry.spot, str(problem)))
        around = BuildContext(found.folder, self.environment, self._programs, self._is_trusted)
        said = found.settings
        times = (said.hooks_default_timeout_ms, said.hooks_chain_timeout_ms)
        terms = (found.folder, *times, said.hooks_fail_open_default)
        for definition in found.definitions:
            if not definition.enabled:
                continue
            try:
                yield self._reusable_hook(found, definition, terms) or self._build_hook(
                    found, definition, around, terms
                )
                continue
            except ValidationError as problem:
                wrong = [
                    Flaw(found.spot(definition, "config", *error["loc"]), error_sentence(error, ()))
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

    def _build_ready_made(self, entry: ReadyMadeEntry) -> PreparedHook:
        digest = hashlib.sha256(freeze([entry.name, dict(entry.config)])).hexdigest()
        standing = self._installed.get(entry.name)
        if standing is not None and standing.prepared.is_of(None, digest):
            return evolve(standing.prepared, spot=entry.spot)
        trusted = self._is_trusted if texts_in(dict(entry.config)) else None  # a text may name a program
        made = build_ready_made(entry.name, entry.config, digest, trusted)
        return PreparedHook(name=entry.name, enter=made.enter, close=made.close, terms=digest, spot=entry.spot)

    def _reusable_hook(
        self, found: DefinitionSet, definition: HookDefinition, terms: object, broken: str = ""
    ) -> PreparedHook | None:
        """The same, if it stands already."""
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
        """Put on record what is different."""
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
    """Close a hook; that it cannot be is no trouble for the others."""
    try:
        closing = one.close() if callable(one.close) else None
        if inspect.isawaitable(closing):
            await closing
    except Exception as problem:  # noqa: BLE001  # a hook of any package
        log.warning("hook_not_closed", hook=one.name, error=repr(problem))


def _change_of(what: What, old: InstalledHook | None, new: InstalledHook | None) -> RegistryChange:
    """One change as the record has it."""
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
    problems = (getattr(part.call.call, "problems", None) for part in parts)
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
