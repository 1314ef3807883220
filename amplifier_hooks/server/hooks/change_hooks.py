"""Definitions under management: who may change which, on record before it happens, and in force once it has.

A change goes this way: looked up for the caller's tenant, judged, put on record with the digests before and after, then
made if nobody was faster, then put in force. Without the record nothing is changed. A change that is on record and was
not made after all is followed by `definition.unchanged`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from attrs import define, field, frozen

from amplifier_hooks.clock import SystemClock, stamp
from amplifier_hooks.definitions.model import HookChanges, HookDefinition, NewHook, new_hook_id
from amplifier_hooks.definitions.store import MOST_DEFINITIONS, ChangedMeanwhile, StoredHook
from amplifier_hooks.definitions.tenant_rules import TENANT_HANDLERS, check_tenant_hook
from amplifier_hooks.logs import get_logger
from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.server.problem_details import Problem
from amplifier_hooks.storage.database import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine

    from amplifier_hooks.definitions.store import DefinitionStore
    from amplifier_hooks.ports import AuditSink, Clock
    from amplifier_hooks.server.edge.authentication import Caller


T = TypeVar("T")

log = get_logger(__name__)

HOOK_ID: Final = re.compile(r"hook_[0-9a-f]{12}")


class InForce(Protocol):
    """The definitions that hooks are made of: what is in here runs."""

    def ready(self, definition: HookDefinition) -> Callable[[], None]:
        """Make all ready to put a definition in force, in the place of the one with its id; what is returned does it.

        What runs at that moment ends as it began. Raises `HookError` that says why it cannot be, as things stand here
        (the store has the last word): a name that is taken, a handler nobody has, too many at one event.
        """
        ...

    def remove(self, definition: HookDefinition) -> None:
        """Take a definition out of force. One that is not there is none."""
        ...

    def problem(self, hook_id: str) -> str | None:
        """Why a definition is not in force as it says; None if it is, or is switched off."""
        ...


@frozen
class DefinitionChange:
    """What is about to happen to a definition."""

    kind: str
    before: HookDefinition | None
    after: HookDefinition | None

    @property
    def about(self) -> HookDefinition:
        """The definition it is about."""
        found = self.after or self.before
        if found is None:
            raise AssertionError("a change of nothing")
        return found


async def void_nothing(_definition: HookDefinition) -> None:
    """Nobody has asked anything."""


@define(eq=False, kw_only=True)
class HookKeeper:
    """Keeps definitions on behalf of callers.

    `changed` is told of every definition that is not what it was; questions that its hook has asked are void then.
    """

    store: DefinitionStore
    in_force: InForce
    record: AuditSink
    clock: Clock = field(factory=SystemClock)
    most: int = MOST_DEFINITIONS
    """Definitions of one tenant."""
    tenant_handlers: Collection[str] = TENANT_HANDLERS
    """What may carry out a tenant's hooks."""
    changed: Callable[[HookDefinition], Awaitable[None]] = void_nothing

    async def get(self, caller: Caller, hook_id: str) -> StoredHook:
        """The definition, if the caller can see it. Raises `Problem` 404; what is another tenant's is not there."""
        self._check_allowed(caller)
        whose = None if caller.everywhere else caller.tenant
        known = await self.store.get(hook_id, whose) if HOOK_ID.fullmatch(hook_id) else None
        if known is None:
            raise Problem(404, "not_found", "there is no such hook")
        return known

    async def find(self, caller: Caller, tenant: str | None, **wanted: Any) -> list[StoredHook]:
        """A page of the definitions that the caller can see. Raises `Problem` 404 for another tenant's."""
        self._check_allowed(caller)
        return await self.store.find(tenant=whose_list(caller, tenant), **wanted)

    async def create(self, caller: Caller, new: NewHook) -> StoredHook:
        """Keep a new definition, for the caller's tenant, and put it in force."""
        self._check_allowed(caller)
        definition = new.to_definition(tenant_id=caller.tenant, hook_id=new_hook_id(), now=self._now())
        put = self._prepare(definition)
        change = DefinitionChange("definition.created", None, definition)
        return await self._carry_out(caller, change, self.store.create(definition, most=self.most), put)

    async def change(
        self, caller: Caller, hook_id: str, changes: HookChanges, version: int | None = None
    ) -> StoredHook:
        """Change a definition. With a `version`, only that one; without, whatever it is now. Raises `Problem`.

        What would be the same as before is left as it is, and what it has asked stays asked.
        """
        known = await self._get_version(caller, hook_id, version)
        definition = changes.apply_to(known.definition, now=self._now())
        if definition.digest == known.definition.digest:
            return known
        put = self._prepare(definition)
        change = DefinitionChange("definition.changed", known.definition, definition)
        return await self._carry_out(caller, change, self.store.replace(definition, known.version), put)

    async def delete(self, caller: Caller, hook_id: str, version: int) -> None:
        """Remove a definition, of this version, and take it out of force. Raises `Problem`."""
        known = await self._get_version(caller, hook_id, version)
        change = DefinitionChange("definition.deleted", known.definition, None)
        gone = partial(self.in_force.remove, known.definition)
        await self._carry_out(caller, change, self.store.delete(hook_id, known.version), gone)

    async def note_trial(self, caller: Caller, hook: StoredHook) -> None:
        """Put on record that a hook is about to be tried. Raises `RecordUnavailable`."""
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

    def _prepare(self, definition: HookDefinition) -> Callable[[], None]:
        """What puts it in force; refuses what this tenant may not have, and what could not be."""
        check_tenant_hook(definition, definition.tenant_id, handlers=self.tenant_handlers)
        return self.in_force.ready(definition)

    async def _carry_out(
        self, caller: Caller, change: DefinitionChange, making: Coroutine[Any, Any, T], put: Callable[[], None]
    ) -> T:
        """Put it on record, make it, put it in force. Whatever keeps it from being made is on record as well."""
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
            except StoreUnavailable as problem:  # it is changed all the same; and what was asked is not claimed by it
                log.warning("questions_not_voided", hook_id=change.before.hook_id, error=str(problem))
        return made

    async def _record(self, kind: str, caller: Caller, change: DefinitionChange, **facts: Any) -> None:
        """Raises `RecordUnavailable` whatever the sink raises."""
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
        with suppress(RecordUnavailable):  # what was not done needs no proof
            await self._record("definition.unchanged", caller, change, reason=type(problem).__name__)

    def _now(self) -> datetime:
        return self.clock.now().astimezone(UTC)


def whose_list(caller: Caller, tenant: str | None) -> str | None:
    """Whose entries a list has; None for everybody's. Raises `Problem` 404 for a tenant the caller cannot see."""
    if tenant is not None and not caller.sees(tenant):
        raise Problem(404, "not_found", "there is no such tenant")
    if tenant is not None:
        return tenant
    return None if caller.everywhere else caller.tenant
