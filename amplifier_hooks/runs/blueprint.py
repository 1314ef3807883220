"""Blueprints: an agent as data, with its parameters, its result and the hooks around its runs; and a set of agents.

```json
{"name": "invoice-writer", "type": "autonomous", "description": "Writes invoices.", "system_prompt": "You write …",
 "parameters_schema": {"type": "object", "required": ["amount"]}, "output_schema": null,
 "hooks": {"on_run_start": {"type": "python", "handler_ref": "billing.hooks:validate", "on_error": "block"},
           "on_run_finish": {"$ref": "audit"}}}
```

JSON is read strictly: a duplicate key, an unknown field, a number in place of a text and an invalid schema are
mistakes. The error names all of them at once.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, ValidationError, model_validator

from amplifier_hooks.definitions.kinds.webhook import PUBLIC, AllowedUrls
from amplifier_hooks.errors import HookError
from amplifier_hooks.runs.run_states import UnknownAgent
from amplifier_hooks.text.json_schema import Schema, SchemaError
from amplifier_hooks.text.strict_parsing import error_sentence, load_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path


M = TypeVar("M", bound=BaseModel)
AgentType = Literal["autonomous", "procedural"]
HookTarget = Literal["agent", "http", "python"]
OnError = Literal["block", "continue", "ignore"]

LARGEST_BLUEPRINT: Final = 1024 * 1024
"""Largest size in bytes."""
DEEPEST: Final = 128
"""Depth of a file; a schema in it may be half as deep."""
RUN_HOOK_TIMEOUT: Final = 300.0
LONGEST_RUN_HOOK_TIMEOUT: Final = 86_400.0
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)
HANDLER: Final = re.compile(r"[A-Za-z_][\w.-]*(:[A-Za-z_][\w.]*)?", re.ASCII)

NAMED_HOOKS: Final = "hooks.json"
"""Name of the file that holds no blueprint, but the hooks that the blueprints beside it refer to."""

FIELDS: Final[Mapping[HookTarget, tuple[str, ...]]] = {
    "agent": ("agent_name",),
    "http": ("url", "method", "headers"),
    "python": ("handler_ref",),
}
"""Fields of each type of hook; the first one is required."""


class BlueprintError(HookError, ValueError):
    """A blueprint that cannot be used; its author corrects it. `problems` lists all its mistakes, with their places."""

    def __init__(self, name: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{name}: {problem}" for problem in self.problems))


def _name(given: str) -> str:
    if not NAME.fullmatch(given):
        raise ValueError("is no name; use letters, digits, '_', '-' and '.', at most 128, a letter or digit first")
    return given


def _handler(given: str) -> str:
    if not HANDLER.fullmatch(given):
        raise ValueError("is no dotted path; write it as in 'package.module:function'")
    return given


def _schema(given: object) -> Schema:
    try:
        return Schema(given)
    except SchemaError as problem:
        raise ValueError(f"is no schema: {problem}") from None


Name = Annotated[str, AfterValidator(_name)]
Described = Annotated[Schema | None, PlainValidator(lambda given: None if given is None else _schema(given))]


class StrictBlueprintModel(BaseModel):
    """A strict model: an unknown key or a value of another type is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


class Allow(StrictBlueprintModel):
    """Addresses that the operator lets http hooks reach: networks and ports over https, `host:port` over plain http."""

    networks: list[str] = []
    ports: list[int] = []
    http: list[str] = []


