"""What a check finds, and what repairs it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path  # noqa: TC003  # attrs keeps it
from typing import Final, Literal

from attrs import field, frozen

from amplifier_hooks.errors import MissingExtra

State = Literal["ok", "note", "warning", "failed"]

OK: Final = "ok"
NOTE: Final = "note"
WARNING: Final = "warning"
FAILED: Final = "failed"


@frozen
class Symptom:
    """One thing a check found. What is not as it should be says which command, or which step, repairs it."""

    about: str
    state: State
    text: str
    repair: str = ""


@frozen(kw_only=True)
class Patient:
    """What is looked at: a project, and the state of whoever calls."""

    folder: Path
    environment: Mapping[str, str] = field(factory=lambda: dict(os.environ))
    store: str | None = None
    record: Path | None = None
    port: int = 0


Check = Callable[[Patient], Iterable[Symptom]]


def good(about: str, text: str) -> Symptom:
    """As it should be."""
    return Symptom(about, OK, text)


def bad(about: str, text: str, repair: str) -> Symptom:
    """Something does not work."""
    return Symptom(about, FAILED, text, repair)


def reinstall(extra: str = "") -> str:
    """The command that installs this package anew, with an extra if one is named."""
    wanted = f"'amplifier-hooks[{extra}]'" if extra else "--force-reinstall amplifier-hooks"
    pip = shutil.which("pip", path=os.path.dirname(sys.executable))  # noqa: PTH120  # a search path is text
    return f"{'pip install' if pip else 'uv pip install'} {wanted}"


def examined(checks: Mapping[str, Check], patient: Patient) -> Iterator[Symptom]:
    """Everything all checks find. A check that breaks is a finding of its own."""
    for about, check in checks.items():
        try:
            yield from check(patient)
        except MissingExtra as missing:
            yield bad(about, str(missing), reinstall(missing.extra))
        except Exception as error:  # noqa: BLE001  # a doctor that dies helps nobody
            text = f"the check itself failed: {type(error).__name__}: {error}"
            yield bad(about, text, "report this, with the output of: amplifier-hooks doctor --json")
