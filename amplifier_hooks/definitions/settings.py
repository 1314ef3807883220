"""Settings of all hooks that come from definitions: a file and the environment come in; typed values go out.

Every setting has a variable: `hooks_max_per_event` is `AMPLIFIER_HOOKS_MAX_PER_EVENT`. A variable overrides the file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, ValidationError

from amplifier_hooks.errors import SettingsError
from amplifier_hooks.text.error_sentences import error_sentence

if TYPE_CHECKING:
    from collections.abc import Mapping


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
