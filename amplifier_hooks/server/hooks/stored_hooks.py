"""The definitions of a store as hooks of a registry, kept in step with it."""

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
"""Seconds after which the store is read again, woken or not."""
REFUSED: Final = (
    "it is not in force: hooks are switched off, or the registry does not take it; the server's log says why"
)
TOGETHER: Final = 0.05
"""Seconds after a change in which others may follow, before all are read."""

log = get_logger(__name__)


@define(eq=False)
class TenantHooks:
    """The definitions of one tenant, and what they are registered as."""

    defined: DefinedHooks
    all: dict[str, HookDefinition] = field(factory=dict)
    problems: dict[str, str] = field(factory=dict)
    """Why a definition is not in force as it says, by its id."""


@define(eq=False)
class StoredHooks:
    """What is in force of a store's definitions.

    Those of different tenants do not know of each other: one that cannot be built fails by itself, as its fail_mode
    says, and the others stand. `made` makes what registers them; it is asked again for each that is tried alone.
    """

    registry: HookRegistry
    settings: DefinitionSettings = field(factory=DefinitionSettings)
    made: Callable[[HookRegistry], DefinedHooks] = DefinedHooks
    most: int = MOST_DEFINITIONS
    """Definitions of one tenant."""
    _tenants: dict[str, TenantHooks] = field(factory=dict, init=False)
    _behind: str = field(default="", init=False)
    """Why what is in force may be old."""

    def ready(self, definition: HookDefinition) -> Callable[[], None]:
        """Make all ready to put a definition in force, in the place of the one with its id.

        What is returned does it, in one step; until then nothing is different. Raises, as things stand here,
        `UnknownEvent`, `NameTaken`, `TooManyDefinitions`, `TooManyHooks` where an event has as many as it may, and
        `InvalidDefinitions` for what cannot be built.
        """
        standing = self._hooks_of(definition.tenant_id)
        self._check(definition, standing)
        before, wanted = standing.all, {**standing.all, definition.hook_id: definition}
        plan = self._plan(standing, wanted)
        problem = problems(plan, {definition.hook_id: definition}).get(definition.hook_id)
        if problem is not None and self.settings.hooks_enabled:
            raise InvalidDefinitions([Flaw(Spot(f"hook {definition.name}"), problem)])

        def put() -> None:
            if standing.all is before:
                self._install(standing, wanted, plan)
            else:  # somebody else was faster
                self.put(definition)

        return put

    def put(self, definition: HookDefinition) -> None:
        """Put a definition in force, whatever comes of it."""
        standing = self._hooks_of(definition.tenant_id)
        wanted = {**standing.all, definition.hook_id: definition}
        self._install(standing, wanted, self._plan(standing, wanted))

    def remove(self, definition: HookDefinition) -> None:
        """Take a definition out of force. One that is not there is none."""
        standing = self._hooks_of(definition.tenant_id)
        if definition.hook_id in standing.all:
            wanted = {hook_id: one for hook_id, one in standing.all.items() if hook_id != definition.hook_id}
            self._install(standing, wanted, self._plan(standing, wanted))

    def problem(self, hook_id: str) -> str | None:
        """Why a definition is not in force as it says; None if it is, or is switched off."""
        found = (one.problems.get(hook_id) for one in self._tenants.values())
        return next((problem for problem in found if problem), None)

    def load(self, definitions: Iterable[HookDefinition]) -> None:
        """Put these in force, and no others."""
        wanted: dict[str, dict[str, HookDefinition]] = {}
        for definition in definitions:
            wanted.setdefault(definition.tenant_id, {})[definition.hook_id] = definition
        for tenant in {*wanted, *self._tenants}:
            standing, given = self._hooks_of(tenant), wanted.get(tenant, {})
            if standing.all != given:
                self._install(standing, given, self._plan(standing, given))

    async def check(self) -> None:
        """Return if what the store has is in force, as far as it could be read. Raises `StoreUnavailable`."""
        if self._behind:
            raise StoreUnavailable(self._behind)

    @asynccontextmanager
    async def following(self, store: DefinitionStore) -> AsyncIterator[None]:
        """Keep in step with a store, whoever writes to it, for as long as the block lasts.

        Raises `StoreUnavailable` when it cannot be read at first. What cannot be read later leaves in force what is.
        """
        self.load(one.definition for one in await store.find())
        follower = asyncio.get_running_loop().create_task(self._follow(store))
        try:
            yield
        finally:
            follower.cancel()
            await asyncio.wait({follower})
            for standing in self._tenants.values():
                await standing.defined.close()

    @asynccontextmanager
    async def alone(self, definition: HookDefinition) -> AsyncIterator[HookRegistry]:
        """A registry with this hook and no other, for as long as the block lasts. Raises `InvalidDefinitions`."""
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
                except Exception as problem:  # noqa: BLE001  # whatever it is, what is in force stays, and is read again
                    self._behind = describe(problem)
                    log.warning("definitions_not_read", error=self._behind)
                else:
                    self._behind = ""

    def _hooks_of(self, tenant: str) -> TenantHooks:
        standing = self._tenants.get(tenant)
        if standing is None:
            standing = self._tenants[tenant] = TenantHooks(self.made(self.registry))
        return standing

    def _plan(self, standing: TenantHooks, wanted: Mapping[str, HookDefinition]) -> Plan:
        plan = standing.defined.plan(self._definition_set(wanted.values()), tolerant=True)
        for flaw in plan.broken:
            log.warning("definition_broken", error=str(flaw))
        return plan

    def _check(self, definition: HookDefinition, standing: TenantHooks) -> None:
        """Refuse an unknown event, and a definition that has no room among the tenant's others."""
        if definition.event_type not in OPERATIONS:  # a hook with points may be around one
            self.registry.check_event(definition.event_type, definition.name)
        others = [one for one in standing.all.values() if one.hook_id != definition.hook_id]
        like = likeness(definition.name)
        taken = next((one for one in others if likeness(one.name) == like), None)
        if taken is not None:
            raise NameTaken(definition.name, taken.name)
        if definition.hook_id not in standing.all and len(others) >= self.most:
            raise TooManyDefinitions(self.most)
        most = self.settings.hooks_max_per_event
        beside = sum(one.enabled and one.event_type == definition.event_type for one in others)
        if definition.enabled and beside >= most:
            raise TooManyHooks(definition.event_type, most)

    def _install(self, standing: TenantHooks, wanted: dict[str, HookDefinition], plan: Plan) -> None:
        standing.defined.install(plan)
        standing.all, standing.problems = wanted, problems(plan, wanted)

    def _definition_set(self, definitions: Iterable[HookDefinition]) -> DefinitionSet:
        return DefinitionSet(definitions=tuple(definitions), settings=self.settings)


def problems(plan: Plan, wanted: Mapping[str, HookDefinition]) -> dict[str, str]:
    """Why some of these are not in force as they say, once the plan is."""
    taken = {one.key: one.broken for one in plan.prepared}
    return {
        hook_id: taken.get(hook_id, REFUSED)
        for hook_id, one in wanted.items()
        if one.enabled and taken.get(hook_id, REFUSED)
    }
