"""Definitions in a database: one set of statements for memory, SQLite and PostgreSQL.

The store keeps a definition whole, with a version that counts its changes. A caller that changes a definition names the
version it has seen; of two changes at once one succeeds, and the other raises `ChangedMeanwhile`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import frozen
from pydantic import ValidationError

from amplifier_hooks.clock import micros_of
from amplifier_hooks.definitions.model import HookDefinition, likeness
from amplifier_hooks.errors import HookError, HookRefused
from amplifier_hooks.storage.database import CorruptStore, Migrations, Script, Statement, Wake, transaction

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from amplifier_hooks.storage.change_signal import Watch
    from amplifier_hooks.storage.database import Database, Row


MOST_DEFINITIONS: Final = 100
"""Definitions of one tenant, at most."""

TOPIC: Final = "definitions"

DEFINITION_TABLES: Final = Migrations(
    component="definitions",
    steps=(
        (
            """CREATE TABLE {schema}.hook_definition (
                hook_id TEXT PRIMARY KEY,
                tenant TEXT NOT NULL,
                likeness TEXT NOT NULL,
                event TEXT NOT NULL,
                enabled INTEGER NOT NULL,
                created BIGINT NOT NULL,
                version INTEGER NOT NULL,
                definition TEXT NOT NULL,
                UNIQUE (tenant, likeness)
            )""",
            "CREATE INDEX hook_definition_order ON {schema}.hook_definition (created, hook_id)",
        ),
    ),
)


class NameTaken(HookRefused):
    """Another hook of the tenant has this name, or one that can be confused with it."""

    def __init__(self, name: str, other: str) -> None:
        self.name = name
        self.other = other
        super().__init__(f"the name {name!r} could be taken for that of the hook {other!r}; choose another")


class TooManyDefinitions(HookRefused):
    """The tenant has as many definitions as it may have."""

    def __init__(self, most: int) -> None:
        self.most = most
        super().__init__(f"there are {most} definitions, and no more are allowed; delete one first")


class ChangedMeanwhile(HookError):
    """The definition has another version than the change was meant for. `version` is None if it is deleted."""

    def __init__(self, hook_id: str, version: int | None) -> None:
        self.hook_id = hook_id
        self.version = version
        now = "gone" if version is None else f"at version {version}"
        super().__init__(f"{hook_id} is {now} by now; read it again, and decide again")


@frozen(eq=False)
class StoredHook:
    """A definition and the number of its changes. Two reads of an unchanged definition return one object."""

    definition: HookDefinition
    version: int


@frozen
class DefinitionCursor:
    """End of a page of a list: the next page begins after it."""

    created: int
    hook_id: str

    @classmethod
    def of(cls, hook: StoredHook) -> DefinitionCursor:
        """Return the cursor of a hook in the list."""
        return cls(micros_of(hook.definition.created_at), hook.definition.hook_id)


class DefinitionStore:
    """The definitions of a database. All methods raise `StoreUnavailable` when the database cannot be used.

    A change that was under way then, or whose caller was cancelled, may or may not have happened; read to find out.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._read: dict[str, tuple[str, StoredHook]] = {}
        """Cache of parsed definitions: the text read from the database and its `StoredHook`, by hook id."""

    async def get(self, hook_id: str, tenant: str | None = None) -> StoredHook | None:
        """Return a definition, of this tenant or of any; None if there is none."""
        rows = await self.database.fetch(GET, hook_id, tenant)
        return self._stored_hook(rows[0]) if rows else None

    async def find(
        self,
        *,
        tenant: str | None = None,
        event: str | None = None,
        enabled: bool | None = None,
        after: DefinitionCursor | None = None,
        limit: int = 10_000,
    ) -> list[StoredHook]:
        """Return definitions in the order of their creation: of a tenant or all, for an event, switched on or off."""
        on = None if enabled is None else int(enabled)
        start = (None, None) if after is None else (after.created, after.hook_id)
        rows = await self.database.fetch(FIND, tenant, event, on, *start, limit)
        if (tenant, event, enabled, after) == (None, None, None, None) and len(rows) < limit:  # these, and no others
            self._read = {row[0]: self._read[row[0]] for row in rows if row[0] in self._read}
        return [self._stored_hook(row) for row in rows]

    def watch(self) -> AbstractContextManager[Watch]:
        """Watch for changes of any definition: watch, read, wait, read again."""
        return self.database.watch(TOPIC)

    def _stored_hook(self, row: Row) -> StoredHook:
        """Return the definition in a row; an unchanged row gives the cached object. Raises `CorruptStore`."""
        hook_id, text, version = row
        read, known = self._read.get(hook_id, ("", None))
        if known is None or read != text or known.version != version:
            try:
                known = StoredHook(HookDefinition.model_validate_json(text), version)
            except ValidationError as problem:
                raise CorruptStore(f"the definition {hook_id} is none that this version knows") from problem
            self._read[hook_id] = text, known
        return known

    # -- changing ------------------------------------------------------------------------------------------------------

    @transaction
    def create(self, definition: HookDefinition, *, most: int = MOST_DEFINITIONS) -> Script[StoredHook]:
        """Store a new definition. Raises `NameTaken`, and `TooManyDefinitions` beyond `most` of its tenant."""
        tenant, like = definition.tenant_id, likeness(definition.name)
        yield from self._check_free(tenant, definition.name, "", most)
        values = (definition.hook_id, tenant, like, definition.event_type, int(definition.enabled))
        rows = yield Statement(INSERT, (*values, micros_of(definition.created_at), definition.model_dump_json()))
        if not rows:  # another caller took the name at the same instant
            raise NameTaken(definition.name, definition.name)
        yield Wake(TOPIC)
        return StoredHook(definition, 1)

    @transaction
    def replace(self, definition: HookDefinition, version: int) -> Script[StoredHook]:
        """Replace the definition with this id if the stored one still has this version.

        Raises `ChangedMeanwhile`, `NameTaken`.
        """
        yield from self._check_free(definition.tenant_id, definition.name, definition.hook_id, None)
        values = (likeness(definition.name), definition.event_type, int(definition.enabled))
        rows = yield Statement(SET, (definition.hook_id, version, *values, definition.model_dump_json()))
        if not rows:
            yield from self._raise_changed(definition.hook_id)
        yield Wake(TOPIC)
        return StoredHook(definition, version + 1)

    @transaction
    def delete(self, hook_id: str, version: int) -> Script[None]:
        """Delete a definition if it still has this version. Raises `ChangedMeanwhile`."""
        rows = yield Statement(DELETE, (hook_id, version))
        if not rows:
            yield from self._raise_changed(hook_id)
        self._read.pop(hook_id, None)
        yield Wake(TOPIC)

    def _check_free(self, tenant: str, name: str, besides: str, most: int | None) -> Script[None]:
        rows = yield Statement(TAKEN, (tenant, likeness(name), besides))
        ((count, other),) = rows
        if other is not None:
            raise NameTaken(name, HookDefinition.model_validate_json(other).name)
        if most is not None and count >= most:
            raise TooManyDefinitions(most)

    def _raise_changed(self, hook_id: str) -> Script[None]:
        rows = yield Statement("SELECT version FROM {schema}.hook_definition WHERE hook_id = $1", (hook_id,))
        raise ChangedMeanwhile(hook_id, rows[0][0] if rows else None)


