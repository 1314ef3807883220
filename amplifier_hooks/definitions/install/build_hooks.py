"""A definition, or the name of a ready-made hook, comes in; the registrations that carry it out go out.

| `fail_mode`, given or by band    | `mode`  | registered as                                   |
|----------------------------------|---------|-------------------------------------------------|
| closed                           | sync    | gate                                            |
| open                             | sync    | on                                              |
| any                              | async   | observer that runs in the background            |

The observers and middleware of a hook with points stay what they are, and its gates stay gates unless the definition
says `fail_mode: open`. A definition's `risk` is for hooks that can ask.

| kind      | config                                                                                               |
|-----------|------------------------------------------------------------------------------------------------------|
| `command` | `argv`; `cwd`, relative to the folder of the set; `env`; `pass_env`: names of our variables          |
| `http`    | `url`; `secret` or `secret_env`, one or several; `headers`; `headers_env`: header to variable;       |
|           | `networks`, `ports`, `plain_http`: addresses that the operator lets it reach                         |
| `agent`   | `agent`: the name of an agent                                                                        |

Every kind takes `mode: async`: the hook is an observer that runs in the background.

A ready-made hook is switched on by the name of its entry point, and registers all its points in a scope of its own.

`Background` runs the hooks of `mode: async`, within a limit, each within its timeout, until its owner closes it.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Mapping
from functools import partial
from inspect import isawaitable
from ipaddress import ip_network
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from attrs import define, evolve, field, frozen
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt

from amplifier_hooks.definitions.kinds.agent import AGENT_TIMEOUT, AgentHook
from amplifier_hooks.definitions.kinds.command import (
    COMMAND_TIMEOUT,
    SAFE_GIT,
    CommandHook,
    Programs,
    git_settings,
)
from amplifier_hooks.definitions.kinds.event_codec import NATIVE, NATIVE_OPEN
from amplifier_hooks.definitions.kinds.python import PointedHook, build_hook, not_installed
from amplifier_hooks.definitions.kinds.webhook import WEBHOOK_TIMEOUT, AllowedUrls, WebhookHook
from amplifier_hooks.dispatch.middleware import OPERATIONS
from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.errors import HookError, HookUnavailable, InvalidRegistration
from amplifier_hooks.events import canonical
from amplifier_hooks.foreign_code import cancel_all
from amplifier_hooks.logs import get_logger
from amplifier_hooks.registry.entry_points import OURS, call_with_scope, list_installed
from amplifier_hooks.registry.event_names import applies
from amplifier_hooks.registry.handler_shapes import object_handler
from amplifier_hooks.registry.handler_version import fingerprint
from amplifier_hooks.registry.registration import check_arguments, handler_name

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from amplifier_hooks.definitions.files.load_files import DefinitionSet
    from amplifier_hooks.definitions.kinds.agent import AgentRuns
    from amplifier_hooks.definitions.model import DefinitionSettings, FailMode, HookDefinition, Kind
    from amplifier_hooks.definitions.private_copies import HookFiles, ProjectModules
    from amplifier_hooks.dispatch.chain import Intent
    from amplifier_hooks.registry.permissions import RegistryScope
    from amplifier_hooks.registry.registry import HookRegistry


MODES: Final = ("sync", "async")


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _network(value: str) -> str:
    ip_network(value)
    return value


Texts = Annotated[list[str], BeforeValidator(_as_list)]


class Config(BaseModel):
    """Config keys of every kind."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    mode: Literal["sync", "async"] = "sync"


class CommandConfig(Config):
    """Config of a command."""

    argv: list[str] = Field(min_length=1)
    cwd: str | None = None
    env: dict[str, str] = Field(default_factory=dict)
    pass_env: list[str] = Field(default_factory=list)


class HttpConfig(Config):
    """Config of a web service."""

    url: str
    secret: Texts = Field(default_factory=list)
    secret_env: Texts = Field(default_factory=list)
    headers: dict[str, str] = Field(default_factory=dict)
    headers_env: dict[str, str] = Field(default_factory=dict)
    networks: list[Annotated[str, AfterValidator(_network)]] = Field(default_factory=list)
    ports: list[Annotated[StrictInt, Field(ge=1, le=65_535)]] = Field(default=[443], min_length=1)
    plain_http: StrictBool = False


class AgentConfig(Config):
    """Config of an agent."""

    agent: str = Field(min_length=1, max_length=200)


CONFIGS: Final[Mapping[Kind, type[Config]]] = {"command": CommandConfig, "http": HttpConfig, "agent": AgentConfig}


def _environment(given: Mapping[str, str] | None) -> Mapping[str, str]:
    return os.environ if given is None else given


