"""A module with hooks that definitions name: what is put into it is found as `house:name`."""

import sys
from types import ModuleType

import pytest


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Make the module importable."""
    module = ModuleType("house")
    monkeypatch.setitem(sys.modules, "house", module)
    return module
