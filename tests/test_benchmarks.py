"""The benchmarks run; their measurements are for RESULTS.md, and never for a test."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import benchmarks
from benchmarks.rounds import Samples
from benchmarks.table import number, replaced, verdict

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("arguments", [*([name] for name in benchmarks()), ["dispatch", "--profile"]], ids=" ".join)
def test_runs(arguments: list[str]) -> None:
    """Each benchmark runs to the end in its tiny mode and prints a table."""
    command = [sys.executable, "-m", "benchmarks", *arguments, "--quick"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "| ---" in run.stdout


def test_another_loop_is_named() -> None:
    """With an option a benchmark runs in the loops of uvloop, and its section says so."""
    pytest.importorskip("uvloop", reason="uvloop is not installed: uv sync --group benchmarks")
    command = [sys.executable, "-m", "benchmarks", "tokens", "--quick", "--uvloop"]
    assert ", uvloop\n" in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_lists() -> None:
    """Without a name the command lists the benchmarks; an unknown name is an error."""
    command = [sys.executable, "-m", "benchmarks"]
    assert "dispatch" in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert subprocess.run([*command, "nonsense"], cwd=ROOT, capture_output=True, check=False).returncode


def test_ratio_is_within_rounds() -> None:
    """A round in which everything was slow changes no ratio, and neither does a round in which one side was."""
    base, own = Samples([1.0, 10.0, 1.0, 1.0, 1.0]), Samples([2.0, 20.0, 9.0, 2.0, 2.0])
    assert own.ratio(base) == 2.0


def test_section_is_replaced() -> None:
    """A section is appended once, and from then on only what stands between its markers changes."""
    text = replaced(replaced("# Results\n", "one", "old"), "two", "other")
    assert replaced(text, "one", "new") == text.replace("old", "new")


def test_figures() -> None:
    """Figures have about three digits; a target that is reached exactly is met."""
    assert [number(value) for value in (0.123, 12.34, 1234.5, None)] == ["0.12", "12.3", "1,234", "–"]
    assert verdict(2.0, 2.0) == ("≤ 2", "met")
    assert verdict(2.01, 2.0) == ("≤ 2", "**missed**")
