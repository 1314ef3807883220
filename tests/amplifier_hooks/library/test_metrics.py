"""Numbers for Prometheus and OpenTelemetry, read by their own readers."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.errors import InvalidHookSettings, MissingExtra
from amplifier_hooks.library import Metrics
from amplifier_hooks.library.metrics import MEASURES, MetricsSettings
from amplifier_hooks.testing import ScriptedApprover

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from prometheus_client import CollectorRegistry

pytestmark = pytest.mark.rule("LIB-5")

BOTH = MetricsSettings(prometheus=True, opentelemetry=True)
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def collectors() -> tuple[CollectorRegistry, InMemoryMetricReader, Metrics]:
    """Return Prometheus' registry, OpenTelemetry's reader, and the hook that feeds both."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from prometheus_client import CollectorRegistry

    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    return registry, reader, Metrics(BOTH, prometheus=registry, telemetry=provider)


def by_prometheus(text: str) -> Samples:
    """Return the samples that Prometheus' own parser reads from the exposition."""
    from prometheus_client.parser import text_string_to_metric_families

    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def by_telemetry(reader: InMemoryMetricReader) -> dict[tuple[str, tuple[tuple[str, str], ...]], Any]:
    """Return the points that OpenTelemetry's exporter in memory received."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        (metric.name, tuple(sorted((key, str(value)) for key, value in (point.attributes or {}).items()))): point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


async def scripted(hook: Metrics) -> None:
    """Run a session in which most things happen once."""
    registry = HookRegistry()
    hook.register(registry)

    @registry.gate("tool:pre", match="Deploy")
    async def asks(event: str, data: Any) -> HookResult:
        return HookResult.ask("Deploy?", options=["Allow", "Deny"])

    @registry.on("tool:post", match="Read")
    async def fails(event: str, data: Any) -> HookResult:
        raise ValueError("broken")

    @registry.on("tool:post", match="Write")
    async def injects(event: str, data: Any) -> HookResult:
        return HookResult.inject("look")

    def broken(_given: Any) -> None:
        raise OSError

    approver = ScriptedApprover("Allow", "Deny")
    async with SessionCoordinator(hooks=registry, approvals=approver) as session:
        for tool in ("Read", "Read", "Write", "Deploy", "Deploy"):
            await session.call_tool(tool, {}, lambda _: "done")
        await session.call_tool("Broken", {}, broken)
    await registry.emit("llm:post", {"response": "x", "usage": {"input_tokens": 1_200, "output_tokens": 30}})
    await registry.emit("my:own", {})


async def test_prometheus(collectors: Any) -> None:
    """Prometheus reads the numbers of the session."""
    _, _, hook = collectors
    await scripted(hook)
    samples = by_prometheus(hook.text())

    def value(name: str, **labels: str) -> float:
        return samples[name, tuple(sorted(labels.items()))]

    assert value("amplifier_events_total", event="tool:pre", action="continue") == 5
    assert value("amplifier_events_total", event="tool:pre", action="deny") == 1
    assert value("amplifier_events_total", event="other", action="continue") == 1
    assert value("amplifier_hook_failures_total", event="tool:post", status="error") == 2
    assert value("amplifier_injections_total", event="tool:post") == 1
    assert value("amplifier_tool_duration_seconds_count", status="ok") == 4
    assert value("amplifier_tool_duration_seconds_count", status="error") == 1
    assert value("amplifier_approval_wait_seconds_count", decision="granted") == 1
    assert value("amplifier_approval_wait_seconds_count", decision="denied") == 1
    assert value("amplifier_model_tokens_sum", type="input") == 1_200
    assert value("amplifier_hooks_duration_seconds_count", event="tool:post", action="continue") == 2
    assert not [labels for _, labels in samples if any(value in ("Read", "Deploy") for _, value in labels)]


async def test_telemetry(collectors: Any) -> None:
    """OpenTelemetry gets the same numbers under its own names."""
    _, reader, hook = collectors
    await scripted(hook)
    points, samples = by_telemetry(reader), by_prometheus(hook.text())
    tool = points[
        "gen_ai.execute_tool.duration", (("amplifier.tool.status", "ok"), ("gen_ai.operation.name", "execute_tool"))
    ]
    assert tool.count == 4
    tokens = points["gen_ai.client.token.usage", (("gen_ai.operation.name", "chat"), ("gen_ai.token.type", "output"))]
    assert tokens.sum == 30
    for measure in MEASURES:
        theirs = [point for (name, _), point in points.items() if name == measure.telemetry]
        if measure.kind == "counter":
            ours = sum(value for (name, _), value in samples.items() if name == f"{measure.prometheus}_total")
            assert sum(point.value for point in theirs) == ours > 0
        else:
            ours = sum(value for (name, _), value in samples.items() if name == f"{measure.prometheus}_count")
            assert sum(point.count for point in theirs) == ours > 0


async def test_tokens_in_any_words(collectors: Any) -> None:
    """The tokens of a model call are read in any provider's format, cached tokens apart."""
    _, _, hook = collectors
    registry = HookRegistry()
    hook.register(registry)
    said = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 90}}
    await registry.emit("llm:post", {"response": {"usage": said}})
    await registry.emit("llm:post", {"response": "nothing about it"})
    samples = by_prometheus(hook.text())
    sums = {labels[0][1]: value for (name, labels), value in samples.items() if name == "amplifier_model_tokens_sum"}
    assert sums == {"input": 10, "output": 7, "cache_read": 90}


