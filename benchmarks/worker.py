"""One peer, measured inside the peer's own environment; prints what it found as a line of JSON.

Every peer is called at the point its own agent loop calls, with coroutine functions as hooks where it takes them.
Objects that its caller makes anew for each event (an event object, keyword arguments) are made anew here. Where its
answers have no class of their own, the bare loop's hooks build a two-field object for theirs. A case it has no way to
express, or where it would change the caller's data in place, is left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, Final

from benchmarks.cases import CASES, EVENT, Answers, Case, Emit, bare, hooks, idle, payload, sampled
from benchmarks.rounds import QUICK, THOROUGH, Effort
from benchmarks.weight import weights

AFFORDED: Final = 0.5
"""Seconds a crowd may take, by what an emit past ten hooks takes; with a dear peer it has fewer sessions and rounds."""
FEWEST: Final = 20
"""Sessions that are still a crowd."""


class Answer:
    """The smallest possible answer."""

    __slots__ = ("action", "data")

    def __init__(self, action: str, data: Mapping[str, Any] | None = None) -> None:
        self.action = action
        self.data = data


PLAIN: Final = Answers(nothing=None, deny=lambda: Answer("deny"), modify=lambda data: Answer("modify", data))

Peer = Callable[[Case], Emit | None]


# -- the peers: an emit for a case, or None where they have no word for it -------------------------------------------


def amplifier_core(case: Case) -> Emit:
    """The upstream kernel. Isolates hooks, and converts data and answers between two languages."""
    registry = import_module("amplifier_core").HookRegistry()
    for place, hook in enumerate(hooks(case.kinds, amplifier_answers())):
        registry.register(EVENT, hook, place, f"hook_{place}")
    return registry.emit  # type: ignore[no-any-return]


def amplifier_answers() -> Answers:
    """Return the answers of the upstream kernel; the bare loop's hooks build equal ones."""
    result = import_module("amplifier_core").HookResult
    return Answers(
        nothing=result(action="continue"),
        deny=lambda: result(action="deny", reason="not here"),
        modify=lambda data: result(action="modify", data=data),
    )


def blinker(case: Case) -> Emit | None:
    """Signals: no answer keeps another receiver from being called."""
    if not {"deny", "modify"}.isdisjoint(case.kinds):
        return None
    signal = import_module("blinker").Signal()
    for hook in hooks(case.kinds, PLAIN):
        signal.connect(hook, weak=False)

    async def emit(event: str, data: Any) -> Any:
        return await signal.send_async(event, _data=data)

    return emit


def google_adk(case: Case) -> Emit | None:
    """Plugins around tools. The first answer ends it, so a denial is an answer."""
    if "modify" in case.kinds:
        return None

    async def proceed(_self: Any, *, tool: Any, tool_args: Any, tool_context: Any) -> None:
        pass

    async def suspend(_self: Any, *, tool: Any, tool_args: Any, tool_context: Any) -> None:
        await asyncio.sleep(0)

    async def deny(_self: Any, *, tool: Any, tool_args: Any, tool_context: Any) -> Any:
        return {"error": "not here"}

    plugin = import_module("google.adk.plugins.base_plugin").BasePlugin
    said = {"continue": proceed, "suspend": suspend, "deny": deny}
    kinds = {kind: type(kind, (plugin,), {"before_tool_callback": say}) for kind, say in said.items()}
    manager = import_module("google.adk.plugins.plugin_manager").PluginManager(
        [kinds[kind](name=f"hook_{place}") for place, kind in enumerate(case.kinds)]
    )

    async def emit(_event: str, data: Any) -> Any:
        return await manager.run_before_tool_callback(tool=None, tool_args=data, tool_context=None)

    return emit


def pluggy(case: Case) -> Emit | None:
    """Plain functions only. The first answer ends it."""
    if not {"suspend", "modify"}.isdisjoint(case.kinds):
        return None
    library = import_module("pluggy")
    specify, implement = library.HookspecMarker("bench"), library.HookimplMarker("bench")

    @specify(firstresult=True)  # type: ignore[untyped-decorator]
    def tool_pre(data: Any) -> None:
        pass

    @implement(trylast=True)  # type: ignore[untyped-decorator]
    def proceed(data: Any) -> None:
        pass

    @implement(tryfirst=True)  # type: ignore[untyped-decorator]
    def deny(data: Any) -> Any:
        return Answer("deny")

    manager = library.PluginManager("bench")
    manager.add_hookspecs(SimpleNamespace(tool_pre=tool_pre))
    for kind in case.kinds:
        said = deny if kind == "deny" else proceed
        manager.register(type("Plugin", (), {"tool_pre": staticmethod(said)})())
    call = manager.hook.tool_pre

    async def emit(_event: str, data: Any) -> Any:
        return call(data=data)

    return emit


