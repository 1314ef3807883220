"""A process that may write to the project attacks the files that trust covers."""

import asyncio
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from amplifier_hooks import HookRegistry
from amplifier_hooks.definitions import DefinedHooks, TrustStore, WatchedFiles
from amplifier_hooks.result import Outcome
from tests.conftest import THOROUGH

pytestmark = pytest.mark.rule("TRU-5", "TRU-7")

HOOK = "version: 1\nhooks:\n- {name: guard, event_type: tool:pre, priority: 10, handler_ref: command, %s}\n"
GUARD = "#!/bin/sh\n[ -e lib.sh ] && . ./lib.sh\necho trusted >&2; exit 2\n"
EVIL = "#!/bin/sh\ntouch ran; exit 0\n"
CALL = {"tool_name": "x", "session_id": "s", "tool_input": {}}


@pytest.fixture(params=[0o022, 0o000], ids=["umask 022", "umask 000"])
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A project with a guard, also under an umask that closes nothing."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    before = os.umask(request.param)
    (tmp_path / "project" / "guard.sh").write_text(GUARD)
    (tmp_path / "project" / "guard.sh").chmod(0o755)
    yield tmp_path / "project"
    os.umask(before)


def watched(project: Path) -> WatchedFiles:
    """Watch the files of a project as a new process does."""
    trust = TrustStore(project.parent / "home" / "state" / "amplifier-hooks" / "trust.json")
    return WatchedFiles(project / "hooks.yaml", DefinedHooks(HookRegistry()), trust=trust, environment={})


def trusted(project: Path, config: str = "config: {argv: [./guard.sh]}") -> WatchedFiles:
    """Trust a project as it is now."""
    (project / "hooks.yaml").write_text(HOOK % config)
    (project / "hooks.yaml").chmod(0o644)
    files = watched(project)
    files.refresh()
    assert (files.waiting, files.trust) != (None, None)
    assert files.waiting is not None
    assert files.trust is not None
    files.trust.trust(files.source, [files.waiting])
    files.refresh()
    assert not files.state.problem
    return files


async def ask(files: WatchedFiles) -> Outcome:
    """Ask the hooks in force about a call."""
    return await files.hooks.registry.emit("tool:pre", CALL)


def put(path: Path, kind: str) -> None:
    """Put something else in the place of a file."""
    with suppress(FileNotFoundError):
        path.unlink()
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a huge file":
        path.touch()
        os.truncate(path, 1 << 40)
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    elif kind == "a dangling link":
        path.symlink_to("nowhere")
    else:
        path.symlink_to(path.name)


THINGS = ("a pipe", "a folder", "a huge file", "a device", "a dangling link", "a link to itself")


@pytest.mark.parametrize("name", ["hooks.yaml", "guard.sh", "lib.sh"])
@pytest.mark.parametrize("thing", THINGS)
async def test_something_else_in_the_place_of_a_file(name: str, thing: str, project: Path) -> None:
    """Whatever lies in the place of a file, no reader waits for it, the guard stays, and nothing is taken over."""
    (project / "lib.sh").write_text("# of the guard\n")
    files = trusted(project)
    put(project / name, thing)
    for one in (files, watched(project)):
        one.refresh()
        assert one.state.problem
        outcome = await ask(one)
        assert outcome.denied
        assert outcome.answers[0].status == ("unavailable" if name == "lib.sh" else "ok")


@pytest.mark.parametrize("thing", [*THINGS[:4], "a script"])
async def test_something_in_the_place_of_a_missing_file(thing: str, project: Path) -> None:
    """A guard that would run a missing file does not run once something lies there: a file, or a pipe to write to."""
    files = trusted(project)
    assert (await ask(files)).reason == "trusted"
    if thing == "a script":
        (project / "lib.sh").write_text(EVIL)
    else:
        put(project / "lib.sh", thing)
    outcome = await ask(files)
    assert (outcome.denied, outcome.answers[0].status) == (True, "unavailable")
    assert not (project / "ran").exists()


