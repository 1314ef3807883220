"""Tests that need a missing program or package are skipped, or fail where it is required."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WITHOUT_EXTRAS = """
import sys
from importlib.machinery import PathFinder

from amplifier_hooks.errors import EXTRAS

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        extra = EXTRAS.get(name.partition(".")[0], "agent-hooks")  # which brings a plugin of pytest
        return super().find_spec(name, path, target) if extra == "agent-hooks" else None

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
import pytest
sys.exit(pytest.main(["-p", "no:cacheprovider", *sys.argv[1:]]))
"""
ADAPTERS = """
import sys
from importlib import import_module

from amplifier_hooks.errors import EXTRAS, MissingExtra

for name in EXTRAS:
    sys.modules[name] = None
for extra in sys.argv[1:]:
    try:
        import_module(f"amplifier_hooks.adapters.{extra.replace('-', '_')}")
    except ImportError as error:
        assert isinstance(error, MissingExtra), repr(error)
        print(error)
"""
IMPORTS = "tests/end_to_end/test_fifty_calls.py"
"""A test file that imports a module of an extra."""
CALLS = "tests/amplifier_hooks/library/parts/test_ready_made.py::test_entry_points"
"""A test that calls for an extra."""


def run_without_extras(*arguments: str, required: str = "") -> tuple[int, str]:
    """Run pytest where no extra is installed; return its exit status and output."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, *arguments],
        check=False,
        cwd=ROOT,
        env={**os.environ, "AMPLIFIER_REQUIRE": required},
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.returncode, done.stdout


@pytest.mark.rule("PKG-1")
@pytest.mark.slow
def test_collection_without_extras() -> None:
    """Every test can be collected where no extra is installed."""
    status, output = run_without_extras("-q", "--collect-only", "-m", "")
    assert status == 0, output[-2_000:]
    assert "server is not installed: uv sync --extra server" in output


@pytest.mark.rule("PKG-1")
def test_skipped_or_failed() -> None:
    """A test that needs a missing extra is skipped with the remedy; where any part is required, it fails."""
    status, output = run_without_extras(IMPORTS, CALLS)
    assert (status, " 2 skipped in" in output) == (0, True), output
    assert "server is not installed: uv sync --extra server" in output
    status, output = run_without_extras(IMPORTS, CALLS, "--continue-on-collection-errors", required="chromium")
    assert (status, " 1 failed, 1 error in" in output) == (1, True), output
    assert output.count("AMPLIFIER_REQUIRE is chromium, but server is not installed") >= 2


@pytest.mark.rule("PKG-1")
def test_an_adapter_names_its_extra() -> None:
    """Importing an adapter whose SDK is not installed raises an `ImportError` with the command that installs it."""
    extras = ["agent-hooks", "claude-agent-sdk", "langchain", "openai-agents", "pydantic-ai"]
    done = subprocess.run([sys.executable, "-c", ADAPTERS, *extras], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.splitlines() == [
        f"this adapter needs the extra '{extra}': pip install 'amplifier-hooks[{extra}]'" for extra in extras
    ]
