import asyncio
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amplifier_hooks import HookRegistry, SessionCoordinator
from amplifier_hooks.definitions import DefinedHooks, TrustStore, WatchedFiles, load_files
from amplifier_hooks.definitions.change_requests import ChangeRequests
from amplifier_hooks.definitions.private_copies import ProjectModules
from amplifier_hooks.definitions.reload import UNTRUSTED, PinnedModules
from amplifier_hooks.errors import HookUnavailable
from amplifier_hooks.testing import CollectingAudit, ManualClock
from approval_backends.backend import StoreApprovals
from approval_backends.broker import Broker
from approval_backends.lifecycle import Decider
from approval_backends.stores.memory import MemoryStore
from tests.stores import until

HOOK = "- {name: %s, event_type: tool:pre, handler_ref: 'house:say', priority: 10}\n"


def text(*names: str) -> str:
    """Write a file with hooks of these names."""
    return "version: 1\nhooks:\n" + "".join(HOOK % name for name in names)


@pytest.fixture
def files(house: ModuleType, tmp_path: Path) -> WatchedFiles:
    """Watch a file that is not there yet."""
    house.say = lambda event, data: None  # type: ignore[attr-defined]  # a module of this test
    hooks = DefinedHooks(HookRegistry(), environment={})
    return WatchedFiles(tmp_path / "amplifier-hooks.yaml", hooks, clock=ManualClock(), environment={})


def names(files: WatchedFiles) -> list[str]:
    """Name what is in force."""
    return [hook.name for hook in files.hooks.registry.hooks()]


class Steps:
    """A sleep that ends when it is told to, once everything else has had its turn."""

    def __init__(self) -> None:
        self.asleep = asyncio.Event()
        self.wake = asyncio.Event()

    async def sleep(self, _seconds: float) -> None:
        """Wait to be woken."""
        self.asleep.set()
        await self.wake.wait()
        self.wake.clear()

    async def step(self, times: int = 1) -> None:
        """Let the watcher look at its files, so many times."""
        for _ in range(times):
            await asyncio.wait_for(self.asleep.wait(), 60)
            self.asleep.clear()
            self.wake.set()
        await asyncio.wait_for(self.asleep.wait(), 60)


@pytest.mark.rule("DEF-1")
def test_a_bad_file_leaves_the_last_good_set_in_force(files: WatchedFiles) -> None:
    """A bad file changes nothing, and the state has its problem and since when; the next good set ends that."""
    clock: Any = files.clock
    files.path.write_text(text("a", "b"))
    assert str(files.refresh()) == "2 added, 0 changed, 0 removed"
    first = files.state
    assert (first.since, first.problem) == (clock.now(), "")
    clock.advance(10)
    for bad, line in ((text("a") + "- {", 4), (text("a", "a"), 4), (text("c").replace("house:say", "house:absent"), 3)):
        files.path.write_text(bad)
        assert files.refresh() is None
        assert names(files) == ["a", "b"]
        assert files.state.problem.startswith(f"{files.path.resolve()}:{line}: ")
        assert (files.state.since, files.state.digest, files.state.problem_since) == (
            first.since,
            first.digest,
            clock.now(),
        )
    files.path.unlink()
    files.refresh()
    assert names(files) == ["a", "b"]
    assert "No such file" in files.state.problem
    files.path.write_text(text("a", "b"))
    assert str(files.refresh()) == "0 added, 0 changed, 0 removed"
    assert files.state == first


@pytest.mark.rule("DEF-1", "AUD-1")
async def test_changes_are_on_record(files: WatchedFiles) -> None:
    """A session's record has what became of definitions, and that a file could not be used."""
    audit = CollectingAudit()
    async with SessionCoordinator(hooks=files.hooks.registry, audit=audit) as session:
        files.path.write_text(text("a"))
        files.refresh()
        files.path.write_text("nothing")
        files.refresh()
        files.refresh()
        await session.emit("prompt:submit", {"prompt": "go"})
    changed = audit.facts("registry.changed")
    assert [(one["what"], one["hook"]) for one in changed] == [
        ("registered", "a"), ("defined", "a"), ("broken", "amplifier-hooks.yaml"),
    ]  # fmt: skip
    assert changed[1]["detail"].startswith("nothing → ")


