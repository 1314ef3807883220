"""The event data as hooks see it: a dict that reads as usual and refuses to be written.

A dict subclass rather than a mapping proxy, so that `json.dumps`, `**` and `isinstance(data, dict)` work for hooks;
the lists and dicts inside are the emitter's own (a session coordinator keeps its frozen, hashed copy beside them).
"""

from __future__ import annotations

from typing import Any, NoReturn


class DataView(dict[str, Any]):
    """A read-only dict. `copy()`, `|`, `copy.copy`, `copy.deepcopy` and pickling give plain dicts to work on.

    It stops what hooks do by habit or mistake. Whoever calls the methods of `dict` itself on it gets past it.
    """

    __slots__ = ()

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        message = "event data is read-only; return HookResult.modify({...}) to change what the next hook sees"
        raise TypeError(message)

    __setitem__ = __delitem__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse  # all refuse alike
    __ior__ = _refuse

    def copy(self) -> dict[str, Any]:
        """A plain dict with the same items, free to change."""
        return dict(self)

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)
