"""A hook as data: JSON fields come in; a checked definition, with its band and its digest, goes out.

```
NewHook          the hook as its author writes it: a name, an event, and the handler that carries it out
HookChanges      the fields of a hook that change
HookDefinition   the hook as it is stored: a `NewHook` with its id, its tenant and its dates
```

People tell hooks apart by name, so a name is plain ASCII: it has no look-alikes of other alphabets, nothing invisible,
and nothing that a file system reads as a path. `likeness` catches the remaining look-alikes, such as `1` for `l`.

The priority puts a hook into a band, and the band decides whether a failure of the hook denies.

An editor of a hook need not know its secrets: the config shows `HIDDEN` in their place, and a `HIDDEN` that comes back
keeps the old secret. If the change names another address, it keeps none: a secret goes only to addresses that its
author wrote it for.

`DefinitionSettings` hold for all hooks from definitions. Each has a variable, which overrides the file:
`hooks_max_per_event` is `AMPLIFIER_HOOKS_MAX_PER_EVENT`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from attrs import frozen
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StrictInt,
    ValidationError,
    model_validator,
)

from amplifier_hooks.act import freeze
from amplifier_hooks.errors import InputNotFreezable, InvalidRegistration, SettingsError
from amplifier_hooks.events import alike, canonical
from amplifier_hooks.impact.tool_matcher import compile_tool_matcher
from amplifier_hooks.registry.event_names import is_pattern
from amplifier_hooks.result import LONGEST_RISK_REASON, Risk
from amplifier_hooks.text.secrets import is_secret_name
from amplifier_hooks.text.strict_parsing import depth, error_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


PREFIX: Final = "AMPLIFIER_"
WORDS: Final = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
LONGEST_NUMBER: Final = 20


def _whole_number(value: object) -> object:
    """Return 200 for 200.0; any other value stays as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Milliseconds = Annotated[StrictInt, BeforeValidator(_whole_number)]
"""Whole milliseconds; 200.0 is 200, as in JSON."""


class DefinitionSettings(BaseModel):
    """Settings of all hooks from definitions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    hooks_enabled: StrictBool = Field(default=True, description="If false, no hook runs.")
    hooks_definitions_dir: str = Field(default="hook-definitions", min_length=1, description="Folder of the files.")
    hooks_default_timeout_ms: Milliseconds = Field(
        default=200, gt=0, le=5000, description="Timeout of a python hook that sets none."
    )
    hooks_chain_timeout_ms: Milliseconds = Field(
        default=500, gt=0, le=60_000, description="Time that the python hooks of one chain share."
    )
    hooks_fail_open_default: StrictBool = Field(
        default=True, description="If true, failures are skipped from priority 100 on; below, they always deny."
    )
    hooks_max_per_event: StrictInt = Field(
        default=20, ge=1, le=1000, description="Most hooks of one event, for each tenant."
    )
    hooks_execution_log_enabled: StrictBool = Field(
        default=True, description="If true, runs of hooks are kept in the execution log."
    )
    hooks_execution_log_retention_hours: StrictInt = Field(
        default=24, ge=1, le=8760, description="Hours for which the execution log is kept."
    )

    @classmethod
    def load(cls, said: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None) -> Self:
        """Return the settings in `said`, such as those of a file, overridden by the environment's.

        Args:
            said: Settings of a file by their keys; none if None.

        Raises `SettingsError` with the variable or the key, and its allowed values.
        """
        environment = os.environ if environment is None else environment
        values = dict(said or {})
        variables = {f"{PREFIX}{name.upper()}": name for name in cls.model_fields}
        given = {variable: environment[variable] for variable in variables if variable in environment}
        values |= {
            variables[variable]: _read(text, cls.model_fields[variables[variable]].default)
            for variable, text in given.items()
        }
        try:
            return cls.model_validate(values)
        except ValidationError as problem:
            error = problem.errors(include_url=False)[0]
            name = str(error["loc"][0]) if error["loc"] else ""
            where = next((variable for variable in given if variables[variable] == name), "settings")
            field = cls.model_fields.get(name)
            more = f"; {field.description} The default is {field.default!r}" if field else ""
            raise SettingsError(where, error_sentence(error, cls) + more) from None


def _read(text: str, default: object) -> Any:
    """Return a variable in the type of its setting, or unchanged if it does not fit; the model refuses it then."""
    word = text.strip()
    if isinstance(default, bool):
        return WORDS.get(word.lower(), word)
    if isinstance(default, int) and word.isascii() and word.isdigit():
        return int(word[:LONGEST_NUMBER])
    return word


FailMode = Literal["open", "closed"]
"""Effect of a hook's failure: "open" skips it, "closed" denies."""