@frozen
class BuildContext:
    """Surroundings of handlers: a folder for relative paths, environment variables, and the runner of commands."""

    folder: Path
    environment: Mapping[str, str] = field(default=None, converter=_environment, repr=False)
    programs: Programs = field(factory=Programs)
    files: HookFiles | None = None
    """Trusted files of the hook, from whose copies it runs; None runs a command as it is written."""
    modules: ProjectModules | None = None
    """Modules of a trusted project; None imports modules as Python does."""
    gate: bool = True
    """True for a hook that becomes a gate: each of its outputs has to be an answer."""

    def variable(self, name: str) -> str:
        """Return the value of a variable. Raises `HookUnavailable` if it is not set."""
        if name not in self.environment:
            raise HookUnavailable(f"the variable {name!r} is not set; set it, or name another one")
        return self.environment[name]


def build_command(definition: HookDefinition, around: BuildContext) -> Callable[..., Any]:
    """Build the handler of a command. Raises pydantic's `ValidationError`, `HookUnavailable`, `InvalidRegistration`."""
    config = CommandConfig.model_validate(definition.config)
    passed = {name: around.variable(name) for name in config.pass_env}
    cwd = around.folder / (config.cwd or ".")
    argv, env = tuple(config.argv), {**passed, **config.env}
    if around.files is not None:
        argv = around.files.start(argv)
        # The repository also names the program that fetches what a part of it lacks.
        env = {"PATH": around.files.search_path, "GIT_NO_LAZY_FETCH": "1", **env, **git_settings(SAFE_GIT, env)}
        if argv[1:] == tuple(config.argv[1:]):
            env = {"PYTHONSAFEPATH": "1", **env}  # code of an argument imports nothing of the project
    return CommandHook(
        argv=argv,
        cwd=os.fspath(cwd),
        env=env,
        codec=NATIVE if around.gate else NATIVE_OPEN,
        programs=around.programs,
        origin=config.argv[0],
        files=around.files,
    )


def build_http(definition: HookDefinition, around: BuildContext) -> Callable[..., Any]:
    """Build the handler of a web service. Raises as `build_command` does."""
    config = HttpConfig.model_validate(definition.config)
    secrets = (*config.secret, *(around.variable(name) for name in config.secret_env))
    headers = {**config.headers, **{name: around.variable(value) for name, value in config.headers_env.items()}}
    reach = AllowedUrls(networks=config.networks, ports=config.ports, http=config.plain_http)
    within = definition.timeout_ms / 1000 if definition.timeout_ms else WEBHOOK_TIMEOUT
    return WebhookHook(url=config.url, secrets=secrets, headers=headers, reach=reach, retry_within=within)


def agent_builder(runs: AgentRuns) -> Callable[[HookDefinition, BuildContext], Callable[..., Any]]:
    """Return the builder of the kind `agent`, for a host that can start agents: `runs` starts them.

    A hook with `mode: async` starts its agent without waiting for it.

    Args:
        runs: Starts agents for hooks, such as a `RunCoordinator`.
    """

    def build(definition: HookDefinition, around: BuildContext) -> Callable[..., Any]:
        config = AgentConfig.model_validate(definition.config)
        return AgentHook(
            agent_name=config.agent,
            runs=runs,
            owner=definition.tenant_id,
            detached=config.mode == "async",
            gate=around.gate,
        )

    return build


Builder = Callable[["HookDefinition", BuildContext], Callable[..., Any]]
"""Makes the handler `(event, data)` of an external kind."""

ASKING: Final[tuple[Intent, ...]] = ("register", "on", "gate")
ELSEWHERE: Final[Mapping[Kind, float]] = {"command": COMMAND_TIMEOUT, "http": WEBHOOK_TIMEOUT, "agent": AGENT_TIMEOUT}
BUILDERS: Final[Mapping[Kind, Builder]] = {"command": build_command, "http": build_http}


@frozen(eq=False, kw_only=True)
class Part:
    """One registration."""

    intent: Intent
    event: str
    call: partial[Any]
    """The handler, with its version and its origin as attributes."""
    options: Mapping[str, Any]


@frozen(eq=False)
class PrioritizedHook:
    """A hook object with the name, event and priority of its definition."""

    hook: Any
    name: str
    event_type: str
    priority: int

    @property
    def enabled(self) -> bool:
        """True if the hook object is enabled."""
        return bool(getattr(self.hook, "enabled", True))

    async def execute(self, context: Any, call_next: Any) -> Any:
        """Run the hook object."""
        return await self.hook.execute(context, call_next)


def fail_mode_of(definition: HookDefinition, settings: DefinitionSettings) -> FailMode:
    """Return a definition's own fail mode, or else its band's; "closed" if the settings let no hook fail open."""
    if definition.fail_mode is not None:
        return definition.fail_mode
    return definition.band.fail_mode if settings.hooks_fail_open_default else "closed"