async def test_copies_are_closed_to_other_users(project: Path) -> None:
    """All folders and files that we make are for their owner alone, whatever the umask."""
    files = trusted(project)
    assert (await ask(files)).reason == "trusted"
    home = project.parent / "home"
    assert [str(one) for one in (home, *home.rglob("*")) if stat.S_IMODE(one.stat().st_mode) & 0o077] == []


@pytest.mark.parametrize(
    ("folder", "mode"),
    [("home/state/amplifier-hooks/trusted", 0o770), ("home/state/amplifier-hooks", 0o702), ("home", 0o777)],
)
def test_a_folder_that_others_can_write_is_refused(folder: str, mode: int, project: Path) -> None:
    """Copies in a folder that other users can write, or below one, are not put in force."""
    trusted(project)
    (project.parent / folder).chmod(mode)
    again = watched(project)
    again.refresh()
    assert again.hooks.in_force is None
    assert "others may write to" in again.state.problem


async def test_a_hard_link_changes_no_guard(project: Path) -> None:
    """A write through another name of a file is a change like any other, also of a private copy."""
    files = trusted(project)
    os.link(project / "guard.sh", project / "other")
    (project / "other").write_text(EVIL)
    assert (await ask(files)).reason == "trusted"
    files.refresh()
    assert files.state.problem
    for number, one in enumerate(project.parent.glob("home/state/amplifier-hooks/trusted/*/**/guard.sh")):
        os.link(one, project / f"link{number}")
        (project / f"link{number}").chmod(0o700)
        (project / f"link{number}").write_text(EVIL)
    outcome = await ask(files)
    assert (outcome.denied, outcome.answers[0].status) == (True, "unavailable")
    assert not (project / "ran").exists()


async def test_a_project_behind_a_link(project: Path) -> None:
    """Where a link to the project leads elsewhere later, the trusted set stays in force, and the other one waits."""
    link = project.parent / "link"
    link.symlink_to(project)
    files = trusted(link)
    other = project.parent / "other"
    other.mkdir()
    (other / "hooks.yaml").write_text("version: 1\n")
    (other / "hooks.yaml").chmod(0o644)
    (other / "guard.sh").write_text(EVIL)
    link.unlink()
    link.symlink_to(other)
    for one in (files, watched(link)):
        one.refresh()
        assert one.waiting is not None
        assert (await ask(one)).reason == "trusted"


async def test_a_file_that_is_swapped_all_the_time(project: Path) -> None:
    """A script that another thread swaps without a pause runs as it was trusted, every time."""
    files = trusted(project)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for text in (EVIL, GUARD):
                (project / "new").write_text(text)
                (project / "new").chmod(0o755)
                (project / "new").replace(project / "guard.sh")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(20 if THOROUGH else 5):
            assert (await ask(files)).reason == "trusted"
            await asyncio.to_thread(files.refresh)
    finally:
        stop.set()
        thread.join()
    assert not (project / "ran").exists()


async def test_the_script_of_a_ready_made_hook(project: Path) -> None:
    """A ready-made hook starts its program in its own place, and not after the program was changed."""
    (project / "lint.sh").write_text("#!/bin/sh\nexit 0\n")
    (project / "lint.sh").chmod(0o755)
    files = trusted(project)
    (project / "hooks.yaml").write_text('version: 1\nlibrary: {linter_feedback: {command: [./lint.sh, "{file}"]}}\n')
    files.refresh()
    assert files.waiting is not None
    assert files.trust is not None
    files.trust.trust(files.source, [files.waiting])
    files.refresh()
    (project / "lint.sh").write_text(EVIL)
    call = {"tool_name": "Write", "session_id": "s", "tool_input": {"file_path": str(project / "a.py")}, "result": "x"}
    outcome = await files.hooks.registry.emit("tool:post", call)
    assert outcome.answers[0].status == "unavailable"
    assert not (project / "ran").exists()


TRUST = """
import sys
from pathlib import Path
from amplifier_hooks.definitions.trust import FileList, TrustStore
store = TrustStore(Path(sys.argv[1]))
for number in range(40):
    store.trust(f"{sys.argv[2]}{number}", [FileList(folder="/")])
    store.deny(f"{sys.argv[2]}{number}", FileList(folder="/other"))
"""


