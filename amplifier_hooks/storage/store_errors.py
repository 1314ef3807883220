"""Why a store cannot be used, and whose turn it is then.

```
StoreUnavailable          base of all; what needs the store is blocked
├── StoreBusy             locked, or too slow, for longer than its limit; try again
├── StoreClosed           it is closed, or was opened in another process
├── UnsafeStore           others could read or replace it; the operator puts that right
├── CorruptStore          it is damaged, or no store of ours; the operator restores it
└── SchemaMismatch        written by a newer version; upgrade this one
```
"""

from __future__ import annotations

from amplifier_hooks.errors import HookError


class StoreUnavailable(HookError):
    """The store cannot be used now. Whether the last write arrived may be unknown: read again before repeating it."""


class StoreBusy(StoreUnavailable):
    """It was locked or did not answer for longer than its limit."""


class StoreClosed(StoreUnavailable):
    """It is closed, not open yet, or was opened by the process this one was forked from."""


class UnsafeStore(StoreUnavailable):
    """Somebody else could read it or put another in its place, so it is not opened."""


class CorruptStore(StoreUnavailable):
    """It is damaged or something else, so it is not opened. It is never replaced by an empty one."""


class SchemaMismatch(StoreUnavailable):
    """Its tables are of a version this program does not know, so it is not touched."""
