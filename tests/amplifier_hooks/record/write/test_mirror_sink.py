"""Two records in two failure domains."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks.errors import InvalidLimit
from amplifier_hooks.record.record_errors import LogUnavailable
from amplifier_hooks.record.write.recorder import TwoSinks
from amplifier_hooks.testing import CollectingAudit

if TYPE_CHECKING:
    from collections.abc import Mapping


class Hanging(CollectingAudit):
    """A sink that never answers."""

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:
        """Wait for ever."""
        await asyncio.Event().wait()


@pytest.mark.rule("AUD-3")
async def test_both() -> None:
    """Both sinks have every record."""
    first, second = CollectingAudit(), CollectingAudit()
    await TwoSinks(first, second).write("note", {"x": 1}, durable=True)
    assert first.records == second.records
    assert first.records[0].durable


@pytest.mark.rule("AUD-3")
@pytest.mark.parametrize("bad", [CollectingAudit(OSError("full")), Hanging()], ids=["fails", "hangs"])
@pytest.mark.parametrize("first", [True, False], ids=["the first", "the second"])
async def test_one_is_enough(bad: CollectingAudit, *, first: bool) -> None:
    """One sink that has the record suffices, although the other fails or hangs, unless both are needed."""
    good = CollectingAudit()
    pair = (bad, good) if first else (good, bad)
    await TwoSinks(*pair).write("note", {}, durable=True)
    assert good.kinds == ["note"]
    with pytest.raises(LogUnavailable, match=r"1 of 2 records could be written: (full|no answer in time)"):
        await TwoSinks(*pair, need=2, patience=0.05).write("note", {}, durable=True)


@pytest.mark.rule("AUD-3")
async def test_neither() -> None:
    """If both sinks fail, the record cannot be written, and the error has both reasons."""
    pair = TwoSinks(CollectingAudit(OSError("full")), CollectingAudit(OSError("gone")))
    with pytest.raises(LogUnavailable, match=r"0 of 2 .*(full; gone|gone; full)"):
        await pair.write("note", {}, durable=True)
    with pytest.raises(InvalidLimit, match="1 or 2"):
        TwoSinks(CollectingAudit(), CollectingAudit(), need=3)