@frozen
class Band:
    """The priorities from `first` to `last`, both included."""

    name: str
    first: int
    last: int
    fail_mode: FailMode


BANDS: Final = (
    Band("security", 0, 49, "closed"),
    Band("governance", 50, 99, "closed"),
    Band("input", 100, 199, "open"),
    Band("execution", 200, 299, "open"),
    Band("output", 300, 399, "open"),
    Band("application", 400, 499, "open"),
    Band("observability", 500, 699, "open"),
    Band("notification", 700, 899, "open"),
    Band("debug", 900, 1000, "open"),
)


def band_of(priority: int) -> Band:
    """Return the band of a priority from 0 to 1000."""
    return next(band for band in BANDS if priority <= band.last)


HIDDEN: Final = "(hidden)"
"""Text shown in the place of a secret."""

CARRIERS: Final = ("headers", "env")
"""Config sections in which any name may hold a secret."""


def hide_secrets(value: Any, name: str = "", within: str = "") -> Any:
    """Return a config, or a part of one, without its secrets. The name of a variable that holds a secret is shown."""
    if value in (None, "", [], {}) or name.endswith("_env"):
        return value
    if is_secret_name(name) or within in CARRIERS:
        return HIDDEN
    if name == "url" and isinstance(value, str):
        address, mark, _ = value.partition("?")
        return f"{address}?{HIDDEN}" if mark else value
    if isinstance(value, dict):
        return {one: hide_secrets(item, one, name) for one, item in value.items()}
    return [hide_secrets(item) for item in value] if isinstance(value, list) else value


def restore_secrets(new: Any, old: Any) -> Any:
    """Return the new config with the old secrets in the place of `HIDDEN`.

    If the new config has an address that the old one did not have, no secret is restored and `HIDDEN` stays.
    """
    known = addresses(old) | addresses(hide_secrets(old))
    return _restore_part(new, old) if addresses(new) <= known else new


def unrestored_secret(config: Any) -> str | None:
    """Return the path of the first `HIDDEN` that was not replaced by its secret; None if there is none."""
    left = (place for place, text in _texts(config) if text == HIDDEN or text.endswith(f"?{HIDDEN}"))
    return next(left, None)


def addresses(config: Any) -> set[str]:
    """Return every URL in a config."""
    return {text for _, text in _texts(config) if "://" in text}


def _texts(value: Any, place: str = "config") -> Iterator[tuple[str, str]]:
    """Yield every text in a part of a config, with its path."""
    if isinstance(value, str):
        yield place, value
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from _texts(part, f"{place}.{name}")


def _restore_part(new: Any, old: Any, name: str = "", within: str = "") -> Any:
    if new == hide_secrets(old, name, within):
        return old
    if not isinstance(new, dict) or not isinstance(old, dict):
        return new
    return {one: _restore_part(value, old.get(one), one, name) for one, value in new.items()}


Kind = Literal["python", "command", "http", "agent"]
"""Kind of handler that carries out a hook."""

EXTERNAL_KINDS: Final[tuple[Kind, ...]] = ("command", "http", "agent")
"""Kinds that a `handler_ref` names instead of a Python object."""

LARGEST_CONFIG: Final = 64 * 1024
DEEPEST_CONFIG: Final = 16
LONGEST_NAME: Final = 100
LONGEST_DESCRIPTION: Final = 2_000
MOST_TAGS: Final = 20
LONGEST_TIMEOUT: Final[dict[Kind, int]] = {"python": 5_000, "command": 600_000, "http": 600_000, "agent": 3_600_000}
"""Milliseconds at most, by kind."""

DOMAIN: Final = b"amplifier-hooks/definition/1\n"

