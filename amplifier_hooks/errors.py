"""Errors that this package raises, grouped by the role that can put them right.

```
HookError                             base of all; catch it to catch any of ours
├── HookUsageError                    the calling code is wrong; mend it there
│   ├── InvalidResult (ValueError)    a HookResult that cannot be carried out
│   ├── InvalidRegistration (ValueError)  a handler, priority, timeout or matcher that cannot work
│   ├── InvalidCollaborator (TypeError)  a session's argument in another's place, or given twice
│   ├── InvalidLimit (ValueError)     a size, budget or policy that makes no sense
│   ├── InvalidHookSettings (ValueError)  settings of a ready-made hook that cannot work
│   ├── UnknownTool (LookupError)     a tool the session does not have
│   ├── UnknownEvent (ValueError)     an unknown event name, at a gate or while strict_events is on
│   │   └── MisspeltEvent             an event name that reads like a known one and is not written as it
│   ├── InvalidPayload (TypeError)    an event's data is neither a mapping nor a model
│   ├── ModelNotTaken                 a hook chose another model, and the host's callable takes no `model`
│   └── OperationRanTwice             an around hook called call_next a second time
├── HookRefused                       the rules of this registry say no; ask its operator
│   ├── PrivilegeRequired (PermissionError)  a plugin or tenant at a point it was not granted
│   ├── TooManyHooks                  the limit of hooks for one event is reached
│   └── EmitTooDeep (RecursionError)  hooks emit events whose hooks emit events …
├── HookUnavailable                   a hook that could not be run at all; preflight what it needs
│   ├── EndpointForbidden             a webhook's name stands for an address that may not be reached
│   └── MissingExtra (ImportError)    an extra of this package is not installed; its sentence has the command
├── SettingsError                     another program's settings file that cannot be read; mend the file
├── HookFailed                        a hook's command or service ended without an answer; look at its own log
├── HookAbortError                    an around hook stopped the operation; its reason is for the user
├── OperationNotRun                   the operation for which a hook object waits was denied, or runs elsewhere
├── InputNotFreezable (ValueError)    a tool input that JSON cannot hold exactly
│   └── InputTooLarge                 a tool input of more than 1 MiB
├── InjectionTooLarge (ValueError)    one injection is over the size limit
├── AlreadyRun                        this very call was approved and begun before; it is not run a second time
├── ApprovalMismatch                  the question was asked before, about another action; nothing was approved
├── ApprovalPending                   not decided yet; the question stays open, ask it again later
├── StopInForce                       a stop covers the session; the approval stays unused until the stop ends
└── ApprovalTimeout (TimeoutError)    an approver says its time is up; nothing was decided
EventNameWarning (UserWarning)        an event name that looks misspelt; nothing is refused
```

Each error carries its facts as fields and builds its sentence from them: the event, its place, and the remedy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.ports import KeptResult
    from amplifier_hooks.result import Cause

EXTRAS: Final[Mapping[str, str]] = {
    "agent_hooks": "agent-hooks",
    "agents": "openai-agents",
    "anthropic": "chat",
    "asyncpg": "postgres",
    "claude_agent_sdk": "claude-agent-sdk",
    "fastapi": "server",
    "h11": "server",
    "httpx2": "http",
    "jsonschema_rs": "schemas",
    "langchain": "langchain",
    "langchain_core": "langchain",
    "langgraph": "langchain",
    "openai": "chat",
    "opentelemetry": "otel",
    "prometheus_client": "server",
    "pydantic_ai": "pydantic-ai",
    "standardwebhooks": "http",
    "starlette": "server",
    "uvicorn": "server",
    "yaml": "yaml",
}
"""Modules that come with an extra only, each with its extra."""


class HookError(Exception):
    """Base of every error this package raises. Copied, or sent to another process, it keeps its sentence and facts."""

    def __reduce__(self) -> tuple[Any, ...]:
        return self._rebuild, self.args, self.__dict__

    @classmethod
    def _rebuild(cls, *args: object) -> Self:
        """Build the error again from its sentence, past an `__init__` that takes facts instead."""
        error = cls.__new__(cls)
        error.args = args
        return error


class HookUsageError(HookError):
    """The calling code asked for something that cannot work; the message says how to write it instead."""


class InvalidResult(HookUsageError, ValueError):
    """A hook's answer that cannot be carried out, refused where it was built or received."""


class InvalidRegistration(HookUsageError, ValueError):
    """A handler, priority, timeout, matcher or event list that cannot work, refused when it is registered."""


class InvalidCollaborator(HookUsageError, TypeError):
    """An argument of a session that stands in the place of another one, or was given under two names."""


class InvalidLimit(HookUsageError, ValueError):
    """A limit that makes no sense, refused where it is set.

    Args:
        name: Name of the limit.
        value: Value that was refused.
        requirement: Valid values, in words.
    """

    def __init__(self, name: str, value: object, requirement: str) -> None:
        self.name = name
        self.value = value
        self.requirement = requirement
        super().__init__(f"{name} is {value!r}; pass {requirement}")


