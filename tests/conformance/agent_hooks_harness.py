"""An agent loop on a session coordinator, with the kit's interceptors in front of it.

Nothing here decides: the loop asks the session for a turn, for model calls and tool calls, and reads their outcomes, as
any orchestrator does.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from agent_hooks import HostRegistry, HostSurface, IdentityProvider, InterceptionEmitter
from agent_hooks.ctk import Capability, RunOutcome, RunRecord, Scenario
from agent_hooks.ctk.scripted import redact_paths
from attrs import define, field

from amplifier_hooks import HookRegistry, SessionCoordinator
from amplifier_hooks.adapters.agent_hooks import AgentHooksHost
from amplifier_hooks.errors import HookAbortError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_hooks import ApprovalResolver, CompositionConfig, EnforcementMode, Interceptor

__all__ = ["CAPABILITIES", "SessionHarness"]

CAPABILITIES: Final = frozenset(
    {
        Capability.MODEL_CALLS,
        Capability.TOOL_CALLS,
        Capability.PARALLEL_TOOL_CALLS,
        Capability.MULTI_TURN,
        Capability.INT64_JSON,
        Capability.BIGINT_JSON,
        Capability.HOST_DECLARATION,
    }
)
"""The surfaces of a session. Streaming is not among them: a stream releases text before its verdict."""

FAULT: Final = "ctk-fault"
"""The identity provider that fails, as the kit wants."""


class ToolReportsError(Exception):
    """The scenario's tool says that it failed."""


@define
class SessionHarness:
    """One run of a scenario, as the kit drives it."""

    name: str = "amplifier-hooks"
    capabilities: set[Capability] = field(factory=lambda: set(CAPABILITIES))
    tool_seam_host_error: str = "continue"
    scenario: Scenario | None = None
    emitter: InterceptionEmitter | None = None
    ran: list[dict[str, Any]] = field(factory=list)

    def host_surface(self) -> HostSurface:
        """The host surface against which a declaration is resolved."""
        return HostSurface.from_capabilities(sorted(one.value for one in self.capabilities), self.tool_seam_host_error)

    def declaration(self) -> dict[str, Any] | None:
        """Return None: a session is configured in code."""
        return None

    def setup(  # noqa: PLR0917  # as the kit calls it
        self,
        scenario: Scenario,
        interceptors: list[Interceptor],
        resolver: ApprovalResolver | None,
        mode: EnforcementMode,
        composition: CompositionConfig,
        identity_provider: str | None,
        redact_for_approval: list[str] | None = None,
    ) -> None:
        """Make an emitter as the vector wants it."""
        provider: str | IdentityProvider | None = identity_provider
        if identity_provider == FAULT:
            provider = IdentityProvider(FAULT, failing)
        emitter = InterceptionEmitter(mode=mode, resolver=resolver, composition=composition, identity_provider=provider)
        for one in interceptors:
            emitter.register(one)
        if redact_for_approval:
            emitter.set_approval_redactor(lambda context: redact_paths(context, redact_for_approval))
        self.scenario, self.emitter, self.ran = scenario, emitter, []

    def setup_declared(self, scenario: Scenario, document: dict[str, Any], registry: HostRegistry) -> None:
        """Make an emitter from a declaration; a refusal goes to the kit."""
        self.scenario, self.ran = scenario, []
        self.emitter = InterceptionEmitter.from_declaration_value(document, registry)

    def teardown(self) -> None:
        """Do nothing: nothing is kept."""
        self.scenario = self.emitter = None

    async def run(self) -> RunRecord:
        """Run the loop: a turn, model calls and their tool calls, and the answer."""
        assert self.scenario is not None
        assert self.emitter is not None
        final: Any = None
        outcome = RunOutcome.BLOCKED
        session = SessionCoordinator(hooks=HookRegistry())
        host = AgentHooksHost(session, self.emitter, tuple(self.scenario.tools))
        async with session, session.turn(self.scenario.input["content"]) as turn:
            if not turn.denied:
                session.context.add_message("user", turn.prompt)
                outcome, final = await self._worked(session, host)
        results = self.emitter.results
        return RunRecord(
            outcome=outcome,
            final_output=final,
            tool_invocations=self.ran,
            identities=[(one.input_identity, one.enforced_identity) for one in results],
            records=[one.to_wire() for one in results],
        )

    async def _worked(self, session: SessionCoordinator, host: AgentHooksHost) -> tuple[RunOutcome, Any]:
        assert self.scenario is not None
        for response in self.scenario.model_script:
            said = {
                "content": response.content,
                "tool_calls": response.tool_calls,
                "finish_reason": response.finish_reason,
            }
            answer = await session.call_model(partial(saying, said), model="mock")
            if not answer.ok:
                return RunOutcome.BLOCKED, None
            if not answer.value["tool_calls"]:
                try:
                    return RunOutcome.COMPLETED, await host.output(answer.value["content"])
                except HookAbortError:
                    return RunOutcome.BLOCKED, None
            for call in answer.value["tool_calls"]:
                became = await session.call_tool(
                    call["name"], call["args"], self._tool(call["name"]), call_id=call["id"]
                )
                text = became.value if became.ok else became.reason or str(became.error)
                session.context.add_message("user", text if isinstance(text, str) else repr(text))
            session.context.add_message("assistant", answer.value["content"] or "")
        return RunOutcome.COMPLETED, None

    def _tool(self, name: str) -> Any:
        def tool(given: Mapping[str, Any]) -> Any:
            assert self.scenario is not None
            value, is_error = self.scenario.tools[name].invoke(dict(given))
            self.ran.append({"name": name, "args": dict(given)})
            if is_error:
                raise ToolReportsError(str(value))
            return value

        return tool


def saying(said: dict[str, Any], _messages: list[Any]) -> dict[str, Any]:
    """Answer as a model that says this, whatever it reads."""
    return said


def failing(_context: Any) -> str:
    """Fail, as the vector wants of an identity provider."""
    raise RuntimeError("the identity provider of this vector fails")
