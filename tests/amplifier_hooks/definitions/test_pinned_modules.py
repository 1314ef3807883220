"""Modules of a project that a command or a blueprint names stay as they were trusted."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from amplifier_hooks.definitions import TrustStore
from amplifier_hooks.definitions.change_requests import ChangeRequests
from amplifier_hooks.definitions.pinned_modules import PinnedModules
from amplifier_hooks.definitions.private_copies import ProjectModules
from amplifier_hooks.errors import HookUnavailable
from amplifier_hooks.testing import CollectingAudit
from approval_backends.backend import StoreApprovals
from approval_backends.broker import Broker
from approval_backends.lifecycle import Decider
from approval_backends.stores.memory import MemoryStore
from tests.stores import until

pytestmark = pytest.mark.rule("TRU-10")

ANN = Decider(name="ann", channel="page")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with two modules."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "guards.py").write_text("from words import WORD\n")
    (tmp_path / "project" / "words.py").write_text("WORD = 'old'\n")
    return tmp_path / "project"


def pinned(project: Path, *names: str, looks: bool = False) -> PinnedModules:
    """Name modules as a new process does."""
    trust = TrustStore(project.parent / "state" / "trust.json")
    return PinnedModules(project / "guards:registry", names or ("guards:",), project, trust, looks=looks)


def word(modules: ProjectModules) -> Any:
    """Import the modules, and return a value of them."""
    return vars(modules.load("guards"))["WORD"]


def test_a_restart_takes_over_no_change_of_modules(project: Path) -> None:
    """The first naming trusts the modules; later ones run what was trusted, whatever the project has, and say so."""
    assert (word(pinned(project).modules), pinned(project).problem) == ("old", "")
    (project / "words.py").write_text("WORD = 'new'\n")
    later = pinned(project)
    assert "is not trusted as it is now" in later.problem
    assert (later.waiting is not None, word(later.modules)) == (True, "old")
    (project / "guards.py").unlink()
    assert word(pinned(project).modules) == "old"
    (project / "guards.py").write_text("from words import WORD\n")
    pinned(project).accept()
    assert (word(pinned(project).modules), pinned(project).waiting) == ("new", None)


def test_a_new_name_waits(project: Path) -> None:
    """A module that is named later is not trusted by that, and is not found among the trusted ones."""
    pinned(project)
    (project / "evil.py").write_text("raise SystemExit(7)\n")
    later = pinned(project, "guards:", "evil:")
    assert later.waiting is not None
    with pytest.raises(ModuleNotFoundError, match="not among the trusted files"):
        later.modules.load("evil")


def test_looking_trusts_nothing(project: Path) -> None:
    """A look at modules that were never trusted leaves them untrusted; installed modules are never among them."""
    assert pinned(project, looks=True).waiting is not None
    assert pinned(project, looks=True).waiting is not None
    installed = pinned(project, "attrs:", "json:")
    assert (installed.waiting, installed.trust.trusted_files()) == (None, frozenset())


def test_a_copy_that_is_gone_imports_nothing_else(project: Path) -> None:
    """Where a private copy was removed or changed, the module is not imported, from the project neither."""
    pinned(project)
    for path in (project.parent / "state" / "trusted").rglob("guards.py"):
        path.chmod(0o600)
        path.write_text("WORD = 'evil'\n")
    with pytest.raises(HookUnavailable, match="is not as it was trusted"):
        word(pinned(project).modules)


@pytest.mark.parametrize("option", [0, 1])
async def test_approvers_decide_about_modules(option: int, project: Path) -> None:
    """A change while the process runs is asked about with its text, and the answer is in force from the next start."""
    running, audit = pinned(project), CollectingAudit()

    async def sleep(_seconds: float) -> None:
        await asyncio.sleep(0)  # a turn of the loop

    assert word(running.modules) == "old"
    async with Broker(MemoryStore()) as broker:
        requests = ChangeRequests(running, running.trust, StoreApprovals(broker), audit)
        tasks = [asyncio.create_task(running.watch(sleep=sleep)), asyncio.create_task(requests.follow(sleep))]
        (project / "words.py").write_text("WORD = 'new'\n")
        async with asyncio.timeout(60):
            while not (open_now := await broker.pending(ANN)):  # noqa: ASYNC110  # a store has no event
                await asyncio.sleep(0)  # a turn of the loop
        request = open_now[0].request
        assert request.prompt == "Put the changed modules of guards:registry in force from the next start on?"
        assert (request.arguments["old_string"], request.arguments["new_string"]) == (
            "WORD = 'old'\n",
            "WORD = 'new'\n",
        )
        await broker.decide(request.id, request.digest, request.options[option].id, ANN)
        await until(lambda: bool({"tool.done", "tool.denied"} & set(audit.kinds)))
        if option == 0:
            await until(lambda: running.waiting is None)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert word(running.modules) == "old"
    assert word(pinned(project).modules) == ("new", "old")[option]
