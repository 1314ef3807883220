"""The options of a session: the keywords of a caller become one frozen value, and a child's value evolves from it."""

from __future__ import annotations

from math import inf
from os import fspath, getcwd
from os.path import realpath
from typing import TYPE_CHECKING, Any, Final, TypedDict
from uuid import uuid4

from attrs import asdict, field, frozen
from msgspec.structs import replace

from amplifier_hooks.clock import SystemClock
from amplifier_hooks.errors import InvalidCollaborator, InvalidLimit, InvalidRegistration
from amplifier_hooks.injection.budget import InjectionLimits
from amplifier_hooks.injection.memory_context import InMemoryContext
from amplifier_hooks.registry.registry import HookRegistry
from amplifier_hooks.session.display import LogDisplay

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from os import PathLike

    from amplifier_hooks.admission.self_protection import SelfProtection
    from amplifier_hooks.ports import (
        ApprovalBackend,
        AuditSink,
        Clock,
        ContextManager,
        DisplaySystem,
        GrantStore,
        Risk,
        RulePolicy,
        TokenCounter,
        UpstreamMethod,
    )
    from amplifier_hooks.text.json_schema import Schema

EXAMPLE: Final = "SessionCoordinator(registry, session_id='s1')"

SECOND_NAMES: Final = {"approval_system": "approvals", "display_system": "display"}
"""Options that have two names."""

LIMITS: Final = {"injection_budget_per_turn": "per_turn", "injection_size_limit": "injection_size"}
"""Options that set one limit of injections."""


class SessionOptions(TypedDict, total=False):
    """Options of a session and of a child; `SessionCoordinator` explains them."""

    session_id: str | None
    context: ContextManager | None
    approvals: ApprovalBackend | UpstreamMethod | None
    approval_system: ApprovalBackend | UpstreamMethod | None
    display: DisplaySystem | None
    display_system: DisplaySystem | None
    audit: AuditSink | None
    budget: InjectionLimits | None
    injection_budget_per_turn: int | None
    injection_size_limit: int | None
    model: str | None
    counter: TokenCounter | None
    tenant: str
    tools: Mapping[str, Callable[[Any], Awaitable[Any] | Any]] | None
    run_id: str | None
    clock: Clock | None
    rules: RulePolicy | None
    cwd: str | PathLike[str] | None
    risk: Callable[[str, Mapping[str, Any]], Risk] | None
    approval_wait: float | None
    grants: GrantStore | None
    audit_required: bool
    audit_runs: bool
    tool_schemas: Mapping[str, Any] | None
    self_protection: SelfProtection | None


def as_registry(hooks: object) -> HookRegistry:
    """Return the registry. Raises `InvalidCollaborator` for anything else."""
    if not isinstance(hooks, HookRegistry):
        raise misplaced("hooks", hooks)
    return hooks


def as_id(session_id: object) -> str:
    """Return the id, or a new one for "". Raises `InvalidCollaborator`."""
    if not isinstance(session_id, str):
        raise misplaced("session_id", session_id)
    return session_id or uuid4().hex


def misplaced(name: str, value: object) -> InvalidCollaborator:
    """Return the error for an argument that stands in the place of another one."""
    problem = f"{name} is of type {type(value).__name__}"
    return InvalidCollaborator(f"{problem}; pass the HookRegistry first, and everything else by its name: {EXAMPLE}")


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


@frozen(kw_only=True, eq=False)
class Settings:
    """The options of one session, checked and complete."""

    hooks: HookRegistry = field(factory=HookRegistry, converter=as_registry)
    agent: str
    session_id: str = field(default="", converter=as_id)
    context: ContextManager = field(factory=InMemoryContext)
    approvals: ApprovalBackend | UpstreamMethod | None = None
    display: DisplaySystem = field(factory=LogDisplay)
    audit: AuditSink | None = None
    budget: InjectionLimits = field(factory=InjectionLimits)
    model: str | None = None
    counter: TokenCounter | None = None
    tenant: str = ""
    tools: Mapping[str, Callable[[Any], Any]] = field(factory=dict, converter=dict)
    run_id: str | None = None
    clock: Clock = field(factory=SystemClock)
    rules: RulePolicy | None = None
    cwd: str = field(factory=working_directory, converter=fspath)
    risk: Callable[[str, Mapping[str, Any]], Risk] | None = None
    approval_wait: float | None = field(default=None, converter=check_wait)
    grants: GrantStore | None = None
    audit_required: bool = True
    audit_runs: bool = False
    tool_schemas: Mapping[str, Schema] = field(factory=dict, converter=compile_schemas)
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
            given = {**asdict(parent, recurse=False), "session_id": None, "context": None, **given}
        return cls(**{name: value for name, value in given.items() if value is not None})