def timeout_of(definition: HookDefinition, settings: DefinitionSettings) -> float:
    """Return the timeout of a definition in seconds."""
    if definition.timeout_ms is not None:
        return definition.timeout_ms / 1000
    return ELSEWHERE.get(definition.kind, settings.hooks_default_timeout_ms / 1000)


def definition_row(definition: HookDefinition, found: DefinitionSet) -> dict[str, Any]:
    """Return a definition as plain JSON, with defaults filled in and without secrets."""
    settings = found.settings
    return {
        "name": definition.name,
        "hook_id": definition.hook_id,
        "event": definition.event_type,
        "priority": definition.priority,
        "band": definition.band.name,
        "kind": definition.kind,
        "handler": definition.handler_ref,
        "matcher": definition.matcher or "*",
        "fail_mode": fail_mode_of(definition, settings),
        "risk": definition.risk,
        "report_only": definition.report_only,
        "timeout_ms": round(timeout_of(definition, settings) * 1000),
        "mode": definition.config.get("mode", "sync"),
        "tenant": definition.tenant_id,
        "enabled": definition.enabled and settings.hooks_enabled,
        "tags": list(definition.tags),
        "description": definition.description,
        "where": str(found.spot(definition)),
    }


def parts_of(
    definition: HookDefinition,
    settings: DefinitionSettings,
    around: BuildContext,
    background: Background,
    builders: Mapping[Kind, Builder],
) -> tuple[Part, ...]:
    """Build the registrations of a definition.

    Raises `HookUnavailable` and `InvalidRegistration` for a handler that is missing or cannot work, and pydantic's
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
    else:
        config = {name: value for name, value in definition.config.items() if name != "mode"}
        found = build_hook(definition.handler_ref, config, around.modules)
    if isinstance(found, PointedHook):
        parts = _parts_of_points(definition, found, options)
    elif hasattr(found, "execute"):
        intent, event, call = object_handler(
            PrioritizedHook(found, definition.name, definition.event_type, definition.priority)
        )
        if mode == "async" and any(event == operation.first for operation in OPERATIONS.values()):
            raise InvalidRegistration(f"mode async: a hook object at {event} waits for the operation; leave mode out")
        parts = (_part(definition, settings, intent=intent, event=event, call=call, options=options),)
    else:
        if definition.kind == "python":
            _check_handler(definition.handler_ref, found)
        parts = (_part(definition, settings, call=found, options=options),)
    return tuple(_as_observer(part, background) for part in parts) if mode == "async" else parts


def _check_handler(name: str, found: Callable[..., Any]) -> None:
    """Refuse an object that cannot be called as a handler. Raises `InvalidRegistration`."""
    try:
        check_arguments(handler_name(found), found, "(event, data)")
    except InvalidRegistration as error:
        remedy = "a function that registers hooks stands under library, by the name of its entry point"
        raise InvalidRegistration(f"{name!r}: {error}; {remedy}") from None


def stand_in(definition: HookDefinition, settings: DefinitionSettings, problem: str) -> tuple[Part, ...]:
    """Return a registration for a hook that cannot be built: it fails each time, with the hook's own fail mode."""

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
        "report_only": definition.report_only,
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
    if intent == "gate" and definition.kind == "agent":
        options = {**options, "recheck": False}  # an agent's look costs a run
    return Part(
        intent=intent,
        event=event or definition.event_type,
        call=versioned_handler(definition.digest, call),
        options=options,
    )


def _parts_of_points(definition: HookDefinition, hook: PointedHook, options: Mapping[str, Any]) -> tuple[Part, ...]:
    """Return registrations for the points of a hook that are at the definition's event."""
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
        if intent == "observe":
            del own["report_only"]
        call = versioned_handler(definition.digest, point.call)
        parts.append(Part(intent=intent, event=canonical(point.event), call=call, options=own))
    if definition.risk is not None and all(part.intent not in ASKING for part in parts):
        raise InvalidRegistration(f"risk is that of a question, and {definition.handler_ref!r} asks none here")
    return tuple(parts)


def _as_observer(part: Part, background: Background) -> Part:
    """Return a registration as an observer that runs in the background."""
    if part.intent in ("around", "observe"):
        raise InvalidRegistration(f"mode async: the hook itself decides how it runs at {part.event}; leave mode out")
    options = {name: value for name, value in part.options.items() if name not in ("recheck", "report_only")}
    timeout = part.options["timeout"] or inf
    call = partial(background.observer(options["name"], part.call, timeout, options["tenant"]))
    vars(call).update(vars(part.call))
    return Part(intent="observe", event=part.event, call=call, options={**options, "budget": None})


