"""The definitions of a store come in; hooks of a registry, kept in step with the store, go out; callers change them.

A change looks the definition up for the caller's tenant, checks it, records the digests before and after, stores the
result if no other caller was faster, and puts it in force. Without the record nothing is changed. If a recorded change
fails, `definition.unchanged` follows it in the record.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from attrs import define, evolve, field

from amplifier_hooks.clock import SystemClock
from amplifier_hooks.definitions.files.load_files import DefinitionSet
from amplifier_hooks.definitions.files.open_files import Flaw, InvalidDefinitions, Spot
from amplifier_hooks.definitions.install.defined_hooks import DefinedHooks, check_tenant_hook
from amplifier_hooks.definitions.model import (
    DefinitionSettings,
    HookChanges,
    HookDefinition,
    NewHook,
    likeness,
    new_hook_id,
)
from amplifier_hooks.definitions.store import (
    MOST_DEFINITIONS,
    ChangedMeanwhile,
    NameTaken,
    StoredHook,
    TooManyDefinitions,
)
from amplifier_hooks.dispatch.middleware import OPERATIONS
from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.errors import TooManyHooks
from amplifier_hooks.logs import get_logger
from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.registry.registry import HookRegistry
from amplifier_hooks.server.problem_details import Problem
from amplifier_hooks.storage.database import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping

    from amplifier_hooks.definitions.install.defined_hooks import Plan
    from amplifier_hooks.definitions.store import DefinitionStore
    from amplifier_hooks.ports import AuditSink, Clock
    from amplifier_hooks.server.edge.authentication import Caller


RECHECK: Final = 5.0
"""Seconds after which the store is read again, even without a signal of a change."""
TOGETHER: Final = 0.05
"""Seconds to wait after a change for further changes, before all are read."""

HOOK_ID: Final = re.compile(r"hook_[0-9a-f]{12}")

T = TypeVar("T")

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


Change = tuple[HookDefinition | None, HookDefinition | None]
"""A definition before and after a change; None before it is made, and after it is deleted."""


@define(eq=False, kw_only=True)
class HookKeeper:
    """Manager of definitions on behalf of callers.

    `changed` is called with the old version of every changed definition, and voids the questions of its hook.
    """

    store: DefinitionStore
    in_force: StoredHooks
    record: AuditSink
    clock: Clock = field(factory=SystemClock)
    changed: Callable[[HookDefinition], Awaitable[None]]

    async def get(self, caller: Caller, hook_id: str) -> StoredHook:
        """Return a definition that the caller can see. Raises `Problem` 404, also for another tenant's definition."""
        self._check_allowed(caller)
        known = await self.store.get(hook_id, caller.tenant_seen) if HOOK_ID.fullmatch(hook_id) else None
        if known is None:
            raise Problem(404, "not_found", "there is no such hook")
        return known

    async def find(self, caller: Caller, tenant: str | None, **wanted: Any) -> list[StoredHook]:
        """Return a page of the definitions that the caller can see. Raises `Problem` 404 for another tenant."""
        self._check_allowed(caller)
        return await self.store.find(tenant=whose_list(caller, tenant), **wanted)

    async def create(self, caller: Caller, new: NewHook) -> StoredHook:
        """Store a new definition of the caller's tenant, and put it in force."""
        self._check_allowed(caller)
        definition = new.to_definition(tenant_id=caller.tenant, hook_id=new_hook_id(), now=self._now())
        put = self.in_force.ready(definition)
        making = self.store.create(definition, most=self.in_force.most)
        return await self._carry_out(caller, "definition.created", (None, definition), making, put)

    async def change(
        self, caller: Caller, hook_id: str, changes: HookChanges, version: int | None = None
    ) -> StoredHook:
        """Change a definition; with a `version`, only if it still has that version. Raises `Problem`.

        A change that leaves the definition equal has no effect, and the hook's open questions stay.
        """
        known = await self._get_version(caller, hook_id, version)
        definition = changes.apply_to(known.definition, now=self._now())
        if definition.digest == known.definition.digest:
            return known
        put = self.in_force.ready(definition)
        making = self.store.replace(definition, known.version)
        return await self._carry_out(caller, "definition.changed", (known.definition, definition), making, put)

    async def delete(self, caller: Caller, hook_id: str, version: int) -> None:
        """Delete a definition if it has this version, and take it out of force. Raises `Problem`."""
        known = await self._get_version(caller, hook_id, version)
        gone = partial(self.in_force.remove, known.definition)
        making = self.store.delete(hook_id, known.version)
        await self._carry_out(caller, "definition.deleted", (known.definition, None), making, gone)

    async def note_trial(self, caller: Caller, hook: StoredHook) -> None:
        """Record that a hook is about to be tried. Raises `RecordUnavailable`."""
        await self._record("definition.tried", caller, (hook.definition, hook.definition))

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _check_allowed(self, caller: Caller) -> None:
        if not caller.tenant and not caller.everywhere:
            wanted = 'Bearer error="insufficient_scope", scope="hooks:admin"'
            detail = "the system's hooks need a token with the scope hooks:admin"
            raise Problem(403, "insufficient_scope", detail, headers={"www-authenticate": wanted})

    async def _get_version(self, caller: Caller, hook_id: str, version: int | None) -> StoredHook:
        known = await self.get(caller, hook_id)
        if version is not None and known.version != version:
            raise ChangedMeanwhile(hook_id, known.version)
        return known

    async def _carry_out(
        self, caller: Caller, kind: str, change: Change, making: Coroutine[Any, Any, T], put: Callable[[], None]
    ) -> T:
        """Record a change, make it, and put it in force. Records a failure as well."""
        try:
            await self._record(kind, caller, change)
        except BaseException:
            making.close()
            raise
        try:
            made = await making
        except BaseException as problem:
            await self._record_unchanged(caller, change, problem)
            raise
        put()
        if (old := change[0]) is not None:
            try:
                await self.changed(old)
            except StoreUnavailable as problem:  # the change stands, and old questions cannot be claimed
                log.warning("questions_not_voided", hook_id=old.hook_id, error=str(problem))
        return made

    async def _record(self, kind: str, caller: Caller, change: Change, **facts: Any) -> None:
        """Write a change to the record. Raises `RecordUnavailable` for any error of the sink."""
        before, after = (one and one.digest for one in change)
        definition = next(one for one in reversed(change) if one is not None)
        said = {
            "tenant": definition.tenant_id,
            "hook": definition.name,
            "hook_id": definition.hook_id,
            "before": before,
            "after": after,
            **facts,
        }
        await caller.record(self.record, kind, said, self.clock)

    async def _record_unchanged(self, caller: Caller, change: Change, problem: BaseException) -> None:
        with suppress(RecordUnavailable):  # a change that was not made needs no proof
            await self._record("definition.unchanged", caller, change, reason=type(problem).__name__)

    def _now(self) -> datetime:
        return self.clock.now().astimezone(UTC)


def whose_list(caller: Caller, tenant: str | None) -> str | None:
    """Return the tenant whose entries a list shows; None shows those of all tenants.

    Raises `Problem` 404 for a tenant that the caller cannot see.
    """
    if tenant is not None and not caller.sees(tenant):
        raise Problem(404, "not_found", "there is no such tenant")
    return caller.tenant_seen if tenant is None else tenant