@pytest.mark.rule("DEF-1")
async def test_files_are_followed(files: WatchedFiles) -> None:
    """A change is in force after two looks that saw the same, a new file of the folder as well; then it rests."""
    steps = Steps()
    files.path.write_text(text("a"))
    files.refresh()
    watching = asyncio.create_task(files.watch(sleep=steps.sleep))
    await steps.step(2)
    assert names(files) == ["a"]
    folder = files.path.parent / "hook-definitions"
    folder.mkdir()
    (folder / "more.json").write_text('{"version": 1, "hooks": []}')
    files.path.write_text(text("a", "b"))
    await steps.step()
    assert names(files) == ["a"]
    await steps.step()
    assert names(files) == ["a", "b"]
    (folder / "more.json").write_text(
        '{"version": 1, "hooks": [{"name": "c", "event_type": "tool:pre", "handler_ref": "house:say"}]}'
    )
    await steps.step(2)
    assert names(files) == ["a", "b", "c"]
    files.path.write_text("broken")
    await steps.step(2)
    problem = files.state
    await steps.step(2)
    assert files.state is problem
    assert names(files) == ["a", "b", "c"]
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert names(files) == ["a", "b", "c"]


@pytest.mark.rule("DEF-1")
async def test_a_file_that_was_missing_is_waited_for(files: WatchedFiles) -> None:
    """A file that a `$ref` names and that comes later, wherever it is, puts the set in force without another change."""
    shared = files.path.parent / "shared"
    shared.mkdir()
    files.path.write_text('version: 1\nhooks:\n- {name: a, $ref: "shared/base.yaml#/definitions/say"}\n')
    files.refresh()
    assert "base.yaml" in files.state.problem
    steps = Steps()
    watching = asyncio.create_task(files.watch(sleep=steps.sleep))
    await steps.step(2)
    (shared / "base.yaml").write_text(
        'version: 1\ndefinitions: {say: {event_type: tool:pre, handler_ref: "house:say"}}\n'
    )
    await steps.step(2)
    assert (names(files), files.state.problem) == (["a"], "")
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


@pytest.mark.rule("DEF-1")
async def test_a_file_is_read_again_once_its_mode_was_mended(files: WatchedFiles) -> None:
    """A file that every user may write to is not used; a change of its mode alone is enough to use it."""
    files.path.write_text(text("a"))
    files.path.chmod(0o666)
    files.refresh()
    assert "chmod o-w" in files.state.problem
    steps = Steps()
    watching = asyncio.create_task(files.watch(sleep=steps.sleep))
    await steps.step(2)
    files.path.chmod(0o644)
    await steps.step(2)
    assert (names(files), files.state.problem) == (["a"], "")
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


@pytest.mark.rule("DEF-1")
async def test_a_folder_is_followed(files: WatchedFiles, tmp_path: Path) -> None:
    """Where the path is a folder its files are the set: one that is new, changed or gone counts after two looks."""
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "a.yaml").write_text(text("a"))
    watched = WatchedFiles(folder, files.hooks, clock=ManualClock(), environment={})
    assert str(watched.refresh()) == "1 added, 0 changed, 0 removed"
    steps = Steps()
    watching = asyncio.create_task(watched.watch(sleep=steps.sleep))
    (folder / "b.yaml").write_text(text("b"))
    (folder / ".hidden.yaml").write_text(text("hidden"))
    (folder / "notes.txt").write_text("no definitions")
    await steps.step()
    assert names(watched) == ["a"]
    await steps.step()
    assert names(watched) == ["a", "b"]
    (folder / "b.yaml").write_text(text("b", "c"))
    await steps.step(2)
    assert names(watched) == ["a", "b", "c"]
    (folder / "c.json").write_text("{")
    await steps.step(2)
    assert names(watched) == ["a", "b", "c"]
    assert watched.state.problem.startswith(f"{folder / 'c.json'}:1: ")
    (folder / "c.json").unlink()
    (folder / "a.yaml").unlink()
    await steps.step(2)
    assert (names(watched), watched.state.problem) == (["b", "c"], "")
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    await steps.step(2)
    assert names(watched) == ["b", "c"]
    assert "No such file" in watched.state.problem
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