def pydantic_ai(case: Case, timeout: float | None = None) -> Emit:
    """Tool hooks, called directly rather than through the capabilities of an agent, which is kinder to it."""
    skip = import_module("pydantic_ai.exceptions").SkipToolExecution

    async def proceed(_ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        return args

    async def suspend(_ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        await asyncio.sleep(0)
        return args

    async def deny(_ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        raise skip("not here")

    def modifying(key: str, value: int) -> Any:
        async def modify(_ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
            return {**args, key: value}

        return modify

    said = {"continue": proceed, "suspend": suspend, "deny": deny}
    listening = import_module("pydantic_ai.capabilities").Hooks()
    for place, kind in enumerate(case.kinds):
        hook = said.get(kind) or modifying(f"k{place}", place)
        listening.on.before_tool_execute(timeout=timeout)(hook)
    call = import_module("pydantic_ai.messages").ToolCallPart("Write")

    async def emit(_event: str, data: Any) -> Any:
        try:
            return await listening.before_tool_execute(None, call=call, tool_def=None, args=data)
        except skip as skipped:
            return skipped

    return emit


def pydantic_ai_timed(case: Case) -> Emit:
    """Tool hooks like those of `pydantic_ai`, with a timeout for each hook."""
    return pydantic_ai(case, timeout=5.0)


def strands(case: Case) -> Emit:
    """Callbacks that write on an event object. A denial is a mark on it, and all the others are still asked."""

    async def proceed(_event: Any) -> None:
        pass

    async def suspend(_event: Any) -> None:
        await asyncio.sleep(0)

    async def deny(event: Any) -> None:
        event.cancel_tool = "not here"

    def modifying(key: str, value: int) -> Any:
        async def modify(event: Any) -> None:
            event.tool_use = {**event.tool_use, key: value}

        return modify

    library = import_module("strands.hooks")
    happening, registry = library.BeforeToolCallEvent, library.HookRegistry()
    said = {"continue": proceed, "suspend": suspend, "deny": deny}
    for place, kind in enumerate(case.kinds):
        registry.add_callback(happening, said.get(kind) or modifying(f"k{place}", place))

    async def emit(_event: str, data: Any) -> Any:
        event = happening(agent=None, selected_tool=None, tool_use=data, invocation_state={})
        return await registry.invoke_callbacks_async(event)

    return emit


WORKERS: Final[Mapping[str, tuple[str, Peer]]] = {
    "amplifier-core": ("amplifier-core", amplifier_core),
    "blinker": ("blinker", blinker),
    "google-adk": ("google-adk", google_adk),
    "pluggy": ("pluggy", pluggy),
    "pydantic-ai": ("pydantic-ai-slim", pydantic_ai),
    "pydantic-ai with timeouts": ("pydantic-ai-slim", pydantic_ai_timed),
    "strands-agents": ("strands-agents", strands),
}


# -- measuring one ---------------------------------------------------------------------------------------------------


async def work(name: str, *, quick: bool) -> dict[str, Any]:
    """Measure one peer, and return all its figures."""
    package, peer = WORKERS[name]
    answers = amplifier_answers() if name == "amplifier-core" else PLAIN
    ratios: dict[str, float] = {}
    us: dict[str, float] = {}
    for case in CASES:
        emit = peer(case)
        if emit is None:
            continue
        effort, there = (QUICK if quick else THOROUGH), case
        if case.sessions and (sessions := affordable(case, us["10 hooks"], quick=quick)) < case.sessions:
            effort = Effort(3, effort.seconds)
            there = replace(case, sessions=sessions, events=2 if quick else case.events)
        samples = await sampled({"bare": bare(case.kinds, answers), "peer": emit}, there, effort)
        ratios[case.name] = samples["peer"].ratio(samples["bare"])
        us[case.name] = samples["peer"].usual
    return {"version": version(package), "ratios": ratios, "us": us, "memory": await memory(peer)}


def affordable(case: Case, us: float, *, quick: bool) -> int:
    """Return the number of sessions in the crowd if an emit takes so many µs."""
    return FEWEST if quick else min(case.sessions, max(FEWEST, int(AFFORDED * 1e6 / (us * case.events))))


async def memory(peer: Peer) -> dict[str, float]:
    """Bytes of an emitter without hooks, and of each hook more, with the hook functions themselves."""

    async def made(count: int) -> Emit | None:
        emit = peer(idle(count))
        if emit is not None:
            await emit(EVENT, payload())
        return emit

    return await weights(made)


if __name__ == "__main__":
    if "--uvloop" in sys.argv:
        asyncio.set_event_loop_policy(import_module("uvloop").EventLoopPolicy())
    print(json.dumps(asyncio.run(work(sys.argv[1], quick="--quick" in sys.argv))), flush=True)
    os._exit(0)  # amplifier-core may crash while the interpreter goes down
