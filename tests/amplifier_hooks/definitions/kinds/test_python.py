import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from amplifier_hooks.definitions.kinds.python import PointedHook, build_hook, find_hook
from amplifier_hooks.errors import HookUnavailable

pytestmark = pytest.mark.rule("DEF-2")

MODULE = """
def guard(event, data): ...
class Limit:
    def __init__(self, calls=3): self.calls = calls
    def __call__(self, event, data): ...
class Ready:
    @classmethod
    def from_config(cls, config):
        one = cls()
        one.config = dict(config)
        return one
    def points(self): return ()
class Broken:
    def __init__(self): raise SystemExit("no")
number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name a module that can be imported."""
    package = tmp_path / "house_hooks"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "rules.py").write_text(MODULE)
    (package / "bad.py").write_text("import nowhere_at_all")
    (package / "exits.py").write_text("raise SystemExit('bye')")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("house_hooks")]:
        monkeypatch.delitem(sys.modules, name)
    return "house_hooks.rules"


def test_names(module: str) -> None:
    """A function is found under both spellings of its path."""
    assert find_hook(f"{module}:guard") is find_hook(f"{module}.guard")
    assert build_hook(f"{module}:guard", {}) is find_hook(f"{module}:guard")


def test_classes_are_built_with_their_config(module: str) -> None:
    """A class takes its config as keywords, or through `from_config` where it has that."""
    assert build_hook(f"{module}:Limit", {"calls": 5}).calls == 5
    ready = build_hook(f"{module}:Ready", {"a": 1})
    assert ready.config == {"a": 1}
    assert isinstance(ready, PointedHook)


def test_an_entry_point_is_found_by_its_name() -> None:
    """A hook that comes with a package goes by the name of its entry point."""
    assert isinstance(build_hook("rate_limit", {}), PointedHook)


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("house_hooks.rules:absent", {}, "there are: Broken, Limit, Ready, guard"),
        ("house_hooks.rules.absent", {}, "has no 'absent'"),
        ("house_hooks.nowhere:x", {}, "there is no module 'house_hooks.nowhere'"),
        ("nowhere_to_be.found", {}, "there is no module 'nowhere_to_be'"),
        ("absent", {}, "no installed package has a hook called 'absent'; there are: "),
        ("house_hooks.bad:x", {}, "needs the module 'nowhere_at_all', which is not installed"),
        ("house_hooks.exits:x", {}, "cannot be imported: SystemExit: bye"),
        ("house_hooks.rules:guard", {"a": 1}, "is no class, so nothing takes its config"),
        ("house_hooks.rules:Limit", {"call": 1}, r"it takes \(calls=3\)"),
        ("house_hooks.rules:Broken", {}, "SystemExit: no"),
        ("house_hooks.rules:number", {}, "is 3, which is neither called nor has execute or points"),
    ],
)
def test_what_is_not_there_is_said(module: str, name: str, config: Mapping[str, Any], said: str) -> None:
    """An unknown name, and a class that does not take its config, is an error with the known names or arguments."""
    with pytest.raises(HookUnavailable, match=said):
        build_hook(name, config)
