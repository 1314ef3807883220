"""Changes of definitions: a caller and a change come in; a recorded, stored definition that is in force goes out.

A change looks the definition up for the caller's tenant, checks it, records the digests before and after, stores the
result if no other caller was faster, and puts it in force. Without the record nothing is changed. If a recorded change
fails, `definition.unchanged` follows it in the record.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from attrs import define, field, frozen

from amplifier_hooks.clock import SystemClock, stamp
from amplifier_hooks.definitions.model import HookChanges, HookDefinition, NewHook, new_hook_id
from amplifier_hooks.definitions.store import ChangedMeanwhile, StoredHook
from amplifier_hooks.logs import get_logger
from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.server.problem_details import Problem
from amplifier_hooks.storage.database import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from amplifier_hooks.definitions.store import DefinitionStore
    from amplifier_hooks.ports import AuditSink, Clock
    from amplifier_hooks.server.edge.authentication import Caller
    from amplifier_hooks.server.hooks.stored_hooks import StoredHooks


T = TypeVar("T")

log = get_logger(__name__)

HOOK_ID: Final = re.compile(r"hook_[0-9a-f]{12}")


@frozen
class DefinitionChange:
    """A planned change of a definition; `before` is None for a new one, `after` for a deleted one."""

    kind: str
    before: HookDefinition | None
    after: HookDefinition | None

    @property
    def about(self) -> HookDefinition:
        """Definition after the change, or the deleted one."""
        found = self.after or self.before
        if found is None:
            raise AssertionError("a change of nothing")
        return found


async def void_nothing(_definition: HookDefinition) -> None:
    """Void no questions: the default if there is no broker."""


@define(eq=False, kw_only=True)
class HookKeeper:
    """Manager of definitions on behalf of callers.

    `changed` is called with the old version of every changed definition, and voids the questions of its hook.
    """

    store: DefinitionStore
    in_force: StoredHooks
    record: AuditSink
    clock: Clock = field(factory=SystemClock)
    changed: Callable[[HookDefinition], Awaitable[None]] = void_nothing

    async def get(self, caller: Caller, hook_id: str) -> StoredHook:
        """Return a definition that the caller can see. Raises `Problem` 404, also for another tenant's definition."""
        self._check_allowed(caller)
        whose = None if caller.everywhere else caller.tenant
        known = await self.store.get(hook_id, whose) if HOOK_ID.fullmatch(hook_id) else None
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
        change = DefinitionChange("definition.created", None, definition)
        return await self._carry_out(caller, change, self.store.create(definition, most=self.in_force.most), put)

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
        change = DefinitionChange("definition.changed", known.definition, definition)
        return await self._carry_out(caller, change, self.store.replace(definition, known.version), put)

    async def delete(self, caller: Caller, hook_id: str, version: int) -> None:
        """Delete a definition if it has this version, and take it out of force. Raises `Problem`."""
        known = await self._get_version(caller, hook_id, version)
        change = DefinitionChange("definition.deleted", known.definition, None)
        gone = partial(self.in_force.remove, known.definition)
        await self._carry_out(caller, change, self.store.delete(hook_id, known.version), gone)

    async def note_trial(self, caller: Caller, hook: StoredHook) -> None:
        """Record that a hook is about to be tried. Raises `RecordUnavailable`."""
        await self._record(
            "definition.tried", caller, DefinitionChange("definition.tried", hook.definition, hook.definition)
        )

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
        self, caller: Caller, change: DefinitionChange, making: Coroutine[Any, Any, T], put: Callable[[], None]
    ) -> T:
        """Record a change, make it, and put it in force. Records a failure as well."""
        try:
            await self._record(change.kind, caller, change)
        except BaseException:
            making.close()
            raise
        try:
            made = await making
        except BaseException as problem:
            await self._record_unchanged(caller, change, problem)
            raise
        put()
        if change.before is not None:
            try:
                await self.changed(change.before)
            except StoreUnavailable as problem:  # the change stands, and old questions cannot be claimed
                log.warning("questions_not_voided", hook_id=change.before.hook_id, error=str(problem))
        return made

    async def _record(self, kind: str, caller: Caller, change: DefinitionChange, **facts: Any) -> None:
        """Write a change to the record. Raises `RecordUnavailable` for any error of the sink."""
        definition = change.about
        said = {
            "time": stamp(self.clock),
            "tenant": definition.tenant_id,
            "by": caller.name,
            "bearer": caller.token.id,
            "hook": definition.name,
            "hook_id": definition.hook_id,
            "before": change.before and change.before.digest,
            "after": change.after and change.after.digest,
            **facts,
        }
        try:
            await self.record.write(kind, said, durable=True)
        except Exception as error:
            raise RecordUnavailable(error) from error

    async def _record_unchanged(self, caller: Caller, change: DefinitionChange, problem: BaseException) -> None:
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
    if tenant is not None:
        return tenant
    return None if caller.everywhere else caller.tenant
