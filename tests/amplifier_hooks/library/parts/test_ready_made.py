import ast
import asyncio
import importlib
import importlib.metadata
import inspect
import re
import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from pydantic import Field, ValidationError

from amplifier_hooks import HookRegistry, library
from amplifier_hooks.definitions.model import BANDS
from amplifier_hooks.dispatch.chain import DEFAULT_TIMEOUT
from amplifier_hooks.errors import InvalidHookSettings, InvalidRegistration
from amplifier_hooks.library.parts.ready_made import HookSettings, Once, PerSession, Point, ReadyMade, ToolMatch
from amplifier_hooks.registry.entry_points import OURS
from amplifier_hooks.result import HookResult

ROOT = Path(__file__).parents[4]
FENCE = re.compile(r"^```(python|output)\n(.*?)^```", re.MULTILINE | re.DOTALL)

SLOW = {"test_feedback", "type_feedback"}
"""Hooks whose example starts a program that takes its time."""

pytestmark = pytest.mark.rule("LIB-8")


class Cup(HookSettings):
    """Settings within settings."""

    sugar: int = Field(default=0, description="lumps")


class KettleSettings(HookSettings):
    """Settings to test with."""

    degrees: int = Field(default=90, ge=0, le=100, description="how hot")
    match: ToolMatch = Field(default="*", description="which tools")
    cups: dict[str, tuple[Cup, ...]] = Field(default_factory=dict, description="cups, by who drinks")


class Kettle(ReadyMade[KettleSettings]):
    """A hook with two points, one of which can be made impossible."""

    name = "kettle"
    Settings = KettleSettings

    def __init__(self, settings: KettleSettings | None = None, *, second: str = "tool:post") -> None:
        super().__init__(settings)
        self._second = second

    def points(self) -> tuple[Point, ...]:
        """Return a gate, and a hook after it."""
        match = self.settings.match
        return (
            Point(event="tool:pre", call=self.say, intent="gate", priority=60, match=match, timeout=2.0, recheck=False),
            Point(event=self._second, call=self.say, intent="on", priority=310, timeout=None),
        )

    async def say(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Inject the temperature."""
        return HookResult.inject(f"{self.settings.degrees} degrees")


def hooks() -> list[type[ReadyMade[Any]]]:
    """Return every ready-made hook."""
    return [getattr(library, name) for name in library.__all__]


def test_all_points_under_one_name() -> None:
    """A hook registers all its points under its name, as it describes them, and its undo takes all of them back."""
    registry = HookRegistry()
    undo = Kettle(KettleSettings(match="Boil|Cook*")).register(registry)
    gate, after = registry.hooks()
    assert (gate.name, gate.event, gate.intent, gate.priority) == ("kettle", "tool:pre", "gate", 60)
    assert (gate.timeout, gate.recheck, gate.match and gate.match.spec) == (2.0, False, "Boil|Cook*")
    assert (after.name, after.event, after.intent, after.priority) == ("kettle", "tool:post", "on", 310)
    assert (after.timeout, after.match) == (float("inf"), None)
    undo()
    undo()
    assert registry.count() == 0


def test_options_of_registering() -> None:
    """Options given to `register` win over the hook's own, and a scope keeps its tenant."""
    registry = HookRegistry()
    Kettle().register(registry.scope("tea", tenant="acme"), priority=77)
    assert {(hook.owner, hook.tenant, hook.priority) for hook in registry.hooks()} == {("tea", "acme", 77)}


def test_all_or_none() -> None:
    """A point that cannot register takes back those before it."""
    registry = HookRegistry()
    with pytest.raises(InvalidRegistration):
        Kettle(second="").register(registry)
    assert registry.count() == 0


async def test_settings_from_a_file() -> None:
    """Settings reach the hook."""
    registry = HookRegistry()
    Kettle.from_config({"degrees": 70}).register(registry)
    assert (await registry.emit("tool:pre", {"tool_name": "Boil"})).context_injection == "70 degrees"


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"degres": 70}, "hook 'kettle': unknown key 'degres'; did you mean 'degrees'?"),
        ({"colour": "red"}, "hook 'kettle': unknown key 'colour'; known are degrees, match, cups"),
        ({"degrees": 170}, "hook 'kettle': 'degrees': input should be less than or equal to 100"),
        ({"match": "Write, Edit"}, "hook 'kettle': 'match': matcher 'Write, Edit'"),
        (
            {"cups": {"ann": [{"suger": 1}]}},
            "hook 'kettle': unknown key 'cups.ann.0.suger'; did you mean 'sugar'",
        ),
        ({"cups": {"ann": [{"milk": 1}]}}, "hook 'kettle': unknown key 'cups.ann.0.milk'; known are sugar"),
        ({"cups": {"ann": "two"}}, "hook 'kettle': 'cups.ann': write a list: [one, another]"),
        ([], "hook 'kettle': its settings are []; pass a mapping of fields"),
    ],
)
def test_settings_that_cannot_work(config: Any, sentence: str) -> None:
    """The error names the hook, the field and the remedy."""
    with pytest.raises(InvalidHookSettings) as caught:
        Kettle.from_config(config)
    assert str(caught.value).startswith(sentence)
    assert caught.value.hook == "kettle"


