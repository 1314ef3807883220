"""Log lines that the host controls: structlog's keys, the standard library's handlers, silence by default.

This module configures nothing and imports no structlog, which would hold up an event loop for longer than a hook may
take. A host with plain `logging` finds the fields on the record, one with structlog's `ProcessorFormatter` finds them
in its event dictionary. The context variables of a host that uses structlog join them.

    log = get_logger(__name__)
    log.warning("hook.timed_out", hook="lint", limit=5.0)

Event names are constants of this package; text that others wrote goes into fields.
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
# A field of such a name would raise KeyError in logging, or replace an attribute of the record.
_HANDED_ON: Final = frozenset({"exc_info", "stack_info"})  # logging gives them their meaning
_TAKEN: Final = (frozenset(vars(logging.makeLogRecord({}))) | {"asctime", "message"}) - _HANDED_ON
_OURS: Final = frozenset({"event", "level", "stacklevel"})  # structlog's keys for the name of a line, and its level
_FRAMES: Final = 3  # from here to the caller, so that the record names the caller's line


class Logger:
    """A logger with five levels. A field whose name is taken gets a `_` at its end."""

    def __init__(self, name: str) -> None:
        self._stdlib = logging.getLogger(name)

    def debug(self, event: str, /, **fields: Any) -> None:
        """Log a detail that helps to find a cause."""
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        """Log an event that went as intended."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        """Log a problem that was handled."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        """Log something that did not happen."""
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, /, **fields: Any) -> None:
        """Log an error, with the traceback of the exception being handled."""
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
    """Return the context variables that the host has bound. A host without any may not have loaded structlog."""
    loaded = sys.modules.get("structlog.contextvars")
    get_contextvars = getattr(loaded, "get_contextvars", None)  # None also while another thread imports it
    return {} if get_contextvars is None else dict(get_contextvars())


def get_logger(name: str) -> Logger:
    """Return the logger of a module: `get_logger(__name__)`."""
    return Logger(name)
