r"""Numbers about hooks, tools, approvals and tokens, for Prometheus and OpenTelemetry.

Prometheus' client (extra `server`) collects the numbers in its default registry, which a server of metrics already
shows, or in a registry of yours; `Metrics.text()` is the exposition. OpenTelemetry (extra `otel`) gets the numbers
through the meter provider of the process, or through yours. The hook observes, and fails open.

```python
from prometheus_client import CollectorRegistry
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import Metrics

registry, metrics = HookRegistry(), Metrics(prometheus=CollectorRegistry())
metrics.register(registry)
await registry.emit("tool:pre", {"tool_name": "Read", "tool_input": {}})
print(*(line for line in metrics.text().splitlines() if line.startswith("amplifier_events_total")), sep="\n")
```

```output
amplifier_events_total{action="continue",event="tool:pre"} 1.0
```

`MEASURES` lists all measures, with their names in Prometheus and in OpenTelemetry. Names under `gen_ai.` follow
OpenTelemetry's conventions, which are still being developed; the other names are this package's own. A label never
holds a name that others make up: no tool, no hook, no session, no user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from weakref import WeakKeyDictionary

from attrs import field, frozen
from pydantic import Field

from amplifier_hooks import events
from amplifier_hooks.errors import InvalidHookSettings, MissingExtra
from amplifier_hooks.library.parts.ready_made import DECISIONS, HookSettings, Point, ReadyMade, duration_of, tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.metrics import MeterProvider
    from prometheus_client import CollectorRegistry

    from amplifier_hooks.result import Outcome


Reading = tuple[float, Mapping[str, str]]
"""A number, and its labels as Prometheus has them."""

OTHER: Final = "other"
"""Label of an event that is not in the catalogue."""

SECONDS: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0)
TOKENS: Final = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)


class EventSample(NamedTuple):
    """One event, as an observer receives it."""

    event: str
    data: Mapping[str, Any]
    outcome: Outcome

    @property
    def label(self) -> str:
        """The event as a label."""
        return self.event if events.find(self.event) is not None else OTHER

    @property
    def seconds(self) -> float | None:
        """Duration of the event in seconds, or None if the event does not state it."""
        spent = duration_of(self.data)
        return None if spent is None else spent / 1e3


@frozen
class Measure:
    """One measure."""

    kind: Literal["counter", "histogram"]
    prometheus: str
    telemetry: str
    about: str
    unit: str
    """Unit as OpenTelemetry writes it: `s`, `{event}`."""
    labels: Mapping[str, str]
    """OpenTelemetry's names of the labels, by Prometheus' names."""
    read: Callable[[EventSample], Iterator[Reading]]
    """Function that yields the readings of one event."""
    buckets: tuple[float, ...] = ()
    constants: Mapping[str, str] = field(factory=dict)
    """Attributes that OpenTelemetry requires in addition; they are constant."""


def _events(sample: EventSample) -> Iterator[Reading]:
    yield 1, {"event": sample.label, "action": sample.outcome.action}


def _chains(sample: EventSample) -> Iterator[Reading]:
    if sample.outcome.ran:
        yield sample.outcome.total_duration_ms / 1e3, {"event": sample.label, "action": sample.outcome.action}


def _failures(sample: EventSample) -> Iterator[Reading]:
    for answer in sample.outcome.failures:
        yield 1, {"event": sample.label, "status": answer.status}


def _injections(sample: EventSample) -> Iterator[Reading]:
    if sample.outcome.injections:
        yield len(sample.outcome.injections), {"event": sample.label}


def _tools(sample: EventSample) -> Iterator[Reading]:
    if sample.event in TOOL_ENDS and sample.seconds is not None:
        yield sample.seconds, {"status": TOOL_ENDS[sample.event]}


def _approvals(sample: EventSample) -> Iterator[Reading]:
    if sample.event in DECISIONS:
        yield sample.seconds or 0.0, {"decision": DECISIONS[sample.event]}


def _tokens(sample: EventSample) -> Iterator[Reading]:
    used = tokens_of(sample.data) if sample.event == events.LLM_POST else None
    for kind, count in (used or {}).items():
        if count or kind in ("input", "output"):
            yield count, {"type": kind}


TOOL_ENDS: Final = {events.TOOL_POST: "ok", events.TOOL_ERROR: "error"}

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
            "Time until an approval was decided, or expired.", "s", _DECISION, _approvals, SECONDS),
    Measure("histogram", "amplifier_model_tokens", "gen_ai.client.token.usage",
            "Tokens of model calls, as the provider counts them.", "{token}", _TOKEN, _tokens, TOKENS, _CHAT),
)
# fmt: on


PRIORITY: Final = 600

SCOPE: Final = "amplifier_hooks"


class MetricsSettings(HookSettings):
    """The receivers of the numbers."""

    prometheus: bool = Field(default=True, description="whether Prometheus' client collects them (extra 'server')")
    opentelemetry: bool = Field(default=False, description="whether OpenTelemetry gets them (extra 'otel')")


class Metrics(ReadyMade[MetricsSettings]):
    """Counts events and failures, times hooks, tools and approvals: for Prometheus and OpenTelemetry.

    Args:
        prometheus: Registry of Prometheus that gets the measures; the library's own if None.
        telemetry: Provider of OpenTelemetry's meters; the global one if None.

    Raise `MissingExtra` if a library is missing that the settings ask for.
    """

    name = "metrics"
    Settings = MetricsSettings

    def __init__(
        self,
        settings: MetricsSettings | None = None,
        *,
        prometheus: CollectorRegistry | None = None,
        telemetry: MeterProvider | None = None,
    ) -> None:
        super().__init__(settings)
        self._prometheus = prometheus
        self._telemetry = telemetry
        self._takers: list[tuple[Measure, list[Any]]] | None = None
        if self.settings.prometheus:
            _client()
        if self.settings.opentelemetry:
            _meters()

    def points(self) -> tuple[Point, ...]:
        """Return an observer of every event.

        Raise `InvalidHookSettings` if Prometheus has other metrics under these names.
        """
        self._instruments()
        return (Point(event="*", call=self.watch, intent="observe", priority=PRIORITY),)

    def text(self) -> str:
        """Return the numbers in the text format of Prometheus. Raise `MissingExtra` without its client."""
        client = _client()
        return str(client.generate_latest(self._registry(client)).decode("utf-8"))

    async def watch(self, event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        """Record all measures of an event."""
        seen = EventSample(event, data, outcome)
        for measure, takers in self._instruments():
            for number, labels in measure.read(seen):
                for take in takers:
                    take(number, labels)

    def _instruments(self) -> list[tuple[Measure, list[Any]]]:
        """Return the measures with their instruments, created on first use."""
        if self._takers is None:
            self._takers = [(measure, self._make_takers(measure)) for measure in MEASURES]
        return self._takers

    def _make_takers(self, measure: Measure) -> list[Any]:
        ways: list[Any] = []
        if self.settings.prometheus:
            client = _client()
            ways.append(_for_prometheus(client, self._registry(client), measure))
        if self.settings.opentelemetry:
            ways.append(_for_telemetry(self._telemetry, measure))
        return ways

    def _registry(self, client: Any) -> Any:
        return client.REGISTRY if self._prometheus is None else self._prometheus


_COLLECTED: Final[WeakKeyDictionary[Any, dict[str, Any]]] = WeakKeyDictionary()
"""The collectors of each registry: two hooks in one process count together."""


def _client() -> Any:
    return MissingExtra.load("prometheus_client", "hook 'metrics'", "server", "set prometheus: false")


def _meters() -> Any:
    try:
        from opentelemetry import metrics
    except ModuleNotFoundError:
        raise MissingExtra("hook 'metrics'", "otel", "set opentelemetry: false") from None
    return metrics


def _for_prometheus(client: Any, registry: Any, measure: Measure) -> Any:
    there = _COLLECTED.setdefault(registry, {})
    collector = there.get(measure.prometheus)
    if collector is None:
        kind = client.Counter if measure.kind == "counter" else client.Histogram
        more = {"buckets": measure.buckets} if measure.buckets else {}
        try:
            collector = kind(measure.prometheus, measure.about, sorted(measure.labels), registry=registry, **more)
        except ValueError as clash:
            raise InvalidHookSettings("metrics", (f"{clash}; pass a registry of its own as `prometheus`",)) from None
        there[measure.prometheus] = collector

    def take(number: float, labels: Mapping[str, str]) -> None:
        one = collector.labels(**labels)
        (one.inc if measure.kind == "counter" else one.observe)(number)

    return take


def _for_telemetry(provider: Any, measure: Measure) -> Any:
    meter = (_meters().get_meter_provider() if provider is None else provider).get_meter(SCOPE)
    about = {"unit": measure.unit, "description": measure.about}
    if measure.kind == "counter":
        add = meter.create_counter(measure.telemetry, **about).add
    else:
        add = meter.create_histogram(
            measure.telemetry, explicit_bucket_boundaries_advisory=list(measure.buckets), **about
        ).record

    def take(number: float, labels: Mapping[str, str]) -> None:
        add(number, {**measure.constants, **{measure.labels[name]: value for name, value in labels.items()}})

    return take
