"""What holds for all hooks that come from definitions: typed, from a file and from the environment.

Every setting has a variable: `hooks_max_per_event` is `AMPLIFIER_HOOKS_MAX_PER_EVENT`. A variable wins over the file.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, ValidationError

from amplifier_hooks.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails


PREFIX: Final = "AMPLIFIER_"
WORDS: Final = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
LONGEST_NUMBER: Final = 20


class DefinitionSettings(BaseModel):
    """Settings of all hooks from definitions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    hooks_enabled: StrictBool = Field(default=True, description="false: nothing runs.")
    hooks_definitions_dir: str = Field(default="hook-definitions", min_length=1, description="Where the files are.")
    hooks_default_timeout_ms: StrictInt = Field(
        default=200, gt=0, le=5000, description="Of a python hook that says nothing else."
    )
    hooks_chain_timeout_ms: StrictInt = Field(
        default=500, gt=0, le=60_000, description="What the python hooks of one chain share."
    )
    hooks_fail_open_default: StrictBool = Field(
        default=True, description="Whether failures are skipped from priority 100 on; below, they always deny."
    )
    hooks_max_per_event: StrictInt = Field(
        default=20, ge=1, le=1000, description="Hooks of one event, for each tenant."
    )
    hooks_execution_log_enabled: StrictBool = Field(
        default=True, description="Whether runs of hooks are kept to look at."
    )
    hooks_execution_log_retention_hours: StrictInt = Field(
        default=24, ge=1, le=8760, description="How long they are kept."
    )

    @classmethod
    def load(cls, said: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None) -> Self:
        """The settings that were `said`, in a file for instance, and over them those of the environment.

        Raises `SettingsError` naming the variable or the key, and what it may be.
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
            raise SettingsError(where, setting_problem(error)) from None


def _read(text: str, default: object) -> Any:
    """A variable in the type of its setting, or as it is; what it has to be is the model's to say."""
    word = text.strip()
    if isinstance(default, bool):
        return WORDS.get(word.lower(), word)
    if isinstance(default, int) and word.isascii() and word.isdigit():
        return int(word[:LONGEST_NUMBER])
    return word


def setting_problem(error: ErrorDetails) -> str:
    """One mistake as a sentence."""
    name = str(error["loc"][0]) if error["loc"] else "settings"
    field = DefinitionSettings.model_fields.get(name)
    if field is None:
        likely = get_close_matches(name, DefinitionSettings.model_fields, 1)
        known = f"did you mean {likely[0]!r}?" if likely else f"known are {', '.join(DefinitionSettings.model_fields)}"
        return f"there is no setting {name[:40]!r}; {known}"
    wanted = f"{error['msg'].lower()}; {field.description} The default is {field.default!r}"
    return f"{name} is {error['input']!r:.40}: {wanted}"
