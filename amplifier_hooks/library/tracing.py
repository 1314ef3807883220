r"""Spans of tool calls, hooks and approvals, for OpenTelemetry (extra `otel`).

The spans go to the tracer provider of the process, or to yours; without an SDK nothing is collected. The hook observes,
and fails open. While a tool runs, its span is the current one, so that spans which the tool opens are its children.

```python
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from amplifier_hooks import HookRegistry, SessionCoordinator
from amplifier_hooks.library import Tracing

registry, exporter, provider = HookRegistry(), InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
Tracing(provider=provider).register(registry)
async with SessionCoordinator(hooks=registry) as session:
    await session.call_tool("Read", {"file_path": "notes.md"}, lambda given: "text")
print(*(span.name for span in exporter.get_finished_spans()), sep="\n")
```

```output
execute_tool Read
```

Names under `gen_ai.` follow OpenTelemetry's conventions for generative AI, which are still being developed; names under
`amplifier.` are this package's own. Attributes hold no arguments, no results and no messages, unless `content` is set;
every text is searched for secrets, as in the ledger of tools, and bounded.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from amplifier_hooks.clock import SystemClock, micros_of
from amplifier_hooks.errors import MissingExtra
from amplifier_hooks.events import TOOL_ERROR, TOOL_POST
from amplifier_hooks.library.parts.ready_made import DECISIONS, HookSettings, Point, ReadyMade, duration_of
from amplifier_hooks.record.journal import FactValues

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from opentelemetry.trace import Span, Tracer, TracerProvider

    from amplifier_hooks.dispatch.middleware import ToolContext
    from amplifier_hooks.ports import Clock
    from amplifier_hooks.result import Outcome


PRIORITY: Final = 620
SCOPE: Final = "amplifier_hooks"

LONGEST_NAME: Final = 256
"""Bytes of a name in an attribute."""
LONGEST_CONTENT: Final = 8_192
"""Bytes of arguments or of a result in an attribute."""
MOST_PARTS: Final = 1_000
"""Parts of arguments or of a result in an attribute."""
TRACED: Final = 10_000
"""Calls whose span was opened around the tool that the hook remembers until the event after the tool."""

# fmt: off
IDENTITY: Final = (
    ("session_id",   "gen_ai.conversation.id"),
    ("agent",        "gen_ai.agent.name"),
    ("tool_name",    "gen_ai.tool.name"),
    ("tool_call_id", "gen_ai.tool.call.id"),
    ("tenant_id",    "amplifier.tenant.id"),
)
"""Fields of a payload that become attributes, if they are texts, and their names there."""

DECISION: Final = (
    ("approval_id", "amplifier.approval.id"),
    ("event",       "amplifier.hook.event"),
    ("risk",        "amplifier.approval.risk"),
    ("channel",     "amplifier.approval.channel"),
)
"""Fields of a decided approval. The approver's name is none of them."""
# fmt: on


class TracingSettings(HookSettings):
    """The content of the spans."""

    content: bool = Field(
        default=False, description="whether spans have the arguments and results of tools, without their secrets"
    )