class HookEntry(StrictBlueprintModel):
    """One hook of a blueprint: its type, its target, and the effect of its failure."""

    type: HookTarget
    on_error: OnError
    timeout_seconds: float = Field(default=RUN_HOOK_TIMEOUT, gt=0, le=LONGEST_RUN_HOOK_TIMEOUT, allow_inf_nan=False)
    agent_name: Name | None = None
    handler_ref: Annotated[str, AfterValidator(_handler)] | None = None
    url: str | None = None
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    headers: dict[str, str] = Field(default_factory=dict)
    mode: Literal["sync", "async"] = "sync"

    @property
    def target(self) -> str:
        """Name of the agent, URL without its query, or handler reference."""
        return self.agent_name or self.handler_ref or (self.url or "").partition("?")[0]

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        needed = FIELDS[self.type][0]
        if getattr(self, needed) is None:
            raise ValueError(f"a hook of type {self.type} needs {needed}")
        for name, value in self.headers.items():
            if name.lower() == "content-type" and value.partition(";")[0].strip().lower() != "application/json":
                raise ValueError(f"header {name}: the body is JSON; write application/json, or leave it out")
        for other, names in FIELDS.items():
            for name in names:
                if other != self.type and name in self.model_fields_set:
                    raise ValueError(f"{name} belongs to a hook of type {other}, and this one is {self.type}")
        return self


class StartEntry(HookEntry):
    """A hook at the start. The run waits for it, and `on_error` decides about its failure."""

    on_error: Literal["block", "continue"]
    mode: Literal["sync"] = "sync"


class FinishEntry(HookEntry):
    """A hook at the finish. It changes nothing. The run does not wait for `async`, and `ignore` logs no failure."""


class Hooks(StrictBlueprintModel):
    """The two hooks that a blueprint may name."""

    on_run_start: StartEntry | None = None
    on_run_finish: FinishEntry | None = None