@pytest.mark.parametrize(
    ("hook", "config", "sentence"),
    [
        (
            "Notify",
            {"webhook": "nonsense"},
            "hook 'notify': 'webhook': webhook URL '(no scheme)': its scheme is ''",
        ),
        (
            "Notify",
            {"webhook": "https://a.example", "secrets": ["x"]},
            "hook 'notify': 'webhook': webhook secret 1",
        ),
        (
            "ToolLedger",
            {"store": "mysql://a"},
            "hook 'tool_ledger': 'store': write a file's path, ':memory:' or",
        ),
        ("KeepGoing", {"store": "redis://a"}, "hook 'keep_going': 'store': write a file's path"),
        ("KeepGoing", {"promise": "***"}, "hook 'keep_going': 'promise': write words that fit on one line"),
        ("KeepGoing", {"promise": "all\ndone"}, "hook 'keep_going': 'promise': write words that fit on one"),
        (
            "TestFeedback",
            {"tests": ["/t/test_{name}.py"]},
            "hook 'test_feedback': 'tests' has '/t/test_{name}",
        ),
        ("TestFeedback", {"tests": [""]}, "hook 'test_feedback': 'tests' has ''; write it as it is in"),
        ("AuditLogHook", {"path": ""}, "hook 'audit_log': 'path': string should have at least 1 character"),
    ],
)
def test_settings_that_look_right(hook: str, config: dict[str, Any], sentence: str) -> None:
    """Settings that could only fail later are refused when the hook is created, in the hook's name."""
    with pytest.raises(InvalidHookSettings) as caught:
        getattr(library, hook).from_config(config)
    assert str(caught.value).startswith(sentence)


def test_every_problem_at_once() -> None:
    """An error about settings names all mistakes, and no value, which may be a secret."""
    with pytest.raises(InvalidHookSettings) as caught:
        Kettle.from_config({"degrees": "hunter2", "tea": 1})
    assert len(caught.value.problems) == 2
    assert "hunter2" not in str(caught.value)


def test_settings_stay_as_they_are() -> None:
    """A field of settings cannot be assigned."""
    with pytest.raises(ValidationError):
        Kettle().settings.degrees = 3


# -- every ready-made hook ---------------------------------------------------------------------------------------------


@pytest.mark.rule("REG-11")
def test_entry_points() -> None:
    """Every ready-made hook is found under its name, and only those; enabling one registers it as built-in."""
    ours = {point.name for point in importlib.metadata.entry_points(group="amplifier_hooks.hooks")}
    names = {hook.name for hook in hooks()}
    assert names <= ours, "run: uv sync"
    registry = HookRegistry()
    found = registry.discover(sorted(names), required=True)
    assert {one.name: {hook.partition("#")[0] for hook in one.hooks} for one in found} == {
        name: {name} for name in names
    }
    assert {one.package for one in found} == {OURS}
    assert {hook.tier for hook in registry.hooks()} == {"built-in"}


