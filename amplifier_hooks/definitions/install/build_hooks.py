"""What one definition comes to: the registrations that carry it out.

| `fail_mode`, said or by the band | `mode`  | registered as                                   |
|----------------------------------|---------|-------------------------------------------------|
| closed                           | sync    | gate                                            |
| open                             | sync    | on                                              |
| any                              | async   | observer that nobody waits for                  |

A hook with points, or one that wraps an operation, keeps being an observer or a layer; a gate of its own stays one
unless the definition says `fail_mode: open`. The definition's `risk` is for those that can ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from inspect import isawaitable
from math import inf
from typing import TYPE_CHECKING, Any, Final

from attrs import define, evolve, frozen

from amplifier_hooks.definitions.install.build_external import MODES, Surroundings, build_command, build_http
from amplifier_hooks.definitions.kinds.agent import AGENT_TIMEOUT
from amplifier_hooks.definitions.kinds.command import COMMAND_TIMEOUT
from amplifier_hooks.definitions.kinds.python import PointedHook, build_hook
from amplifier_hooks.definitions.kinds.webhook import WEBHOOK_TIMEOUT
from amplifier_hooks.errors import HookUnavailable, InvalidRegistration
from amplifier_hooks.events import canonical
from amplifier_hooks.registry.event_names import applies
from amplifier_hooks.registry.handler_shapes import object_handler
from amplifier_hooks.registry.handler_version import fingerprint
from amplifier_hooks.registry.registration import awaits

if TYPE_CHECKING:
    from amplifier_hooks.definitions.install.background_hooks import Background
    from amplifier_hooks.definitions.model import HookDefinition, Kind
    from amplifier_hooks.definitions.priority import FailMode
    from amplifier_hooks.definitions.settings import DefinitionSettings
    from amplifier_hooks.dispatch.hook import Intent


Builder = Callable[["HookDefinition", Surroundings], Callable[..., Any]]
"""Makes the handler `(event, data)` of a kind that is carried out elsewhere."""

ASKING: Final[tuple[Intent, ...]] = ("register", "on", "gate")
ELSEWHERE: Final[Mapping[Kind, float]] = {"command": COMMAND_TIMEOUT, "http": WEBHOOK_TIMEOUT, "agent": AGENT_TIMEOUT}
BUILDERS: Final[Mapping[Kind, Builder]] = {"command": build_command, "http": build_http}


@define(eq=False)
class Plain:
    """A handler with the version and the origin of what it carries out."""

    call: Callable[..., Any]
    hook_version: str
    origin: str = ""

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)


@define(eq=False)
class Awaited(Plain):
    """The same for one that is awaited."""

    async def __call__(self, *arguments: Any) -> Any:
        return await self.call(*arguments)


@frozen(eq=False, kw_only=True)
class Part:
    """One registration."""

    intent: Intent
    event: str
    call: Plain
    options: Mapping[str, Any]


@define(eq=False)
class WhileTrusted:
    """A handler that runs a program, asked only while that is what was trusted."""

    call: Callable[..., Any]
    trusted: Callable[[], bool]
    hook_version: str
    origin: str

    async def __call__(self, *arguments: Any) -> Any:
        """Raises `HookUnavailable` after a change."""
        if not self.trusted():
            raise HookUnavailable("what it runs was changed, and has not been trusted since")
        answer = self.call(*arguments)
        return await answer if isawaitable(answer) else answer

    def problems(self) -> Iterator[str]:
        """What would keep the program from running."""
        yield from getattr(self.call, "problems", tuple)()


@frozen(eq=False)
class Placed:
    """A hook object at the place its definition gives it."""

    hook: Any
    name: str
    event_type: str
    priority: int

    @property
    def enabled(self) -> bool:
        """Whether it wants to run."""
        return bool(getattr(self.hook, "enabled", True))

    async def execute(self, context: Any, call_next: Any) -> Any:
        """Do its work."""
        return await self.hook.execute(context, call_next)


def fail_mode_of(definition: HookDefinition, settings: DefinitionSettings) -> FailMode:
    """What its failure means: what it says, or its band, or where all fail closed, that."""
    if definition.fail_mode is not None:
        return definition.fail_mode
    return definition.band.fail_mode if settings.hooks_fail_open_default else "closed"


def timeout_of(definition: HookDefinition, settings: DefinitionSettings) -> float:
    """Seconds it has."""
    if definition.timeout_ms is not None:
        return definition.timeout_ms / 1000
    return ELSEWHERE.get(definition.kind, settings.hooks_default_timeout_ms / 1000)


def parts_of(
    definition: HookDefinition,
    settings: DefinitionSettings,
    around: Surroundings,
    background: Background,
    builders: Mapping[Kind, Builder],
) -> tuple[Part, ...]:
    """The registrations of one definition; its program runs only while it is trusted.

    Raises `HookUnavailable` and `InvalidRegistration` for a handler that is not there or cannot work, and pydantic's
    `ValidationError` for a config that does not fit.
    """
    mode = definition.config.get("mode", "sync")
    if mode not in MODES:
        raise InvalidRegistration(f"mode {mode!r:.40}: write 'async', or leave it out")
    options = _options(definition, settings)
    if definition.kind != "python":
        build = {**BUILDERS, **builders}.get(definition.kind)
        if build is None:
            raise HookUnavailable(f"nothing here carries out {definition.kind} hooks")
        gate = mode == "sync" and fail_mode_of(definition, settings) == "closed"
        found: Any = build(definition, evolve(around, gate=gate))
        if definition.kind == "command":
            found = while_trusted(found, around.trusted)
    else:
        config = {name: value for name, value in definition.config.items() if name != "mode"}
        found = build_hook(definition.handler_ref, config)
    if isinstance(found, PointedHook):
        parts = _pointed(definition, found, options)
    elif hasattr(found, "execute"):
        intent, event, call = object_handler(Placed(found, definition.name, definition.event_type, definition.priority))
        parts = (_part(definition, settings, intent=intent, event=event, call=call, options=options),)
    else:
        parts = (_part(definition, settings, call=found, options=options),)
    return tuple(_aside(part, background) for part in parts) if mode == "async" else parts


def stand_in(definition: HookDefinition, settings: DefinitionSettings, problem: str) -> tuple[Part, ...]:
    """What is registered for a hook that cannot be built: its failure, which means what its own would."""

    def unavailable(_event: str, _data: object) -> None:
        raise HookUnavailable(problem)

    options = _options(definition, settings)
    return (_part(definition, settings, call=unavailable, options=options),)


def _options(definition: HookDefinition, settings: DefinitionSettings) -> dict[str, Any]:
    chain = settings.hooks_chain_timeout_ms / 1000
    return {
        "name": definition.name,
        "priority": definition.priority,
        "timeout": timeout_of(definition, settings),
        "match": definition.matcher,
        "tenant": definition.tenant_id,
        "source": "definition",
        "budget": chain if definition.kind == "python" else None,
        "risk": definition.risk,
        "risk_reason": definition.risk_reason,
    }


def _part(
    definition: HookDefinition,
    settings: DefinitionSettings,
    *,
    intent: Intent = "on",
    event: str | None = None,
    call: Callable[..., Any],
    options: Mapping[str, Any],
) -> Part:
    closed = fail_mode_of(definition, settings) == "closed"
    if intent == "around":
        options = {**options, "on_error": "deny" if closed else "continue"}
    else:
        intent = "gate" if closed else "on"
    return Part(
        intent=intent, event=event or definition.event_type, call=versioned(definition.digest, call), options=options
    )


def _pointed(definition: HookDefinition, hook: PointedHook, options: Mapping[str, Any]) -> tuple[Part, ...]:
    """The points of a hook that are at the definition's event."""
    points = hook.points()
    chosen = [point for point in points if applies(definition.event_type, canonical(point.event))]
    if not chosen:
        there = ", ".join(dict.fromkeys(point.event for point in points)) or "none"
        raise InvalidRegistration(f"{definition.handler_ref!r} is not at {definition.event_type}; it is at {there}")
    parts = []
    for point in chosen:
        own = {**options, "match": definition.matcher or point.match}
        intent: Intent = point.intent
        if intent in ("gate", "on", "register"):
            mode = definition.fail_mode or ("closed" if intent == "gate" else definition.band.fail_mode)
            intent = "gate" if mode == "closed" else "on"
        if intent == "gate":
            own["recheck"] = getattr(point, "recheck", True)
        if intent not in ASKING:
            del own["risk"], own["risk_reason"]
        call = versioned(definition.digest, point.call)
        parts.append(Part(intent=intent, event=canonical(point.event), call=call, options=own))
    if definition.risk is not None and all(part.intent not in ASKING for part in parts):
        raise InvalidRegistration(f"risk is that of a question, and {definition.handler_ref!r} asks none here")
    return tuple(parts)


def _aside(part: Part, background: Background) -> Part:
    """The same as an observer that nobody waits for."""
    if part.intent in ("around", "observe"):
        raise InvalidRegistration(f"mode async: {part.event} is told of by its hook itself; leave mode out")
    options = {name: value for name, value in part.options.items() if name != "recheck"}
    timeout = part.options["timeout"] or inf
    observer = background.observer(options["name"], part.call, timeout, options["tenant"])
    call = Plain(observer, part.call.hook_version, part.call.origin)
    return Part(intent="observe", event=part.event, call=call, options={**options, "budget": None})


def while_trusted(call: Callable[..., Any], trusted: Callable[[], bool]) -> WhileTrusted:
    """A handler that is asked only while its program is trusted."""
    return WhileTrusted(call, trusted, fingerprint(call), getattr(call, "origin", ""))


def versioned(digest: str, call: Callable[..., Any]) -> Plain:
    """A handler that says of which version it is: of what it was made from, and of its code."""
    origin = getattr(call, "origin", "")
    version = f"{digest[:16]}.{fingerprint(call)}"
    return (Awaited if awaits(call) else Plain)(call, version, origin if isinstance(origin, str) else "")
