"""Attacks on every entry point of acts: nothing runs but the act that was shown and allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks.library import Guard
from tests.conformance.attacks import ATTACKS, Attack
from tests.conformance.entries import ENTRIES
from tests.conformance.scene import POINTS, opened

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.rule(
    "COO-4",
    "COO-7",
    "COO-9",
    "APR-5",
    "APR-6",
    "APR-7",
    "APR-12",
    "DSP-2",
    "DSP-7",
    "BCK-6",
    "DIA-4",
    "DIA-7",
    "DIA-11",
    "API-2",
    "SLF-1",
)


ENDS = tuple(f" at {point}" for point in POINTS)


def without_points() -> Mapping[str, Attack]:
    """Return the attacks, each at one of its points: a scene that is not armed strikes at none, and runs alike."""
    return {
        next((name.removesuffix(end) for end in ENDS if name.endswith(end)), name): one for name, one in ATTACKS.items()
    }


def cases(attacks: Mapping[str, Attack], *, often: int = 1) -> list[Any]:
    """Return every entry point with each of these attacks that it can meet; one in `often` of them runs every day."""
    found = []
    for row, (entry, kind) in enumerate(ENTRIES.items()):
        for column, (name, attack) in enumerate(attacks.items()):
            marks = [pytest.mark.slow] * (kind.slow or (row + column) % often > 0)
            if attack.needs.isdisjoint(kind.cannot):
                found.append(pytest.param(entry, attack, id=f"{entry}-{name}", marks=marks))
    return found


def tool_entries() -> list[Any]:
    """Return the entry points of tool calls."""
    kinds = [(entry, kind) for entry, kind in ENTRIES.items() if kind.event == "tool:pre"]
    return [pytest.param(entry, marks=[pytest.mark.slow] * kind.slow) for entry, kind in kinds]


@pytest.mark.parametrize(("entry", "attack"), cases(ATTACKS))
async def test_attack(entry: str, attack: Attack, tmp_path: Path) -> None:
    """An act under attack has no effect, or exactly the effect that the approver was shown."""
    async with opened(ENTRIES[entry](), tmp_path, armed=True, durable=attack.durable) as scene:
        await attack.carry_out(scene)
        assert not scene.strikes, "the act never came to this point"
        assert len(scene.ran) in attack.effects
        assert scene.ran == (scene.allowed or [scene.given])[: len(scene.ran)]
        if attack.causes and scene.entry.records:
            assert attack.causes.intersection(scene.causes)


@pytest.mark.parametrize(("entry", "attack"), cases(without_points(), often=3))
async def test_control(entry: str, attack: Attack, tmp_path: Path) -> None:
    """An act that no attack disturbs has its effect, exactly as it was shown."""
    async with opened(ENTRIES[entry](), tmp_path, armed=False, durable=attack.durable) as scene:
        await attack.carry_out(scene)
        assert scene.ran == [scene.given] * attack.runs


@pytest.mark.rule("LIB-9", "APR-2")
@pytest.mark.parametrize("path", ["notes", "/etc/hosts"])
@pytest.mark.parametrize("entry", tool_entries())
async def test_guard(entry: str, path: str, tmp_path: Path) -> None:
    """At every entry point of tool calls the guard asks about a file outside the project, and about no other."""
    async with opened(ENTRIES[entry](), tmp_path, armed=False) as scene:
        Guard().register(scene.hooks)
        scene.label = "Allow once"
        given = {"path": path, "text": "hello"}
        await scene.act(given)
        assert scene.ran == [given]
        asked = [(one.questions[0].hook, one.impacts[-1].kind) for one in scene.approver.requests]
        assert asked == ([] if path == "notes" else [("guard", "writes_outside")])
