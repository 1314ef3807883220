"""Laws of a run's life: for all moves, in any order, and however late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from amplifier_hooks.runs.run_states import (
    ENDED,
    MOVES,
    Holder,
    RunMoved,
    RunRecord,
    Stage,
)

STAGES: Final = get_args(Stage)
START = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = st.lists(
    st.tuples(st.sampled_from(sorted(MOVES)), st.sampled_from(["one", "two"]), st.integers(0, 40), st.booleans()),
    max_size=40,
)


def a_record() -> RunRecord:
    """A run that was just queued."""
    return RunRecord(id="run_00000000", tenant="", session="ses_0", agent="a", parameters={}, created=START)


@pytest.mark.rule("RUN-16", "RUN-10")
@given(STEPS)
def test_any_order_of_moves(steps: list[tuple[str, str, int, bool]]) -> None:
    """One holder at a time acts, what has ended never moves, and an overtaken holder is refused."""
    record, now, claims = a_record(), START, {"one": 0, "two": 0}
    for move, who, seconds, stale in steps:
        now += timedelta(seconds=seconds)
        number = claims[who] - 1 if stale else claims[who]
        try:
            after = record.move(move, now, Holder(who, number))
        except RunMoved:
            continue
        assert record.stage not in ENDED
        row = MOVES[move]
        if row.hold == "own":
            assert (record.holder, record.attempt) == (who, number)
        if row.hold == "over":
            assert record.held_until is None or record.held_until <= now
        assert (after.ended is not None) is (after.stage in ENDED)
        if move in ("begin", "hand"):
            hold = {"holder": who, "attempt": record.attempt + 1, "held_until": now + timedelta(seconds=30)}
            after = replace(after, **hold)
            claims[who] = after.attempt
        assert (after.held_until is not None) is (after.stage in ("starting", "running"))
        record = after


@pytest.mark.rule("RUN-7", "RUN-10", "RUN-11")
def test_the_table() -> None:
    """Every stage has a public status and can be reached, and no move leads out of an end."""
    reached = {row.target for row in MOVES.values()} | {"queued"}
    assert reached - {None} == set(STAGES)
    assert all(row.sources.isdisjoint(ENDED) for row in MOVES.values())
    statuses = {replace(a_record(), stage=stage).status for stage in STAGES}
    assert statuses == {"queued", "starting", "running", "completed", "failed", "stopped"}
