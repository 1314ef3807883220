"""Trials of hooks, and the bodies of the routes about hooks: a payload comes in; the hook's answer goes out.

A trial runs the hook alone, in a registry of its own, with its own timeout and fail mode, and with all its side
effects. A hook might call this API and so start trials from trials; therefore a hook has one trial at a time, and a
tenant has few.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import uuid4
from weakref import WeakKeyDictionary

from attrs import define, field
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StrictBool

from amplifier_hooks.clock import SystemClock, stamp
from amplifier_hooks.definitions.model import FailMode, Kind
from amplifier_hooks.record.encode_facts import TooMuch, ValueSimplifier
from amplifier_hooks.record.journal import FactValues
from amplifier_hooks.registry.event_names import is_pattern
from amplifier_hooks.result import Risk
from amplifier_hooks.server.hooks.execution_log import HookExecutionLog, HookRun, HookStatistics, hook_run_of
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
    """A hook. Secrets in its config are hidden; a hidden secret that is sent back keeps its value."""

    hook_id: str
    version: int = Field(description="Number of changes; the ETag is this number in quotation marks.")
    name: str
    description: str
    event_type: str
    priority: int
    band: str = Field(description="Band of the priority.")
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
    report_only: bool
    created_at: AwareDatetime
    updated_at: AwareDatetime
    problem: str | None = Field(
        None, description="Reason why the hook is not in force as written, such as a missing handler."
    )

    @classmethod
    def of(cls, hook: StoredHook) -> HookBody:
        """Return the body of a hook."""
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
    """Bodies of hooks, made once for each version."""

    problem: Callable[[HookDefinition], str | None]
    """Returns the reason why a definition is not in force."""
    _made: WeakKeyDictionary[StoredHook, HookBody] = field(factory=WeakKeyDictionary, init=False)
    """Bodies by stored hook; one is dropped when the store drops its stored hook."""

    def of(self, hook: StoredHook) -> HookBody:
        """Return the body of a stored hook, with its current problem."""
        body = self._made.get(hook)
        if body is None:
            body = self._made[hook] = HookBody.of(hook)
        problem = self.problem(hook.definition)
        return body if problem is None else body.model_copy(update={"problem": problem})


class HookPage(BaseModel):
    """Hooks, in the order of their creation."""

    hooks: list[HookBody]
    next: Next = None


class Toggle(BaseModel):
    """A switch of a hook. Without `enabled`, it toggles the hook."""

    model_config = ConfigDict(extra="forbid")

    enabled: StrictBool | None = None


class Trial(BaseModel):
    """A payload to try a hook on. Its tenant is always the hook's."""

    model_config = ConfigDict(extra="forbid")

    sample_context: dict[str, Any]
    event_type: str | None = Field(
        None, min_length=1, max_length=100, description="The event, for a hook with a pattern."
    )


class TrialResult(BaseModel):
    """The result of a trial. It is null if the hook does not run for such a payload."""

    result: HookRun | None
    context_after: dict[str, Any] = Field(description="Payload after the hook.")


class LogPage(BaseModel):
    """Entries of the execution log, newest first."""

    logs: list[HookExecutionLog]
    next: Next = None


class StatisticsBody(BaseModel):
    """Statistics of each hook at each event, over the entries of the execution log."""

    statistics: list[HookStatistics]


AT_ONCE: Final = 4
"""Trials of one tenant at the same time."""

LARGEST: Final = 256 * 1024
MOST_VALUES: Final = 16_384


@define(eq=False)
class Trials:
    """Runner of trials."""

    alone: Callable[[HookDefinition], AbstractAsyncContextManager[HookRegistry]]
    """Opens a registry with one hook."""
    clock: Clock = field(factory=SystemClock)
    _running: Counter[str] = field(factory=Counter, init=False)
    _tried: set[str] = field(factory=set, init=False)
    _values: FactValues = field(factory=FactValues, init=False)

    async def run(self, definition: HookDefinition, sample: Mapping[str, Any], event: str | None) -> TrialResult:
        """Run a hook with a payload, even if the hook is switched off, and return its result.

        Raises `Problem` while the hook is already being tried, and if its event is a pattern and `event` is missing.
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
            result=hook_run_of(ran[0], self._values) if ran else None,
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
    """Return a payload in a form that JSON can hold."""
    try:
        tamed = ValueSimplifier(None, LARGEST, LARGEST, MOST_VALUES).simplify(payload)
    except TooMuch:
        tamed = None
    return tamed if isinstance(tamed, dict) else {"$omitted": "size"}
