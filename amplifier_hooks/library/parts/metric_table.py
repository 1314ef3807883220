"""What is measured, and how it is called by Prometheus and by OpenTelemetry: one table for both.

Names under `gen_ai.` are those of OpenTelemetry's conventions, which are still being developed; the others are ours. No
label is a name somebody else makes up: no tool, no hook, no session, no user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from attrs import field, frozen

from amplifier_hooks import events
from amplifier_hooks.library.parts.token_usage import tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_hooks.result import Outcome


Reading = tuple[float, Mapping[str, str]]
"""A number, and its labels as Prometheus has them."""

OTHER: Final = "other"
"""The label of an event that is not in the catalogue."""

SECONDS: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0)
TOKENS: Final = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)


LONGEST: Final = 1e12
"""Milliseconds; what is longer, or no number, is no duration of anything that happened here."""


class Happened(NamedTuple):
    """One event, as an observer is told of it."""

    event: str
    data: Mapping[str, Any]
    outcome: Outcome

    @property
    def label(self) -> str:
        """The event as a label."""
        return self.event if events.find(self.event) is not None else OTHER

    @property
    def seconds(self) -> float | None:
        """How long it took, where it says so."""
        spent = self.data.get("duration_ms")
        if isinstance(spent, bool) or not isinstance(spent, int | float) or not 0 <= spent <= LONGEST:
            return None
        return spent / 1e3


@frozen
class Measure:
    """One thing that is measured."""

    kind: Literal["counter", "histogram"]
    prometheus: str
    telemetry: str
    about: str
    unit: str
    """As OpenTelemetry writes it: `s`, `{event}`."""
    labels: Mapping[str, str]
    """By Prometheus' name, OpenTelemetry's."""
    read: Callable[[Happened], Iterator[Reading]]
    """What there is to measure in one event."""
    buckets: tuple[float, ...] = ()
    fixed: Mapping[str, str] = field(factory=dict)
    """What OpenTelemetry wants besides, and is always the same."""


def _events(seen: Happened) -> Iterator[Reading]:
    yield 1, {"event": seen.label, "action": seen.outcome.action}


def _chains(seen: Happened) -> Iterator[Reading]:
    if seen.outcome.ran:
        yield seen.outcome.total_duration_ms / 1e3, {"event": seen.label, "action": seen.outcome.action}


def _failures(seen: Happened) -> Iterator[Reading]:
    for answer in seen.outcome.failures:
        yield 1, {"event": seen.label, "status": answer.status}


def _injections(seen: Happened) -> Iterator[Reading]:
    if seen.outcome.injections:
        yield len(seen.outcome.injections), {"event": seen.label}


def _tools(seen: Happened) -> Iterator[Reading]:
    if seen.event in TOOL_ENDS and seen.seconds is not None:
        yield seen.seconds, {"status": TOOL_ENDS[seen.event]}


def _approvals(seen: Happened) -> Iterator[Reading]:
    if seen.event in DECISIONS:
        yield seen.seconds or 0.0, {"decision": DECISIONS[seen.event]}


def _tokens(seen: Happened) -> Iterator[Reading]:
    used = tokens_of(seen.data) if seen.event == events.LLM_POST else None
    for kind, count in (used or {}).items():
        if count or kind in ("input", "output"):
            yield count, {"type": kind}


TOOL_ENDS: Final = {events.TOOL_POST: "ok", events.TOOL_ERROR: "error"}
DECISIONS: Final = {
    events.APPROVAL_GRANTED: "granted",
    events.APPROVAL_DENIED: "denied",
    events.APPROVAL_EXPIRED: "expired",
}

_EVENT: Final = {"event": "amplifier.hook.event"}
_ACTION: Final = {**_EVENT, "action": "amplifier.hook.action"}
_STATUS: Final = {**_EVENT, "status": "error.type"}
_TOOL: Final = {"status": "amplifier.tool.status"}
_DECISION: Final = {"decision": "amplifier.approval.decision"}
_TOKEN: Final = {"type": "gen_ai.token.type"}
_RUN_TOOL: Final = {"gen_ai.operation.name": "execute_tool"}
_CHAT: Final = {"gen_ai.operation.name": "chat"}

# fmt: off
MEASURES: Final = (
    Measure("counter", "amplifier_events", "amplifier.events",
            "Events, by what their hooks came to.", "{event}", _ACTION, _events),
    Measure("histogram", "amplifier_hooks_duration_seconds", "amplifier.hooks.duration",
            "Time that all hooks of one event took.", "s", _ACTION, _chains, SECONDS),
    Measure("counter", "amplifier_hook_failures", "amplifier.hook.failures",
            "Answers of hooks that were none: errors, timeouts, invalid ones.", "{failure}", _STATUS, _failures),
    Measure("counter", "amplifier_injections", "amplifier.injections",
            "Texts that hooks wanted before the model.", "{injection}", _EVENT, _injections),
    Measure("histogram", "amplifier_tool_duration_seconds", "gen_ai.execute_tool.duration",
            "Time that tools took.", "s", _TOOL, _tools, SECONDS, _RUN_TOOL),
    Measure("histogram", "amplifier_approval_wait_seconds", "amplifier.approval.wait",
            "Time until somebody decided, or nobody did.", "s", _DECISION, _approvals, SECONDS),
    Measure("histogram", "amplifier_model_tokens", "gen_ai.client.token.usage",
            "Tokens of model calls, as the provider counts them.", "{token}", _TOKEN, _tokens, TOKENS, _CHAT),
)
# fmt: on
