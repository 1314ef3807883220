"""The reference in docs/ is up to date, and that of the site has every public name with its parameters."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import runpy
import subprocess
import sys
import tomllib
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from amplifier_hooks import HookRegistry
from amplifier_hooks.registry.registration import HookOptions
from amplifier_hooks.session.options import SessionOptions
from tests.test_exports import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parent.parent
SCRIPT: Final = ROOT / "scripts" / "reference.py"
WAYS: Final = ("register", "on", "gate", "observe", "around", "add", "register_loop_hook", "register_matchers")
FIELD: Final = re.compile(r"^\| `\**(\w+)` \|.*\| (.*) \|$", re.MULTILINE)
"""The name and the meaning in a row about a parameter."""
TABLE: Final = re.compile(r'<div class="fields" markdown>\n(.*?)\n</div>', re.DOTALL)
"""A table of parameters, settings or attributes."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the reference of the site. The adapters in it need the SDKs."""
    for door in listed():
        importlib.import_module(door)
    folder = tmp_path_factory.mktemp("reference")
    subprocess.run([sys.executable, str(SCRIPT), "--site", str(folder)], check=True)
    return folder


def entries(site: Path) -> dict[str, str]:
    """Return the text of each entry and of each of its members, by its heading."""
    texts = [path.read_text("utf-8") for path in site.glob("*.md")]
    return {
        f"{path.stem}:{part.partition('`')[0]}": part
        for path, text in zip(site.glob("*.md"), texts, strict=True)
        for part in re.split(r"^###? `", text, flags=re.MULTILINE)[1:]
    }


def public() -> Iterator[tuple[str, str, Any]]:
    """Yield each public name with its door and its object."""
    for door, names in listed().items():
        module = importlib.import_module(door)
        yield from ((door, name, getattr(module, name)) for name in names)


@pytest.mark.rule("CLI-1", "PKG-1")
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="written with 3.11; enums have another signature later")
def test_the_reference_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names, errors and commands in docs/reference/ are those of the code."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT)])
    try:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    except SystemExit as end:
        pytest.fail(str(end))


@pytest.mark.rule("PKG-1")
def test_every_public_name_is_in_the_list() -> None:
    """The list of what can be imported has every name of every front door."""
    page = (ROOT / "docs" / "reference" / "python.md").read_text("utf-8")
    parts = {part.partition("`")[0]: part for part in page.split("\n## `")[1:]}
    assert parts.keys() == listed().keys()
    assert not [(door, name) for door, names in listed().items() for name in names if f"`{name}`" not in parts[door]]


@pytest.mark.slow
@pytest.mark.rule("PKG-1")
def test_every_public_name_has_its_parameters(site: Path) -> None:
    """On the site, each class and function of a front door has an entry with all its parameters; constants a row."""
    found = entries(site)
    missing = []
    for door, name, thing in public():
        if not inspect.isclass(thing) and not inspect.isroutine(thing):
            missing += [] if f"`{name}`" in (site / f"{door}.md").read_text("utf-8") else [name]
            continue
        entry = found.get(f"{door}:{name}", "")
        missing += [] if entry else [f"{door}.{name}"]
        if "\nAlso in [" in entry or getattr(thing, "_is_protocol", False) or issubclass_of(thing, (Exception, Enum)):
            continue
        missing += [f"{door}.{name}({one})" for one in names_of(thing) if not re.search(rf"\b{one}\b", entry)]
    assert missing == []


@pytest.mark.slow
@pytest.mark.rule("PKG-1")
def test_every_parameter_has_a_sentence(site: Path) -> None:
    """On the site, each parameter of a public name has a sentence, and each sentence that many share is in use."""
    tables = [(heading, table) for heading, entry in entries(site).items() for table in TABLE.findall(entry)]
    rows = [(heading, *row) for heading, table in tables for row in FIELD.findall(table)]
    assert len(rows) > 2_000
    assert [row for row in rows if not row[2].strip()] == []
    meanings = {row[2].replace("\\|", "|") for row in rows}
    shared = tomllib.loads((SCRIPT.parent / "parameters.toml").read_text("utf-8"))
    assert [key for key, text in shared.items() if not key.startswith("->") and text not in meanings] == []


