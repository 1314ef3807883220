"""The AGENT-HOOKS conformance kit, against a session that runs other people's interceptors."""

from __future__ import annotations

from typing import Any

import pytest
from agent_hooks.ctk import load_vectors, run_vector

from tests.conformance.agent_hooks_harness import CAPABILITIES, SessionHarness

VECTORS = {vector["id"]: vector for vector in load_vectors()}
UNGATED = frozenset({"model_calls", "tool_calls", "parallel_tool_calls", "multi_turn", "int64_json", "bigint_json"})
"""Capabilities that any agent loop in Python has."""


@pytest.mark.rule("DIA-3")
@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
async def test_vector(vector: dict[str, Any]) -> None:
    """Every vector about a declared capability passes."""
    result = await run_vector(SessionHarness(), vector)
    if result.status == "skip":
        assert set(vector["capabilities"]) - {one.value for one in CAPABILITIES}
        pytest.skip(result.detail)
    assert result.status == "pass", result.failures


@pytest.mark.rule("DIA-3")
def test_the_kit_is_all_there() -> None:
    """The kit has the vectors that are promised to pass: 47 that any loop can be held to, and 24 about declarations."""
    declared = {one.value for one in CAPABILITIES}
    ungated = [one for one in VECTORS.values() if set(one["capabilities"]) <= UNGATED]
    assert len(ungated) == 47
    assert len([one for one in VECTORS.values() if set(one["capabilities"]) <= declared]) == 71
