"""What is measured, and how it is called by Prometheus and by OpenTelemetry: one table for both.

Names under `gen_ai.` are those of OpenTelemetry's conventions, which are still being developed; the others are ours. No
label is a name somebody else makes up: no tool, no hook, no session, no user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import field, frozen

from amplifier_hooks import events
from amplifier_hooks.library.usage import tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_hooks.result import Outcome

__all__ = ["MEASURES", "OTHER", "Measure", "Reading"]

Reading = tuple[float, Mapping[str, str]]
"""A number, and its labels as Prometheus has them."""

OTHER: Final = "other"
"""The label of an event that is not in the catalogue."""

SECONDS: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0)
TOKENS: Final = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)


@frozen(kw_only=True)
class Measure:
    """One thing that is measured."""

    prometheus: str
    telemetry: str
    kind: Literal["counter", "histogram"]
    unit: str
    """As OpenTelemetry writes it: `s`, `{event}`."""
    about: str
    labels: Mapping[str, str] = field(factory=dict)
    """By Prometheus' name, OpenTelemetry's."""
    fixed: Mapping[str, str] = field(factory=dict)
    """What OpenTelemetry wants besides, and is always the same."""
    buckets: tuple[float, ...] = ()
    read: Callable[[str, Mapping[str, Any], Outcome], Iterator[Reading]]
    """What there is to measure in one event."""


def _event(name: str) -> str:
    return name if events.find(name) is not None else OTHER


def _events(name: str, data: Mapping[str, Any], outcome: Outcome) -> Iterator[Reading]:  # noqa: ARG001  # as all
    yield 1, {"event": _event(name), "action": outcome.action}


def _chains(name: str, data: Mapping[str, Any], outcome: Outcome) -> Iterator[Reading]:  # noqa: ARG001  # as all
    if outcome.ran:
        yield outcome.total_duration_ms / 1e3, {"event": _event(name), "action": outcome.action}


def _failures(name: str, data: Mapping[str, Any], outcome: Outcome) -> Iterator[Reading]:  # noqa: ARG001  # as all
    for answer in outcome.failures:
        yield 1, {"event": _event(name), "status": answer.status}


def _injections(name: str, data: Mapping[str, Any], outcome: Outcome) -> Iterator[Reading]:  # noqa: ARG001  # as all
    if outcome.injections:
        yield len(outcome.injections), {"event": _event(name)}


def _tools(name: str, data: Mapping[str, Any], outcome: Outcome) -> Iterator[Reading]:  # noqa: ARG001  # as all
    spent = data.get("duration_ms")
    if name in TOOL_ENDS and isinstance(spent, int | float):
        yield spent / 1e3, {"status": TOOL_ENDS[name]}


def _approvals(name: str, data: Mapping[str, Any], outcome: Outcome) -> Iterator[Reading]:  # noqa: ARG001  # as all
    spent = data.get("duration_ms")
    if name in DECISIONS:
        yield spent / 1e3 if isinstance(spent, int | float) else 0.0, {"decision": DECISIONS[name]}


def _tokens(name: str, data: Mapping[str, Any], outcome: Outcome) -> Iterator[Reading]:  # noqa: ARG001  # as all
    used = tokens_of(data) if name == events.LLM_POST else None
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

MEASURES: Final = (
    Measure(
        prometheus="amplifier_events",
        telemetry="amplifier.events",
        kind="counter",
        unit="{event}",
        about="Events, by what their hooks came to.",
        labels=_ACTION,
        read=_events,
    ),
    Measure(
        prometheus="amplifier_hooks_duration_seconds",
        telemetry="amplifier.hooks.duration",
        kind="histogram",
        unit="s",
        about="Time that all hooks of one event took.",
        labels=_ACTION,
        buckets=SECONDS,
        read=_chains,
    ),
    Measure(
        prometheus="amplifier_hook_failures",
        telemetry="amplifier.hook.failures",
        kind="counter",
        unit="{failure}",
        about="Answers of hooks that were none: errors, timeouts, invalid ones.",
        labels={**_EVENT, "status": "error.type"},
        read=_failures,
    ),
    Measure(
        prometheus="amplifier_injections",
        telemetry="amplifier.injections",
        kind="counter",
        unit="{injection}",
        about="Texts that hooks wanted before the model.",
        labels=_EVENT,
        read=_injections,
    ),
    Measure(
        prometheus="amplifier_tool_duration_seconds",
        telemetry="gen_ai.execute_tool.duration",
        kind="histogram",
        unit="s",
        about="Time that tools took.",
        labels={"status": "amplifier.tool.status"},
        fixed={"gen_ai.operation.name": "execute_tool"},
        buckets=SECONDS,
        read=_tools,
    ),
    Measure(
        prometheus="amplifier_approval_wait_seconds",
        telemetry="amplifier.approval.wait",
        kind="histogram",
        unit="s",
        about="Time until somebody decided, or nobody did.",
        labels={"decision": "amplifier.approval.decision"},
        buckets=SECONDS,
        read=_approvals,
    ),
    Measure(
        prometheus="amplifier_model_tokens",
        telemetry="gen_ai.client.token.usage",
        kind="histogram",
        unit="{token}",
        about="Tokens of model calls, as the provider counts them.",
        labels={"type": "gen_ai.token.type"},
        fixed={"gen_ai.operation.name": "chat"},
        buckets=TOKENS,
        read=_tokens,
    ),
)
