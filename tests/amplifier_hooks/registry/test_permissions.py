from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, ModelContext, Outcome
from amplifier_hooks.errors import HookRefused, PrivilegeRequired
from amplifier_hooks.events import CATALOGUE
from amplifier_hooks.registry.permissions import PRIVILEGED_HOOKS

if TYPE_CHECKING:
    from amplifier_hooks.registry.hook_table import RegistryChange

PRIVILEGED = [row for row in CATALOGUE if row.privileged]
NEVER_FOR_PLUGINS = [row for row in PRIVILEGED if row.name != "llm:pre"]


def quiet(event: str, data: Mapping[str, Any]) -> None:
    """Give no answer."""


def watching(seen: list[str]) -> Callable[..., None]:
    """An observer that notes events."""

    def watch(event: str, data: Mapping[str, Any], outcome: Outcome) -> None:
        seen.append(event)

    return watch


async def layer(context: Any, call_next: Callable[[], Awaitable[Any]]) -> Any:
    """Call on."""
    return await call_next()


@pytest.mark.rule("TRU-1", "TRU-3")
@pytest.mark.parametrize("spelling", [name for row in PRIVILEGED for name in row.spellings])
@pytest.mark.parametrize("intent", ["register", "on", "gate"])
def test_plugins_take_no_part_at_privileged_points(spelling: str, intent: str) -> None:
    """A plugin is refused there in every spelling, and the error names plugin, event and permission."""
    registry = HookRegistry()
    with pytest.raises(PrivilegeRequired, match="Plugin spy lacks privileged_hooks permission") as caught:
        getattr(registry.scope("spy"), intent)(spelling, quiet)
    assert (caught.value.plugin, caught.value.permission) == ("spy", PRIVILEGED_HOOKS)
    assert caught.value.point in {row.name for row in PRIVILEGED}
    assert registry.count() == 0


@pytest.mark.rule("TRU-1", "TRU-3")
def test_watching_privileged_points() -> None:
    """A plugin may observe llm:pre by name, and may not observe what the model read and answered."""
    scope = HookRegistry().scope("spy")
    scope.observe("llm:pre", watching([]))
    for row in NEVER_FOR_PLUGINS:
        with pytest.raises(PrivilegeRequired):
            scope.observe(row.name, watching([]))


@pytest.mark.rule("TRU-1")
@pytest.mark.parametrize(
    "grant", [{"permissions": [PRIVILEGED_HOOKS]}, {"permissions": PRIVILEGED_HOOKS}, {"built_in": True}]
)
def test_who_may(grant: dict[str, Any]) -> None:
    """Built-in hooks, and plugins with the permission, register at every point and around the model."""
    scope = HookRegistry().scope("helper", **grant)
    for row in PRIVILEGED:
        scope.gate(row.name, quiet)
        scope.observe(row.name, watching([]))
    scope.around("model", layer)
    assert scope.count() == 2 * len(PRIVILEGED) + 1


@pytest.mark.rule("TRU-3")
@pytest.mark.parametrize("point", ["model", "llm:pre", "llm.call.post"])
def test_around_the_model(point: str) -> None:
    """A plugin cannot stand around a model call under any of its names; around a tool it can."""
    scope = HookRegistry().scope("spy")
    with pytest.raises(PrivilegeRequired, match="around model"):
        scope.around(point, layer)
    scope.around("tool", layer)


@pytest.mark.rule("TRU-3")
@pytest.mark.parametrize("pattern", ["*", "llm:*", "context:*"])
async def test_patterns_leave_privileged_points_out(pattern: str) -> None:
    """A plugin's pattern includes no privileged event; with the permission, or for the host, it does."""
    registry = HookRegistry()
    plugin: list[str] = []
    granted: list[str] = []
    ours: list[str] = []
    registry.scope("spy").observe(pattern, watching(plugin))
    registry.scope("spy").on(pattern, lambda event, data: HookResult.deny("mine"), name="meddle")
    registry.scope("helper", permissions=[PRIVILEGED_HOOKS]).observe(pattern, watching(granted))
    registry.observe(pattern, watching(ours))
    for row in PRIVILEGED:
        assert not (await registry.emit(row.name, {})).denied
    for name in ("llm:request", "context:include"):
        await registry.emit(name, {})
    assert not set(plugin) & {row.name for row in PRIVILEGED}
    assert plugin
    assert granted == ours
    assert set(ours) & {row.name for row in PRIVILEGED}


