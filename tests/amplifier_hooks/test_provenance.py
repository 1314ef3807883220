"""The tag on messages that came from a hook."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import fields, replace

from amplifier_hooks.provenance import Provenance, is_injected, tag

ONE = Provenance(
    hook_name="lint",
    event="tool:post",
    timestamp="2026-01-01T12:00:00+00:00",
    tenant="acme",
    digest="0" * 64,
    tokens=12,
    counter="tiktoken:o200k_base",
)
TWO = replace(ONE, hook_name="types", tokens=30, trimmed=True)


@pytest.mark.rule("INJ-6")
def test_facts() -> None:
    """Every field is kept under its own name."""
    assert list(ONE.facts()) == [field.name for field in fields(Provenance)]
    assert all(value == getattr(TWO, name) for name, value in TWO.facts().items())


@pytest.mark.rule("INJ-6", "INJ-9")
def test_one_text() -> None:
    """A message of one text has all its facts at the top, and once more in the list of items."""
    assert tag([ONE.facts()], 12) == {"source": "hook", **ONE.facts(), "items": [ONE.facts()]}


@pytest.mark.rule("INJ-6", "INJ-9")
def test_several_texts() -> None:
    """A batch keeps one provenance for each item, and at the top the facts of the whole message."""
    assert tag([ONE.facts(), TWO.facts()], 50) == {
        "source": "hook",
        "event": "tool:post",
        "timestamp": "2026-01-01T12:00:00+00:00",
        "tenant": "acme",
        "tokens": 50,
        "counter": "tiktoken:o200k_base",
        "trimmed": True,
        "items": [ONE.facts(), TWO.facts()],
    }
    assert tag([ONE.facts(), ONE.facts()], 24)["trimmed"] is False


@pytest.mark.rule("INJ-6")
def test_frozen() -> None:
    """No field of a provenance can be assigned."""
    with pytest.raises(AttributeError, match="immutable"):
        ONE.hook_name = "security"  # type: ignore[misc]  # the test's subject


@pytest.mark.parametrize(
    ("metadata", "injected"),
    [
        (tag([ONE.facts()], 12), True),
        (MappingProxyType({"source": "hook"}), True),
        ({"source": "host"}, False),
        ({}, False),
        (None, False),
        ("hook", False),
    ],
)
def test_is_injected(metadata: Any, injected: bool) -> None:
    """A message came from a hook if its metadata says so."""
    assert is_injected(metadata) is injected
