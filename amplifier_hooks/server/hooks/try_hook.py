"""Trying a hook on a payload: the hook alone, in a registry of its own, with its own timeout and fail mode.

What it calls is really called. Somebody could let a hook call back here, so that trials start trials: a hook is tried
once at a time, and a tenant tries few at once, however deep it goes.
"""

from __future__ import annotations

import secrets
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from attrs import define, field

from amplifier_hooks.clock import SystemClock, stamp
from amplifier_hooks.definitions.execution_recorder import run_of
from amplifier_hooks.record.format.json_values import Tamer, TooMuch
from amplifier_hooks.record.format.redact import Redactor
from amplifier_hooks.registry.event_names import is_pattern
from amplifier_hooks.server.hooks.hook_bodies import TrialResult
from amplifier_hooks.server.problem_details import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from amplifier_hooks.definitions.model import HookDefinition
    from amplifier_hooks.ports import Clock
    from amplifier_hooks.registry.registry import HookRegistry


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
        with self._counted(definition):
            given = {"session_id": f"trial-{uuid4().hex[:12]}", "timestamp": stamp(self.clock)}
            payload = {**given, **sample, "tenant_id": definition.tenant_id or sample.get("tenant_id", "")}
            waited_for = {key: value for key, value in definition.config.items() if key != "mode"}
            async with self.alone(definition.model_copy(update={"enabled": True, "config": waited_for})) as registry:
                outcome = await registry.emit(name, payload)
        ran = outcome.hook_results
        return TrialResult(
            result=run_of(ran[0], self._redactor) if ran else None,
            context_after=_plain(dict(outcome.data)),
        )

    @contextmanager
    def _counted(self, definition: HookDefinition) -> Iterator[None]:
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
        tamed = Tamer(None, LARGEST, LARGEST, MOST_VALUES).tamed(payload)
    except TooMuch:
        tamed = None
    return tamed if isinstance(tamed, dict) else {"$omitted": "size"}