def versioned_handler(digest: str, call: Callable[..., Any], files: HookFiles | None = None) -> partial[Any]:
    """Return a handler with its version, made of the digest of its definition and the fingerprint of its handler.

    With `files`, the files are compared with the trusted ones before each call.
    """
    handler = partial(call) if files is None else partial(_compare_and_call, files, call)
    origin = getattr(call, "origin", "")
    version = f"{digest[:16]}.{fingerprint(call)}"
    vars(handler).update(hook_version=version, origin=origin if isinstance(origin, str) else "")
    return handler


async def _compare_and_call(files: HookFiles, call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a handler. Raises `HookUnavailable` if a file is not as it was trusted."""
    await files.check_apart()
    answer = call(*arguments)
    return await answer if isawaitable(answer) else answer


Close = Callable[[], "Awaitable[None]"]
"""Releases the resources of a hook."""


def build_ready_made(
    name: str,
    config: Mapping[str, Any],
    version: str,
    files: HookFiles | None = None,
    *,
    report_only: bool = False,
) -> tuple[Callable[[HookRegistry], None], Close | None]:
    """Build a ready-made hook by its name, with its config. This imports, and so runs, its module.

    Returns the function that registers the hook, and the one that releases its resources, if it has any.

    With `files`, those of the program that its config names, the files are compared before each call. With
    `report_only`, its answers have no effect.

    Raises `HookUnavailable` for a name that no installed package has, and any `HookError` that its config causes.
    """
    points = list_installed().get(name, [])
    if not points:
        raise not_installed(name)
    hook = build_hook(name, config)
    ours = {point.dist.name for point in points if point.dist} == {OURS}

    def enter(registry: HookRegistry) -> None:
        scope = registry.scope(name, built_in=ours, report_only=report_only)
        _enter(scope, name, hook, version, files)

    return enter, getattr(hook, "close", None)


def _enter(scope: RegistryScope, name: str, hook: Any, version: str, files: HookFiles | None) -> None:
    if isinstance(hook, PointedHook):
        for point in hook.points():
            options: dict[str, Any] = {"priority": point.priority, "match": point.match, "timeout": point.timeout}
            if point.intent == "gate":
                options["recheck"] = getattr(point, "recheck", True)
            call = versioned_handler(version, point.call, files)
            getattr(scope, point.intent)(point.event, call, name=name, **options)
    elif hasattr(hook, "execute"):
        scope.add(hook)
    else:
        try:
            call_with_scope(hook, scope)
        except HookError:
            raise
        except (Exception, SystemExit) as error:  # a package's function may raise anything
            raise HookUnavailable(f"{name!r} cannot register its hooks: {type(error).__name__}: {error}") from error


AT_ONCE: Final = 256
FAREWELL: Final = 1.0
"""Seconds that running hooks have to clean up when their owner closes."""

log = get_logger(__name__)


@define(eq=False)
class Background:
    """Background runner of hooks. A hook over the limit of its tenant is not started, and logged."""

    at_once: int = AT_ONCE
    farewell: float = FAREWELL
    closed: bool = False
    dropped: int = 0
    """Number of hooks that were not started."""
    _tasks: dict[str, set[asyncio.Task[None]]] = field(factory=dict)
    """Running hooks, by tenant."""

    def __len__(self) -> int:
        return sum(map(len, self._tasks.values()))

    def observer(self, name: str, call: Callable[..., Any], timeout: float, tenant: str = "") -> Callable[..., None]:
        """Return an observer that starts `call(event, data)` in the background."""

        def start(event: str, data: Mapping[str, Any], _outcome: object) -> None:
            running = self._tasks.setdefault(tenant, set())
            if self.closed or len(running) >= self.at_once:
                self.dropped += 1
                log.warning("hook_dropped", hook=name, event=event, running=len(running))
                return
            task = asyncio.get_running_loop().create_task(_run(name, call, event, dict(data), timeout))
            running.add(task)
            task.add_done_callback(running.discard)

        return start

    async def close(self) -> None:
        """Cancel the running hooks, and start no others. Waits `farewell` seconds; cancelling leaves them running."""
        self.closed = True
        left = await cancel_all(set().union(*self._tasks.values()), grace=self.farewell)
        if left:
            log.warning("hooks_left_behind", number=len(left))


async def _run(name: str, call: Callable[..., Any], event: str, data: dict[str, Any], timeout: float) -> None:
    try:
        async with asyncio.timeout(None if timeout == inf else timeout):
            answer = call(event, data)
            if inspect.isawaitable(answer):
                await answer
    except (Exception, SystemExit) as error:  # noqa: BLE001  # no caller waits for this error
        status = "timeout" if isinstance(error, TimeoutError) else "error"
        log.warning("hook_failed", hook=name, error=describe(error), event=event, status=status)