class InvalidHookSettings(HookUsageError, ValueError):
    """Settings of a ready-made hook that cannot work.

    Args:
        problems: Corrections, field by field.
    """

    def __init__(self, hook: str, problems: tuple[str, ...]) -> None:
        self.hook = hook
        self.problems = problems
        super().__init__(f"hook {hook!r}: {'; '.join(problems)}")


class UnknownTool(HookUsageError, LookupError):
    """A tool that was not given to the session.

    Args:
        name: Name that the caller gave.
        names: Names of the tools that the session has.
    """

    def __init__(self, name: str, names: tuple[str, ...]) -> None:
        self.name = name
        self.names = names
        there = f"it has {', '.join(names)}" if names else "it has none"
        super().__init__(f"the session has no tool {name!r} ({there}); pass tools={{{name!r}: function}}")


class UnknownEvent(HookUsageError, ValueError):
    """An unknown event where only a known one may stand: at a gate, and everywhere under strict_events.

    Args:
        name: Name that was refused.
        likely: Known name that was probably meant; None if none is near.
        hook: Name of the hook that would never run; empty if there is none.
        remedy: Way to make the event known.
    """

    def __init__(self, name: str, likely: str | None = None, *, hook: str = "", remedy: str = "") -> None:
        self.name = name
        self.likely = likely
        self.hook = hook
        self.remedy = remedy or f"declare it with registry.declare({name!r}) before it is used"
        never = f", so the hook {hook!r} would never run" if hook else ""
        meant = f"did you mean {likely!r}? If not, " if likely else ""
        super().__init__(f"unknown event {name!r}{never}: {meant}{self.remedy}")


class MisspeltEvent(UnknownEvent):
    """An event name that differs from a known one in case, separators or the form of its characters alone.

    Such a name is refused wherever it is used, and cannot be declared: names that read alike are one event.
    """

    def __init__(self, name: str, likely: str) -> None:
        super().__init__(name, likely, remedy=f"write it {likely!r}")
        self.args = (f"unknown event {name!r}: {self.remedy}",)  # there is no "if not"


class EventNameWarning(UserWarning):
    """An unknown event name that is one typo away from a known one."""


class InvalidPayload(HookUsageError, TypeError):
    """An event's data that is neither a mapping nor a model of a payload."""


class ModelNotTaken(HookUsageError):
    """A hook chose a model, and the callable of the host has no parameter `model`; the model was not called.

    Args:
        chosen: Model that the hook chose.
        model: Model that the host calls.
    """

    def __init__(self, chosen: str, model: str) -> None:
        self.chosen = chosen
        self.model = model
        calls = f"calls {model!r}" if model else "names none"
        super().__init__(
            f"a hook chose the model {chosen!r}, and the host {calls}; give its callable a parameter `model`"
        )


class OperationRanTwice(HookUsageError):
    """An around hook called `call_next` again; an operation runs at most once."""

    def __init__(self, hook: str) -> None:
        self.hook = hook
        super().__init__(f"around hook {hook!r} called call_next twice; keep the first call's result instead")


class HookRefused(HookError):
    """An act that the rules of this registry do not allow. The operator of the registry can allow it."""


class PrivilegeRequired(HookRefused, PermissionError):
    """A plugin's or tenant's hook at a point that only trusted hooks may join.

    Args:
        plugin: Name of the plugin or tenant.
        point: Event or operation of the hook.
        permission: Permission that is missing.
    """

    def __init__(self, plugin: str, point: str, permission: str) -> None:
        self.plugin = plugin
        self.point = point
        self.permission = permission
        super().__init__(f"Plugin {plugin} lacks {permission} permission (needed for {point})")


class TooManyHooks(HookRefused):
    """One event has as many hooks from definitions as its limit allows.

    Args:
        event: Event that has the hooks.
        limit: Number of hooks that is allowed.
    """

    def __init__(self, event: str, limit: int) -> None:
        self.event = event
        self.limit = limit
        super().__init__(f"{event} already has {limit} hooks from definitions; remove one or raise max_per_event")


class EmitTooDeep(HookRefused, RecursionError):
    """Hooks emitted events whose hooks emitted events, deeper than the limit.

    Args:
        event: Event that was refused.
        limit: Depth that the registry allows.
    """

    def __init__(self, event: str, limit: int) -> None:
        self.event = event
        self.limit = limit
        super().__init__(
            f"{event} was emitted by a hook {limit} emits deep; break the cycle or raise max_depth of the registry"
        )


class SettingsError(HookError):
    """A settings file that cannot be read.

    Args:
        path: Path of the file.
        problem: Flaw of the file.
    """

    def __init__(self, path: object, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}")


class HookFailed(HookError):
    """A command or a service that was run as a hook and ended without an answer."""


class HookUnavailable(HookError):
    """A hook that could not be run: its program, server or interpreter is missing, or it is in quarantine."""


class EndpointForbidden(HookUnavailable):
    """A name that stands for an address the operator did not allow. Nothing was sent.

    Args:
        host: Name in the address.
        address: Network address that the name stands for.
    """

    def __init__(self, host: str, address: str) -> None:
        self.host = host
        self.address = address
        super().__init__(
            f"endpoint_forbidden: {host!r} stands for {address}, which is not public; an operator allows networks "
            "with AllowedUrls(networks=[…])"
        )