async def test_two_in_one_process(collectors: Any) -> None:
    """Two hooks that share a registry of Prometheus count together."""
    prometheus, _, hook = collectors
    for one in (hook, Metrics(prometheus=prometheus)):
        registry = HookRegistry()
        one.register(registry)
        await registry.emit("session:start", {})
    assert (
        by_prometheus(hook.text())["amplifier_events_total", (("action", "continue"), ("event", "session:start"))] == 2
    )


@pytest.mark.fault("F-LC-06")
async def test_no_secrets(collectors: Any) -> None:
    """A name that others make up, a secret among them, never becomes a label."""
    _, reader, hook = collectors
    registry, canary = HookRegistry(), "ghp_" + "a1B2" * 9
    hook.register(registry)
    for event in ("tool:pre", "tool:post", "tool:error", canary, f"tool:{canary}", "llm:post"):
        facts = {"tool_name": canary, "tool_input": canary, "result": canary, "duration_ms": canary, "usage": canary}
        await registry.emit(event, {**facts, "error": {"type": canary, "message": canary}})
    assert canary not in hook.text()
    assert canary not in str(by_telemetry(reader))


def test_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the hook cannot be created, and the error names the extra."""
    for module, extra in (("prometheus_client", "server"), ("opentelemetry", "otel")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingExtra, match=rf"amplifier-hooks\[{extra}\]"):
            Metrics.from_config({"prometheus": extra == "server", "opentelemetry": extra == "otel"})


def test_names_that_are_taken(collectors: Any) -> None:
    """If Prometheus has another metric under one of the names, the hook cannot be registered, and no point is."""
    prometheus, _, _ = collectors
    __import__("prometheus_client").Counter("amplifier_events", "another library's", registry=prometheus)
    registry = HookRegistry()
    with pytest.raises(InvalidHookSettings, match="amplifier_events"):
        Metrics(prometheus=prometheus).register(registry)


@pytest.mark.parametrize("spent", [float("nan"), float("inf"), -1.0, True, 10**400, "5", None])
async def test_odd_durations(collectors: Any, spent: object) -> None:
    """An invalid duration is not measured and spoils no sum; an approval is counted nevertheless."""
    _, reader, hook = collectors
    registry = HookRegistry()
    hook.register(registry)
    for event in ("tool:post", "tool:error", "approval:granted"):
        outcome = await registry.emit(event, {"duration_ms": spent})
        assert not outcome.failures
    samples = by_prometheus(hook.text())
    assert ("amplifier_tool_duration_seconds_count", (("status", "ok"),)) not in samples
    assert samples["amplifier_approval_wait_seconds_sum", (("decision", "granted"),)] == 0
    assert not [point for (name, _), point in by_telemetry(reader).items() if name == "gen_ai.execute_tool.duration"]


async def test_side_by_side(collectors: Any) -> None:
    """Events of many concurrent tasks are all counted."""
    _, _, hook = collectors
    registry = HookRegistry()
    hook.register(registry)
    await asyncio.gather(*(registry.emit("tool:pre", {"tool_name": "Read"}) for _ in range(200)))
    assert by_prometheus(hook.text())["amplifier_events_total", (("action", "continue"), ("event", "tool:pre"))] == 200
