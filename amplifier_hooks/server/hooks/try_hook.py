"""Trying a hook on a payload: the hook alone, in a registry of its own, with its own timeout and fail mode.

What it calls is really called. Somebody could let a hook call back here, so that trials start trials: a hook is tried
once at a time, and a tenant tries few at once, however deep it goes.

What goes into the routes about hooks, and what comes out: one model each.
"""

from __future__ import annotations

import secrets
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import uuid4
from weakref import WeakKeyDictionary

from attrs import define, field
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StrictBool

from amplifier_hooks.clock import SystemClock, stamp
from amplifier_hooks.definitions.execution_log import HookExecutionLog, HookRun, HookStatistics, hook_run_of
from amplifier_hooks.definitions.model import FailMode, Kind
from amplifier_hooks.record.format.encode_facts import Redactor, TooMuch, ValueSimplifier
from amplifier_hooks.registry.event_names import is_pattern
from amplifier_hooks.result import Risk
from amplifier_hooks.server.problem_details import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from amplifier_hooks.definitions.model import HookDefinition
    from amplifier_hooks.definitions.store import StoredHook
    from amplifier_hooks.ports import Clock
    from amplifier_hooks.registry.registry import HookRegistry


Next = Annotated[str | None, Field(description="The cursor of the next page; null on the last.")]


class HookBody(BaseModel):
    """A hook. Secrets in its config are hidden; one that is sent back as it was shown stays as it is."""

    hook_id: str
    version: int = Field(description="Counts its changes; its ETag is this number in quotation marks.")
    name: str
    description: str
    event_type: str
    priority: int
    band: str = Field(description="What its priority stands for.")
    kind: Kind
    handler_ref: str
    timeout_ms: int | None
    enabled: bool
    tenant_id: str
    config: dict[str, Any]
    fail_mode: FailMode | None
    tags: list[str]
    matcher: str | None
    risk: Risk | None
    risk_reason: str
    created_at: AwareDatetime
    updated_at: AwareDatetime
    problem: str | None = Field(
        None, description="Why it is not in force as it says: its handler is not there any more."
    )

    @classmethod
    def of(cls, hook: StoredHook) -> HookBody:
        """A hook as it is shown."""
        definition = hook.definition
        said = definition.public_fields()
        known = {name: said[name] for name in cls.model_fields if name in said}
        facts = {"version": hook.version, "band": definition.band.name, "kind": definition.kind}
        return cls.model_construct(
            **{
                **known,
                **facts,
                "created_at": definition.created_at,
                "updated_at": definition.updated_at,
            }
        )


@define(eq=False)
class HookBodies:
    """Hooks as they are shown, made once for each version."""

    problem: Callable[[str], str | None]
    """Why a hook is not in force, by its id."""
    _made: WeakKeyDictionary[StoredHook, HookBody] = field(factory=WeakKeyDictionary, init=False)
    """They go when the store forgets what they were made of."""

    def of(self, hook: StoredHook) -> HookBody:
        """One hook."""
        body = self._made.get(hook)
        if body is None:
            body = self._made[hook] = HookBody.of(hook)
        problem = self.problem(body.hook_id)
        return body if problem is None else body.model_copy(update={"problem": problem})


class HookPage(BaseModel):
    """Hooks, in the order they were made."""

    hooks: list[HookBody]
    next: Next = None


class Toggle(BaseModel):
    """Whether a hook is to run. Left out, it is the other way round from what it was."""

    model_config = ConfigDict(extra="forbid")

    enabled: StrictBool | None = None


class Trial(BaseModel):
    """A payload to try a hook on. Its tenant is the hook's, whatever it says."""

    model_config = ConfigDict(extra="forbid")

    sample_context: dict[str, Any]
    event_type: str | None = Field(
        None, min_length=1, max_length=100, description="The event, where the hook is for several."
    )


class TrialResult(BaseModel):
    """What the hook did with it. A hook that is not for such a payload did nothing: its result is null."""

    result: HookRun | None
    context_after: dict[str, Any] = Field(description="The payload as the hook left it.")


class LogPage(BaseModel):
    """Entries of the execution log, newest first."""

    logs: list[HookExecutionLog]
    next: Next = None


class StatisticsBody(BaseModel):
    """How each hook did at each event, over what the execution log keeps."""

    statistics: list[HookStatistics]


AT_ONCE: Final = 4
"""Trials of one tenant at the same time."""

LARGEST: Final = 256 * 1024
MOST_VALUES: Final = 16_384


@define(eq=False)
class Trials:
    """Tries hooks on payloads."""

    alone: Callable[[HookDefinition], AbstractAsyncContextManager[HookRegistry]]
    """Makes a registry that has one hook."""
    clock: Clock = field(factory=SystemClock)
    _running: Counter[str] = field(factory=Counter, init=False)
    _tried: set[str] = field(factory=set, init=False)
    _redactor: Redactor = field(factory=lambda: Redactor(secrets.token_bytes(32)), init=False)

    async def run(self, definition: HookDefinition, sample: Mapping[str, Any], event: str | None) -> TrialResult:
        """What the hook does with the payload, switched on or not.

        Raises `Problem` while it is being tried already, and where nobody says which event it is.
        """
        name = event or definition.event_type
        if is_pattern(name):
            raise Problem(422, "which_event", f"the hook is for {name!r}; name one event in event_type")
        with self._count_trial(definition):
            given = {"session_id": f"trial-{uuid4().hex[:12]}", "timestamp": stamp(self.clock)}
            payload = {**given, **sample, "tenant_id": definition.tenant_id or sample.get("tenant_id", "")}
            waited_for = {key: value for key, value in definition.config.items() if key != "mode"}
            async with self.alone(definition.model_copy(update={"enabled": True, "config": waited_for})) as registry:
                outcome = await registry.emit(name, payload)
        ran = outcome.hook_results
        return TrialResult(
            result=hook_run_of(ran[0], self._redactor) if ran else None,
            context_after=_plain(dict(outcome.data)),
        )

    @contextmanager
    def _count_trial(self, definition: HookDefinition) -> Iterator[None]:
        tenant, hook = definition.tenant_id, definition.hook_id
        if hook in self._tried or self._running[tenant] >= AT_ONCE:
            detail = "this hook is being tried already" if hook in self._tried else f"{AT_ONCE} trials are running"
            raise Problem(429, "trial_running", f"{detail}; come back when it is over", headers={"retry-after": "1"})
        self._tried.add(hook)
        self._running[tenant] += 1
        try:
            yield
        finally:
            self._tried.discard(hook)
            self._running[tenant] -= 1


def _plain(payload: dict[str, Any]) -> dict[str, Any]:
    """A payload that JSON can hold."""
    try:
        tamed = ValueSimplifier(None, LARGEST, LARGEST, MOST_VALUES).simplify(payload)
    except TooMuch:
        tamed = None
    return tamed if isinstance(tamed, dict) else {"$omitted": "size"}