@pytest.mark.rule("TRU-1")
async def test_a_scope_sees_and_touches_only_its_own() -> None:
    """A plugin lists, switches and removes its own hooks; others of the same name stay as they are."""
    registry = HookRegistry()
    one, other = registry.scope("one"), registry.scope("other")
    for registrar in (registry, one, other):
        registrar.gate("tool:pre", quiet, name="guard")
    assert one.list_handlers() == {"tool:pre": ["guard#2"]}
    assert [hook.owner for hook in one.hooks()] == ["one"]
    assert (one.count(), registry.count()) == (1, 3)
    assert one.disable("guard") == 1
    assert one.enable("guard#3") == 0
    assert [hook.enabled for hook in registry.hooks()] == [True, False, True]
    assert one.unregister("guard") == 1
    assert one.unregister("guard") == 0
    assert registry.list_handlers() == {"tool:pre": ["guard", "guard#3"]}
    other.on("tool:pre", quiet, name="more")
    registry.unregister("guard#3")
    assert other.list_handlers() == {"tool:pre": ["more"]}
    assert other.close() == 1
    assert registry.list_handlers() == {"tool:pre": ["guard"]}
    assert not hasattr(one, "emit")
    assert not hasattr(one, "scope")


@pytest.mark.rule("TRU-1")
@pytest.mark.parametrize("option", ["tier", "owner", "permissions", "built_in"])
def test_a_plugin_cannot_say_who_it_is(option: str) -> None:
    """No option of a registration raises its tier."""
    scope = HookRegistry().scope("spy")
    said: dict[str, Any] = {option: "built-in"}
    with pytest.raises(TypeError):
        scope.register("tool:pre", quiet, **said)
    scope.on("tool:pre", quiet)
    assert [hook.tier for hook in scope.hooks()] == ["plugin"]
    assert scope.plugin == "spy"


@pytest.mark.rule("TRU-1", "TEN-1")
def test_a_plugin_cannot_choose_a_tenant() -> None:
    """The tenant of a plugin's hooks is the tenant of its scope."""
    registry = HookRegistry()
    with pytest.raises(HookRefused, match="may not name tenant 'acme'"):
        registry.scope("spy").on("tool:pre", quiet, tenant="acme")
    scope = registry.scope("acme's", tenant="acme")
    for tenant in ("", "other"):
        with pytest.raises(HookRefused, match="registers for tenant 'acme'"):
            scope.on("tool:pre", quiet, tenant=tenant)
    scope.on("tool:pre", quiet)
    registry.scope("ours", built_in=True).on("tool:pre", quiet, tenant="acme")
    assert [hook.tenant for hook in registry.hooks()] == ["acme", "acme"]


@pytest.mark.rule("TRU-1")
def test_registrations_and_refusals_are_told() -> None:
    """Listeners get registrations and refusals, with plugin, hook, event and reason."""
    registry = HookRegistry()
    changes: list[RegistryChange] = []
    registry.watch(changes.append)
    scope = registry.scope("spy")
    scope.on("tool:pre", quiet)
    with pytest.raises(PrivilegeRequired):
        scope.gate("onModelResponse", quiet)
    with pytest.raises(HookRefused):
        scope.on("tool:pre", quiet, name="foreign", tenant="acme")
    assert [(change.what, change.hook, change.event, change.owner, change.tenant) for change in changes] == [
        ("registered", "quiet", "tool:pre", "spy", ""),
        ("refused", "quiet", "llm:post", "spy", ""),
        ("refused", "foreign", "tool:pre", "spy", "acme"),
    ]
    assert "lacks privileged_hooks permission" in changes[1].detail


@pytest.mark.rule("TRU-3")
async def test_a_plugins_hook_keeps_out_of_the_model_call() -> None:
    """A hook that a plugin registered around tools does not run around the model call."""
    registry = HookRegistry()
    registry.scope("spy").around("tool", layer)

    async def operation() -> str:
        return "answer"

    context = ModelContext()
    assert await registry.wrap("model", context, operation) == "answer"
    assert context.results == []
