"""The definitions of a store come in; hooks of a registry, kept in step with the store, go out."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from attrs import define, evolve, field

from amplifier_hooks.definitions.files.load_files import DefinitionSet
from amplifier_hooks.definitions.install.defined_hooks import DefinedHooks
from amplifier_hooks.definitions.invalid_definitions import Flaw, InvalidDefinitions, Spot
from amplifier_hooks.definitions.model import likeness
from amplifier_hooks.definitions.settings import DefinitionSettings
from amplifier_hooks.definitions.store import MOST_DEFINITIONS, NameTaken, TooManyDefinitions
from amplifier_hooks.definitions.tenant_rules import check_tenant_hook
from amplifier_hooks.dispatch.middleware import OPERATIONS
from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.errors import TooManyHooks
from amplifier_hooks.logs import get_logger
from amplifier_hooks.registry.registry import HookRegistry
from amplifier_hooks.storage.database import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from amplifier_hooks.definitions.install.defined_hooks import Plan
    from amplifier_hooks.definitions.model import HookDefinition
    from amplifier_hooks.definitions.store import DefinitionStore


RECHECK: Final = 5.0
"""Seconds after which the store is read again, even without a signal of a change."""
TOGETHER: Final = 0.05
"""Seconds to wait after a change for further changes, before all are read."""

log = get_logger(__name__)


@define(eq=False)
class StoredHooks:
    """The definitions of a store that are in force.

    Definitions of different tenants are independent: one that cannot be built fails by itself, with its own fail mode,
    and the others work. `made` makes the `DefinedHooks` of a registry, for each tenant and for each trial.
    """

    registry: HookRegistry
    settings: DefinitionSettings = field(factory=DefinitionSettings)
    made: Callable[[HookRegistry], DefinedHooks] = DefinedHooks
    most: int = MOST_DEFINITIONS
    """Definitions of one tenant, at most."""
    _tenants: dict[str, DefinedHooks] = field(factory=dict, init=False)
    _behind: str = field(default="", init=False)
    """Reason why the definitions in force may be outdated; empty if they are current."""

    def ready(self, definition: HookDefinition) -> Callable[[], None]:
        """Prepare a definition to replace the one with its id, and return the function that puts it in force.

        Nothing changes until that function is called; it takes one step. Raises `HookRefused` for a limit of the
        tenant, `UnknownEvent`, `NameTaken`, `TooManyDefinitions`, `TooManyHooks` if the event has its most hooks, and
        `InvalidDefinitions` for a definition that cannot be built.
        """
        hooks = self._hooks_of(definition.tenant_id)
        self._check(definition, hooks)
        before, plan = hooks.in_force, self._plan(hooks, {**_definitions(hooks), definition.hook_id: definition})
        problem = plan.problem(definition.hook_id)
        if problem is not None and self.settings.hooks_enabled:
            raise InvalidDefinitions([Flaw(Spot(f"hook {definition.name}"), problem)])

        def put() -> None:
            if hooks.in_force is before:
                hooks.install(plan)
            else:  # another change came first
                self.put(definition)

        return put

    def put(self, definition: HookDefinition) -> None:
        """Put a definition in force; if it cannot be built, a stand-in fails in its place."""
        hooks = self._hooks_of(definition.tenant_id)
        hooks.install(self._plan(hooks, {**_definitions(hooks), definition.hook_id: definition}))

    def remove(self, definition: HookDefinition) -> None:
        """Take a definition out of force; an unknown one is ignored."""
        hooks = self._hooks_of(definition.tenant_id)
        wanted = _definitions(hooks)
        if wanted.pop(definition.hook_id, None) is not None:
            hooks.install(self._plan(hooks, wanted))

    def problem(self, definition: HookDefinition) -> str | None:
        """Return the reason why a definition is not in force as written; None if it is, or is switched off."""
        hooks = self._tenants.get(definition.tenant_id)
        return None if hooks is None else hooks.problem(definition.hook_id)

    def load(self, definitions: Iterable[HookDefinition]) -> None:
        """Put these definitions in force, and no others."""
        wanted: dict[str, dict[str, HookDefinition]] = {}
        for definition in definitions:
            wanted.setdefault(definition.tenant_id, {})[definition.hook_id] = definition
        for tenant in {*wanted, *self._tenants}:
            hooks, given = self._hooks_of(tenant), wanted.get(tenant, {})
            if _definitions(hooks) != given:
                hooks.install(self._plan(hooks, given))

    async def check(self) -> None:
        """Raise `StoreUnavailable` if the definitions in force may be outdated."""
        if self._behind:
            raise StoreUnavailable(self._behind)

    @asynccontextmanager
    async def following(self, store: DefinitionStore) -> AsyncIterator[None]:
        """Keep in step with a store, also with changes of other processes, for the duration of the block.

        Raises `StoreUnavailable` if the first read fails. If a later read fails, the definitions in force stay.
        """
        self.load(one.definition for one in await store.find())
        follower = asyncio.get_running_loop().create_task(self._follow(store))
        try:
            yield
        finally:
            follower.cancel()
            await asyncio.wait({follower})
            for hooks in self._tenants.values():
                await hooks.close()

    @asynccontextmanager
    async def alone(self, definition: HookDefinition) -> AsyncIterator[HookRegistry]:
        """Open a registry with this hook and no other, for the duration of the block. Raises `InvalidDefinitions`."""
        registry = HookRegistry(register_on_error="deny", timing=True)
        defined = self.made(registry)
        defined.install(defined.plan(evolve(self._definition_set((definition,)), events=(definition.event_type,))))
        try:
            yield registry
        finally:
            await defined.close()

    async def _follow(self, store: DefinitionStore) -> None:
        with store.watch() as watch:
            while True:
                if await watch.wait(RECHECK):
                    await asyncio.sleep(TOGETHER)
                try:
                    self.load(one.definition for one in await store.find())
                except Exception as problem:  # noqa: BLE001  # the hooks in force stay, and the store is read again
                    self._behind = describe(problem)
                    log.warning("definitions_not_read", error=self._behind)
                else:
                    self._behind = ""

    def _hooks_of(self, tenant: str) -> DefinedHooks:
        hooks = self._tenants.get(tenant)
        if hooks is None:
            hooks = self._tenants[tenant] = self.made(self.registry)
        return hooks

    def _plan(self, hooks: DefinedHooks, wanted: Mapping[str, HookDefinition]) -> Plan:
        plan = hooks.plan(self._definition_set(wanted.values()), tolerant=True)
        for flaw in plan.broken:
            log.warning("definition_broken", error=str(flaw))
        return plan

    def _check(self, definition: HookDefinition, hooks: DefinedHooks) -> None:
        """Raise for an unknown event, a taken name, or a definition over a limit of its tenant."""
        check_tenant_hook(definition, definition.tenant_id, handlers=hooks.tenant_handlers)
        known = _definitions(hooks)
        if definition.event_type not in OPERATIONS:  # a hook with points may be around one
            self.registry.check_event(definition.event_type, definition.name)
        others = [one for one in known.values() if one.hook_id != definition.hook_id]
        like = likeness(definition.name)
        taken = next((one for one in others if likeness(one.name) == like), None)
        if taken is not None:
            raise NameTaken(definition.name, taken.name)
        if definition.hook_id not in known and len(others) >= self.most:
            raise TooManyDefinitions(self.most)
        most = self.settings.hooks_max_per_event
        beside = sum(one.enabled and one.event_type == definition.event_type for one in others)
        if definition.enabled and beside >= most:
            raise TooManyHooks(definition.event_type, most)

    def _definition_set(self, definitions: Iterable[HookDefinition]) -> DefinitionSet:
        return DefinitionSet(definitions=tuple(definitions), settings=self.settings)


def _definitions(hooks: DefinedHooks) -> dict[str, HookDefinition]:
    """Return the definitions in force by their ids."""
    return {} if hooks.in_force is None else {one.hook_id: one for one in hooks.in_force.definitions}