GET: Final = (
    "SELECT hook_id, definition, version FROM {schema}.hook_definition "
    "WHERE hook_id = $1 AND (CAST($2 AS TEXT) IS NULL OR tenant = $2)"
)
FIND: Final = (
    "SELECT hook_id, definition, version FROM {schema}.hook_definition "
    "WHERE (CAST($1 AS TEXT) IS NULL OR tenant = $1) AND (CAST($2 AS TEXT) IS NULL OR event = $2) "
    "AND (CAST($3 AS INTEGER) IS NULL OR enabled = $3) "
    "AND (CAST($4 AS BIGINT) IS NULL OR created > $4 OR (created = $4 AND hook_id > CAST($5 AS TEXT))) "
    "ORDER BY created, hook_id LIMIT CAST($6 AS INTEGER)"
)
TAKEN: Final = (
    "SELECT (SELECT count(*) FROM {schema}.hook_definition WHERE tenant = $1), "
    "(SELECT definition FROM {schema}.hook_definition WHERE tenant = $1 AND likeness = $2 AND hook_id <> $3)"
)
INSERT: Final = (
    "INSERT INTO {schema}.hook_definition (hook_id, tenant, likeness, event, enabled, created, version, definition) "
    "VALUES ($1, $2, $3, $4, $5, $6, 1, $7) ON CONFLICT DO NOTHING RETURNING hook_id"
)
SET: Final = (
    "UPDATE {schema}.hook_definition SET version = version + 1, likeness = $3, event = $4, enabled = $5, "
    "definition = $6 WHERE hook_id = $1 AND version = $2 RETURNING hook_id"
)
DELETE: Final = "DELETE FROM {schema}.hook_definition WHERE hook_id = $1 AND version = $2 RETURNING hook_id"
