"""Log lines the host decides about: structlog's keys, the standard library's handlers, silence by default.

Never configures anything, and imports nothing: structlog, with what it brings, would hold up an event loop for longer
than a hook may take. A host with plain `logging` finds the fields on the record, one with structlog's
`ProcessorFormatter` finds them in its event dictionary. The context variables of a host that uses structlog join them.

    log = get_logger(__name__)
    log.warning("hook.timed_out", hook="lint", limit=5.0)

Event names are constants of ours; what others wrote goes into fields.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


logging.getLogger("amplifier_hooks").addHandler(logging.NullHandler())

LEVELS: Final[Mapping[int, str]] = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
}
# A field of such a name would be a KeyError in logging, or replace what the record says about itself.
_HANDED_ON: Final = frozenset({"exc_info", "stack_info"})  # these mean the same there
_TAKEN: Final = (frozenset(vars(logging.makeLogRecord({}))) | {"asctime", "message"}) - _HANDED_ON
_OURS: Final = frozenset({"event", "level", "stacklevel"})  # what structlog calls the name of a line, and its level
_FRAMES: Final = 3  # from here to the caller's line, so that the record names that


class Logger:
    """Five levels. A field whose name is taken arrives with `_` at its end."""

    def __init__(self, name: str) -> None:
        self._stdlib = logging.getLogger(name)

    def debug(self, event: str, /, **fields: Any) -> None:
        """For people who look for a cause."""
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        """It works as meant."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        """Something was off, and handled."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        """Something did not happen."""
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, /, **fields: Any) -> None:
        """`error`, with the traceback of the exception being handled."""
        self._log(logging.ERROR, event, {"exc_info": True, **fields})

    def _log(self, level: int, event: str, fields: Mapping[str, Any]) -> None:
        if not self._stdlib.isEnabledFor(level):
            return
        extra = {key: value for key, value in _context_variables().items() if key not in _OURS}
        extra |= {key + "_" if key in _OURS else key: value for key, value in fields.items()}
        handed_on = {key: extra.pop(key) for key in _HANDED_ON & extra.keys()}
        extra |= {key + "_": extra.pop(key) for key in _TAKEN & extra.keys()}
        extra["level"] = LEVELS[level]
        self._stdlib.log(level, event, extra=extra, stacklevel=_FRAMES, **handed_on)


def _context_variables() -> Mapping[str, Any]:
    """The context variables that the host has bound. A host that has none may not have loaded structlog either."""
    loaded = sys.modules.get("structlog.contextvars")
    get_contextvars = getattr(loaded, "get_contextvars", None)  # None also while another thread imports it
    return {} if get_contextvars is None else dict(get_contextvars())


def get_logger(name: str) -> Logger:
    """A logger for a module: `get_logger(__name__)`."""
    return Logger(name)