class MissingExtra(HookUnavailable, ImportError):
    """Something needs an extra that is not installed. The sentence has the command that installs it.

    Args:
        what: Part that needs the extra.
        extra: Name of the extra.
        otherwise: Another way out than to install the extra.
    """

    def __init__(self, what: str, extra: str, otherwise: str = "") -> None:
        self.what = what
        self.extra = extra
        either = f"; or {otherwise}" if otherwise else ""
        super().__init__(f"{what} needs the extra {extra!r}: pip install 'amplifier-hooks[{extra}]'{either}")

    @classmethod
    def load(cls, module: str, what: str, extra: str, otherwise: str = "") -> Any:
        """Import a module that comes with an extra, and return it. Raises `MissingExtra`.

        Args:
            module: Name of the module.
            what: Part that needs the module.
            extra: Extra that brings the module.
            otherwise: Another way out than to install the extra.
        """
        try:
            return import_module(module)
        except ModuleNotFoundError:
            raise cls(what, extra, otherwise) from None

    @classmethod
    def from_import(cls, error: ModuleNotFoundError, what: str) -> Self | None:
        """Make the error from a failed import that `what` needs; None where the module comes with no extra.

        Args:
            error: Error of the import.
            what: Part that needs the module.
        """
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        return None if extra is None else cls(what, extra)


class HookAbortError(HookError):
    """An around hook stopped the operation.

    Args:
        reason: Reason, which is shown to the user.
        hook: Name of the hook that stopped the operation; empty if no single hook did.
        cause: Kind of the reason; None for a hook that stopped the operation for its own.
    """

    def __init__(self, reason: str, hook: str = "", cause: Cause | None = "denied_by_hook") -> None:
        self.reason = reason
        self.hook = hook
        self.cause = cause
        super().__init__(reason)


class OperationNotRun(HookError):
    """The operation that a hook object waits for in `call_next` does not run: denied, pending, or run elsewhere.

    Args:
        event: Event after which the operation would run.
    """

    def __init__(self, event: str, why: str) -> None:
        self.event = event
        self.why = why
        super().__init__(f"{event} is not followed by its operation: {why}")


class InputNotFreezable(HookError, ValueError):
    """A tool input that JSON cannot hold exactly, so the input that runs could differ from the one that was shown.

    Args:
        problem: Place in the input, and its flaw.
    """

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"the input is not plain JSON: {problem}")


class InputTooLarge(InputNotFreezable):
    """A tool input with more JSON than anything here looks at.

    Args:
        limit: Size that is allowed, in bytes.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"$ has more than {limit:,} bytes")
        self.args = (f"the input has more than {limit:,} bytes of JSON; put large data into a file",)


class InjectionTooLarge(HookError, ValueError):
    """One injection is over the limit for a single injection.

    Args:
        size: Size of the injection, in bytes.
        limit: Size that is allowed, in bytes.
    """

    def __init__(self, size: int, limit: int, hook: str = "") -> None:
        self.size = size
        self.limit = limit
        self.hook = hook
        who = f" of hook {hook!r}" if hook else ""
        super().__init__(f"the injection{who} has {size:,} bytes, which exceeds the limit of {limit:,}; shorten it")


NO_ANSWER: Final = "no answer came in time"


class StopInForce(HookError):
    """A stop covers the session, so nothing begins there. The approval stays unused, and counts after the stop."""


class ApprovalTimeout(HookError, TimeoutError):
    """An approver's time is up. The default of the request, not the approver, then decides."""

    def __init__(self, reason: str = NO_ANSWER) -> None:
        super().__init__(reason)


class ApprovalMismatch(HookError):
    """The question of this id was asked, and perhaps answered, about another action; that answer does not count here.

    A backend raises it when a call comes back with other arguments than those of the question, and so do stores and
    cards for a request whose arguments do not have its digest.
    """


CALL_OUTCOMES: Final = {"done": "has run already", "failed": "was begun already, and failed"}
"""The outcome of a call, in words, where it is known."""


class AlreadyRun(HookError):
    """The approval of this call was used up before. An approved call runs once.

    Args:
        request: Id of the request.
        settlement: End of the call, as `Settlement` names it.
        result: Result of the call, where the backend kept one.
    """

    def __init__(self, request: str, settlement: str, result: KeptResult | None = None) -> None:
        self.request = request
        self.settlement = settlement
        self.result = result
        known = CALL_OUTCOMES.get(settlement, "was begun, and its outcome is unknown; a person has to look at it")
        super().__init__(f"this call {known}; it is not run again")


class ApprovalPending(HookError):
    """The time to wait inline is over, and the question stays open. Asking it again later, by its id, goes on waiting.

    This error is neither an answer nor the end of the request's time.

    Args:
        request: Id of the request that stays open.
    """

    def __init__(self, request: str) -> None:
        self.request = request
        super().__init__(f"request {request!r} is not decided yet; ask it again to go on waiting")
