"""One suite over all stores: the same table, the same compare-and-set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from approval_backends.testing import STORE_CHECKS, StoreCheck, name_of
from tests.stores import KINDS, opened

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.rule("BCK-8", "APR-5", "APR-6", "APR-7", "APR-8", "APR-14")
@pytest.mark.fault("F-APR-01", "F-APR-03", "F-APR-07", "F-APR-08", "F-APR-09", "F-APR-10", "F-APR-15", "F-APR-19")
@pytest.mark.parametrize("check", STORE_CHECKS, ids=name_of)
@pytest.mark.parametrize("kind", KINDS)
async def test_store(kind: str, check: StoreCheck, tmp_path: Path) -> None:
    """Every store keeps every promise of `ApprovalStore`."""
    async with opened(kind, tmp_path) as subject:
        await check(subject)