HOOK_ID: Final = r"^hook_[0-9a-f]{12}\z"
NAME: Final = re.compile(r"[A-Za-z0-9](?:[ ._-]?[A-Za-z0-9])*")
TAG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,49}")
TENANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}")
EVENT: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,99}")
PATTERN: Final = re.compile(r"\*|[a-z][a-z0-9_-]{0,49}:\*")
REFERENCE: Final = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)*(?::[A-Za-z_]\w*(?:\.\w+)*)?", re.ASCII)
REFERENCE_RULE: Final = (
    "a handler_ref is 'package.module:name', the name of an entry point, 'command', 'http' or 'agent'"
)
LONGEST_REFERENCE: Final = 200
CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters refused in descriptions: they end a line, move a cursor, reorder their neighbours, or are invalid."""

_LIKE: Final = str.maketrans({"1": "l", "i": "l", "0": "o", "_": "-", ".": "-", " ": "-"})


def new_hook_id() -> str:
    """Return a new, unused hook id."""
    return f"hook_{secrets.token_hex(6)}"


def likeness(name: str) -> str:
    """Return the form of a name that look-alikes share: two names that can be confused have equal likenesses."""
    return name.lower().translate(_LIKE).replace("rn", "m")


def _matching(pattern: re.Pattern[str], rule: str) -> AfterValidator:
    """Return a validator that refuses texts which do not match, with the rule for them."""

    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(rule)
        return value

    return AfterValidator(check)


def _plain(field: str) -> AfterValidator:
    """Return a validator that refuses control characters in a field."""

    def check(value: str) -> str:
        if CONTROLS.search(value):
            raise ValueError(f"a {field} has no control characters in it, nor any that reorder what is around them")
        return value

    return AfterValidator(check)


def event_name(value: str) -> str:
    """Return the canonical name of an event or a pattern. Raises `ValueError` for anything else, or a near miss."""
    name = canonical(value)
    known = alike(name)
    if known:
        raise ValueError(f"{name!r:.100} is no event; write {known!r}")
    if not (EVENT.fullmatch(name) or (PATTERN.fullmatch(name) and is_pattern(name))):
        raise ValueError("an event is a name such as 'tool:pre' in any spelling, 'tool:*' or '*'")
    return name


def _short_reason(value: str) -> str:
    if len(value.encode()) > LONGEST_RISK_REASON:
        raise ValueError(f"a risk_reason has at most {LONGEST_RISK_REASON:,} bytes")
    return value


def _matcher(value: str) -> str:
    try:
        return compile_tool_matcher(value).spec
    except InvalidRegistration as problem:
        raise ValueError(str(problem)) from None


def _tags(value: list[str]) -> list[str]:
    return list(dict.fromkeys(value))


def tenant_id_or_error(value: str) -> str:
    """Return a tenant's id unchanged; `""` is the system. Raises `ValueError` for an invalid id."""
    if value and not TENANT.fullmatch(value):
        raise ValueError("a tenant's id is letters, digits and '._:@-', at most 100 of them")
    return value


