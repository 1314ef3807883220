r"""Numbers about hooks, tools, approvals and tokens, for Prometheus and OpenTelemetry.

Prometheus' client (extra `server`) collects them in its default registry, which whatever serves that already shows, or
in a registry of yours; `Metrics.text()` is the exposition. OpenTelemetry (extra `otel`) gets them through the meter
provider of the process, or through yours. What is measured stands in `parts/metric_table.py`. It watches, and fails
open.

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
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from pydantic import Field

from amplifier_hooks.errors import InvalidHookSettings, MissingExtra
from amplifier_hooks.library.parts.metric_table import MEASURES, Happened
from amplifier_hooks.library.parts.ready_made import HookSettings, Point, ReadyMade

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.metrics import MeterProvider
    from prometheus_client import CollectorRegistry

    from amplifier_hooks.library.parts.metric_table import Measure
    from amplifier_hooks.result import Outcome


PRIORITY: Final = 600

SCOPE: Final = "amplifier_hooks"


class MetricsSettings(HookSettings):
    """Where the numbers go."""

    prometheus: bool = Field(default=True, description="whether Prometheus' client collects them (extra 'server')")
    opentelemetry: bool = Field(default=False, description="whether OpenTelemetry gets them (extra 'otel')")


class Metrics(ReadyMade[MetricsSettings]):
    """Counts events and failures, times hooks, tools and approvals: for Prometheus and OpenTelemetry.

    Raises `MissingExtra` when a library is missing that the settings ask for.
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
        """Every event. Raises `InvalidHookSettings` when Prometheus has other things under these names."""
        self._ready()
        return (Point(event="*", call=self.watch, intent="observe", priority=PRIORITY),)

    def text(self) -> str:
        """The numbers in the text format of Prometheus. Raises `MissingExtra` without its client."""
        client = _client()
        return str(client.generate_latest(self._registry(client)).decode("utf-8"))

    async def watch(self, event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        """Measure what there is to measure."""
        seen = Happened(event, data, outcome)
        for measure, takers in self._ready():
            for number, labels in measure.read(seen):
                for take in takers:
                    take(number, labels)

    def _ready(self) -> list[tuple[Measure, list[Any]]]:
        """What takes the numbers, made when it is first needed."""
        if self._takers is None:
            self._takers = [(measure, self._ways(measure)) for measure in MEASURES]
        return self._takers

    def _ways(self, measure: Measure) -> list[Any]:
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
"""By registry, its collectors: two hooks in one process count together."""


def _client() -> Any:
    try:
        import prometheus_client
    except ModuleNotFoundError:
        raise MissingExtra("hook 'metrics'", "server", "set prometheus: false") from None
    return prometheus_client


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
        add(number, {**measure.fixed, **{measure.labels[name]: value for name, value in labels.items()}})

    return take
