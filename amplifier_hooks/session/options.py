"""The options of a session: the keywords of a caller become one frozen value, and a child's value evolves from it.

An approver with the method of the upstream kernel becomes an approval backend here.
"""

from __future__ import annotations

import inspect
from functools import partial
from math import inf
from os import fspath, getcwd
from os.path import realpath
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast
from uuid import uuid4

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from amplifier_hooks import ports
from amplifier_hooks.approvals import Claims
from amplifier_hooks.clock import SystemClock
from amplifier_hooks.errors import ApprovalTimeout, HookError, InvalidCollaborator, InvalidLimit, InvalidRegistration
from amplifier_hooks.foreign_code import DaemonPool
from amplifier_hooks.injection.budget import InjectionLimits
from amplifier_hooks.injection.memory_context import InMemoryContext
from amplifier_hooks.registry.registry import HookRegistry
from amplifier_hooks.result import DEFAULT_OPTIONS
from amplifier_hooks.session.display import LogDisplay

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from os import PathLike

    from amplifier_hooks.admission.rules import SelfProtection
    from amplifier_hooks.text.json_schema import Schema

SECOND_NAMES: Final = {"approval_system": "approvals", "display_system": "display"}
"""Options that have two names."""

LIMITS: Final = {"injection_budget_per_turn": "per_turn", "injection_size_limit": "injection_size"}
"""Options that set one limit of injections."""

THEIR_TIMEOUT: Final = "ApprovalTimeoutError"
"""Name of the upstream timeout error; compared by name, because the upstream package may be absent."""

ALLOW_ONCE: Final = "Allow once"
"""The upstream kernel's label for the answer that the default options call "Allow"."""


class SessionOptions(TypedDict, total=False):
    """Options of a session and of a child; `SessionCoordinator` explains them."""

    session_id: str | None
    context: ports.ContextManager | None
    approvals: ports.ApprovalBackend | ports.UpstreamMethod | None
    approval_system: ports.ApprovalBackend | ports.UpstreamMethod | None
    display: ports.DisplaySystem | None
    display_system: ports.DisplaySystem | None
    audit: ports.AuditSink | None
    budget: InjectionLimits | None
    injection_budget_per_turn: int | None
    injection_size_limit: int | None
    model: str | None
    counter: ports.TokenCounter | None
    tenant: str
    tools: Mapping[str, Callable[[Any], Awaitable[Any] | Any]] | None
    run_id: str | None
    clock: ports.Clock | None
    rules: ports.RulePolicy | None
    cwd: str | PathLike[str] | None
    risk: Callable[[str, Mapping[str, Any]], ports.Risk] | None
    approval_wait: float | None
    grants: ports.GrantStore | None
    audit_required: bool
    tool_schemas: Mapping[str, Any] | None
    self_protection: SelfProtection | None


def check_that(fits: Callable[[object], bool], name: str, remedy: str) -> Callable[[Any], Any]:
    """Return the check of an option. The check raises `InvalidCollaborator` for a value that does not fit."""

    def check(value: object) -> object:
        if fits(value):
            return value
        kind = f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"
        raise InvalidCollaborator(f"{name} is {kind}; {remedy}")

    return check


def has_method(*names: str) -> Callable[[object], bool]:
    """Return the test for an object, and no class, that has one of these methods."""
    return lambda value: not isinstance(value, type) and any(hasattr(value, name) for name in names)


def working_directory() -> str:
    """Return the working directory of this program; empty if it is gone."""
    try:
        return getcwd()  # noqa: PTH109  # pathlib would be a tenth of what the front door loads
    except OSError:
        return ""


def check_wait(seconds: float | None) -> float | None:
    """Return the seconds to wait inline, once they are checked. Raises `InvalidLimit`."""
    if seconds is not None and not 0 <= seconds < inf:
        raise InvalidLimit("approval_wait", seconds, "a number of seconds, or None to wait until the question expires")
    return seconds


def compile_schemas(given: Mapping[str, Any]) -> dict[str, Schema]:
    """Read the schemas of tools, each once. Raises `InvalidRegistration` for one that is broken or could do harm."""
    if not given:
        return {}
    from amplifier_hooks.text.json_schema import Schema, SchemaError

    schemas = {}
    for tool, document in given.items():
        try:
            schemas[tool] = document if isinstance(document, Schema) else Schema(document)
        except SchemaError as problem:
            raise InvalidRegistration(f"tool_schemas[{tool!r}]: {problem}") from None
    return schemas


BY_NAME: Final = (
    "pass the HookRegistry first, and everything else by its name: SessionCoordinator(registry, session_id='s1')"
)
BACKENDS: Final = "pass a backend such as TerminalApprovals(), and several as RacingApprovals(first, second)"
DISPLAYS: Final = "pass an object with show_message(message, level, source), such as TerminalDisplay()"

CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "hooks": check_that(lambda value: isinstance(value, HookRegistry), "hooks", BY_NAME),
    "session_id": check_that(lambda value: isinstance(value, str), "session_id", BY_NAME),
    "approvals": check_that(has_method("request", "request_approval"), "approvals", BACKENDS),
    "display": check_that(has_method("show_message"), "display", DISPLAYS),
    "tools": dict,
    "cwd": fspath,
    "approval_wait": check_wait,
    "tool_schemas": compile_schemas,
}
"""Functions that check an option as it is given, and return it as the session keeps it."""


class Settings(Struct, frozen=True, kw_only=True, eq=False):
    """The options of one session, checked and complete."""

    hooks: HookRegistry = field(default_factory=HookRegistry)
    agent: str
    session_id: str = field(default_factory=lambda: uuid4().hex)
    context: ports.ContextManager = field(default_factory=InMemoryContext)
    approvals: ports.ApprovalBackend | ports.UpstreamMethod | None = None
    display: ports.DisplaySystem = field(default_factory=LogDisplay)
    audit: ports.AuditSink | None = None
    budget: InjectionLimits = field(default_factory=InjectionLimits)
    model: str | None = None
    counter: ports.TokenCounter | None = None
    tenant: str = ""
    tools: Mapping[str, Callable[[Any], Any]] = {}
    run_id: str | None = None
    clock: ports.Clock = field(default_factory=SystemClock)
    rules: ports.RulePolicy | None = None
    cwd: str = field(default_factory=working_directory)
    risk: Callable[[str, Mapping[str, Any]], ports.Risk] | None = None
    approval_wait: float | None = None
    grants: ports.GrantStore | None = None
    audit_required: bool = True
    tool_schemas: Mapping[str, Schema] = {}
    self_protection: SelfProtection | None = None

    @classmethod
    def of(cls, options: SessionOptions, parent: Settings | None = None, **own: object) -> Settings:
        """Return the settings for these options; an option that is None has its default.

        A child has an id and a context of its own. All else is its parent's unless an option replaces it.

        Raises `InvalidCollaborator` for one thing under two names.
        """
        given: dict[str, Any] = {**own, **options}
        for second, first in SECOND_NAMES.items():
            value = given.pop(second, None)
            if value is not None and given.get(first) is not None:
                raise InvalidCollaborator(f"{first} and {second} are two names of one thing; pass one of them")
            if value is not None:
                given[first] = value
        limits = {LIMITS[name]: given.pop(name) for name in LIMITS if given.get(name) is not None}
        if limits and given.get("budget") is not None:
            raise InvalidCollaborator(f"budget has the limits of injections; pass it, or {' and '.join(LIMITS)}")
        if limits:
            given["budget"] = replace(InjectionLimits() if parent is None else parent.budget, **limits)
        if given.get("cwd"):
            given["cwd"] = realpath(given["cwd"])
        if parent is not None:
            given = {**asdict(parent), "session_id": None, "context": None, **given}
        if given.get("session_id") == "":
            del given["session_id"]
        chosen = {name: value for name, value in given.items() if value is not None}
        return cls(**chosen | {name: check(chosen[name]) for name, check in CHECKS.items() if name in chosen})


class UpstreamApprovals(Claims):
    """An approval backend over an object with the upstream kernel's four-argument method, plain or async.

    `request_approval(prompt, options, timeout, default) -> str` is called by keyword. A plain method runs in a thread,
    because it may wait for a person. The returned label counts only if it is exactly one of the offered labels; "Allow
    once" also stands for the "Allow" of the default options.
    There is one approver without a name, so decisions are by `user`.
    """

    def __init__(self, system: Any) -> None:
        super().__init__()
        self._system = system
        self._pool = DaemonPool(1, "approvals")

    async def request(self, request: ports.ApprovalRequest) -> ports.Decision:
        """Ask for one of the labels.

        Raises `ApprovalTimeout` for the upstream timeout, `HookError` for a label that was not offered, and any other
        error of the method. Cancelling it leaves a plain method running in its thread.
        """
        labels = [option.label for option in request.options]
        seconds = (request.expires - request.created).total_seconds()
        method = self._system.request_approval
        ask = partial(method, prompt=request.prompt, options=labels, timeout=seconds, default=request.default)
        try:
            answer: object = ask() if inspect.iscoroutinefunction(method) else await self._pool.run(ask)
            label = await answer if inspect.isawaitable(answer) else answer
        except Exception as error:
            if any(kind.__name__ == THEIR_TIMEOUT for kind in type(error).__mro__):
                raise ApprovalTimeout(str(error)) from error
            raise
        if tuple(labels) == DEFAULT_OPTIONS and label == ALLOW_ONCE:
            label = DEFAULT_OPTIONS[0]
        chosen = next((option.id for option in request.options if option.label == label), None)
        if chosen is None:
            raise HookError(f"{label!r:.100} was not offered")
        decision = ports.Decision(option=chosen, by="user", channel="upstream")
        self.note(request, decision)
        return decision


def as_backend(approvals: Any) -> ports.ApprovalBackend | None:
    """Return a session's approver as a backend; adapt an object with the four-argument method."""
    if approvals is None or hasattr(approvals, "request"):
        return cast("ports.ApprovalBackend | None", approvals)
    return UpstreamApprovals(approvals)
