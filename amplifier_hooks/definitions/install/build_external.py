"""Definitions of external hooks come in; their handlers go out.

| kind      | config                                                                                               |
|-----------|------------------------------------------------------------------------------------------------------|
| `command` | `argv`; `cwd`, relative to the folder of the set; `env`; `pass_env`: names of our variables          |
| `http`    | `url`; `secret` or `secret_env`, one or several; `headers`; `headers_env`: header to variable;       |
|           | `networks`, `ports`, `plain_http`: addresses that the operator lets it reach                         |
| `agent`   | `agent`: the name of an agent                                                                        |

Every kind takes `mode: async`: the hook is an observer that runs in the background.
"""

from __future__ import annotations

import os
from ipaddress import ip_network
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from attrs import field, frozen
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt

from amplifier_hooks.definitions.kinds.command import Programs
from amplifier_hooks.errors import HookUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from amplifier_hooks.definitions.kinds.agent import AgentRuns
    from amplifier_hooks.definitions.model import HookDefinition, Kind
    from amplifier_hooks.definitions.private_copies import HookFiles, ProjectModules


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
    from amplifier_hooks.definitions.kinds.command import CommandHook
    from amplifier_hooks.definitions.kinds.event_codec import NATIVE, NATIVE_OPEN

    config = CommandConfig.model_validate(definition.config)
    passed = {name: around.variable(name) for name in config.pass_env}
    cwd = around.folder / (config.cwd or ".")
    argv, env = tuple(config.argv), {**passed, **config.env}
    if around.files is not None:
        argv = around.files.start(argv)
        env = {"PATH": around.files.search_path, **env}
        if argv[1:] == tuple(config.argv[1:]):
            env = {"PYTHONSAFEPATH": "1", **env}  # code of an argument imports nothing of the project
    return CommandHook(
        argv=argv,
        cwd=os.fspath(cwd),
        env=env,
        codec=NATIVE if around.gate else NATIVE_OPEN,
        programs=around.programs,
        origin=config.argv[0],
    )


def build_http(definition: HookDefinition, around: BuildContext) -> Callable[..., Any]:
    """Build the handler of a web service. Raises as `build_command` does."""
    from amplifier_hooks.definitions.kinds.allowed_urls import AllowedUrls
    from amplifier_hooks.definitions.kinds.webhook import WEBHOOK_TIMEOUT, WebhookHook

    config = HttpConfig.model_validate(definition.config)
    secrets = (*config.secret, *(around.variable(name) for name in config.secret_env))
    headers = {**config.headers, **{name: around.variable(value) for name, value in config.headers_env.items()}}
    reach = AllowedUrls(networks=config.networks, ports=config.ports, http=config.plain_http)
    within = definition.timeout_ms / 1000 if definition.timeout_ms else WEBHOOK_TIMEOUT
    return WebhookHook(url=config.url, secrets=secrets, headers=headers, reach=reach, retry_within=within)


def agent_builder(runs: AgentRuns) -> Callable[[HookDefinition, BuildContext], Callable[..., Any]]:
    """Return the builder of the kind `agent`, for a host that can start agents: `runs` starts them.

    A hook with `mode: async` starts its agent without waiting for it.
    """
    from amplifier_hooks.definitions.kinds.agent import AgentHook

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