class Blueprint(StrictBlueprintModel):
    """One agent as data."""

    name: Name
    type: AgentType
    description: str = ""
    system_prompt: str = ""
    parameters_schema: Described = None
    output_schema: Described = None
    hooks: Hooks = Field(default_factory=Hooks)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what the author of the blueprint has written, with references resolved."""
        written = self.model_dump(exclude_unset=True)
        text = json.dumps(written, sort_keys=True, default=lambda schema: schema.document)
        return sha256(text.encode()).hexdigest()

    @property
    def names_hooks(self) -> bool:
        """True if it names a hook."""
        return any(entry is not None for _, entry in self.hooks)

    @property
    def brings_text(self) -> bool:
        """True if the result is a text: the agent is autonomous and has no output schema."""
        return self.type == "autonomous" and self.output_schema is None


# -- reading -----------------------------------------------------------------------------------------------------------


def read_blueprint(text: str | bytes, *, name: str = "blueprint", named: Mapping[str, Any] | None = None) -> Blueprint:
    """Return the blueprint that a JSON text describes. `named` are the hooks that `{"$ref": name}` refers to.

    Raise `BlueprintError` with every mistake and its place; `name` identifies the text in the error.
    """
    document = _load_json(text, name)
    if isinstance(document, dict) and isinstance(document.get("hooks"), dict):
        hooks = {
            point: _resolve_reference(entry, point, name, named or {}) for point, entry in document["hooks"].items()
        }
        document = {**document, "hooks": hooks}
    return _validate(Blueprint, document, name)


def read_entries(text: str | bytes, *, name: str = "hooks") -> dict[str, Any]:
    """Return the hooks that blueprints may refer to, from one JSON object of names and entries.

    An entry is checked where it is used. Raise `BlueprintError` for any other JSON, and for an entry that is a
    reference.
    """
    document = _load_json(text, name)
    if not isinstance(document, dict):
        raise BlueprintError(name, ["write one object, of name and hook"])
    problems = [
        f"{key}: write the hook itself; one reference does not lead to another"
        for key, entry in document.items()
        if not isinstance(entry, dict) or "$ref" in entry
    ]
    if problems:
        raise BlueprintError(name, problems)
    return document


def read_allowed(given: object) -> AllowedUrls:
    """Return the addresses that `$allow` lets http hooks reach. Raise `BlueprintError` for anything else in it."""
    allow = _validate(Allow, given, f"{NAMED_HOOKS}: $allow")
    try:
        return AllowedUrls(networks=allow.networks, ports={443, *allow.ports}, http_hosts=allow.http)
    except ValueError as problem:
        raise BlueprintError(f"{NAMED_HOOKS}: $allow", [str(problem)]) from None


def _validate(model: type[M], document: object, name: str) -> M:
    try:
        return model.model_validate(document)
    except ValidationError as problem:
        wrong = [error_sentence(error, model) for error in problem.errors(include_url=False)]
    raise BlueprintError(name, wrong)


def _resolve_reference(entry: Any, point: str, name: str, named: Mapping[str, Any]) -> Any:
    """Return the hook that an entry refers to, or the entry itself if it is no reference."""
    if not isinstance(entry, dict) or "$ref" not in entry:
        return entry
    where, wanted = f"hooks.{point}", entry["$ref"]
    if len(entry) > 1:
        raise BlueprintError(name, [f"{where}: a $ref stands alone; leave the other fields out"])
    if not isinstance(wanted, str) or wanted not in named:
        there = ", ".join(sorted(named)) or "none"
        raise BlueprintError(name, [f"{where}: there is no hook named {wanted!r:.80}; there are: {there}"])
    return named[wanted]


def _load_json(text: str | bytes, name: str) -> Any:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(data) > LARGEST_BLUEPRINT:
        raise BlueprintError(name, [f"it has {len(data):,} bytes; at most {LARGEST_BLUEPRINT:,} are read"])
    try:
        return load_json(data.decode("utf-8-sig"), deepest=DEEPEST)
    except ValueError as problem:
        raise BlueprintError(name, [f"this is not JSON: {problem}"]) from None


class Agents:
    """Blueprints by name. Raise `BlueprintError` for a name given twice.

    Args:
        blueprints: Blueprints of the agents.
    """

    def __init__(self, blueprints: Iterable[Blueprint] = (), reach: AllowedUrls = PUBLIC) -> None:
        self.reach = reach
        self._known: dict[str, Blueprint] = {}
        for blueprint in blueprints:
            if blueprint.name in self._known:
                raise BlueprintError(blueprint.name, ["there are two agents of this name; give one another"])
            self._known[blueprint.name] = blueprint

    def __iter__(self) -> Iterator[Blueprint]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def get(self, name: str) -> Blueprint:
        """Return the blueprint of this name. Raise `UnknownAgent` if there is none.

        Args:
            name: Name of the agent.
        """
        found = self._known.get(name)
        if found is None:
            there = ", ".join(sorted(self._known)) or "none"
            raise UnknownAgent(f"there is no agent {name!r:.80}; there are: {there}")
        return found

    def find(self, name: str) -> Blueprint | None:
        """Return the blueprint of this name, or None if there is none.

        Args:
            name: Name of the agent.
        """
        return self._known.get(name)

    def missing(self) -> list[str]:
        """Return a message for each hook whose agent does not exist.

        Report them early: during a run such a hook fails, and its `on_error` decides.
        """
        return [
            f"{blueprint.name}: hooks.{point}: there is no agent {entry.agent_name!r}"
            for blueprint in self
            for point, entry in blueprint.hooks
            if entry is not None and entry.agent_name is not None and entry.agent_name not in self._known
        ]


def load_agents(folder: Path) -> Agents:
    """Return the blueprints of a folder: its `*.json` except `hooks.json`, which holds the hooks they refer to.

    The entry `$allow` of that file holds addresses that their http hooks may reach.

    Raise `BlueprintError` with the mistakes of all files: a folder is loaded as a whole or not at all.
    """
    if not folder.is_dir():
        raise BlueprintError(str(folder), ["there is no such folder; name one that holds blueprints"])
    problems: list[str] = []
    blueprints: list[Blueprint] = []
    shared = folder / NAMED_HOOKS
    named = read_entries(_text(shared), name=shared.name) if shared.exists() else {}
    reach = read_allowed(named.pop("$allow", {}))
    for path in sorted(folder.glob("*.json")):
        if path.name == NAMED_HOOKS:
            continue
        try:
            blueprints.append(read_blueprint(_text(path), name=path.name, named=named))
        except BlueprintError as problem:
            problems += str(problem).splitlines()
    if problems:
        raise BlueprintError(str(folder), problems)
    return Agents(blueprints, reach)


def _text(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_BLUEPRINT + 1)
    except OSError as problem:
        raise BlueprintError(path.name, [f"it cannot be read: {problem.strerror or problem}"]) from None