class Tracing(ReadyMade[TracingSettings]):
    """Opens a span for each tool call, for the hooks of each event and for each approval: for OpenTelemetry.

    Args:
        provider: Provider of OpenTelemetry's tracers; the global one if None.

    Raise `MissingExtra` if OpenTelemetry's API is not installed.
    """

    name = "tracing"
    Settings = TracingSettings

    def __init__(
        self,
        settings: TracingSettings | None = None,
        *,
        provider: TracerProvider | None = None,
        clock: Clock | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(settings)
        self._trace = _trace_api()
        self._provider = provider
        self._clock = clock or SystemClock()
        self._names = FactValues(LONGEST_NAME, environment=environment)
        self._contents = FactValues(LONGEST_CONTENT // 4, MOST_PARTS, environment=environment)
        self._traced: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    @cached_property
    def _tracer(self) -> Tracer:
        """The tracer. One that is made before an SDK is configured turns to the SDK as soon as there is one."""
        provider = self._trace.get_tracer_provider() if self._provider is None else self._provider
        tracer: Tracer = provider.get_tracer(SCOPE)
        return tracer

    def points(self) -> tuple[Point, ...]:
        """Return middleware around tools, and an observer of every event."""
        return (
            Point(event="tool", call=self.around_tool, intent="around", priority=PRIORITY, timeout=None),
            Point(event="*", call=self.watch, intent="observe", priority=PRIORITY),
        )

    async def around_tool(self, context: ToolContext, call_next: Callable[[], Awaitable[Any]]) -> None:
        """Run the tool inside its span."""
        about: dict[str, Any] = {**(context.tool_context or {}), "tool_name": context.tool_name}
        about["tenant_id"] = context.tenant_id
        self._remember(about)
        span = self._tracer.start_span(f"execute_tool {self._name(context.tool_name)}")
        with self._trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            recording = span.is_recording()
            if recording:
                span.set_attributes(self._tool_attributes(about, context.arguments))
            try:
                result = await call_next()
            except BaseException as error:
                if recording:
                    self._mark_failed(span, type(error).__qualname__)
                raise
            if recording and self.settings.content:
                span.set_attribute("gen_ai.tool.call.result", self._content(result))

    async def watch(self, event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        """Add the spans of an event that has happened: of its hooks, of a decision, of a tool that others ran."""
        if event in DECISIONS:
            self._add_approval(event, data)
        elif event in (TOOL_POST, TOOL_ERROR) and not self._forget(data):
            self._add_tool(event, data)
        if outcome.ran:
            self._add_hooks(event, data, outcome)

    # -- spans -----------------------------------------------------------------------------------------------------

    def _add_tool(self, event: str, data: Mapping[str, Any]) -> None:
        """Add the span of a tool that a program or a loop of its own ran."""
        end = self._time_of(data)
        name = f"execute_tool {self._name(data.get('tool_name'))}"
        span = self._tracer.start_span(name, start_time=end - _nanoseconds(duration_of(data)))
        if span.is_recording():
            span.set_attributes(self._tool_attributes(data, data.get("tool_input")))
            if event == TOOL_ERROR:
                error = data.get("error")
                self._mark_failed(span, error.get("type") if isinstance(error, Mapping) else None)
            elif self.settings.content:
                span.set_attribute("gen_ai.tool.call.result", self._content(data.get("result")))
        span.end(end)

    def _add_approval(self, event: str, data: Mapping[str, Any]) -> None:
        """Add the span of a decision: it lasts from the question to the answer."""
        end = self._time_of(data)
        span = self._tracer.start_span("approval", start_time=end - _nanoseconds(duration_of(data)))
        if span.is_recording():
            span.set_attributes({**self._texts(data, IDENTITY), **self._texts(data, DECISION)})
            span.set_attribute("amplifier.approval.decision", DECISIONS[event])
        span.end(end)

    def _add_hooks(self, event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        """Add the span of the hooks of one event, with an entry for each hook that had something to say."""
        begin = self._time_of(data)
        span = self._tracer.start_span(f"hooks {self._name(event)}", start_time=begin)
        if span.is_recording():
            span.set_attributes(self._texts(data, IDENTITY))
            span.set_attribute("amplifier.hook.event", self._name(event))
            span.set_attribute("amplifier.hook.action", outcome.action)
            span.set_attribute("amplifier.hook.names", [self._name(name) for name in outcome.ran])
            if outcome.denied_by:
                span.set_attribute("amplifier.hook.denied_by", self._name(outcome.denied_by))
            for answer in outcome.answers:
                said: dict[str, Any] = {"amplifier.hook.name": self._name(answer.hook_name)}
                said |= {"amplifier.hook.action": answer.action, "amplifier.hook.status": answer.status}
                if answer.duration_ms is not None:
                    said["amplifier.hook.duration"] = answer.duration_ms / 1e3
                span.add_event("amplifier.hook.answer", said, begin)
            if failed := outcome.failures:
                self._mark_failed(span, failed[0].status)
        span.end(begin + _nanoseconds(outcome.total_duration_ms))

    # -- attributes ------------------------------------------------------------------------------------------------

    def _tool_attributes(self, data: Mapping[str, Any], arguments: object) -> dict[str, Any]:
        found: dict[str, Any] = {"gen_ai.operation.name": "execute_tool", **self._texts(data, IDENTITY)}
        if self.settings.content:
            found["gen_ai.tool.call.arguments"] = self._content(arguments)
        return found

    def _texts(self, data: Mapping[str, Any], fields: tuple[tuple[str, str], ...]) -> dict[str, str]:
        return {
            attribute: self._name(value)
            for field, attribute in fields
            if isinstance(value := data.get(field), str) and value
        }

    def _mark_failed(self, span: Span, kind: object) -> None:
        """Set the status and the kind of an error. The message of an error may hold anything, and stays out."""
        span.set_attribute("error.type", self._name(kind) if isinstance(kind, str) and kind else "_OTHER")
        span.set_status(self._trace.StatusCode.ERROR)

    def _name(self, text: object) -> str:
        """Return a name that others made up in the form of an attribute: escaped, bounded, without secrets."""
        return self._names.text(text if isinstance(text, str) else None) or "unnamed"

    def _content(self, value: object) -> str:
        """Return a value as JSON, without its secrets. A part that is too long or no JSON is named, and left out."""
        return json.dumps(self._contents.value(value), ensure_ascii=False)

    # -- memory and time -------------------------------------------------------------------------------------------

    def _remember(self, about: Mapping[str, Any]) -> None:
        """Remember that the call has its span, so that the event after the tool adds no second one."""
        self._traced[_call_key(about)] = None
        if len(self._traced) > TRACED:
            self._traced.popitem(last=False)

    def _forget(self, data: Mapping[str, Any]) -> bool:
        """Return True if the call had its span, and forget it."""
        key = _call_key(data)
        found = key in self._traced
        self._traced.pop(key, None)
        return found

    def _time_of(self, data: Mapping[str, Any]) -> int:
        """Return the time of an event in nanoseconds since 1970."""
        written = data.get("timestamp")
        try:
            moment = datetime.fromisoformat(written) if isinstance(written, str) else self._clock.now()
            return max(0, micros_of(moment)) * 1_000
        except (TypeError, ValueError):  # no time, or one without its zone
            return micros_of(self._clock.now()) * 1_000


def _call_key(data: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(data.get("tenant_id") or ""), str(data.get("session_id") or ""), str(data.get("tool_call_id") or "")


def _nanoseconds(milliseconds: float | None) -> int:
    return int((milliseconds or 0) * 1e6)


def _trace_api() -> Any:
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        raise MissingExtra("hook 'tracing'", "otel") from None
    return trace