@pytest.mark.rule("DEF-1")
async def test_a_file_that_is_being_written_is_left_alone(files: WatchedFiles) -> None:
    """Whatever part of a file has arrived, nothing of it counts while more arrives with every look."""
    steps = Steps()
    files.path.write_text(text("a"))
    files.refresh()
    watching = asyncio.create_task(files.watch(sleep=steps.sleep))
    await steps.step()
    whole = text("one", "two", "three")
    for end in range(0, len(whole), 20):
        files.path.write_text(whole[:end])
        await steps.step()
        assert names(files) == ["a"]
    files.path.write_text(whole)
    await steps.step(2)
    assert names(files) == ["one", "two", "three"]
    watching.cancel()


@pytest.mark.rule("DEF-1")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=40)
@given(cut=st.integers(0, 160), kept=st.binary(max_size=8))
def test_no_file_breaks_what_is_in_force(files: WatchedFiles, cut: int, kept: bytes) -> None:
    """Of any bytes at all a set is in force as a whole, or the one before it is."""
    before = names(files)
    files.path.write_bytes(text("one", "two").encode()[:cut] + kept)
    replaced = files.refresh()
    if replaced is None:
        assert names(files) == before
        assert files.state.problem
    else:
        found = load_files(files.path, environment={})
        assert names(files) == [one.name for one in found.definitions]
        assert not files.state.problem


@pytest.fixture
def trust(files: WatchedFiles, tmp_path_factory: pytest.TempPathFactory) -> TrustStore:
    """Watch the files as those of a project, with a store that trusts nothing yet."""
    files.trust = TrustStore(tmp_path_factory.mktemp("home") / "trust.json")
    return files.trust


def accept(files: WatchedFiles) -> None:
    """Trust the files as they are now."""
    assert files.trust is not None
    files.refresh()
    assert files.waiting is not None
    files.trust.trust(files.source, [files.waiting])


@pytest.mark.rule("TRU-2")
def test_a_projects_hooks_run_only_when_trusted(files: WatchedFiles, trust: TrustStore) -> None:
    """Nothing a project's files name is imported before they were trusted; any change, scripts included, ends that."""
    project = files.path.parent
    imported = project / "imported"
    (project / "own_hooks.py").write_text(f"open({str(imported)!r}, 'w').close()\ndef say(event, data): ...\n")
    script = project / "guard.sh"
    script.write_text("exit 0\n")
    files.path.write_text(
        text("a").replace("house:", "own_hooks:")
        + "- {name: b, event_type: tool:pre, handler_ref: command, config: {argv: [sh, guard.sh]}}\n"
    )
    files.refresh()
    assert (names(files), files.state.trusted, files.state.since) == ([], False, None)
    assert "is not trusted" in files.state.problem
    assert not imported.exists()
    accept(files)
    files.refresh()
    assert (names(files), files.state.trusted) == (["a", "b"], True)
    assert imported.exists()
    for changed in (script, project / "own_hooks.py", files.path):
        changed.write_text(changed.read_text() + "# changed\n")
        files.refresh()
        assert (sorted(names(files)), files.state.trusted) == (["a", "b"], False), changed
        accept(files)
        files.refresh()
        assert files.state.trusted
    assert trust.trusted_files() > {str(script), str(project / "own_hooks.py"), str(files.path)}


@pytest.mark.rule("TRU-5", "TRU-7")
async def test_the_trusted_script_runs_until_its_change_is_trusted(files: WatchedFiles, trust: TrustStore) -> None:
    """A changed script leaves the trusted one in force, from its copy; once it is trusted, the next look takes it."""
    del trust
    script, ran = files.path.parent / "guard.sh", files.path.parent / "ran"
    script.write_text(f"echo one > {ran}\n")
    command = "handler_ref: command, config: {argv: [sh, guard.sh]}"
    files.path.write_text(f"version: 1\nhooks:\n- {{name: a, event_type: tool:pre, priority: 10, {command}}}\n")

    async def emit() -> str:
        ran.unlink(missing_ok=True)
        assert not (await files.hooks.registry.emit("tool:pre", {"tool_name": "x", "session_id": "s"})).denied
        return ran.read_text().strip()

    accept(files)
    steps = Steps()
    files.refresh()
    watching = asyncio.create_task(files.watch(sleep=steps.sleep))
    assert await emit() == "one"
    script.write_text(f"echo two > {ran}\n")
    assert await emit() == "one"
    await steps.step(3)
    assert UNTRUSTED in files.state.problem
    assert await emit() == "one"
    assert files.trust is not None
    assert files.waiting is not None
    files.trust.trust(files.source, [files.waiting])
    await steps.step(1)
    assert not files.state.problem
    assert await emit() == "two"
    watching.cancel()