@pytest.mark.rule("TRU-2")
def test_projects_that_share_a_store(tmp_path: Path) -> None:
    """Trust that two processes give at the same time is kept, that of each of them."""
    path = tmp_path / "state" / "trust.json"
    running = [subprocess.Popen([sys.executable, "-c", TRUST, os.fspath(path), name]) for name in ("a", "b")]
    assert [one.wait() for one in running] == [0, 0]
    store = TrustStore(path)
    assert all(store.trusted_list(f"{name}{number}") for name in "ab" for number in range(40))


async def test_equal_projects_share_no_trust(project: Path) -> None:
    """Two projects with equal files in one store: the change of one waits there, and leaves the other alone."""
    first = trusted(project)
    other = project.parent / "second"
    other.mkdir()
    (other / "guard.sh").write_text(GUARD)
    (other / "guard.sh").chmod(0o755)
    second = trusted(other)
    (other / "guard.sh").write_text(EVIL)
    first.refresh()
    second.refresh()
    assert (first.waiting, second.waiting is not None) == (None, True)
    assert (await ask(first)).reason == (await ask(second)).reason == "trusted"


def test_a_store_that_others_can_write_trusts_nothing(project: Path) -> None:
    """A store of trust that other users can write trusts nothing, so nothing is put in force."""
    files = trusted(project)
    assert files.trust is not None
    files.trust.path.chmod(0o602)
    again = watched(project)
    again.refresh()
    assert again.hooks.in_force is None


def git(folder: Path, *words: str, check: bool = True) -> None:
    """Run git as its owner would."""
    subprocess.run(["git", *words], cwd=folder, check=check)


async def test_the_settings_of_a_repository(project: Path) -> None:
    """A guard that asks git for the status runs no monitor and no hook that the repository names."""
    git(project, "init", "--quiet")
    (project / "guard.sh").write_text("#!/bin/sh\ngit status --short; git add guard.sh; echo trusted >&2; exit 2\n")
    files = trusted(project)
    hook = project / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    for program in (hook, project / "monitor"):
        program.write_text(EVIL)
        program.chmod(0o755)
    git(project, "config", "core.fsmonitor", str(project / "monitor"))
    assert (await ask(files)).reason == "trusted"
    assert not (project / "ran").exists()
    git(project, "status")
    assert (project / "ran").exists(), "the repository names no program"


async def test_the_programs_of_a_repository(project: Path, tmp_path: Path) -> None:
    """A guard that reads the log and the status runs no check of signatures and no fetch that the repository names."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("x")
    signing = tmp_path / "sign"
    signature = "-----BEGIN PGP SIGNATURE-----\n\nx\n-----END PGP SIGNATURE-----"
    signing.write_text(f"#!/bin/sh\ncat > /dev/null; echo '[GNUPG:] SIG_CREATED ' >&2; echo '{signature}'\n")
    signing.chmod(0o755)
    git(source, "init", "--quiet")
    git(source, "add", ".")
    who = ("-c", "user.name=a", "-c", "user.email=a@b.example", "-c", f"gpg.program={signing}")
    git(source, *who, "commit", "--quiet", "--gpg-sign", "--message", "x")
    git(source, "config", "uploadpack.allowFilter", "true")
    git(project, "clone", "--quiet", "--no-checkout", "--filter=tree:0", f"file://{source}", "clone")
    (project / "clone" / ".git").rename(project / ".git")
    (project / "guard.sh").write_text("#!/bin/sh\ngit log -1 2> log; git status 2>> log; echo trusted >&2; exit 2\n")
    files = trusted(project)
    program = project / "program"
    program.write_text(EVIL)
    program.chmod(0o755)
    asked = {"gpg.program": "log", "remote.origin.uploadpack": "status"}
    git(project, "config", "log.showSignature", "true")
    for name in asked:
        git(project, "config", name, str(program))
    assert (await ask(files)).reason == "trusted"
    assert not (project / "ran").exists()
    for name, question in asked.items():
        git(project, question, check=False)
        assert (project / "ran").exists(), f"{name} names no program that git {question} runs"
        (project / "ran").unlink()
