"""What goes into the routes about hooks, and what comes out: one model each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from weakref import WeakKeyDictionary

from attrs import define, field
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StrictBool

from amplifier_hooks.definitions.execution_log import HookExecutionLog, HookRun, HookStatistics
from amplifier_hooks.definitions.model import Kind
from amplifier_hooks.definitions.priority import FailMode
from amplifier_hooks.result import Risk

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_hooks.definitions.store import StoredHook


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
        said = definition.shown()
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
