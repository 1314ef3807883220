"""Log lines the host decides about: structlog's keys, the standard library's handlers, silence by default.

Never configures anything. An unconfigured structlog prints to standard output, where a hook's JSON answer belongs, so
the structlog logger here wraps a stdlib one. A host with plain `logging` finds the fields on the record, one with
structlog's `ProcessorFormatter` finds them in its event dictionary. structlog is imported when the first line is
wanted by somebody.

    log = get_logger(__name__)
    log.warning("hook.timed_out", hook="lint", limit=5.0)

Event names are constants of ours; what others wrote goes into fields.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    import structlog

__all__ = ["Logger", "get_logger"]

logging.getLogger("amplifier_hooks").addHandler(logging.NullHandler())

# A field of such a name would be a KeyError in logging, or replace what the record says about itself.
_TAKEN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"asctime", "message"}
_HANDED_ON: Final = frozenset({"exc_info", "stack_info"})  # these mean the same there
_OURS: Final = frozenset({"event", "level", "stacklevel"})  # set here or by structlog before a processor could rename


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

    def _log(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if self._stdlib.isEnabledFor(level):
            safe = {key + "_" if key in _OURS else key: value for key, value in fields.items()}
            self._structlog.log(level, event, stacklevel=_FRAMES, **safe)

    @cached_property
    def _structlog(self) -> structlog.stdlib.BoundLogger:
        import structlog  # most processes never log a line of ours

        wrapped: structlog.stdlib.BoundLogger = structlog.wrap_logger(
            self._stdlib,
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.stdlib.add_log_level,
                _rename_taken,  # after the host's context variables joined
                structlog.stdlib.render_to_log_kwargs,
            ],
            wrapper_class=structlog.stdlib.BoundLogger,
        )
        return wrapped.bind()


_FRAMES: Final = 6  # from here to the caller's line, so that the record names that


def get_logger(name: str) -> Logger:
    """A logger for a module: `get_logger(__name__)`."""
    return Logger(name)


def _rename_taken(_logger: object, _method: str, event_dict: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in (_TAKEN - _HANDED_ON) & event_dict.keys():
        event_dict[key + "_"] = event_dict.pop(key)
    return event_dict
