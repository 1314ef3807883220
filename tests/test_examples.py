"""Every example runs and prints the output that its docstring states."""

import ast
import asyncio
import importlib.util
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from inspect import cleandoc
from io import StringIO
from pathlib import Path
from textwrap import dedent

import pytest

from amplifier_hooks.runs import RunHooks, load_agents
from amplifier_hooks.storage.postgres import PostgresDatabase
from tests.conftest import THOROUGH, require_installed
from tests.stores import DSN, schema, server

FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
MARKS: Mapping[str, pytest.MarkDecorator | tuple[()]] = {
    "with_agent_hooks": (),
    "with_claude_agent_sdk": pytest.mark.agents,
}
ADAPTERS = [
    pytest.param(path, id=path.stem, marks=MARKS.get(path.stem, pytest.mark.slow))
    for path in sorted(FOLDER.glob("adapters/*.py"))
]
"""Examples that need an SDK; most SDKs are slow to import."""


MODELS = ("ANTHROPIC_", "OPENAI_")
"""Variables that would make an example call a paid model."""


def promised(example: Path) -> str:
    """Read what follows the line `Prints:` in the docstring of an example."""
    docstring = cleandoc(ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or "")
    _, found, output = f"\n{docstring}".partition("\nPrints:\n")
    assert found, f"{example.name} does not say what it prints"
    return dedent(output).strip()


def plays(example: Path, folder: Path, **environment: str) -> None:
    """Run an example in an empty folder without a keyboard, and compare its output."""
    run = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        check=False,
        cwd=folder,
        env={**{name: one for name, one in os.environ.items() if not name.startswith(MODELS)}, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    require_installed(run.stderr)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == promised(example)


def plays_here(example: Path, folder: Path) -> None:
    """Run an example in this process, which has imported its parts already, and compare its output.

    In CI, and where it starts itself again, an example has a process of its own.
    """
    if THOROUGH or "subprocess" in example.read_text(encoding="utf-8"):
        plays(example, folder)
        return
    told, code = StringIO(), None
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(told):
        for name in [name for name in os.environ if name.startswith(MODELS)]:
            patch.delenv(name)
        patch.chdir(folder)
        patch.syspath_prepend(example.parent)
        patch.setattr(sys, "argv", [os.fspath(example)])
        patch.setattr(sys, "stdin", StringIO())
        try:
            runpy.run_path(os.fspath(example), run_name="__main__")
        except SystemExit as end:
            code = end.code
        except ImportError as problem:
            require_installed(str(problem))
            raise
    assert not code
    assert told.getvalue().strip() == promised(example)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.relative_to(FOLDER).as_posix())
def test_example(example: Path, tmp_path: Path) -> None:
    """An example prints the output that its docstring promises."""
    plays_here(example, tmp_path)


def test_feedback_loop_without_ruff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ruff the feedback loop ends at once, and names the command that installs ruff."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(SystemExit, match="pip install ruff"):
        runpy.run_path(os.fspath(FOLDER / "feedback_loop.py"), run_name="__main__")


@pytest.mark.rule("TEN-1", "API-1", "REG-2")
@pytest.mark.parametrize("example", ["from_files", "over_http"])
def test_tenants(example: str, tmp_path: Path) -> None:
    """The hooks of two tenants and of the operator run in the stated order, and a failure of one affects no other."""
    plays(FOLDER / "tenants" / f"{example}.py", tmp_path)


@pytest.mark.rule("RUN-1", "RUN-2", "RUN-5", "RUN-6", "RUN-9", "RUN-11", "RUN-12")
def test_runs(tmp_path: Path) -> None:
    """A validator, an agent and an audit agent chain around runs on one runner: one run is enriched, one is blocked."""
    tmp_path.chmod(0o700)
    plays(FOLDER / "runs" / "chain.py", tmp_path)
    assert RunHooks().problems(load_agents(FOLDER / "runs" / "blueprints")) == []


@pytest.mark.slow
@pytest.mark.rule("RUN-23")
def test_runs_in_dbos(tmp_path: Path) -> None:
    """Hooks of runs are two steps of a DBOS workflow: one run is enriched and seen to its end, one is blocked."""
    plays(FOLDER / "runs" / "in_dbos.py", tmp_path)


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.rule("RUN-23")
async def test_runs_in_procrastinate(tmp_path: Path) -> None:
    """Hooks of runs stand around the work of a procrastinate task: one run is enriched, one is blocked."""
    await server()
    async with schema() as name, PostgresDatabase(DSN, schema=name):  # it makes the schema
        address = f"{DSN}?options=-csearch_path%3D{name}"
        await asyncio.to_thread(plays, FOLDER / "runs" / "in_procrastinate.py", tmp_path, DATABASE_URL=address)


@pytest.mark.rule("DIA-3")
@pytest.mark.parametrize("example", ADAPTERS)
async def test_adoption(example: Path, tmp_path: Path) -> None:
    """The few lines that put an SDK's agent inside a session give the promised output."""
    if example.stem != "with_claude_agent_sdk":
        plays(example, tmp_path)
        return
    from tests.scripted_models import Say, Use, serving

    script = [Use("mcp__files__write_file", {"path": path}) for path in ("notes.txt", "production.cfg")]
    async with serving(*script, Say("I wrote the notes, and left production alone.")) as model:
        variables = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "x", "HOME": str(tmp_path)}
        quiet = dict.fromkeys(("DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER"), "1")
        await asyncio.to_thread(plays, example, tmp_path, **variables, **quiet)