@pytest.mark.slow
@pytest.mark.rule("PKG-1")
def test_every_return_value_has_a_sentence(site: Path) -> None:
    """On the site, each function of a front door says what it returns, in its text or behind the type."""
    found = entries(site)
    silent = [heading for heading, entry in found.items() if re.search(r"^\*\*Returns\*\* .*`$", entry, re.MULTILINE)]
    assert len(silent) > 100
    assert [
        one for one in silent if not re.search(r"\b([Rr]eturn|[Yy]ield)s? ", found[one].split("**Returns**")[0])
    ] == []


@pytest.mark.slow
@pytest.mark.rule("PKG-1")
def test_no_signature_is_left_without_its_table(site: Path) -> None:
    """A table of parameters has a row for each parameter: a meaning in one place never hides that others lack one."""
    bare = []
    for heading, entry in entries(site).items():
        signature = re.search(r"```python\n(?:await )?\w+\((.*?)\n?\)(?: -> .*)?\n```", entry, re.DOTALL)
        if signature and signature[1].strip(" ,*/…") and "| parameter |" not in entry:
            bare.append(heading)
    assert bare == []


def issubclass_of(thing: Any, kind: type | tuple[type, ...]) -> bool:
    """Return True for a class that is a kind of `kind`."""
    return inspect.isclass(thing) and issubclass(thing, kind)


def names_of(thing: Any) -> list[str]:
    """Return the names of the parameters of a function or class."""
    return [name for name in inspect.signature(thing).parameters if name not in ("self", "options")]


@pytest.mark.slow
@pytest.mark.rule("REG-1")
def test_the_ways_to_register_are_documented(site: Path) -> None:
    """The reference explains every way to register, each of its options, and the errors it raises."""
    found = entries(site)
    for way in WAYS:
        entry = found[f"amplifier_hooks:HookRegistry.{way}"]
        own = {*inspect.signature(getattr(HookRegistry, way)).parameters} - {"self", "options"}
        options = HookOptions.__annotations__ if way != "add" else {}
        explained = {name for name, meaning in FIELD.findall(entry) if meaning.strip()}
        assert {*own, *options} - explained == set(), way
        assert "**Raises**" in entry, way
        assert "**Returns**" in entry, way


@pytest.mark.slow
def test_the_options_of_a_session_are_documented(site: Path) -> None:
    """The reference explains each option of a session."""
    table = entries(site)["amplifier_hooks:SessionCoordinator"]
    rows = dict(FIELD.findall(table))
    assert [name for name in SessionOptions.__annotations__ if not rows.get(name, "").strip()] == []


@pytest.mark.slow
@pytest.mark.rule("PKG-1")
def test_errors_are_documented() -> None:
    """The docstring of each public function, and of its class, names every error that its body raises."""
    silent = []
    for door, name, thing in public():
        if not inspect.isclass(thing) and not inspect.isfunction(thing):
            continue
        for part in inspect.getmro(thing) if inspect.isclass(thing) else (thing,):
            if part.__module__.partition(".")[0] not in ("amplifier_hooks", "approval_backends"):
                continue
            members = vars(part).items() if inspect.isclass(part) else [(name, part)]
            for member, value in members:
                function = inspect.unwrap(getattr(value, "__func__", value))
                if not inspect.isfunction(function) or member.startswith("_") or not function.__doc__:
                    continue
                told = function.__doc__ + (inspect.getdoc(thing) or "") + (inspect.getdoc(part) or "")
                silent += [f"{door}.{name}.{member}: {error}" for error in raised_in(function) if error not in told]
    assert sorted({*silent}) == []


def raised_in(function: Any) -> set[str]:
    """Return the names of the errors that the code of a function raises itself."""
    tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(function)) if function.__qualname__ else "")
    found = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    called = [one.func for one in found if isinstance(one, ast.Call)]
    return {one.id for one in called if isinstance(one, ast.Name) and one.id[0].isupper()}
