import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks import HookRegistry, HookResult, ModelContext, Outcome
from amplifier_hooks.errors import PrivilegeRequired, TooManyHooks

TENANTS = ["", "acme", "other"]
CALL = {"tool_name": "Write", "session_id": "s"}


@pytest.mark.rule("TEN-1")
@given(
    st.lists(st.tuples(st.sampled_from(TENANTS), st.sampled_from(["register", "on", "gate", "observe"])), max_size=8),
    st.sampled_from([*TENANTS, None, 7, ["acme"]]),
)
def test_whose_hooks_run(hooks: list[tuple[str, str]], tenant: Any) -> None:
    """System hooks always run, a tenant's for that tenant alone; a tenant that is no text matches no hook."""
    registry = HookRegistry()
    seen: list[str] = []

    def hook(event: str, data: Mapping[str, Any], outcome: Any = None, *, whose: str) -> None:
        seen.append(whose)

    from functools import partial

    for whose, intent in hooks:
        getattr(registry, intent)("tool:pre", partial(hook, whose=whose), tenant=whose)
    asyncio.run(registry.emit("tool:pre", {**CALL, "tenant_id": tenant}))
    assert sorted(seen) == sorted(whose for whose, _ in hooks if whose in ("", tenant))


@pytest.mark.rule("TEN-1", "REG-2")
async def test_the_system_comes_first_at_equal_priority() -> None:
    """A tenant's hook never decides before a system hook of the same priority, however late that came."""
    registry = HookRegistry()
    registry.gate("tool:pre", lambda event, data: HookResult.deny("tenant"), tenant="acme", name="theirs")
    registry.gate("tool:pre", lambda event, data: HookResult.deny("system"), name="ours")
    assert (await registry.emit("tool:pre", {**CALL, "tenant_id": "acme"})).denied_by == "ours"


@pytest.mark.rule("TEN-1")
async def test_a_tenants_hook_sees_hears_and_stops_nothing_of_others() -> None:
    """A tenant's gates and observers run for that tenant's payloads only; others pass as if they were not there."""
    registry = HookRegistry()
    heard: list[str] = []
    scope = registry.scope("acme's", tenant="acme")
    scope.gate("tool:pre", lambda event, data: HookResult.deny("no"))

    @scope.observe("*")
    def watch(event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        heard.append(data["tenant_id"])

    for tenant in ("acme", "other", ""):
        outcome = await registry.emit("tool:pre", {**CALL, "tenant_id": tenant})
        assert outcome.denied is (tenant == "acme")
        assert outcome.hook_count == (1 if tenant == "acme" else 0)
    assert heard == ["acme"]


@pytest.mark.rule("TEN-1", "DSP-8")
async def test_a_tenant_hears_of_its_own_payloads_hooks_only() -> None:
    """A `hook:*` event carries the tenant of the payload, and reaches that tenant's observers."""
    registry = HookRegistry()
    heard: list[str] = []
    registry.on("tool:pre", lambda event, data: None, name="ours")
    registry.observe("hook:complete", lambda event, data, outcome: heard.append(data["tenant_id"]), tenant="acme")
    for tenant in ("other", "acme"):
        await registry.emit("tool:pre", {**CALL, "tenant_id": tenant})
    assert heard == ["acme"]


@pytest.mark.rule("TEN-1", "TRU-1")
@pytest.mark.parametrize("event", ["context:assembled", "llm:pre", "llm:post"])
async def test_tenants_keep_out_of_privileged_points(event: str) -> None:
    """Any scope that registers a tenant's hook there is refused, and a pattern does not include the event."""
    registry = HookRegistry()
    heard: list[str] = []
    with pytest.raises(PrivilegeRequired, match="tenant 'acme'"):
        registry.on(event, lambda event, data: None, tenant="acme")
    with pytest.raises(PrivilegeRequired, match="tenant 'acme'"):
        registry.observe(event, lambda event, data, outcome: None, tenant="acme")
    registry.observe("*", lambda event, data, outcome: heard.append(event), tenant="acme")
    await registry.emit(event, {"tenant_id": "acme"})
    assert heard == []


@pytest.mark.rule("TEN-1", "TRU-3")
async def test_tenants_keep_away_from_the_model_call() -> None:
    """A tenant's hook around the model call is refused."""

    async def layer(context: ModelContext, call_next: Any) -> Any:
        return await call_next()

    with pytest.raises(PrivilegeRequired, match="around model"):
        HookRegistry().around("model", layer, tenant="acme")


@pytest.mark.rule("TEN-1", "REG-9")
def test_one_tenants_definitions_use_up_no_others() -> None:
    """The limit of hooks for one event is each tenant's own."""
    registry = HookRegistry(max_per_event=2)
    for tenant in TENANTS:
        for _ in range(2):
            registry.on("tool:pre", lambda event, data: None, tenant=tenant, source="definition")
        with pytest.raises(TooManyHooks, match="already has 2"):
            registry.on("tool:pre", lambda event, data: None, tenant=tenant, source="definition")
