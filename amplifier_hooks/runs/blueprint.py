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
from datetime import datetime  # pydantic reads the annotations
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from amplifier_hooks.definitions.kinds.webhook import PUBLIC, AllowedUrls
from amplifier_hooks.errors import HookError
from amplifier_hooks.runs.run_states import HookPoint, UnknownAgent
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

OUTDATED: Final = "its override was made for another content of the blueprint; make it again, or remove it"

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


def _shaped(pattern: re.Pattern[str], flaw: str) -> AfterValidator:
    def check(given: str) -> str:
        if not pattern.fullmatch(given):
            raise ValueError(flaw)
        return given

    return AfterValidator(check)


def _schema(given: object) -> Schema:
    try:
        return Schema(given)
    except SchemaError as problem:
        raise ValueError(f"is no schema: {problem}") from None


NO_NAME: Final = "is no name; use letters, digits, '_', '-' and '.', at most 128, a letter or digit first"
Name = Annotated[str, _shaped(NAME, NO_NAME)]
Handler = Annotated[str, _shaped(HANDLER, "is no dotted path; write it as in 'package.module:function'")]
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
    handler_ref: Handler | None = None
    url: str | None = None
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    headers: dict[str, str] = Field(default_factory=dict)
    mode: Literal["sync", "async"] = "sync"

    @property
    def target(self) -> str:
        """Name of the agent, URL without its query, or handler reference."""
        return self.agent_name or self.handler_ref or (self.url or "").partition("?")[0]

    @model_validator(mode="before")
    @classmethod
    def _resolve_reference(cls, given: Any, info: ValidationInfo) -> Any:
        """Return the hook that a reference names, or the entry itself if it is no reference."""
        if not isinstance(given, dict) or "$ref" not in given or info.context is None:
            return given
        if len(given) > 1:
            raise ValueError("a $ref stands alone; leave the other fields out")
        found = info.context.get(given["$ref"]) if isinstance(given["$ref"], str) else None
        if found is None:
            there = ", ".join(sorted(info.context)) or "none"
            raise ValueError(f"there is no hook named {given['$ref']!r:.80}; there are: {there}")
        return found

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
    def entries(self) -> dict[HookPoint, HookEntry]:
        """The hooks that it names, by their points."""
        start, finish = self.hooks.on_run_start, self.hooks.on_run_finish
        named: dict[HookPoint, HookEntry | None] = {"on_run_start": start, "on_run_finish": finish}
        return {point: entry for point, entry in named.items() if entry is not None}

    @property
    def brings_text(self) -> bool:
        """True if the result is a text: the agent is autonomous and has no output schema."""
        return self.type == "autonomous" and self.output_schema is None


# -- overrides ---------------------------------------------------------------------------------------------------------


class HookOverride(StrictBlueprintModel):
    """Fields that replace those of a blueprint's hook, while the blueprint has this digest."""

    agent: str
    point: HookPoint
    digest: str
    type: HookTarget
    on_error: OnError
    timeout_seconds: float
    agent_name: str | None = None
    url: str | None = None
    by: str
    """Name of its author in the record."""
    at: datetime

    def entry_over(self, entry: HookEntry) -> HookEntry:
        """Return the hook of the blueprint with the fields of the override. Raise pydantic's `ValidationError`.

        A Python hook keeps its function. Method and headers, which may hold secrets, stay with their URL.
        """
        fields: dict[str, Any] = {"type": self.type, "on_error": self.on_error, "timeout_seconds": self.timeout_seconds}
        targets = {"agent_name": self.agent_name, "url": self.url}
        fields |= {name: value for name, value in targets.items() if value is not None}
        kept = {"handler_ref"} if self.type == "python" else {"method", "headers"} if self.url == entry.url else set()
        own = entry.model_dump(include={"mode", *kept}, exclude_unset=True)
        return type(entry).model_validate({**own, **fields})


class OutdatedEntry(StartEntry):
    """A start hook that fails: its override was made for another content of the blueprint."""


def apply_overrides(blueprint: Blueprint, overrides: tuple[HookOverride, ...]) -> tuple[Blueprint, list[str]]:
    """Return a blueprint with these overrides of its hooks, and the points whose override is outdated.

    A start hook whose failure blocks, in the blueprint or in its outdated override, fails; other hooks with an outdated
    override are those of the blueprint.
    """
    hooks: dict[str, HookEntry] = {}
    outdated: list[str] = []
    for one in overrides:
        entry = blueprint.entries.get(one.point)
        if entry is not None and one.digest == blueprint.digest:
            hooks[one.point] = one.entry_over(entry)
        elif entry is not None:
            outdated.append(one.point)
            if one.point == "on_run_start" and "block" in (entry.on_error, one.on_error):
                hooks[one.point] = OutdatedEntry.model_construct(**{**dict(entry), "on_error": "block"})
    changed = blueprint.hooks.model_copy(update=hooks)
    return (blueprint.model_copy(update={"hooks": changed}) if hooks else blueprint), outdated


# -- reading -----------------------------------------------------------------------------------------------------------


def read_blueprint(text: str | bytes, *, name: str = "blueprint", named: Mapping[str, Any] | None = None) -> Blueprint:
    """Return the blueprint that a JSON text describes. `named` are the hooks that `{"$ref": name}` refers to.

    Raise `BlueprintError` with every mistake and its place; `name` identifies the text in the error.
    """
    return _validate(Blueprint, _load_json(text, name), name, named or {})


def read_entries(text: str | bytes, *, name: str = "hooks") -> dict[str, Any]:
    """Return the hooks that blueprints may refer to, from one JSON object of names and entries.

    An entry is checked where it is used. Raise `BlueprintError` for any other JSON.
    """
    document = _load_json(text, name)
    if not isinstance(document, dict) or any(not isinstance(one, dict) or "$ref" in one for one in document.values()):
        raise BlueprintError(name, ["write one object of names and hooks; one reference does not lead to another"])
    return document


def read_allowed(given: object) -> AllowedUrls:
    """Return the addresses that `$allow` lets http hooks reach. Raise `BlueprintError` for anything else in it."""
    allow = _validate(Allow, given, f"{NAMED_HOOKS}: $allow")
    try:
        return AllowedUrls(networks=allow.networks, ports={443, *allow.ports}, http_hosts=allow.http)
    except ValueError as problem:
        raise BlueprintError(f"{NAMED_HOOKS}: $allow", [str(problem)]) from None


def _validate(model: type[M], document: object, name: str, named: Mapping[str, Any] | None = None) -> M:
    try:
        return model.model_validate(document, context=named)
    except ValidationError as problem:
        wrong = [error_sentence(error, model) for error in problem.errors(include_url=False)]
    raise BlueprintError(name, wrong)


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