@pytest.mark.parametrize("hook", hooks(), ids=lambda hook: hook.name)
def test_what_every_hook_has(hook: type[ReadyMade[Any]]) -> None:
    """Each hook has described settings with defaults, no unknown fields, and points in a band."""
    assert hook.Settings.model_config["extra"] == "forbid"
    assert hook.Settings.model_config["frozen"]
    fields = hook.Settings.model_fields
    assert not [name for name, field in fields.items() if not field.description or field.is_required()]
    points = hook().points()
    assert points
    assert all(0 <= point.priority <= BANDS[-1].last for point in points)
    assert all(point.timeout is None or point.timeout <= 12 * DEFAULT_TIMEOUT for point in points)


@pytest.mark.parametrize(
    "hook",
    [pytest.param(hook, marks=pytest.mark.slow if hook.name in SLOW else (), id=hook.name) for hook in hooks()],
)
def test_examples_run(
    hook: type[ReadyMade[Any]], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    """The example in the docstring of a hook or of its module runs, and prints the output below it."""
    monkeypatch.chdir(tmp_path)
    docstrings = (inspect.getdoc(hook), inspect.getdoc(sys.modules[hook.__module__]))
    blocks = next(filter(None, (FENCE.findall(docstring or "") for docstring in docstrings)), [])
    assert [language for language, _ in blocks] == ["python", "output"], "an example, and what it prints"
    assert hook.__name__ in blocks[0][1]
    namespace: dict[str, Any] = {"__name__": "__main__"}
    code = compile(blocks[0][1], hook.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with asyncio.Runner() as runner:
        if code.co_flags & inspect.CO_COROUTINE:
            runner.run(eval(code, namespace))
        else:
            exec(code, namespace)
    assert capsys.readouterr().out == blocks[1][1]


def test_table_is_current() -> None:
    """The table in the specs is the one that the hooks make now."""
    page = (ROOT / "specs" / "library.md").read_text(encoding="utf-8")
    with_table = runpy.run_path(str(ROOT / "scripts" / "library_table.py"))["with_table"]
    assert with_table(page) == page, "run: uv run scripts/library_table.py --write"
    with pytest.raises(ValueError, match="no place for the table"):
        with_table("# Hooks\n")


@pytest.mark.rule("PKG-1")
def test_loads_lightly() -> None:
    """The library loads a hook on first use, and no other."""
    code = (
        "import sys, amplifier_hooks.library as library; library.RateLimit\n"
        "print(*sorted(m for m in sys.modules if m.startswith('amplifier_hooks.library.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = ("parts", "parts.ready_made", "rate_limit")
    assert done.stdout.split() == [f"amplifier_hooks.library.{name}" for name in loaded]


# -- the memory of hooks -----------------------------------------------------------------------------------------------


def test_one_value_for_each_session() -> None:
    """Sessions are apart, also those of two tenants, and the least recently used one is forgotten first."""
    kept: PerSession[list[int]] = PerSession(list, most=2)
    kept.of({"session_id": "a"}).append(1)
    kept.of({"session_id": "a", "tenant_id": "acme"}).append(2)
    assert kept.of({"session_id": "a"}) == [1]
    kept.of({"session_id": "b"})
    assert len(kept) == 2
    assert kept.of({"session_id": "a"}) == [1]
    assert kept.of({"session_id": "a", "tenant_id": "acme"}) == []


def test_once_keeps_no_text() -> None:
    """`Once` does not keep the messages themselves, which may be long, over the many sessions that it remembers."""

    class Message(str):
        __slots__ = ("__weakref__",)

    once, message = Once(), Message("failed")
    kept = ref(message)
    assert [once.is_first({"session_id": "s"}, message) for _ in range(2)] == [True, False]
    del message
    assert kept() is None


def test_once() -> None:
    """`Once` is true once in each session; of very many entries, the first are forgotten."""
    once = Once()
    session, other = {"session_id": "a"}, {"session_id": "b"}
    assert [once.is_first(session, "x", 1), once.is_first(session, "x", 1), once.is_first(other, "x", 1)] == [
        True,
        False,
        True,
    ]
    assert [once.is_first(session, number) for number in range(1_000)] == [True] * 1_000
    assert once.is_first(session, "x", 1)
