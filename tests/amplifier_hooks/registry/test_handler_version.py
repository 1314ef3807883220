"""Versions of handlers."""

from __future__ import annotations

import subprocess
import sys
from functools import partial, wraps
from typing import Any

import pytest

from amplifier_hooks import HookRegistry, HookResult
from amplifier_hooks.registry.registration import fingerprint

SOURCE = """
def guard(event, data):
    return {text!r} if data in {{"a", "b", "c"}} else [one for one in data]
"""


def made(text: str) -> Any:
    """A handler with this constant in it."""
    names: dict[str, Any] = {}
    exec(SOURCE.format(text=text), names)  # our own text
    return names["guard"]


class Guard:
    """A handler that is an object."""

    def __call__(self, event: str, data: Any) -> None:
        """Do nothing."""

    def check(self, event: str, data: Any) -> None:
        """Do nothing."""


@pytest.mark.rule("APR-5")
def test_same_code_same_version() -> None:
    """Equal code has one version at every location; a changed constant makes another version."""
    assert fingerprint(made("no")) == fingerprint(made("no")) != fingerprint(made("yes"))
    assert fingerprint(Guard()) == fingerprint(Guard()) != fingerprint(Guard().check)
    assert fingerprint(len) == fingerprint(len)


@pytest.mark.rule("APR-5")
def test_same_in_every_process() -> None:
    """The version does not depend on the process, nor on the order of a set in it."""
    program = (
        "import sys; from amplifier_hooks.registry.registration import fingerprint; names = {}; "
        "exec(sys.argv[1], names); print(fingerprint(names['guard']))"
    )
    command = [sys.executable, "-W", "error", "-c", program, SOURCE.format(text="no")]
    said = {
        subprocess.run(command, check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": seed}).stdout.strip()
        for seed in ("1", "2")
    }
    assert said == {fingerprint(made("no"))}


@pytest.mark.rule("APR-5")
def test_what_is_wrapped() -> None:
    """A wrapper and filled-in arguments leave the handler's version unchanged."""

    @wraps(made("no"))
    def wrapped(event: str, data: Any) -> None:
        """Call the handler."""

    wrapped.__wrapped__ = made("no")
    assert fingerprint(partial(wrapped, data={})) == fingerprint(made("no"))


@pytest.mark.rule("APR-5")
def test_what_it_says_itself() -> None:
    """A handler made from data sets its own version."""

    def handler(event: str, data: Any) -> HookResult:
        return HookResult.proceed()

    handler.hook_version = "2026-11-18"  # type: ignore[attr-defined]
    registry = HookRegistry()
    registry.gate("tool:pre", handler, name="guard")
    assert registry.version_of("guard") == "2026-11-18"
    assert registry.version_of("unknown") == ""