@pytest.mark.rule("TRU-7")
@pytest.mark.parametrize("change", ["an edit", "no file", "a link"])
async def test_a_restart_takes_over_no_change(files: WatchedFiles, trust: TrustStore, change: str) -> None:
    """After a restart the trusted set is in force from its copies, whatever the project has now; a problem is named."""
    project = files.path.parent
    (project / "own_hooks.py").write_text(
        "from amplifier_hooks import HookResult\ndef say(event, data): return HookResult.deny('old')\n"
    )
    files.path.write_text(text("a").replace("house:", "own_hooks:"))
    accept(files)
    (project / "own_hooks.py").write_text("def say(event, data): return None\n")
    if change == "an edit":
        files.path.write_text("version: 1\n")
    else:
        files.path.unlink()
    if change == "a link":
        (project / "other.yaml").write_text("version: 1\n")
        files.path.symlink_to(project / "other.yaml")
    after = WatchedFiles(files.path, DefinedHooks(HookRegistry()), trust=trust, environment={})
    after.refresh()
    outcome = await after.hooks.registry.emit("tool:pre", {"tool_name": "x", "session_id": "s"})
    assert outcome.reason == "old"
    assert after.state.problem


@pytest.mark.rule("TRU-2")
def test_what_was_trusted_elsewhere_is_not_trusted_here(files: WatchedFiles, trust: TrustStore, tmp_path: Path) -> None:
    """Trust in files of one project does not hold for equal files in another project."""
    files.path.write_text(text("a"))
    accept(files)
    other = tmp_path / "elsewhere" / "amplifier-hooks.yaml"
    other.parent.mkdir()
    other.write_text(text("a"))
    elsewhere = WatchedFiles(other, DefinedHooks(HookRegistry()), trust=trust, environment={})
    elsewhere.refresh()
    assert not elsewhere.state.trusted


@pytest.mark.rule("DEF-1")
def test_a_name_that_is_misspelt_in_one_file_is_mended_there(files: WatchedFiles) -> None:
    """Where what is wrong lies in a file that was not in force before, that file is watched, too."""
    files.path.write_text(text("a") + "- {name: b, $ref: 'sub.yaml#/definitions/x'}\n")
    sub = files.path.parent / "sub.yaml"
    sub.write_text("version: 1\ndefinitions: {x: {event_type: tool:pre, handler_ref: 'house:absent'}}\n")
    files.refresh()
    assert files.state.problem.startswith(f"{sub.resolve()}:2: ")
    before = files.signature()
    sub.write_text("version: 1\ndefinitions: {x: {event_type: tool:pre, handler_ref: 'house:say'}}\n")
    assert files.signature() != before


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


@pytest.mark.rule("TRU-10")
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


@pytest.mark.rule("TRU-10")
def test_a_new_name_waits(project: Path) -> None:
    """A module that is named later is not trusted by that, and is not found among the trusted ones."""
    pinned(project)
    (project / "evil.py").write_text("raise SystemExit(7)\n")
    later = pinned(project, "guards:", "evil:")
    assert later.waiting is not None
    with pytest.raises(ModuleNotFoundError, match="not among the trusted files"):
        later.modules.load("evil")


@pytest.mark.rule("TRU-10")
def test_looking_trusts_nothing(project: Path) -> None:
    """A look at modules that were never trusted leaves them untrusted; installed modules are never among them."""
    assert pinned(project, looks=True).waiting is not None
    assert pinned(project, looks=True).waiting is not None
    installed = pinned(project, "attrs:", "json:")
    assert (installed.waiting, installed.trust.trusted_files()) == (None, frozenset())


@pytest.mark.rule("TRU-10")
def test_a_copy_that_is_gone_imports_nothing_else(project: Path) -> None:
    """Where a private copy was removed or changed, the module is not imported, from the project neither."""
    pinned(project)
    for path in (project.parent / "state" / "trusted").rglob("guards.py"):
        path.chmod(0o600)
        path.write_text("WORD = 'evil'\n")
    with pytest.raises(HookUnavailable, match="is not as it was trusted"):
        word(pinned(project).modules)


@pytest.mark.rule("TRU-10")
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
