"""Spans for OpenTelemetry, read by its own exporter in memory."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.errors import MissingExtra
from amplifier_hooks.library import Tracing
from amplifier_hooks.library.tracing import LONGEST_CONTENT, TracingSettings
from amplifier_hooks.testing import ScriptedApprover

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

pytestmark = pytest.mark.rule("LIB-10")

CANARY = "ghp_" + "a1B2" * 9


class Collector:
    """A tracer provider of the SDK, with its exporter in memory."""

    def __init__(self) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self.exporter: InMemorySpanExporter = InMemorySpanExporter()
        self.provider: TracerProvider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def tracing(self, *, content: bool = False, **environment: str) -> Tracing:
        """Return the hook, which sends its spans here."""
        return Tracing(TracingSettings(content=content), provider=self.provider, environment=environment)

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Return the ended spans whose names begin like this."""
        return [span for span in self.exporter.get_finished_spans() if span.name.startswith(name)]

    def text(self) -> str:
        """Return all that was exported."""
        return "".join(span.to_json() for span in self.spans())


@pytest.fixture
def collector() -> Collector:
    """Return a collector of spans."""
    return Collector()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span."""
    return dict(span.attributes or {})


async def test_tool_call(collector: Collector) -> None:
    """A tool call has a span by the GenAI conventions; spans that the tool opens are its children."""
    from opentelemetry.trace import SpanKind, StatusCode

    registry = HookRegistry()
    collector.tracing().register(registry)
    tracer = collector.provider.get_tracer("test")

    async def read(_given: Any) -> str:
        with tracer.start_as_current_span("disk"):
            return "text"

    with tracer.start_as_current_span("turn"):
        async with SessionCoordinator(hooks=registry, session_id="s-1") as session:
            ended = await session.call_tool("Read", {"file_path": "a.txt"}, read, call_id="c-1")
    assert ended.value == "text"
    (tool,), (disk,), (turn,) = (collector.spans(name) for name in ("execute_tool Read", "disk", "turn"))
    assert attributes(tool) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "Read",
        "gen_ai.tool.call.id": "c-1",
        "gen_ai.conversation.id": "s-1",
    }
    assert (tool.kind, tool.status.status_code) == (SpanKind.INTERNAL, StatusCode.UNSET)
    assert disk.parent is not None
    assert tool.parent is not None
    assert disk.parent.span_id == tool.context.span_id
    assert tool.parent.span_id == turn.context.span_id


async def test_failed_tool(collector: Collector) -> None:
    """A tool that raises leaves the kind of the error in its span, and never the message."""
    from opentelemetry.trace import StatusCode

    registry = HookRegistry()
    collector.tracing().register(registry)

    def broken(_given: Any) -> None:
        raise OSError(f"cannot reach {CANARY}")

    async with SessionCoordinator(hooks=registry) as session:
        ended = await session.call_tool("Fetch", {}, broken)
    assert isinstance(ended.error, OSError)
    (tool,) = collector.spans("execute_tool")
    assert attributes(tool)["error.type"] == "OSError"
    assert (tool.status.status_code, tool.status.description) == (StatusCode.ERROR, None)
    assert not tool.events
    assert "cannot reach" not in collector.text()


async def test_denied_and_approved(collector: Collector) -> None:
    """An approval has a span from question to answer; a denied call has one, and no span of a tool."""
    registry = HookRegistry()
    collector.tracing().register(registry)

    @registry.gate("tool:pre", match="Deploy", name="ask_first")
    async def asks(_event: str, _data: Any) -> HookResult:
        return HookResult.ask("Deploy?", options=["Allow", "Deny"])

    async with SessionCoordinator(hooks=registry, approvals=ScriptedApprover("Allow", "Deny")) as session:
        for _ in range(2):
            await session.call_tool("Deploy", {}, lambda _: "done")
    granted, denied = collector.spans("approval")
    assert [attributes(one)["amplifier.approval.decision"] for one in (granted, denied)] == ["granted", "denied"]
    assert attributes(granted)["gen_ai.tool.name"] == "Deploy"
    assert attributes(granted)["amplifier.approval.risk"]
    assert len(collector.spans("execute_tool")) == 1


async def test_hooks(collector: Collector) -> None:
    """The hooks of an event have a span, with what each said, in the trace of the caller."""
    registry = HookRegistry()
    collector.tracing().register(registry)

    @registry.gate("tool:pre", name="no_bash", match="Bash")
    async def denies(_event: str, _data: Any) -> HookResult:
        return HookResult.deny(f"no shell for {CANARY}")

    @registry.on("tool:post", name="broken")
    async def fails(_event: str, _data: Any) -> None:
        raise ValueError(CANARY)

    with collector.provider.get_tracer("test").start_as_current_span("turn") as turn:
        async with SessionCoordinator(hooks=registry) as session:
            await session.call_tool("Bash", {"command": "ls"}, lambda _: "")
            await session.call_tool("Read", {}, lambda _: "text")
    (before,) = (one for one in collector.spans("hooks tool:pre"))
    facts = attributes(before)
    assert (facts["amplifier.hook.action"], facts["amplifier.hook.denied_by"]) == ("deny", "no_bash")
    assert facts["amplifier.hook.names"] == ("no_bash",)
    (answer,) = before.events
    assert dict(answer.attributes or {})["amplifier.hook.action"] == "deny"
    (after,) = collector.spans("hooks tool:post")
    assert attributes(after)["error.type"] == "error"
    assert before.parent is not None
    assert before.parent.span_id == turn.get_span_context().span_id
    assert CANARY not in collector.text()


async def test_reported_call(collector: Collector) -> None:
    """A call that another program ran, and reported, has one span of the reported length."""
    registry = HookRegistry()
    collector.tracing().register(registry)
    when = "2026-05-01T12:00:00+00:00"
    about = {"session_id": "s", "tool_name": "Bash", "tool_call_id": "c", "timestamp": when}
    await registry.emit("tool:post", {**about, "tool_input": {}, "result": "x", "duration_ms": 250.0})
    await registry.emit("tool:error", {**about, "error": {"type": "Timeout", "message": CANARY}, "duration_ms": 1})
    ran, failed = collector.spans("execute_tool Bash")
    assert ran.end_time is not None
    assert ran.start_time is not None
    assert ran.end_time - ran.start_time == 250_000_000
    assert ran.end_time == 1_777_636_800_000_000_000
    assert attributes(failed)["error.type"] == "Timeout"


@pytest.mark.parametrize("odd", [None, "yesterday", "2026-05-01T12:00:00", 7, "0001-01-01T00:00:00+00:00"])
async def test_odd_times(collector: Collector, odd: object) -> None:
    """A time or a duration that is none costs no span."""
    registry = HookRegistry()
    collector.tracing().register(registry)
    for spent in (float("nan"), -1, "5", True, None, 10**400):
        await registry.emit("tool:post", {"tool_name": "Read", "timestamp": odd, "duration_ms": spent})
    assert len(collector.spans("execute_tool Read")) == 6


@pytest.mark.fault("F-LC-06")
async def test_content_is_chosen(collector: Collector) -> None:
    """Arguments and results come in only where settings say so, without secrets, and bounded."""
    given = {"url": f"https://robin:hunter22@example.org/{CANARY}", "password": "correct horse", "note": "plain"}
    for content in (False, True):
        registry = HookRegistry()
        collector.tracing(content=content, DEPLOY_TOKEN="staple-battery-77").register(registry)
        async with SessionCoordinator(hooks=registry) as session:
            await session.call_tool(
                "Fetch", given, lambda _: {"said": "staple-battery-77 is plain", "more": "y" * 99_999}
            )
    silent, open_one = collector.spans("execute_tool Fetch")
    assert not {"gen_ai.tool.call.arguments", "gen_ai.tool.call.result"} & attributes(silent).keys()
    assert "plain" not in silent.to_json()
    arguments = json.loads(attributes(open_one)["gen_ai.tool.call.arguments"])
    assert arguments["note"] == "plain"
    assert len(attributes(open_one)["gen_ai.tool.call.result"]) <= LONGEST_CONTENT + 100
    for secret in (CANARY, "hunter22", "correct horse", "staple-battery-77"):
        assert secret not in collector.text()


@pytest.mark.fault("F-LC-06")
async def test_no_secrets_in_names(collector: Collector) -> None:
    """A secret in a name that others make up is in no span."""
    registry = HookRegistry()
    collector.tracing(content=True).register(registry)
    registry.on("*", lambda _event, _data: None, name="all")
    for event in ("tool:pre", "tool:post", "tool:error", CANARY, "approval:granted"):
        names = dict.fromkeys(("tool_name", "tool_call_id", "session_id", "agent", "risk", "approval_id"), CANARY)
        circle: dict[str, Any] = {}
        circle["me"] = circle
        await registry.emit(event, {**names, "tool_input": circle, "result": object(), "error": {"type": CANARY}})
    assert collector.spans("execute_tool")
    assert CANARY not in collector.text()


async def test_side_by_side(collector: Collector) -> None:
    """Concurrent calls have one span each, and their own children."""
    registry = HookRegistry()
    collector.tracing().register(registry)
    tracer = collector.provider.get_tracer("test")

    async def work(given: Any) -> None:
        await asyncio.sleep(0)
        tracer.start_span(f"inside {given['n']}").end()

    async with SessionCoordinator(hooks=registry) as session:
        calls = (session.call_tool("Work", {"n": n}, work, call_id=f"c{n}") for n in range(20))
        await asyncio.gather(*calls)
    tools = {attributes(one)["gen_ai.tool.call.id"]: one.context.span_id for one in collector.spans("execute_tool")}
    assert len(tools) == 20
    for inside in collector.spans("inside"):
        assert inside.parent is not None
        assert inside.parent.span_id == tools[f"c{inside.name.removeprefix('inside ')}"]


async def test_without_sdk() -> None:
    """Without an SDK the hook works, and collects nothing."""
    registry = HookRegistry()
    Tracing(environment={}).register(registry)
    async with SessionCoordinator(hooks=registry) as session:
        assert (await session.call_tool("Read", {}, lambda _: "text")).value == "text"


def test_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the hook cannot be made, and the error names the extra."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtra, match=r"amplifier-hooks\[otel\]"):
        Tracing.from_config({})


@pytest.mark.rule("PKG-1")
def test_nothing_at_import() -> None:
    """The front doors and the module of the hook load nothing of OpenTelemetry."""
    imports = "import sys, amplifier_hooks, amplifier_hooks.library.tracing as hook"
    code = f"{imports}; print(hook.PRIORITY, 'opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["620", "False"]
