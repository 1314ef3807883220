"""Promises of the distribution before any of its code runs."""

import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import amplifier_hooks
from amplifier_hooks.errors import EXTRAS

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = ["amplifier_hooks", "approval_backends"]

PURE = [
    "amplifier_hooks.act",
    "amplifier_hooks.injection.budget",
    "amplifier_hooks.record.line",
    "amplifier_hooks.events",
    "amplifier_hooks.text.matching",
    "amplifier_hooks.dispatch.merge",
    "amplifier_hooks.provenance",
    "amplifier_hooks.result",
    "amplifier_hooks.runs.run_states",
    "approval_backends.card.changes",
    "approval_backends.card.contents",
    "approval_backends.lifecycle",
    "approval_backends.gateway.wire",
]
HEAVY = [
    "amplifier_hooks.payloads",
    "asyncpg",
    "fastapi",
    "prompt_toolkit",
    "structlog",
    "tiktoken",
    "typer",
    "websockets",
]
UNHURRIED = ["attr", "attrs", "difflib", "importlib.resources", "lzma", "pathlib", "tempfile"]
"""Libraries that take long to load, for features that many a process never uses."""
# Paths of one machine and hosts of one mirror: here, and wherever the next checkout lies.
MACHINE = re.compile(
    "|".join(
        [
            r"/(?:root|work|workspace)/",
            r"(?:files\.pythonhosted|pypi)\.org",
            r"registry\.(?:npmjs|yarnpkg)\.\w+",
            *(re.escape(str(path)) for path in (ROOT, Path.home()) if path != Path(path.anchor)),
        ]
    )
)


@pytest.mark.rule("PKG-1")
def test_version() -> None:
    """The package, its metadata and pyproject.toml state one version."""
    assert amplifier_hooks.__version__ == PYPROJECT["project"]["version"]
    assert importlib.metadata.version("amplifier-hooks") == PYPROJECT["project"]["version"]


@pytest.mark.rule("PKG-1")
@pytest.mark.parametrize("package", PACKAGES)
def test_typed(package: str) -> None:
    """Both packages tell type checkers that they are typed."""
    assert files(package).joinpath("py.typed").is_file()


@pytest.mark.rule("PKG-1")
@pytest.mark.parametrize("package", PACKAGES)
def test_light_import(package: str) -> None:
    """Everything at a front door can be imported without loading a heavy library."""
    program = f"from {package} import *\nimport sys\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert set(run.stdout.split()).isdisjoint(HEAVY)


@pytest.mark.rule("PKG-1", "PKG-5")
def test_quick_import() -> None:
    """A registry and a session load no module that only counting, warnings and files need, and no attrs."""
    program = (
        "import sys\nbefore = set(sys.modules)\n"
        "from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator\n"
        "print(*set(sys.modules) - before)"
    )
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert set(run.stdout.split()).isdisjoint(UNHURRIED)


@pytest.mark.rule("PKG-1")
def test_every_extra_is_known() -> None:
    """The modules that come with an extra name every extra that there is, and no other."""
    assert set(EXTRAS.values()) == PYPROJECT["project"]["optional-dependencies"].keys() - {"all"}


def test_no_machine_in_files() -> None:
    """No file to be committed names a path of one machine or the host of a registry."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    found = [
        f"{name}: {match.group()}"
        for name in filter(None, listing.stdout.split("\0"))
        if (ROOT / name).is_file()
        for match in MACHINE.finditer((ROOT / name).read_text(encoding="utf-8", errors="replace"))
    ]
    assert not found


def test_every_pure_module_is_under_contract() -> None:
    """A module that was declared pure is checked for it as soon as it exists."""
    contracts = {contract["id"]: contract for contract in PYPROJECT["tool"]["importlinter"]["contracts"]}
    there = [name for name in PURE if importlib.util.find_spec(name)]
    assert contracts["pure"]["source_modules"] == there


def test_whole_tree_is_pinned() -> None:
    """Every direct dependency, of every extra and group, has its version in the list of pins."""
    groups = [
        PYPROJECT["project"]["dependencies"],
        *PYPROJECT["project"]["optional-dependencies"].values(),
        *PYPROJECT["dependency-groups"].values(),
    ]
    named = {
        re.split(r"[^\w-]", requirement, maxsplit=1)[0]
        for group in groups
        for requirement in group
        if isinstance(requirement, str)
    }
    pinned = {pin.partition("==")[0] for pin in PYPROJECT["tool"]["uv"]["constraint-dependencies"]}
    assert named - {"amplifier-hooks"} <= pinned


@pytest.mark.rule("PKG-5")
@pytest.mark.parametrize("package", PACKAGES)
def test_one_kind_of_value_in_a_file(package: str) -> None:
    """A file has frozen attrs classes or msgspec structs, not both."""
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / package).rglob("*.py")}
    both = [str(path) for path, text in sources.items() if "\n@frozen" in text and "(msgspec.Struct" in text]
    assert both == []


@pytest.mark.rule("PKG-5")
def test_one_engine_per_purpose() -> None:
    """Patterns of users go through the engine with a time limit, or the linear one; both have one door."""
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]

    def doors(used: str) -> set[str]:
        return {path.relative_to(ROOT).as_posix() for path in sources if used in path.read_text(encoding="utf-8")}

    assert doors("regex_engine=") == {"amplifier_hooks/text/matching.py"}