def _config(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    try:
        frozen = freeze(value)
        json.dumps(value, ensure_ascii=False).encode()
    except InputNotFreezable as problem:
        raise ValueError(f"config is plain JSON, and {problem.problem}") from None
    except UnicodeEncodeError:
        raise ValueError("config has half of a character in it, which nothing that keeps it could write") from None
    if len(frozen) > LARGEST_CONFIG or depth(frozen) > DEEPEST_CONFIG:
        raise ValueError(f"config has at most {LARGEST_CONFIG:,} bytes, and is nested at most {DEEPEST_CONFIG} deep")
    place = unrestored_secret(value)
    if place is not None:
        raise ValueError(
            f"{place} holds the text that is shown in the place of a secret; write the secret itself, as it is not "
            "taken along to another address"
        )
    return value


def _moment(value: object) -> object:
    """Parse a date that is a text, as dates in files are."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _utc(value: datetime) -> datetime:
    return value.astimezone(UTC)


Name = Annotated[
    str,
    Field(min_length=1, max_length=LONGEST_NAME),
    _matching(
        NAME, "a name is made of the letters a to z and digits, with single blanks, '.', '_' or '-' between them"
    ),
]
Moment = Annotated[AwareDatetime, BeforeValidator(_moment), AfterValidator(_utc)]


class NewHook(BaseModel):
    """A hook as its author writes it: everything but its id, its tenant and its dates."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Name = Field(description="Name for people: letters, digits, and single blanks, '.', '_' or '-' between.")
    description: Annotated[str, _plain("description")] = Field("", max_length=LONGEST_DESCRIPTION)
    """The purpose of the hook, for people."""
    event_type: Annotated[str, AfterValidator(event_name)] = Field(
        min_length=1, max_length=100, description="The event, in any spelling; stored in the canonical one: 'tool:pre'."
    )
    priority: StrictInt = Field(100, ge=0, le=1000, description="Lower runs first; 0 to 99 fail closed.")
    handler_ref: Annotated[str, _matching(REFERENCE, REFERENCE_RULE)] = Field(
        min_length=1,
        max_length=LONGEST_REFERENCE,
        description="'package.module:name', the name of an entry point, or a kind: 'command', 'http', 'agent'.",
    )
    timeout_ms: Milliseconds | None = Field(
        None, gt=0, description="null: by kind; a python hook has 200, at most 5000."
    )
    enabled: StrictBool = True
    """False switches the hook off."""
    config: Annotated[dict[str, JsonValue], AfterValidator(_config)] = Field(
        default_factory=dict, description="Arguments of the handler; their keys depend on its kind."
    )
    fail_mode: FailMode | None = Field(None, description="Effect of a failure; null: by the band of its priority.")
    tags: Annotated[
        list[Annotated[str, _matching(TAG, "a tag is letters, digits and '._:/-', at most 50 of them")]],
        AfterValidator(_tags),
    ] = Field(default_factory=list, max_length=MOST_TAGS)
    """Words by which hooks are found."""
    matcher: Annotated[str, AfterValidator(_matcher)] | None = Field(
        None,
        max_length=2_048,
        description="The tools it is for: a name, 'Write|Edit', 'kind:shell', a glob, 're:…'; null: all.",
    )
    risk: Risk | None = Field(None, description="Risk of the acts it asks about; its answers can only raise it.")
    risk_reason: Annotated[str, _plain("risk_reason"), AfterValidator(_short_reason)] = Field(
        "", description="Reason for the risk."
    )
    report_only: StrictBool = Field(
        default=False, description="If true, the hook stops nothing: its answers and failures are only on record."
    )

    @model_validator(mode="after")
    def _check_timeout(self) -> Self:
        longest = LONGEST_TIMEOUT[self.kind]
        if self.timeout_ms is not None and self.timeout_ms > longest:
            raise ValueError(f"timeout_ms of a {self.kind} hook is at most {longest}")
        return self

    @model_validator(mode="after")
    def _assessed(self) -> Self:
        if self.risk_reason and self.risk is None:
            raise ValueError("risk_reason belongs to a risk; write risk: low, medium or high as well")
        return self

    @property
    def kind(self) -> Kind:
        """Kind of handler that carries out the hook."""
        return next((kind for kind in EXTERNAL_KINDS if kind == self.handler_ref), "python")

    @property
    def band(self) -> Band:
        """Band of the hook's priority."""
        return band_of(self.priority)

    def to_definition(self, *, tenant_id: str, hook_id: str, now: datetime) -> HookDefinition:
        """Return the definition of this hook, for a tenant, with an id, created at `now`.

        Args:
            tenant_id: Tenant that owns the hook.
            now: Time of the creation.
        """
        said = self.model_dump()
        return HookDefinition(**said, hook_id=hook_id, tenant_id=tenant_id, created_at=now, updated_at=now)


class HookDefinition(NewHook):
    """A stored hook as data. It is immutable; `HookChanges` make a new definition of it."""

    hook_id: str = Field(default_factory=new_hook_id, pattern=HOOK_ID)
    """The id: `hook_` and 12 hex digits; a new one by default."""
    tenant_id: Annotated[str, AfterValidator(tenant_id_or_error)] = Field(
        "", max_length=100, description="Tenant that owns the hook; '' is the system, whose hooks run for every tenant."
    )
    created_at: Moment = Field(default_factory=lambda: datetime.now(UTC))
    """The time of creation; now by default."""
    updated_at: Moment = Field(default_factory=lambda said: said["created_at"])
    """The time of the last change; that of the creation by default."""

    @property
    def digest(self) -> str:
        """Digest of the whole definition except its dates."""
        said = self.model_dump(mode="json", exclude={"created_at", "updated_at"})
        return hashlib.sha256(DOMAIN + freeze(said)).hexdigest()

    def public_fields(self) -> dict[str, Any]:
        """Return the definition as plain JSON, with `HIDDEN` in the place of its secrets."""
        said = self.model_dump(mode="json")
        return {**said, "config": hide_secrets(said["config"])}


class HookChanges(BaseModel):
    """Changes to a hook: the given fields, and no others."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Name | None = None
    description: str | None = None
    event_type: str | None = None
    priority: StrictInt | None = None
    handler_ref: str | None = None
    timeout_ms: Milliseconds | None = None
    enabled: StrictBool | None = None
    config: dict[str, JsonValue] | None = None
    fail_mode: FailMode | None = None
    tags: list[str] | None = None
    matcher: str | None = None
    risk: Risk | None = None
    risk_reason: str | None = None
    report_only: StrictBool | None = None

    def apply_to(self, definition: HookDefinition, *, now: datetime) -> HookDefinition:
        """Return the definition with the changes.

        A secret that comes back as `HIDDEN` keeps its value, unless the change names another address.

        Raises pydantic's `ValidationError` if the result is not a valid definition.
        """
        changed = self.model_dump(exclude_unset=True)
        if "config" in changed and changed["config"] is not None:
            changed["config"] = restore_secrets(changed["config"], definition.config)
        return HookDefinition(**{**definition.model_dump(), **changed, "updated_at": now})
